"""The shape of a model, read from GGUF metadata or a hub `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from engine.model import architectures, rope
from engine.model.family import PLAIN, Family
from engine.model.rope import RopeScaling
from engine.request import WeightsError

_MOST_LAYERS = 1024
#: LLaDA's own name of a key -> what everybody else calls it.
_LLADA_KEYS = {
    "d_model": "hidden_size",
    "mlp_hidden_size": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "embedding_size": "vocab_size",
    "max_sequence_length": "max_position_embeddings",
    "include_qkv_bias": "attention_bias",
    "activation_type": "hidden_act",
    "weight_tying": "tie_word_embeddings",
}
#: What LLaDA's code could do and its published models do not: what must hold, key by key.
_LLADA_FIXED: dict[str, tuple[Any, ...]] = {
    "block_type": (None, "llama"),
    "layer_norm_type": (None, "rms"),
    "rope": (None, True),
    "layer_norm_with_affine": (None, True),
    **dict.fromkeys(
        (
            "alibi",
            "attention_layer_norm",
            "bias_for_layer_norm",
            "include_bias",
            "input_emb_norm",
            "multi_query_attention",
            "scale_logits",
        ),
        (None, False),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of a pre-norm decoder with RMSNorm, RoPE, grouped heads and SwiGLU, and its family.

    `qk_norm`: an RMSNorm over each head's query and key, before rotation.
    """

    architecture: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rope_theta: float
    norm_eps: float
    context_length: int
    qkv_bias: bool
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None
    family: Family = PLAIN

    def __post_init__(self) -> None:
        sizes = {f.name: getattr(self, f.name) for f in fields(self) if f.type in ("int", "float")}
        wrong = next((f"{name} {size}" for name, size in sizes.items() if not size > 0), None)
        if self.head_dim % 2:
            wrong = f"head_dim {self.head_dim}"
        if self.layers > _MOST_LAYERS:
            wrong = f"layers {self.layers}"
        if wrong:
            raise WeightsError(f"the model's configuration is damaged: {wrong} cannot be right")
        if self.heads % self.kv_heads:
            raise WeightsError(f"{self.heads} heads cannot share {self.kv_heads} key heads")

    @property
    def qkv_rows(self) -> int:
        """Output rows of the fused q, k, v projection."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def parameters(self) -> int:
        """How many numbers the model holds, a tied head counted twice: we keep both."""
        attention = self.hidden * (self.qkv_rows + self.heads * self.head_dim)
        layer = attention + 3 * self.hidden * self.intermediate
        return self.layers * layer + 2 * self.vocab * self.hidden


def from_plain(data: Mapping[str, Any]) -> ModelConfig:
    """The config that `dataclasses.asdict` turned into `data`, JSON's lists and all."""
    scaling, family = data.get("rope_scaling"), data.get("family")
    parts: dict[str, Any] = {}
    if scaling:
        parts["rope_scaling"] = RopeScaling(**_tuples(scaling))
    if family:
        parts["family"] = Family(**_tuples(family))
    return ModelConfig(**{**data, **parts})


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}


def _require(values: Mapping[str, Any], key: str, source: str) -> Any:
    if values.get(key) is None:
        raise WeightsError(f"{source} has no {key!r}; it is not a model we can run")
    return values[key]


def _number(values: Mapping[str, Any], key: str, source: str) -> float:
    value = _require(values, key, source)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WeightsError(f"{source} has {key!r} {str(value)[:80]!r}; a number is needed")
    return value


def _refuse(feature: str) -> None:
    raise WeightsError(f"{feature} is not supported; use a model without it")


def from_gguf(meta: Mapping[str, Any], vocab: int) -> ModelConfig:
    """Config from GGUF metadata; `vocab` is the row count of the embedding."""
    arch = str(_require(meta, "general.architecture", "the GGUF file"))
    kind = architectures.of_gguf(arch)

    def get(key: str, default: float | None = None) -> float:
        name = f"{arch}.{key}"
        known = default is not None and meta.get(name) is None
        return _number({name: default} if known else meta, name, "the GGUF file")

    hidden, heads = int(get("embedding_length")), int(get("attention.head_count"))
    head_dim = int(get("attention.key_length", hidden // max(1, heads)))
    if get("rope.dimension_count", head_dim) != head_dim:
        _refuse("RoPE over a part of each head")
    length = int(get("context_length"))
    return ModelConfig(
        architecture=arch,
        hidden=hidden,
        intermediate=int(get("feed_forward_length")),
        layers=int(get("block_count")),
        heads=heads,
        kv_heads=int(get("attention.head_count_kv", heads)),
        head_dim=head_dim,
        vocab=vocab,
        rope_theta=float(get("rope.freq_base", 10000.0)),
        norm_eps=float(get("attention.layer_norm_rms_epsilon")),
        context_length=length,
        qkv_bias=bool(kind.qkv_bias),
        qk_norm=kind.qk_norm,
        rope_scaling=rope.from_gguf(meta, arch, length),
    )


def from_hub(config: Mapping[str, Any]) -> ModelConfig:
    """Config from a hub folder's `config.json`."""
    arch = str(_require(config, "model_type", "config.json"))
    kind = architectures.of_hub(arch)
    plain = plain_keys(config)
    own = {ours: theirs for theirs, ours in _LLADA_KEYS.items()} if arch == "llada" else {}

    def get(key: str, default: float | None = None) -> float:
        if default is not None and plain.get(key) is None:
            return default
        if plain.get(key) is None:
            _require(config, own.get(key, key), "config.json")  # said in the file's own words
        return _number(plain, key, "config.json")

    _refuse_variants(plain)
    hidden, heads = int(get("hidden_size")), int(get("num_attention_heads"))
    theta = (plain.get("rope_parameters") or {}).get("rope_theta") or 10000.0
    bias = bool(plain.get("attention_bias")) if kind.qkv_bias is None else kind.qkv_bias
    return ModelConfig(
        architecture=arch,
        hidden=hidden,
        intermediate=int(get("intermediate_size")),
        layers=int(get("num_hidden_layers")),
        heads=heads,
        kv_heads=int(get("num_key_value_heads", heads)),
        head_dim=int(get("head_dim", hidden // max(1, heads))),
        vocab=int(get("vocab_size")),
        rope_theta=float(get("rope_theta", theta)),
        norm_eps=float(get("rms_norm_eps", 1e-6)),
        context_length=int(get("max_position_embeddings", 2048)),
        qkv_bias=bias,
        qk_norm=kind.qk_norm,
        rope_scaling=rope.from_hub(plain),
    )


def plain_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """A `config.json` in everybody's words; raises WeightsError for what LLaDA's code could do and
    ours cannot."""
    if config.get("model_type") != "llada":
        return dict(config)
    for key, allowed in _LLADA_FIXED.items():
        if config.get(key) not in allowed:
            _refuse(f"{key} {config[key]!r}")
    renamed = {_LLADA_KEYS.get(key, key): value for key, value in config.items()}
    # its "vocab_size" counts tokens; the embedding may have more rows
    return renamed | {"vocab_size": config.get("embedding_size") or config.get("vocab_size")}


def _refuse_variants(config: Mapping[str, Any]) -> None:
    """What would load and then compute something else must not load."""
    if config.get("hidden_act", "silu") != "silu":
        _refuse(f"activation {config['hidden_act']!r}")
    if config.get("use_sliding_window"):
        _refuse("sliding-window attention")
    given = config.get("rope_parameters") or {}
    if (given.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1) != 1:
        _refuse("RoPE over a part of each head")

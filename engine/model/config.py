"""The shape of a base model, read from GGUF metadata or a hub `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from engine.request import WeightsError

ARCHITECTURES = ("qwen2", "llama")
_MOST_LAYERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of a pre-norm decoder with RMSNorm, RoPE, grouped heads and SwiGLU."""

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


def _known(architecture: str) -> str:
    if architecture not in ARCHITECTURES:
        raise WeightsError(
            f"architecture {architecture!r} is not supported; use one of {', '.join(ARCHITECTURES)}"
        )
    return architecture


def from_gguf(meta: Mapping[str, Any], vocab: int) -> ModelConfig:
    """Config from GGUF metadata; `vocab` is the row count of the embedding."""
    arch = _known(str(_require(meta, "general.architecture", "the GGUF file")))

    def get(key: str, default: float | None = None) -> float:
        name = f"{arch}.{key}"
        known = default is not None and meta.get(name) is None
        return _number({name: default} if known else meta, name, "the GGUF file")

    scaling = meta.get(f"{arch}.rope.scaling.type")
    if scaling not in (None, "none"):
        _refuse(f"RoPE scaling {scaling!r}")
    hidden, heads = int(get("embedding_length")), int(get("attention.head_count"))
    head_dim = int(get("attention.key_length", hidden // max(1, heads)))
    if get("rope.dimension_count", head_dim) != head_dim:
        _refuse("RoPE over a part of each head")
    return ModelConfig(
        architecture=arch,
        hidden=hidden,
        intermediate=int(get("feed_forward_length")),
        layers=int(get("block_count")),
        heads=heads,
        kv_heads=int(get("attention.head_count_kv")),
        head_dim=head_dim,
        vocab=vocab,
        rope_theta=float(get("rope.freq_base", 10000.0)),
        norm_eps=float(get("attention.layer_norm_rms_epsilon")),
        context_length=int(get("context_length")),
        qkv_bias=arch == "qwen2",
    )


def from_hub(config: Mapping[str, Any]) -> ModelConfig:
    """Config from a hub folder's `config.json`."""
    arch = _known(str(_require(config, "model_type", "config.json")))

    def get(key: str, default: float | None = None) -> float:
        known = default is not None and config.get(key) is None
        return _number({key: default} if known else config, key, "config.json")

    rope = config.get("rope_parameters") or {}
    _refuse_variants(config, rope)
    hidden, heads = int(get("hidden_size")), int(get("num_attention_heads"))
    theta = rope.get("rope_theta") or 10000.0
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
        qkv_bias=arch == "qwen2" or bool(config.get("attention_bias")),
    )


def _refuse_variants(config: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    """What would load and then compute something else must not load."""
    for scaling in (config.get("rope_scaling"), rope):
        kind = scaling and scaling.get("rope_type", scaling.get("type", "default"))
        if kind and kind != "default":
            _refuse(f"RoPE scaling {kind!r}")
    if config.get("hidden_act", "silu") != "silu":
        _refuse(f"activation {config['hidden_act']!r}")
    if config.get("use_sliding_window"):
        _refuse("sliding-window attention")
    if (rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1) != 1:
        _refuse("RoPE over a part of each head")

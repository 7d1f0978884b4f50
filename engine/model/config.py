"""The shape of a base model, read from GGUF metadata or a hub `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.request import WeightsError

ARCHITECTURES = ("qwen2", "llama")


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


def _known(architecture: str) -> str:
    if architecture not in ARCHITECTURES:
        raise WeightsError(
            f"architecture {architecture!r} is not supported; use one of {', '.join(ARCHITECTURES)}"
        )
    return architecture


def from_gguf(meta: Mapping[str, Any], vocab: int) -> ModelConfig:
    """Config from GGUF metadata; `vocab` is the row count of the embedding."""
    arch = _known(str(_require(meta, "general.architecture", "the GGUF file")))

    def get(key: str) -> Any:
        return _require(meta, f"{arch}.{key}", "the GGUF file")

    hidden, heads = int(get("embedding_length")), int(get("attention.head_count"))
    return ModelConfig(
        architecture=arch,
        hidden=hidden,
        intermediate=int(get("feed_forward_length")),
        layers=int(get("block_count")),
        heads=heads,
        kv_heads=int(get("attention.head_count_kv")),
        head_dim=int(meta.get(f"{arch}.attention.key_length") or hidden // heads),
        vocab=vocab,
        rope_theta=float(meta.get(f"{arch}.rope.freq_base") or 10000.0),
        norm_eps=float(get("attention.layer_norm_rms_epsilon")),
        context_length=int(get("context_length")),
        qkv_bias=arch == "qwen2",
    )


def from_hub(config: Mapping[str, Any]) -> ModelConfig:
    """Config from a hub folder's `config.json`."""
    arch = _known(str(_require(config, "model_type", "config.json")))

    def get(key: str) -> Any:
        return _require(config, key, "config.json")

    scaling = config.get("rope_scaling")
    if scaling and str(scaling.get("rope_type", scaling.get("type"))) != "default":
        raise WeightsError(f"RoPE scaling {scaling!r} is not supported")
    hidden, heads = int(get("hidden_size")), int(get("num_attention_heads"))
    rope = config.get("rope_parameters") or {}
    return ModelConfig(
        architecture=arch,
        hidden=hidden,
        intermediate=int(get("intermediate_size")),
        layers=int(get("num_hidden_layers")),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        vocab=int(get("vocab_size")),
        rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        norm_eps=float(config.get("rms_norm_eps") or 1e-6),
        context_length=int(config.get("max_position_embeddings") or 2048),
        qkv_bias=arch == "qwen2" or bool(config.get("attention_bias")),
    )

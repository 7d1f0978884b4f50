"""The base: a causal decoder that encodes tokens into a `Stream` and scores them.

Pre-norm, RMSNorm, RoPE, grouped heads, SwiGLU; Qwen2 and Llama kin by config alone. Knows nothing
of holes or masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache import Stream
from engine.kernels import Kernels
from engine.model.config import ModelConfig
from engine.model.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One block. qkv: hidden -> (heads + 2 kv_heads) head_dim; gate_up: hidden -> 2 inner."""

    attn_norm: Tensor
    qkv: Linear
    out: Linear
    ffn_norm: Tensor
    gate_up: Linear
    down: Linear


class Transformer:
    """`encode` appends rows to a stream; `logits` scores hidden rows.

    `feature_depths` name the layers whose *input* hidden state is kept as features; the final
    hidden state is kept behind them, so that a stream cut anywhere can go on from there.
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding: Embedding,
        layers: tuple[Layer, ...],
        head: Head,
        feature_depths: tuple[int, ...],
        kernels: Kernels,
    ) -> None:
        self.config, self.layers, self.head, self.kernels = config, layers, head, kernels
        self.embedding, self.feature_depths = embedding, feature_depths
        self.rope = Rope(config.head_dim, config.rope_theta)

    def encode(self, ids: list[int], stream: Stream) -> Tensor:
        """Append `ids` to the stream; returns their last hidden states [n, hidden] float32."""
        start, rows = len(stream), len(ids)
        stream.reserve(rows)
        rotation = self.rope.at(torch.arange(start, start + rows))
        x, eps = self.embedding(torch.tensor(ids)), self.config.norm_eps
        do = self.kernels
        for depth, layer in enumerate(self.layers):
            for slot, wanted in enumerate(self.feature_depths):  # two slots may want one depth
                if wanted == depth:
                    stream.features[start : start + rows, slot] = x
            keys, values = stream.keys[depth], stream.values[depth]
            fused = layer.qkv(do.rms_norm(x, layer.attn_norm, eps))
            q = do.rope_cache(fused, rotation, keys, values, start)
            x = x + layer.out(do.causal_attention(q, keys, values, start))
            gate_up = layer.gate_up(do.rms_norm(x, layer.ffn_norm, eps))
            x = x + layer.down(do.swiglu(gate_up))
        stream.features[start : start + rows, -1] = x
        stream.ids.extend(ids)
        return x

    def new_stream(self, capacity: int = 256) -> Stream:
        """An empty stream for this base."""
        return Stream(self.config, len(self.feature_depths) + 1, capacity)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [n, hidden] -> logits [n, vocab] float32."""
        return self.head(hidden)


class Embedding:
    """Token rows, float32 or 8-bit in groups (memory-mapped)."""

    def __init__(self, weight: Tensor, scale: Tensor | None = None) -> None:
        """weight [V, H] float32, or int8 with scale [V, groups] float16."""
        self.weight, self.scale = weight, scale

    def __call__(self, ids: Tensor) -> Tensor:
        """ids [n] int64 -> [n, hidden] float32."""
        rows = self.weight[ids].to(torch.float32)
        if self.scale is None:
            return rows
        scale = self.scale[ids].to(torch.float32)
        grouped: Tensor = rows.unflatten(1, (scale.shape[1], -1)) * scale[..., None]
        return grouped.flatten(1)


class Head:
    """Final norm and projection onto the vocabulary."""

    def __init__(self, norm: Tensor, project: Linear, eps: float, kernels: Kernels) -> None:
        self.norm, self.project, self.eps, self.kernels = norm, project, eps, kernels

    def __call__(self, hidden: Tensor) -> Tensor:
        """[n, hidden] -> [n, vocab] float32."""
        return self.project(self.kernels.rms_norm(hidden, self.norm, self.eps))


class Rope:
    """Rotary tables, half-split layout; positions may be negative."""

    def __init__(self, head_dim: int, theta: float) -> None:
        self.frequencies = theta ** -(torch.arange(0, head_dim, 2).float() / head_dim)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions [n] -> (cos, sin) each [n, head_dim // 2]."""
        angles = positions.to(torch.float32)[:, None] * self.frequencies
        return angles.cos(), angles.sin()

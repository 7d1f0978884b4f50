"""The base: a causal decoder that encodes tokens into a `Stream` and scores them.

Pre-norm, RMSNorm, RoPE, grouped heads, SwiGLU; Qwen2 and Llama kin by config alone. Knows nothing
of holes or masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cache import Stream
from engine.model.config import ModelConfig
from engine.model.linear import Linear

#: Up to this many new rows attention runs row by row, so that a row's bits do not depend on its
#: neighbours; longer runs are context, where every mode encodes in the same pieces.
EXACT_ROWS = 16


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
    ) -> None:
        self.config, self.layers, self.head = config, layers, head
        self.embedding, self.feature_depths = embedding, feature_depths
        self.rope = Rope(config.head_dim, config.rope_theta)

    def encode(self, ids: list[int], stream: Stream) -> Tensor:
        """Append `ids` to the stream; returns their last hidden states [n, hidden] float32."""
        start, rows = len(stream), len(ids)
        stream.reserve(rows)
        cos, sin = self.rope.at(torch.arange(start, start + rows))
        x = self.embedding(torch.tensor(ids))
        for depth, layer in enumerate(self.layers):
            if depth in self.feature_depths:
                slot = self.feature_depths.index(depth)
                stream.features[start : start + rows, slot] = x
            q, k, v = self._project(layer, x, cos, sin)
            stream.keys[depth, :, start : start + rows] = k
            stream.values[depth, :, start : start + rows] = v
            x = x + layer.out(self._attend(q, stream, depth, start))
            x = x + swiglu(layer, rms_norm(x, layer.ffn_norm, self.config.norm_eps))
        stream.features[start : start + rows, -1] = x
        stream.ids.extend(ids)
        return x

    def new_stream(self, capacity: int = 256) -> Stream:
        """An empty stream for this base."""
        return Stream(self.config, len(self.feature_depths) + 1, capacity)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [n, hidden] -> logits [n, vocab] float32."""
        return self.head(hidden)

    def _project(
        self, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        c = self.config
        fused = layer.qkv(rms_norm(x, layer.attn_norm, c.norm_eps))
        q, k, v = split_heads(fused, c)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def _attend(self, q: Tensor, stream: Stream, depth: int, start: int) -> Tensor:
        """q [heads, n, D] over all keys up to each row's own -> [n, heads * D]."""
        rows = q.shape[1]
        keys, values = stream.keys[depth], stream.values[depth]
        if rows > EXACT_ROWS:
            total = start + rows
            mask = torch.ones(rows, total, dtype=torch.bool).tril_(start)
            return grouped_attention(q, keys[:, :total], values[:, :total], mask)
        parts = [
            grouped_attention(
                q[:, i : i + 1].contiguous(), keys[:, : start + i + 1], values[:, : start + i + 1]
            )
            for i in range(rows)
        ]
        return parts[0] if rows == 1 else torch.cat(parts)


class Embedding:
    """Token rows, float32 or int8 with a scale per row (memory-mapped)."""

    def __init__(self, weight: Tensor, scale: Tensor | None = None) -> None:
        self.weight, self.scale = weight, scale

    def __call__(self, ids: Tensor) -> Tensor:
        """ids [n] int64 -> [n, hidden] float32."""
        rows = self.weight[ids].to(torch.float32)
        return rows if self.scale is None else rows * self.scale[ids][:, None]


class Head:
    """Final norm and projection onto the vocabulary."""

    def __init__(self, norm: Tensor, project: Linear, eps: float) -> None:
        self.norm, self.project, self.eps = norm, project, eps

    def __call__(self, hidden: Tensor) -> Tensor:
        """[n, hidden] -> [n, vocab] float32."""
        return self.project(rms_norm(hidden, self.norm, self.eps))


class Rope:
    """Rotary tables, half-split layout; positions may be negative."""

    def __init__(self, head_dim: int, theta: float) -> None:
        self.frequencies = theta ** -(torch.arange(0, head_dim, 2).float() / head_dim)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions [n] -> (cos, sin) each [n, head_dim // 2]."""
        angles = positions.to(torch.float32)[:, None] * self.frequencies
        return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [..., n, D] by cos, sin [n, D // 2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., hidden] scaled to unit root mean square, times weight [hidden]."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def swiglu(layer: Layer, x: Tensor) -> Tensor:
    """x [n, hidden] -> [n, hidden]: down(silu(gate) * up)."""
    gate, up = layer.gate_up(x).chunk(2, dim=-1)
    return layer.down(F.silu(gate) * up)


def split_heads(fused: Tensor, c: ModelConfig) -> tuple[Tensor, Tensor, Tensor]:
    """fused [n, (heads + 2 kv_heads) D] -> q [heads, n, D], k and v [kv_heads, n, D]."""
    heads = fused.view(fused.shape[0], -1, c.head_dim).transpose(0, 1)
    own, both = c.heads, c.heads + c.kv_heads
    return heads[:own], heads[own:both], heads[both:]


def grouped_attention(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
) -> Tensor:
    """q [heads, n, D], keys/values [kv_heads, T, D], mask [n, T] bool (True: may see).

    Returns [n, heads * D]. Query heads of one group share a key head.
    """
    heads, rows, dim = q.shape
    groups = keys.shape[0]
    grouped = q.reshape(groups, (heads // groups) * rows, dim) * dim**-0.5
    scores = grouped @ keys.transpose(1, 2)
    if mask is not None:
        scores = scores.view(groups, -1, rows, scores.shape[-1])
        scores = scores.masked_fill(~mask, float("-inf")).view(groups, -1, scores.shape[-1])
    mixed: Tensor = scores.softmax(dim=-1) @ values
    mixed = mixed.view(heads, rows, dim).transpose(0, 1)
    return mixed.reshape(rows, heads * dim)

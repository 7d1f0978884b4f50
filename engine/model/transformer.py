"""The base: a causal decoder that encodes tokens into a `Stream` and scores them.

Pre-norm, RMSNorm, RoPE, grouped heads, SwiGLU; Qwen2 and Llama kin by config alone. Knows nothing
of holes or masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cache import TILE, Stream
from engine.model.config import ModelConfig
from engine.model.linear import Linear

#: Fewest rows of an attention product: below it the library takes a kernel of another rounding.
_LEAST_ROWS = 8


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
        mask = causal_mask(start, rows)
        for depth, layer in enumerate(self.layers):
            for slot, wanted in enumerate(self.feature_depths):  # two slots may want one depth
                if wanted == depth:
                    stream.features[start : start + rows, slot] = x
            q, k, v = self._project(layer, x, cos, sin)
            stream.keys[depth, :, start : start + rows] = k
            stream.values[depth, :, start : start + rows] = v
            span = mask.shape[1]
            keys, values = stream.keys[depth, :, :span], stream.values[depth, :, :span]
            x = x + layer.out(grouped_attention(q, keys, values, mask))
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
        heads = fused.view(x.shape[0], -1, c.head_dim).transpose(0, 1)
        both = rotate(heads[: c.heads + c.kv_heads], cos, sin)
        return both[: c.heads], both[c.heads :], heads[c.heads + c.kv_heads :]


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


def causal_mask(start: int, rows: int) -> Tensor:
    """[rows, T] float32, T a multiple of `TILE`: 0 where row `start + i` may see, else -inf."""
    span = -(-(start + rows) // TILE) * TILE
    later = torch.arange(span) > torch.arange(start, start + rows)[:, None]
    return torch.zeros(rows, span).masked_fill_(later, float("-inf"))


def grouped_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """q [heads, n, D], keys and values [kv_heads, T, D], mask [n, T] additive, T in whole tiles.

    Returns [n, heads * D]; query heads of one group share a key head. A row's bits depend on
    neither its neighbours nor the masked keys: products have at least `_LEAST_ROWS` rows, and
    values are summed tile by tile, so that more keys add exact zeros.
    """
    heads, rows, dim = q.shape
    groups, span, _ = keys.shape
    used = (heads // groups) * rows
    grouped = _padded(q.reshape(groups, used, dim) * dim**-0.5)
    scores = grouped @ keys.transpose(1, 2)
    if rows == 1:
        scores.add_(mask)
    else:
        scores[:, :used].view(groups, -1, rows, span).add_(mask)
    weights = scores.softmax(dim=-1)
    mixed = weights[:, :, :TILE] @ values[:, :TILE]
    for at in range(TILE, span, TILE):
        mixed = mixed.baddbmm_(weights[:, :, at : at + TILE], values[:, at : at + TILE])
    mixed = mixed[:, :used].reshape(heads, rows, dim).transpose(0, 1)
    return mixed.reshape(rows, heads * dim)


def _padded(x: Tensor) -> Tensor:
    """x [groups, n, m] with zero rows up to `_LEAST_ROWS`."""
    missing = _LEAST_ROWS - x.shape[1]
    return F.pad(x, (0, 0, 0, missing)) if missing > 0 else x

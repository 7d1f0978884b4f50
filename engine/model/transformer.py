"""One transformer for every family: rows of a `Stream` attend to as much of it as they are told.

Pre-norm, RMSNorm, RoPE, grouped heads, SwiGLU; Qwen2, Qwen3 and Llama kin by config alone. Causal,
block-causal and bidirectional passes differ only in `visible`. Knows nothing of holes or masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache import Stream
from engine.kernels import Kernels
from engine.model.config import ModelConfig
from engine.model.linear import Linear
from engine.model.rope import Rope

#: Rows of one turn through a feed-forward part: they stay in a core's own cache.
_FEED_ROWS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One block. qkv: hidden -> (heads + 2 kv_heads) head_dim; gate_up: hidden -> 2 inner.

    q_norm, k_norm [head_dim]: over each head before rotation, both or neither.
    """

    attn_norm: Tensor
    qkv: Linear
    out: Linear
    ffn_norm: Tensor
    gate_up: Linear
    down: Linear
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None


class Transformer:
    """`forward` computes rows of a stream, `encode` appends causal ones, `logits` scores rows.

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
        self.rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling)

    def encode(self, ids: list[int], stream: Stream) -> Tensor:
        """Append `ids` causally to the stream; returns their hidden states [n, hidden] float32."""
        start = len(stream)
        seen = torch.arange(start + 1, start + len(ids) + 1, device="cpu")
        return self.forward(ids, stream, start=start, visible=seen)

    def forward(
        self, ids: list[int] | Tensor, stream: Stream, *, start: int, visible: Tensor
    ) -> Tensor:
        """Compute R rows at positions start to start + R of the stream, over what stood there.

        ids: R token ids; visible [R] int64, on the CPU: row r attends to the first visible[r] keys
        of the stream, the new rows' among them. The stream's ids, keys, values and features are
        overwritten there, the rest stays; it grows where the rows pass its end. Returns the rows'
        last hidden states [R, hidden] float32. A row's bits depend only on what it sees.
        Raises ValueError for a gap behind the stream's end or for keys that are not there.
        """
        tokens = torch.as_tensor(ids)
        rows = len(tokens)
        if not rows:
            return torch.empty(0, self.config.hidden)
        end = max(len(stream), start + rows)
        least, most = int(visible.min()), int(visible.max())
        if not 0 <= start <= len(stream) or not 1 <= least <= most <= end:
            raise ValueError(f"rows from {start} on see {least} to {most} of {end} positions")
        stream.reserve(end - len(stream))
        rotation = self.rope.at(torch.arange(start, start + rows))
        x = self.embedding(tokens)
        for depth, layer in enumerate(self.layers):
            for slot, wanted in enumerate(self.feature_depths):  # two slots may want one depth
                if wanted == depth:
                    stream.features[start : start + rows, slot] = x
            keys, values = stream.keys[depth], stream.values[depth]
            q = self.kernels.rope_cache(self._project(layer, x), rotation, keys, values, start)
            x = x + layer.out(self.kernels.attention(q, keys, values, visible))
            # in parts: the inner rows of a whole file would take hundreds of megabytes at once
            x = torch.cat([self._feed(layer, part) for part in x.split(_FEED_ROWS)])
        stream.features[start : start + rows, -1] = x
        stream.ids[start : start + rows] = ids if isinstance(ids, list) else ids.tolist()
        return x

    def _project(self, layer: Layer, x: Tensor) -> Tensor:
        """x [n, hidden] -> q, k, v [n, (heads + 2 kv_heads) D], before rotation."""
        do, c = self.kernels, self.config
        fused = layer.qkv(do.rms_norm(x, layer.attn_norm, c.norm_eps))
        if layer.q_norm is None or layer.k_norm is None:
            return fused
        sizes = [count * c.head_dim for count in (c.heads, c.kv_heads, c.kv_heads)]
        q, k, v = fused.split(sizes, dim=1)
        q, k = (
            do.rms_norm(part.reshape(-1, c.head_dim), norm, c.norm_eps).view(len(x), -1)
            for part, norm in ((q, layer.q_norm), (k, layer.k_norm))
        )
        return torch.cat((q, k, v), dim=1)

    def _feed(self, layer: Layer, x: Tensor) -> Tensor:
        """x [n, hidden] plus its feed-forward part."""
        do = self.kernels
        gate_up = layer.gate_up(do.rms_norm(x, layer.ffn_norm, self.config.norm_eps))
        return x + layer.down(do.swiglu(gate_up))

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

"""The denoiser: a few bidirectional layers that fill a canvas over a frozen base.

Its rows see the base's keys and values of the context, the committed tokens and one another; the
context never sees them. Row 0 of a canvas is the token that the base chose next, visible; the rows
behind it are slots, masked or visible. (In the literature: encoder-decoder diffusion, E2D2; block-
diffusion drafting over a target's features, DFlash.)

Shapes: S canvases (sites), R rows each, H hidden, D head size, T context tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.reference import rotate
from engine.model.config import ModelConfig
from engine.model.linear import Linear
from engine.model.rope import Rope
from engine.model.transformer import Head, Layer

#: Row token that stands for "masked".
MASKED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the canvases see of the base.

    keys, values [layers, kv_heads, T, D]; `lengths` [S]: how many keys each canvas may see.
    features [S, 2, H]: the base's hidden states at the last visible token, middle and entry depth.
    after_keys, after_values [layers, kv_heads, M, D] or None: the suffix as a stream of its own.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor
    features: Tensor
    after_keys: Tensor | None = None
    after_values: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """How a canvas enters the network."""

    token: Linear  # the row's own token
    last: Linear  # the base's next token, told to every row
    middle: Linear  # the base's middle features
    mask: Tensor  # [H], stands for a masked token
    slots: Tensor  # [R_max, H], one learned vector per row


class Denoiser:
    """`hidden` runs the network; `logits` scores rows over the shortlist of the vocabulary."""

    def __init__(
        self,
        config: ModelConfig,
        inputs: Inputs,
        layers: tuple[Layer, ...],
        head: Head,
        shortlist: Tensor,
    ) -> None:
        """`shortlist` [V'] int64: the vocabulary ids that the head scores, in its order."""
        self.config, self.inputs, self.layers, self.head = config, inputs, layers, head
        self.shortlist = shortlist
        self.rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling)

    @property
    def max_rows(self) -> int:
        """Rows of the largest canvas: the base's next token and the slots behind it."""
        return int(self.inputs.slots.shape[0])

    def hidden(self, embedded: Tensor, masked: Tensor, context: Context) -> Tensor:
        """One denoising forward.

        embedded [S, R, H]: base embeddings of the row tokens (anything where masked);
        masked [S, R] bool. Returns [S * R, H] float32.
        """
        sites, rows, _ = embedded.shape
        x = self._enter(embedded, masked, context).flatten(0, 1)
        view = _View(
            rows=rows,
            before=self.rope.at((context.lengths[:, None] + torch.arange(rows)).flatten()),
            after=self.rope.at((torch.arange(rows) - rows).repeat(sites)),
            unseen=torch.arange(context.keys.shape[2]) >= context.lengths[:, None],
        )
        do = self.head.kernels
        for depth, layer in enumerate(self.layers):
            x = x + layer.out(self._attend(layer, x, depth, context, view))
            gate_up = layer.gate_up(do.rms_norm(x, layer.ffn_norm, self.config.norm_eps))
            x = x + layer.down(do.swiglu(gate_up))
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [n, H] -> [n, V'] over the shortlist."""
        return self.head(hidden)

    def _enter(self, embedded: Tensor, masked: Tensor, context: Context) -> Tensor:
        sites, rows, size = embedded.shape
        give = self.inputs
        tokens = torch.where(masked[..., None], give.mask, unit(embedded))
        x = give.token(tokens.flatten(0, 1)).view(sites, rows, size)
        told = give.last(unit(embedded[:, 0])) + give.middle(unit(context.features[:, 0]))
        entry = context.features[:, 1]
        return x + (told + entry)[:, None] + give.slots[:rows]

    def _attend(self, layer: Layer, x: Tensor, depth: int, context: Context, view: _View) -> Tensor:
        """Canvas queries over prefix keys, suffix keys and the canvas itself -> [n, heads * D]."""
        c, rows = self.config, view.rows
        normed = self.head.kernels.rms_norm(x, layer.attn_norm, c.norm_eps)
        q, k, v = split_heads(layer.qkv(normed), c)
        near = rotate(q, *view.before)
        seen = [scores(near, context.keys[depth], rows, view.unseen)]
        values = [context.values[depth]]
        if context.after_keys is not None and context.after_values is not None:
            seen.append(scores(rotate(q, *view.after), context.after_keys[depth], rows, None))
            values.append(context.after_values[depth])
        seen.append(own_scores(near, rotate(k, *view.before), rows))
        weights = torch.cat(seen, dim=-1).softmax(dim=-1)
        *parts, own = weights.split_with_sizes([s.shape[-1] for s in seen], dim=-1)
        mixed = own_mix(own, v, rows)
        for part, value in zip(parts, values, strict=True):
            grouped = part.reshape(value.shape[0], -1, part.shape[-1]) @ value
            mixed = mixed + grouped.view_as(mixed)
        return mixed.transpose(0, 1).reshape(x.shape[0], -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """Where the rows of all canvases stand: rotations towards the prefix and towards the suffix
    (whose first token follows the last row), and which prefix keys [S, T] each may not see."""

    rows: int
    before: tuple[Tensor, Tensor]
    after: tuple[Tensor, Tensor]
    unseen: Tensor


def unit(x: Tensor) -> Tensor:
    """x [..., H] scaled to unit root mean square."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-8)


def split_heads(fused: Tensor, c: ModelConfig) -> tuple[Tensor, Tensor, Tensor]:
    """fused [n, (heads + 2 kv_heads) D] -> q [heads, n, D], k and v [kv_heads, n, D]."""
    heads = fused.view(fused.shape[0], -1, c.head_dim).transpose(0, 1)
    own, both = c.heads, c.heads + c.kv_heads
    return heads[:own], heads[own:both], heads[both:]


def scores(q: Tensor, keys: Tensor, rows: int, hidden: Tensor | None) -> Tensor:
    """q [heads, S * R, D], keys [kv_heads, T, D], hidden [S, T] bool -> [heads, S * R, T]."""
    heads, n, dim = q.shape
    groups = keys.shape[0]
    raw: Tensor = (q.reshape(groups, -1, dim) * dim**-0.5) @ keys.transpose(1, 2)
    raw = raw.view(heads, n, -1)
    if hidden is None:
        return raw
    return raw.masked_fill(hidden.repeat_interleave(rows, dim=0), float("-inf"))


def own_scores(q: Tensor, k: Tensor, rows: int) -> Tensor:
    """Scores of a canvas on itself: q [heads, S * R, D], k [kv_heads, S * R, D] -> [.., R]."""
    heads, n, dim = q.shape
    groups = k.shape[0]
    by_site = q.view(groups, heads // groups, n // rows, rows, dim) * dim**-0.5
    keys = k.view(groups, 1, n // rows, rows, dim)
    raw: Tensor = by_site @ keys.transpose(-1, -2)
    return raw.reshape(heads, n, rows)


def own_mix(weights: Tensor, v: Tensor, rows: int) -> Tensor:
    """weights [heads, S * R, R], v [kv_heads, S * R, D] -> [heads, S * R, D]."""
    heads, n, _ = weights.shape
    groups, _, dim = v.shape
    by_site = weights.view(groups, heads // groups, n // rows, rows, rows)
    mixed: Tensor = by_site @ v.view(groups, 1, n // rows, rows, dim)
    return mixed.reshape(heads, n, dim)

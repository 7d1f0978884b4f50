"""softmax(q k^T / sqrt(D)) v of a few rows over many keys, split over the keys.

Each program takes a share of the keys, a key head and the queries of its group, and leaves the
largest score m, l = sum exp(s - m) and sum exp(s - m) v; a second kernel joins the shares,
sum_i exp(m_i - m) (...)_i (flash-decoding). Queries and keys may be rotated as they are loaded. A
step's prefix, suffix and canvas are `Segment`s of one softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.tiles import INTERPRETED, PROGRAMS, REGISTERS, WIDEN

_TILE = 64  # keys at a time
_MOST_SPLITS = 64
_MOST_DIM = 256
_PAIRS = 16 if INTERPRETED else 1  # of a row and a head, that one program joins

Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Keys and values [kv_heads, capacity, D] of which row r sees the first visible[r], int64.

    `turn`: cos, sin [n, D // 2] by which queries are rotated towards them; `turn_keys`: [capacity,
    D // 2] by which the keys are, where they are stored as they came.
    """

    keys: Tensor
    values: Tensor
    visible: Tensor
    turn: Rotation | None = None
    turn_keys: Rotation | None = None


@triton.jit
def _turn(a, b, cos, sin, place, mask):
    c = tl.load(cos + place, mask=mask, other=0.0)
    s = tl.load(sin + place, mask=mask, other=0.0)
    return a * c - b * s, b * c + a * s


@triton.jit
def _attend(
    q,
    keys,
    values,
    visible,
    cos,
    sin,
    key_cos,
    key_sin,
    mixed,
    figures,
    first_share,
    rows,
    heads,
    group,
    share,
    scale,
    q_head,
    q_row,
    k_head,
    k_row,
    v_head,
    v_row,
    HALF: tl.constexpr,
    WIDE: tl.constexpr,
    M: tl.constexpr,
    TILE: tl.constexpr,
):
    one, kv = tl.program_id(0), tl.program_id(1).to(tl.int64)
    query = tl.program_id(2) * M + tl.arange(0, M)
    row = (query // group).to(tl.int64)
    head = kv * group + query % group
    on = row < rows
    half, whole = tl.arange(0, WIDE), tl.arange(0, 2 * WIDE)
    short, full = half < HALF, whole < 2 * HALF
    source = q + (head * q_head + row * q_row)[:, None] + half[None, :]
    mask = on[:, None] & short[None, :]
    a = tl.load(source, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(source + HALF, mask=mask, other=0.0).to(tl.float32)
    if cos is not None:
        a, b = _turn(a, b, cos, sin, row[:, None] * HALF + half[None, :], mask)
    kind: tl.constexpr = tl.float32 if WIDEN else keys.dtype.element_ty
    a, b = (a * scale).to(kind), (b * scale).to(kind)
    seen = tl.load(visible + row, mask=on, other=0).to(tl.int32)
    end = tl.minimum((one + 1) * share, tl.max(seen, axis=0))
    peak = tl.full((M,), float("-inf"), tl.float32)
    weight = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, 2 * WIDE), tl.float32)
    for first in range(one * share, end, TILE):
        key = first + tl.arange(0, TILE)
        there = key < end
        place = keys + kv * k_head + key.to(tl.int64)[None, :] * k_row + half[:, None]
        both = there[None, :] & short[:, None]
        near = tl.load(place, mask=both, other=0.0)
        far = tl.load(place + HALF, mask=both, other=0.0)
        if key_cos is not None:
            turn = key[None, :] * HALF + half[:, None]
            near, far = _turn(near, far, key_cos, key_sin, turn, both)
        score = tl.dot(a, near.to(kind), input_precision="tf32x3")
        score = tl.dot(b, far.to(kind), score, input_precision="tf32x3")
        score = tl.where(key[None, :] < tl.minimum(seen, end)[:, None], score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        shares = tl.exp(score - base[:, None])
        shrink = tl.exp(peak - base)
        weight = weight * shrink + tl.sum(shares, axis=1)
        row_of = values + kv * v_head + key.to(tl.int64)[:, None] * v_row + whole[None, :]
        value = tl.load(row_of, mask=there[:, None] & full[None, :], other=0.0)
        sums = tl.dot(
            shares.to(kind), value.to(kind), sums * shrink[:, None], input_precision="tf32x3"
        )
        peak = higher
    at = ((first_share + one).to(tl.int64) * heads + head) * rows + row
    mask = on[:, None] & full[None, :]
    tl.store(mixed + at[:, None] * (2 * HALF) + whole[None, :], sums, mask=mask)
    tl.store(figures + at * 2, peak, mask=on)
    tl.store(figures + at * 2 + 1, weight, mask=on)


@triton.jit
def _join(
    mixed,
    figures,
    out,
    shares,
    rows,
    heads,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,
    SHARES: tl.constexpr,
    PAIRS: tl.constexpr,
):
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    head, row = pair // rows, pair % rows
    share, place = tl.arange(0, SHARES), tl.arange(0, WIDE)
    on = head < heads
    there = on[:, None] & (share < shares)[None, :]
    at = share.to(tl.int64)[None, :] * heads * rows + pair[:, None]
    peak = tl.load(figures + at * 2, mask=there, other=float("-inf"))
    weight = tl.load(figures + at * 2 + 1, mask=there, other=0.0)
    highest = tl.max(peak, axis=1)[:, None]
    factor = tl.where(weight > 0, tl.exp(peak - highest), 0.0)
    mask = there[:, :, None] & (place < DIM)[None, None, :]
    part = tl.load(mixed + at[:, :, None] * DIM + place[None, None, :], mask=mask, other=0.0)
    total = tl.sum(part * factor[:, :, None], axis=1)
    total = total / tl.sum(weight * factor, axis=1)[:, None]
    target = out + ((row * heads + head) * DIM)[:, None] + place[None, :]
    mask = on[:, None] & (place < DIM)[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=mask)


def attend(q: Tensor, segments: Sequence[Segment]) -> Tensor:
    """q [heads, n, D] over the keys of all segments, each row at least one -> [n, heads * D].

    D is even, at most 256; strides are free but for D's; the result has q's dtype.
    """
    heads, rows, dim = q.shape
    if dim % 2 or dim > _MOST_DIM:
        raise ValueError(f"heads of size {dim}; an even size of at most {_MOST_DIM} is needed")
    shares = [_shares(segment, heads * rows) for segment in segments]
    total = sum(shares)
    mixed = torch.empty((total, heads, rows, dim), dtype=torch.float32, device=q.device)
    figures = torch.empty((total, heads, rows, 2), dtype=torch.float32, device=q.device)
    done = 0
    for segment, count in zip(segments, shares, strict=True):
        _split(q, segment, (mixed, figures), done, count)
        done += count
    out = torch.empty((rows, heads * dim), dtype=q.dtype, device=q.device)
    _join[(triton.cdiv(rows * heads, _PAIRS),)](
        mixed,
        figures,
        out,
        total,
        rows,
        heads,
        DIM=dim,
        WIDE=triton.next_power_of_2(dim),
        SHARES=triton.next_power_of_2(total),
        PAIRS=_PAIRS,
        num_warps=4,
    )
    return out


def attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor,
    rotation: Rotation | None = None,
) -> Tensor:
    """See `reference_step.attention`. Work grows with keys' capacity: cut it to a bound."""
    return attend(q, (Segment(keys=keys, values=values, visible=visible, turn=rotation),))


def _block(queries: int, keys: Tensor) -> int:
    """Queries of one program, as its registers allow: float32 products take three times as many."""
    padded: int = triton.next_power_of_2(queries)
    most = 16 if keys.dtype == torch.float32 else 64 if keys.shape[2] <= 64 else 32
    return max(16, min(padded, 64 if INTERPRETED else most))


def _shares(segment: Segment, queries: int) -> int:
    """Into how many the keys are split: enough programs for the machine, none without keys."""
    kv_heads, capacity, _ = segment.keys.shape
    group = queries // kv_heads
    blocks = kv_heads * triton.cdiv(group, _block(group, segment.keys))
    most = min(_MOST_SPLITS, max(1, PROGRAMS // blocks))
    share = triton.cdiv(triton.cdiv(capacity, _TILE), most) * _TILE
    count: int = triton.cdiv(capacity, share)
    return count


def _split(q: Tensor, segment: Segment, out: tuple[Tensor, Tensor], done: int, shares: int) -> None:
    heads, rows, dim = q.shape
    keys, values = segment.keys, segment.values
    kv_heads, capacity, _ = keys.shape
    group = heads // kv_heads
    m = _block(group * rows, keys)
    cos, sin = segment.turn or (None, None)
    key_cos, key_sin = segment.turn_keys or (None, None)
    _attend[(shares, kv_heads, triton.cdiv(group * rows, m))](
        q,
        keys,
        values,
        segment.visible,
        cos,
        sin,
        key_cos,
        key_sin,
        *out,
        done,
        rows,
        heads,
        group,
        triton.cdiv(triton.cdiv(capacity, _TILE), shares) * _TILE,
        dim**-0.5,
        *q.stride()[:2],
        *keys.stride()[:2],
        *values.stride()[:2],
        HALF=dim // 2,
        WIDE=max(16, triton.next_power_of_2(dim // 2)),
        M=m,
        TILE=_TILE,
        num_warps=4,
        # keys as they came are those of one canvas, a single tile: nothing to read ahead
        num_stages=2 if segment.turn_keys is None else 1,
        maxnreg=REGISTERS,
    )

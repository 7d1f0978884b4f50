"""(a, b) -> (a cos - b sin, b cos + a sin) of queries and keys; keys and values join the cache.

One program a row. Queries are returned, keys and values written at `start` + row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rope_cache(
    fused,
    cos,
    sin,
    q,
    keys,
    values,
    start,
    rows,
    heads,
    kv_heads,
    fused_stride,
    k_head,
    k_row,
    v_head,
    v_row,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS).to(tl.int64)[:, None]
    place = tl.arange(0, BLOCK)[None, :]
    inside = (head < heads + 2 * kv_heads) & (place < HALF)
    source = fused + row * fused_stride + head * (2 * HALF) + place
    a = tl.load(source, mask=inside, other=0.0)
    b = tl.load(source + HALF, mask=inside, other=0.0)
    c = tl.load(cos + row * HALF + place, mask=place < HALF, other=0.0)
    s = tl.load(sin + row * HALF + place, mask=place < HALF, other=0.0)
    x, y = a.to(tl.float32), b.to(tl.float32)
    near, far = (x * c - y * s).to(a.dtype), (y * c + x * s).to(b.dtype)
    target = q + (head * rows + row) * (2 * HALF) + place
    tl.store(target, near, mask=inside & (head < heads))
    tl.store(target + HALF, far, mask=inside & (head < heads))
    key = inside & (head >= heads) & (head < heads + kv_heads)
    target = keys + (head - heads) * k_head + (start + row) * k_row + place
    tl.store(target, near, mask=key)
    tl.store(target + HALF, far, mask=key)
    target = values + (head - heads - kv_heads) * v_head + (start + row) * v_row + place
    tl.store(target, a, mask=inside & (head >= heads + kv_heads))
    tl.store(target + HALF, b, mask=inside & (head >= heads + kv_heads))


def rope_cache(
    fused: Tensor, rotation: tuple[Tensor, Tensor], keys: Tensor, values: Tensor, start: int
) -> Tensor:
    """See `reference.rope_cache`; the last dimensions contiguous, all of one dtype."""
    cos, sin = rotation
    kv_heads, capacity, dim = keys.shape
    rows, heads = fused.shape[0], fused.shape[1] // dim - 2 * kv_heads
    if not 0 <= start <= capacity - rows:
        raise ValueError(f"rows {start} to {start + rows} do not fit a cache of {capacity}")
    q = torch.empty((heads, rows, dim), dtype=fused.dtype, device=fused.device)
    _rope_cache[(rows,)](
        fused,
        cos.contiguous(),
        sin.contiguous(),
        q,
        keys,
        values,
        start,
        rows,
        heads,
        kv_heads,
        fused.stride(0),
        *keys.stride()[:2],
        *values.stride()[:2],
        HALF=dim // 2,
        BLOCK=triton.next_power_of_2(dim // 2),
        HEADS=triton.next_power_of_2(heads + 2 * kv_heads),
        num_warps=4,
    )
    return q

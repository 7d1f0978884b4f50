"""x = e / sqrt(mean(e^2) + 1e-8) for a slot with a token, e its embedding; the mask vector without.

One program per slot; the embedding's rows are float or 8-bit codes with scales.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _enter(
    tokens, weight, scales, mask, out, size, stride, scale_stride, width, BLOCK: tl.constexpr
):
    slot = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    token = tl.load(tokens + slot)
    masked = token == -1
    row = tl.where(masked, 0, token)
    value = tl.load(weight + row * stride + column, mask=inside, other=0).to(tl.float32)
    if scales is not None:
        place = scales + row * scale_stride + column // width
        value *= tl.load(place, mask=inside, other=0.0).to(tl.float32)
    value *= tl.rsqrt(tl.sum(value * value, axis=0) / size + 1e-8)
    blank = tl.load(mask + column, mask=inside, other=0.0).to(tl.float32)
    chosen = tl.where(masked, blank, value)
    tl.store(out + slot * size + column, chosen.to(out.dtype.element_ty), mask=inside)


def enter(tokens: Tensor, weight: Tensor, scales: Tensor | None, mask: Tensor) -> Tensor:
    """See `reference_step.enter`; all rows contiguous."""
    size = weight.shape[1]
    out = torch.empty((len(tokens), size), dtype=mask.dtype, device=tokens.device)
    _enter[(len(tokens),)](
        tokens,
        weight,
        scales,
        mask,
        out,
        size,
        weight.stride(0),
        0 if scales is None else scales.stride(0),
        1 if scales is None else size // scales.shape[1],
        BLOCK=triton.next_power_of_2(size),
        num_warps=4,
    )
    return out

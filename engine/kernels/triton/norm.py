"""s = x + r; y = s g / sqrt(mean(s^2) + eps), one program a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _norm(x, residual, weight, total, out, size, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    whole = tl.load(x + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        whole += tl.load(residual + row * size + column, mask=inside, other=0.0).to(tl.float32)
        kept = whole.to(total.dtype.element_ty)
        tl.store(total + row * size + column, kept, mask=inside)
        whole = kept.to(tl.float32)  # what is normalised is what is kept
    shrink = tl.rsqrt(tl.sum(whole * whole, axis=0) / size + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        out + row * size + column, (whole * shrink * gain).to(out.dtype.element_ty), mask=inside
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `reference.rms_norm`; x [n, K] with contiguous rows."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch((x, None, None, out), weight, eps)
    return out


def add_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `reference_step.add_norm`; `residual` contiguous."""
    total, out = torch.empty_like(residual), torch.empty_like(residual)
    _launch((x, residual, total, out), weight, eps)
    return total, out


def _launch(
    parts: tuple[Tensor, Tensor | None, Tensor | None, Tensor], weight: Tensor, eps: float
) -> None:
    x, residual, total, out = parts
    rows, size = x.shape
    block = triton.next_power_of_2(size)
    _norm[(rows,)](
        x,
        residual,
        weight,
        total,
        out,
        size,
        x.stride(0),
        eps,
        BLOCK=block,
        num_warps=4 if block <= 2048 else 8,
    )

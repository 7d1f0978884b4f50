"""y = act(norm(x) W^T + b) + r for a few rows: the weights are read once, all else rides along.

norm(x) = x g / sqrt(mean(x^2) + eps) is folded in: the sums of squares are taken beside the
product, which they divide at the end. act is the identity or, for gate and up rows,
silu(gate) * up.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.grouped import Matrix
from engine.kernels.reference_step import Norm
from engine.kernels.triton.tiles import INTERPRETED, REGISTERS, Operand, product

_FEW_OUTPUTS = 4096  # narrower tiles below, so that there is one for every multiprocessor


@triton.jit
def _linear(
    x,
    weight,
    scales,
    bias,
    norm,
    residual,
    out,
    rows,
    outputs,
    inputs,
    x_stride,
    w_stride,
    s_stride,
    eps,
    BITS: tl.constexpr,
    GATED: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64) * M + tl.arange(0, M)
    column = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    on, inside = row < rows, column < outputs
    x_rows = x + row[:, None] * x_stride
    w_rows = weight + column[None, :] * w_stride
    s_rows = scales
    if BITS < 16:
        s_rows = scales + column[None, :] * s_stride
    total, squares = product(x_rows, on, norm, w_rows, s_rows, inside, inputs, M, N, BITS, BLOCK_K)
    shrink = tl.rsqrt(squares / inputs + eps)[:, None]
    if norm is not None:
        total *= shrink
    if bias is not None:
        total += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if GATED:
        other = column + outputs
        w_rows = weight + other[None, :] * w_stride
        if BITS < 16:
            s_rows = scales + other[None, :] * s_stride
        up, _ = product(x_rows, on, norm, w_rows, s_rows, inside, inputs, M, N, BITS, BLOCK_K)
        if norm is not None:
            up *= shrink
        if bias is not None:
            up += tl.load(bias + other, mask=inside, other=0.0).to(tl.float32)[None, :]
        total = total / (1.0 + tl.exp(-total)) * up
    place = row[:, None] * outputs + column[None, :]
    both = on[:, None] & inside[None, :]
    if residual is not None:
        total += tl.load(residual + place, mask=both, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=both)


def linear(
    x: Tensor,
    weight: Matrix,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """See `reference_step.linear`; x's rows and `residual` must be contiguous."""
    side = Operand.of(weight)
    rows, inputs = x.shape
    outputs = side.codes.shape[0] // (2 if gated else 1)
    out = torch.empty((rows, outputs), dtype=x.dtype, device=x.device)
    m, n, k = _tile(rows, outputs, x.dtype)
    _linear[(triton.cdiv(outputs, n), triton.cdiv(rows, m))](
        x,
        side.codes,
        side.scales,
        bias,
        None if norm is None else norm.weight,
        residual,
        out,
        rows,
        outputs,
        inputs,
        x.stride(0),
        side.stride,
        side.scale_stride,
        0.0 if norm is None else norm.eps,
        BITS=side.bits,
        GATED=gated,
        M=m,
        N=n,
        BLOCK_K=k,
        num_warps=4,
        num_stages=3,
        maxnreg=REGISTERS,
    )
    return out


def _tile(rows: int, outputs: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """Rows, outputs and inputs of one tile; float32 products take three times the registers."""
    if INTERPRETED:
        return max(16, triton.next_power_of_2(rows)), 64, 128
    if dtype == torch.float32:
        return min(32, max(16, triton.next_power_of_2(rows))), 32, 32
    m = min(64, max(16, triton.next_power_of_2(rows)))
    if m == 64:
        return m, 64, 64  # the weights are used again: wide tiles pay
    return m, 16 if outputs <= _FEW_OUTPUTS else 32, 128

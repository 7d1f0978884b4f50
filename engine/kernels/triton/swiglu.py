"""y = silu(gate) * up, silu(z) = z / (1 + exp(-z))."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _swiglu(gate_up, out, size, stride, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    gate = tl.load(gate_up + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride + size + column, mask=inside, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * size + column, value.to(out.dtype.element_ty), mask=inside)


def swiglu(gate_up: Tensor) -> Tensor:
    """See `reference.swiglu`; rows contiguous."""
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, size), dtype=gate_up.dtype, device=gate_up.device)
    grid = (triton.cdiv(size, _BLOCK), rows)
    _swiglu[grid](gate_up, out, size, gate_up.stride(0), BLOCK=_BLOCK, num_warps=4)
    return out

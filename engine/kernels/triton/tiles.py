"""One tile of x W^T over weights of 16, 8 or 4 bits: what `linear` and `confidence` are made of."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.grouped import Grouped, Matrix

DENSE = 16
#: The interpreter pays for operations, not for elements: there tiles are wide and programs few.
INTERPRETED = bool(triton.knobs.runtime.interpret)
#: It also multiplies bfloat16 as if it were integers: there products are taken in float32.
WIDEN = tl.constexpr(INTERPRETED)
#: How many programs keep a large GPU busy: two for each of its multiprocessors.
PROGRAMS = 4 if INTERPRETED else 264
#: All that a thread can have, said aloud: else the assembler may spill some to fit one more block.
REGISTERS = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A matrix as the kernels take it: `scales` None and `bits` DENSE for float weights."""

    codes: Tensor
    scales: Tensor | None
    stride: int
    scale_stride: int
    bits: int

    @classmethod
    def of(cls, weight: Matrix) -> Operand:
        """Rows must be contiguous."""
        codes = weight.codes if isinstance(weight, Grouped) else weight
        if codes.stride(1) != 1:
            raise ValueError("a weight's rows must be contiguous")
        scales = weight.scales if isinstance(weight, Grouped) else None
        return cls(
            codes=codes,
            scales=scales,
            stride=codes.stride(0),
            scale_stride=0 if scales is None else scales.stride(0),
            bits=weight.bits if isinstance(weight, Grouped) else DENSE,
        )


@triton.jit
def _accumulate(total, squares, x, on, norm, k, inputs, weight):
    """total [M, N] += (x * norm)[:, k] weight [k, N]; squares [M] += sum over k of x^2."""
    inside = k < inputs
    part = tl.load(x + k[None, :], mask=on[:, None] & inside[None, :], other=0.0).to(tl.float32)
    if norm is not None:
        squares += tl.sum(part * part, axis=1)
        part *= tl.load(norm + k, mask=inside, other=0.0).to(tl.float32)[None, :]
    kind: tl.constexpr = tl.float32 if WIDEN else x.dtype.element_ty
    # float32 rows as three products of tf32: their own precision, on tensor cores
    total = tl.dot(part.to(kind), weight.to(kind), total, input_precision="tf32x3")
    return total, squares


@triton.jit
def _spread(
    scales, inside, first, inputs, N: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr
):
    """The scales of the groups from input `first` on, each WIDTH times: [GROUPS * WIDTH, N]."""
    group = first // 32 + tl.arange(0, GROUPS)
    here = inside[None, :] & (group * 32 < inputs)[:, None]
    scale = tl.load(scales + group[:, None], mask=here, other=0.0).to(tl.float32)
    wide = tl.broadcast_to(scale[:, None, :], (GROUPS, WIDTH, N))
    return tl.reshape(wide, (GROUPS * WIDTH, N))


@triton.jit
def product(
    x,
    on,
    norm,
    weight,
    scales,
    inside,
    inputs,
    M: tl.constexpr,
    N: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """[M, N] sums over k of (x * norm)[m, k] W[n, k], float32, and the sums of squares of x [M].

    x [M, 1]: pointers to the rows; weight, scales [1, N]: pointers to the outputs' rows; `on` [M]
    and `inside` [N] bool say which exist; BLOCK_K: whole groups of 32.
    """
    total = tl.zeros((M, N), tl.float32)
    squares = tl.zeros((M,), tl.float32)
    for first in range(0, inputs, BLOCK_K):
        if BITS == 4:
            byte = tl.arange(0, BLOCK_K // 2)
            low = first + byte // 16 * 32 + byte % 16
            here = inside[None, :] & (low - byte % 16 < inputs)[:, None]
            codes = tl.load(weight + (first // 2 + byte)[:, None], mask=here, other=0).to(tl.int32)
            scale = _spread(scales, inside, first, inputs, N, BLOCK_K // 32, 16)
            near = ((codes & 15) - 8).to(tl.float32) * scale
            far = ((codes >> 4) - 8).to(tl.float32) * scale
            total, squares = _accumulate(total, squares, x, on, norm, low, inputs, near)
            total, squares = _accumulate(total, squares, x, on, norm, low + 16, inputs, far)
        else:
            k = first + tl.arange(0, BLOCK_K)
            here = inside[None, :] & (k < inputs)[:, None]
            part = tl.load(weight + k[:, None], mask=here, other=0).to(tl.float32)
            if BITS == 8:
                part *= _spread(scales, inside, first, inputs, N, BLOCK_K // 32, 32)
            total, squares = _accumulate(total, squares, x, on, norm, k, inputs, part)
    return total, squares

"""Linear layers: float32 ones and packed ones. Knows nothing of models.

A packed layer's row has the same bits alone and among others; that is what lets `verified` mode
promise the base's own output.
"""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from engine.kernels import cpu
from engine.kernels.packing import Packed


class Linear(Protocol):
    """x [n, K] float32 -> [n, N] float32."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def rows(self, ids: Tensor) -> Linear:
        """The same layer over some of its output rows, ids [M] int64."""
        ...


class FloatLinear:
    """float32 weights; the reference for the packed path. Rows may differ in the last bits."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def rows(self, ids: Tensor) -> FloatLinear:
        """The same layer over some of its output rows."""
        return FloatLinear(self.weight[ids], None if self.bias is None else self.bias[ids])


class PackedLinear:
    """7-bit or 5-bit weights and 8-bit activations, in groups of 32 inputs; inference only."""

    def __init__(self, weight: Packed, bias: Tensor | None = None) -> None:
        """bias [N] float32. Nothing is copied: memory-mapped weights stay so."""
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return cpu.linear(x, self.weight, self.bias)

    def rows(self, ids: Tensor) -> PackedLinear:
        """The same layer over some of its output rows."""
        return PackedLinear(self.weight.rows(ids), None if self.bias is None else self.bias[ids])

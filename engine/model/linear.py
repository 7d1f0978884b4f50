"""Linear layers whose rows do not depend on their neighbours.

A result that is bit-equal for a row alone and among others is what lets `verified` mode promise the
base's own output. Knows nothing of models.
"""

from __future__ import annotations

import warnings
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

_TINY = 1e-12


class Linear(Protocol):
    """x [n, K] float32 -> [n, N] float32."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def rows(self, ids: Tensor) -> Linear:
        """The same layer over some of its output rows, ids [M] int64."""
        ...


class FloatLinear:
    """float32 weights; the reference for the quantised path. Rows may differ in the last bits."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def rows(self, ids: Tensor) -> FloatLinear:
        """The same layer over some of its output rows."""
        return FloatLinear(self.weight[ids], None if self.bias is None else self.bias[ids])


class Int8Linear:
    """int8 weights per output row, activations quantised to 7 bits per input row.

    torch's dynamic kernel takes one activation scale per batch. Rows divided by their own maximum,
    and one sentinel row that spans [-1, 1], fix that scale: every row then has its own, and its
    result is bit-equal whatever the batch. 7 bits because the AVX2 kernel saturates at 8.
    """

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> None:
        """weight [N, K] int8, scale [N] float32, bias [N] float32 or None. Copies weight."""
        if torch.backends.quantized.engine not in ("fbgemm", "x86"):
            torch.backends.quantized.engine = "fbgemm"
        zero = torch.zeros(weight.shape[0], dtype=torch.long)
        with warnings.catch_warnings():  # torch 2.13 warns once that these constructors will go
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")
            quantised = torch._make_per_channel_quantized_tensor(weight, scale.double(), zero, 0)
        self._packed = torch.ops.quantized.linear_prepack(quantised, None)
        self._weight, self._scale, self._bias = weight, scale, bias
        self._sentinel = torch.zeros(1, weight.shape[1])
        self._sentinel[0, :2] = torch.tensor((1.0, -1.0))
        self._multiply = torch.ops.quantized.linear_dynamic.default

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        largest = x.abs().amax(dim=1, keepdim=True).clamp_min_(_TINY)
        unit = torch.cat((x / largest, self._sentinel))
        out: Tensor = self._multiply(unit, self._packed, True)
        out = out[:rows].mul_(largest)
        return out if self._bias is None else out.add_(self._bias)

    def rows(self, ids: Tensor) -> Int8Linear:
        """The same layer over some of its output rows."""
        bias = None if self._bias is None else self._bias[ids]
        return Int8Linear(self._weight[ids], self._scale[ids], bias)


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [N, K] float -> (int8 [N, K], scale [N] float32), symmetric per row."""
    scale = weight.abs().amax(dim=1).clamp_min(_TINY) / 127.0
    return (weight / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8), scale

"""Weight-only quantised matrices as the GPU kernels read them: 8 or 4 bits, in groups of 32 inputs.

Row-major, so that a tile of outputs is one slice of memory. Knows nothing of files or models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kernels.packing import GROUP, Packed

_HALF = GROUP // 2
_MIDDLE = 8  # a 4-bit code is stored plus this


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """One matrix [N, inputs]; P is `inputs` rounded up to whole groups, the padding's scale is 0.

    bits 8: codes [N, P] int8. bits 4: codes [N, P / 2] uint8; byte j of a group holds input j in
    its low half and input j + 16 in its high half, each plus 8. scales [N, P / 32] float16.
    """

    codes: Tensor
    scales: Tensor
    inputs: int
    bits: int

    def __post_init__(self) -> None:
        groups = -(-self.inputs // GROUP)
        kinds = {8: (torch.int8, GROUP), 4: (torch.uint8, _HALF)}
        if self.bits not in kinds:
            raise ValueError(f"{self.bits} bits; 8 or 4 are known")
        dtype, width = kinds[self.bits]
        if self.codes.dtype != dtype or self.scales.dtype != torch.float16:
            raise ValueError(f"codes of {self.codes.dtype}, scales of {self.scales.dtype}")
        if self.codes.shape != (len(self.codes), groups * width):
            raise ValueError(f"codes of shape {list(self.codes.shape)}")
        if self.scales.shape != (len(self.codes), groups):
            raise ValueError(f"scales of shape {list(self.scales.shape)}")

    @property
    def outputs(self) -> int:
        """Rows of the matrix."""
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """What a product has to read."""
        return self.codes.nbytes + self.scales.nbytes

    @classmethod
    def quantise(cls, weight: Tensor, bits: int) -> Grouped:
        """weight [N, K] -> the nearest codes; a group's value of the largest magnitude is exact but
        for its scale's rounding (4 bits: at code -8, as in GGUF's Q4_0)."""
        groups = F.pad(weight.float(), (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
        least, most = groups.aminmax(dim=2)
        largest = torch.where(most >= -least, most, least)
        first, last = (-_MIDDLE, _MIDDLE - 1) if bits == 4 else (-127, 127)
        scales = (largest / first).to(torch.float16)
        divisor = torch.where(scales == 0, 1.0, scales.float())[..., None]
        codes = (groups / divisor).round().clamp(first, last).to(torch.int8)
        packed = _nibbles(codes) if bits == 4 else codes.flatten(1)
        return cls(codes=packed, scales=scales, inputs=weight.shape[1], bits=bits)

    @classmethod
    def of(cls, packed: Packed) -> Grouped:
        """The same matrix as the CPU's packed form, code for code, in 8 bits."""
        scales = packed.scales.transpose(1, 2).flatten(0, 1)
        return cls(
            codes=packed.signed(),
            scales=scales[: packed.outputs].contiguous(),
            inputs=packed.inputs,
            bits=8,
        )

    def rows(self, ids: Tensor) -> Grouped:
        """Some of the outputs, ids [M] int64, as a matrix of their own."""
        return Grouped(
            codes=self.codes[ids], scales=self.scales[ids], inputs=self.inputs, bits=self.bits
        )

    def to(self, device: torch.device) -> Grouped:
        """The same matrix on another device."""
        codes, scales = self.codes.to(device), self.scales.to(device)
        return Grouped(codes=codes, scales=scales, inputs=self.inputs, bits=self.bits)

    def unpack(self) -> Tensor:
        """The matrix in float32."""
        codes = self.codes.unflatten(1, (self.scales.shape[1], -1))
        if self.bits == 4:
            codes = torch.cat((codes & 15, codes >> 4), dim=2).to(torch.int8) - _MIDDLE
        whole = (codes.float() * self.scales.float()[..., None]).flatten(1)
        matrix: Tensor = whole[:, : self.inputs]
        return matrix


#: What a product can be taken with: float weights [N, K] of any precision, or grouped codes.
Matrix = Tensor | Grouped


def _nibbles(codes: Tensor) -> Tensor:
    """codes [N, groups, 32] int8 from -8 to 7 -> [N, groups * 16] uint8."""
    low, high = (codes + _MIDDLE).to(torch.uint8).split(_HALF, dim=2)
    packed: Tensor = (low | (high << 4)).flatten(1)
    return packed

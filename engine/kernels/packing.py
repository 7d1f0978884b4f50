"""Weights of 7 bits in groups of 32 inputs, laid out as the CPU kernel reads them.

A group of one output has one half-float scale; its sign is the kernel's business as much as the
codes'. Knows nothing of files or models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 32
LANES = 8
OFFSET = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """One matrix [outputs, inputs].

    codes [blocks, groups, 8 steps, 8 outputs, 4 inputs] uint8, a weight being (code - 64) * scale;
    scales [blocks, groups, 8 outputs] float16. Blocks and groups are padded with zeros.
    """

    codes: Tensor
    scales: Tensor
    outputs: int
    inputs: int

    def __post_init__(self) -> None:
        blocks, groups = -(-self.outputs // LANES), -(-self.inputs // GROUP)
        if self.codes.shape != (blocks, groups, GROUP // 4, LANES, 4):
            raise ValueError(f"codes of shape {list(self.codes.shape)}")
        if self.scales.shape != (blocks, groups, LANES):
            raise ValueError(f"scales of shape {list(self.scales.shape)}")
        if self.codes.dtype != torch.uint8 or self.scales.dtype != torch.float16:
            raise ValueError(f"codes of {self.codes.dtype}, scales of {self.scales.dtype}")

    def rows(self, ids: Tensor) -> Packed:
        """Some of the outputs, ids [M] int64, as a matrix of their own."""
        block, lane = ids // LANES, ids % LANES
        codes = _lanes(self.codes[block, :, :, lane], OFFSET)
        return Packed(
            codes=codes.permute(0, 2, 3, 1, 4).contiguous(),
            scales=_lanes(self.scales[block, :, lane], 0).transpose(1, 2).contiguous(),
            outputs=len(ids),
            inputs=self.inputs,
        )

    def unpack(self) -> Tensor:
        """The matrix in float32."""
        codes = self.codes.permute(0, 3, 1, 2, 4).flatten(0, 1).flatten(2)
        scales = self.scales.transpose(1, 2).flatten(0, 1)
        whole = (codes.float() - OFFSET) * scales.float()[..., None]
        matrix: Tensor = whole.flatten(1)[: self.outputs, : self.inputs]
        return matrix


def _lanes(rows: Tensor, padding: int) -> Tensor:
    """rows [M, ...] -> [blocks, 8, ...], the last block padded."""
    missing = -len(rows) % LANES
    whole = torch.cat((rows, rows.new_full((missing, *rows.shape[1:]), padding)))
    return whole.view(-1, LANES, *rows.shape[1:])


def candidates(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Two scales per group of weight [N, K], as half floats hold them: each [N, groups] float32.

    The value of the largest magnitude at code -64, which makes 4-bit and 5-bit checkpoints (Q4_0,
    Q5_0) exact; or at 63. The one with the smaller squared error is to be taken.
    """
    groups = F.pad(weight, (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    least, most = groups.aminmax(dim=2)
    largest = torch.where(most >= -least, most, least)
    halves = ((largest / code).to(torch.float16).float() for code in (-OFFSET, OFFSET - 1))
    return next(halves), next(halves)

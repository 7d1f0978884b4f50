"""Weights of 7 or 5 bits in groups of 32 inputs, laid out as the CPU kernel reads them.

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
STEPS = GROUP // 4
#: Bits of a weight -> what is added to its code.
OFFSETS = {7: 64, 5: 16}
_BYTES5 = GROUP * LANES * 5 // 8
_SAMPLE = 4096  # groups that are looked at first


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """One matrix [outputs, inputs], a weight being (code - offset) * scale.

    codes uint8: in 7 bits [blocks, groups, 8 steps, 8 outputs, 4 inputs]; in 5 bits [blocks,
    groups, 160], where the first 128 bytes hold the low 4 bits of step s and, above them, of step
    s + 4, and bit s of the other 32 is the fifth bit of step s. scales [blocks, groups, 8 outputs]
    float16. Blocks and groups are padded with zeros.
    """

    codes: Tensor
    scales: Tensor
    outputs: int
    inputs: int

    def __post_init__(self) -> None:
        blocks, groups = -(-self.outputs // LANES), -(-self.inputs // GROUP)
        shapes = {7: (blocks, groups, STEPS, LANES, 4), 5: (blocks, groups, _BYTES5)}
        if self.codes.shape != shapes[self.bits]:
            raise ValueError(f"codes of shape {list(self.codes.shape)}")
        if self.scales.shape != (blocks, groups, LANES):
            raise ValueError(f"scales of shape {list(self.scales.shape)}")
        if self.codes.dtype != torch.uint8 or self.scales.dtype != torch.float16:
            raise ValueError(f"codes of {self.codes.dtype}, scales of {self.scales.dtype}")

    @property
    def bits(self) -> int:
        """Of one weight: 7 or 5."""
        return 7 if self.codes.dim() == 5 else 5

    def rows(self, ids: Tensor) -> Packed:
        """Some of the outputs, ids [M] int64, as a matrix of their own."""
        block, lane = ids // LANES, ids % LANES
        whole = self.codes[block] if self.bits == 7 else spread(self.codes[block])
        codes = _lanes(whole[torch.arange(len(ids)), :, :, lane], OFFSETS[self.bits])
        codes = codes.permute(0, 2, 3, 1, 4).contiguous()
        return Packed(
            codes=squeezed(codes) if self.bits == 5 else codes,
            scales=_lanes(self.scales[block, :, lane], 0).transpose(1, 2).contiguous(),
            outputs=len(ids),
            inputs=self.inputs,
        )

    def signed(self) -> Tensor:
        """The codes less their offset, int8 [outputs, groups * 32]."""
        codes = self.codes if self.bits == 7 else spread(self.codes)
        rows = codes.permute(0, 3, 1, 2, 4).flatten(0, 1).flatten(1)[: self.outputs]
        signed: Tensor = rows.view(torch.int8) - OFFSETS[self.bits]
        return signed

    def unpack(self) -> Tensor:
        """The matrix in float32."""
        codes = self.signed().unflatten(1, (-1, GROUP))
        scales = self.scales.transpose(1, 2).flatten(0, 1)[: self.outputs]
        matrix: Tensor = (codes.float() * scales.float()[..., None]).flatten(1)[:, : self.inputs]
        return matrix


def squeezed(codes: Tensor) -> Tensor:
    """Codes below 32, a byte each [blocks, groups, 8, 8, 4] -> [blocks, groups, 160]."""
    steps = codes.flatten(3).unbind(2)
    low = [a & 15 | (b & 15) << 4 for a, b in zip(steps[:4], steps[4:], strict=True)]
    high = torch.stack([(step >> 4) << n for n, step in enumerate(steps)]).sum(0, dtype=torch.uint8)
    return torch.cat((*low, high), dim=2)


def spread(codes: Tensor) -> Tensor:
    """What `squeezed` was given."""
    *pairs, high = codes.unflatten(2, (5, LANES * 4)).unbind(2)
    low = [pair & 15 for pair in pairs] + [pair >> 4 for pair in pairs]
    steps = [part | (high >> n & 1) << 4 for n, part in enumerate(low)]
    whole: Tensor = torch.stack(steps, dim=2).unflatten(3, (LANES, 4))
    return whole


def _lanes(rows: Tensor, padding: int) -> Tensor:
    """rows [M, ...] -> [blocks, 8, ...], the last block padded."""
    missing = -len(rows) % LANES
    whole = torch.cat((rows, rows.new_full((missing, *rows.shape[1:]), padding)))
    return whole.view(-1, LANES, *rows.shape[1:])


def bits_for(weight: Tensor) -> int:
    """How many bits hold weight [N, K]: 5 where they are enough for its very values, as in the
    checkpoints of 4 and 5 bits with one scale for 32 (Q4_0, Q5_0), else 7."""
    padded = F.pad(weight, (0, -weight.shape[1] % GROUP)).view(-1, GROUP)
    return 5 if _exact(padded[:_SAMPLE]) and _exact(padded) else 7


def _exact(groups: Tensor) -> bool:
    scale = candidates(groups, 5)[0]
    inverse = torch.where(scale == 0, 0.0, 1 / scale)
    codes = (groups * inverse).round_().clamp_(-OFFSETS[5], OFFSETS[5] - 1)
    return torch.equal(codes.mul_(scale), groups)


def candidates(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Two scales per group of weight [N, K], as half floats hold them: each [N, groups] float32.

    The value of the largest magnitude at the lowest code, which makes checkpoints of 4 and 5 bits
    (Q4_0, Q5_0) exact; or at the highest. The one with the smaller squared error is to be taken.
    """
    groups = F.pad(weight, (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    least, most = groups.aminmax(dim=2)
    largest = torch.where(most >= -least, most, least)
    offset = OFFSETS[bits]
    halves = ((largest / code).to(torch.float16).float() for code in (-offset, offset - 1))
    return next(halves), next(halves)

"""Documents with holes in them, as a bidirectional model sees them: prefix, canvas, suffix.

A hole is what a user's would be: the rest of a line, a whole line, some lines, any span. In its
place stands a canvas of more slots than it has tokens, closed with end tokens; some or all of the
slots are masked (the ratio uniform over (0, 1], as in MDLM, arXiv 2406.07524, or one).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Slots of a canvas; a hole has fewer tokens.
CANVASES = (8, 16, 32)
_KINDS, _MOST_HOLES = ("rest", "line", "lines", "span"), 4
_KIND_WEIGHTS = (4, 4, 2, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """S sequences of L tokens: shown [S, L] int64, masks in open slots; truth [S, L] int64; open
    [S, L] bool; real [S, L] bool, false for padding behind short documents."""

    shown: Tensor
    truth: Tensor
    open: Tensor
    real: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Token ids with a part to play; breaks [V] bool: tokens that end a line."""

    end: int
    mask: int
    breaks: Tensor


def draw(
    windows: Sequence[Tensor], length: int, marks: Marks, rng: random.Random, fully: float
) -> Batch:
    """One sequence of `length` from each window of token ids; `fully`: how often a canvas is masked
    throughout."""
    made = [_sequence(window, length, marks, rng, fully) for window in windows]
    shown, truth, open_, real = (torch.stack(part) for part in zip(*made, strict=True))
    return Batch(shown=shown, truth=truth, open=open_, real=real)


def _sequence(
    window: Tensor, length: int, marks: Marks, rng: random.Random, fully: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    parts: list[Tensor] = []
    covers: list[Tensor] = []
    at = 0
    for start, stop in _holes(window, marks, rng):
        if start < at:
            continue
        slots = rng.choice([size for size in CANVASES if size > stop - start])
        filled = torch.cat((window[start:stop], torch.full((slots - (stop - start),), marks.end)))
        parts += [window[at:start], filled]
        covers += [torch.zeros(start - at, dtype=torch.bool), _mask(slots, rng, fully)]
        at = stop
    parts.append(window[at:])
    covers.append(torch.zeros(len(window) - at, dtype=torch.bool))
    truth, open_ = torch.cat(parts)[:length], torch.cat(covers)[:length]
    short = length - len(truth)
    real = torch.arange(length) < len(truth)
    truth = torch.cat((truth, torch.full((short,), marks.end)))
    open_ = torch.cat((open_, torch.zeros(short, dtype=torch.bool)))
    return torch.where(open_, marks.mask, truth), truth, open_, real


def _mask(slots: int, rng: random.Random, fully: float) -> Tensor:
    if rng.random() < fully:
        return torch.ones(slots, dtype=torch.bool)
    masked = torch.tensor([rng.random() for _ in range(slots)]) < rng.random()
    masked[rng.randrange(slots)] = True
    return masked


def _holes(window: Tensor, marks: Marks, rng: random.Random) -> list[tuple[int, int]]:
    """Spans [start, stop) in order, fewer than the largest canvas has slots."""
    breaks = marks.breaks[window].nonzero()[:, 0].tolist()
    kinds = rng.choices(_KINDS, _KIND_WEIGHTS, k=rng.randint(1, _MOST_HOLES))
    found = [_hole(kind, len(window), breaks, rng) for kind in kinds]
    return sorted((a, b) for a, b in found if 0 < b - a < CANVASES[-1])


def _hole(kind: str, size: int, breaks: list[int], rng: random.Random) -> tuple[int, int]:
    if kind == "span" or len(breaks) < 2:
        start = rng.randrange(size)
        return start, min(size, start + rng.randint(1, 24))
    line = rng.randrange(len(breaks) - 1)
    start, stop = breaks[line] + 1, breaks[line + 1]
    if kind == "lines":
        last = min(len(breaks) - 1, line + rng.randint(2, 4))
        return start, breaks[last]
    if kind == "rest" and stop > start:
        return rng.randrange(start, stop), stop
    return start, stop

"""How long the hole is: one interface, strategies as data.

| strategy | the canvas | forwards for n tokens, one per step |
|---|---|---|
| fixed | so many slots; an end token takes the rest out | n + 1 |
| grow | the same, and more slots where it fills without an end | n + 1 |
| edit | the model's expand and delete tokens (DreamOn) | n + expansions + deletions |
| probe | the length of which the first step is surest (CAL) | n + probes (at most 7) |

Knows slots and confidences; does not know what is in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.request import LengthName

#: Mean first-step confidence of a model where it knows nothing of the right length: (slots,
#: confidence), by rising slots. Measured per model with `measure_bias`, kept in the catalogue.
Bias = tuple[tuple[int, float], ...]

#: What the authors of CAL divide by for LLaDA, DiffuCoder and Dream-Coder: exp(-1.77 n)
#: + 0.56 exp(-0.06 n) + 0.24. The bias of a model that has none of its own.
PUBLISHED_BIAS: Bias = tuple(
    (n, math.exp(-1.77 * n) + 0.56 * math.exp(-0.06 * n) + 0.24)
    for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
)

_PROBES = (2, 4, 8, 16, 32)
_LEAST_BIAS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """`slots` at the start; `ends`: an end token takes out its slot and all behind it; `edits`: an
    expand token becomes two slots, a delete token takes its slot out and spreads to the open ones
    behind it; `probe`: lengths to try first; `grow`: slots to add where all are filled and no end
    was written, 0 for never."""

    slots: int
    ends: bool = False
    edits: bool = False
    probe: tuple[int, ...] = ()
    grow: int = 0


STRATEGIES: dict[LengthName, Length] = {
    "fixed": Length(slots=16, ends=True),
    "grow": Length(slots=16, ends=True, grow=16),
    "edit": Length(slots=8, edits=True),
    "probe": Length(slots=8, probe=_PROBES),
}


def strategy(name: LengthName, slots: int | None, most: int) -> Length:
    """The strategy of that name with `slots` to begin with (its own number by default), and no
    more than `most`."""
    length = STRATEGIES[name]
    return replace(
        length,
        slots=max(1, min(slots or length.slots, most)),
        probe=tuple(n for n in length.probe if n <= most) if slots is None else (),
    )


def probe(lengths: tuple[int, ...], confidence: Callable[[int], float], bias: Bias) -> int:
    """The length whose first step is surest, measured against the model's own bias.

    `confidence(n)` is the mean probability of the best tokens of n blank slots: one forward. The
    given lengths are tried, then those halfway to the neighbours of the best, so at most
    len(lengths) + 2 forwards. Ties go to the shorter. Calibrated adaptive length (CAL).
    """
    scores = {n: confidence(n) / bias_at(bias, n) for n in lengths}
    best = _best(scores)
    below = max((n for n in lengths if n < best), default=best)
    above = min((n for n in lengths if n > best), default=best)
    for between in ((below + best) // 2, (best + above) // 2):
        if between not in scores:
            scores[between] = confidence(between) / bias_at(bias, between)
    return _best(scores)


def bias_at(bias: Bias, slots: int) -> float:
    """The bias of a length, straight between two measured ones; 1 where nothing was measured."""
    if not bias:
        return 1.0
    below = [point for point in bias if point[0] <= slots] or [bias[0]]
    above = [point for point in bias if point[0] >= slots] or [bias[-1]]
    (x0, y0), (x1, y1) = below[-1], above[0]
    share = (slots - x0) / (x1 - x0) if x1 > x0 else 0.0
    return max(y0 + share * (y1 - y0), _LEAST_BIAS)


def measure_bias(samples: Sequence[tuple[int, Mapping[int, float]]], near: int = 4) -> Bias:
    """The bias of a model from holes of known length.

    Each sample is (true length, first-step confidence by tried length). Lengths within `near` of
    the truth are left out: there confidence speaks of the hole, not of the model.
    """
    seen: dict[int, list[float]] = {}
    for truth, confidences in samples:
        for slots, sure in confidences.items():
            if abs(slots - truth) > near:
                seen.setdefault(slots, []).append(sure)
    return tuple((slots, sum(all_) / len(all_)) for slots, all_ in sorted(seen.items()))


def _best(scores: Mapping[int, float]) -> int:
    return min(scores, key=lambda slots: (-scores[slots], slots))

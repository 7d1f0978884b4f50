"""Two result files of the same holes, paired: the differences, each with a bootstrap interval.

Reads what --out wrote. Holes of one function or file resemble one another, so whole groups are
drawn, not single holes. Knows columns, nothing of engines or how they were measured.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine_run import finish
from benchmarks.figures import Row, number
from benchmarks.report import BenchmarkError, ratio, say, write_figures

#: What is compared as a difference of means: (name, column). Absent columns are left out.
MEANS = (
    ("pass@1", "passed"),
    ("em", "em"),
    ("parse_rate", "parses"),
    ("first_line", "first_line"),
    ("edit_similarity", "edit_similarity"),
    ("useful_share", "useful_share"),
    ("useful_prefix", "useful_prefix"),
)
SAMPLES = 10_000
_SHARE = 0.95
_LEAST_MS = 0.01

Sums = NDArray[np.float64]
Pair = tuple[Row, Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The holes that both files have, in the first one's order; `groups`: a number for each."""

    pairs: list[Pair]
    groups: list[int]
    only_a: int
    only_b: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """How often each group is in each sample: [S, G]."""

    counts: Sums
    groups: NDArray[np.int64]

    def sums(self, values: Sequence[float]) -> tuple[float, Sums]:
        """The sum over all holes, and over each sample's: [S]."""
        each = np.bincount(self.groups, weights=values, minlength=self.counts.shape[1])
        return float(each.sum()), self.counts @ each


def read(path: Path) -> dict[str, Row]:
    """The rows of an --out file by task, or by id where it names none; raises BenchmarkError."""
    try:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # a run that was killed may have left half a row
        rows = [json.loads(line) for line in whole.splitlines()]
        found = {str(row.get("task", row["id"])): row for row in rows}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise BenchmarkError(f"{path} is not a file that --out wrote: {error!r}") from None
    if len(found) < len(rows):
        raise BenchmarkError(f"{path} has several rows for one task; compare one run at a time")
    return found


def pair(a: dict[str, Row], b: dict[str, Row]) -> Paired:
    """The holes that both have; raises BenchmarkError where there is none."""
    keys = [key for key in a if key in b]
    if not keys:
        raise BenchmarkError("the two files have no task in common")
    names = [str(a[key].get("group", key)) for key in keys]
    numbers = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return Paired(
        pairs=[(a[key], b[key]) for key in keys],
        groups=[numbers[name] for name in names],
        only_a=len(a) - len(keys),
        only_b=len(b) - len(keys),
    )


def draw(groups: Sequence[int], samples: int, seed: int) -> Draws:
    """Samples of as many groups as there are, with replacement; the same for the same seed."""
    count = max(groups) + 1
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(count, np.full(count, 1.0 / count), size=samples)
    return Draws(counts=counts.astype(np.float64), groups=np.asarray(groups, dtype=np.int64))


def interval(samples: Sums, digits: int) -> list[float]:
    """The middle 95 % of the samples."""
    low, high = np.nanquantile(samples, [(1 - _SHARE) / 2, (1 + _SHARE) / 2])
    return [round(float(low), digits), round(float(high), digits)]


def difference(paired: Paired, draws: Draws, column: str) -> dict[str, object]:
    """Both means, b - a with its interval, and how many holes only one of them has right."""
    values = [(number(a[column]), number(b[column])) for a, b in paired.pairs]
    count, counts = draws.sums([1.0] * len(values))
    delta, deltas = draws.sums([b - a for a, b in values])
    figures: dict[str, object] = {
        "a": ratio(sum(a for a, _ in values), count),
        "b": ratio(sum(b for _, b in values), count),
        "b-a": ratio(delta, count),
        "interval": interval(deltas / counts, 4),
    }
    if all(isinstance(row[column], bool) for both in paired.pairs for row in both):
        figures["only_a"] = sum(a > b for a, b in values)
        figures["only_b"] = sum(b > a for a, b in values)
    return figures


def quotient(
    paired: Paired, draws: Draws, above: Callable[[Row], float], below: Callable[[Row], float]
) -> dict[str, object]:
    """The sum of `above` over the sum of `below` in both files, and b / a with its interval."""
    wholes, samples = [], []
    for side in (0, 1):
        whole, sampled = draws.sums([above(both[side]) for both in paired.pairs])
        under, under_sampled = draws.sums([below(both[side]) for both in paired.pairs])
        wholes.append(whole / under if under else math.nan)
        samples.append(sampled / np.where(under_sampled, under_sampled, np.nan))
    a, b = wholes
    return {
        "a": round(a, 3),
        "b": round(b, 3),
        "b/a": round(b / a, 4) if a else math.nan,
        "interval": interval(samples[1] / samples[0], 4),
    }


def typical_ratio(paired: Paired, draws: Draws, column: str) -> dict[str, object]:
    """The geometric mean of b's milliseconds over a's: one slow hole does not decide it."""
    logs = [
        math.log(max(number(b[column]), _LEAST_MS) / max(number(a[column]), _LEAST_MS))
        for a, b in paired.pairs
    ]
    count, counts = draws.sums([1.0] * len(logs))
    whole, sampled = draws.sums(logs)
    return {
        "b/a": round(math.exp(whole / count), 4),
        "interval": interval(np.exp(sampled / counts), 4),
    }


def compare(paired: Paired, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, object]:
    """All differences of the two runs."""
    draws = draw(paired.groups, samples, seed)
    pairs = paired.pairs
    figures: dict[str, object] = {
        "n": len(pairs),
        "groups": max(paired.groups) + 1,
        "only_in_a": paired.only_a,
        "only_in_b": paired.only_b,
        "same_text": ratio(sum(a["text"] == b["text"] for a, b in pairs), len(pairs)),
    }
    for name, column in MEANS:
        if all(column in row for both in pairs for row in both):
            figures[name] = difference(paired, draws, column)
    figures["ms_mean"] = quotient(paired, draws, lambda row: number(row["ms"]), lambda row: 1.0)
    figures["ms_ratio"] = typical_ratio(paired, draws, "ms")
    figures["decode_ms_ratio"] = typical_ratio(paired, draws, "decode_ms")
    if any(number(a["forwards"]) for a, _ in pairs) and any(
        number(b["forwards"]) for _, b in pairs
    ):
        figures["tokens_per_forward"] = quotient(
            paired, draws, lambda row: number(row["tokens"]), lambda row: number(row["forwards"])
        )
    return figures


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("a", type=Path, help="rows that --out wrote")
    parser.add_argument("b", type=Path, help="rows of the same holes, filled otherwise")
    parser.add_argument("--kind", help="only rows of this kind (realcode)")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of the bootstrap")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    options = parser.parse_args(argv)
    if options.samples < 100:
        parser.error("--samples must be at least 100")
    return options


def run(options: argparse.Namespace) -> None:
    """Reads, pairs, draws, reports; raises BenchmarkError."""
    sides = []
    for path in (options.a, options.b):
        rows = read(path)
        if options.kind:
            rows = {key: row for key, row in rows.items() if row.get("kind") == options.kind}
        if rows:
            say(f"{path}: {len(rows)} rows of {next(iter(rows.values())).get('run')}")
        sides.append(rows)
    figures = compare(pair(*sides), samples=options.samples, seed=options.seed)
    labels = {"benchmark": "compare", "a": options.a.name, "b": options.b.name}
    write_figures({**figures, **labels}, as_json=options.json)


def main(argv: list[str] | None = None) -> int:
    return finish(lambda: run(parse_arguments(argv)))


if __name__ == "__main__":
    sys.exit(main())

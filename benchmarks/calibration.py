"""How often a suggestion of a certain confidence is right: what the moods of the gate stand on.

Reads what `benchmarks.realcode --out` wrote. For every threshold: the share of holes that would be
shown something, and how many of those are right (the first line, to its end) and useful (the share
of the original that is right before the first error). Knows columns, no engine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import read
from benchmarks.engine_run import finish
from benchmarks.figures import Row, number
from benchmarks.report import BenchmarkError, ratio, write_figures

THRESHOLDS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)


def curve(rows: Sequence[Row]) -> list[dict[str, object]]:
    """One point per threshold; `right` and `useful` are None where nothing is shown."""
    answered = [row for row in rows if row["text"]]
    points: list[dict[str, object]] = []
    for threshold in THRESHOLDS:
        shown = [row for row in answered if number(row["confidence"]) >= threshold]
        points.append(
            {
                "confidence": threshold,
                "shown": ratio(len(shown), len(rows)),
                "right": _mean(shown, "first_line"),
                "useful": _mean(shown, "useful_share"),
            }
        )
    return points


def _mean(rows: Sequence[Row], column: str) -> float | None:
    return ratio(sum(number(row[column]) for row in rows), len(rows)) if rows else None


def least(points: Sequence[dict[str, object]], share: float) -> float | None:
    """The lowest threshold from which on at least that share of what is shown is right."""
    found = None
    for point in reversed(points):
        right = point["right"]
        if isinstance(right, float) and right < share:
            break
        found = float(str(point["confidence"])) if isinstance(right, float) else found
    return found


def run(options: argparse.Namespace) -> int:
    """Reads, counts, reports; raises BenchmarkError."""
    rows = [row for path in options.rows for row in read(path).values()]
    if not rows or not all("confidence" in row and "first_line" in row for row in rows):
        raise BenchmarkError("give files that `benchmarks.realcode --out` wrote, with confidences")
    points = curve(rows)
    kinds = sorted({str(row["kind"]) for row in rows})
    write_figures(
        {
            "benchmark": "calibration",
            "n": len(rows),
            "least": {f"{share:.2f}": least(points, share) for share in (0.5, 0.65, 0.8)},
            "curve": points,
            "kinds": {kind: curve([row for row in rows if row["kind"] == kind]) for kind in kinds},
        },
        as_json=options.json,
    )
    return 0


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("rows", type=Path, nargs="+", metavar="FILE", help="realcode's --out")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run from the command line."""
    return finish(lambda: run(parse_arguments(argv)))


if __name__ == "__main__":
    sys.exit(main())

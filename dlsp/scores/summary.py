"""What the scorecard's rows say: counts, shares and times, over all and by language and day.

Pure: rows in, plain JSON out (the answer of `dlsp/stats`, what `dlsp stats` prints). Does not know
the file or the terminal.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from dlsp.scores.scorecard import Row

#: An accepted text of which at least this share still stands counts as kept.
KEPT_SHARE = 0.75


def summarise(rows: Sequence[Row], *, days: float) -> dict[str, Any]:
    """The figures of `rows`, which cover the last `days`."""
    languages: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        languages[row.language].append(row)
    most_used = sorted(languages.items(), key=lambda item: -len(item[1]))
    return {
        "days": days,
        **figures(rows),
        "byLanguage": {language: figures(its) for language, its in most_used},
        "byDay": by_day(rows),
    }


def figures(rows: Iterable[Row]) -> dict[str, Any]:
    """Counts of suggestions, milliseconds from the request to the answer, and what they saved."""
    rows = tuple(rows)
    shown = [row for row in rows if row.shown]
    accepted = sum(row.accepted for row in shown)
    partial = sum(row.accepted_characters > 0 and not row.accepted for row in shown)
    latencies = [row.latency_ms for row in shown]
    return {
        "shown": len(shown),
        "withheld": len(rows) - len(shown),
        "accepted": accepted,
        "partial": partial,
        "typedThrough": sum(row.typed_characters > 0 for row in shown),
        "acceptance": _share(accepted + partial, len(shown)),
        "kept30": _kept(row.kept_30 for row in shown),
        "kept300": _kept(row.kept_300 for row in shown),
        "keystrokesSaved": sum(row.keystrokes_saved for row in shown),
        "msP50": percentile(latencies, 50),
        "msP90": percentile(latencies, 90),
    }


def by_day(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Shown and accepted (at least in part) for each day of use, in local time, oldest first."""
    days: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.shown:
            days[time.strftime("%Y-%m-%d", time.localtime(row.at))].append(row)
    return [
        {
            "day": day,
            "shown": len(its),
            "accepted": sum(row.accepted_characters > 0 for row in its),
            "keystrokesSaved": sum(row.keystrokes_saved for row in its),
        }
        for day, its in sorted(days.items())
    ]


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The value below which `percent` (1 to 99) of the values lie, interpolated; None for none."""
    if len(values) < 2:
        return round(values[0], 1) if values else None
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 1)


def _kept(shares: Iterable[float | None]) -> dict[str, Any]:
    """Of the accepted texts looked at later, how many were kept."""
    known = [share for share in shares if share is not None]
    kept = sum(share >= KEPT_SHARE for share in known)
    return {"kept": kept, "of": len(known), "share": _share(kept, len(known))}


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None

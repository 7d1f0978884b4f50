"""Summaries of rows: shares, sums, tokens per forward, milliseconds; whole and split by a key.

Knows the columns that `filling.fill` writes; nothing of engines or tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.report import BenchmarkError, percentile, ratio, spread

Row = dict[str, object]
SOURCES = ("base", "lookup", "denoiser")


def number(value: object) -> float:
    """A figure out of a row, which may have come back from a file."""
    if not isinstance(value, int | float):
        raise BenchmarkError(f"a row holds {value!r} where a number belongs; delete the --out file")
    return float(value)


def total(rows: Sequence[Row], key: str) -> float:
    """The sum of one column."""
    return sum(number(row.get(key)) for row in rows)


def share(rows: Sequence[Row], key: str) -> float:
    """The mean of one column."""
    return ratio(total(rows, key), len(rows))


def cost(rows: Sequence[Row]) -> dict[str, object]:
    """What the answers took: forwards, tokens and where they came from, milliseconds."""
    count = len(rows)
    tokens, forwards = total(rows, "tokens"), total(rows, "forwards")
    times = spread([number(row["ms"]) for row in rows])
    decoding = spread([number(row["decode_ms"]) for row in rows])
    origins = [origin for row in rows if isinstance(origin := row["from"], dict)]
    return {
        "forwards": int(forwards),
        "tokens": int(tokens),
        "denoising_steps": int(total(rows, "steps")),
        "tokens_per_forward": ratio(tokens, forwards, 3),
        "forwards_per_completion": ratio(forwards, count, 3),
        "tokens_per_completion": ratio(tokens, count, 3),
        "ms_p50": times["p50"],
        "ms_p90": times["p90"],
        "decode_ms_p50": decoding["p50"],
        "decode_ms_p90": decoding["p90"],
        "from": {name: int(sum(number(one[name]) for one in origins)) for name in SOURCES},
        "near_ties": int(total(rows, "near_ties")),
        "repaired": int(total(rows, "repaired")),
        "empty": sum(1 for row in rows if not row["text"]),
    }


def brief(rows: Sequence[Row], shares: Sequence[tuple[str, str]]) -> dict[str, object]:
    """A line of a split: how many, the given (name, column) shares, forwards and the median ms."""
    return {
        "n": len(rows),
        **{name: share(rows, column) for name, column in shares},
        "tokens_per_forward": ratio(total(rows, "tokens"), total(rows, "forwards"), 3),
        "ms_p50": round(percentile([number(row["ms"]) for row in rows], 0.5), 1),
    }


def split(
    rows: Sequence[Row],
    key: Callable[[Row], str],
    figures: Callable[[Sequence[Row]], dict[str, object]],
    order: Iterable[str] = (),
) -> dict[str, object]:
    """The figures of each group; groups in the given order, others behind them by name."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    first = [name for name in order if name in groups]
    return {name: figures(groups[name]) for name in [*first, *sorted(groups.keys() - set(first))]}

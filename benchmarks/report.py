"""Figures and progress: percentiles, the one JSON line, rows that survive a stop.

Knows nothing of models, editors or tasks.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

#: What a shell reports for a command ended by Ctrl-C.
INTERRUPTED = 130


class BenchmarkError(Exception):
    """A measurement that cannot be made or must not be reported; one line that says why."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value at `share` (0 to 1) of the sorted values, interpolated; 0.0 for none."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share must lie between 0 and 1, not {share}")
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and 90th percentile, rounded to a tenth."""
    return {"p50": round(percentile(values, 0.5), 1), "p90": round(percentile(values, 0.9), 1)}


def ratio(part: float, whole: float, digits: int = 4) -> float:
    """part / whole, rounded; 0.0 when there is nothing to divide by."""
    return round(part / whole, digits) if whole else 0.0


def write_json_line(figures: Mapping[str, object]) -> None:
    """The one line a benchmark ends with."""
    sys.stdout.write(json.dumps(figures, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def write_figures(figures: Mapping[str, object], *, as_json: bool) -> None:
    """One JSON line, or the same figures one a line for a person; a split is a small table."""
    if as_json:
        write_json_line(figures)
        return
    width = max((len(key) for key in figures), default=0)
    for key, value in figures.items():
        if isinstance(value, Mapping) and any(isinstance(one, Mapping) for one in value.values()):
            sys.stdout.write(f"{key}\n")
            for name, inner in value.items():
                sys.stdout.write(f"  {name:<18}  {_one_line(inner)}\n")
        else:
            sys.stdout.write(f"{key:<{width}}  {_one_line(value)}\n")


def _one_line(value: object) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return "  ".join(f"{key} {_one_line(inner)}" for key, inner in value.items())


def say(line: str) -> None:
    """One line for the person at the terminal, on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class Progress:
    """Counts finished items on stderr with rate and time left; one line on a terminal."""

    def __init__(self, total: int, what: str, stream: TextIO | None = None) -> None:
        self._total, self._what = total, what
        self._stream = stream if stream is not None else sys.stderr
        self._live = self._stream.isatty()
        self.done = 0
        self._started = time.monotonic()
        self._last_shown = -math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live and self.done:
            self._stream.write("\n")

    def step(self, note: str = "") -> None:
        """One more item is finished."""
        self.done += 1
        now = time.monotonic()
        # A log file gets a line every ten seconds, a terminal a fresh one five times a second.
        due = now - self._last_shown >= (0.2 if self._live else 10.0)
        if not due and self.done < self._total:
            return
        self._last_shown = now
        rate = self.done / max(now - self._started, 1e-9)
        left = (self._total - self.done) / rate
        line = (
            f"{self.done}/{self._total} {self._what}  {rate:.2f}/s  {_clock(left)} left  {note}"
        ).rstrip()
        self._stream.write(f"\r\x1b[K{line}" if self._live else line + "\n")
        self._stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Rows:
    """Per-item rows in a JSON-lines file, so that a stopped run goes on where it stopped.

    Every row carries the run's signature: rows of another run are never mixed in.
    """

    def __init__(self, path: Path | None, run: str) -> None:
        self._path, self._run = path, run
        self.done: dict[str, dict[str, object]] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        """Raises BenchmarkError when the file belongs to another run; drops a half-written end."""
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        for line in whole.splitlines():
            row = json.loads(line)
            if row.get("run") != self._run:
                raise BenchmarkError(
                    f"{path} holds rows of another run ({row.get('run')}); "
                    f"choose another --out or delete it"
                )
            self.done[str(row["id"])] = row
        if len(whole) < len(text):
            path.write_text(whole, encoding="utf-8")

    def add(self, key: str, row: Mapping[str, object]) -> None:
        """Keeps the row, and appends it to the file where there is one."""
        full: dict[str, object] = {"id": key, "run": self._run, **row}
        self.done[key] = full
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(full, ensure_ascii=False) + "\n")

    def of(self, keys: Iterable[str]) -> list[dict[str, object]]:
        """The rows of these items, in their order; those not done yet are left out."""
        return [self.done[key] for key in keys if key in self.done]

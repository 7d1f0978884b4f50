"""Time and cancellation of one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.canvas import Canvas

#: With nothing committed, an answer may take this long: late is welcome at a resting cursor.
PATIENCE_MS = 2000.0


class Clock:
    """Counts from its making; `deadline_ms` None means no deadline."""

    def __init__(self, deadline_ms: float | None, cancelled: Callable[[], bool]) -> None:
        self._started = time.perf_counter()
        self._deadline_ms, self.cancelled = deadline_ms, cancelled
        self._stages: dict[str, float] = {}

    def elapsed_ms(self) -> float:
        """Milliseconds since the request came."""
        return (time.perf_counter() - self._started) * 1e3

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._stages[name] = self.ms(name) + (time.perf_counter() - started) * 1e3

    def ms(self, name: str) -> float:
        """Milliseconds of a stage so far."""
        return self._stages.get(name, 0.0)

    def time_left(self) -> bool:
        """Whether the deadline has not struck."""
        return self._deadline_ms is None or self.elapsed_ms() < self._deadline_ms

    def stop(self, canvas: Canvas) -> str | None:
        """Why the loop should stop before its next forward, if it should.

        The deadline strikes once something is committed; with nothing but white space it waits
        for `PATIENCE_MS`.
        """
        if self.cancelled():
            return "cancelled"
        if self.time_left():
            return None
        assert self._deadline_ms is not None
        late = self.elapsed_ms() >= max(self._deadline_ms, PATIENCE_MS)
        return "deadline" if canvas.text.strip() or late else None

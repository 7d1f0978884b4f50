"""Time and cancellation of one request, and when what is committed is worth stopping for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

#: An answer that comes late anyway says at least so many words or signs.
_LEAST_SIGNS = 4
_SIGN = re.compile(r"\w+|[^\w\s]")
_OPENERS, _CLOSERS = "([{", ")]}"


class HasText(Protocol):
    """A canvas: what it says so far."""

    @property
    def text(self) -> str: ...


class Clock:
    """Counts from its making; `deadline_ms` None means no deadline.

    With nothing worth showing at the deadline, the work may go on until `patience_ms`.
    """

    def __init__(
        self, deadline_ms: float | None, cancelled: Callable[[], bool], *, patience_ms: float = 0.0
    ) -> None:
        self._started = time.perf_counter()
        self._deadline_ms, self.cancelled = deadline_ms, cancelled
        self._last_ms = max(deadline_ms or 0.0, patience_ms)
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

    def stop(self, canvas: HasText) -> str | None:
        """Why the loop should stop before its next forward, if it should.

        Behind the deadline that is as soon as something worth showing is committed.
        """
        if self.cancelled():
            return "cancelled"
        if self.time_left():
            return None
        late = self.elapsed_ms() >= self._last_ms
        return "deadline" if late or is_worth_showing(canvas.text) else None


def is_worth_showing(text: str) -> bool:
    """Whether a text that was cut short helps whoever reads it: a few signs, no bracket open.

    One word at the deadline would be taken for the whole suggestion, and replace it.
    """
    signs = _SIGN.findall(text)
    opened = sum((sign in _OPENERS) - (sign in _CLOSERS) for sign in signs)
    return len(signs) >= _LEAST_SIGNS and opened <= 0

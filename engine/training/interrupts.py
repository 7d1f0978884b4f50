"""SIGTERM and SIGINT as a request to stop at the next safe place.

The handlers are set even where SIGINT was ignored, as shells do for what they start in the
background: a long training must stop when it is told to.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Stop = Callable[[], bool]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def never() -> bool:
    """For callers that cannot be interrupted."""
    return False


class Stopped(KeyboardInterrupt):
    """The work ended early because a signal asked for it."""


class Interrupts:
    """While entered, the first signal is remembered if `deferring`, and raises Stopped if not; a
    second one ends the work where it stands. The former handlers come back at the end."""

    def __init__(self) -> None:
        self.deferring = False
        self.signal_number: int | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._former = {n: signal.signal(n, self._handle) for n in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def wanted(self) -> bool:
        """Whether a signal has come."""
        return self.signal_number is not None

    @property
    def exit_status(self) -> int:
        """What shells expect of a program that a signal ended."""
        return 128 + (self.signal_number or signal.SIGINT)

    def _handle(self, number: int, _: FrameType | None) -> None:
        again = self.wanted()
        self.signal_number = self.signal_number or number
        if again:
            raise KeyboardInterrupt  # the user will not wait; the last checkpoint is whole
        if not self.deferring:
            raise Stopped

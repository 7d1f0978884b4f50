"""What the client is told about the engine and this session: `dlsp/status`, sent on change.

Knows states and how they cover one another: paused hides busy, and busy hides ready. Does not know
how a client shows them, or how the engine is watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from dlsp.client.remote import describe
from dlsp.client.wire import Health

#: Requests that end sooner are not worth a sign of life.
BUSY_AFTER_S = 0.15

State = Literal["starting", "downloading", "ready", "busy", "paused", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """How far the engine is. `progress`: the share done, 0 to 1, where it is known."""

    state: Literal["starting", "downloading", "ready", "error"]
    message: str = ""
    model: str | None = None
    progress: float | None = None


def engine_state(health: Health) -> EngineState:
    """The state that an engine's own word means."""
    if health.status == "ready":
        return EngineState(state="ready", message=health.model or "", model=health.model)
    if health.status == "error":
        return EngineState(state="error", message=health.message, model=health.model)
    if health.progress is None or not health.progress[2]:
        return EngineState(state="starting", message=health.message, model=health.model)
    what, done, total = health.progress
    return EngineState(
        state="downloading" if "downloading" in what else "starting",
        message=f"{what}, {done / total:.0%}",
        model=health.model,
        progress=round(min(done / total, 1.0), 3),
    )


class Status:
    """The state of one session; tells `send` whenever what a person sees has changed."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._engine = EngineState(state="starting")
        self._elsewhere = ""
        self._paused = False
        self._slow: set[object] = set()
        self._last_ms: int | None = None
        self._told: dict[str, Any] | None = None

    def engine(self, state: EngineState) -> None:
        self._engine = state
        self._tell()

    def engine_at(self, url: str | None) -> None:
        """The engine is at an address that the user gave, and every message says where the code
        goes; None: on this machine."""
        self._elsewhere = describe(url) if url else ""

    def answered(self, ms: float) -> None:
        """A suggestion went out, so many milliseconds after it was asked for."""
        self._last_ms = round(ms)
        self._tell()

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._tell()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Meanwhile a request is worked on: busy, once that takes a while."""
        request = object()
        timer = asyncio.get_running_loop().call_later(BUSY_AFTER_S, self._lasts, request)
        try:
            yield
        finally:
            timer.cancel()
            if request in self._slow:
                self._slow.remove(request)
                self._tell()

    def _lasts(self, request: object) -> None:
        self._slow.add(request)
        self._tell()

    def _tell(self) -> None:
        engine = self._engine
        state: State = engine.state
        message = "; ".join(part for part in (engine.message, self._elsewhere) if part)
        if self._paused:
            state, message = "paused", "paused"
        elif self._slow and state == "ready":
            state = "busy"
        now = {
            "state": state,
            "message": message,
            "model": engine.model,
            "progress": engine.progress,
            "lastMs": self._last_ms,
        }
        if now != self._told:
            self._told = now
            self._send(now)

"""The engine's running work, one piece per document, which may outlive the request that began it.

On a slow machine a suggestion takes longer than the next key. Were each key to end what runs, a
fast typist would never see any; so a newer request first waits for what is under way, for a while
and where its outcome may still hold: that is kept in memory, and who typed on gets the rest of it.
Knows tasks and the text around a cursor; not engines, nor what the work brings.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from dlsp.suggestion.memory import Suggestion, continues

T = TypeVar("T")

#: How long work whose request was cancelled waits for a newer one that wants it. Editors cancel
#: before they ask again.
GRACE_S: Final = 0.1


@dataclass(slots=True, kw_only=True, eq=False)
class _Flight(Generic[T]):
    """`until`: on the loop's clock, when newer requests stop waiting for it."""

    task: asyncio.Task[T]
    place: Suggestion
    until: float
    waiting: int = 0


class Flights(Generic[T]):
    """What the engine works on now, by document."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._flights: dict[str, _Flight[T]] = {}

    async def run(
        self, uri: str, place: Suggestion, work: Callable[[], Awaitable[T]], *, serves_s: float
    ) -> T:
        """Do the work, in place of what ran for this document; what it raises is raised here.

        `place`: the text around the cursor. When the caller is cancelled, the work goes on for
        those who `join` it, and ends when nobody does.
        """
        self.end(uri)
        task = asyncio.ensure_future(work())
        flight = self._flights[uri] = _Flight(
            task=task, place=place, until=self._clock() + serves_s
        )
        task.add_done_callback(_retrieve)
        await self._attend(uri, flight, None)
        return await task

    async def join(self, uri: str, before: str, after: str) -> None:
        """Wait for what runs for this document if it may still be of use, else end it."""
        flight = self._flights.get(uri)
        if flight is None:
            return
        left_s = flight.until - self._clock()
        if left_s > 0 and continues(flight.place, before, after):
            await self._attend(uri, flight, left_s)
        if not flight.task.done():
            self.end(uri)

    def end(self, uri: str) -> None:
        """End what runs for a document, if anything."""
        flight = self._flights.pop(uri, None)
        if flight is not None:
            flight.task.cancel()

    def end_all(self) -> None:
        """End everything that runs."""
        for uri in tuple(self._flights):
            self.end(uri)

    async def _attend(self, uri: str, flight: _Flight[T], limit_s: float | None) -> None:
        flight.waiting += 1
        try:
            await asyncio.wait({flight.task}, timeout=limit_s)
        finally:
            flight.waiting -= 1
            if flight.task.done():
                if self._flights.get(uri) is flight:
                    del self._flights[uri]
            else:
                asyncio.get_running_loop().call_later(GRACE_S, self._end_unattended, uri, flight)

    def _end_unattended(self, uri: str, flight: _Flight[T]) -> None:
        if not flight.waiting and self._flights.get(uri) is flight:
            self.end(uri)


def _retrieve(task: asyncio.Task[T]) -> None:
    """Look at an error that nobody may wait for, so that asyncio does not report it as lost."""
    if not task.cancelled():
        task.exception()

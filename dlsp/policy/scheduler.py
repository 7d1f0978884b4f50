"""Who may still answer: the latest request of each document, within its deadline; and what is done
meanwhile, when nobody waits.

Knows asyncio tasks and keys; does not know LSP or completions. pygls cancels the handler's task
when the client cancels; here that is told apart from being superseded, which is not an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Superseded(Exception):
    """A newer request of the same document has taken over."""


class Overdue(Exception):
    """The work did not end within the time its request may take."""


class Scheduler(Generic[T]):
    """Runs at most one piece of work per key; starting another cancels the one before."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}
        self._idle: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        return len(self._tasks)

    async def latest(
        self, key: str, work: Callable[[], Awaitable[T]], *, limit_s: float | None
    ) -> T:
        """Do the work as the latest of its key.

        Raises Superseded when a newer request took over, Overdue after `limit_s`, and lets
        CancelledError through when the caller itself was cancelled; in each case the work has
        been cancelled too.
        """
        self.supersede(key)
        self._end_idle()
        task = asyncio.ensure_future(_bounded(work, limit_s))
        self._tasks[key] = task
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Superseded from None
        finally:
            if self._tasks.get(key) is task:
                del self._tasks[key]

    def supersede(self, key: str) -> None:
        """Cancel what runs for a key, if anything."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def when_idle(self, work: Callable[[], Awaitable[None]], *, after_s: float) -> None:
        """Do this once nothing has been asked for so long; any request ends it at once.

        Of several the last one counts.
        """
        self._end_idle()
        self._idle = asyncio.ensure_future(self._quietly(work, after_s))
        self._idle.add_done_callback(_report)

    async def _quietly(self, work: Callable[[], Awaitable[None]], after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not self._tasks:
            await work()

    def _end_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def supersede_all(self) -> None:
        """Cancel everything that runs; each caller learns that it was superseded."""
        self._end_idle()
        for key in tuple(self._tasks):
            self.supersede(key)


def _report(idle: asyncio.Task[None]) -> None:
    """Nobody waits for idle work: what fails in it is logged."""
    if not idle.cancelled() and idle.exception() is not None:
        logger.error("idle work failed: bug in dlsp", exc_info=idle.exception())


async def _bounded(work: Callable[[], Awaitable[T]], limit_s: float | None) -> T:
    try:
        async with asyncio.timeout(limit_s) as bound:
            return await work()
    except TimeoutError:
        if bound.expired():
            raise Overdue from None
        raise

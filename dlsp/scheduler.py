"""Who may still answer: the latest request of each document, within its deadline.

Knows asyncio tasks and keys; does not know LSP or completions. pygls cancels the handler's task
when the client cancels; here that is told apart from being superseded, which is not an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Superseded(Exception):
    """A newer request of the same document has taken over."""


class Overdue(Exception):
    """The work did not end within the time its request may take."""


class Scheduler(Generic[T]):
    """Runs at most one piece of work per key; starting another cancels the one before."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

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

    def supersede_all(self) -> None:
        """Cancel everything that runs; each caller learns that it was superseded."""
        for key in tuple(self._tasks):
            self.supersede(key)


async def _bounded(work: Callable[[], Awaitable[T]], limit_s: float | None) -> T:
    try:
        async with asyncio.timeout(limit_s) as bound:
            return await work()
    except TimeoutError:
        if bound.expired():
            raise Overdue from None
        raise

"""Latest wins, per key; cancelled, superseded and overdue are three different ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dlsp.policy.scheduler import Overdue, Scheduler, Superseded


class Work:
    """Work that ends when told to, and records whether it was cancelled."""

    def __init__(self, result: str) -> None:
        self.result = result
        self.go = asyncio.Event()
        self.started = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> str:
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.result


def start(scheduler: Scheduler[str], key: str, work: Work) -> asyncio.Task[str]:
    return asyncio.ensure_future(scheduler.latest(key, work, limit_s=None))


def test_a_newer_request_supersedes_the_older() -> None:
    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        old, new = Work("old"), Work("new")
        first = start(scheduler, "a", old)
        await old.started.wait()
        second = start(scheduler, "a", new)
        await new.started.wait()
        with pytest.raises(Superseded):
            await first
        new.go.set()
        assert await second == "new"
        assert old.cancelled
        assert scheduler.running == 0

    asyncio.run(scenario())


def test_other_documents_are_left_alone() -> None:
    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        one, two = Work("one"), Work("two")
        tasks = [start(scheduler, "a", one), start(scheduler, "b", two)]
        await two.started.wait()
        one.go.set()
        two.go.set()
        assert await asyncio.gather(*tasks) == ["one", "two"]

    asyncio.run(scenario())


def test_a_cancelled_caller_stays_cancelled_and_its_work_stops() -> None:
    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        work = Work("x")
        task = start(scheduler, "a", work)
        await work.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.cancelled
        assert scheduler.running == 0

    asyncio.run(scenario())


def test_cancelled_and_superseded_at_once_counts_as_cancelled() -> None:
    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        work = Work("x")
        task = start(scheduler, "a", work)
        await work.started.wait()
        scheduler.supersede("a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_overdue_work_is_cancelled() -> None:
    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        work = Work("x")
        with pytest.raises(Overdue):
            await scheduler.latest("a", work, limit_s=0.01)
        assert work.cancelled
        assert scheduler.running == 0

    asyncio.run(scenario())


def test_a_timeout_of_the_works_own_is_no_overdue() -> None:
    async def own_timeout() -> str:
        raise TimeoutError("the socket")

    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        with pytest.raises(TimeoutError, match="the socket"):
            await scheduler.latest("a", own_timeout, limit_s=60)

    asyncio.run(scenario())


def test_many_requests_in_a_row_end_each_exactly_once_and_only_the_last_answers() -> None:
    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        works = [Work(str(number)) for number in range(100)]
        tasks = [start(scheduler, "a", work) for work in works]
        works[-1].go.set()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert ends[-1] == "99"
        assert all(isinstance(end, Superseded) for end in ends[:-1])

    asyncio.run(scenario())


def test_idle_work_waits_until_nobody_asks_and_ends_when_somebody_does() -> None:
    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        begun, ended = asyncio.Event(), asyncio.Event()

        async def idle() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        scheduler.when_idle(idle, after_s=0.0)
        await begun.wait()

        async def work() -> str:
            return "answer"

        assert await scheduler.latest("a", work, limit_s=None) == "answer"
        await asyncio.wait_for(ended.wait(), 5)

    asyncio.run(scenario())


def test_of_idle_works_the_last_counts_and_none_begins_beside_a_request() -> None:
    async def scenario() -> None:
        scheduler: Scheduler[str] = Scheduler()
        done: list[str] = []
        release = asyncio.Event()

        def note(name: str) -> Callable[[], Awaitable[None]]:
            async def work() -> None:
                done.append(name)

            return work

        async def slow() -> str:
            await release.wait()
            return ""

        running = asyncio.ensure_future(scheduler.latest("a", slow, limit_s=None))
        await asyncio.sleep(0)
        scheduler.when_idle(note("beside"), after_s=0.0)
        await asyncio.sleep(0.02)
        release.set()
        await running
        scheduler.when_idle(note("first"), after_s=0.0)
        scheduler.when_idle(note("second"), after_s=0.0)
        await asyncio.sleep(0.02)
        assert done == ["second"]

    asyncio.run(scenario())

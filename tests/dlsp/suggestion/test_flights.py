"""Running work that outlives the request that began it, for those who typed on."""

from __future__ import annotations

import asyncio

import pytest

from dlsp.suggestion import flights as room
from dlsp.suggestion.flights import Flights
from dlsp.suggestion.memory import Suggestion

URI = "file:///a.py"
PLACE = Suggestion(before="x = ", text="", after="\n")


class Work:
    """Runs until released; tells whether it was cancelled."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.ended = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> str:
        try:
            await self.release.wait()
            return "done"
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.ended.set()


async def begun(flights: Flights[str], work: Work, serves_s: float = 60.0) -> asyncio.Task[str]:
    task = asyncio.ensure_future(flights.run(URI, PLACE, work, serves_s=serves_s))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_what_the_work_brings_or_raises_is_the_callers() -> None:
    flights: Flights[str] = Flights()
    work = Work()
    task = await begun(flights, work)
    work.release.set()
    assert await task == "done"

    async def fail() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await flights.run(URI, PLACE, fail, serves_s=60.0)
    await flights.join(URI, "x = ", "\n")


@pytest.mark.parametrize("before", ["x = ", "x = f", "x = foo("])
async def test_whoever_typed_on_waits_for_it(before: str) -> None:
    flights: Flights[str] = Flights()
    work = Work()
    task = await begun(flights, work)
    task.cancel()
    joined = asyncio.ensure_future(flights.join(URI, before, ")\n" if "(" in before else "\n"))
    await asyncio.sleep(room.GRACE_S * 1.5)
    assert not joined.done()
    work.release.set()
    await joined
    assert not work.cancelled


@pytest.mark.parametrize(
    ("before", "after"), [("x =", "\n"), ("y = ", "\n"), ("x = ", "a\n"), ("x = 1\n", "\n")]
)
async def test_where_it_is_of_no_use_it_is_ended(before: str, after: str) -> None:
    flights: Flights[str] = Flights()
    work = Work()
    await begun(flights, work)
    await flights.join(URI, before, after)
    await asyncio.wait_for(work.ended.wait(), 5)
    assert work.cancelled


async def test_nobody_waits_longer_than_it_serves() -> None:
    flights: Flights[str] = Flights()
    work = Work()
    await begun(flights, work, serves_s=0.05)
    await asyncio.wait_for(flights.join(URI, "x = f", "\n"), 5)
    await asyncio.wait_for(work.ended.wait(), 5)
    assert work.cancelled


async def test_cancelled_work_ends_when_nobody_comes_for_it() -> None:
    flights: Flights[str] = Flights()
    work = Work()
    task = await begun(flights, work)
    task.cancel()
    await asyncio.wait_for(work.ended.wait(), 5)
    assert work.cancelled


async def test_new_work_takes_the_place_of_the_old_and_ending_all_ends_it() -> None:
    flights: Flights[str] = Flights()
    first, second = Work(), Work()
    old = await begun(flights, first)
    await begun(flights, second)
    with pytest.raises(asyncio.CancelledError):
        await old
    assert (first.cancelled, second.cancelled) == (True, False)
    flights.end_all()
    await asyncio.wait_for(second.ended.wait(), 5)
    assert second.cancelled

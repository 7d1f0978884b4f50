"""An engine on its way: what is reported until it is there, or cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dlsp.client.engine_process import EngineUnavailable
from dlsp.client.wire import Health
from dlsp.engine_watch import WATCH_INTERVAL_S, follow_start
from dlsp.status import EngineState

LOADING = Health(status="loading", message="loading", progress=("loading weights", 1, 4))
READY = Health(status="ready", model="fake")


async def reported(answers: Sequence[Health | Exception], *, slow: int | None = None) -> list[str]:
    """The states reported by an engine that gives these answers, the one at `slow` late."""
    told: list[EngineState] = []
    given = iter(enumerate(answers))

    async def ask() -> Health:
        place, answer = next(given)
        if place == slow:
            await asyncio.sleep(2 * WATCH_INTERVAL_S)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await follow_start(ask, told.append)
    return [f"{one.state}: {one.message}" for one in told]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([READY], ["ready: fake"]),
        ([LOADING, READY], ["starting: loading weights, 25%", "ready: fake"]),
        ([Health(status="error", message="no weights"), READY], ["error: no weights"]),
        ([EngineUnavailable("no program"), READY], ["error: no program"]),
    ],
)
async def test_it_is_followed_until_it_is_ready_or_fails(
    answers: list[Health | Exception], told: list[str]
) -> None:
    assert await reported(answers) == told


async def test_a_silent_engine_counts_as_starting_until_it_was_heard() -> None:
    assert await reported([READY], slow=0) == ["starting: starting the engine", "ready: fake"]
    loading = "starting: loading weights, 25%"
    assert await reported([LOADING, READY], slow=1) == [loading, "ready: fake"]

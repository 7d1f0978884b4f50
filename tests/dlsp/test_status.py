"""What the client is told: each state once, and the one that a person needs to see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dlsp import status
from dlsp.client.wire import Health
from dlsp.policy.pauses import Pauses, Place
from dlsp.status import EngineState, Status, engine_state

READY = EngineState(state="ready", message="m", model="m")


class Told:
    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.status = Status(self.all.append)

    @property
    def states(self) -> list[str]:
        return [one["state"] for one in self.all]


def test_the_same_is_told_once() -> None:
    told = Told()
    for state in (READY, READY, EngineState(state="error", message="broken"), READY):
        told.status.engine(state)
    assert told.states == ["ready", "error", "ready"]
    assert told.all[0] == {
        "state": "ready", "message": "m", "model": "m", "progress": None, "lastMs": None,
    }  # fmt: skip


def test_an_engine_elsewhere_is_named() -> None:
    told = Told()
    told.status.engine_at("https://engine.example:8443/v1")
    told.status.engine(READY)
    assert told.all[-1]["message"] == "m; code is sent to engine.example"


def test_paused_hides_what_the_engine_does_until_it_goes_on() -> None:
    told = Told()
    told.status.engine(EngineState(state="starting", message="loading"))
    told.status.pause(True)
    told.status.engine(READY)
    told.status.pause(False)
    assert told.states == ["starting", "paused", "paused", "ready"]


def test_the_time_of_the_last_suggestion() -> None:
    told = Told()
    told.status.engine(READY)
    told.status.answered(41.6)
    assert (told.all[-1]["state"], told.all[-1]["lastMs"]) == ("ready", 42)


def test_busy_only_when_it_takes_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "BUSY_AFTER_S", 0.0)

    async def work(told: Told) -> None:
        told.status.engine(READY)
        with told.status.working():
            pass  # ends before the loop gets to say anything
        with told.status.working(), told.status.working():
            await asyncio.sleep(0.01)
        told.status.engine(EngineState(state="error", message="broken"))
        with told.status.working():
            await asyncio.sleep(0.01)

    told = Told()
    asyncio.run(work(told))
    assert told.states == ["ready", "busy", "ready", "error"]


@pytest.mark.parametrize(
    ("health", "state", "progress"),
    [
        (Health(status="starting"), "starting", None),
        (Health(status="loading", progress=("converting", 1, 4)), "starting", 0.25),
        (Health(status="loading", progress=("downloading m from the hub", 3, 4)), "downloading",
         0.75),
        (Health(status="loading", progress=("m is corrupt", 0, 0)), "starting", None),
        (Health(status="ready", model="m"), "ready", None),
        (Health(status="error", message="no weights"), "error", None),
    ],
)  # fmt: skip
def test_an_engines_own_word(health: Health, state: str, progress: float | None) -> None:
    found = engine_state(health)
    assert (found.state, found.progress) == (state, progress)
    if progress is not None:
        assert f"{progress:.0%}" in found.message


def test_pauses() -> None:
    pauses = Pauses()
    python = Place(uri="file:///a%20b.py", language="python")
    same = Place(uri="file:///a b.py", language="python")
    rust = Place(uri="file:///c.rs", language="rust")
    assert pauses.reason(python) is None
    pauses.set("document", python, paused=True)
    assert (pauses.reason(same), pauses.reason(rust)) == ("paused in this document", None)
    pauses.set("language", rust, paused=True)
    assert pauses.reason(rust) == "paused for rust"
    pauses.set("all", None, paused=True)
    assert pauses.reason(Place(uri="x", language="")) == "paused"
    pauses.set("all", None, paused=False)
    pauses.set("language", rust, paused=False)
    assert (pauses.reason(rust), pauses.reason(python)) == (None, "paused in this document")
    pauses.set("document", same, paused=False)
    assert pauses.reason(python) is None

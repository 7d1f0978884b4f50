"""Settings that change while a session lives: what is let go, ended or kept."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from dlsp.client.backend import Backend
from dlsp.server import build


class Engine:
    """A backend that notes what becomes of it."""

    def __init__(self) -> None:
        self.fate: list[str] = []

    async def stop_engine(self) -> None:
        self.fate.append("ended")

    async def close(self) -> None:
        self.fate.append("closed")


@pytest.mark.parametrize(
    ("change", "fate"),
    [
        ({"mood": "eager", "deadlineMs": 100}, []),
        ({"model": "smollm2-135m"}, ["closed"]),
        ({"engineUrl": "http://127.0.0.1:9"}, ["closed"]),
        ({"memoryMb": 64}, ["ended", "closed"]),
        ({"idleUnloadMinutes": 1}, ["ended", "closed"]),
    ],
)
async def test_a_change_reaches_the_engine(
    change: dict[str, object], fate: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MODEL", "ENGINE_URL", "MEMORY_MB", "IDLE_UNLOAD_MINUTES"):
        monkeypatch.delenv(f"DLSP_{name}", raising=False)
    session = build()
    session.read_options({})
    engine = Engine()
    session._backend = cast(Backend, engine)
    session.read_options(change)
    await asyncio.sleep(0.01)
    assert engine.fate == fate
    assert (session._backend is None) is bool(fate)


async def test_suggestions_of_other_settings_are_forgotten() -> None:
    session = build()
    session.read_options({})
    before = session._memory
    session.read_options({})
    assert session._memory is before
    session.read_options({"mood": "quiet"})
    assert session._memory is not before

"""How long is waited before the engine is asked."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsp.policy.timing import MOST_MS, Kind, Pace, Rhythm, wait_ms

KINDS: tuple[Kind, ...] = ("line", "edge", "word", "inside")


def test_asked_by_hand_nothing_is_waited_for() -> None:
    slow = Rhythm(gap_ms=1000, hit_rate=0.0, last_s=5.0)
    assert all(wait_ms(slow, kind, invoked=True, now_s=5.0) == 0 for kind in KINDS)


def test_the_wait_follows_the_hand_the_place_and_the_luck() -> None:
    def wait(kind: Kind = "edge", **changes: float) -> float:
        return wait_ms(Rhythm(last_s=1.0, **changes), kind, invoked=False, now_s=1.0)

    assert wait(gap_ms=100) < wait(gap_ms=200)
    assert wait("edge") < wait("word") < wait("inside")
    assert wait(hit_rate=0.9) < wait(hit_rate=0.5) < wait(hit_rate=0.1)


def test_what_has_gone_since_the_key_counts() -> None:
    rhythm = Rhythm(gap_ms=200, last_s=1.0)
    whole = wait_ms(rhythm, "word", invoked=False, now_s=1.0)
    assert wait_ms(rhythm, "word", invoked=False, now_s=1.05) == pytest.approx(whole - 50)
    assert wait_ms(rhythm, "word", invoked=False, now_s=1.5) == 0


@given(st.lists(st.floats(0.001, 30), max_size=30), st.lists(st.booleans(), max_size=20))
def test_never_for_ever(gaps: list[float], luck: list[bool]) -> None:
    rhythm, now = Rhythm(), 0.0
    for gap in gaps:
        now += gap
        rhythm = rhythm.key(now)
    for came_true in luck:
        rhythm = rhythm.judged(came_true)
    assert 0 <= rhythm.hit_rate <= 1
    assert all(0 <= wait_ms(rhythm, kind, invoked=False, now_s=now) <= MOST_MS for kind in KINDS)


def test_the_running_mean_learns_typing_and_not_pauses() -> None:
    rhythm, now = Rhythm(gap_ms=200), 0.0
    for _ in range(60):
        now += 0.08
        rhythm = rhythm.key(now)
    assert rhythm.gap_ms == pytest.approx(80, abs=1)
    paused = rhythm.key(now + 60)
    assert (paused.gap_ms, paused.last_s) == (rhythm.gap_ms, now + 60)


def test_the_pace_waits_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    pace = Pace(clock=lambda: 7.0)
    pace.key()
    asyncio.run(pace.wait("word", invoked=False))
    asyncio.run(pace.wait("word", invoked=True))
    assert slept == [wait_ms(pace.rhythm, "word", invoked=False, now_s=7.0) / 1000]
    assert Pace()._clock is time.perf_counter

"""When a request stops: its deadline, its patience, and what is worth stopping for."""

from __future__ import annotations

import pytest

from engine import clock
from engine.clock import Clock, is_worth_showing


class Committed:
    """A canvas reduced to what the clock looks at."""

    def __init__(self, text: str) -> None:
        self.text = text


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("", False),
        ("  ", False),
        ("self", False),
        ("self.name", False),
        ("self.items(", False),
        ("self.items()", True),
        ("a + b * c", True),
        ("range(len(x), y", False),
        ("x, y))", True),
        ("return first + second", True),
    ],
)
def test_a_few_signs_with_no_bracket_open_are_worth_showing(text: str, worth: bool) -> None:
    assert is_worth_showing(text) is worth


@pytest.mark.parametrize(
    ("elapsed_ms", "text", "reason"),
    [
        (100, "", None),
        (100, "a.b(c)", None),
        (300, "a.b(c)", "deadline"),
        (300, "a.b(", None),
        (1900, "a", None),
        (2100, "a", "deadline"),
        (2100, "", "deadline"),
    ],
)
def test_deadline_then_patience(
    monkeypatch: pytest.MonkeyPatch, elapsed_ms: float, text: str, reason: str | None
) -> None:
    now = [10.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    running = Clock(250.0, lambda: False, patience_ms=2000.0)
    now[0] += elapsed_ms / 1000
    assert running.stop(Committed(text)) == reason  # type: ignore[arg-type]


def test_without_a_deadline_only_a_cancel_stops() -> None:
    cancelled = [False]
    running = Clock(None, lambda: cancelled[0], patience_ms=0.0)
    assert running.stop(Committed("a.b(c)")) is None  # type: ignore[arg-type]
    cancelled[0] = True
    assert running.stop(Committed("")) == "cancelled"  # type: ignore[arg-type]

"""What the latency benchmark sends, and when it refuses to report."""

from __future__ import annotations

import pytest

from benchmarks.latency import (
    REQUESTS_PER_FILE,
    TYPED_AT_ONCE,
    figures,
    fresh_places,
    position_at,
    typing_scripts,
)
from benchmarks.lsp_session import Suggestion
from benchmarks.report import BenchmarkError, percentile


def suggestion(text: str, total_ms: float, error: str | None = None) -> Suggestion:
    return Suggestion(
        text=text,
        wall_ms=total_ms + 1,
        detail={
            "tokens": 4,
            "forwards": 2,
            "reason": None if text else "nothing",
            "finish_reason": "stop",
            "ms": {"encode": total_ms / 2, "total": total_ms},
            "error": {"message": error} if error else None,
        },
    )


def test_medians_are_over_all_requests() -> None:
    found = figures([suggestion("x", ms) for ms in (10.0, 20.0, 60.0)], "warm")
    assert found["ms_total"] == {"p50": 20.0, "p90": 52.0}
    assert found["ms_client"] == {"p50": 21.0, "p90": 53.0}
    assert found["tokens_per_forward"] == 2.0
    stages = found["ms"]
    assert isinstance(stages, dict)
    assert stages["encode"] == {"p50": 10.0, "p90": 26.0}


def test_mostly_empty_answers_are_not_reported() -> None:
    half = [suggestion("x", 10.0), suggestion("", 1.0)]
    assert figures(half, "warm")["answered"] == 1
    with pytest.raises(BenchmarkError, match="only 1 of 3"):
        figures([*half, suggestion("", 1.0)], "warm")


def test_an_engine_error_is_not_reported_as_a_time() -> None:
    answers = [suggestion("x", 10.0), suggestion("", 1.0, error="no memory")]
    with pytest.raises(BenchmarkError, match="no memory"):
        figures(answers, "fresh")


def test_fresh_places_are_short_and_share_nothing() -> None:
    places = fresh_places(50, seed=0)
    assert len(places) == 50
    sizes = [len(place.prefix) + len(place.suffix) for place in places]
    assert 550 <= percentile([float(size) for size in sizes], 0.5) <= 720
    assert len({place.prefix for place in places}) == 50
    assert all(place.suffix.startswith("\n") for place in places)


def test_typing_scripts_have_enough_to_type() -> None:
    scripts = typing_scripts(5, seed=0)
    assert len(scripts) == 5
    for before, typed, after in scripts:
        assert before.endswith("\n")
        assert after.startswith("\n")
        assert len(typed) >= TYPED_AT_ONCE * REQUESTS_PER_FILE


@pytest.mark.parametrize(("text", "line", "character"), [("", 0, 0), ("ab", 0, 2), ("a\n€b", 1, 2)])
def test_positions_count_code_points(text: str, line: int, character: int) -> None:
    position = position_at(text)
    assert (position.line, position.character) == (line, character)

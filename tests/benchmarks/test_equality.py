"""How `verified` and `ar` are compared and what excuses a difference, with a fake engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import equality
from benchmarks.tasks import CURSOR_KINDS, cursors
from engine.request import InfillRequest, InfillResult
from tests.benchmarks.fake_engine import FakeEngine


def result(text: str, *, tokens: int = 3, near_ties: int = 0) -> InfillResult:
    return InfillResult(
        text=text,
        finish_reason="stop",
        model="fake",
        mode="ar",
        tokens=tokens,
        near_ties=near_ties,
    )


@pytest.mark.parametrize(
    ("ar", "verified", "expected"),
    [
        (result("a b"), result("a b"), "equal"),
        (result("a b", near_ties=2), result("a b"), "equal"),
        (result("a b", near_ties=1), result("a c"), "near_tie"),
        (result("a b"), result("a c", near_ties=1), "near_tie"),
        (result("a b"), result("a c"), "unexcused"),
        (result("a b"), result("a b", tokens=2), "unexcused"),
        (result("a b"), result(""), "unexcused"),
    ],
)
def test_only_a_near_tie_excuses_a_difference(
    ar: InfillResult, verified: InfillResult, expected: str
) -> None:
    assert equality.classify(ar, verified) == expected


def run(
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *more: str,
) -> tuple[int, dict[str, object]]:
    monkeypatch.setattr(equality, "load_engine", lambda *_: engine)
    code = equality.main(["--holes", "8", "--json", *more])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    figures: dict[str, object] = json.loads(lines[0])
    return code, figures


def differs(request: InfillRequest) -> str:
    return "one" if request.mode == "ar" else "two"


def test_equal_everywhere_exits_0(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine(lambda _: "same text")
    code, figures = run(engine, monkeypatch, capsys, "--data", str(data))
    assert code == 0
    assert (figures["n"], figures["equal"], figures["unexcused"]) == (8, 8, 0)
    assert figures["kinds"] == {"humaneval": 4, "line_start": 1, "mid_line": 2, "mid_token": 1}
    assert all(not request.syntax for request in engine.asked)
    first = [request.mode for request in engine.asked[::2]]
    assert first == ["ar", "verified"] * 4


def test_an_unexcused_difference_exits_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, figures = run(FakeEngine(differs), monkeypatch, capsys)
    assert (code, figures["equal"], figures["unexcused"]) == (1, 0, 8)


def test_near_ties_are_counted_and_exit_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, figures = run(FakeEngine(differs, near_ties=1), monkeypatch, capsys)
    assert (code, figures["near_tie"], figures["holes_with_near_ties"]) == (0, 8, 1.0)


def test_cursors_are_the_same_for_the_same_seed_and_of_every_kind() -> None:
    found = cursors(12, seed=3)
    assert found == cursors(12, seed=3)
    assert found != cursors(12, seed=4)
    assert [cursor.kind for cursor in found] == list(CURSOR_KINDS) * 4
    for cursor in found:
        line = cursor.prefix.rpartition("\n")[2]
        if cursor.kind == "line_start":
            assert line == ""
        else:
            assert line[-1].isidentifier() or line[-1].isalnum()
        if cursor.kind != "mid_token":
            assert cursor.suffix.startswith("\n")

"""Paired comparison: what is paired, and what the intervals say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import compare
from benchmarks.figures import Row


def row(number: int, passed: bool, *, ms: float = 10.0, group: str | None = None) -> Row:
    return {
        "id": f"task/{number}",
        "group": group or f"group/{number}",
        "run": "a run",
        "passed": passed,
        "em": passed,
        "text": str(passed),
        "tokens": 4,
        "forwards": 2,
        "ms": ms,
        "decode_ms": ms / 2,
    }


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


def figures_of(a: list[Row], b: list[Row]) -> dict[str, object]:
    one, other = ({str(r["id"]): r for r in rows} for rows in (a, b))
    return compare.compare(compare.pair(one, other), samples=2000)


def part(figures: dict[str, object], name: str) -> dict[str, object]:
    found = figures[name]
    assert isinstance(found, dict)
    return found


def interval_of(figures: dict[str, object], name: str) -> tuple[float, float]:
    bounds = part(figures, name)["interval"]
    assert isinstance(bounds, list)
    low, high = bounds
    return low, high


def test_two_equal_runs_differ_in_nothing() -> None:
    rows = [row(n, n % 2 == 0) for n in range(40)]
    figures = figures_of(rows, rows)
    assert (figures["n"], figures["same_text"]) == (40, 1.0)
    assert part(figures, "pass@1") == {
        "a": 0.5,
        "b": 0.5,
        "b-a": 0.0,
        "interval": [0.0, 0.0],
        "only_a": 0,
        "only_b": 0,
    }
    assert part(figures, "ms_ratio") == {"b/a": 1.0, "interval": [1.0, 1.0]}
    assert part(figures, "tokens_per_forward")["b/a"] == 1.0
    assert "edit_similarity" not in figures


def test_a_clear_gain_has_an_interval_above_nothing_and_a_small_one_does_not() -> None:
    before = [row(n, False) for n in range(60)]
    clear = figures_of(before, [row(n, n % 3 == 0) for n in range(60)])
    assert part(clear, "pass@1")["b-a"] == pytest.approx(1 / 3, abs=1e-4)
    assert (part(clear, "pass@1")["only_a"], part(clear, "pass@1")["only_b"]) == (0, 20)
    low, high = interval_of(clear, "pass@1")
    assert 0.2 < low < 1 / 3 < high < 0.47  # about 1.96 sqrt(p (1 - p) / n) = 0.12 on each side
    mixed = [row(n, n == 1) for n in range(60)]
    low, high = interval_of(figures_of([row(n, n == 0) for n in range(60)], mixed), "pass@1")
    assert low < 0 < high


def test_holes_of_one_group_are_drawn_together() -> None:
    def gain(groups: int) -> list[float]:
        a = [row(n, False, group=str(n % groups)) for n in range(60)]
        b = [row(n, n % groups % 3 == 0, group=str(n % groups)) for n in range(60)]
        low, high = interval_of(figures_of(a, b), "pass@1")
        return [low, high]

    alone, together = gain(60), gain(6)
    assert together[1] - together[0] > 2 * (alone[1] - alone[0])


def test_milliseconds_are_compared_as_a_ratio_that_one_slow_hole_does_not_decide() -> None:
    a = [row(n, True, ms=100.0) for n in range(50)]
    b = [row(n, True, ms=50.0 if n else 5000.0) for n in range(50)]
    figures = figures_of(a, b)
    assert part(figures, "ms_mean")["b/a"] == pytest.approx((49 * 50 + 5000) / 5000)
    ratio = part(figures, "ms_ratio")["b/a"]
    assert isinstance(ratio, float) and 0.5 < ratio < 0.56
    assert part(figures, "decode_ms_ratio")["b/a"] == ratio


def test_the_command_pairs_what_both_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a.jsonl", [row(n, True) for n in range(5)])
    cut = [{**row(n, True), "id": f"task/{n}@3", "task": f"task/{n}"} for n in range(2, 9)]
    b = write(tmp_path / "b.jsonl", cut)
    with b.open("a", encoding="utf-8") as file:
        file.write('{"id": "half a row')
    assert compare.main([str(a), str(b), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["n"], figures["only_in_a"], figures["only_in_b"]) == (3, 2, 4)
    assert (figures["a"], figures["b"]) == ("a.jsonl", "b.jsonl")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(9, True)], "no task in common"),
        ([{**row(0, True), "task": "t"}, {**row(1, True), "task": "t"}], "several rows"),
        ([{"no": "id"}], "not a file that --out wrote"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path, rows: list[Row], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a.jsonl", [row(0, True), row(1, True)])
    b = write(tmp_path / "b.jsonl", rows)
    assert compare.main([str(a), str(b), "--json"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, words in captured.err) == ("", True)
    assert captured.err.splitlines()[-1].startswith("error: ")

"""Real-code holes through a fake engine: scoring, summaries, choosing, resuming."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import realcode
from benchmarks.holes import KINDS, Hole
from engine.request import InfillRequest
from engine.training.split import is_held_out
from tests.benchmarks.fake_engine import FakeEngine, json_line

SOURCE = '''"""Shapes."""

import math


def area(width, height):
    """The area of a rectangle, never more than a hundred."""
    total = width * height
    if total > 100:
        total = min(total, 100)
        print("too large", total)
    return max(total, abs(width))


def circle(radius):
    """The area of a circle."""
    for step in range(3):
        radius = math.floor(radius + step)
    return math.pi * radius**2
'''


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """One held-out project in Python and one file in Go, and no installed packages."""
    name = next(f"project{n}" for n in range(99) if is_held_out(f"project{n}"))
    project, site = tmp_path / name, tmp_path / "site"
    project.mkdir()
    site.mkdir()
    (project / "shapes.py").write_text(SOURCE)
    go = "package a\n\n// Area is that of a rectangle, however large it may be.\n"
    go += "func Area(width int, height int) int {\n\treturn smaller(width*height, 100)\n}\n" * 6
    (project / "shapes.go").write_text(go)
    return ["--data", str(project), "--site", str(site), "--holes", "4", "--json"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Answers what stands in the file: the hole is what its two sides leave of it."""

    def answer(request: InfillRequest) -> str:
        return SOURCE[len(request.prefix) : len(SOURCE) - len(request.suffix)]

    engine = FakeEngine(answer)
    monkeypatch.setattr(realcode, "load_engine", lambda *_: engine)
    return engine


def run(command: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert realcode.main(command) == 0
    return json_line(capsys)


def part(figures: dict[str, object], name: str) -> dict[str, dict[str, object]]:
    found = figures[name]
    assert isinstance(found, dict)
    return found


def test_the_original_text_scores_full(
    command: list[str], fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run(command, capsys)
    for name in ("em", "edit_similarity", "first_line", "parse_rate", "useful_share"):
        assert figures[name] == 1.0
    kinds = part(figures, "by_kind")
    assert list(kinds) == list(KINDS)
    assert figures["n"] == sum(int(str(kind["n"])) for kind in kinds.values())
    assert kinds["rest"]["n"] == 4
    assert {asked.language for asked in fake.asked} == {"python"}
    assert {asked.want for asked in fake.asked} == {"line", "block"}
    assert all(asked.deadline_ms is None for asked in fake.asked)


HOLE = Hole(
    hole_id="arguments/p/a.py:1:3+4",
    kind="arguments",
    language="python",
    project="p",
    file="a.py",
    prefix="f(",
    canonical="a, b",
    suffix=")\n",
)


@pytest.mark.parametrize(
    ("text", "em", "similarity", "useful", "parses"),
    [
        ("a, b", True, 1.0, 4, True),
        ("a, c", False, 0.75, 3, True),
        ("a, b)", False, 0.8, 4, False),
        ("", False, 0.0, 0, True),
    ],
)
def test_scores(text: str, em: bool, similarity: float, useful: int, parses: bool) -> None:
    row = realcode.score(HOLE, {"text": text})
    assert (row["em"], row["first_line"], row["edit_similarity"]) == (em, em, similarity)
    assert (row["useful_prefix"], row["useful_share"]) == (useful, useful / 4)
    assert (row["parses"], row["kind"], row["group"]) == (parses, "arguments", "p/a.py")


def test_kind_every_limit_and_language_choose_the_holes(
    command: list[str], fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run([*command, "--kind", "rest", "line", "--every", "2"], capsys)
    assert {name: kind["n"] for name, kind in part(figures, "by_kind").items()} == {
        "rest": 2,
        "line": 2,
    }
    assert run([*command, "--kind", "rest", "--limit", "1"], capsys)["n"] == 1
    both = run([*command, "--kind", "line", "--language", "python", "go"], capsys)
    assert {name: one["n"] for name, one in part(both, "by_language").items()} == {
        "go": 4,
        "python": 4,
    }


def test_a_run_goes_on_where_it_stopped(
    command: list[str], fake: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "rows.jsonl")]
    first = run([*command, "--kind", "rest", "--limit", "2", *out], capsys)
    assert (first["n"], len(fake.asked)) == (2, 2)
    assert run([*command, "--kind", "rest", *out], capsys)["n"] == 4
    assert len(fake.asked) == 4
    assert realcode.main([*command, "--mode", "ar", *out]) == 2


@pytest.mark.parametrize("wrong", [["--holes", "0"], ["--every", "0"], ["--limit", "0"]])
def test_counts_are_at_least_one(
    command: list[str], wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert realcode.main([*command, *wrong]) == 2
    assert capsys.readouterr().err == "error: --holes, --every and --limit must be at least 1\n"


def test_without_held_out_files_it_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert realcode.main(["--site", str(tmp_path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("error: no held-out project")

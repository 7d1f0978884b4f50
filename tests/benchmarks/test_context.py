"""The context benchmark through a fake engine: what is open, what is shown, paired figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import context
from benchmarks.holes import Hole
from benchmarks.projects import SourceFile
from engine.request import InfillRequest
from engine.training.split import is_held_out
from tests.benchmarks.fake_engine import FakeEngine, json_line

SHAPES = '''"""Shapes, and what is known of them."""

from .measures import Measure, Unit


class Rectangle:
    """Four sides."""

    def __init__(self, width: Measure, height: Measure) -> None:
        self.width = Measure.checked(width, Unit.metre)
        self.height = Measure.checked(height, Unit.metre)

    def area(self) -> Measure:
        return Measure.product(self.width, self.height, Unit.square_metre)
'''
MEASURES = '''"""Measures with their units, and how they combine with one another."""

import enum


class Unit(enum.Enum):
    """What is counted."""

    metre = 1
    square_metre = 2


class Measure:
    """A number of units."""

    def checked(self, unit: Unit) -> "Measure":
        return Measure(self.number, unit)

    def product(self, other: "Measure", unit: Unit) -> "Measure":
        return Measure(self.number * other.number, unit)
'''


class Forgetful(FakeEngine):
    """Right where it is shown the signatures; counts how often it was told to forget."""

    def __init__(self) -> None:
        super().__init__(self._right)
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def _right(self, request: InfillRequest) -> str:
        whole = next(
            text for text in (SHAPES, MEASURES)
            if text.startswith(request.prefix) and text.endswith(request.suffix)
        )  # fmt: skip
        original = whole[len(request.prefix) : len(whole) - len(request.suffix)]
        return original if request.snippets else "?"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """One held-out project of two files, and no installed packages."""
    name = next(f"project{n}" for n in range(99) if is_held_out(f"project{n}"))
    project, site = tmp_path / name, tmp_path / "site"
    site.mkdir()
    project.mkdir()
    (project / "shapes.py").write_text(SHAPES)
    (project / "measures.py").write_text(MEASURES)
    return ["--data", str(project), "--site", str(site), "--holes", "6", "--json"]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Forgetful:
    loaded = Forgetful()
    monkeypatch.setattr(context, "load_engine", lambda *_: loaded)
    return loaded


def test_every_choice_of_sources_fills_every_hole(
    command: list[str], engine: Forgetful, capsys: pytest.CaptureFixture[str]
) -> None:
    assert context.main(command) == 0
    figures = json_line(capsys)
    count = figures["n"]
    assert isinstance(count, int) and count > 4
    assert len(engine.asked) == engine.resets == 4 * count
    arms, differences = figures["arms"], figures["differences"]
    assert isinstance(arms, dict) and isinstance(differences, dict)
    assert list(arms) == ["none", "open", "imports", "both"]
    assert (arms["none"]["em"], arms["none"]["shown_at"]) == (0.0, 0.0)
    assert arms["both"]["em"] == arms["both"]["shown_at"] > 0
    assert arms["both"]["snippet_characters_p50"] > 0
    assert list(differences) == ["open", "imports", "both"]
    assert differences["both"]["em"]["b-a"] == arms["both"]["em"]


def test_a_stopped_run_goes_on_and_arms_can_be_chosen(
    command: list[str], engine: Forgetful, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chosen = [*command, "--arms", "none", "both", "--out", str(tmp_path / "out")]
    assert context.main(chosen) == 0
    first, asked = json_line(capsys), len(engine.asked)
    assert context.main(chosen) == 0
    assert json_line(capsys) == first | {"model": "qwen2.5-coder-0.5b"}
    assert len(engine.asked) == asked
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"none.jsonl", "both.jsonl"}
    assert context.main([*command, "--arms", "none"]) == 2


def test_what_the_user_has_not_written_yet_is_not_shown(tmp_path: Path) -> None:
    files = [
        SourceFile(project="p", name=name, language="python", text=text)
        for name, text in (("p/shapes.py", SHAPES), ("p/measures.py", MEASURES))
    ]
    start = MEASURES.index("    def product")
    hole = Hole(
        hole_id="h", kind="block", language="python", project="p", file="p/measures.py",
        prefix=MEASURES[:start], canonical=MEASURES[start:], suffix="",
    )  # fmt: skip
    with context.on_disk(files) as root:
        opened = context.opened_with(hole, files, root)
        assert [file.name for file in opened] == ["p/shapes.py"]
        assert (root / "p/shapes.py").read_text() == SHAPES


def test_a_file_that_would_lie_outside_is_not_written(tmp_path: Path) -> None:
    bad = SourceFile(project="p", name="../evil.py", language="python", text="x = 1\n")
    with context.on_disk([bad]) as root:
        assert not (root.parent / "evil.py").exists()

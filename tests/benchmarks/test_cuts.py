"""Cursors among tokens: their kinds, the classes of hole lengths, and cuts inside tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cuts import cursor_kind, cuts_inside, describe, length_class, length_classes, recut
from benchmarks.report import BenchmarkError
from benchmarks.tasks import load_tasks
from tests.benchmarks.fake_engine import FakeTokens


@pytest.mark.parametrize(
    ("prefix", "rest", "kind"),
    [
        ("x = 1\n", "y = 2\n", "line_start"),
        ("x = 1\n    ", "y = 2\n", "line_start"),
        ("", "y = 2\n", "line_start"),
        ("x = 1\ny", " = 2\n", "mid_line"),
        ("x = 1\nva", "lue = 2\n", "mid_token"),
        ("x = 1\nx ", "in values\n", "mid_token"),
        ("été(", "x)\n", "mid_line"),
    ],
)
def test_the_kind_of_a_cursor(prefix: str, rest: str, kind: str) -> None:
    assert cursor_kind(FakeTokens(), prefix, rest) == kind


def test_a_hole_is_as_long_as_its_tokens() -> None:
    assert describe(FakeTokens(), "f(", "a, b", ")") == {"hole_tokens": 3, "cursor": "mid_line"}


@pytest.mark.parametrize(
    ("count", "name"),
    [(1, "1-4"), (4, "1-4"), (5, "5-8"), (16, "9-16"), (17, "17-32"), (64, "33-64"), (65, "65+")],
)
def test_classes_of_length(count: int, name: str) -> None:
    assert length_class(count) == name


def test_the_classes_come_in_order() -> None:
    assert length_classes() == ["1-4", "5-8", "9-16", "17-32", "33-64", "65+"]


def test_a_cut_is_inside_a_token_and_the_program_stays(data: Path) -> None:
    tasks, tokens = load_tasks(data), FakeTokens()
    for whole, cut in recut(tokens, tasks, 3, seed=0):
        assert cut.program(cut.canonical) == whole.program(whole.canonical)
        assert (cut.origin, cut.group) == (whole.task_id, whole.group)
        assert cut.prefix[-1].isalpha() and cut.canonical[0].isalpha()
        assert cursor_kind(tokens, cut.prefix, cut.canonical + cut.suffix) == "mid_token"


def test_one_letter_names_and_blanks_are_no_place_to_cut(data: Path) -> None:
    last = load_tasks(data)[3]
    assert last.canonical == "    y = y + y"
    assert cuts_inside(FakeTokens(), last) == []


def test_the_seed_decides_the_cuts_and_the_count_spreads_them(data: Path) -> None:
    tasks = load_tasks(data)

    def names(count: int, seed: int) -> list[str]:
        return [cut.task_id for _, cut in recut(FakeTokens(), tasks, count, seed)]

    assert names(3, 1) == names(3, 1)
    assert len({tuple(names(3, seed)) for seed in range(9)}) > 1
    assert [name.partition("@")[0][-4] for name in names(2, 0)] == ["0", "1"]


@pytest.mark.parametrize("count", [0, 4])
def test_more_cuts_than_places_is_an_error(data: Path, count: int) -> None:
    with pytest.raises(BenchmarkError, match="1 to 3"):
        recut(FakeTokens(), load_tasks(data), count, seed=0)

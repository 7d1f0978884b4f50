"""Holes by line, by syntax node and by span, in several languages."""

from __future__ import annotations

import random

import pytest

from benchmarks.holes import KINDS, MOST_CHARACTERS, Hole, Kind, Nodes, choose_holes
from benchmarks.projects import SourceFile

PYTHON = '''"""A module."""

import os


def area(width, height):
    """The area."""
    total = width * height
    if total > 100:
        total = min(total, 100)
    return max(total, os.cpu_count())
'''
GO = """package a

func area(width int, height int) int {
	total := width * height
	if total > 100 {
		total = smaller(total, 100)
	}
	return total
}
"""
JAVASCRIPT = """const area = (width, height) => {
  const total = width * height;
  if (total > 100) {
    return Math.min(total, 100);
  }
  return total;
};
"""


def file(text: str, language: str = "python", name: str = "a.py") -> SourceFile:
    return SourceFile(project="p", name=name, language=language, text=text)


def chosen(files: list[SourceFile], kind: Kind, count: int, seed: int = 0) -> list[Hole]:
    return choose_holes(files, kind, count, random.Random(seed), Nodes())


def texts(source: SourceFile, kind: Kind) -> set[str]:
    return {hole.canonical for hole in chosen([source], kind, 60)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hole_and_its_sides_are_the_file(kind: Kind) -> None:
    found = chosen([file(PYTHON)], kind, 5)
    assert found
    for hole in found:
        assert hole.prefix + hole.canonical + hole.suffix == PYTHON
        assert hole.canonical.strip()
        assert hole.hole_id.startswith(f"{kind}/p/a.py:")
    assert len({hole.hole_id for hole in found}) == len(found)


NODES: list[tuple[str, str, Kind, set[str]]] = [
    (
        PYTHON,
        "python",
        "statement",
        {
            "import os",
            "total = width * height",
            "total = min(total, 100)",
            "return max(total, os.cpu_count())",
        },
    ),
    (PYTHON, "python", "arguments", {"total, 100", "total, os.cpu_count()"}),
    (PYTHON, "python", "block", {"total = min(total, 100)"}),
    (PYTHON, "python", "body", {PYTHON[PYTHON.index('"""The') : -1]}),
    (
        PYTHON,
        "python",
        "expression",
        {
            "width * height",
            "total > 100",
            "min(total, 100)",
            "max(total, os.cpu_count())",
            "os.cpu_count()",
        },
    ),
    (GO, "go", "arguments", {"total, 100"}),
    (GO, "go", "block", {"total = smaller(total, 100)"}),
    (GO, "go", "body", {GO[GO.index("total :=") : GO.rindex("\n}")]}),
    (JAVASCRIPT, "javascript", "arguments", {"total, 100"}),
    (JAVASCRIPT, "javascript", "block", {"return Math.min(total, 100);"}),
    (
        JAVASCRIPT,
        "javascript",
        "body",
        {JAVASCRIPT[JAVASCRIPT.index("const total") : JAVASCRIPT.rindex("\n};")]},
    ),
]


@pytest.mark.parametrize(("text", "language", "kind", "expected"), NODES)
def test_syntax_nodes(text: str, language: str, kind: Kind, expected: set[str]) -> None:
    found = texts(file(text, language, f"a.{language}"), kind)
    assert {one.strip() for one in found} == expected


def test_a_line_begins_after_its_indentation_and_a_rest_anywhere_in_it() -> None:
    lines = {line.strip() for line in PYTHON.splitlines() if line.strip()}
    assert texts(file(PYTHON), "line") == lines
    for rest in texts(file(PYTHON), "rest"):
        assert any(line.endswith(rest) for line in lines)
    assert len(texts(file(PYTHON), "rest") - lines) > 10


def test_what_is_wanted_is_a_block_only_where_the_hole_is_one() -> None:
    def wants(kind: Kind) -> set[str]:
        return {h.want for h in chosen([file(PYTHON)], kind, 9)}

    assert wants("line") == wants("rest") == wants("arguments") == {"line"}
    assert wants("block") == wants("body") == {"block"}


def test_holes_are_small_and_a_file_with_errors_has_none() -> None:
    long = "def f():\n" + "".join(f"    value_{n} = {n} * {n}\n" for n in range(60))
    assert len(long) > MOST_CHARACTERS
    assert chosen([file(long)], "body", 1) == []
    assert chosen([file("def f(:\n    pass\n" * 9)], "line", 1) == []
    assert chosen([], "line", 1) == []


def test_the_generator_decides_and_a_large_project_does_not_crowd_out_a_small_one() -> None:
    large = [
        SourceFile(project="large", name=f"{n}.py", language="python", text=PYTHON)
        for n in range(100)
    ]
    files = [*large, file(PYTHON)]

    def ids(seed: int) -> list[str]:
        return [hole.hole_id for hole in chosen(files, "rest", 60, seed)]

    assert ids(1) == ids(1) != ids(2)
    assert [hole.hole_id for hole in chosen(files, "rest", 7, 1)] == ids(1)[:7]
    assert 1 <= sum(hole_id.startswith("rest/p/") for hole_id in ids(1)) <= 20

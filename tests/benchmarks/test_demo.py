"""The shipped examples and how a suggestion is shown in them."""

from __future__ import annotations

import ast
import importlib

import pytest
import tree_sitter

from benchmarks.demo import EXAMPLES, Cursor, Shown, load_cursors, marked, table
from benchmarks.lsp_session import Suggestion

GRAMMARS = {
    ".py": ("tree_sitter_python", "language"),
    ".ts": ("tree_sitter_typescript", "language_typescript"),
    ".go": ("tree_sitter_go", "language"),
}


def test_three_files_with_one_cursor_of_each_kind() -> None:
    cursors = load_cursors()
    assert len(cursors) == 9
    for name in ("inventory.py", "router.ts", "cache.go"):
        kinds = [cursor.kind for cursor in cursors if cursor.file == name]
        assert kinds == ["mid-line", "line", "block"]


@pytest.mark.parametrize("cursor", load_cursors(), ids=lambda one: f"{one.file}:{one.kind}")
def test_a_cursor_stands_in_its_hole(cursor: Cursor) -> None:
    lines = (EXAMPLES / cursor.file).read_text(encoding="utf-8").split("\n")
    line = lines[cursor.line - 1]
    if cursor.kind == "mid-line":
        assert line[: cursor.col - 1].endswith("(")
        assert line[cursor.col - 1 :].startswith(")")
    else:
        assert (line, cursor.col) == ("", 1)


@pytest.mark.parametrize("name", sorted({cursor.file for cursor in load_cursors()}))
def test_an_example_is_valid_with_its_holes(name: str) -> None:
    path = EXAMPLES / name
    text = path.read_text(encoding="utf-8")
    module, function = GRAMMARS[path.suffix]
    grammar = getattr(importlib.import_module(module), function)()
    tree = tree_sitter.Parser(tree_sitter.Language(grammar)).parse(text.encode())
    assert not tree.root_node.has_error
    assert 40 <= text.count("\n") <= 80
    if path.suffix == ".py":
        ast.parse(text)


TEXT = "a\nb\nfoo()\nc\nd\n"
CURSOR = Cursor(file="x.py", line=3, col=5, kind="mid-line")


def shown_as(suggestion: str) -> list[Shown]:
    return [Shown(cursor=CURSOR, suggestion=Suggestion(text=suggestion, wall_ms=1.0, detail={}))]


def test_the_suggestion_is_marked_in_its_file() -> None:
    shown = marked(TEXT, shown_as("1, 2"), colour=False)
    assert shown == "   1 | a\n   2 | b\n   3 | foo(⟦1, 2⟧)\n   4 | c\n   5 | d"


def test_every_line_of_a_block_is_marked() -> None:
    shown = marked("a\nb\nfoo()", shown_as("\n  1,\n"), colour=False)
    assert shown == "   1 | a\n   2 | b\n   3 | foo(⟦⟧\n     | ⟦  1,⟧\n     | ⟦⟧)"


def test_a_terminal_gets_dim_italics() -> None:
    assert "foo(\x1b[2;3m1\x1b[0m)" in marked(TEXT, shown_as("1"), colour=True)


def test_the_table_lists_counts_and_stages() -> None:
    detail = {"tokens": 7, "steps": 3, "forwards": 4, "ms": {"encode": 12.34, "total": 99.0}}
    shown = Shown(cursor=CURSOR, suggestion=Suggestion(text="x", wall_ms=1.0, detail=detail))
    head, row = table([shown]).splitlines()
    assert head.split()[:5] == ["hole", "kind", "tokens", "steps", "forwards"]
    assert row.split()[:5] == ["x.py:3:5", "mid-line", "7", "3", "4"]
    assert "12.3" in row
    assert row.endswith("99.0")

"""What the last change was."""

from __future__ import annotations

import pytest

from dlsp.text.edits import Edit, EditKind, Edits


def edit(removed: str, inserted: str, column: int = 4, line: int = 0) -> Edit:
    return Edit(line=line, column=column, removed=removed, inserted=inserted)


@pytest.mark.parametrize(
    ("edits", "kind"),
    [
        ([], "other"),
        ([edit("", "x")], "typed"),
        ([edit("", "\n")], "typed"),
        ([edit("x", "")], "deleted"),
        ([edit("", "foo(bar)")], "other"),  # a paste, or an accepted suggestion
        ([edit("", "foo"), edit("foo", "")], "undone"),
        ([edit("", "x"), edit("x", "")], "deleted"),  # taken back, for all one can see
        ([edit("foo", ""), edit("", "foo")], "undone"),
        ([edit("foo", ""), edit("", "x", 9), edit("", "foo")], "undone"),
        ([edit("ab", "cde"), edit("cde", "ab")], "undone"),
        ([edit("x", ""), edit("", "x")], "typed"),  # typed again, for all one can see
        ([edit("", "k"), edit("k", "か")], "composed"),
        ([edit("", "k"), edit("k", "か"), edit("か", "かn")], "composed"),
        ([edit("", "n"), edit("n", "ni")], "composed"),
        ([edit("", "ㄱ"), edit("ㄱ", "가")], "composed"),
        ([edit("", "k"), edit("k", "か"), edit("", "x", 5)], "typed"),
        ([edit("", "p"), edit("p", "print")], "other"),  # taken from a list
        ([edit("", "p"), edit("p", "か", 7)], "other"),  # elsewhere
    ],
)
def test_kinds(edits: list[Edit], kind: EditKind) -> None:
    seen = Edits()
    for each in edits:
        seen.add(each)
    assert seen.kind == kind


def test_a_text_set_anew_is_nothing_to_undo() -> None:
    seen = Edits()
    seen.add(edit("foo", ""))
    seen.replaced()
    assert seen.kind == "other"
    seen.add(edit("", "foo"))
    assert seen.kind == "other"


def test_what_is_kept_is_bounded() -> None:
    seen = Edits()
    for _ in range(1000):
        seen.add(edit("", "x" * 100))
    seen.add(edit("", "x" * 100_000))
    assert len(seen._recent) <= 50

"""What is left of a suggestion that is typed, accepted in parts, taken back or departed from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsp.suggestion.memory import NEAR, Memory, Suggestion

URI = "file:///a.py"
ABOVE = "import os\n\n\ndef f(items):\n"
BELOW = "\n\n\nprint(f([1]))\n"


def kept(text: str, head: str = "    x = ", tail: str = "", covers: int = 0) -> Memory:
    memory = Memory()
    suggestion = Suggestion(before=ABOVE + head, text=text, after=tail + BELOW, covers=covers)
    memory.keep(URI, suggestion)
    return memory


def recalled(memory: Memory, head: str, tail: str = "", below: str = BELOW) -> tuple[str, int]:
    found = memory.recall(URI, ABOVE + head, tail + below)
    return (found.text, found.covers) if found else ("", -1)


@pytest.mark.parametrize(
    ("head", "tail", "left"),
    [
        ("    x = ", "", ("foo(items, 1)", 0)),  # asked again
        ("    x = f", "", ("oo(items, 1)", 0)),  # a letter typed
        ("    x = foo(", ")", ("items, 1)", 1)),  # its closer set by the editor
        ("    x = foo(items", ")", (", 1)", 1)),  # a word accepted
        ("    x = foo(items, 1", ")", (")", 1)),
        ("    x = foo(items, 1)", "", ("", -1)),  # all of it: what is behind is another matter
        ("    x = fo", "", ("o(items, 1)", 0)),  # a letter taken back again
        ("    x = g", "", ("", -1)),  # departed
        ("    x =", "", ("", -1)),  # before its place
        ("    y = f", "", ("", -1)),  # another place
        ("    x = foo(", "]", ("", -1)),  # a closer that it does not spell
        ("    x = foo(", ", y)", ("", -1)),  # not closers only
        ("    x = ", "]", ("", -1)),  # what the user put to the right must not give way
    ],
)
def test_typing_what_it_says(head: str, tail: str, left: tuple[str, int]) -> None:
    assert recalled(kept("foo(items, 1)"), head, tail) == left


@pytest.mark.parametrize(
    ("head", "tail", "left"),
    [
        ("    f(", ")", ("a, b)", 1)),
        ("    f(a", ")", (", b)", 1)),
        ("    f(a, b)", "", ("", -1)),  # the user typed over the closer
        ("    f(", "", ("a, b)", 0)),  # it is gone: nothing gives way
    ],
)
def test_a_closer_that_stood_there_gives_way(head: str, tail: str, left: tuple[str, int]) -> None:
    memory = kept("a, b)", head="    f(", tail=")", covers=1)
    assert recalled(memory, head, tail) == left


def test_quotes_set_by_the_editor() -> None:
    memory = kept('"a b"')
    assert recalled(memory, '    x = "', '"') == ('a b"', 1)
    assert recalled(memory, '    x = "a', '"') == (' b"', 1)


def test_a_block_line_by_line() -> None:
    memory = kept("for i in x:\n        g(i)\n    return 1", head="    ")
    assert recalled(memory, "    for i in x:\n        ") == ("g(i)\n    return 1", 0)
    assert recalled(memory, "    for i in x:\n") == ("        g(i)\n    return 1", 0)


def test_a_closing_line_that_the_editor_set_is_not_suggested_again() -> None:
    memory = kept("if x {\n\t\ty()\n\t}", head="\t")
    assert recalled(memory, "\tif x {\n\t\t", "\n\t}") == ("y()", 0)
    assert recalled(memory, "\tif x {\n\t\ty()", "\n\t}") == ("", -1)


@pytest.mark.parametrize(
    ("above", "below"),
    [(ABOVE.replace("os", "re"), BELOW), (ABOVE, BELOW.replace("1", "2")), (ABOVE, "")],
)
def test_it_expires_when_the_text_around_changes(above: str, below: str) -> None:
    memory = kept("foo()")
    assert memory.recall(URI, above + "    x = f", below) is None
    assert memory.recall("file:///b.py", ABOVE + "    x = f", BELOW) is None


def test_far_away_the_text_may_change() -> None:
    memory, far = Memory(), "x = 1\n" * NEAR
    memory.keep(URI, Suggestion(before="a\n" + far, text="foo", after=far + "b\n"))
    found = memory.recall(URI, ("c\n" + far + "f")[-2 * NEAR :], (far + "d\n")[: 2 * NEAR])
    assert found is not None
    assert (found.text, found.typed) == ("oo", 1)


def test_at_the_start_of_a_document_a_place_is_not_taken_for_another() -> None:
    memory = Memory()
    memory.keep(URI, Suggestion(before="", text="import os", after=""))
    assert memory.recall(URI, "imp", "") is not None
    assert memory.recall(URI, "x = 1\nimp", "") is None


def test_the_newest_counts() -> None:
    memory = kept("foo")
    memory.keep(URI, Suggestion(before=ABOVE + "    x = ", text="far", after=BELOW))
    assert recalled(memory, "    x = f") == ("ar", 0)
    assert recalled(memory, "    x = fo") == ("o", 0)


def test_that_there_is_nothing_is_known_at_that_place_only() -> None:
    memory = kept("")
    found = memory.recall(URI, ABOVE + "    x = ", BELOW)
    assert found is not None
    assert found.text == ""
    assert memory.recall(URI, ABOVE + "    x = f", BELOW) is None
    assert memory.recall(URI, ABOVE + "    x = ", ")" + BELOW) is None


def test_what_follows_an_accepted_suggestion_is_found_there() -> None:
    memory = kept("foo()")
    memory.keep(URI, Suggestion(before=ABOVE + "    x = foo()", text="\n    y = 1", after=BELOW))
    assert recalled(memory, "    x = foo()") == ("\n    y = 1", 0)
    assert recalled(memory, "    x = foo(") == (")", 0)


def test_its_size_is_bounded() -> None:
    memory = Memory()
    for number in range(300):
        for place in range(30):
            suggestion = Suggestion(before="x" * 9000 + f"{place}", text="y", after="z" * 9000)
            memory.keep(f"file:///{number}", suggestion)
    assert memory.recall("file:///0", "x" * 4000 + "29", "z" * 4000) is None
    found = memory.recall("file:///299", ("x" * 9000 + "29")[-4000:], "z" * 4000)
    assert found is not None
    assert len(found.suggestion.before) == len(found.suggestion.after) == NEAR
    assert sum(map(len, memory._documents.values())) <= 64 * 16


def test_a_closed_document_is_forgotten() -> None:
    memory = kept("foo")
    memory.forget(URI)
    assert recalled(memory, "    x = ") == ("", -1)


@pytest.mark.parametrize(
    ("head", "guess"),
    [
        ("    x = foo(q", "items, 1)"),  # the rest as it was
        ("    x = foo(qux, ", "1)"),  # behind the comma it goes on
        ("    x = bar", "foo(items, 1)"),
        ("    x = self.foo(", "items, 1)"),
        ("    x = foo(items, 1)", ""),
        ("    y = 1", ""),
    ],
)
def test_what_is_left_where_the_user_departed(head: str, guess: str) -> None:
    assert kept("foo(items, 1)").guess(URI, ABOVE + head, BELOW) == guess


@given(st.text("ab()\n ", min_size=1, max_size=12), st.integers(0, 12), st.text("ab\n", max_size=9))
def test_typed_and_left_always_make_the_suggestion(text: str, count: int, around: str) -> None:
    count = min(count, len(text))
    memory = Memory()
    memory.keep(URI, Suggestion(before=around, text=text, after=around))
    found = memory.recall(URI, around + text[:count], around)
    if found is None:
        assert count == len(text)
    else:
        assert around + text[:count] + found.text == around + text

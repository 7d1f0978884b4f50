"""What becomes of a suggestion, told from a document's changes alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lsprotocol import types as lsp

from dlsp.scores.feedback import Facts, Feedback
from dlsp.scores.scorecard import Row
from dlsp.text.document import Document, Documents

URI = "file:///folder/a%20file.py"
FACTS = Facts(at=1000.0, language="python", model="m", latency_ms=12.34, confidence=0.5)


class Desk:
    """One document in an editor with ghost text, and the rows that come of it."""

    def __init__(self, text: str) -> None:
        self.rows: dict[str, Row] = {}
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.documents = Documents(root_uri=None, folders=(), encoding="utf-16")
        item = lsp.TextDocumentItem(uri=URI, language_id="python", version=1, text=text)
        self.documents.put_text_document(item)
        self.feedback = Feedback(self._put, lambda s, call: self.timers.append((s, call)))

    def _put(self, row: Row) -> None:
        self.rows[row.id] = row

    @property
    def document(self) -> Document:
        found = self.documents.find(URI)
        assert found is not None
        return found

    def cursor(self, offset: int) -> lsp.Position:
        return self.document.position_at(offset)

    def show(self, text: str, at: int, *, covering: int = 0) -> str:
        where = self.document.range_from(self.cursor(at), covering=covering)
        return self.feedback.show(self.document, text, where, FACTS)

    def replace(self, start: int, end: int, text: str) -> None:
        change = lsp.TextDocumentContentChangePartial(
            range=lsp.Range(start=self.cursor(start), end=self.cursor(end)), text=text
        )
        self.document.apply(change)
        self.feedback.changed(URI, [change])

    def type(self, text: str, at: int) -> None:
        for number, character in enumerate(text):
            self.replace(at + number, at + number, character)

    def pass_time(self) -> None:
        timers, self.timers = sorted(self.timers, key=lambda timer: timer[0]), []
        for _, call in timers:
            call()


def test_a_whole_acceptance() -> None:
    desk = Desk("x = \ny\n")
    id = desk.show("compute(1)", 4)
    desk.replace(4, 4, "compute(1)")
    desk.feedback.accepted(id)
    row = desk.rows[id]
    assert (row.accepted, row.accepted_characters, row.acceptances) == (True, 10, 1)
    assert (row.characters, row.lines, row.typed_characters, row.keystrokes_saved) == (10, 1, 0, 9)
    assert (row.kept_30, row.kept_300) == (None, None)
    desk.pass_time()
    assert (desk.rows[id].kept_30, desk.rows[id].kept_300) == (1.0, 1.0)


def test_typing_the_suggestion_and_its_end_by_a_key() -> None:
    desk = Desk("x = \n")
    id = desk.show("compute", 4)
    desk.type("comp", 4)
    assert desk.show("ute", 8) == id, "the rest of the same suggestion is no new one"
    assert desk.show("compute", 4) == id, "and neither is the whole, offered from its start"
    desk.replace(8, 8, "ute")
    row = desk.rows[id]
    assert (row.accepted, row.typed_characters, row.accepted_characters) == (True, 4, 3)
    assert len(desk.rows) == 1


def test_typing_it_all_is_no_acceptance_unless_the_client_says_so() -> None:
    desk = Desk("x = \n")
    id = desk.show("abc", 4)
    desk.type("abc", 4)
    assert (desk.rows[id].accepted, desk.rows[id].typed_characters) == (False, 3)
    desk.feedback.accepted(id)
    row = desk.rows[id]
    assert (row.accepted, row.typed_characters, row.accepted_characters) == (True, 2, 1)


def test_a_word_at_a_time_then_something_else() -> None:
    desk = Desk("x = \n")
    id = desk.show("first second third", 4)
    desk.replace(4, 4, "first")
    desk.replace(9, 9, " second")
    desk.type("!", 16)
    row = desk.rows[id]
    assert (row.accepted, row.accepted_characters, row.acceptances) == (False, 12, 2)
    desk.pass_time()
    assert desk.rows[id].kept_30 == 1.0


def test_another_way_than_suggested() -> None:
    desk = Desk("x = \n")
    id = desk.show("compute", 4)
    desk.type("cat", 4)
    row = desk.rows[id]
    assert (row.accepted, row.accepted_characters, row.typed_characters) == (False, 0, 1)
    assert desk.timers == []
    assert desk.show("egory", 7) != id


def test_a_backspace_takes_back_what_was_typed() -> None:
    desk = Desk("x = \n")
    id = desk.show("compute", 4)
    desk.type("com", 4)
    desk.replace(5, 7, "")
    assert desk.show("ompute", 5) == id
    desk.replace(5, 5, "ompute")
    assert (desk.rows[id].typed_characters, desk.rows[id].accepted_characters) == (1, 6)


@pytest.mark.parametrize(
    ("before", "text", "after", "covering", "accepted"),
    [
        ("f(", "one)", ")\nnext\n", 1, "f(one)\nnext\n"),
        ("f", "(one)", "\n", 0, "f(one)\n"),
        ("é😀 = ", "日本()", "\r\nrest\r\n", 0, "é😀 = 日本()\r\nrest\r\n"),
        ("if x:\n", "    a()\n    b()", "\n\nnext", 0, "if x:\n    a()\n    b()\n\nnext"),
        ("", "import os", "", 0, "import os"),
    ],
)
def test_places(before: str, text: str, after: str, covering: int, accepted: str) -> None:
    desk = Desk(before + after)
    start = len(before)
    id = desk.show(text, start, covering=covering)
    desk.replace(start, start + covering, text)
    assert desk.document.text == accepted
    assert desk.rows[id].accepted
    assert desk.rows[id].accepted_characters == len(text)


def test_the_editors_own_closers_stay_apart() -> None:
    desk = Desk("f\n")
    id = desk.show("(one, two)", 1)
    desk.replace(1, 1, "()")  # one key, and the editor's own closer
    desk.type("one", 2)
    row = desk.rows[id]
    assert (row.accepted_characters, row.typed_characters) == (0, 0), "not written yet"
    desk.replace(5, 6, ", two)")
    assert (desk.rows[id].accepted, desk.rows[id].typed_characters) == (True, 4)


def test_edits_above_and_around_do_not_hide_what_was_kept() -> None:
    desk = Desk("one\nx = \nlast\n")
    id = desk.show("compute(alpha, beta)", 8)
    desk.replace(0, 0, "import a\nimport b\n")
    assert desk.show("compute(alpha, beta)", 26) == id
    desk.replace(26, 26, "compute(alpha, beta)")
    desk.replace(0, 9, "")
    end = desk.document.text.index("beta)") + 4
    desk.replace(end, end, ",\n    gamma")
    desk.pass_time()
    assert desk.rows[id].kept_300 == 1.0


def test_what_was_undone_or_rewritten_is_not_kept() -> None:
    desk = Desk("x = \n")
    id = desk.show("compute(alpha)", 4)
    desk.replace(4, 4, "compute(alpha)")
    first, last = desk.timers
    desk.replace(12, 17, "entirely.other")
    first[1]()
    assert 0.4 < (desk.rows[id].kept_30 or 0) < 0.8
    desk.replace(4, len(desk.document.text) - 1, "")
    last[1]()
    assert desk.rows[id].kept_300 == 0.0


def test_a_closed_document_is_not_looked_at_again() -> None:
    desk = Desk("x = \n")
    id = desk.show("compute", 4)
    desk.replace(4, 4, "compute")
    desk.feedback.closed(URI.replace("%20", " "))
    desk.pass_time()
    assert desk.rows[id].kept_30 is None
    desk.feedback.accepted(id)
    assert desk.rows[id].acceptances == 1


def test_a_withheld_suggestion_is_a_row_of_its_own() -> None:
    desk = Desk("")
    desk.feedback.withhold("a\nb", FACTS)
    [row] = desk.rows.values()
    assert (row.shown, row.lines, row.latency_ms) == (False, 2, 12.3)


def test_nothing_piles_up() -> None:
    desk = Desk("x = \n")
    for number in range(500):
        desk.show(f"text{number}", 4)
        desk.replace(4, 4, f"text{number}")
        desk.pass_time()
        desk.replace(4, len(desk.document.text) - 1, "")
    assert len(desk.rows) == 500
    feedback = desk.feedback
    assert len(feedback._recent) <= 64
    assert (feedback._live, feedback._watched) == ({}, [])

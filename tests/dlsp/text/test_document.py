"""The mirror against an independent, naive implementation, over random edits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types as lsp

from dlsp.text.document import Document, Documents, Encoding
from dlsp.text.lines import split_lines

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
PIECES = [
    "a", "xyz", " ", "\t", "\n", "\r\n", "\r", "\n\n", "\f", "\x0b", "\x1c", "\x85", "\u2028",
    "\u2029", "é", "日本", "😀", "👩\u200d💻", "e\u0301", "def f():\r\n\treturn 1\n", "\ufeff", "",
]  # fmt: skip


class NaiveText:
    """A string edited by walking it character by character; shares nothing with the mirror."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.text = text
        self.encoding = encoding

    def units(self, character: str) -> int:
        if self.encoding == "utf-8":
            return len(character.encode())
        if self.encoding == "utf-16":
            return 2 if ord(character) > 0xFFFF else 1
        return 1

    def offset(self, line: int, character: int) -> int:
        index, row = 0, 0
        while row < line:
            if index >= len(self.text):
                return len(self.text)
            if self.text[index] == "\r" and self.text[index + 1 : index + 2] == "\n":
                index, row = index + 2, row + 1
            elif self.text[index] in "\r\n":
                index, row = index + 1, row + 1
            else:
                index += 1
        used = 0
        while index < len(self.text) and self.text[index] not in "\r\n":
            used += self.units(self.text[index])
            if used > character:
                break
            index += 1
        return index

    def replace(self, where: lsp.Range, new: str) -> None:
        start = self.offset(where.start.line, where.start.character)
        end = self.offset(where.end.line, where.end.character)
        start, end = min(start, end), max(start, end)
        self.text = self.text[:start] + new + self.text[end:]


def document(text: str, encoding: Encoding = "utf-16") -> Document:
    return Document(
        uri="file:///a.py", text=text, encoding=encoding, version=1, language_id="python"
    )


def at(line: int, character: int) -> lsp.Position:
    return lsp.Position(line=line, character=character)


def edit(start: lsp.Position, end: lsp.Position, text: str) -> lsp.TextDocumentContentChangeEvent:
    return lsp.TextDocumentContentChangePartial(range=lsp.Range(start=start, end=end), text=text)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_thousand_random_edits_leave_mirror_and_editor_equal(
    encoding: Encoding, seed: int
) -> None:
    rng = random.Random(seed)
    start = "".join(rng.choices(PIECES, k=30))
    mirror, naive = document(start, encoding), NaiveText(start, encoding)
    for _ in range(1000):
        lines = naive.text.count("\n") + naive.text.count("\r")
        first = rng.randint(0, lines + 1)
        begin = at(first, rng.randint(0, 12))
        end = at(first + rng.choice([0, 0, 0, 1, 3]), rng.randint(0, 12))
        new = "".join(rng.choices(PIECES, k=rng.randint(0, 3)))
        mirror.apply(edit(begin, end, new))
        naive.replace(lsp.Range(start=begin, end=end), new)
        assert mirror.text == naive.text
        plain = naive.text.replace("\r\n", "\n").replace("\r", "\n")
        assert mirror.line_count == plain.count("\n") + 1
        if len(naive.text) > 600:
            cut = lsp.Range(start=at(0, 0), end=at(lines // 2 + 1, 0))
            mirror.apply(edit(cut.start, cut.end, ""))
            naive.replace(cut, "")


@given(
    text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    line=st.integers(0, 12),
    character=st.integers(0, 40),
    encoding=st.sampled_from(ENCODINGS),
)
@settings(max_examples=300, deadline=None)
def test_positions_and_offsets(text: str, line: int, character: int, encoding: Encoding) -> None:
    mirror = document(text, encoding)
    position = at(line, character)
    offset = mirror.offset_at(position)
    assert offset == NaiveText(text, encoding).offset(line, character)
    assert (position.line, position.character) == (line, character)
    assert mirror.offset_at(mirror.position_at(offset)) == offset
    assert mirror.cut(position, limit=10_000) == (text[:offset], text[offset:])


@given(
    text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    line=st.integers(0, 6),
    character=st.integers(0, 9),
    limit=st.integers(1, 12),
)
@settings(max_examples=200, deadline=None)
def test_cut_takes_the_text_nearest_the_position(
    text: str, line: int, character: int, limit: int
) -> None:
    mirror = document(text)
    offset = mirror.offset_at(at(line, character))
    before, after = mirror.cut(at(line, character), limit=limit)
    assert before == text[:offset][-limit:]
    assert after == text[offset:][:limit]


def test_only_lf_crlf_and_cr_end_a_line() -> None:
    text = "a\fb\x0bc\x1cd\x85e\u2028f\u2029g\nh\r\ni\rj"
    assert [line[0] for line in split_lines(text)] == ["a", "h", "i", "j"]
    assert "".join(split_lines(text)) == text


def test_lone_cr_and_a_following_lf_become_one_line_end() -> None:
    mirror = document("a\rb")
    mirror.apply(edit(at(1, 0), at(1, 0), "\n"))
    assert mirror.text == "a\r\nb"
    assert mirror.line_count == 2
    assert mirror.offset_at(at(1, 0)) == 3


def test_a_position_cannot_stand_between_cr_and_lf() -> None:
    assert document("ab\r\ncd").offset_at(at(0, 99)) == 2
    assert document("ab\r\ncd").position_at(3) == at(0, 2)


def test_halves_of_a_pair_from_two_edits_are_joined() -> None:
    mirror = document("x")
    mirror.apply(edit(at(0, 1), at(0, 1), "\ud83d"))
    mirror.apply(edit(at(0, 2), at(0, 2), "\ude00"))
    assert mirror.text == "x😀"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_lone_half_of_a_pair_harms_nothing(encoding: Encoding) -> None:
    mirror = document("é\ud83dz", encoding)
    end = mirror.position_at(3)
    assert mirror.offset_at(end) == 3
    assert mirror.offset_at(mirror.position_at(2)) == 2


def test_range_covers_code_points_right_of_the_cursor_but_never_the_line_end() -> None:
    mirror = document('f("😀"))\r\n')
    assert mirror.range_from(at(0, 3), covering=2) == lsp.Range(start=at(0, 3), end=at(0, 6))
    assert mirror.range_from(at(0, 6), covering=99) == lsp.Range(start=at(0, 6), end=at(0, 8))
    assert mirror.range_from(at(9, 9), covering=1) == lsp.Range(start=at(1, 0), end=at(1, 0))


def test_empty_document() -> None:
    mirror = document("")
    assert (mirror.line_count, mirror.offset_at(at(3, 7))) == (1, 0)
    assert mirror.position_at(5) == at(0, 0)
    mirror.apply(edit(at(0, 0), at(0, 0), "x\n"))
    assert (mirror.text, mirror.line_count) == ("x\n", 2)


def test_whole_text_change_and_revisions() -> None:
    mirror = document("a")
    mirror.apply(lsp.TextDocumentContentChangeWholeDocument(text="b\r\n"))
    assert (mirror.text, mirror.revision) == ("b\r\n", 1)


def test_an_edit_touches_only_its_own_lines() -> None:
    mirror = document("line\n" * 50_000)
    untouched = mirror._lines[40_000]
    mirror.apply(edit(at(10, 4), at(10, 4), "x"))
    assert mirror._lines[40_000] is untouched
    assert mirror._lines[10] == "linex\n"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a%20b/%5Bx%5D.py", "/a b/[x].py"),
        ("file:///d/%E6%97%A5.py", "/d/日.py"),
        ("untitled:Untitled-1", "Untitled-1"),
        ("untitled:", None),
    ],
)
def test_paths(uri: str, path: str | None) -> None:
    found = Document(uri=uri, text="", encoding="utf-8", version=0, language_id="python")
    assert found.path == path


def test_documents_are_found_however_their_uri_is_quoted_and_ignored_when_closed() -> None:
    documents = Documents(root_uri=None, folders=(), encoding="utf-16")
    documents.put_text_document(
        lsp.TextDocumentItem(uri="file:///a%20b.py", language_id="python", version=1, text="x")
    )
    change = edit(at(0, 1), at(0, 1), "y")
    documents.update_text_document(
        lsp.VersionedTextDocumentIdentifier(uri="file:///a b.py", version=2), change
    )
    found = documents.find("file:///a b.py")
    assert found is not None
    assert (found.text, found.version) == ("xy", 2)
    documents.remove_text_document("file:///a%20b.py")
    documents.update_text_document(
        lsp.VersionedTextDocumentIdentifier(uri="file:///a b.py", version=3), change
    )
    assert documents.find("file:///a b.py") is None

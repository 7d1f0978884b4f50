"""The text mirror: what the editor has open, and the only place that converts positions.

A document is a list of lines that keep their line ends (LF, CRLF or CR, nothing else), so an edit
re-splits only the lines it touches. `position` is the client's (line, column in its own units);
`offset` counts code points from the start. Does not know requests, languages or suggestions.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp
from pygls.uris import to_fs_path
from pygls.workspace import Workspace

from dlsp.text.edits import Edit, Edits
from dlsp.text.lines import split_lines
from engine.syntax import language_for

Encoding = Literal["utf-8", "utf-16", "utf-32"]

logger = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")
_UTF8_CONTINUATION = bytes(range(0x80, 0xC0))


class Document:
    """One open document. Mutable, owned by the event loop; `revision` grows with every change."""

    def __init__(
        self, *, uri: str, text: str, encoding: Encoding, version: int | None, language_id: str
    ) -> None:
        self.uri = uri
        self.version = version
        self.language_id = language_id
        self.revision = 0
        self.changed_at = time.monotonic()
        self.edits = Edits()
        self._encoding: Encoding = encoding
        self._lines = split_lines(_join_surrogates(text))

    @property
    def language(self) -> str | None:
        """Our name of its language; None where there is no grammar for it."""
        return language_for(self.path, self.language_id)

    @property
    def path(self) -> str | None:
        """The file's path, or the name an untitled buffer carries, or None."""
        return to_fs_path(self.uri) or unquote(urlparse(self.uri).path) or None

    @property
    def text(self) -> str:
        return "".join(self._lines)

    @property
    def line_count(self) -> int:
        """Lines as an editor counts them: an empty last line behind the last line end is one."""
        return len(self._lines) + (not self._lines or _content_length(self._lines[-1])[1] > 0)

    def apply(self, change: lsp.TextDocumentContentChangeEvent) -> None:
        """Take over one change of the client: a range, or the whole text."""
        self.revision += 1
        self.changed_at = time.monotonic()
        if isinstance(change, lsp.TextDocumentContentChangePartial):
            self._replace(change.range, change.text)
        else:
            self.edits.replaced()
            self._lines = split_lines(_join_surrogates(change.text))

    def cut(self, position: lsp.Position, *, limit: int) -> tuple[str, str]:
        """The text on both sides of a position, at most `limit` code points on each side."""
        line, column = self._locate(position)
        here = self._line(line)
        before = _gather(map(self._line, range(line - 1, -1, -1)), limit - column)
        below = map(self._line, range(line + 1, len(self._lines)))
        after = _gather(below, limit - len(here) + column)
        prefix = "".join(reversed(before)) + here[:column]
        return prefix[max(len(prefix) - limit, 0) :], (here[column:] + "".join(after))[:limit]

    def offset_at(self, position: lsp.Position) -> int:
        """Code points before a position; positions past an end count as that end."""
        line, column = self._locate(position)
        return sum(map(len, self._lines[:line])) + column

    def position_at(self, offset: int) -> lsp.Position:
        """The position `offset` code points into the text; outside it, the nearest end."""
        remaining = max(offset, 0)
        for number, line in enumerate(self._lines):
            if remaining < len(line):
                content = _content_length(line)[0]
                return self._position(number, min(remaining, content))
            remaining -= len(line)
        last = self.line_count - 1
        return self._position(last, len(self._line(last)))

    def range_from(self, position: lsp.Position, *, covering: int) -> lsp.Range:
        """The range from a position over the next `covering` code points of its line."""
        line, column = self._locate(position)
        end = min(column + max(covering, 0), _content_length(self._line(line))[0])
        return lsp.Range(start=self._position(line, column), end=self._position(line, end))

    def between(self, where: lsp.Range) -> str:
        """The text of a range that stays on one line; of a longer one, what is on its last."""
        line, end = self._locate(where.end)
        first, start = self._locate(where.start)
        return self._line(line)[start if first == line else 0 : end]

    def _line(self, number: int) -> str:
        return self._lines[number] if number < len(self._lines) else ""

    def _locate(self, position: lsp.Position) -> tuple[int, int]:
        """(line, column in code points), clamped; never changes the position it was given."""
        last = self.line_count - 1
        if position.line > last:
            return last, _content_length(self._line(last))[0]
        line = max(position.line, 0)
        content = self._line(line)[: _content_length(self._line(line))[0]]
        return line, _code_points(content, max(position.character, 0), self._encoding)

    def _position(self, line: int, column: int) -> lsp.Position:
        units = _units(self._line(line)[:column], self._encoding)
        return lsp.Position(line=line, character=units)

    def _replace(self, where: lsp.Range, text: str) -> None:
        first, start = self._locate(where.start)
        last, end = self._locate(where.end)
        if (last, end) < (first, start):
            first, start, last, end = last, end, first, start
        removed = self._removed(first, start, last, end)
        self.edits.add(Edit(line=first, column=start, removed=removed, inserted=text))
        piece = self._line(first)[:start] + text + self._line(last)[end:]
        if first > 0 and piece.startswith("\n") and self._lines[first - 1].endswith("\r"):
            # A lone CR and the LF now behind it have become one line end.
            first -= 1
            piece = self._lines[first] + piece
        self._lines[first : last + 1] = split_lines(_join_surrogates(piece))

    def _removed(self, first: int, start: int, last: int, end: int) -> str:
        """The text that a change takes away."""
        if first == last:
            return self._line(first)[start:end]
        middle = self._lines[first + 1 : last]
        return "".join([self._line(first)[start:], *middle, self._line(last)[:end]])


class Documents(Workspace):
    """pygls' workspace with our documents in it: its own ones drift, re-split and mis-clamp."""

    def __init__(
        self, *, root_uri: str | None, folders: Sequence[lsp.WorkspaceFolder], encoding: Encoding
    ) -> None:
        super().__init__(root_uri, lsp.TextDocumentSyncKind.Incremental, folders, encoding)
        self._encoding: Encoding = encoding
        self._open: dict[str, Document] = {}

    def opened(self) -> list[Document]:
        """Every open document, the one changed last first."""
        return sorted(self._open.values(), key=lambda document: -document.changed_at)

    def folder_paths(self) -> tuple[Path, ...]:
        """The open workspace folders."""
        uris = [*self.folders, *([self.root_uri] if self.root_uri else [])]
        paths = [to_fs_path(uri) for uri in uris]
        return tuple(dict.fromkeys(Path(path) for path in paths if path))

    def find(self, uri: str) -> Document | None:
        """The open document of that URI, however it is quoted."""
        return self._open.get(unquote(uri))

    def put_text_document(
        self, text_document: lsp.TextDocumentItem, notebook_uri: str | None = None
    ) -> None:
        self._open[unquote(text_document.uri)] = Document(
            uri=text_document.uri,
            text=text_document.text,
            encoding=self._encoding,
            version=text_document.version,
            language_id=text_document.language_id,
        )

    def update_text_document(
        self,
        text_doc: lsp.VersionedTextDocumentIdentifier,
        change: lsp.TextDocumentContentChangeEvent,
    ) -> None:
        document = self.find(text_doc.uri)
        if document is None:
            logger.warning("change of a document that is not open; ignored")
            return
        document.apply(change)
        document.version = text_doc.version

    def remove_text_document(self, doc_uri: str) -> None:
        self._open.pop(unquote(doc_uri), None)


def _content_length(line: str) -> tuple[int, int]:
    """(code points before the line end, code points of the line end)."""
    end = 2 if line.endswith("\r\n") else int(line.endswith(("\n", "\r")))
    return len(line) - end, end


def _gather(lines: Iterable[str], limit: int) -> list[str]:
    """Whole lines until `limit` code points are reached."""
    found: list[str] = []
    for line in lines:
        if limit <= 0:
            break
        found.append(line)
        limit -= len(line)
    return found


def _join_surrogates(text: str) -> str:
    """Halves of a UTF-16 pair that arrived in two edits become the character they spell."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _units(text: str, encoding: Encoding) -> int:
    """How many of the client's units a text takes."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _code_points(text: str, units: int, encoding: Encoding) -> int:
    """Code points in the first `units` client units; inside a character: its start."""
    if encoding == "utf-32" or text.isascii():
        return min(units, len(text))
    return _from_utf8(text, units) if encoding == "utf-8" else _from_utf16(text, units)


def _from_utf8(text: str, units: int) -> int:
    data = text.encode("utf-8", "surrogatepass")
    started = len(data[:units].translate(None, _UTF8_CONTINUATION))
    inside = units < len(data) and data[units] in _UTF8_CONTINUATION
    return started - inside


def _from_utf16(text: str, units: int) -> int:
    data = text.encode("utf-16-le", "surrogatepass")[: 2 * units]
    found = data.decode("utf-16-le", "surrogatepass")
    split_pair = found != text[: len(found)]
    return len(found) - split_pair

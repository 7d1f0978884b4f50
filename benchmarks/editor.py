"""An editor reduced to its text and cursor, typing into a language server as a person would.

Closers are set when an opener is typed and typed over when they come, Enter keeps the indentation:
what editors do between keys and LSP. Positions are counted here anew, not by the server's code.
Knows LSP's messages as plain JSON; nothing of engines or figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Encoding = Literal["utf-8", "utf-16", "utf-32"]

INVOKED, AUTOMATIC = 1, 2
_PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}


class Server(Protocol):
    """What an editor needs of a server's process."""

    async def request(self, method: str, params: object) -> Any: ...
    def notify(self, method: str, params: object) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ghost:
    """A suggestion as shown: the text, and the offsets of what accepting it replaces."""

    text: str
    start: int
    end: int
    suggestion_id: str | None = None


class Editor:
    """One open document with a cursor; `cursor` counts code points from the start."""

    def __init__(
        self, server: Server, uri: str, text: str, *, encoding: Encoding, language: str = ""
    ) -> None:
        self.uri, self.text, self.cursor = uri, text, len(text)
        self.auto_close = True
        self.late = 0  # suggestions that came for a text that was gone, and were dropped
        self._server, self._encoding = server, encoding
        self._version = 1
        self._set: list[int] = []  # offsets from the end of closers that were set by the editor
        server.notify(
            "textDocument/didOpen",
            {"textDocument": {"uri": uri, "languageId": language, "version": 1, "text": text}},
        )

    @property
    def line_end(self) -> str:
        """The line end of this document."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def go(self, offset: int) -> None:
        """Put the cursor somewhere."""
        self.cursor = offset
        self._set.clear()

    def type(self, keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            self._press(key)

    def _press(self, key: str) -> None:
        behind = self.text[self.cursor : self.cursor + 1]
        if key == behind and len(self.text) - self.cursor in self._set:
            self._set.remove(len(self.text) - self.cursor)
            self.cursor += 1
            return
        if key == "\n":
            self._enter()
        elif self.auto_close and key in _PAIRS and (not behind or behind in ")]} \r\n\t"):
            if key in "'\"" and self.text[: self.cursor][-1:].isalnum():
                self.replace(self.cursor, self.cursor, key)
                return
            self.replace(self.cursor, self.cursor, key + _PAIRS[key])
            self.cursor -= 1
            self._set.append(len(self.text) - self.cursor)
        else:
            self.replace(self.cursor, self.cursor, key)

    def _enter(self) -> None:
        line = self.text[: self.cursor].rpartition("\n")[2]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        self.replace(self.cursor, self.cursor, self.line_end + indent)

    def backspace(self, count: int = 1) -> None:
        """Take back so many characters."""
        for _ in range(count):
            self.replace(self.cursor - 1, self.cursor, "")

    def replace(self, start: int, end: int, text: str) -> None:
        """One edit; the cursor is behind the new text."""
        change = {"range": self.range(start, end), "text": text}
        self.text = self.text[:start] + text + self.text[end:]
        self.cursor = start + len(text)
        self._version += 1
        self._server.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": self.uri, "version": self._version},
                "contentChanges": [change],
            },
        )

    async def ask(
        self,
        *,
        trigger: int = AUTOMATIC,
        selected: tuple[int, int, str] | None = None,
        cursor: int | None = None,
    ) -> Ghost | None:
        """What is suggested at the cursor; `selected`: range and text of an item of a list."""
        context: dict[str, Any] = {"triggerKind": trigger}
        if selected is not None:
            start, end, text = selected
            context["selectedCompletionInfo"] = {"range": self.range(start, end), "text": text}
        params = {
            "textDocument": {"uri": self.uri},
            "position": self.position(self.cursor if cursor is None else cursor),
            "context": context,
        }
        version = self._version
        found = await self._server.request("textDocument/inlineCompletion", params)
        if self._version != version:
            self.late += self._items(found) != []
            return None
        return self.ghost(found)

    async def why(self) -> dict[str, Any]:
        """The server's story of its last answer here."""
        params = {"textDocument": {"uri": self.uri}}
        return await self._server.request("dlsp/why", params) or {}

    async def settle(self, look: Callable[[], bool]) -> None:
        """Wait for something that must happen."""
        async with asyncio.timeout(30):
            while not look():
                await asyncio.sleep(0.01)

    def ghost(self, found: Any) -> Ghost | None:
        """The first item of an answer, its range as offsets."""
        items = self._items(found)
        if not items:
            return None
        item = items[0]
        start, end = (self.offset(item["range"][side]) for side in ("start", "end"))
        arguments = (item.get("command") or {}).get("arguments") or [None]
        return Ghost(text=item["insertText"], start=start, end=end, suggestion_id=arguments[0])

    def _items(self, found: Any) -> list[dict[str, Any]]:
        return list((found["items"] if isinstance(found, dict) else found) or ())

    def with_accepted(self, ghost: Ghost) -> str:
        """The document as it would be."""
        text = ghost.text.replace("\n", self.line_end)
        return self.text[: ghost.start] + text + self.text[ghost.end :]

    def accept(self, ghost: Ghost) -> None:
        """Take a suggestion whole."""
        self.replace(ghost.start, ghost.end, ghost.text.replace("\n", self.line_end))
        self._set.clear()

    def accept_part(self, ghost: Ghost, length: int) -> None:
        """Take its first characters, as accepting a word or a line does."""
        typed = self.cursor - ghost.start
        self.replace(self.cursor, self.cursor, ghost.text[typed : typed + length])

    def range(self, start: int, end: int) -> dict[str, Any]:
        """Offsets as an LSP range."""
        return {"start": self.position(start), "end": self.position(end)}

    def position(self, offset: int) -> dict[str, int]:
        """An offset as an LSP position: a line, and the client's units on it."""
        lines = self._lines(self.text[:offset])
        return {"line": len(lines) - 1, "character": self._units(lines[-1])}

    def offset(self, position: dict[str, int]) -> int:
        """An LSP position as an offset."""
        start, at = 0, 0
        while at < position["line"]:
            found = self.text[start:].find("\n")
            assert found >= 0, "the server answered with a line that is not there"
            start, at = start + found + 1, at + 1
        end = start
        while end < len(self.text) and self.text[end] not in "\r\n":
            if self._units(self.text[start:end]) >= position["character"]:
                break
            end += 1
        inside = self._units(self.text[start:end]) != position["character"]
        assert not inside, "the server answered inside a character, or past the line's end"
        return end

    def _lines(self, text: str) -> list[str]:
        return text.replace("\r\n", "\n").split("\n")

    def _units(self, text: str) -> int:
        if self._encoding == "utf-32":
            return len(text)
        if self._encoding == "utf-16":
            return len(text.encode("utf-16-le")) // 2
        return len(text.encode())


def initialize_params(encoding: Encoding, options: dict[str, Any]) -> dict[str, Any]:
    """What an editor says of itself first."""
    return {
        "processId": None,
        "rootUri": None,
        "capabilities": {
            "general": {"positionEncodings": [encoding]},
            "textDocument": {"inlineCompletion": {}},
        },
        "initializationOptions": options,
    }

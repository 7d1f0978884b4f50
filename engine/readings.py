"""Readings: what a reader would add to a line that is still being typed before judging it.

Knows a hole and, by language, how an open bracket, string or block may be finished. Knows nothing
of verdicts: `engine.syntax` parses each reading and decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from engine.grammars import Bracket, Grammar

_CLOSERS: Final[Mapping[str, str]] = MappingProxyType({"(": ")", "[": "]", "{": "}"})

#: What may have to follow the closing brackets for the statement to be whole.
_AFTER_CLOSERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "python": ("{}", "{}:\n@pass", "\n{}"),
        "bash": ("{}", "\n:\n{}", "{}; then\n:\nfi", "{}; do\n:\ndone"),
        "lua": ("{}", "{} then end", "{} do end", "{} end", "\n{}"),
        "ruby": ("{}", "{}\nend", "\n{}"),
        "json": ("{}", "\n{}"),
        "yaml": ("{}", "\n{}"),
        "toml": ("{}", "\n{}"),
        "css": ("{}", ";{}", "{{}}{}"),
        "go": ("{}", "{} {{}}", ",\n{}", "\n{}"),
    }
)
_C_LIKE: Final = ("{}", "{};", "{} {{}}", "\n{}")

#: A statement which the user began may still lack its end.
_SEMICOLON: Final = frozenset({"c", "cpp", "java", "csharp", "php", "rust", "css"})

_BRACES: Final = _SEMICOLON | {"javascript", "typescript", "tsx", "go"}

#: A line that ends like this has just opened a block.
_BLOCK_OPENED: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "lua": re.compile(r"(\b(then|do|else|repeat)|\bfunction\b[^()]*\([^()]*\))\s*\Z"),
        "ruby": re.compile(
            r"(\b(then|do|else|begin|ensure|rescue)|\bdo\s*\|[^|\n]*\|"
            r"|^\s*(\w+\s*=\s*)?(def|class|module|if|unless|while|until|case|for)\b[^\n]*)\s*\Z",
            re.MULTILINE,
        ),
        "bash": re.compile(r"(\b(then|do|else)|\bcase\b[^\n]*\bin|\{)\s*\Z"),
        "json": re.compile(r"[{\[]\s*\Z"),
        "toml": re.compile(r"(?!)"),
        "yaml": re.compile(r"(?!)"),
        "html": re.compile(r"(?!)"),
        "python": re.compile(r":\s*(#[^\n]*)?\Z"),
    }
)
_BRACE_OPENED: Final = re.compile(r"\{\s*(\|[^|\n]*\|)?\s*\Z")

#: What ends such a block, where no bracket does.
_BLOCK_ENDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "lua": ("\nend", "\nuntil true"),
        "ruby": ("\nend",),
        "bash": ("\n:\nfi", "\n:\ndone", "\nesac"),
    }
)

_QUOTES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "python": ('"""', "'''", '"', "'"),
        "json": ('"',),
        "html": ('"', "'"),
        "rust": ('"',),
        "toml": ('"""', "'''", '"', "'"),
    }
)
_MULTILINE_QUOTES: Final = ('"""', "'''", "`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Prefix, text and suffix as bytes. `line_start` and `line_end` bound the cursor's line(s).

    `lenient` closes also what the text itself opened: it asks whether a beginning of a text could
    still become whole, not whether it is.
    """

    prefix: bytes
    text: bytes
    suffix: bytes
    lenient: bool = False

    @property
    def line_start(self) -> int:
        return self.prefix.rfind(b"\n") + 1

    @property
    def text_start(self) -> int:
        return len(self.prefix)

    @property
    def text_end(self) -> int:
        return len(self.prefix) + len(self.text)

    @property
    def line_end(self) -> int:
        newline = self.suffix.find(b"\n")
        tail = self.suffix if newline < 0 else self.suffix[:newline].rstrip(b"\r")
        return self.text_end + len(tail)

    @property
    def document(self) -> bytes:
        return self.prefix + self.text + self.suffix

    @property
    def head(self) -> str:
        """What stands left of the cursor on its line."""
        return self.prefix[self.line_start :].decode(errors="replace")

    @property
    def last_line(self) -> str:
        """The line on which the text ends, whole."""
        document = self.document
        start = document.rfind(b"\n", 0, self.text_end) + 1
        return document[start : self.line_end].decode(errors="replace")


def tails(grammar: Grammar, hole: Hole) -> Iterator[str]:
    """What might finish the line on which the text ends: the most likely first, at most a dozen."""
    closers = excess_closers(grammar, hole)
    opened_by_text = len(closers) - len(_user_closers(grammar, hole))
    just_opened = _one_block_opened(grammar.name, hole)
    if closers and (opened_by_text <= 0 or just_opened or hole.lenient):
        yield from _closed(grammar.name, hole, closers)
    if grammar.name in _SEMICOLON and (hole.head.strip() or hole.lenient):
        yield ";"
    if just_opened or not hole.text:
        yield from _block_ends(grammar.name, hole)
    if not hole.text and grammar.name in _BRACES:
        yield "{"  # the cursor's line may be the header of the block below it
    for quote in _open_quotes(grammar.name, hole):
        quoted = Hole(prefix=hole.prefix, text=hole.text + quote.encode(), suffix=hole.suffix)
        if quote not in _MULTILINE_QUOTES or not hole.suffix.strip():
            yield quote
        closers = excess_closers(grammar, quoted)
        yield from (quote + tail for tail in _closed(grammar.name, hole, closers) if closers)
        if quote in _MULTILINE_QUOTES and hole.suffix.strip():
            yield quote


def _one_block_opened(language: str, hole: Hole) -> bool:
    nested = hole.text.count(b"{") - hole.text.count(b"}")
    return bool(hole.text.strip()) and nested <= 1 and block_opened(language, hole.last_line)


def block_opened(language: str, line: str) -> bool:
    """True if this line's end has just opened a block that needs something inside or below."""
    pattern = _BLOCK_OPENED.get(language, _BRACE_OPENED)
    return pattern.search(line) is not None


def open_brackets(text: str) -> int:
    """How many more brackets open in text than close, whatever stands in strings."""
    return sum(text.count(c) for c in "([{") - sum(text.count(c) for c in ")]}")


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def excess_closers(grammar: Grammar, hole: Hole) -> str:
    """The closers that are missing after the cursor's line for what was opened before it."""
    left: list[Bracket] = []
    right: list[str] = []
    inner: list[str] = []
    for bracket in grammar.brackets(hole.document):
        if bracket.start < hole.line_end:
            _nest(left, bracket)
        elif bracket.char in _CLOSERS:
            inner.append(_CLOSERS[bracket.char])
        elif bracket.char in inner:
            del inner[len(inner) - 1 - inner[::-1].index(bracket.char) :]
        else:
            right.append(bracket.char)
    closers = []
    for opener in reversed(left):
        closer = _CLOSERS[opener.char]
        if right and right[0] == closer:
            right.pop(0)
        else:
            closers.append(closer)
    return "".join(closers)


def _nest(stack: list[Bracket], bracket: Bracket) -> None:
    """Push an opener; pop with a closer whatever stands above its partner."""
    if bracket.char in _CLOSERS:
        stack.append(bracket)
        return
    for index in range(len(stack) - 1, -1, -1):
        if _CLOSERS[stack[index].char] == bracket.char:
            del stack[index:]
            return


def _user_closers(grammar: Grammar, hole: Hole) -> str:
    if not hole.text:
        return excess_closers(grammar, hole)
    return excess_closers(grammar, Hole(prefix=hole.prefix, text=b"", suffix=hole.suffix))


def _closed(language: str, hole: Hole, closers: str) -> Iterator[str]:
    indent = indentation(hole.last_line)
    inner = f"{indent}\t" if "\t" in indent else f"{indent}    "
    for form in _AFTER_CLOSERS.get(language, _C_LIKE):
        yield form.format(closers).replace("@", inner)


def _block_ends(language: str, hole: Hole) -> Iterator[str]:
    ends = _BLOCK_ENDS.get(language, ())
    yield from ends
    yield from (first + second for first in ends for second in ends)
    if len(ends) == 1:
        yield from (ends[0] * count for count in (3, 4))


def _open_quotes(language: str, hole: Hole) -> Iterator[str]:
    """Quotes which the user may have opened before the cursor and nobody closed yet."""
    text = hole.text.decode(errors="replace")
    for quote in _QUOTES.get(language, ('"', "'", "`")):
        where = hole.prefix.decode(errors="replace") if quote in _MULTILINE_QUOTES else hole.head
        if where.count(quote) % 2 and quote not in text:
            yield quote

"""The syntax verdict: does a suggestion break the document it would stand in, and where.

Knows text on both sides of a hole, the text proposed for it, and the grammars. Knows nothing of
models, tokens or editors; free of torch, because `dlsp` imports it too.

The rule. A document is judged by the faults that the text *adds*.

1. If the document with the text in place has no fault, the verdict is ok.
2. Otherwise it is compared with fair documents before: the cursor's line blank, and the hole empty.
   A fault that stands in one of them too is old. If the blank-line document is itself faulty (the
   user is inside a block or a call that nobody closed yet), what would close it is added first.
3. The cursor's own statement may stay unfinished. A bracket or string that the *user* opened
   before the cursor and that is still open at the end of the line is closed before judging,
   in the forms a statement may take (`f(a` is read as `f(a)`, `if f(a` as `if f(a):` with a body).
   What the *text* opens it must close, unless the suffix does or the text ends by opening a
   block: a block just opened is judged as if it were closed or, in Python, had `pass` in it.
4. Python is judged by `ast.parse`: a file that parsed before must parse after, in one of the
   readings of 3. A file that did not parse before falls back to 1 to 3 on tree-sitter's faults.

Where a fault encloses the hole whatever is closed (macros that the grammar cannot read, say), or
the file is full of them, a new fault proves nothing and the verdict is unknown.

A large document is first cut down to the statements around the hole (`engine.excerpt`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from engine.excerpt import excerpt
from engine.faults import BeyondGrammar, added_faults
from engine.grammars import Fault, Grammar, grammar, language_for
from engine.outline import Import, Signature, comment_out, imports, lead, signatures
from engine.python_syntax import (
    MAX_AST_BYTES,
    fault_in,
    parsed_before,
    parses,
    parses_around,
    python_tails,
)
from engine.readings import Hole, tails

__all__ = [
    "Import",
    "Signature",
    "Verdict",
    "check",
    "comment_out",
    "complete_prefix",
    "imports",
    "language_for",
    "lead",
    "signatures",
]

#: Larger documents are not judged: tree-sitter takes 0.3 ms per kB from nothing.
MAX_BYTES: Final = 2_000_000
_MAX_READINGS: Final = 12
_MAX_CUTS: Final = 32
#: How many bytes may be parsed again to narrow a failing span.
_NARROWING_BYTES: Final = 150_000
_TOKEN: Final = re.compile(r"\w+|\s+|[^\w\s]")
_LAST_TOKEN: Final = re.compile(r"(\w+|[^\w\s]+)\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`spans` are half-open ranges of code points in the text that should be masked again."""

    status: Literal["ok", "broken", "unknown"]
    spans: tuple[tuple[int, int], ...] = ()


def check(*, prefix: str, text: str, suffix: str, language: str | None) -> Verdict:
    """Judge `text` between `prefix` and `suffix`. Never raises; no grammar gives "unknown"."""
    known = grammar(language) if language else None
    hole = _placed(prefix, text, suffix)
    if known is None or len(hole.document) > MAX_BYTES:
        return Verdict(status="unknown")
    if not text.strip():
        return Verdict(status="ok")
    try:
        hole = excerpt(known, hole)
        faults = (
            _python(known, hole) if known.name == "python" else added_faults(known, hole, tails)
        )
        if not faults:
            return Verdict(status="ok")
        return Verdict(status="broken", spans=_spans(known, hole, text, faults))
    except (BeyondGrammar, RecursionError, MemoryError):
        return Verdict(status="unknown")


def whole_python(*, prefix: str, text: str, suffix: str) -> bool:
    """Whether a document in Python has no fault at all with `text` in place, as far as its
    statements around the text tell; False where that cannot be said. Never raises."""
    known, hole = grammar("python"), _placed(prefix, text, suffix)
    if known is None or len(hole.document) > MAX_BYTES:
        return False
    try:
        return parses_around(known, excerpt(known, hole))
    except (RecursionError, MemoryError):
        return False


def _placed(prefix: str, text: str, suffix: str) -> Hole:
    """The hole as bytes, with `?` for what UTF-8 cannot spell."""
    return Hole(
        prefix=prefix.encode(errors="replace"),
        text=text.encode(errors="replace"),
        suffix=suffix.encode(errors="replace"),
    )


def complete_prefix(
    prefix: str,
    text: str,
    suffix: str,
    language: str | None,
    *,
    at: Literal["token", "line"] = "token",
    judged: bool = False,
) -> str:
    """The longest beginning of `text`, cut at token (or line) ends, that is not broken; or ''.

    `judged`: the whole of it was found broken already.
    """
    for end in islice(_cuts(text, at), int(judged), _MAX_CUTS):
        piece = text[:end]
        if not piece.strip():
            return ""
        if check(prefix=prefix, text=piece, suffix=suffix, language=language).status != "broken":
            return piece
    return ""


def _cuts(text: str, at: Literal["token", "line"]) -> Iterator[int]:
    """Where the text may be cut, longest first; below the last line only at line ends."""
    yield len(text)
    last_line = text.rstrip("\n").rfind("\n") + 1
    if at == "token" or last_line == 0:
        yield from (
            match.end() + last_line
            for match in reversed(list(_TOKEN.finditer(text[last_line:])))
            if match.end() + last_line < len(text) and not match.group().isspace()
        )
    for index in range(last_line - 1, 0, -1):
        if text[index] == "\n" and text[index - 1] != "\n":
            yield index


def _python(grammar: Grammar, hole: Hole) -> tuple[Fault, ...]:
    document = hole.document
    if len(document) > MAX_AST_BYTES:
        return added_faults(grammar, hole, python_tails)
    if parses_around(grammar, hole) or parses(document):
        return ()
    if not parsed_before(hole):
        return added_faults(grammar, hole, python_tails)
    left, right = document[: hole.line_end], document[hole.line_end :]
    readings = list(islice(python_tails(grammar, hole), _MAX_READINGS))
    if any(parses(left + tail.encode() + right) for tail in readings):
        return ()
    return added_faults(grammar, hole, python_tails) or (_ast_fault(hole),)


def _ast_fault(hole: Hole) -> Fault:
    """The place where `ast` stops, as a fault; used where tree-sitter saw nothing."""
    line, column = fault_in(hole.document) or (1, 0)
    lines = hole.document.split(b"\n")
    start = sum(len(each) + 1 for each in lines[: line - 1])
    inside = lines[line - 1] if line <= len(lines) else b""
    start += len(inside.decode(errors="replace")[:column].encode())
    return Fault(start, start, "ast")


def _spans(
    grammar: Grammar, hole: Hole, text: str, faults: tuple[Fault, ...]
) -> tuple[tuple[int, int], ...]:
    """Map faults to ranges of the text: the narrowest of them; its end for what comes after."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(_span(hole, text, fault) for fault in faults):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    first = _viable_until(grammar, hole, text, merged[0]) if faults[0].kind != "ast" else 0
    narrow = [(max(start, first), end) for start, end in merged if end > first]
    return tuple(narrow) or ((first, len(text)),)


def _viable_until(grammar: Grammar, hole: Hole, text: str, span: tuple[int, int]) -> int:
    """The last token end before the span's last token up to which the text could become whole."""
    finish = python_tails if grammar.name == "python" else tails
    ends = [match.end() for match in _TOKEN.finditer(text) if not match.group().isspace()]
    inside = [end for end in ends if span[0] < end < span[1]]
    steps = max(2, min(16, _NARROWING_BYTES // max(len(hole.document), 1)))
    for end in inside[::-1][:steps]:
        piece = text[:end].encode(errors="replace")
        begun = Hole(prefix=hole.prefix, text=piece, suffix=hole.suffix, lenient=True)
        with suppress(BeyondGrammar):
            if not added_faults(grammar, begun, finish):
                past_space = len(text) - len(text[end:].lstrip())
                # white space to Python's `str` may be the fault itself to a grammar
                return past_space if past_space < span[1] else end
    return 0


def _span(hole: Hole, text: str, fault: Fault) -> tuple[int, int]:
    start = _code_points(hole, fault.start)
    end = _code_points(hole, fault.end)
    if start >= len(text.rstrip()):
        last = _LAST_TOKEN.search(text)
        return (last.start(), len(text)) if last else (0, len(text))
    token = _TOKEN.match(text, start)
    if end <= start:
        end = token.end() if token else len(text)
    return start, end


def _code_points(hole: Hole, offset: int) -> int:
    """A place of the document as an offset into the text, clamped to it."""
    inside = min(max(offset - hole.text_start, 0), len(hole.text))
    return len(hole.text[:inside].decode(errors="ignore"))

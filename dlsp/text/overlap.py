"""What a suggestion repeats of the text around it, and how much of it to cut.

Pure str -> str. Knows lines and brackets as characters; knows nothing of grammars or replies.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

CLOSERS: Final = ")]}\"'`"
_CLOSER: Final = MappingProxyType({"(": ")", "[": "]", "{": "}"})
_TRIVIAL: Final = re.compile(r"[\W_]*(end|fi|done|else|esac|pass|break|return)?[\W_]*\Z")
#: A shorter piece of the rest of the line may be there twice by right.
_MIN_OVERLAP: Final = 4
_MARKS: Final = (";", ",", ":")
_CLOSED_AND_MARKED: Final = re.compile(r"[)\]}\"'`]+[;,:]")
_CLOSES: Final = re.compile(r"\s*([)\]}]+[;,]?|end|fi|done|esac)\s*\Z")


def is_trivial(line: str) -> bool:
    """True for lines that code repeats by right: closers, `end`, `else`, `pass`."""
    return _TRIVIAL.match(line.strip()) is not None


def tail_of(suffix: str) -> str:
    """What stands right of the cursor on its line."""
    return suffix.partition("\n")[0]


def head_of(prefix: str) -> str:
    """What stands left of the cursor on its line."""
    return prefix.rpartition("\n")[2]


def cut_rest_of_line(text: str, suffix: str) -> str:
    """Cut the end of the text where it spells what stands right of the cursor."""
    tail = tail_of(suffix).rstrip()
    if not tail.strip(CLOSERS + " ;,:"):
        return text
    for length in range(len(tail), 0, -1):
        piece = tail[:length]
        whole = length == len(tail) or (
            len(piece.strip()) >= _MIN_OVERLAP and not (piece[-1:] + tail[length]).isidentifier()
        )
        if whole and text.rstrip().endswith(piece):
            return text.rstrip()[: -len(piece)]
    return text


def cut_end_mark(text: str, suffix: str) -> str:
    """Cut the `;`, `,` or `:` at the end of the text that stands to its right anyway: at the end of
    the line, or behind the same closers."""
    tail, kept = tail_of(suffix).strip(), text.rstrip()
    mark = tail.lstrip(CLOSERS + " ")
    if mark in _MARKS and kept.endswith(mark):
        return kept[:-1]
    closed = _CLOSED_AND_MARKED.match(tail)
    return kept[:-1] if closed and kept.endswith(closed.group()) else text


def cut_closing_line(text: str, prefix: str, suffix: str) -> str:
    """Cut a last line that closes the block around the cursor, where the line below does it."""
    above, _, last = text.rpartition("\n")
    below = next((line.rstrip() for line in suffix.split("\n")[1:] if line.strip()), "")
    first = head_of(prefix) + text
    encloses = len(first) - len(first.lstrip(" \t")) > len(last) - len(last.lstrip(" \t"))
    if above.strip() and encloses and last.rstrip() == below and _CLOSES.match(last):
        return above.rstrip()
    return text


def cut_following_lines(text: str, prefix: str, suffix: str) -> str:
    """Cut the text where it begins to repeat the lines below; its last line may be unfinished."""
    if tail_of(suffix).strip():
        return text
    below = [line.rstrip() for line in suffix.split("\n")[1:]]
    while below and not below[0]:
        del below[0]
    head = head_of(prefix)
    lines = (head + text).split("\n")
    for start in range(len(lines)):
        repeated = [line.rstrip() for line in lines[start:]]
        if _repeats(repeated, below):
            return "\n".join(lines[:start])[len(head) :].rstrip() if start else ""
    return text


def _repeats(lines: list[str], below: list[str]) -> bool:
    while lines and not lines[-1]:
        lines = lines[:-1]
    if not lines or len(lines) > len(below) or lines[:-1] != below[: len(lines) - 1]:
        return False
    if all(is_trivial(line) for line in lines):
        return False
    last, other = lines[-1], below[len(lines) - 1]
    return last == other or (len(lines) > 1 and bool(last.strip()) and other.startswith(last))


def repeats_neighbour(text: str, prefix: str, suffix: str) -> bool:
    """True if the finished lines are the ones just above or just below."""
    lines = [line.strip() for line in (head_of(prefix) + text + tail_of(suffix)).split("\n")]
    lines = [line for line in lines if line]
    if not lines or all(is_trivial(line) for line in lines):
        return False
    above = [line.strip() for line in prefix.split("\n")[:-1] if line.strip()]
    below = [line.strip() for line in suffix.split("\n")[1 : len(lines) + 20] if line.strip()]
    return above[-len(lines) :] == lines or below[: len(lines)] == lines


def closers_right_of(suffix: str) -> str:
    """The closers, probably set by the editor, that stand directly right of the cursor."""
    tail = tail_of(suffix)
    return tail[: len(tail) - len(tail.lstrip(CLOSERS))]


def closed_by(text: str, head: str) -> str:
    """The closers in the text's first line that close what `head`, left of it, leaves open."""
    return _scan(text.partition("\n")[0], _scan(head, "")[0][:1].strip(")]}"))[1]


def open_at_end(head: str) -> str:
    """The closers that a line still needs, innermost first."""
    return _scan(head, "")[0]


def _scan(line: str, quote: str) -> tuple[str, str]:
    """(what the line leaves open, what it closes of before), both as closers, innermost first.

    `quote` is the quote in which the line begins, if it does.
    """
    stack: list[str] = []
    closed: list[str] = []
    outer = bool(quote)
    escaped = False
    for char in line:
        if quote:
            if char == quote and not escaped:
                closed += [quote] * outer
                quote, outer = "", False
            escaped = char == "\\" and not escaped
        elif char in "\"'`":
            quote, escaped = char, False
        elif char in _CLOSER:
            stack.append(_CLOSER[char])
        elif stack and char == stack[-1]:
            stack.pop()
        elif char in ")]}":
            closed.append(char)
    return quote + "".join(reversed(stack)), "".join(closed)

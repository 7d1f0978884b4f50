"""The function around a line of Python, found by indentation alone: enough to judge that line.

A large file takes long to parse, and what stands outside the function has no say. Where indentation
misleads (a string whose lines begin at the margin), what is cut out does not parse, and nothing is
concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.readings import indentation

_FUNCTION = re.compile(r"\s*(async\s+def|def)\b")
#: Lines that go on with a statement begun above at the same indent.
_CONTINUED = re.compile(r"\s*([)\]}]|(else|elif|except|finally)\b)")
_MOST_LINES = 400


def in_string(before: str) -> bool:
    """Whether a string of several lines may be open behind `before`."""
    return any(before.count(quotes) % 2 for quotes in ('"""', "'''"))


def block_around(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """The text before and behind a line, cut to the innermost function around it, or to the
    statements at the margin; `before` and `after` are lines, the nearest last and first.

    Blocks around the function are kept as `if 1:`. Empty texts where it begins too far above.
    """
    start = _start(before)
    if start is None:
        return "", ""
    margin = indentation(before[start])
    outer = [indent + "if 1:" for indent in _outer(before[:start], margin)]
    stop = _stop(after, margin)
    head = "\n".join([*outer, *before[start:], ""])
    return head, "\n" + "\n".join(after[:stop])


def _start(before: Sequence[str]) -> int | None:
    """Where the function begins, or the last statement at the margin; None if too far up."""
    least: int | None = None
    first = max(0, len(before) - _MOST_LINES)
    for at in range(len(before) - 1, first - 1, -1):
        line = before[at]
        width = len(indentation(line))
        if not line.strip() or (least is not None and width >= least):
            continue
        if _CONTINUED.match(line):
            continue  # its statement begins above, at the same indent
        least = width
        if _FUNCTION.match(line) or width == 0:
            return at
    return None


def _outer(above: Sequence[str], margin: str) -> list[str]:
    """The indents of the blocks around, outermost first."""
    found: list[str] = []
    for line in reversed(above):
        indent = indentation(line)
        if line.strip() and len(indent) < len(margin) and not _CONTINUED.match(line):
            found.append(indent)
            margin = indent
        if not margin:
            break
    return found[::-1]


def _stop(after: Sequence[str], margin: str) -> int:
    """How many lines below belong to the block."""
    for at, line in enumerate(after[:_MOST_LINES]):
        ends = line.strip() and len(indentation(line)) <= len(margin)
        if ends and not _CONTINUED.match(line):
            return at
    return min(len(after), _MOST_LINES)

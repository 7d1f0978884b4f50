"""Indentation of a suggestion: none twice, and in the file's own unit.

Pure str -> str. Knows only leading blanks; knows nothing of grammars.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Final

from dlsp.text.overlap import head_of

_OPENS_BLOCK: Final = re.compile(r"([:{(\[]|\b(then|do|else)|=>)\s*(#.*|//.*)?\Z")
_SAMPLE: Final = 20_000


def leading(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def unit_of(prefix: str, suffix: str) -> str | None:
    """The file's unit near the cursor: a tab, two, four or eight blanks; None without evidence."""
    lines = (prefix[-_SAMPLE:] + suffix[:_SAMPLE]).split("\n")
    indents = [leading(line) for line in lines if line.strip()]
    tabs = sum(indent.startswith("\t") for indent in indents)
    blanks = sum(indent.startswith(" ") for indent in indents)
    if not tabs and not blanks:
        return None
    if tabs > blanks:
        return "\t"
    steps = Counter(
        len(below) - len(above) for above, below in pairwise(indents) if len(below) > len(above)
    )
    sizes = [size for size, _ in steps.most_common() if size in (2, 4, 8)]
    return " " * (sizes[0] if sizes else 4)


def drop_repeated(text: str, prefix: str) -> str:
    """Drop from the first line the indentation that already stands left of the cursor."""
    head = head_of(prefix)
    first, newline, rest = text.partition("\n")
    lead = leading(first)
    if head.strip() or not head or not lead or not first.strip():
        return text
    above = next((line for line in reversed(prefix.split("\n")[:-1]) if line.strip()), "")
    if _OPENS_BLOCK.search(above) and len(head) <= len(leading(above)):
        return text
    kept = lead[len(head) :] if lead.startswith(head) else ""
    return kept + first.lstrip(" \t") + newline + rest


def in_unit(text: str, prefix: str, suffix: str) -> str:
    """Rewrite the indentation of the lines below the first in the file's unit."""
    unit = unit_of(prefix, suffix)
    if unit is None or "\n" not in text:
        return text
    first, *lines = text.split("\n")
    return "\n".join([first, *(_converted(line, unit, lines) for line in lines)])


def _converted(line: str, unit: str, lines: list[str]) -> str:
    lead = leading(line)
    if unit != "\t":
        return lead.replace("\t", unit) + line[len(lead) :]
    if " " not in lead:
        return line
    sizes = [len(indent) for each in lines if (indent := leading(each)) and indent[0] == " "]
    size = 2 if any(length % 4 for length in sizes) else 4
    return lead.replace(" " * size, "\t").replace(" ", "") + line[len(lead) :]

"""How near a text is to the original one, and whether a file still parses with it.

Pure functions of text; knows the grammars, nothing of engines or where holes come from.
"""

from __future__ import annotations

import ast
import warnings
from itertools import takewhile

from engine.grammars import grammar


def parses(program: str, language: str) -> bool:
    """Whether the whole file is free of syntax errors: Python's own parser, or the grammar."""
    if language == "python":
        return _python_parses(program)
    known = grammar(language)
    return known is not None and not known.faults(program.encode("utf-8", "replace"))


def _python_parses(program: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its words on odd escapes are not ours to show
        try:
            ast.parse(program)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def exact(text: str, original: str) -> bool:
    """Whether they are the same, blanks at the end aside."""
    return text.rstrip() == original.rstrip()


def first_line(text: str, original: str) -> bool:
    """Whether the first line is the same, blanks at its end aside."""
    return exact(text.partition("\n")[0], original.partition("\n")[0])


def useful_prefix(text: str, original: str) -> int:
    """How many characters are right before the first that is not."""
    pairs = zip(text.rstrip(), original.rstrip(), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def edit_similarity(text: str, original: str) -> float:
    """1 for the same text, 0 for nothing in common: one minus edits per character (Levenshtein)."""
    one, other = text.rstrip(), original.rstrip()
    longest = max(len(one), len(other))
    return 1.0 - _edits(one, other) / longest if longest else 1.0


def _edits(one: str, other: str) -> int:
    """The least number of characters to insert, delete or replace."""
    above = list(range(len(other) + 1))
    for row, left in enumerate(one, 1):
        here = [row]
        for column, right in enumerate(other, 1):
            cheapest = min(above[column], here[-1]) + 1
            here.append(min(cheapest, above[column - 1] + (left != right)))
        above = here
    return above[-1]

"""How a line of Python must begin where its neighbours leave one way only.

Behind `for x in y:` a line is indented more than the `for`; before a line that is indented more
than the one above, a block must be opened. A model that has to guess the column often guesses
wrong, and nothing later in the line can mend it: so the column is not left to it.

A rule holds only where the document is whole with it and not without: inside a string or a bracket
there is none, nor where something else is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine import syntax
from engine.readings import block_opened, indentation

#: What may begin a statement that opens a block.
_OPENERS = (
    *("if", "elif", "else", "for", "while", "try", "except", "finally", "with"),
    *("def", "class", "match", "case", "async"),
)
#: What goes on with a statement whose body stands above.
_CLAUSES = ("else:", "elif ", "except:", "except ", "finally:")
_LOOK = 200  # lines on either side
_PLAIN, _OPENING = "pass", "if x:"
_WORD = re.compile(r"\w*")
_STRING = re.compile(r"""'[^']*'|"[^"]*\"""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The new text begins with `indent` and no more white space; then, where it `opens` a block,
    with a word that does."""

    indent: str
    opens: bool

    def allows(self, text: str) -> bool:
        """Whether `text`, whole tokens, may be the beginning of the new text.

        Tokenizers join the last space of an indent to the word behind it: an indent that is split
        elsewhere is one that no model has learnt to go on from.
        """
        if len(text) <= len(self.indent):
            return text in ("", self.indent[:-1], self.indent)
        rest = text[len(self.indent) :]
        if not text.startswith(self.indent) or rest[0].isspace():
            return False
        return not self.opens or _begins_opener(rest)

    def settled(self, text: str) -> bool:
        """Whether nothing that follows `text` can break the rule any more."""
        rest = text[len(self.indent) :]
        return bool(rest) and not (self.opens and rest.isidentifier())

    def end(self, text: str) -> int | None:
        """Where the line that opens the block ends, behind its colon; None before it, and where no
        block is opened."""
        at = text.find(":") if self.opens else -1
        while at >= 0 and not _whole(text[:at]):
            at = text.find(":", at + 1)
        return at + 1 if at >= 0 else None


def required(prefix: str, suffix: str, language: str | None) -> Start | None:
    """How the blank line between `prefix` and `suffix` must begin behind the cursor; None where
    that is free, or the line is not blank."""
    *before, left = prefix.split("\n")
    right, *after = suffix.split("\n")
    above, below = _statement(reversed(before)), _statement(after)
    if language != "python" or left.strip() or right.strip() or above is None:
        return None
    line, wrong = _rule(above, below, _unit(before, after))
    if line is None or not line.indent.startswith(left):
        return None
    start = Start(indent=line.indent.removeprefix(left), opens=line.opens)
    if not start.indent and not start.opens:
        return None

    def whole(text: str) -> bool:
        head = prefix.removesuffix(left)
        return syntax.whole(prefix=head, text=text, suffix=suffix, language=language)

    right_way = line.indent + (_OPENING if line.opens else _PLAIN)
    return start if whole(right_way) and not whole(wrong + _PLAIN) else None


def _unit(before: Sequence[str], after: Sequence[str]) -> str:
    """By how much the last block above is indented, or the first below; four spaces without one."""
    for lines in (before[-_LOOK:][::-1], after[:_LOOK][::-1]):
        for below, above in pairwise(lines):
            high, low = indentation(above), indentation(below)
            deeper = below.strip() and low != high and low.startswith(high)
            if deeper and block_opened("python", above):
                return low.removeprefix(high)
    return "    "


def _rule(above: str, below: str | None, unit: str) -> tuple[Start | None, str]:
    """What the statements around a line suggest for the whole of it; and an indent at which it
    could not be a plain statement."""
    high, low = indentation(above), indentation(below or "")
    deeper = below is not None and len(low) > len(high) and low.startswith(high)
    if block_opened("python", above):
        if not deeper:
            return Start(indent=high + unit, opens=False), high
        if len(low) - len(high) < 2 * len(unit):
            return Start(indent=low, opens=False), high
        return Start(indent=low.removesuffix(unit), opens=True), high
    if deeper:
        line = low.removesuffix(unit)
        return Start(indent=line, opens=True), line
    if below is not None and low + unit == high and below.lstrip().startswith(_CLAUSES):
        return Start(indent=high, opens=False), low
    return None, ""


def _statement(lines: Iterable[str]) -> str | None:
    """The first of the lines that is neither blank nor a comment."""
    said = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return next(said, None)


def _begins_opener(text: str) -> bool:
    """Whether text is the beginning of a statement that opens a block, or of its first word."""
    rest = _WORD.sub("", text, count=1)
    word = text.removesuffix(rest)
    return word in _OPENERS if rest else any(opener.startswith(word) for opener in _OPENERS)


def _whole(text: str) -> bool:
    """Whether a colon behind text stands neither in a bracket or string nor behind `lambda`."""
    text = _STRING.sub("", text)
    brackets = sum(text.count(c) for c in "([{") - sum(text.count(c) for c in ")]}")
    return brackets <= 0 and not {'"', "'"} & set(text) and "lambda" not in text

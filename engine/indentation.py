"""How a line of Python must begin where its neighbours leave one way only.

Behind `for x in y:` a line is indented more than the `for`; before a line that is indented more
than the one above, a block must be opened; and what stands below in the same block must be reached,
so no `return` before it. A model that has to guess the column often guesses wrong, and nothing
later in the line can mend it: so this much is not left to it.

A rule holds only where the document is whole with it and not without: inside a string or a bracket
there is none, nor where something else is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from engine import syntax
from engine.python_block import block_around, in_string
from engine.readings import block_opened, indentation, open_brackets

#: What may begin a statement that opens a block.
_OPENERS = (
    *("if", "elif", "else", "for", "while", "try", "except", "finally", "with"),
    *("def", "class", "match", "case", "async"),
)
#: What goes on with a statement whose body stands above.
_CLAUSES = ("else:", "elif ", "except:", "except ", "finally:")
_LOOK = 200  # lines on either side
#: What ends a block: nothing that follows in it is reached.
_LEAVING = frozenset(("return", "raise", "break", "continue"))
_PLAIN, _OPENING, _NO_CODE = "pass", "if x:", "pass pass"
_WORD = re.compile(r"\w*")
_STRING = re.compile(r"""'[^']*'|"[^"]*\"""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The new text begins with `indent` and no more white space (None: any); then, where it `opens`
    a block, with a word that does. A statement at the indent `goes_on` does not leave the block."""

    indent: str | None = None
    opens: bool = False
    goes_on: str | None = None

    def allows(self, text: str) -> bool:
        """Whether `text`, whole tokens, may be the beginning of the new text.

        Tokenizers join the last space of an indent to the word behind it: an indent that is split
        elsewhere is one that no model has learnt to go on from.
        """
        rest = text.lstrip(" \t")
        indent = text.removesuffix(rest)
        if self.indent is not None:
            if not rest:
                return text in ("", self.indent[:-1], self.indent)
            if indent != self.indent or rest[0].isspace():
                return False
        if self.opens and rest and not _begins_opener(rest):
            return False
        return indent != self.goes_on or _word(rest) not in _LEAVING

    def settled(self, text: str) -> bool:
        """Whether nothing that follows `text` can break the rule any more."""
        rest = text.lstrip(" \t")
        words = self.opens or self.goes_on is not None
        return bool(rest) and not (words and rest == _word(rest))

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
    left = prefix[prefix.rfind("\n") + 1 :]
    right, _, below_it = suffix.partition("\n")
    if language != "python" or left.strip() or right.strip() or in_string(prefix):
        return None
    before, after = prefix.split("\n")[:-1], below_it.split("\n")
    above, below = _statement(reversed(before)), _statement(after)
    head, tail = block_around(before, after)

    def whole(line: str) -> bool:
        return syntax.whole_python(prefix=head, text=line, suffix=tail)

    found = Start()
    if above is not None:
        line, wrong = _rule(above, below, _unit(before, after))
        sample = _OPENING if line.opens else _PLAIN
        fits = line.indent is not None and line.indent.startswith(left)
        free = line.indent == left and not line.opens
        if fits and not free and whole(f"{line.indent}{sample}") and not whole(wrong + _PLAIN):
            found = Start(indent=str(line.indent)[len(left) :], opens=line.opens)
    level = indentation(below or "")
    reached = not found.opens and found.indent in (None, level[len(left) :])
    in_reach = below is not None and reached and level.startswith(left)
    if in_reach and whole(level + _PLAIN) and not whole(level + _NO_CODE):
        found = replace(found, goes_on=level[len(left) :])
    return None if found == Start() else found


def _unit(before: Sequence[str], after: Sequence[str]) -> str:
    """By how much the last block above is indented, or the first below; four spaces without one."""
    for lines in (before[-_LOOK:][::-1], after[:_LOOK][::-1]):
        for below, above in pairwise(lines):
            high, low = indentation(above), indentation(below)
            deeper = below.strip() and low != high and low.startswith(high)
            if deeper and block_opened("python", above):
                return low.removeprefix(high)
    return "    "


def _rule(above: str, below: str | None, unit: str) -> tuple[Start, str]:
    """What the statements around a line suggest for the whole of it, left white space included; and
    an indent at which it could not be a plain statement."""
    high, low = indentation(above), indentation(below or "")
    deeper = below is not None and len(low) > len(high) and low.startswith(high)
    if block_opened("python", above):
        if not deeper:
            return Start(indent=high + unit), high
        if len(low) - len(high) < 2 * len(unit):
            return Start(indent=low), high
        return Start(indent=low.removesuffix(unit), opens=True), high
    if deeper:
        line = low.removesuffix(unit)
        return Start(indent=line, opens=True), line
    if below is not None and low + unit == high and below.lstrip().startswith(_CLAUSES):
        return Start(indent=high), low
    return Start(), ""


def _statement(lines: Iterable[str]) -> str | None:
    """The first of the lines that is neither blank nor a comment."""
    said = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return next(said, None)


def _begins_opener(text: str) -> bool:
    """Whether text is the beginning of a statement that opens a block, or of its first word."""
    word = _word(text)
    if word != text:
        return word in _OPENERS
    return any(opener.startswith(word) for opener in _OPENERS)


def _word(text: str) -> str:
    """The word that text begins with; empty if it begins with none."""
    return text.removesuffix(_WORD.sub("", text, count=1))


def _whole(text: str) -> bool:
    """Whether a colon behind text stands neither in a bracket or string nor behind `lambda`."""
    text = _STRING.sub("", text)
    return open_brackets(text) <= 0 and not {'"', "'"} & set(text) and "lambda" not in text

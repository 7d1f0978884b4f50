"""Which faults a text adds to the document it stands in.

Knows the fair documents before, the readings that finish an unfinished line, and when two faults
are the same. Knows nothing of verdicts, spans or Python's own parser: see `engine.syntax`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from engine.grammars import Fault, Grammar
from engine.readings import Hole

_MAX_READINGS: Final = 12
#: How many bytes of readings may be parsed from nothing for one verdict.
_READING_BYTES: Final = 200_000
#: A file with more faults than this is beyond its grammar: nothing can be said about it.
_MAX_FAULTS: Final = 150
#: With this many old faults (macros), a text that adds none to their number is let pass.
_MANY_FAULTS: Final = 3

Tails = Callable[[Grammar, Hole], Iterator[str]]


class BeyondGrammar(Exception):
    """The grammar cannot read this file well enough to judge a change of it."""


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of the document: `left` and `right` are shared with the one being judged."""

    left: bytes
    middle: bytes
    right: bytes

    def faults(self, grammar: Grammar, after_length: int) -> tuple[Fault, ...]:
        """Faults in the coordinates of the judged document; inside `middle`, clamped to it."""
        document = self.left + self.middle + self.right

        def place(offset: int) -> int:
            from_end = len(document) - offset
            if from_end <= len(self.right) and offset > len(self.left):
                return after_length - from_end
            return min(offset, after_length - len(self.right))

        found = grammar.faults(document)
        return tuple(Fault(place(f.start), place(f.end), f.kind) for f in found)


def added_faults(grammar: Grammar, hole: Hole, finish: Tails) -> tuple[Fault, ...]:
    """The faults that the text adds, in the reading with the fewest of them; () if there is one."""
    document = hole.document
    faults = grammar.faults(document)
    if not faults:
        return ()
    if len(faults) > _MAX_FAULTS:
        raise BeyondGrammar
    left, right = document[: hole.line_start], document[hole.line_end :]
    line = document[hole.line_start : hole.line_end]
    empty: tuple[Fault, ...] = ()
    if hole.head.strip() or document[hole.text_end : hole.line_end].strip():
        empty = _Version(hole.prefix, b"", hole.suffix).faults(grammar, len(document))
    blank, closing = _before(grammar, hole, finish)
    fewest = _new(hole, faults, blank, empty)
    for tail in islice(_with_closing(finish(grammar, hole), closing), _readings(document)):
        if not fewest:
            break
        found = _Version(left, line + tail.encode(), right).faults(grammar, len(document))
        fewest = min(fewest, _new(hole, found, blank, empty), key=len)
    if fewest and any(_encloses_hole(hole, old) for old in blank):
        raise BeyondGrammar
    return fewest


def _readings(document: bytes) -> int:
    return max(2, min(_MAX_READINGS, _READING_BYTES // max(len(document), 1)))


def _with_closing(tails_: Iterator[str], closing: str) -> Iterator[str]:
    """Readings that also close the block around the cursor, as the blank document needed."""
    if closing:
        yield closing
    for tail in tails_:
        yield tail
        if closing.startswith("\n"):
            yield tail + closing


def _before(grammar: Grammar, hole: Hole, finish: Tails) -> tuple[tuple[Fault, ...], str]:
    """The faults with the cursor's line blank, closed if that leaves fewer; and what closed it."""
    document = hole.document
    left, right = document[: hole.line_start], document[hole.line_end :]
    fewest, closing = _Version(left, b"", right).faults(grammar, len(document)), ""
    blank = Hole(prefix=left, text=b"", suffix=right)
    if len(fewest) > _MAX_FAULTS:
        raise BeyondGrammar
    for tail in islice(finish(grammar, blank), _readings(document)) if fewest else ():
        found = _Version(left, tail.encode(), right).faults(grammar, len(document))
        if len(found) < len(fewest):
            # A header that stands in for the cursor's line is not what the text may lack.
            fewest, closing = found, "" if tail == "{" else tail
        if not fewest:
            break
    return fewest, closing


def _new(
    hole: Hole, faults: tuple[Fault, ...], blank: tuple[Fault, ...], empty: tuple[Fault, ...]
) -> tuple[Fault, ...]:
    if _MANY_FAULTS <= len(faults) <= len(blank):
        return ()
    return tuple(
        fault
        for fault in faults
        if not any(_same_outside(hole, fault, old) for old in (*blank, *empty))
    )


def _same_outside(hole: Hole, fault: Fault, old: Fault) -> bool:
    """The same fault, and none of it in the text. Elsewhere than on the
    cursor's line one end may differ: recovery is not exact."""
    if fault.end > hole.text_start and fault.start < hole.text_end:
        return False
    same = (fault.start == old.start, fault.end == old.end)
    on_the_line = fault.end > hole.line_start and fault.start < hole.line_end
    return fault.kind == old.kind and (all(same) if on_the_line else any(same))


def _encloses_hole(hole: Hole, old: Fault) -> bool:
    return old.start < hole.line_start and old.end > hole.line_end

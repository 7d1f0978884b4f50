"""Lines of a document that are followed through its edits, and how much of a text they still hold.

Knows LSP's change events and words. Does not know documents' text or suggestions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

from lsprotocol import types as lsp

_TOKEN = re.compile(r"\w+|[^\w\s]")
_LINE_END = re.compile(r"\r\n|\n|\r")
#: Comparing is quadratic: a region that has grown beyond this is looked at in part.
_MOST_TOKENS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Lines `first` to `last`, both included and zero-based."""

    first: int
    last: int

    def after(self, change: lsp.TextDocumentContentChangeEvent) -> Region:
        """Where these lines are once a change was applied; text put into them belongs to them."""
        if not isinstance(change, lsp.TextDocumentContentChangePartial):
            return self  # the whole text anew: most of it stands where it stood
        start, end = sorted((change.range.start.line, change.range.end.line))
        grown = len(_LINE_END.findall(change.text)) - (end - start)
        if start > self.last:
            return self
        above = end < self.first or (start < end == self.first and not _last_column(change))
        if above:
            return Region(first=self.first + grown, last=self.last + grown)
        return Region(first=min(self.first, start), last=max(self.last, end) + grown)


def _last_column(change: lsp.TextDocumentContentChangePartial) -> int:
    return max(change.range.start, change.range.end, key=lambda place: place.line).character


def share_kept(text: str, now: str) -> float:
    """The share (0 to 1) of the text's characters, spaces aside, whose words stand in `now` in
    the same order."""
    before, after = _TOKEN.findall(text), _TOKEN.findall(now)[:_MOST_TOKENS]
    size = sum(map(len, before))
    if not size:
        return 1.0
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    kept = sum(len(token) for a, _, n in blocks for token in before[a : a + n])
    return kept / size

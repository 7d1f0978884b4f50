"""Guesses from the file itself: the longest earlier match of the last tokens proposes the next.

Needs no training and, in `verified` mode, costs no accuracy (prompt look-up decoding).
"""

from __future__ import annotations

from collections.abc import Sequence

SIZES = (4, 3, 2)


class Lookup:
    """An index of the n-grams of a growing token sequence; the latest earlier match wins."""

    def __init__(self, ids: Sequence[int], barriers: frozenset[int]) -> None:
        """`barriers`: tokens that no match and no guess may contain (prompt markers)."""
        self._ids: list[int] = []
        self._barriers = barriers
        self._next: dict[tuple[int, ...], int] = {}
        for token_id in ids:
            self.append(token_id)

    def append(self, token_id: int) -> None:
        """Add one token; the n-grams that end before it become findable."""
        ids = self._ids
        if token_id not in self._barriers:
            for size in SIZES:
                gram = tuple(ids[-size:])
                if len(gram) == size and not self._barriers.intersection(gram):
                    self._next[gram] = len(ids)
        ids.append(token_id)

    def guess(self, limit: int) -> tuple[int, list[int]]:
        """(length of the match, up to `limit` tokens that followed it); (0, []) without one."""
        ids = self._ids
        for size in SIZES:
            gram = tuple(ids[-size:])
            at = self._next.get(gram) if len(gram) == size else None
            if at is None:
                continue
            found: list[int] = []
            for token_id in ids[at : at + limit]:
                if token_id in self._barriers:
                    break
                found.append(token_id)
            if found:
                return size, found
        return 0, []

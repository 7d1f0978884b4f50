"""Guesses from text that is known already: the file itself, and an earlier suggestion.

The longest earlier match of the last tokens proposes the next (prompt look-up decoding). Needs no
training and, in `verified` mode, costs no accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence

SIZES = (4, 3, 2)
#: The longest match that `Remembered` tells apart.
MAX_RUN = 4


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


class Remembered:
    """A text that may well come again, followed token by token while the committed ones agree.

    Where they depart, the place is sought again further on: what was inserted is passed by, what
    was left out is skipped.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)
        self._at = 0
        self._run = 0
        self._seen = 0
        self._departed = False

    def follow(self, committed: Sequence[int]) -> None:
        """Take over all committed tokens of the canvas; a repair may have taken some back."""
        if len(committed) < self._seen:
            self._at = self._run = self._seen = 0
            self._departed = False
        for token_id in committed[self._seen :]:
            self._step(token_id)
        self._seen = len(committed)

    def _step(self, token_id: int) -> None:
        if self._at < len(self._ids) and self._ids[self._at] == token_id:
            self._at, self._run = self._at + 1, self._run + 1
            return
        self._departed = True
        try:
            self._at, self._run = self._ids.index(token_id, self._at) + 1, 1
        except ValueError:
            self._run = 0

    def guess(self, limit: int) -> tuple[int, list[int]]:
        """(length of the match, up to `limit` tokens that followed it); (0, []) off the track.

        The match counts `MAX_RUN` where the text never departed.
        """
        found = self._ids[self._at : self._at + max(limit, 0)]
        if not self._run or not found:
            return 0, []
        return (min(self._run, MAX_RUN - 1) if self._departed else MAX_RUN), found

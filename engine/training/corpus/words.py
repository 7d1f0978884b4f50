"""Texts as hashed word sequences: what near-duplicates and benchmark overlap are judged on."""

from __future__ import annotations

import hashlib
import re
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]

_WORD = re.compile(r"\w+")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd: 2**64 divided by the golden ratio
_MOST_KNOWN = 1_000_000


class Words:
    """Hashes texts; remembers words it has met, since code repeats them."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> Hashes:
        """The hash of each word of `text`, in order."""
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        known = self._known
        words = split(text)
        for word in set(words):
            if word not in known:
                digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
                known[word] = int.from_bytes(digest, "little")
        return np.fromiter((known[word] for word in words), dtype=np.uint64, count=len(words))


def split(text: str) -> list[str]:
    """The words of `text`: identifiers and numbers, case folded."""
    return _WORD.findall(text.lower())


def runs(words: Hashes, size: int) -> Hashes:
    """The hash of every run of `size` words, in order (of the whole text, if it is shorter)."""
    size = min(size, len(words))
    if size == 0:
        return np.empty(0, dtype=np.uint64)
    count = len(words) - size + 1
    mixed = np.zeros(count, dtype=np.uint64)
    for offset in range(size):  # polynomial hash, modulo 2**64
        mixed = mixed * _MULTIPLIER + words[offset : offset + count]
    mixed ^= mixed >> np.uint64(29)
    return mixed * _MULTIPLIER


def grams(words: Hashes, size: int) -> Hashes:
    """The distinct values of `runs`, sorted."""
    return np.unique(runs(words, size))

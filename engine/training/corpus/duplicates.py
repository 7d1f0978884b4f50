"""Near-duplicates by MinHash and banding (Broder 1997; Leskovec, Rajaraman, Ullman: Mining of
Massive Datasets, chapter 3).

Our own sixty lines on numpy, because `datasketch` needs scipy, a wheel forty times the size of all
that is used of it, and `rensa` is a binary wheel for what numpy does in time: a file costs about a
millisecond.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.training.corpus.words import Hashes, grams

Signature: TypeAlias = NDArray[np.uint32]

_SHINGLE_WORDS = 5
_BANDS, _ROWS = 16, 8
_PERMUTATIONS = _BANDS * _ROWS
_BLOCK = 4_096  # shingles at a time: bounds the memory of one file


class NearDuplicates:
    """Remembers the signatures of what it was shown.

    A pair of Jaccard similarity s is compared with probability 1 - (1 - s**8)**16: 0.95 at 0.8,
    0.9999 at 0.9; it counts as duplicate if its signatures agree in `threshold` of their places.
    """

    def __init__(self, threshold: float = 0.8) -> None:
        self.threshold = threshold
        generator = np.random.default_rng(20)
        self._factors = generator.integers(1, 2**63, _PERMUTATIONS, dtype=np.uint64) * 2 + 1
        self._offsets = generator.integers(0, 2**63, _PERMUTATIONS, dtype=np.uint64)
        self._signatures: list[Signature] = []
        self._buckets: dict[bytes, list[int]] = {}

    def seen(self, words: Hashes) -> bool:
        """Whether a near-duplicate was shown before; if not, `words` are remembered."""
        signature = self.signature(words)
        keys = [
            bytes([band]) + signature[band * _ROWS : (band + 1) * _ROWS].tobytes()
            for band in range(_BANDS)
        ]
        candidates = {n for key in keys for n in self._buckets.get(key, ())}
        if any(similarity(signature, self._signatures[n]) >= self.threshold for n in candidates):
            return True
        for key in keys:
            self._buckets.setdefault(key, []).append(len(self._signatures))
        self._signatures.append(signature)
        return False

    def signature(self, words: Hashes) -> Signature:
        """[128] uint32: per hash function the least value over all shingles."""
        shingles = grams(words, _SHINGLE_WORDS)
        least = np.full(_PERMUTATIONS, 2**32 - 1, dtype=np.uint32)
        for at in range(0, len(shingles), _BLOCK):
            block = shingles[at : at + _BLOCK, None]
            values = ((block * self._factors + self._offsets) >> np.uint64(32)).astype(np.uint32)
            least = np.minimum(least, values.min(axis=0))
        return least


def similarity(one: Signature, other: Signature) -> float:
    """The Jaccard similarity that two signatures estimate."""
    return float((one == other).mean())

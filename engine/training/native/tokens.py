"""Texts as token ids of the small vocabulary, kept in one file, and windows of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor

from engine.tokenizer import Tokenizer
from engine.training.corpus.languages import LANGUAGES
from engine.training.texts import Texts

_MOST_CHARACTERS, _SHORTEST = 60_000, 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """ids uint16 [N]; starts int64 [D + 1]; languages uint8 [D], indices into LANGUAGES."""

    ids: NDArray[np.uint16]
    starts: NDArray[np.int64]
    languages: NDArray[np.uint8]

    def window(self, document: int, size: int, rng: random.Random) -> Tensor:
        """Up to `size` ids of one document, int64."""
        first, last = int(self.starts[document]), int(self.starts[document + 1])
        at = first + rng.randrange(max(1, last - first - size // 2))
        # on the default device, as every other tensor of a batch
        return torch.tensor(self.ids[at : min(last, at + size)].astype(np.int64))

    def by_share(self, shares: dict[str, float]) -> Callable[[random.Random], int]:
        """Draws documents: languages by their share (empty: all tokens alike), then by length."""
        sizes = np.diff(self.starts).astype(np.float64)
        weights = sizes.copy()
        if shares:
            for number, name in enumerate(LANGUAGES):
                of = self.languages == number
                total = sizes[of].sum()
                weights[of] *= shares.get(name, 0.0) / total if total else 0.0
        cumulative = np.cumsum(weights)
        return lambda rng: int(np.searchsorted(cumulative, rng.random() * cumulative[-1], "right"))


def encoded(texts: Texts, tokenizer: Tokenizer, path: Path, log: Callable[[str], None]) -> Tokens:
    """All texts, from `path` if they were written there before."""
    if not path.is_file():
        log(f"encoding {len(texts)} texts into {path.name}")
        parts, languages = [], []
        for index in range(len(texts)):
            ids = tokenizer.encode(texts[index][:_MOST_CHARACTERS])
            if len(ids) >= _SHORTEST:
                parts.append(np.array(ids, dtype=np.uint16))
                languages.append(LANGUAGES.index(texts.languages[index]))
        starts = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
        arrays: dict[str, NDArray[Any]] = {
            "ids": np.concatenate(parts),
            "starts": starts,
            "languages": np.array(languages, dtype=np.uint8),
        }
        part = path.with_suffix(".part")
        save_file(arrays, part)
        part.replace(path)
    return Tokens(**load_file(path))

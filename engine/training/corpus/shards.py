"""Token shards: documents packed end to end in files small enough to travel.

A shard is a safetensors file: `ids` int32 [N]; `starts` int64 [D + 1], where each document begins;
`languages` uint8 [D], indices into `LANGUAGES`. Its metadata says which tokenizer wrote it.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from engine.digest import fresh_digest
from engine.request import BadRequest
from engine.tokenizer import Tokenizer
from engine.training.corpus.languages import LANGUAGES

FORMAT = 1
MAX_BYTES = 60_000_000
_HEADER_BYTES = 4_096  # more than the header ever takes
_BYTES_PER_TOKEN, _BYTES_PER_DOCUMENT = 4, 9


def fingerprint(tokenizer: Tokenizer) -> str:
    """What tells one tokenizer from another."""
    return hashlib.sha256(tokenizer.to_json().encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One written shard, as the manifest lists it."""

    file: str
    sha256: str
    documents: int
    tokens: int


class ShardWriter:
    """Collects documents of one split and writes a shard whenever one is full."""

    def __init__(
        self, folder: Path, split: str, tokenizer: str, max_bytes: int = MAX_BYTES
    ) -> None:
        """`tokenizer`: its fingerprint. Raises BadRequest when a shard could hold nothing."""
        if max_bytes <= 2 * _HEADER_BYTES:
            raise BadRequest(f"a shard needs more than {2 * _HEADER_BYTES} bytes")
        self.folder, self.split, self.tokenizer, self.max_bytes = (
            folder,
            split,
            tokenizer,
            max_bytes,
        )
        self.written: list[ShardEntry] = []
        self._documents: list[NDArray[np.int32]] = []
        self._languages: list[int] = []
        self._size = _HEADER_BYTES

    def add(self, ids: list[int], language: str) -> int:
        """Append a document, cut to what one shard can hold; its tokens. Writes a full shard."""
        most = (self.max_bytes - _HEADER_BYTES - 2 * _BYTES_PER_DOCUMENT) // _BYTES_PER_TOKEN
        document = np.array(ids[:most], dtype=np.int32)
        size = len(document) * _BYTES_PER_TOKEN + _BYTES_PER_DOCUMENT
        if self._size + size > self.max_bytes:
            self.flush()
        self._documents.append(document)
        self._languages.append(LANGUAGES.index(language))
        self._size += size
        return len(document)

    def flush(self) -> None:
        """Write what is collected, atomically."""
        if not self._documents:
            return
        name = f"{self.split}-{len(self.written):05d}.safetensors"
        lengths = [len(document) for document in self._documents]
        about = {
            "format": FORMAT,
            "split": self.split,
            "tokenizer": self.tokenizer,
            "languages": LANGUAGES,
        }
        tensors: dict[str, NDArray[Any]] = {
            "ids": np.concatenate(self._documents),
            "starts": np.array([0, *accumulate(lengths)], dtype=np.int64),
            "languages": np.array(self._languages, dtype=np.uint8),
        }
        part = self.folder / f"{name}.part"
        save_file(tensors, part, metadata={"shard": json.dumps(about)})
        path = part.replace(self.folder / name)
        self.written.append(
            ShardEntry(
                file=name, sha256=fresh_digest(path), documents=len(lengths), tokens=sum(lengths)
            )
        )
        self._documents, self._languages, self._size = [], [], _HEADER_BYTES


class ShardTexts:
    """The documents of some shards as texts, read from the disk when asked for."""

    def __init__(self, paths: Iterable[Path], tokenizer: Tokenizer) -> None:
        """Raises BadRequest for a damaged shard, or one of another tokenizer."""
        self._tokenizer, wanted = tokenizer, fingerprint(tokenizer)
        self._slices: list[Any] = []  # the library's lazy tensors
        self._starts: list[NDArray[np.int64]] = []
        self._firsts = [0]
        self.languages: list[str] = []
        for path in sorted(paths):
            self._open(path, wanted)

    def _open(self, path: Path, wanted: str) -> None:
        try:
            handle = safe_open(path, framework="np")
            about = json.loads(handle.metadata()["shard"])
            starts = handle.get_tensor("starts")
            names = [about["languages"][n] for n in handle.get_tensor("languages").tolist()]
            ids = handle.get_slice("ids")
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, IndexError) as error:
            raise BadRequest(
                f"{path} is not a token shard that dlsp-engine wrote ({error})"
            ) from error
        if about.get("format") != FORMAT or about["tokenizer"] != wanted:
            raise BadRequest(
                f"{path} was packed for another tokenizer; build the corpus with the same --base"
            )
        self._slices.append(ids)
        self._starts.append(starts)
        self._firsts.append(self._firsts[-1] + len(names))
        self.languages += names

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = bisect_right(self._firsts, index) - 1
        starts, at = self._starts[shard], index - self._firsts[shard]
        ids = self._slices[shard][int(starts[at]) : int(starts[at + 1])]
        return self._tokenizer.decode(ids.tolist())

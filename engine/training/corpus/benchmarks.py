"""What must not be in a corpus: the functions of the benchmarks that its models will be held to.

A file goes if it defines a function of a task's name (in languages other than Python: of a name of
two words or more, in any naming style, since every second Java class has an `add`), or if it shares
a run of ten words with a task's text. Runs of numbers do not count: tables hold 0 to 9 everywhere.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.request import BadRequest
from engine.training.corpus.languages import defined_names
from engine.training.corpus.words import Hashes, Words, runs, split

_RUN_WORDS, _LEAST_LETTERED = 10, 5
_TEXTS = ("prompt", "canonical_solution", "suffix", "declaration", "test")


class Benchmarks:
    """The names and word runs of all tasks in some files."""

    def __init__(self, paths: Iterable[Path], words: Words) -> None:
        """Read JSON lines (gzipped or not). Raises BadRequest."""
        names: set[str] = set()
        found = [np.empty(0, dtype=np.uint64)]
        for path in paths:
            for task in tasks_of(path):
                names.add(str(task.get("entry_point", "")))
                solved = [str(task.get(key, "")) for key in ("prompt", "canonical_solution")]
                whole = "".join(solved) + str(task.get("suffix", ""))
                texts = [whole, *(str(task.get(key, "")) for key in _TEXTS)]
                found += [_telling_runs(text, words) for text in texts]
        self.names = frozenset(names - {""})
        self._folded = frozenset(_folded(name) for name in self.names if _folded(name) != name)
        self.runs = np.unique(np.concatenate(found))

    @property
    def present(self) -> bool:
        """Whether there is anything to keep out."""
        return bool(self.names) or len(self.runs) > 0

    def defines(self, language: str, text: str) -> bool:
        """Whether `text` defines a function of a task's name."""
        if not self.names:
            return False
        found = set(defined_names(language, text))
        if language == "python":
            return not self.names.isdisjoint(found)
        return not self._folded.isdisjoint(map(_folded, found))

    def overlaps(self, words: Hashes) -> bool:
        """Whether a text of these words shares a run of ten with a task."""
        if not len(self.runs) or len(words) < _RUN_WORDS:
            return False
        own = runs(words, _RUN_WORDS)
        at = np.minimum(np.searchsorted(self.runs, own), len(self.runs) - 1)
        return bool((self.runs[at] == own).any())


def _telling_runs(text: str, words: Words) -> Hashes:
    """The runs of a text in which at least half the words are no numbers."""
    said = split(text)
    if len(said) < _RUN_WORDS:
        return np.empty(0, dtype=np.uint64)
    lettered = np.array([not word[0].isdigit() for word in said], dtype=np.int64)
    counts = np.convolve(lettered, np.ones(_RUN_WORDS, dtype=np.int64), mode="valid")
    return runs(words(text), _RUN_WORDS)[counts >= _LEAST_LETTERED]


def tasks_of(path: Path) -> Iterator[dict[str, Any]]:
    """The tasks of a benchmark file (JSON lines, gzipped or not). Raises BadRequest."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
        for line in text.splitlines():
            if line.strip():
                task = json.loads(line)
                if not isinstance(task, dict):
                    raise ValueError("a line is not an object")
                yield task
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise BadRequest(f"cannot read benchmark tasks from {path} ({error})") from error


def _folded(name: str) -> str:
    return name.replace("_", "").lower()

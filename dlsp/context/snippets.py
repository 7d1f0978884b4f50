"""Which pieces of other places are shown to the model: cut, ranked, deduplicated, to a budget.

Ranked by the identifiers they share with the code around the cursor, rare ones first: Okapi BM25
(Robertson and Zaragoza, 2009), over the candidates themselves. Pure functions of texts; knows no
files, documents or engines.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.request import Snippet

#: BM25's usual saturation of repeated words, and weight of a text's length.
_K1, _B = 1.2, 0.75
_PIECE_LINES = 16
_LEAST_SHARED = 2
_SAME = 0.6
_IDENTIFIER = re.compile(r"[^\W\d]\w{2,}")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A piece that may be shown; `weight` favours a source, 1.0 is neutral."""

    path: str
    text: str
    weight: float = 1.0


def pieces(text: str) -> Iterator[str]:
    """A file in pieces of some lines each, cut before a line that begins something where possible.

    A piece that begins inside a block is shown from there: its words count, not its structure.
    """
    lines = text.split("\n")
    start = 0
    while start < len(lines):
        end = min(start + _PIECE_LINES, len(lines))
        begins = [
            n
            for n in range(start + _PIECE_LINES // 2, min(start + 2 * _PIECE_LINES, len(lines)))
            if lines[n].strip() and not lines[n - 1].strip()
        ]
        if begins and end < len(lines):
            # the least indented beginning, and of those the nearest to the usual length
            end = min(begins, key=lambda n: (_indent(lines[n]), abs(n - start - _PIECE_LINES)))
        piece = "\n".join(lines[start:end]).strip("\n")
        if piece.strip():
            yield piece
        start = end


def choose(
    candidates: Sequence[Candidate], query: str, *, characters: int, beside: str = ""
) -> tuple[Snippet, ...]:
    """The candidates that share most with `query` and fit, the best last.

    Left out: those that share next to nothing, and those of which most lines are already shown,
    in a better one or in `beside`.
    """
    shown = [_line_set(beside)]
    chosen: list[Snippet] = []
    for candidate in _ranked(candidates, query):
        length = len(candidate.path) + len(candidate.text) + 2
        lines = _line_set(candidate.text)
        if length > characters or any(_overlap(lines, others) > _SAME for others in shown):
            continue
        characters -= length
        shown.append(lines)
        chosen.append(Snippet(path=candidate.path, text=candidate.text))
    return tuple(reversed(chosen))


def _ranked(candidates: Sequence[Candidate], query: str) -> list[Candidate]:
    texts = [words(candidate.text) for candidate in candidates]
    wanted = words(query)
    known = Counter(word for text in texts for word in text)
    mean = sum(sum(text.values()) for text in texts) / max(len(texts), 1)
    scored = []
    for candidate, text in zip(candidates, texts, strict=True):
        shared = [word for word in text if word in wanted]
        if len(shared) < _LEAST_SHARED:
            continue
        length = 1 - _B + _B * sum(text.values()) / mean
        score = sum(
            math.log(1 + (len(texts) - known[word] + 0.5) / (known[word] + 0.5))
            * (text[word] * (_K1 + 1) / (text[word] + _K1 * length))
            for word in shared
        )
        scored.append((score * candidate.weight, candidate))
    scored.sort(key=lambda pair: -pair[0])
    return [candidate for _, candidate in scored]


@lru_cache(maxsize=4096)
def words(text: str) -> Counter[str]:
    """How often each identifier stands in a text, and each part of a compound one. Not to be
    changed: it is kept for the next time."""
    found: Counter[str] = Counter()
    for name in _IDENTIFIER.findall(text):
        found[name.lower()] += 1
        parts = _PART.findall(name)
        if len(parts) > 1:
            found.update(part.lower() for part in parts if len(part) > 2)
    return found


def _line_set(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.split("\n") if len(line.strip()) > 3)


def _overlap(lines: frozenset[str], others: frozenset[str]) -> float:
    return len(lines & others) / len(lines) if lines else 1.0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

"""One hole filled by the engine, and the plain row of what came of it.

Knows the engine's request and result, and which settings a benchmark may vary; nothing of where
holes come from or how a text is scored.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.engine_run import Infiller
from benchmarks.report import Rows
from engine.request import InfillRequest, Mode, Want

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """How each hole is to be filled. `blank_suffix`: the engine is not shown what follows."""

    mode: Mode
    max_tokens: int = 64
    syntax: bool = True
    steps: int = 4
    threshold: float = 0.6
    healing: bool = True
    blank_suffix: bool = False

    def request(self, prefix: str, suffix: str, want: Want, language: str) -> InfillRequest:
        """The request of a hole between `prefix` and `suffix`."""
        return InfillRequest(
            prefix=prefix,
            suffix="" if self.blank_suffix else suffix,
            max_tokens=self.max_tokens,
            language=language,
            want=want,
            mode=self.mode,
            syntax=self.syntax,
            steps=self.steps,
            threshold=self.threshold,
            healing=self.healing,
        )

    def labels(self) -> dict[str, object]:
        """How the holes were filled, for a benchmark's JSON line."""
        return {
            "mode": self.mode,
            "syntax": self.syntax,
            "max_tokens": self.max_tokens,
            "steps_asked": self.steps,
            "threshold": self.threshold,
            "healing": self.healing,
            "blank_suffix": self.blank_suffix,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A filling and the rows that it has come to."""

    filling: Filling
    rows: Rows


def turns(
    items: Sequence[T], series: Sequence[Series], key: Callable[[T], str]
) -> Iterator[tuple[T, Series]]:
    """What is not done yet, item by item; the series take turns at going first.

    Side by side they share an item's encoded context, and the machine's good and bad minutes.
    """
    for number, item in enumerate(items):
        at = number % len(series)
        for one in (*series[at:], *series[:at]):
            if key(item) not in one.rows.done:
                yield item, one


def add_filling_arguments(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    """--mode and what else a request can vary."""
    parser.add_argument("--mode", choices=("ar", "verified", "free"), default="verified")
    parser.add_argument("--max-tokens", type=int, default=max_tokens)
    parser.add_argument("--steps", type=int, default=4, help="denoising steps per canvas")
    parser.add_argument("--threshold", type=float, default=0.6, help="free: commit from here on")
    parser.add_argument("--no-syntax", action="store_true", help="no syntax repair")
    parser.add_argument("--no-healing", action="store_true", help="leave tokens cut at the cursor")
    parser.add_argument(
        "--blank-suffix",
        action="store_true",
        help="hide what follows the hole from the engine: shows how much it uses it",
    )


def filling_of(options: argparse.Namespace) -> Filling:
    """The filling that the command line asks for; raises BadRequest, BenchmarkError."""
    filling = Filling(
        mode=options.mode,
        max_tokens=options.max_tokens,
        syntax=not options.no_syntax,
        steps=options.steps,
        threshold=options.threshold,
        healing=not options.no_healing,
        blank_suffix=options.blank_suffix,
    )
    filling.request("", "", "line", "python")  # what cannot be asked is said before a model loads
    return filling


def fill(engine: Infiller, request: InfillRequest) -> dict[str, object]:
    """Fills one hole: the text and its figures, as a row for a file.

    `decode_ms` leaves out the encoding of the context, which an earlier request may have paid for.
    """
    started = time.perf_counter()
    result = engine.infill(request)
    spent_ms = (time.perf_counter() - started) * 1000
    sources = result.sources
    return {
        "text": result.text,
        "finish_reason": result.finish_reason,
        "tokens": result.tokens,
        "forwards": result.forwards,
        "steps": result.steps,
        "near_ties": result.near_ties,
        "repaired": result.repaired,
        "confidence": round(result.confidence, 4),
        "from": {"base": sources.base, "lookup": sources.lookup, "denoiser": sources.denoiser},
        "ms": round(spent_ms, 2),
        "decode_ms": round(spent_ms - result.ms.encode, 2),
    }

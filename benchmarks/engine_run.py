"""The engine as the in-process benchmarks need it: loaded with progress, asked hole by hole.

The only benchmark room that imports the engine itself (and so torch), and it does so late: fakes
stand in for it in tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from benchmarks.cuts import Tokens
from benchmarks.report import INTERRUPTED, BenchmarkError, say
from engine.catalog import default_model
from engine.request import EngineError, InfillRequest, InfillResult


class Infiller(Protocol):
    """What a benchmark asks of `engine.engine.Engine`."""

    name: str

    @property
    def tokenizer(self) -> Tokens: ...

    def infill(self, request: InfillRequest) -> InfillResult: ...


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """--model, --weights, --threads: the same for every in-process benchmark."""
    default = default_model()
    parser.add_argument("--model", default=default, help=f"catalogue name (default: {default})")
    parser.add_argument("--weights", type=Path, help="a GGUF file or a folder in the hub's layout")
    parser.add_argument("--threads", type=int, help="CPU threads (default: the engine's own)")


def load_engine(model: str, weights: Path | None, threads: int | None) -> Infiller:
    """Loads the model, saying each stage and every tenth of it; raises EngineError."""
    from engine.engine import Engine

    told: set[str] = set()

    def progress(stage: str, done: int, total: int) -> None:
        share = f" {10 * (10 * done // total)} %" if total > 1 else ""
        line = f"{model}: {stage}{share}"
        if line not in told:
            told.add(line)
            say(line)

    return Engine.load(model, weights=weights, threads=threads, progress=progress)


def finish(work: Callable[[], int | None]) -> int:
    """Does a benchmark's work; its exit code, an expected end said in one line."""
    try:
        return work() or 0
    except (Exception, KeyboardInterrupt) as error:
        return explain(error)


def explain(error: BaseException) -> int:
    """Says an expected end in one line and gives the exit code; raises anything else again."""
    if isinstance(error, KeyboardInterrupt):
        say("\nstopped")
        return INTERRUPTED
    if isinstance(error, EngineError):
        say(f"error: {error}")
        return error.exit_code
    if isinstance(error, BenchmarkError):
        say(f"error: {error}")
        return 2
    raise error

"""`verified` equals `ar`, token for token, over many holes; only a counted near-tie is an excuse.

Asks the same engine for each hole in both modes, repair off. Exits 1 when one hole differs and
neither run met a near-tie.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.engine_run import Infiller, add_model_arguments, finish, load_engine
from benchmarks.report import Progress, Rows, ratio, say, write_figures
from benchmarks.tasks import cursors, load_tasks
from engine.request import InfillRequest, InfillResult, Mode, Want

Class = Literal["equal", "near_tie", "unexcused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One hole to compare: its text on both sides and the kind it is counted under."""

    name: str
    kind: str
    prefix: str
    suffix: str
    want: Want


def places(data: Path | None, holes: int, seed: int) -> list[Place]:
    """Half from HumanEval-Infilling where it is given, the rest from real files."""
    found: list[Place] = []
    if data is not None:
        tasks = load_tasks(data)
        step = max(1, len(tasks) // max(1, holes // 2))
        found = [
            Place(
                name=task.task_id,
                kind="humaneval",
                prefix=task.prefix,
                suffix=task.suffix,
                want=task.want,
            )
            for task in tasks[seed % step :: step][: holes // 2]
        ]
    wants: tuple[Want, ...] = ("line", "line", "line", "block")
    found += [
        Place(
            name=f"{cursor.name}#{number}",
            kind=cursor.kind,
            prefix=cursor.prefix,
            suffix=cursor.suffix,
            want=wants[number % len(wants)],
        )
        for number, cursor in enumerate(cursors(holes - len(found), seed=seed))
    ]
    return found


def classify(ar: InfillResult, verified: InfillResult) -> Class:
    """Equal in text and in the number of tokens, or excused by a near-tie, or neither."""
    if ar.text == verified.text and ar.tokens == verified.tokens:
        return "equal"
    return "near_tie" if ar.near_ties or verified.near_ties else "unexcused"


def compare(engine: Infiller, place: Place, max_tokens: int, ar_first: bool) -> dict[str, object]:
    """Fills one hole in both modes. The order alternates: neither always finds a warm cache."""
    order: tuple[Mode, Mode] = ("ar", "verified") if ar_first else ("verified", "ar")
    results = {
        mode: engine.infill(
            InfillRequest(
                prefix=place.prefix,
                suffix=place.suffix,
                max_tokens=max_tokens,
                language="python",
                want=place.want,
                mode=mode,
                syntax=False,
            )
        )
        for mode in order
    }
    ar, verified = results["ar"], results["verified"]
    verdict = classify(ar, verified)
    row: dict[str, object] = {
        "class": verdict,
        "kind": place.kind,
        "near_ties": bool(ar.near_ties or verified.near_ties),
        "tokens": verified.tokens,
        "forwards": verified.forwards,
        "empty": not verified.text,
    }
    if verdict != "equal":
        row |= {"ar": ar.text, "verified": verified.text, "ar_tokens": ar.tokens}
    return row


def measure(engine: Infiller, holes: Sequence[Place], max_tokens: int, rows: Rows) -> None:
    """Compares every hole not done yet, saying each unexcused one at once."""
    with Progress(sum(place.name not in rows.done for place in holes), "holes") as progress:
        for number, place in enumerate(holes):
            if place.name in rows.done:
                continue
            row = compare(engine, place, max_tokens, ar_first=number % 2 == 0)
            rows.add(place.name, row)
            if row["class"] == "unexcused":
                say(f"\n{place.name}: ar {row['ar']!r} but verified {row['verified']!r}")
            progress.step()


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Counts by class and by kind; how often a near-tie could have excused a difference at all."""
    classes = Counter(str(row["class"]) for row in rows)
    kinds = Counter(str(row["kind"]) for row in rows)
    tokens = sum(int(str(row["tokens"])) for row in rows)
    forwards = sum(int(str(row["forwards"])) for row in rows)
    return {
        "benchmark": "equality",
        "n": len(rows),
        "equal": classes["equal"],
        "near_tie": classes["near_tie"],
        "unexcused": classes["unexcused"],
        "holes_with_near_ties": ratio(sum(bool(row["near_ties"]) for row in rows), len(rows)),
        "empty": sum(bool(row["empty"]) for row in rows),
        "tokens": tokens,
        "tokens_per_forward": ratio(tokens, forwards, 3),
        "kinds": dict(sorted(kinds.items())),
    }


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equality", description=__doc__)
    parser.add_argument("--data", type=Path, help="a HumanEval-…Infilling.jsonl.gz for half of it")
    parser.add_argument("--holes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--out", type=Path, help="stop and go on: rows per hole (JSON lines)")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    add_model_arguments(parser)
    return parser.parse_args(argv)


def run(options: argparse.Namespace) -> int:
    """Loads, compares, reports; raises EngineError, BenchmarkError, KeyboardInterrupt."""
    holes = places(options.data, options.holes, options.seed)
    weights = options.weights.name if options.weights else "catalogue"
    rows = Rows(options.out, f"equality {options.model} {weights} {options.max_tokens}")
    engine = load_engine(options.model, options.weights, options.threads)
    measure(engine, holes, options.max_tokens, rows)
    figures = summary(rows.of(place.name for place in holes))
    labels = {"model": engine.name, "seed": options.seed, "max_tokens": options.max_tokens}
    write_figures({**figures, **labels}, as_json=options.json)
    return 1 if figures["unexcused"] else 0


def main(argv: list[str] | None = None) -> int:
    return finish(lambda: run(parse_arguments(argv)))


if __name__ == "__main__":
    sys.exit(main())

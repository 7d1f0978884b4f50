"""Holes in real files that training never saw, by kind: how near the text comes to the original.

Exact match, edit similarity, the first line, the characters that are right before the first error,
whether the file still parses; tokens per forward and milliseconds. Knows the engine's request and
result only.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cuts import describe, length_class, length_classes
from benchmarks.engine_run import Infiller, add_model_arguments, finish, load_engine
from benchmarks.figures import Row, brief, cost, number, share, split, total
from benchmarks.filling import Filling, Series, add_filling_arguments, fill, filling_of, turns
from benchmarks.holes import KINDS, Hole, Nodes, choose_holes
from benchmarks.projects import SourceFile, manifest_of, packages, source_files, unseen
from benchmarks.report import BenchmarkError, Progress, Rows, ratio, say, write_figures
from benchmarks.scoring import edit_similarity, exact, first_line, parses, useful_prefix
from benchmarks.tasks import choose
from engine.training.corpus.languages import LANGUAGES

MAX_TOKENS = 96
SHARES = (
    ("em", "em"),
    ("edit_similarity", "edit_similarity"),
    ("first_line", "first_line"),
    ("parse_rate", "parses"),
    ("useful_prefix", "useful_prefix"),
    ("useful_share", "useful_share"),
)


def score(hole: Hole, filled: Row) -> Row:
    """The filled hole with its likeness to the original; `group` is the file."""
    text, original = str(filled["text"]), hole.canonical
    useful = useful_prefix(text, original)
    return {
        "kind": hole.kind,
        "language": hole.language,
        "group": f"{hole.project}/{hole.file}",
        "em": exact(text, original),
        "edit_similarity": round(edit_similarity(text, original), 4),
        "first_line": first_line(text, original),
        "useful_prefix": useful,
        "useful_share": ratio(useful, len(original.rstrip())),
        "parses": parses(hole.prefix + text + hole.suffix, hole.language),
        **filled,
    }


def measure(engine: Infiller, holes: Sequence[Hole], series: Sequence[Series]) -> None:
    """Fills every hole not done yet; each row is kept as soon as it is known."""
    left = list(turns(holes, series, lambda hole: hole.hole_id))
    if (done := len(holes) * len(series) - len(left)) > 0:
        say(f"{done} of {len(holes) * len(series)} holes are done already")
    with Progress(len(left), "holes") as progress:
        for hole, one in left:
            place = describe(engine.tokenizer, hole.prefix, hole.canonical, hole.suffix)
            request = one.filling.request(hole.prefix, hole.suffix, hole.want, hole.language)
            one.rows.add(hole.hole_id, score(hole, fill(engine, request) | place))
            progress.step(hole.kind)


def summary(rows: Sequence[Row]) -> dict[str, object]:
    """The figures over all rows, then by kind, by language if several, by length, by cursor."""

    def line(some: Sequence[Row]) -> dict[str, object]:
        return brief(some, SHARES)

    def length(row: Row) -> str:
        return length_class(int(number(row["hole_tokens"])))

    by_language = split(rows, lambda row: str(row["language"]), line)
    return {
        **{name: share(rows, column) for name, column in SHARES},
        "useful_characters": int(total(rows, "useful_prefix")),
        "n": len(rows),
        **cost(rows),
        "by_kind": split(rows, lambda row: str(row["kind"]), line, KINDS),
        "by_length": split(rows, length, line, length_classes()),
        "by_cursor": split(rows, lambda row: str(row["cursor"]), line),
        **({"by_language": by_language} if len(by_language) > 1 else {}),
    }


def add_hole_arguments(parser: argparse.ArgumentParser) -> None:
    """Which holes: --data, --site, --language, --kind, --holes, --every, --limit, --seed."""
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders of sources, package archives or packages, beside the installed packages",
    )
    parser.add_argument(
        "--site",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="site-packages folders to take packages from (default: this interpreter's)",
    )
    parser.add_argument("--manifest", type=Path, help="what the denoiser was trained on")
    parser.add_argument("--language", nargs="+", choices=LANGUAGES, default=["python"])
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--holes", type=int, default=500, help="of each kind and language")
    parser.add_argument("--every", type=int, default=1, help="take every n-th of each kind")
    parser.add_argument("--limit", type=int, help="at most so many of each kind and language")
    parser.add_argument("--seed", type=int, default=0)


def holes_of(options: argparse.Namespace) -> list[Hole]:
    """The holes that the command line asks for; raises BenchmarkError where there are none."""
    limit = 1 if options.limit is None else options.limit
    if min(options.holes, options.every, limit) < 1:
        raise BenchmarkError("--holes, --every and --limit must be at least 1")
    manifest = options.manifest or manifest_of(options.model)
    found = unseen(packages(options.data, options.site), manifest)
    files = source_files(found, options.language)
    holes: list[Hole] = []
    for language in options.language:
        holes += holes_in([file for file in files if file.language == language], options)
    if not holes:
        raise BenchmarkError(
            "no held-out project has such files; name folders of more projects with --data, "
            "or site-packages folders with --site"
        )
    counts = Counter(hole.project for hole in holes)
    say("holes: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return holes


def holes_in(files: Sequence[SourceFile], options: argparse.Namespace) -> list[Hole]:
    """The holes of each kind that the command line asks for in these files."""
    holes: list[Hole] = []
    nodes, needed = Nodes(), options.holes
    if options.limit is not None:
        needed = min(needed, (options.limit - 1) * options.every + 1)
    for kind in options.kind:
        rng = random.Random(f"{options.seed} {kind}")
        found = choose_holes(files, kind, needed, rng, nodes)
        if found:
            holes += choose(found, every=options.every, offset=0, limit=options.limit)
    return holes


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.realcode", description=__doc__)
    add_hole_arguments(parser)
    add_filling_arguments(parser, max_tokens=MAX_TOKENS)
    parser.add_argument("--out", type=Path, help="stop and go on: rows per hole (JSON lines)")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    add_model_arguments(parser)
    return parser.parse_args(argv)


def run(options: argparse.Namespace) -> None:
    """Cuts, loads, measures, reports; raises EngineError, BenchmarkError, KeyboardInterrupt."""
    filling = filling_of(options)
    holes = holes_of(options)
    weights = options.weights.name if options.weights else "catalogue"
    rows = Rows(options.out, f"realcode {options.model} {weights} {filling}")
    name = options.model
    if any(hole.hole_id not in rows.done for hole in holes):
        engine = load_engine(options.model, options.weights, options.threads)
        name = engine.name
        measure(engine, holes, [Series(filling=filling, rows=rows)])
    figures = summary(rows.of(hole.hole_id for hole in holes))
    write_figures({**figures, **labels(options, filling, name, holes)}, as_json=options.json)


def labels(
    options: argparse.Namespace, filling: Filling, model: str, holes: Sequence[Hole]
) -> dict[str, object]:
    """What was measured, for whoever reads the JSON line later."""
    return {
        "benchmark": "realcode",
        "model": model,
        "languages": options.language,
        "projects": dict(sorted(Counter(hole.project for hole in holes).items())),
        "holes": options.holes,
        "every": options.every,
        **filling.labels(),
        "seed": options.seed,
    }


def main(argv: list[str] | None = None) -> int:
    return finish(lambda: run(parse_arguments(argv)))


if __name__ == "__main__":
    sys.exit(main())

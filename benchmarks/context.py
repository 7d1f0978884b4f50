"""What snippets of other files add: holes in projects, filled with every choice of sources, paired.

The project lies in a folder, and a session as an editor would have it is played: the hole's file is
open, and so are a few files that it imports or that lie beside it. What is shown is chosen by the
server's own code. Recent edits cannot be told from a finished project: that source is not measured.
Rows say how near the text comes to the original; the figures are differences to no snippets at all.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Protocol, cast

from lsprotocol import types as lsp

from benchmarks.compare import SAMPLES, compare, pair
from benchmarks.engine_run import Infiller, add_model_arguments, finish, load_engine
from benchmarks.figures import Row, number, share
from benchmarks.filling import Filling, Series, fill, turns
from benchmarks.holes import Hole
from benchmarks.projects import SourceFile, manifest_of, packages, source_files, unseen
from benchmarks.realcode import SHARES, add_hole_arguments, holes_in, score
from benchmarks.report import BenchmarkError, Progress, Rows, percentile, say, write_figures
from dlsp.config.settings import ContextSource, Settings
from dlsp.context.modules import find_module
from dlsp.context.surroundings import Surroundings
from dlsp.text.document import Documents
from engine.request import Snippet
from engine.syntax import imports

#: Each choice of sources by its name; the first is what the others are compared with.
ARMS: dict[str, tuple[ContextSource, ...]] = {
    "none": (),
    "open": ("open",),
    "imports": ("imports",),
    "both": ("open", "imports"),
}
MAX_TOKENS = 48
#: Open files besides the hole's own: so many that it imports, and so many that lie beside it.
IMPORTED_OPEN, BESIDE_OPEN = 3, 3
LANGUAGE_IDS = {"python": "python", "typescript": "typescript", "javascript": "javascript"}


class Resettable(Infiller, Protocol):
    """An engine that can forget what it has encoded."""

    def reset(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A hole, and what each choice of sources shows with it."""

    hole: Hole
    shown: dict[str, tuple[Snippet, ...]]


@contextmanager
def on_disk(files: Sequence[SourceFile]) -> Iterator[Path]:
    """The files of one project in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="dlsp-context-") as name:
        root = Path(name).resolve()
        for file in files:
            path = root / PurePosixPath(file.name)
            if path.resolve().is_relative_to(root):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.text, encoding="utf-8")
        yield root


def opened_with(hole: Hole, files: Sequence[SourceFile], root: Path) -> list[SourceFile]:
    """The files that are open besides the hole's own, by rule: of those it imports the first, and
    of those in its folder the next by name."""
    by_path = {root / file.name: file for file in files if file.name != hole.file}
    text = hole.prefix + hole.canonical + hole.suffix
    found = [
        find_module(wanted, root / hole.file, (root,)) for wanted in imports(text, hole.language)
    ]
    imported = [path for path in dict.fromkeys(found) if path in by_path][:IMPORTED_OPEN]
    folder = (root / hole.file).parent
    names = sorted(path for path in by_path if path.parent == folder and path not in imported)
    after = [path for path in names if path > root / hole.file]
    beside = [*after, *names][:BESIDE_OPEN]
    return [by_path[path] for path in dict.fromkeys([*imported, *beside]) if path is not None]


async def place_of(hole: Hole, files: Sequence[SourceFile], root: Path) -> Place:
    """What the server's own code shows at a hole, for every choice of sources."""
    documents = Documents(
        root_uri=None,
        folders=[lsp.WorkspaceFolder(uri=root.as_uri(), name="project")],
        encoding="utf-32",
    )
    before = SourceFile(
        project=hole.project,
        name=hole.file,
        language=hole.language,
        text=hole.prefix + hole.suffix,  # what the user has not written yet must not help
    )
    for file in (*opened_with(hole, files, root), before):
        documents.put_text_document(
            lsp.TextDocumentItem(
                uri=(root / file.name).as_uri(),
                language_id=LANGUAGE_IDS.get(file.language, file.language),
                version=1,
                text=file.text,
            )
        )
    document = documents.find((root / hole.file).as_uri())
    assert document is not None, "it was opened last"
    shown: dict[str, tuple[Snippet, ...]] = {}
    for name, sources in ARMS.items():
        surroundings = Surroundings((root,))
        settings = Settings(context=sources)
        await surroundings.choose(document, hole.prefix.count("\n"), documents, settings)
        shown[name] = surroundings.snippets(document, settings)
    return Place(hole=hole, shown=shown)


def places(options: argparse.Namespace) -> list[Place]:
    """Holes at which at least one source shows something; raises BenchmarkError without any."""
    manifest = options.manifest or manifest_of(options.model)
    found = unseen(packages(options.data, options.site), manifest)
    files = source_files(found, options.language)
    by_project: dict[str, list[SourceFile]] = {}
    for file in files:
        by_project.setdefault(file.project, []).append(file)
    several = [file for file in files if len(by_project[file.project]) > 1]
    chosen: list[Place] = []
    for language in options.language:
        holes = holes_in([file for file in several if file.language == language], options)
        for project in dict.fromkeys(hole.project for hole in holes):
            with on_disk(by_project[project]) as root:
                for hole in holes:
                    if hole.project == project:
                        chosen.append(asyncio.run(place_of(hole, by_project[project], root)))
    showing = [place for place in chosen if any(place.shown.values())]
    say(f"snippets are shown at {len(showing)} of {len(chosen)} holes; these are measured")
    if not showing:
        raise BenchmarkError("no held-out project of several files; name folders with --data")
    return showing


def measure(engine: Resettable, chosen: Sequence[Place], series: dict[str, Series]) -> None:
    """Fills every hole with every choice of sources; each row is kept as soon as it is known."""
    arm_of = {id(one): arm for arm, one in series.items()}
    left = list(turns(chosen, list(series.values()), lambda place: place.hole.hole_id))
    with Progress(len(left), "fillings") as progress:
        for place, one in left:
            hole, snippets = place.hole, place.shown[arm_of[id(one)]]
            request = one.filling.request(hole.prefix, hole.suffix, hole.want, hole.language)
            path = f"/{hole.project}/{hole.file}"
            engine.reset()  # else the anchor of the last filling, with its snippets, would serve
            row = fill(engine, replace(request, snippets=snippets, path=path))
            size = sum(len(snippet.text) for snippet in snippets)
            one.rows.add(hole.hole_id, score(hole, row) | {"snippet_characters": size})
            progress.step(hole.kind)


def figures(rows: dict[str, list[Row]], *, seed: int) -> dict[str, object]:
    """Each arm's own figures, and its differences to the first arm's with their intervals."""
    base, *others = rows
    by_id = {arm: {str(row["id"]): row for row in some} for arm, some in rows.items()}
    return {
        "n": len(rows[base]),
        "arms": {
            arm: {
                **{name: share(some, column) for name, column in SHARES},
                "shown_at": share(
                    [{"shown": number(row["snippet_characters"]) > 0} for row in some], "shown"
                ),
                "snippet_characters_p50": percentile(
                    [number(row["snippet_characters"]) for row in some], 0.5
                ),
                "ms_p50": percentile([number(row["ms"]) for row in some], 0.5),
            }
            for arm, some in rows.items()
        },
        "differences": {
            arm: {
                name: found
                for name, found in compare(
                    pair(by_id[base], by_id[arm]), samples=SAMPLES, seed=seed
                ).items()
                if name in ("em", "edit_similarity", "first_line", "useful_share", "same_text")
            }
            for arm in others
        },
    }


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context", description=__doc__)
    add_hole_arguments(parser)
    parser.set_defaults(kind=["rest", "line", "arguments"], holes=60)
    parser.add_argument(
        "--arms", nargs="+", choices=ARMS, default=list(ARMS), help="which choices of sources"
    )
    parser.add_argument("--out", type=Path, help="stop and go on: a folder with rows per hole")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    add_model_arguments(parser)
    return parser.parse_args(argv)


def run(options: argparse.Namespace) -> None:
    """Cuts, chooses, loads, measures, reports; raises EngineError, BenchmarkError."""
    chosen = places(options)
    filling = Filling(mode="verified", max_tokens=MAX_TOKENS)
    series = {
        arm: Series(
            filling=filling,
            rows=Rows(
                options.out / f"{arm}.jsonl" if options.out else None,
                f"context {options.model} {arm} {filling}",
            ),
        )
        for arm in ARMS
        if arm in options.arms
    }
    if len(series) < 2:
        raise BenchmarkError("name at least two arms: the first is compared with the others")
    keys = [place.hole.hole_id for place in chosen]
    name = options.model
    if any(key not in one.rows.done for key in keys for one in series.values()):
        loaded = load_engine(options.model, options.weights, options.threads)
        engine = cast(Resettable, loaded)
        name = engine.name
        measure(engine, chosen, series)
    found = figures({arm: one.rows.of(keys) for arm, one in series.items()}, seed=options.seed)
    labels = {
        "benchmark": "context",
        "model": name,
        "languages": options.language,
        "kinds": options.kind,
        "projects": len({place.hole.project for place in chosen}),
        "seed": options.seed,
    }
    write_figures({**found, **labels}, as_json=options.json)


def main(argv: list[str] | None = None) -> int:
    return finish(lambda: run(parse_arguments(argv)))


if __name__ == "__main__":
    sys.exit(main())

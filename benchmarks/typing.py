"""What a person feels while typing: real files are typed by replay, at human speed, over LSP.

A piece of each file is taken out and typed again, key by key, into the real server with its own
engine; after every key a suggestion is asked for, as editors do, and what comes before the next key
is compared with the file. Nothing is ever accepted, so every key is typed. Knows LSP only.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.editor import Editor, Ghost, initialize_params
from benchmarks.engine_run import finish
from benchmarks.lsp_session import LOADING_S, server_options
from benchmarks.own_engine import engine_clients, own_engine
from benchmarks.projects import SourceFile, manifest_of, packages, source_files, unseen
from benchmarks.report import BenchmarkError, Progress, percentile, ratio, write_figures
from dlsp.commands.rpc_child import RpcChild
from engine.catalog import default_model
from engine.syntax import check

#: Seconds between two keys: the middle, and how far they scatter (log-normal). A word's first key
#: takes longer, and a new line is thought about.
GAP_S, SCATTER = 0.16, 0.35
WORD_FACTOR, LINE_S = 1.4, 0.7
SOON_MS = 100.0
BRACKETS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = frozenset(")]}\"'`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A file and the piece of it, from `start` to `end`, that is typed."""

    file: SourceFile
    start: int
    end: int

    @property
    def whole(self) -> str:
        """The file as it is when all is typed."""
        return self.file.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A suggestion that came before the next key: at `at` in the file."""

    at: int
    text: str
    ms: float
    right: bool
    misplaced: bool
    broken: bool
    why: dict[str, Any] = field(default_factory=dict)

    @property
    def from_memory(self) -> bool:
        """Whether the engine was not asked for it."""
        return self.why.get("backend") == "memory"


@dataclass(slots=True, kw_only=True)
class Replay:
    """What came of one script."""

    script: Script
    keys: int = 0
    late: int = 0
    shown: list[Shown] = field(default_factory=list)
    silences: Counter[str] = field(default_factory=Counter)


def choose_scripts(files: Sequence[SourceFile], args: argparse.Namespace) -> list[Script]:
    """Two files of each of ten projects, say, and a piece of each that begins at a line."""
    rng = random.Random(args.seed)
    projects: dict[str, list[SourceFile]] = defaultdict(list)
    for file in files:
        if len(file.text) > 4 * args.keys:
            projects[file.project].append(file)
    chosen: list[Script] = []
    for name in sorted(projects)[: args.projects]:
        for file in rng.sample(projects[name], min(args.files, len(projects[name]))):
            starts = [at for at, line in _lines(file.text) if line.strip() and at > args.keys]
            start = rng.choice([at for at in starts if at + 2 * args.keys < len(file.text)])
            end = file.text.find("\n", start + args.keys)
            chosen.append(Script(file=file, start=start, end=end))
    if not chosen:
        raise BenchmarkError("no held-out project has such files; name folders with --data")
    return chosen


def _lines(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    for line in text.split("\n"):
        yield at, line
        at += len(line) + 1


def keys_of(typed: str) -> Iterator[str]:
    """Keys; the indentation of a new line comes with Enter, as editors do it."""
    at = 0
    while at < len(typed):
        end = at + 1
        if typed[at] == "\n" or at == 0:
            while end < len(typed) and typed[end] in " \t" and typed[at] in " \t\n":
                end += 1
        yield typed[at:end]
        at = end


def bracket_pairs(text: str, start: int, end: int) -> dict[int, int]:
    """Offset of each opening bracket in a piece of text -> that of its closing one."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for at in range(start, end):
        if text[at] in BRACKETS:
            opened.append(at)
        elif text[at] in BRACKETS.values():
            while opened and BRACKETS[text[opened[-1]]] != text[at]:
                opened.pop()
            if opened:
                pairs[opened.pop()] = at
    return pairs


def _press(editor: Editor, key: str, *, closer: int | None, closes: bool) -> None:
    """One key; the editor closes brackets that are going to be closed, and they are typed over."""
    if closes:
        editor.go(editor.cursor + 1)
        return
    editor.replace(editor.cursor, editor.cursor, key + (BRACKETS[key] if closer else ""))
    if closer:
        editor.go(editor.cursor - 1)


def gap_s(key: str, before: str, rng: random.Random) -> float:
    """How long somebody takes until the key after this one."""
    gap = rng.lognormvariate(0.0, SCATTER) * GAP_S
    if key.startswith("\n"):
        return gap + rng.expovariate(1.0 / LINE_S)
    return gap * (WORD_FACTOR if not (before + key)[-1].isalnum() else 1.0)


async def replay(server: RpcChild, script: Script, rng: random.Random, number: int) -> Replay:
    """Type one script; raises BenchmarkError when the document is not the file at the end."""
    file, found = script.file, Replay(script=script)
    uri = Path(f"/benchmark/{number}/{Path(file.name).name}").as_uri()
    text = file.text[: script.start] + file.text[script.end :]
    editor = Editor(server, uri, text, encoding="utf-16", language=file.language)
    editor.go(script.start)
    asking: list[asyncio.Task[None]] = []
    at = script.start
    pairs = bracket_pairs(file.text, script.start, script.end)
    for key in keys_of(file.text[script.start : script.end]):
        _press(editor, key, closer=pairs.get(at), closes=at in pairs.values())
        at += len(key)
        found.keys += 1
        asking.append(asyncio.ensure_future(_ask(editor, found, at)))
        await asyncio.sleep(gap_s(key, file.text[:at], rng))
    await asyncio.gather(*asking)
    found.late = editor.late
    server.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    if editor.text[: editor.cursor] != file.text[: script.end]:
        raise BenchmarkError(f"{file.name}: what was typed is not what the file says")
    return found


async def _ask(editor: Editor, found: Replay, at: int) -> None:
    started, before = time.perf_counter(), editor.text
    cursor = editor.cursor
    ghost = await editor.ask()
    ms = (time.perf_counter() - started) * 1000.0
    if ghost is None:
        reason = str((await editor.why()).get("reason"))
        found.silences[reason.partition(" (")[0]] += 1
        return
    shown = judge(ghost, found.script, before, cursor, at)
    why = await editor.why()
    found.shown.append(
        Shown(
            at=at,
            text=ghost.text,
            ms=ms,
            right=shown.right,
            misplaced=shown.misplaced,
            broken=shown.broken,
            why=why if why.get("text") == ghost.text else {},
        )
    )


def judge(ghost: Ghost, script: Script, text: str, cursor: int, at: int) -> Shown:
    """Compare a suggestion for `text` with the file, in which the cursor is at `at`."""
    covered = text[ghost.start : ghost.end]
    verdict = check(
        prefix=text[: ghost.start],
        text=ghost.text,
        suffix=text[ghost.end :],
        language=script.file.language,
    )
    return Shown(
        at=at,
        text=ghost.text,
        ms=0.0,
        right=script.whole.startswith(ghost.text, at),
        misplaced=ghost.start != cursor or not CLOSERS.issuperset(covered),
        broken=verdict.status == "broken",
    )


def saved(found: Replay) -> int:
    """Characters that accepting every right suggestion as soon as it came would have saved."""
    behind, total = 0, 0
    for shown in sorted(found.shown, key=lambda one: one.at):
        gain = min(shown.at + len(shown.text), found.script.end) - shown.at - 1
        if shown.right and shown.at >= behind and gain > 0:
            total += gain
            behind = shown.at + gain + 1
    return total


def figures(replays: Sequence[Replay], asked: int) -> dict[str, object]:
    """The figures over all replays; `asked`: requests that came to the engine."""
    shown = [one for found in replays for one in found.shown]
    keys = sum(found.keys for found in replays)
    typed = sum(found.script.end - found.script.start for found in replays)
    times = [one.ms for one in shown]
    fresh = [one.ms for one in shown if not one.from_memory]
    return {
        "benchmark": "typing",
        "files": len(replays),
        "projects": len({found.script.file.project for found in replays}),
        "keys": keys,
        "shown": len(shown),
        "late": sum(found.late for found in replays),
        "silences": dict(sum((found.silences for found in replays), Counter()).most_common(8)),
        "ms_p50": round(percentile(times, 0.5), 1),
        "ms_p90": round(percentile(times, 0.9), 1),
        "fresh_ms_p50": round(percentile(fresh, 0.5), 1),
        "fresh_ms_p90": round(percentile(fresh, 0.9), 1),
        "nonempty_under_100ms": ratio(sum(ms < SOON_MS for ms in times), len(times)),
        "useful": ratio(sum(map(saved, replays)), typed),
        "right": ratio(sum(one.right for one in shown), len(shown)),
        "from_memory": ratio(sum(one.from_memory for one in shown), len(shown)),
        "wrong_place": sum(one.misplaced for one in shown),
        "new_syntax_errors": sum(one.broken for one in shown),
        "requests_per_100_keys": round(100 * ratio(asked, keys), 1),
        # each would have been a forward of its own, but for the drafts that it was among
        "reinfill_saved": sum(
            one.why.get("from", {}).get("memory", 0) for one in shown if not one.from_memory
        ),
    }


async def measure(args: argparse.Namespace, scripts: Sequence[Script]) -> dict[str, object]:
    """Start the server, wait for its engine, type everything; raises BenchmarkError."""
    options = server_options(args.model, args.weights, deadline_ms=args.deadline_ms)
    options["mood"] = args.mood
    with own_engine() as environment:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        listeners = {"dlsp/status": lambda told: _note(told, ready)}
        command = (sys.executable, "-P", "-m", "dlsp", "lsp")
        server = await RpcChild.start(command, listeners, environment=environment)
        try:
            await server.request("initialize", initialize_params("utf-16", options))
            server.notify("initialized", {})
            async with asyncio.timeout(LOADING_S):
                await ready
            before = await _asked(environment)
            found = []
            with Progress(len(scripts), "files") as progress:
                for number, script in enumerate(scripts):
                    rng = random.Random(f"{args.seed} {number}")
                    found.append(await replay(server, script, rng, number))
                    progress.step(f"{len(found[-1].shown)} shown")
            return figures(found, await _asked(environment) - before)
        except TimeoutError:
            raise BenchmarkError("the engine did not become ready") from None
        finally:
            server.abandon()


def _note(told: dict[str, Any], ready: asyncio.Future[None]) -> None:
    """Take one status of the server: the engine is there, or will not be."""
    if not ready.done() and told["state"] == "ready":
        ready.set_result(None)
    elif not ready.done() and told["state"] == "error":
        ready.set_exception(BenchmarkError(str(told["message"])))


async def _asked(environment: dict[str, str]) -> int:
    """How many requests have come to the engine since its start."""
    for client in engine_clients(Path(environment["DLSP_RUNTIME_DIR"])):
        async with client:
            response: httpx.Response = await client.get("/health")
            return int(response.json()["requests"])
    raise BenchmarkError("the engine has gone")


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.typing", description=__doc__)
    parser.add_argument("--projects", type=int, default=10)
    parser.add_argument("--files", type=int, default=2, help="of each project")
    parser.add_argument("--keys", type=int, default=150, help="typed in each file, to a line's end")
    parser.add_argument("--language", action="append", help="repeat for more (default: python)")
    parser.add_argument(
        "--data", type=Path, action="append", default=[], help="folders of projects"
    )
    parser.add_argument("--site", type=Path, action="append", default=[], help="site-packages")
    parser.add_argument("--mood", choices=("quiet", "balanced", "eager"), default="balanced")
    parser.add_argument("--deadline-ms", type=float, default=250.0)
    parser.add_argument("--model", help="catalogue name (default: the server's own)")
    parser.add_argument("--weights", type=Path, help="a GGUF file or a folder in the hub's layout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    """Choose, type, report; raises EngineError, BenchmarkError, KeyboardInterrupt."""
    found = unseen(packages(args.data, args.site), manifest_of(args.model or default_model()))
    scripts = choose_scripts(source_files(found, args.language or ["python"]), args)
    told = {"model": args.model or default_model(), "mood": args.mood, "seed": args.seed}
    write_figures({**asyncio.run(measure(args, scripts)), **told}, as_json=args.json)


def main(argv: list[str] | None = None) -> int:
    return finish(lambda: run(parse_arguments(argv)))


if __name__ == "__main__":
    sys.exit(main())

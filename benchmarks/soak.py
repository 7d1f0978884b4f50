"""Hours of typing in minutes: whether memory stays flat, and nothing is lost or left behind.

Real files are typed into the real server, a request after each key, faster than anyone types; some
suggestions are accepted, whole or in part, some letters taken back, documents closed and others
opened. Memory is read between documents; the second quarter of the run is compared with the last.
Knows LSP, and processes as Linux shows them; the engine is one of the benchmark's own.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.editor import Editor, initialize_params
from benchmarks.engine_run import finish
from benchmarks.lsp_session import LOADING_S, server_options
from benchmarks.own_engine import engines, own_engine, runs
from benchmarks.report import BenchmarkError, Progress, say, write_figures
from benchmarks.tasks import stdlib_files
from dlsp.commands.rpc_child import ChildLost, RpcChild

KEYS_PER_DOCUMENT = 250
#: How much of an hour's typing a key stands for: five keys a second.
KEYS_PER_HOUR = 5 * 3600
#: More than this share is growth.
FLAT = 0.02
#: What the engine may keep of contexts: little, so that it is full long before half of the run.
MEMORY_MB = 32
_ANSWER_S = 120.0
_ENDING_S = 20.0


@dataclass(slots=True)
class Tally:
    """What a run has seen so far; megabytes of memory, one sample a document."""

    keys: int = 0
    requests: int = 0
    answered: int = 0
    shown: int = 0
    accepted: int = 0
    server_mb: list[float] = field(default_factory=list)
    engine_mb: list[float] = field(default_factory=list)
    engine_ids: set[int] = field(default_factory=set)


class Typist:
    """Types one document after another; what it does next is drawn from a seed."""

    def __init__(self, server: RpcChild, tally: Tally, *, seed: int, pause_s: float) -> None:
        self._server, self._tally = server, tally
        self._rng = random.Random(seed)
        self._pause_s = pause_s
        self._asking: list[asyncio.Task[object]] = []

    async def document(self, file: Path, keys: int) -> None:
        """Type a part of a file into the rest of it, then close it."""
        text = file.read_text(encoding="utf-8")
        start = text.index("\n", self._rng.randrange(len(text) // 2)) + 1
        uri = Path(f"/soak/{file.stem}.py").as_uri()
        editor = Editor(
            self._server, uri, text[:start] + text[start + keys :], encoding="utf-16",
            language="python",
        )  # fmt: skip
        editor.go(start)
        for key in text[start : start + keys]:
            editor.type(key)
            self._tally.keys += 1
            self._ask(editor)
            await asyncio.sleep(self._pause_s)
            if self._rng.random() < 0.05:
                await self._look(editor)
        await self._settle()
        self._server.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def _ask(self, editor: Editor) -> None:
        self._tally.requests += 1
        self._asking = [task for task in self._asking if not self._counted(task)]
        self._asking.append(asyncio.ensure_future(editor.ask()))

    async def _look(self, editor: Editor) -> None:
        """Rest, see what is suggested, and take it, take some of it, or take back a letter."""
        await self._settle()
        self._tally.requests += 1
        ghost = await asyncio.wait_for(editor.ask(), _ANSWER_S)
        self._tally.answered += 1
        if ghost is None:
            editor.backspace()
            return
        self._tally.shown += 1
        if self._rng.random() < 0.5:
            editor.accept(ghost)
            self._tally.accepted += 1
        else:
            editor.accept_part(ghost, 1 + len(ghost.text) // 2)

    async def _settle(self) -> None:
        """Every request has had its answer."""
        if not self._asking:
            return
        done, late = await asyncio.wait(self._asking, timeout=_ANSWER_S)
        self._asking = [task for task in done if not self._counted(task)]
        if late:
            raise BenchmarkError(f"{len(late)} requests had no answer within {_ANSWER_S:.0f} s")

    def _counted(self, task: asyncio.Task[object]) -> bool:
        if task.done():
            task.result()  # raises what the server refused
            self._tally.answered += 1
        return task.done()


async def measure(options: argparse.Namespace) -> dict[str, object]:
    """One run; raises BenchmarkError."""
    started = time.monotonic()
    tally = Tally()
    with own_engine() as environment:
        server_id = await _run(options, tally, environment)
        await _gone([server_id])
    left = [process_id for process_id in (server_id, *tally.engine_ids) if runs(process_id)]
    growth = {"server": growth_of(tally.server_mb), "engine": growth_of(tally.engine_mb)}
    lost = tally.requests - tally.answered
    return {
        "benchmark": "soak",
        "model": options.model,
        "keys": tally.keys,
        "hours": round(tally.keys / KEYS_PER_HOUR, 2),
        "seconds": round(time.monotonic() - started),
        "requests": tally.requests,
        "lost": lost,
        "shown": tally.shown,
        "accepted": tally.accepted,
        "server_mb": quarters(tally.server_mb),
        "engine_mb": quarters(tally.engine_mb),
        "growth": growth,
        "engines": len(tally.engine_ids),
        "orphans": len(left),
        "passed": max(growth.values()) <= FLAT
        and not left
        and not lost
        and len(tally.engine_ids) == 1,
        "seed": options.seed,
    }


async def _run(options: argparse.Namespace, tally: Tally, environment: Mapping[str, str]) -> int:
    command = (sys.executable, "-P", "-m", "dlsp", "lsp")
    server = await RpcChild.start(command, {}, environment=environment)
    settings = server_options(options.model, None, deadline_ms=250.0)
    settings["memory_mb"] = MEMORY_MB
    files = stdlib_files()
    random.Random(options.seed).shuffle(files)
    folder = Path(environment["DLSP_RUNTIME_DIR"])
    try:
        await server.request("initialize", initialize_params("utf-16", settings))
        server.notify("initialized", {})
        typist = Typist(server, tally, seed=options.seed, pause_s=options.pause_ms / 1000.0)
        await _load(server)
        documents = max(8, options.keys // KEYS_PER_DOCUMENT)
        with Progress(documents, "documents") as progress:
            for number in range(documents):
                await typist.document(files[number % len(files)], KEYS_PER_DOCUMENT)
                running = engines(folder)
                tally.engine_ids.update(running)
                tally.server_mb.append(resident_mb(server.process_id))
                tally.engine_mb.append(sum(map(resident_mb, running)))
                progress.step(f"{tally.server_mb[-1]:.1f} + {tally.engine_mb[-1]:.1f} MB")
        await server.request("shutdown", None)
        server.notify("exit", None)
        await asyncio.wait_for(server.wait(), _ENDING_S)
    except ChildLost as error:
        raise BenchmarkError(str(error)) from None
    finally:
        server.abandon()
    return server.process_id


async def _load(server: RpcChild) -> None:
    """One answer, for which the model has to be there."""
    editor = Editor(
        server, Path("/soak/first.py").as_uri(), "import ", encoding="utf-16", language="python"
    )
    await asyncio.wait_for(editor.ask(), LOADING_S)
    why = await editor.why()
    if why.get("error"):
        raise BenchmarkError(why["error"]["message"])


async def _gone(process_ids: Sequence[int]) -> None:
    until = time.monotonic() + _ENDING_S
    while any(map(runs, process_ids)) and time.monotonic() < until:
        await asyncio.sleep(0.1)


def resident_mb(process_id: int) -> float:
    """Memory of a process that is its own, in megabytes: what is mapped from files is shared, and
    the system drops and reads it as it likes."""
    try:
        lines = Path(f"/proc/{process_id}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        raise BenchmarkError(
            f"process {process_id} is gone, or this is not Linux: its memory cannot be read"
        ) from None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields["RssAnon"].split()[0]) / 1024.0


def quarters(samples: Sequence[float]) -> list[float]:
    """The median of each quarter."""
    size = len(samples) / 4
    parts = [samples[round(n * size) : round((n + 1) * size)] for n in range(4)]
    return [round(statistics.median(part), 1) for part in parts if part]


def growth_of(samples: Sequence[float]) -> float:
    """By which share the last quarter lies above the second; the first is for warming up."""
    found = quarters(samples)
    return round(found[-1] / found[1] - 1.0, 4) if len(found) == 4 and found[1] else 0.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--keys", type=int, default=8 * KEYS_PER_HOUR, help="default: eight hours")
    parser.add_argument("--pause-ms", type=float, default=20.0, help="between two keys")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    options = parser.parse_args(argv)

    def work() -> int:
        found = asyncio.run(measure(options))
        write_figures(found, as_json=options.json)
        if not found["passed"]:
            say("soak: memory grew, or something was lost or left behind")
        return 0 if found["passed"] else 1

    return finish(work)


if __name__ == "__main__":
    sys.exit(main())

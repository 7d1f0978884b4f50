"""What a suggestion needs, looked at one by one: each check says what it found and what to do.

Changes nothing but this: it makes the folders that dlsp would make, and the sample at the end
starts the engine as an editor would. torch is asked for in the engine's environment, never here.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsp import __version__
from dlsp.client.engine_facts import ask_engine
from dlsp.client.engine_link import ask_health, client_of
from dlsp.client.engine_process import EngineFolder, ProcessSettings
from dlsp.client.wire import Health
from dlsp.commands.complete_command import Hole
from dlsp.commands.editors_found import editors
from dlsp.commands.one_shot import ask_server
from dlsp.config.settings import Settings, parse
from dlsp.scores.scorecard import data_dir
from engine.request import EngineError

#: Free space that a folder should have, in megabytes.
_ROOM_MB = 200
#: How long the sample waits for an engine that loads its model, and for the suggestion.
_LOADING_MS, _SAMPLE_MS = 120_000.0, 10_000.0
_CPUINFO = Path("/proc/cpuinfo")
_CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")
_SAMPLE = "def add(first, second):\n    return \n\n\nassert add(1, 2) == 3\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at: well, or with advice."""

    name: str
    ok: bool
    found: str
    advice: str = ""

    def line(self) -> str:
        """The check for a person."""
        told = f"{'ok ' if self.ok else 'NO '} {self.name}: {self.found}"
        return told if self.ok else f"{told}: {self.advice}"


def examine() -> Iterator[Check]:
    """Every check, the quick ones first; the sample only where nothing is known to be missing."""
    checks: list[Check] = []
    parsed = parse(environment=os.environ)
    yield (python := _python())
    yield _settings(parsed.problems)
    for check in (*_folders(), *_engine(parsed.settings), *_editors()):
        checks.append(check)
        yield check
    if python.ok and all(check.ok for check in checks if check.name != "editor"):
        yield _sample()


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check(
        name="python",
        ok=sys.version_info >= (3, 11),
        found=f"dlsp {__version__}, Python {found}",
        advice="install Python 3.11 or newer, and dlsp in it",
    )


def _settings(problems: tuple[str, ...]) -> Check:
    return Check(
        name="settings",
        ok=not problems,
        found="; ".join(problems) or "the environment sets nothing wrong",
        advice="correct these variables; docs/settings.md lists all settings",
    )


def _folders() -> Iterator[Check]:
    yield _folder("data folder", data_dir(), "DLSP_DATA_DIR")
    folder = EngineFolder(ProcessSettings())
    try:
        folder.prepare()
    except EngineError as error:
        yield Check(name="engine folder", ok=False, found=str(folder.path), advice=str(error))
        return
    yield _folder("engine folder", folder.path, "DLSP_RUNTIME_DIR", room_mb=1)


def _folder(name: str, path: Path, variable: str, *, room_mb: int = _ROOM_MB) -> Check:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=path):
            left_mb = shutil.disk_usage(path).free // 1_000_000
    except OSError as error:
        return Check(
            name=name,
            ok=False,
            found=f"{path}: {error.strerror}",
            advice=f"make it writable, or set {variable} to another folder",
        )
    return Check(
        name=name,
        ok=left_mb >= room_mb,
        found=f"{path}, writable, {left_mb:,} MB free",
        advice=f"free some space, or set {variable} to a folder on another disk",
    )


def _engine(settings: Settings) -> Iterator[Check]:
    """The engine's program and environment, its model, and the one that runs, if any."""
    if settings.engine_url is not None:
        yield Check(name="engine", ok=True, found=f"elsewhere, at {settings.engine_url}")
        return
    try:
        about = ask_engine("about")
        models = ask_engine("models", "--json")
    except EngineError as error:
        yield Check(name="engine", ok=False, found=str(error), advice="reinstall dlsp")
        return
    yield from _environment(about)
    yield _folder("cache folder", Path(about["cache"]), "DLSP_CACHE_DIR")
    yield _model(settings, models)
    yield asyncio.run(_running())


def _environment(about: dict[str, Any]) -> Iterator[Check]:
    torch, kernels, missing = about["torch"], about["kernels"], about["missingGrammars"]
    if "error" in torch:
        yield Check(
            name="torch",
            ok=False,
            found=f"{torch['error']} (in {about['executable']})",
            advice="install it there: see README.md",
        )
    else:
        yield Check(name="torch", ok=True, found=f"{torch['version']}, {about['executable']}")
        gpus = [f"{gpu['name']} with {gpu['memoryMb']:,} MB" for gpu in torch["gpus"]]
        yield Check(name="gpu", ok=True, found=", ".join(gpus) or "none: the processor is used")
    error = kernels.get("error")
    yield Check(
        name="processor",
        ok=error is None,
        found=_processor(torch.get("cpu")) + ("" if error else f", {kernels['threads']} threads"),
        advice=error or "",
    )
    yield Check(
        name="grammars",
        ok=not missing,
        found=f"missing for {', '.join(missing)}" if missing else "all are there",
        advice="without them nothing is checked in these languages: reinstall dlsp",
    )


def _processor(capability: str | None) -> str:
    try:
        flags = set(_CPUINFO.read_text(encoding="ascii", errors="replace").split())
    except OSError:
        flags = set()
    features = [name for name in _CPU_FEATURES if name in flags]
    return f"{platform.machine()} {' '.join(features) or (capability or '').lower()}".strip()


def _model(settings: Settings, models: list[dict[str, Any]]) -> Check:
    weights = settings.developer.weights
    if weights is not None or not any(model["name"] == settings.model for model in models):
        path = Path(weights or settings.model).expanduser()
        names = ", ".join(model["name"] for model in models)
        return Check(
            name="model",
            ok=path.exists(),
            found=f"{path}, a path of your own" if path.exists() else f"no {path}",
            advice=f"name a file or folder that exists, or one of {names}",
        )
    [model] = [model for model in models if model["name"] == settings.model]
    digest = f", sha256 {model['sha256'][:12]}" if model.get("sha256") else ""
    where = f"on disk{digest}" if model["cached"] else "not on this disk"
    fits = model.get("fits") is not False
    return Check(
        name="model",
        ok=model["cached"] and fits,
        found=f"{model['name']}, {model['megabytes']:,} MB, {where}",
        advice=f"run: dlsp-engine pull {model['name']} (an editor would fetch it, too)"
        if fits
        else "too large for this machine's memory: choose another of `dlsp-engine models`",
    )


async def _running() -> Check:
    endpoint = EngineFolder(ProcessSettings()).endpoint()
    health: Health | None = None
    if endpoint is not None:
        async with client_of(endpoint) as client:
            try:
                health = await ask_health(client)
            except EngineError as error:
                return Check(name="engine", ok=False, found="it hangs", advice=str(error))
    if health is None:
        return Check(name="engine", ok=True, found="not running; the first suggestion starts it")
    return Check(
        name="engine",
        ok=health.status != "error",
        found=f"running, version {health.version}, process {health.pid}, model {health.model}, "
        f"{health.status}",
        advice=health.message,
    )


def _editors() -> Iterator[Check]:
    found = list(editors())
    if not found:
        yield Check(name="editor", ok=True, found="no Neovim or VS Code on the path")
    for editor in found:
        note = f", {editor.note}" if editor.note else ""
        told = f"{editor.name} {editor.version}{note}"
        yield Check(name="editor", ok=editor.fits, found=told, advice=editor.advice)


def _sample() -> Check:
    """One suggestion through the real server, as an editor would get it."""
    options = {
        "deadline_ms": _SAMPLE_MS,
        "developer": {"start_wait_ms": _LOADING_MS, "scorecard": False},
    }
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sample.py"
        path.write_text(_SAMPLE, encoding="utf-8")
        hole = Hole(path=path, text=_SAMPLE, line=1, column=len("    return "))
        try:
            found = asyncio.run(ask_server(hole, options))
        except EngineError as error:
            return Check(name="sample", ok=False, found="no answer", advice=str(error))
    in_all_s = time.monotonic() - started
    if found.get("error"):
        return Check(name="sample", ok=False, found="an error", advice=found["error"]["message"])
    if not found["text"]:
        told = found.get("reason") or "the model had nothing to add"
        return Check(name="sample", ok=False, found="nothing", advice=f"{told}; try another model")
    # Without the wait for an engine that had yet to load its model.
    work_ms = sum(ms for stage, ms in found["ms"].items() if stage not in ("queue", "total"))
    return Check(
        name="sample",
        ok=True,
        found=f"{found['text']!r} by {found['model']}: {work_ms:.0f} ms of work, "
        f"{in_all_s:.1f} s with starting all that did not run",
    )

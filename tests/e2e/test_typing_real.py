"""Typing with a real model in the engine's own process: what is prepared, and what is cut off."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.editor import INVOKED, Editor, initialize_params
from dlsp.client.backend import Backend, ProcessSettings
from dlsp.commands.rpc_child import RpcChild
from dlsp.config.settings import Settings
from engine.request import InfillRequest

pytestmark = pytest.mark.model

MODEL = "smollm2-135m"
DOCUMENT = "import os\n\n\ndef names(folder):\n    found = os.listdir(folder)\n    return "


@pytest.fixture
def folder(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of our own; its engine is ended after."""
    path = Path(tempfile.mkdtemp(prefix="dlsp-e2e-"))
    monkeypatch.setenv("DLSP_RUNTIME_DIR", str(path))
    monkeypatch.setenv("DLSP_DATA_DIR", str(path))
    try:
        yield path
        asyncio.run(backend(path).stop_engine())
    finally:
        shutil.rmtree(path, ignore_errors=True)


def backend(folder: Path) -> Backend:
    process = ProcessSettings(folder=folder, log_file=folder / "engine.log")
    return Backend.local(Settings(model=MODEL), process)


async def test_what_follows_an_accepted_suggestion_was_prepared(folder: Path) -> None:
    ready = asyncio.Event()

    def on_status(params: dict[str, object]) -> None:
        if params["state"] == "ready":
            ready.set()

    command = (sys.executable, "-P", "-m", "dlsp", "lsp")
    server = await RpcChild.start(command, {"dlsp/status": on_status})
    try:
        options = {"model": MODEL, "mood": "eager", "deadlineMs": 60_000}
        await server.request("initialize", initialize_params("utf-16", options))
        server.notify("initialized", {})
        await asyncio.wait_for(ready.wait(), 300)
        editor = Editor(server, "file:///a.py", DOCUMENT, encoding="utf-16", language="python")
        ghost = await editor.ask(trigger=INVOKED)
        assert ghost is not None
        asked = await editor.why()
        assert (asked["backend"], asked["finish_reason"]) == ("unix", "stop")

        await asyncio.sleep(5.0)  # nobody types: the one behind is prepared
        editor.accept(ghost)
        await editor.ask()
        assert (await editor.why())["backend"] == "memory"
        await server.request("shutdown", None)
        server.notify("exit", None)
        await asyncio.wait_for(server.wait(), 10)
    finally:
        server.abandon()


async def test_a_request_that_is_hung_up_on_ends_at_its_next_step(folder: Path) -> None:
    engine = backend(folder)
    short = InfillRequest(prefix=DOCUMENT, max_tokens=8, mode="ar", syntax=False)
    first = await engine.complete(short)
    step_ms = first.ms.verify / max(first.forwards, 1)
    long = InfillRequest(
        prefix="# " + "word " * 50, want="block", max_tokens=1000, mode="ar", syntax=False
    )
    running = asyncio.ensure_future(engine.complete(long))
    await asyncio.sleep(20 * step_ms / 1000)  # by this machine's own steps: a fast one is done soon
    assert not running.done(), "the long request was not long enough to prove anything"
    running.cancel()
    second = await engine.complete(short)
    assert second.text == first.text
    # A thousand steps were asked for; what was waited for is far from them.
    assert second.ms.queue < 100 * step_ms
    await engine.close()


async def test_the_context_was_encoded_before_the_first_key(folder: Path) -> None:
    engine = backend(folder)
    request = InfillRequest(prefix=DOCUMENT, suffix="\n", language="python", max_tokens=4)
    await engine.warm(request)
    reply = await engine.complete(request)
    assert reply.cached_tokens == reply.prompt_tokens > 10
    idle = InfillRequest(prefix=DOCUMENT + "x", suffix="\n", max_tokens=4, idle=True)
    assert (await engine.complete(idle)).finish_reason != "cancelled"
    [record] = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert record["pid"] != os.getpid()
    await engine.close()

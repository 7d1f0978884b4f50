"""The whole path with a real model: editor, server, engine process, weights. The small model."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pytest_lsp import ClientServerConfig, LanguageClient

from dlsp.client.backend import Backend, ProcessSettings
from dlsp.config.settings import Settings
from tests.e2e.test_lsp_session import (
    SERVER,
    Editor,
    Replies,
    client_statuses,
    completion_params,
    custom,
    environment,
    make_client,
    open_document,
)

pytestmark = pytest.mark.model

MODEL = "smollm2-135m"
START = "import os\n\n\ndef read_lines(path):\n    with open(path) as file:\n        "
TYPED = (
    "lines = file.readlines()\n        return [line.strip() for line in lines]\n\n\n"
    "def write_lines(path, lines):\n    with open(path, 'w') as file:\n        "
    "for line in lines:\n            file.write(line + '\\n')\n\n\ndef main():\n    lines = read_"
)[:200]


#: A runtime folder of our own, so that the user's engine is left alone.
RUNTIME = Path(tempfile.mkdtemp(prefix="dlsp-e2e-"))


@pytest.fixture(scope="module")
def folder(smollm2: Path) -> Iterator[Path]:
    try:
        yield RUNTIME
        settings = ProcessSettings(folder=RUNTIME, log_file=RUNTIME / "engine.log")
        asyncio.run(Backend.local(Settings(model=MODEL), settings).stop_engine())
    finally:
        shutil.rmtree(RUNTIME, ignore_errors=True)


@pytest_lsp.fixture(
    config=ClientServerConfig(
        server_command=SERVER,
        client_factory=make_client,
        server_env={**environment(), "DLSP_RUNTIME_DIR": str(RUNTIME)},
    )
)
async def client(lsp_client: LanguageClient, folder: Path):  # type: ignore[no-untyped-def]
    yield
    if not lsp_client.stopped and lsp_client._server.returncode is None:
        await lsp_client.shutdown_session()


async def begin(client: LanguageClient, folder: Path) -> None:
    """Initialise and wait until the engine has loaded its model."""
    await client.initialize_session(
        lsp.InitializeParams(
            process_id=os.getpid(),
            capabilities=lsp.ClientCapabilities(),
            initialization_options={
                "model": MODEL,
                "deadline_ms": 60_000,
                "developer": {"debug": True},
            },
        )
    )
    for _ in range(3000):
        if any(status["state"] == "ready" for status in client_statuses(client)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(client_statuses(client))


async def test_type_two_hundred_characters_cancel_most_accept_the_last(
    client: LanguageClient, folder: Path
) -> None:
    await begin(client, folder)
    editor = Editor(client, START, "utf-16")
    open_document(client, editor.text, language="python")
    replies, requests = Replies(client), {}
    for number, character in enumerate(TYPED):
        editor.insert(character)
        future = client.protocol.send_request(
            lsp.TEXT_DOCUMENT_INLINE_COMPLETION,
            completion_params(editor.position(editor.cursor)),
            msg_id=f"completion-{number}",
        )
        requests[number] = asyncio.wrap_future(future)
        if number % 4 and number < len(TYPED) - 1:
            client.protocol.notify(lsp.CANCEL_REQUEST, lsp.CancelParams(id=f"completion-{number}"))
        await asyncio.sleep(0.02)
    ends = await asyncio.gather(*requests.values(), return_exceptions=True)

    assert sum(isinstance(end, JsonRpcException) for end in ends) > len(TYPED) // 4
    [item] = ends[-1].items
    assert item.insert_text
    assert item.insert_text.isprintable()
    editor.insert(item.insert_text)
    mirror = await custom(client, "dlsp/documentText")
    assert mirror == {"text": editor.text, "version": editor.version}
    why = await custom(client, "dlsp/why")
    assert why["model"] == MODEL
    assert why["tokens"] == sum(why["from"].values())  # 0: the rest of an earlier suggestion
    counted = {key: n for key, n in replies.by_id.items() if key.startswith("completion-")}
    assert counted == {f"completion-{number}": 1 for number in range(len(TYPED))}


async def test_killed_during_a_request_it_answers_null_and_the_next_a_completion(
    client: LanguageClient, folder: Path
) -> None:
    await begin(client, folder)
    editor = Editor(client, "\n".join(f"value_{n} = {n}" for n in range(200)) + "\n\n", "utf-16")
    open_document(client, editor.text, language="python")
    editor.insert("print(val")
    asked = completion_params(editor.position(editor.cursor))
    pending = asyncio.ensure_future(client.text_document_inline_completion_async(asked))
    await asyncio.sleep(0.3)  # 768 tokens of context take longer than this
    assert not pending.done()
    [engine] = [json.loads(path.read_text())["pid"] for path in folder.glob("*.json")]
    os.kill(engine, signal.SIGKILL)
    assert await pending is None

    found = await client.text_document_inline_completion_async(asked)
    assert found is not None
    assert found.items[0].insert_text

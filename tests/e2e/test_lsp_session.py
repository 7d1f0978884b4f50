"""Whole sessions with the real server process over stdio, against a FIM engine without a model."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pytest_lsp import ClientServerConfig, LanguageClient

from dlsp.client.backend import Backend, ProcessSettings
from dlsp.config.settings import Settings
from dlsp.protocol import plain_converter
from tests.e2e.processes import alive

SERVER = [sys.executable, "-m", "dlsp", "lsp"]
FAKE = Path(__file__).parent / "fake_fim.py"
CANCELLED = -32800
URI = "file:///session/no%20grammar.xyz"
# One unit per character nowhere: every encoding counts differently.
TYPED = ("let é = 日本 + 😀;\n" * 20)[:200]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_until_ready(url: str) -> None:
    for _ in range(400):
        try:
            httpx.get(f"{url}/health", trust_env=False)
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the fake engine did not come up")


@pytest.fixture(scope="module")
def engine_url() -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, str(FAKE), str(port), "30"])
    try:
        wait_until_ready(url)
        yield url
    finally:
        process.kill()
        process.wait()


def make_client() -> LanguageClient:
    client = LanguageClient(converter_factory=plain_converter)
    client.feature("dlsp/status")(lambda params: client_statuses(client).append(params))
    pytest_lsp.client.register_lsp_features(client)
    return client


def client_statuses(client: LanguageClient) -> list[dict[str, Any]]:
    return client.__dict__.setdefault("statuses", [])


def environment() -> dict[str, str]:
    kept = {"DLSP_CACHE_DIR", "DLSP_DATA_DIR"}
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith("DLSP_")
    }


@pytest_lsp.fixture(
    config=ClientServerConfig(
        server_command=SERVER, client_factory=make_client, server_env=environment()
    )
)
async def client(lsp_client: LanguageClient):  # type: ignore[no-untyped-def]
    yield
    if not lsp_client.stopped and lsp_client._server.returncode is None:
        await lsp_client.shutdown_session()


def options(engine_url: str) -> dict[str, Any]:
    return {"engine_url": engine_url, "deadline_ms": 20_000, "developer": {"debug": True}}


async def initialize(
    client: LanguageClient, engine_url: str, encoding: str | None = None
) -> lsp.InitializeResult:
    general = lsp.GeneralClientCapabilities(
        position_encodings=[lsp.PositionEncodingKind(encoding)] if encoding else None
    )
    return await client.initialize_session(
        lsp.InitializeParams(
            process_id=os.getpid(),
            capabilities=lsp.ClientCapabilities(general=general),
            initialization_options=options(engine_url),
        )
    )


def open_document(client: LanguageClient, text: str, uri: str = URI, language: str = "") -> None:
    item = lsp.TextDocumentItem(uri=uri, language_id=language, version=1, text=text)
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(text_document=item))


def completion_params(position: lsp.Position, uri: str = URI) -> lsp.InlineCompletionParams:
    return lsp.InlineCompletionParams(
        text_document=lsp.TextDocumentIdentifier(uri=uri),
        position=position,
        context=lsp.InlineCompletionContext(trigger_kind=lsp.InlineCompletionTriggerKind.Invoked),
    )


async def custom(client: LanguageClient, method: str, uri: str = URI) -> Any:
    return await client.protocol.send_request_async(method, {"textDocument": {"uri": uri}})


async def raw_request(client: LanguageClient, method: str, params: object) -> Any:
    """A request that pygls itself would refuse to send."""
    answered: concurrent.futures.Future[Any] = concurrent.futures.Future()
    client.protocol._request_futures["raw"] = answered
    client.protocol._send_data({"jsonrpc": "2.0", "id": "raw", "method": method, "params": params})
    return await asyncio.wrap_future(answered)


def units(text: str, encoding: str) -> int:
    width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    codec = encoding if encoding == "utf-8" else f"{encoding}-le"
    return len(text.encode(codec)) // width


class Editor:
    """The editor's own buffer: a plain string, edited at a cursor."""

    def __init__(self, client: LanguageClient, text: str, encoding: str) -> None:
        self.client, self.text, self.encoding = client, text, encoding
        self.cursor, self.version = len(text), 1

    def position(self, offset: int) -> lsp.Position:
        before = self.text[:offset]
        line = before.count("\n")
        start = before.rfind("\n") + 1
        return lsp.Position(line=line, character=units(before[start:], self.encoding))

    def insert(self, new: str) -> None:
        where = self.position(self.cursor)
        self.text = self.text[: self.cursor] + new + self.text[self.cursor :]
        self.cursor += len(new)
        self.version += 1
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                text_document=lsp.VersionedTextDocumentIdentifier(uri=URI, version=self.version),
                content_changes=[
                    lsp.TextDocumentContentChangePartial(
                        range=lsp.Range(start=where, end=where), text=new
                    )
                ],
            )
        )


class Replies:
    """Counts the replies on the wire by request id, before pygls pairs them up."""

    def __init__(self, client: LanguageClient) -> None:
        self.by_id: dict[str, int] = {}
        handle = client.protocol._handle_response

        def count(msg_id: Any, result: Any = None, error: Any = None) -> None:
            self.by_id[str(msg_id)] = self.by_id.get(str(msg_id), 0) + 1
            handle(msg_id, result, error)

        client.protocol._handle_response = count  # type: ignore[method-assign]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32", None])
async def test_type_two_hundred_characters_cancel_most_accept_the_last(
    client: LanguageClient, engine_url: str, encoding: str | None
) -> None:
    result = await initialize(client, engine_url, encoding)
    assert result.capabilities.position_encoding == (encoding or "utf-16")
    assert result.capabilities.inline_completion_provider
    editor = Editor(client, "# 😀 start\r\n\x0cform feed\u2028here\n", encoding or "utf-16")
    open_document(client, editor.text)
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
        if number % 10 == 0:
            await asyncio.sleep(0.01)
    ends = await asyncio.gather(*requests.values(), return_exceptions=True)

    assert sum(isinstance(end, JsonRpcException) for end in ends) > len(TYPED) // 2
    for number, end in enumerate(ends[:-1]):
        if isinstance(end, JsonRpcException):
            assert end.code == CANCELLED
            assert number % 4
        else:
            # Superseded, or answered before the next character was typed.
            assert end is None or end.items
    [item] = ends[-1].items
    assert item.range == lsp.Range(*[editor.position(editor.cursor)] * 2)
    assert item.insert_text == str(len(editor.text))
    editor.insert(item.insert_text)
    mirror = await custom(client, "dlsp/documentText")
    assert mirror == {"text": editor.text, "version": editor.version}
    expected = {f"completion-{number}" for number in range(len(TYPED))}
    counted = {key: times for key, times in replies.by_id.items() if key in expected}
    assert counted == dict.fromkeys(expected, 1)


async def test_why_tells_the_last_answer_and_status_says_ready(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    open_document(client, "abc def ")
    assert await custom(client, "dlsp/why") is None
    position = lsp.Position(line=0, character=8)
    await client.text_document_inline_completion_async(completion_params(position))
    why = await custom(client, "dlsp/why")
    assert why["text"] == "8"
    assert why["from"] == {"base": 2, "lookup": 0, "denoiser": 1, "memory": 0}
    assert (why["model"], why["mode"], why["tokens"], why["forwards"]) == ("fake", "verified", 3, 2)
    assert set(why["ms"]) == {
        "context", "queue", "encode", "denoise", "verify", "syntax", "total"
    }  # fmt: skip
    assert why["ms"]["total"] >= 30
    assert client_statuses(client)[-1]["state"] == "ready"


async def test_a_superseded_request_answers_null_and_lets_the_engine_go(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    open_document(client, "one SLOW\ntwo ")
    before = httpx.get(f"{engine_url}/stats", trust_env=False).json()
    slow = asyncio.ensure_future(
        client.text_document_inline_completion_async(
            completion_params(lsp.Position(line=0, character=8))
        )
    )
    await until(lambda: stats(engine_url)["received"] > before["received"])
    found = await client.text_document_inline_completion_async(
        completion_params(lsp.Position(line=1, character=4))
    )
    assert found.items
    assert await slow is None
    await until(lambda: stats(engine_url)["cut_off"] > before["cut_off"])


async def test_a_cancelled_request_answers_cancelled_and_lets_the_engine_go(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    open_document(client, "one SLOW")
    before = stats(engine_url)
    request = client.protocol.send_request(
        lsp.TEXT_DOCUMENT_INLINE_COMPLETION,
        completion_params(lsp.Position(line=0, character=8)),
        msg_id="to-cancel",
    )
    await until(lambda: stats(engine_url)["received"] > before["received"])
    client.protocol.notify(lsp.CANCEL_REQUEST, lsp.CancelParams(id="to-cancel"))
    with pytest.raises(JsonRpcException) as caught:
        await asyncio.wrap_future(request)
    assert caught.value.code == CANCELLED
    await until(lambda: stats(engine_url)["cut_off"] > before["cut_off"])


async def test_a_change_in_flight_makes_the_answer_null(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    editor = Editor(client, "some text ", "utf-16")
    open_document(client, editor.text)
    request = client.protocol.send_request(
        lsp.TEXT_DOCUMENT_INLINE_COMPLETION, completion_params(editor.position(editor.cursor))
    )
    editor.insert("x")
    assert await asyncio.wrap_future(request) is None
    assert "changed" in (await custom(client, "dlsp/why"))["reason"]


async def test_an_engine_error_is_null_and_a_status_and_the_server_stays_up(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    open_document(client, "FAIL\nfine ")
    failed = completion_params(lsp.Position(line=0, character=4))
    assert await client.text_document_inline_completion_async(failed) is None
    await until(lambda: client_statuses(client)[-1]["state"] == "error")
    assert "out of memory" in client_statuses(client)[-1]["message"]
    assert (await custom(client, "dlsp/why"))["error"]["message"]
    fine = completion_params(lsp.Position(line=1, character=5))
    assert (await client.text_document_inline_completion_async(fine)).items
    assert client_statuses(client)[-1]["state"] == "ready"
    assert client.messages == []


async def test_documents_that_are_not_open_and_positions_past_the_end(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    position = lsp.Position(line=99, character=99)
    assert await client.text_document_inline_completion_async(completion_params(position)) is None
    open_document(client, "a b ")
    found = await client.text_document_inline_completion_async(completion_params(position))
    assert found.items[0].range.start == lsp.Position(line=0, character=4)


async def test_an_unreadable_request_is_answered_and_bad_options_are_said_once(
    client: LanguageClient, engine_url: str
) -> None:
    await client.initialize_session(
        lsp.InitializeParams(
            capabilities=lsp.ClientCapabilities(),
            initialization_options={**options(engine_url), "mode": "fast", "nonsense": 1},
        )
    )
    with pytest.raises(JsonRpcException):
        await raw_request(client, lsp.TEXT_DOCUMENT_INLINE_COMPLETION, {"position": "nowhere"})
    said = [message.message for message in client.log_messages]
    assert len([line for line in said if "mode" in line and "fast" in line]) == 1
    assert len([line for line in said if "'nonsense'" in line]) == 1
    assert client.messages == []


async def test_the_clients_configuration_is_asked_for_and_followed(
    client: LanguageClient, engine_url: str
) -> None:
    client.set_configuration({"developer": {"decoding": "ar"}, "nonsense": 1}, section="dlsp")
    await client.initialize_session(
        lsp.InitializeParams(
            capabilities=lsp.ClientCapabilities(
                workspace=lsp.WorkspaceClientCapabilities(configuration=True)
            ),
            initialization_options={**options(engine_url), "developer": {"decoding": "free"}},
        )
    )
    open_document(client, "abc ")
    params = completion_params(lsp.Position(line=0, character=4))

    async def mode() -> Any:
        await client.text_document_inline_completion_async(params)
        return (await custom(client, "dlsp/why"))["mode"]

    await until(lambda: any("nonsense" in said.message for said in client.log_messages))
    assert await mode() == "ar"
    client.set_configuration({"developer": {"decoding": "verified"}}, section="dlsp")
    client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(settings=None))
    for _ in range(100):
        if await mode() == "verified":
            return
    raise AssertionError("the new settings were not followed")


async def test_the_mirror_is_not_shown_without_the_debug_option(
    client: LanguageClient, engine_url: str
) -> None:
    await client.initialize_session(
        lsp.InitializeParams(
            capabilities=lsp.ClientCapabilities(),
            initialization_options={"engine_url": engine_url},
        )
    )
    open_document(client, "secret")
    assert await custom(client, "dlsp/documentText") is None


async def test_shutdown_and_exit_end_the_process(client: LanguageClient, engine_url: str) -> None:
    await initialize(client, engine_url)
    open_document(client, "one SLOW")
    pending = asyncio.ensure_future(
        client.text_document_inline_completion_async(
            completion_params(lsp.Position(line=0, character=8))
        )
    )
    await asyncio.sleep(0.1)
    await client.shutdown_session()
    assert await client._server.wait() == 0
    assert await asyncio.gather(pending, return_exceptions=True) in ([None],)


EDITOR = """
import json, os, subprocess, sys
server = subprocess.Popen({server!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
keep = os.dup(server.stdin.fileno())
if {inherited}:
    subprocess.Popen(["sleep", "60"], pass_fds=(keep,))
body = json.dumps({{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {{
    "processId": os.getpid(), "rootUri": None, "capabilities": {{}},
    "initializationOptions": {{"engine_url": {url!r}}}}}}})
server.stdin.write(f"Content-Length: {{len(body)}}\\r\\n\\r\\n{{body}}".encode())
server.stdin.flush()
server.stdout.readline()
print(server.pid, flush=True)
import time; time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads process states in /proc")
@pytest.mark.parametrize("inherited", [False, True], ids=["stdin-closes", "stdin-stays-open"])
def test_a_killed_editor_takes_the_server_with_it(engine_url: str, inherited: bool) -> None:
    script = EDITOR.format(server=SERVER, inherited=inherited, url=engine_url)
    editor = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment(),
        start_new_session=True,
    )  # fmt: skip
    assert editor.stdout is not None
    try:
        server = int(editor.stdout.readline())
        assert alive(server)
        editor.kill()
        editor.wait()
        for _ in range(200):
            if not alive(server):
                return
            time.sleep(0.05)
        raise AssertionError("the server outlived its editor")
    finally:
        os.killpg(editor.pid, signal.SIGKILL)


def stats(engine_url: str) -> dict[str, int]:
    found: dict[str, int] = httpx.get(f"{engine_url}/stats", trust_env=False).json()
    return found


async def until(true: Any) -> None:
    for _ in range(400):
        if true():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never happened")


def complete_command(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dlsp", "complete", *arguments],
        env={**environment(), "DLSP_ENGINE_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_complete_command_prints_text_and_json(engine_url: str, tmp_path: Path) -> None:
    file = tmp_path / "a file 日.xyz"
    file.write_text("héllo 😀 \nend\n", encoding="utf-8")
    plain = complete_command(str(file), "--at", "1:9", url=engine_url)
    assert (plain.returncode, plain.stdout) == (0, "8\n"), plain.stderr
    full = complete_command(str(file), "--at", "1:9", "--json", "--mode", "ar", url=engine_url)
    found = json.loads(full.stdout)
    assert full.returncode == 0
    assert (found["text"], found["mode"], found["tokens_per_forward"]) == ("8", "ar", 1.5)
    start = {"line": 0, "character": 8}
    assert found["range"] == {"start": start, "end": start}


def test_complete_command_reports_an_engine_error(engine_url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.xyz"
    file.write_text("FAIL")
    ended = complete_command(str(file), "--at", "1:5", "--json", url=engine_url)
    assert ended.returncode not in (0, 2)
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert "out of memory" in ended.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_complete_command_interrupted(engine_url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.xyz"
    file.write_text("SLOW")
    before = stats(engine_url)["received"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dlsp", "complete", str(file), "--at", "1:5"],
        env={**environment(), "DLSP_ENGINE_URL": engine_url},
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background job ignores Ctrl-C, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while stats(engine_url)["received"] == before and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.model
@pytest.mark.skipif(sys.platform == "win32", reason="the engine's folder is set for Unix")
async def test_complete_command_with_the_real_default_model(qwen: Path, tmp_path: Path) -> None:
    file = tmp_path / "add.py"
    file.write_text("def add(one, two):\n    return \n\n\nprint(add(1, 2))\n")
    folder = tmp_path / "run"
    try:
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "dlsp", "complete", str(file), "--at", "2:12", "--json"],
            env={**environment(), "DLSP_RUNTIME_DIR": str(folder)},
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        found = json.loads(ended.stdout)
        assert found["text"].strip()
        assert "\n" not in found["text"]
        assert found["syntax"] == "ok"
        assert found["tokens"] == sum(found["from"].values()) > 0
        assert found["backend"] == "unix"
        assert "dlsp: " in ended.stderr
    finally:
        settings = ProcessSettings(folder=folder, log_file=folder / "engine.log")
        await Backend.local(Settings(), settings).stop_engine()

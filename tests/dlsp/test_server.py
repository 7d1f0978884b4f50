"""The server object in this process: what it announces, and what it keeps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from dlsp.server import build
from dlsp.session import Session
from dlsp.status import EngineState


class Wire:
    """Collects what the server writes, and feeds it messages as the reader would."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.sent: list[dict[str, Any]] = []
        session.protocol.set_writer(self, include_headers=False)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self.sent.append(json.loads(data))

    def close(self) -> None: ...

    def feed(self, method: str, params: Any, *, msg_id: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if msg_id is not None:
            message["id"] = msg_id
        protocol = self.session.protocol
        parsed = json.loads(json.dumps(message), object_hook=protocol.structure_message)
        protocol.handle_message(parsed)

    def result(self, msg_id: int) -> Any:
        [reply] = [message for message in self.sent if message.get("id") == msg_id]
        return reply["result"]

    def error(self, msg_id: int) -> dict[str, Any]:
        [reply] = [message for message in self.sent if message.get("id") == msg_id]
        found: dict[str, Any] = reply["error"]
        return found


@pytest.fixture
def wire() -> Wire:
    return Wire(build())


def initialize(wire: Wire, encodings: list[str]) -> dict[str, Any]:
    params = {"processId": None, "rootUri": None,
              "capabilities": {"general": {"positionEncodings": encodings}}}  # fmt: skip
    wire.feed(lsp.INITIALIZE, params, msg_id=1)
    found: dict[str, Any] = wire.result(1)["capabilities"]
    return found


def test_capabilities(wire: Wire) -> None:
    announced = initialize(wire, ["utf-16"])
    assert announced["positionEncoding"] == "utf-16"
    assert announced["inlineCompletionProvider"] == {}
    assert announced["textDocumentSync"]["change"] == lsp.TextDocumentSyncKind.Incremental.value


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["utf-8", "utf-16"], "utf-8"), (["utf-32"], "utf-32"), (["utf-7"], "utf-16")],
)
def test_encodings(wire: Wire, offered: list[str], chosen: str) -> None:
    assert initialize(wire, offered)["positionEncoding"] == chosen
    assert wire.session.documents._encoding == chosen


def test_keystrokes_leave_nothing_behind(wire: Wire) -> None:
    initialize(wire, ["utf-16"])
    document = {"uri": "file:///a.py", "version": 1, "languageId": "python", "text": ""}
    wire.feed(lsp.TEXT_DOCUMENT_DID_OPEN, {"textDocument": document})
    start = {"line": 0, "character": 0}
    for version in range(2, 52):
        change = {"range": {"start": start, "end": start}, "text": "x"}
        wire.feed(
            lsp.TEXT_DOCUMENT_DID_CHANGE,
            {"textDocument": {"uri": "file:///a.py", "version": version},
             "contentChanges": [change]},
        )  # fmt: skip
    found = wire.session.documents.find("file:///a.py")
    assert found is not None
    assert (found.text, found.version) == ("x" * 50, 51)
    assert wire.session.protocol._request_futures == {}


def test_status_is_sent_on_change_only(wire: Wire) -> None:
    for state in ("starting", "starting", "ready"):
        wire.session.status.engine(EngineState(state=state))  # type: ignore[arg-type]
    states = [message["params"]["state"] for message in wire.sent]
    assert states == ["starting", "ready"]


def test_a_bug_is_logged_and_answers_null(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        initialize(wire, ["utf-16"])
        document = {"uri": "file:///a.py", "version": 1, "languageId": "python", "text": "x = "}
        wire.feed(lsp.TEXT_DOCUMENT_DID_OPEN, {"textDocument": document})
        wire.session._backend = object()  # type: ignore[assignment]
        params = {"textDocument": {"uri": "file:///a.py"}, "position": {"line": 0, "character": 4},
                  "context": {"triggerKind": 1}}  # fmt: skip
        wire.feed(lsp.TEXT_DOCUMENT_INLINE_COMPLETION, params, msg_id=2)
        while not [message for message in wire.sent if message.get("id") == 2]:
            await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert wire.result(2) is None
    assert "bug in dlsp" in caplog.text
    assert [m for m in wire.sent if m.get("method") == lsp.WINDOW_SHOW_MESSAGE] == []


def test_before_initialize_requests_are_refused_and_notifications_dropped(wire: Wire) -> None:
    where = {"textDocument": {"uri": "file:///a.py"}, "position": {"line": 0, "character": 0}}
    wire.feed(lsp.TEXT_DOCUMENT_DID_OPEN, {"textDocument": {
        "uri": "file:///a.py", "languageId": "python", "version": 1, "text": "x"}})  # fmt: skip
    wire.feed(
        lsp.TEXT_DOCUMENT_INLINE_COMPLETION, {**where, "context": {"triggerKind": 1}}, msg_id=5
    )
    wire.feed("dlsp/why", where, msg_id=6)
    wire.feed(lsp.SHUTDOWN, None, msg_id=7)
    assert [(reply["id"], reply["error"]["code"]) for reply in wire.sent] == [
        (5, -32002), (6, -32002), (7, -32002),
    ]  # fmt: skip
    assert "before initialize" in wire.sent[0]["error"]["message"]
    assert not wire.session.was_shut_down
    assert initialize(wire, ["utf-16"])["positionEncoding"] == "utf-16"
    assert wire.session.documents.find("file:///a.py") is None
    wire.feed("dlsp/why", where, msg_id=8)
    assert wire.result(8) is None


def test_after_shutdown_requests_are_refused_and_exit_is_not(wire: Wire) -> None:
    async def shut_down() -> None:
        initialize(wire, ["utf-16"])
        wire.feed(lsp.SHUTDOWN, None, msg_id=2)
        while not [message for message in wire.sent if message.get("id") == 2]:
            await asyncio.sleep(0.01)

    asyncio.run(shut_down())
    wire.feed("dlsp/stats", {}, msg_id=3)
    wire.feed("dlsp/cursor", {})
    refusal = wire.sent[-1]
    assert (refusal["id"], refusal["error"]["code"]) == (3, -32600)
    with pytest.raises(SystemExit):
        wire.feed(lsp.EXIT, None)


@pytest.mark.parametrize(
    "params",
    [
        None,
        {"position": [1, 2]},
        {"position": {"line": 1}},
        {"position": {"line": -1, "character": 10**40}},
        {"position": {"line": "1", "character": None}},
    ],
)
def test_a_cursor_nowhere_is_let_pass(wire: Wire, params: Any) -> None:
    initialize(wire, ["utf-16"])
    wire.feed("dlsp/cursor", params, msg_id=2)
    assert wire.result(2) is None


@pytest.mark.parametrize("days", [0, -1, True, "30", 10**400, float("nan")])
def test_days_without_meaning_are_refused(wire: Wire, days: Any) -> None:
    async def ask() -> dict[str, Any]:
        initialize(wire, ["utf-16"])
        wire.feed("dlsp/stats", {"days": days}, msg_id=2)
        while not (found := [message for message in wire.sent if message.get("id") == 2]):
            await asyncio.sleep(0.01)
        return found[0]

    assert asyncio.run(ask())["error"]["code"] == -32602


def test_an_expected_error_is_its_line_alone(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "scorecard.sqlite").mkdir()
    monkeypatch.setenv("DLSP_DATA_DIR", str(tmp_path))

    async def ask() -> dict[str, Any]:
        initialize(wire, ["utf-16"])
        wire.feed("dlsp/stats", {}, msg_id=2)
        while not (found := [message for message in wire.sent if message.get("id") == 2]):
            await asyncio.sleep(0.01)
        return found[0]

    error = asyncio.run(ask())["error"]
    assert error["message"].startswith("cannot open")
    assert error.get("data") is None


@pytest.mark.parametrize("paused", [True, False])
def test_the_language_of_a_document_that_is_not_open_cannot_be_paused(
    wire: Wire, paused: bool
) -> None:
    initialize(wire, ["utf-16"])
    params = {"scope": "language", "uri": "file:///closed.py", "paused": paused}
    wire.feed("dlsp/pause", params, msg_id=2)
    error = wire.error(2)
    assert error["code"] == -32602
    assert "file:///closed.py" in error["message"]
    assert wire.session.paused("file:///another.py") is None


@pytest.mark.parametrize("arguments", [None, [], [""], ["one", "two"]])
def test_an_acceptance_names_one_suggestion(wire: Wire, arguments: list[str] | None) -> None:
    initialize(wire, ["utf-16"])
    given = {"command": "dlsp.accepted", "arguments": arguments}
    params = {name: value for name, value in given.items() if value is not None}
    wire.feed(lsp.WORKSPACE_EXECUTE_COMMAND, params, msg_id=2)
    assert wire.error(2)["code"] == -32602

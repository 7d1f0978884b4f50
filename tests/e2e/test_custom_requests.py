"""What LSP has no name for, through the real server: scorecard, status, pause, why, replay."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pytest_lsp import ClientServerConfig, LanguageClient

from dlsp.client.backend import Backend, ProcessSettings
from dlsp.config.settings import Settings
from dlsp.scores.scorecard import Row, read_rows
from tests.e2e.test_lsp_session import (
    SERVER,
    URI,
    Editor,
    client_statuses,
    completion_params,
    custom,
    engine_url,
    environment,
    initialize,
    make_client,
    open_document,
    until,
)

__all__ = ["engine_url"]

#: Known to the server before any test's own folder is there.
DATA = Path(tempfile.mkdtemp(prefix="dlsp-data-"))
CARD = DATA / "scorecard.sqlite"


@pytest_lsp.fixture(
    config=ClientServerConfig(
        server_command=SERVER,
        client_factory=make_client,
        server_env={**environment(), "DLSP_DATA_DIR": str(DATA)},
    )
)
async def client(lsp_client: LanguageClient):  # type: ignore[no-untyped-def]
    yield
    if not lsp_client.stopped and lsp_client._server.returncode is None:
        await lsp_client.shutdown_session()


async def ask(client: LanguageClient, editor: Editor) -> lsp.InlineCompletionItem | None:
    where = completion_params(editor.position(editor.cursor))
    found = await client.text_document_inline_completion_async(where)
    return found.items[0] if found is not None else None


async def request(client: LanguageClient, method: str, params: Any = None) -> Any:
    return await client.protocol.send_request_async(method, params or {})


def id_of(item: lsp.InlineCompletionItem | None) -> str:
    assert item is not None and item.command is not None and item.command.arguments is not None
    assert item.command.command == "dlsp.accepted"
    return str(item.command.arguments[0])


async def row_of(suggestion_id: str, **wanted: object) -> Row:
    """The suggestion's row, once it says what is wanted."""

    def found() -> Row | None:
        rows = {row.id: row for row in read_rows(CARD, days=1)}
        row = rows.get(suggestion_id)
        right = row and all(getattr(row, name) == value for name, value in wanted.items())
        return row if right else None

    await until(lambda: found() is not None)
    row = found()
    assert row is not None
    return row


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_an_acceptance_by_command_and_one_read_off_the_document(
    client: LanguageClient, engine_url: str, encoding: str
) -> None:
    announced = (await initialize(client, engine_url, encoding)).capabilities
    assert announced.execute_command_provider is not None
    assert list(announced.execute_command_provider.commands) == ["dlsp.accepted"]
    before = await request(client, "dlsp/stats")
    editor = Editor(client, "😀 text\n" * 15, encoding)
    open_document(client, editor.text)

    first = await ask(client, editor)
    assert first is not None and first.insert_text == "105"
    editor.insert("105")
    await client.workspace_execute_command_async(
        lsp.ExecuteCommandParams(command="dlsp.accepted", arguments=[id_of(first)])
    )
    row = await row_of(id_of(first), accepted=True)
    assert (row.accepted_characters, row.acceptances, row.shown) == (3, 1, True)
    assert row.model == "fake"

    editor.insert("\n")
    second = await ask(client, editor)
    assert second is not None and second.insert_text == "109"
    editor.insert("1")
    editor.insert("09")
    row = await row_of(id_of(second), accepted=True)
    assert (row.typed_characters, row.accepted_characters) == (1, 2)

    after = await request(client, "dlsp/stats", {"days": 1})
    assert after["accepted"] == before["accepted"] + 2
    assert after["msP50"] >= 30
    data = b"".join(file.read_bytes() for file in DATA.glob("scorecard*"))
    assert "😀".encode() not in data and b"session" not in data, "neither code nor a path"


async def test_nothing_is_kept_when_figures_are_off(
    client: LanguageClient, engine_url: str
) -> None:
    await client.initialize_session(
        lsp.InitializeParams(
            capabilities=lsp.ClientCapabilities(),
            initialization_options={
                "engine_url": engine_url, "deadline_ms": 20_000, "developer": {"scorecard": False},
            },
        )
    )  # fmt: skip
    editor = Editor(client, "off ", "utf-16")
    open_document(client, editor.text)
    item = await ask(client, editor)
    await client.shutdown_session()
    assert id_of(item) not in {row.id for row in read_rows(CARD, days=1)}


async def test_status_tells_model_and_time_and_busy(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    editor = Editor(client, "some ", "utf-16")
    open_document(client, editor.text)
    await ask(client, editor)
    told = client_statuses(client)[-1]
    assert (told["state"], told["model"], told["progress"]) == ("ready", "fake", None)
    assert told["lastMs"] >= 30
    editor.insert("SLOW")
    slow = asyncio.ensure_future(ask(client, editor))
    await until(lambda: client_statuses(client)[-1]["state"] == "busy")
    editor.insert(" and then ")
    assert await ask(client, editor) is not None
    assert await slow is None
    assert client_statuses(client)[-1]["state"] == "ready"


async def test_pause_everywhere_in_a_language_and_in_a_document(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    editor = Editor(client, "some ", "utf-16")
    open_document(client, editor.text, language="klingon")
    for scope in ("all", "language", "document"):
        given = {"scope": scope, "uri": URI, "paused": True}
        assert await request(client, "dlsp/pause", given) == {"paused": True}
        assert await ask(client, editor) is None
        why = await custom(client, "dlsp/why")
        assert why["words"][0].startswith("nothing shown: paused")
        assert (client_statuses(client)[-1]["state"] == "paused") == (scope == "all")
        assert await request(client, "dlsp/pause", {**given, "paused": False}) == {"paused": False}
        assert await ask(client, editor) is not None


async def test_wrong_parameters_are_refused(client: LanguageClient, engine_url: str) -> None:
    await initialize(client, engine_url)
    for method, params in (
        ("dlsp/pause", {"scope": "some", "paused": True}),
        ("dlsp/pause", {"scope": "all", "paused": "yes"}),
        ("dlsp/pause", {"scope": "document", "paused": True}),
        ("dlsp/stats", {"days": -1}),
    ):
        with pytest.raises(JsonRpcException) as caught:
            await request(client, method, params)
        assert caught.value.code == -32602


async def test_models_are_listed_by_the_engines_own_program(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    models = await request(client, "dlsp/models")
    assert [model["current"] for model in models].count(True) == 1
    assert {"name", "description", "licence", "sizeMb", "current", "onDisk"} == set(models[0])


async def test_why_in_words(client: LanguageClient, engine_url: str) -> None:
    await initialize(client, engine_url)
    editor = Editor(client, "some ", "utf-16")
    open_document(client, editor.text)
    await ask(client, editor)
    why = await custom(client, "dlsp/why")
    assert why["gate"]["ask"] is True
    told = [line.split(":")[0] for line in why["words"]]
    assert told == ["shown", "gate", "model", "confidence", "syntax", "privacy", "timing"]


async def test_a_replay_file_holds_nothing_of_the_code(
    client: LanguageClient, engine_url: str
) -> None:
    await initialize(client, engine_url)
    editor = Editor(client, "secretName = 'hidden' + ", "utf-16")
    open_document(client, editor.text)
    assert await custom(client, "dlsp/replay") is None
    item = await ask(client, editor)
    assert item is not None and item.insert_text == "24"
    path = Path((await custom(client, "dlsp/replay"))["path"])
    assert path.parent == DATA / "replays"
    written = path.read_text(encoding="utf-8")
    assert "secretName" not in written and "hidden" not in written
    assert "session" not in written, "nor of its path"
    fields = json.loads(written)
    assert fields["result"]["text"] == "24"
    assert len(fields["request"]["prefix"]) == 24
    given = {"textDocument": {"uri": URI}, "withCode": True}
    with_code = await request(client, "dlsp/replay", given)
    assert "secretName = 'hidden' + " in Path(with_code["path"]).read_text(encoding="utf-8")


@pytest.mark.model
@pytest.mark.skipif(sys.platform == "win32", reason="the engine's folder is set for Unix")
def test_why_and_replay_with_a_real_model(smollm2: Path, tmp_path: Path) -> None:
    file = tmp_path / "add.py"
    file.write_text("def add(one, two):\n    return \n\n\nprint(add(1, 2))\n")
    run, model = Path(tempfile.mkdtemp(prefix="dlsp-e2e-")), "smollm2-135m"
    given = {
        **environment(), "DLSP_MODEL": model, "DLSP_RUNTIME_DIR": str(run),
        "DLSP_DATA_DIR": str(tmp_path / "data"), "DLSP_DEADLINE_MS": "20000",
    }  # fmt: skip

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dlsp", *arguments], env=given, capture_output=True, text=True
        )

    try:
        why = command("why", str(file), "--at", "2:12", "--replay", "--json")
        assert why.returncode == 0, why.stderr
        path = json.loads(why.stdout)["replay"]["path"]
        again = command("replay", path)
        assert (again.returncode, again.stdout) == (0, "the same result\n"), again.stderr
        fields = json.loads(Path(path).read_text())
        assert fields["digest"]
        fields["result"]["text"] += "x"
        Path(path).write_text(json.dumps(fields))
        other = command("replay", path, "--json")
        assert other.returncode == 1
        assert json.loads(other.stdout)["same"] is False
        doctor = command("doctor", "--json")
        checks = {check["name"]: check for check in json.loads(doctor.stdout)}
        assert checks["sample"]["ok"], checks
        assert "running" in checks["engine"]["found"]
        assert doctor.returncode == (0 if all(c["ok"] for c in checks.values()) else 1)
    finally:
        process = ProcessSettings(folder=run, log_file=run / "engine.log")
        asyncio.run(Backend.local(Settings(model=model), process).stop_engine())
        shutil.rmtree(run, ignore_errors=True)

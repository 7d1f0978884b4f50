"""Listening, announcing, guarding and leaving: an engine on real sockets, with a fake infiller."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import threading
import time
from pathlib import Path

import httpx
import pytest
from filelock import FileLock

from engine import __version__
from engine.endpoint import (
    bind_tcp,
    default_runtime_folder,
    prepare_folder,
    read_or_make_token,
)
from engine.place import ServeOptions
from engine.request import WIRE_VERSION, EndpointError
from engine.serve import run_with
from tests.engine.fake_infiller import FakeInfiller
from tests.engine.running_engine import RunningEngine

ASK = {"prompt": "x"}
PATH = "/v1/fim/completions"


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private folder with a short path: the system limits a socket's path to 103 bytes."""
    return tmp_path_factory.mktemp("e")


def options(folder: Path, **fields) -> ServeOptions:
    return ServeOptions(**{"model": "tiny", "socket": folder / "engine.sock", **fields})


def fails(capfd: pytest.CaptureFixture[str], options: ServeOptions) -> str:
    """Run an engine that cannot serve; its exit code is checked, its one line returned."""
    assert run_with(options, lambda _: FakeInfiller()) == EndpointError.exit_code
    error = capfd.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("dlsp-engine: ")]
    assert len(lines) == 1
    assert "Traceback" not in error
    return lines[0]


def test_it_answers_on_the_socket_and_says_where_it_is(folder: Path) -> None:
    with RunningEngine(options(folder)) as engine:
        record = engine.record()
        assert record["socket"] == str(folder / "engine.sock")
        assert (record["pid"], record["version"]) == (os.getpid(), __version__)
        assert (record["wire_version"], record["model"]) == (WIRE_VERSION, "tiny")
        for path in (folder / "engine.sock", folder / "engine.json"):
            assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        with engine.client() as client:
            assert client.post(PATH, json=ASK).json()["choices"][0]["text"] == "alpha beta gamma"
    assert engine.code == 0
    left = {path.name for path in folder.iterdir()}
    assert left <= {"engine.alive", "engine.start"}, "only the locks may stay"


def test_a_folder_is_made_for_this_user_alone(folder: Path) -> None:
    prepare_folder(folder / "a" / "b")
    assert stat.S_IMODE((folder / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_open_to_others_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], mode: int
) -> None:
    folder.chmod(mode)
    assert f"chmod 700 {folder}" in fails(capfd, options(folder))
    assert list(folder.iterdir()) == []


def test_a_folder_of_another_user_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert "belongs to another user" in fails(capfd, options(folder))


def test_a_link_in_place_of_the_folder_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "real").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "real")
    assert "a link is not followed" in fails(capfd, options(folder / "link"))
    assert list((folder / "real").iterdir()) == []


def test_a_path_that_no_socket_can_have_is_told(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "shorter folder" in fails(capfd, options(folder / ("x" * 120)))


def test_a_file_in_place_of_the_socket_is_not_removed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "engine.sock").write_text("mine")
    assert "is not a socket" in fails(capfd, options(folder))
    assert (folder / "engine.sock").read_text() == "mine"


def test_what_a_dead_engine_left_is_replaced(folder: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(folder / "engine.sock"))
    dead.close()
    (folder / "engine.json").write_text('{"pid": 1, "url": "http://engine", "instance": "old"}')
    with RunningEngine(options(folder)) as engine, engine.client() as client:
        assert client.get("/health").status_code == 200


def test_a_living_engine_is_not_displaced(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with RunningEngine(options(folder)) as engine:
        assert f"(pid {os.getpid()}) already serves" in fails(capfd, options(folder))
        with engine.client() as client:
            assert client.post(PATH, json=ASK).status_code == 200


def test_files_that_another_engine_wrote_since_are_left_alone(folder: Path) -> None:
    with RunningEngine(options(folder)) as engine:
        with engine.client() as client:
            client.get("/health")
            (folder / "engine.json").write_text('{"instance": "another", "url": "x"}')
            (folder / "engine.sock").unlink()
            (folder / "engine.sock").write_text("another's")
            client.post("/v1/shutdown")
        engine.join()
    assert json.loads((folder / "engine.json").read_text())["instance"] == "another"
    assert (folder / "engine.sock").read_text() == "another's"


def test_tcp_needs_the_token_and_says_where_it_lies(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = options(folder, socket=None, port=0, endpoint=folder / "engine.json")
    with RunningEngine(chosen) as engine:
        record = engine.record()
        token_file = Path(record["token_file"])
        assert token_file == folder / "engine.token"
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
        assert record["url"].startswith("http://127.0.0.1:")
        token = token_file.read_text().strip()
        assert token not in (folder / "engine.json").read_text()
        with httpx.Client(base_url=record["url"], trust_env=False) as stranger:
            assert stranger.get("/health").status_code == 401
            assert stranger.post("/v1/shutdown").status_code == 401
        with engine.client() as client:
            assert client.post(PATH, json=ASK).status_code == 200
    printed = capfd.readouterr().out
    assert str(token_file) in printed and record["url"] in printed
    assert token not in printed


def test_a_port_without_an_endpoint_file_is_not_announced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DLSP_RUNTIME_DIR", str(folder / "run"))
    chosen = options(folder, socket=None, port=0, idle_exit=0.05)
    assert run_with(chosen, lambda _: FakeInfiller()) == 0
    assert [path.name for path in (folder / "run").iterdir()] == ["engine.token"]


def test_a_busy_port_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with bind_tcp(0) as busy:
        port = busy.getsockname()[1]
        line = fails(capfd, options(folder, socket=None, port=port, token_file=folder / "t"))
    assert f"port {port} is not free" in line
    assert "another --port" in line


def test_a_port_that_is_none_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = fails(capfd, options(folder, socket=None, port=99999, token_file=folder / "t"))
    assert "port 99999" in line


def test_a_token_is_made_once_and_kept(folder: Path) -> None:
    token = read_or_make_token(folder / "t")
    assert len(token) >= 32
    assert read_or_make_token(folder / "t") == token


def test_a_token_that_others_can_read_is_refused(folder: Path) -> None:
    read_or_make_token(folder / "t")
    (folder / "t").chmod(0o644)
    with pytest.raises(EndpointError, match="chmod 600"):
        read_or_make_token(folder / "t")


@pytest.mark.parametrize("content", ["", "short\n", "ü" * 20])
def test_a_token_that_is_none_is_refused(folder: Path, content: str) -> None:
    (folder / "t").write_text(content, encoding="utf-8")
    (folder / "t").chmod(0o600)
    with pytest.raises(EndpointError, match="remove"):
        read_or_make_token(folder / "t")


def test_a_link_in_place_of_the_token_is_refused(folder: Path) -> None:
    read_or_make_token(folder / "real")
    (folder / "t").symlink_to(folder / "real")
    with pytest.raises(EndpointError, match="not a plain file"):
        read_or_make_token(folder / "t")


def test_it_leaves_when_nobody_is_connected(folder: Path) -> None:
    with RunningEngine(options(folder, idle_exit=0.05)) as engine:
        assert engine.join() == 0
    assert not (folder / "engine.json").exists()
    assert not (folder / "engine.sock").exists()


def test_it_stays_while_a_client_is_attached_and_leaves_after(folder: Path) -> None:
    with (
        FileLock(folder / "engine.start") as lock,
        RunningEngine(options(folder, idle_exit=0.05)) as engine,
    ):
        with engine.client() as client, client.stream("GET", "/v1/attach") as presence:
            parts = presence.iter_raw()  # kept: collecting it would hang up
            assert next(parts)
            lock.release()  # until here the lock kept it from leaving
            assert not engine.ends_within(1.0), "it left although a client is attached"
            assert client.get("/health").json()["clients"] == 1
        assert engine.join() == 0


def test_it_leaves_when_its_folder_has_been_removed(folder: Path) -> None:
    run = folder / "run"
    with RunningEngine(options(run, idle_exit=2)) as engine:
        with engine.client() as client:
            client.get("/health")
            shutil.rmtree(run)
        assert engine.join() == 0


def appears(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, "nobody can find the engine"
        time.sleep(0.02)


def test_a_lost_endpoint_file_is_written_again(folder: Path) -> None:
    with RunningEngine(options(folder, idle_exit=0)) as engine:
        path = folder / "engine.json"
        appears(path)
        before = json.loads(path.read_text())
        path.unlink()
        appears(path)
        assert json.loads(path.read_text()) == before
        assert not engine.ends_within(0.1)


def test_it_makes_way_when_its_socket_has_been_removed(folder: Path) -> None:
    with RunningEngine(options(folder, idle_exit=0)) as engine:
        appears(folder / "engine.json")
        (folder / "engine.sock").unlink()
        assert engine.join() == 0
        assert not (folder / "engine.json").exists()


def test_it_does_not_leave_while_somebody_starts_an_engine(folder: Path) -> None:
    with (
        FileLock(folder / "engine.start") as lock,
        RunningEngine(options(folder, idle_exit=0.05)) as engine,
    ):
        assert not engine.ends_within(1.0)
        assert (folder / "engine.json").exists()
        lock.release()
        assert engine.join() == 0


def test_finishing_lets_a_running_request_end_and_ends_presence(folder: Path) -> None:
    answers: list[int] = []
    with RunningEngine(options(folder)) as engine:
        client = engine.client()
        asking = threading.Thread(
            target=lambda: answers.append(
                client.post(PATH, json={"prompt": "wait"}).json()["usage"]["completion_tokens"]
            )
        )
        asking.start()
        assert engine.infiller.waiting.wait(30)
        with engine.client() as other, other.stream("GET", "/v1/attach") as presence:
            assert other.post("/v1/shutdown").status_code == 200
            assert not (folder / "engine.json").exists(), "nobody must find it any more"
            engine.infiller.release.set()
            assert b"".join(presence.iter_raw()).startswith(b'{"attached"')
        asking.join(30)
        assert engine.join() == 0
    assert answers == [3]


def test_both_programs_look_in_the_same_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dlsp.client.engine_process import default_folder

    for name, value in [
        ("DLSP_RUNTIME_DIR", str(folder / "own")),
        ("XDG_RUNTIME_DIR", str(folder)),
        ("XDG_RUNTIME_DIR", str(folder / "missing")),
    ]:
        monkeypatch.delenv("DLSP_RUNTIME_DIR", raising=False)
        monkeypatch.setenv(name, value)
        assert default_runtime_folder() == default_folder()

"""The client of the engine, against real sockets: replies, errors, limits, presence, strangers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dlsp import __version__
from dlsp.client.backend import (
    Backend,
    EngineLost,
    EngineTimeout,
    EngineUnavailable,
    ProcessSettings,
    RemoteError,
)
from dlsp.client.dialects import Fim, Own
from dlsp.client.engine_process import BackOff, EngineFolder
from dlsp.client.wire import parse_error, parse_reply
from dlsp.config.settings import Developer, Settings
from engine.place import ServeOptions
from engine.request import BadRequest, EndpointError, InfillRequest, UnknownModel
from tests.engine.running_engine import RunningEngine

REQUEST = InfillRequest(prefix="x", suffix="y")
#: Stands in for the engine's command where no engine may be started.
NEVER = (sys.executable, "-c", "raise SystemExit('this engine must not be started')")


TINY = Settings(model="tiny")


def with_weights(file: Path) -> Settings:
    return Settings(model="tiny", developer=Developer(weights=str(file)))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


def process(folder: Path, command: tuple[str, ...] = NEVER) -> ProcessSettings:
    return ProcessSettings(engine_command=command, folder=folder, log_file=folder / "engine.log")


def serving(folder: Path, **fields) -> RunningEngine:
    return RunningEngine(
        ServeOptions(**{"model": "tiny", "socket": folder / "engine.sock", **fields})
    )


@asynccontextmanager
async def local(folder: Path, choice: Settings = TINY) -> AsyncIterator[Backend]:
    backend = Backend.local(choice, process(folder))
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def stranger(answer: Callable[[bytes], bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server of another make: what it is sent is kept, what it answers is `answer`'s."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
        body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
        requests.append(head + body)
        writer.write(answer(head + body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
    finally:
        server.close()


def http(status: int, body: Any) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} x\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
    return head.encode() + content


async def test_a_reply_holds_everything_that_the_engine_said(folder: Path) -> None:
    with serving(folder) as engine:
        async with local(folder) as backend:
            reply = await backend.complete(
                InfillRequest(prefix="vor", suffix="nach 🙂", want="block", seed=3, mode="ar")
            )
        asked = engine.infiller.asked[0]
    assert (asked.prefix, asked.suffix, asked.want) == ("vor", "nach 🙂", "block")
    assert (asked.seed, asked.mode) == (3, "ar")
    assert (reply.text, reply.finish_reason) == ("alpha beta gamma", "stop")
    assert (reply.model, reply.backend, reply.mode) == ("fake", "unix", "ar")
    assert (reply.tokens, reply.forwards, reply.steps) == (3, 2, 4)
    assert (reply.prompt_tokens, reply.cached_tokens, reply.near_ties) == (10, 7, 1)
    assert (reply.sources.base, reply.sources.lookup, reply.sources.denoiser) == (1, 1, 1)
    assert (reply.syntax, reply.repaired, reply.confidence) == ("ok", False, 0.5)
    assert (reply.ms.encode, reply.ms.denoise, reply.ms.verify) == (1.0, 2.0, 3.0)
    assert reply.tokens_per_forward == 1.5


async def test_over_tcp_the_token_is_found_by_itself(folder: Path) -> None:
    with serving(folder, socket=None, port=0, endpoint=folder / "engine.json"):
        async with local(folder) as backend:
            assert (await backend.complete(REQUEST)).backend == "http"


async def test_a_port_whose_engine_is_dead_is_not_spoken_to(folder: Path) -> None:
    async with stranger(lambda _: http(200, {"status": "ready"})) as (url, requests):
        (folder / "token").write_text("secret")
        record = {"url": url, "token_file": str(folder / "token"), "instance": "x", "pid": 1}
        (folder / "engine.json").write_text(json.dumps(record))
        async with local(folder) as backend:
            with pytest.raises(EngineUnavailable, match="must not be started"):
                await backend.complete(REQUEST)
    assert requests == []


async def test_the_engine_counts_who_is_there(folder: Path) -> None:
    with serving(folder) as engine:
        async with local(folder) as one, local(folder) as two:
            await one.complete(REQUEST)
            await two.complete(REQUEST)
            health = await one.health()
            assert (health.clients, health.model, health.version) == (2, "tiny", __version__)
            assert health.status == "ready"
        with engine.client() as client:
            while client.get("/health").json()["clients"]:
                await asyncio.sleep(0.01)


async def test_errors_come_back_as_the_class_they_left_as(folder: Path) -> None:
    with serving(folder):
        async with local(folder) as backend:
            with pytest.raises(BadRequest, match="refused by the model"):
                await backend.complete(InfillRequest(prefix="refuse"))
            with pytest.raises(RemoteError, match="boom"):
                await backend.complete(InfillRequest(prefix="boom"))
            assert (await backend.complete(REQUEST)).text


async def test_cancelling_the_caller_ends_the_work_in_the_engine(folder: Path) -> None:
    with serving(folder) as engine:
        async with local(folder) as backend:
            asking = asyncio.ensure_future(backend.complete(InfillRequest(prefix="wait")))
            assert await asyncio.to_thread(engine.infiller.waiting.wait, 30)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert await asyncio.to_thread(engine.infiller.saw_cancel.wait, 30)
            assert (await backend.complete(REQUEST)).text


async def test_a_time_limit_ends_the_work_too(folder: Path) -> None:
    with serving(folder) as engine:
        async with local(folder) as backend:
            await backend.health()
            with pytest.raises(EngineTimeout, match="within 300 ms"):
                await backend.complete(InfillRequest(prefix="wait"), wait_ms=300)
            assert await asyncio.to_thread(engine.infiller.saw_cancel.wait, 30)


async def test_another_weights_file_is_another_engine(folder: Path) -> None:
    with serving(folder, weights=folder / "a.gguf") as engine:
        async with local(folder, with_weights(folder / "a.gguf")) as same:
            assert (await same.complete(REQUEST)).text
        async with local(folder, with_weights(folder / "b.gguf")) as other:
            with pytest.raises(EngineUnavailable, match="must not be started"):
                await other.complete(REQUEST)
        assert engine.join() == 0, "it was asked to finish"


async def test_a_model_named_without_a_file_is_not_served_from_another_users_file(
    folder: Path,
) -> None:
    with serving(folder, weights=folder / "a.gguf") as engine:
        async with local(folder) as other:
            with pytest.raises(EngineUnavailable, match="must not be started"):
                await other.complete(REQUEST)
        assert engine.join() == 0, "it was asked to finish"


async def test_many_requests_at_once_are_all_answered(folder: Path) -> None:
    with serving(folder):
        async with local(folder) as backend:
            replies = await asyncio.gather(*(backend.complete(REQUEST) for _ in range(20)))
    assert {reply.text for reply in replies} == {"alpha beta gamma"}


async def test_a_folder_that_others_may_write_to_is_refused(folder: Path) -> None:
    with serving(folder):
        folder.chmod(0o777)
        try:
            async with local(folder) as backend:
                with pytest.raises(EndpointError, match="chmod 700"):
                    await backend.complete(REQUEST)
        finally:
            folder.chmod(0o700)


async def test_an_engine_that_ends_at_once_is_told_in_its_own_last_words(folder: Path) -> None:
    async with local(folder) as backend:
        with pytest.raises(EngineUnavailable) as caught:
            await backend.complete(REQUEST)
    assert "exit code 1" in str(caught.value)
    assert "this engine must not be started" in str(caught.value)
    assert str(folder / "engine.log") in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_command_that_does_not_exist_is_told(folder: Path) -> None:
    backend = Backend.local(TINY, process(folder, ("/nowhere/python",)))
    try:
        with pytest.raises(EngineUnavailable, match="cannot start /nowhere/python"):
            await backend.complete(REQUEST)
    finally:
        await backend.close()


async def test_repeated_failures_are_not_retried_at_every_keystroke(folder: Path) -> None:
    marker = folder / "starts"
    program = f"open({str(marker)!r}, 'a').write('x'); raise SystemExit('broken')"
    backend = Backend.local(TINY, process(folder, (sys.executable, "-c", program)))
    try:
        for _ in range(3):
            with pytest.raises(EngineUnavailable):
                await backend.complete(REQUEST, wait_ms=20_000)
        backend_off = backend._source._back_off  # type: ignore[attr-defined]
        backend_off._starts = 10
        starts = len(marker.read_text())
        for _ in range(5):
            with pytest.raises(EngineUnavailable, match="next try in"):
                await backend.complete(REQUEST)
        assert len(marker.read_text()) == starts
    finally:
        await backend.close()


def test_back_off_grows_with_every_start_and_has_an_end() -> None:
    back_off = BackOff()
    waits = []
    for _ in range(9):
        waits.append(back_off.wait_s())
        back_off.started()
    assert waits[:2] == [0.0, 0.0], "one crash is bad luck"
    assert waits == sorted(waits)
    assert 0 < waits[2] <= 1.0 and 25 < waits[-1] <= 30.0
    settled = BackOff(settled_s=0.0)
    for _ in range(5):
        settled.started()
    assert settled.wait_s() == 0.0


def test_the_log_is_rotated_by_size(folder: Path) -> None:
    settings = process(folder)
    settings.log_file.write_bytes(b"x" * 1_000_001)
    EngineFolder(settings).start("tiny", None).wait(30)
    assert (folder / "engine.log.1").stat().st_size == 1_000_001
    assert b"must not be started" in settings.log_file.read_bytes()


async def test_proxy_settings_are_never_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"choices": [{"text": "direct"}]}
    async with (
        stranger(lambda _: http(200, {"choices": [{"text": "by the proxy"}]})) as (proxy, seen),
        stranger(lambda _: http(200, answer)) as (url, _),
    ):
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
            monkeypatch.setenv(name.lower(), proxy)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        backend = Backend.remote(url, dialect=Own())
        assert (await backend.complete(REQUEST)).text == "direct"
        await backend.close()
        with serving(folder):
            async with local(folder) as here:
                assert (await here.complete(REQUEST)).text == "alpha beta gamma"
    assert seen == []


async def test_a_foreign_server_may_say_little(folder: Path) -> None:
    answer = {
        "choices": [{"index": 0, "text": "hello", "finish_reason": "eos"}],
        "model": "m", "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }  # fmt: skip
    async with stranger(lambda _: http(200, answer)) as (url, requests):
        backend = Backend.remote(url + "/", "tok", model="m", dialect=Fim())
        reply = await backend.complete(REQUEST)
        await backend.close()
    assert (reply.text, reply.finish_reason, reply.backend) == ("hello", "stop", "http")
    assert (reply.tokens, reply.prompt_tokens, reply.forwards) == (2, 5, 0)
    assert (reply.syntax, reply.ms.total, reply.sources.denoiser) == ("unknown", 0.0, 0)
    assert requests[0].startswith(b"POST /v1/fim/completions HTTP/1.1\r\n")
    assert b"authorization: bearer tok" in requests[0].lower()
    body = json.loads(requests[0].split(b"\r\n\r\n", 1)[1])
    assert (body["prompt"], body["suffix"], body["model"]) == ("x", "y", "m")
    assert "dlsp" not in body


@pytest.mark.parametrize(
    "status, body, error, says",
    [
        (200, b"<html>", RemoteError, "FIM endpoint"),
        (200, {"choices": []}, RemoteError, "FIM endpoint"),
        (200, {"choices": [{"text": None}]}, RemoteError, "FIM endpoint"),
        (500, b"oops", RemoteError, "HTTP 500"),
        (401, {"error": {"message": "who?"}}, RemoteError, "token"),
        (302, b"", RemoteError, "HTTP 302"),
        (404, {"error": {"code": "unknown_model", "message": "no\nm"}}, UnknownModel, "no m"),
    ],
)
async def test_what_is_no_answer_gives_one_line(
    status: int, body: Any, error: type[Exception], says: str
) -> None:
    async with stranger(lambda _: http(status, body)) as (url, _):
        backend = Backend.remote(url, dialect=Own())
        with pytest.raises(error, match=says) as caught:
            await backend.complete(REQUEST)
        await backend.close()
    assert "\n" not in str(caught.value)


async def test_a_connection_cut_in_mid_request_is_told_apart_from_no_connection() -> None:
    async with stranger(lambda _: b"") as (url, requests):
        backend = Backend.remote(url, dialect=Own())
        with pytest.raises(EngineLost, match="ask again"):
            await backend.complete(REQUEST)
        assert len(requests) == 1, "what may have been begun is not asked twice"
    with pytest.raises(EngineUnavailable, match="cannot reach"):
        await backend.complete(REQUEST)
    await backend.close()


async def test_a_server_without_a_health_page_counts_as_ready() -> None:
    async with stranger(lambda _: http(404, b"")) as (url, _):
        backend = Backend.remote(url, dialect=Own())
        assert (await backend.health()).status == "ready"
        await backend.close()


@pytest.mark.parametrize("strange", [None, [], {"choices": {}}, {"choices": [3]}, "x"])
def test_strange_bodies_never_crash_the_reader(strange: object) -> None:
    with pytest.raises(RemoteError):
        parse_reply(strange, REQUEST, "http")
    assert isinstance(parse_error(500, strange), RemoteError)


def test_figures_of_the_wrong_type_are_zero() -> None:
    reply = parse_reply(
        {
            "choices": [{"text": "x"}],
            "usage": {"prompt_tokens": "many", "completion_tokens": float("nan")},
            "dlsp": {"tokens": None, "ms": 3, "from": [], "mode": "magic", "syntax": 1},
        },
        REQUEST,
        "http",
    )
    assert (reply.prompt_tokens, reply.tokens, reply.mode) == (0, 0, "verified")
    assert (reply.syntax, reply.ms.total) == ("unknown", 0.0)

"""The HTTP interface around a fake infiller: shapes, errors, streams, disconnects, the token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from engine.api import MAX_BODY_BYTES, Api, Identity, create_app
from engine.request import WIRE_VERSION, DownloadError
from engine.streams import Presence
from engine.worker import Factory, Worker
from tests.engine.fake_infiller import PIECES, FakeInfiller

PATH = "/v1/fim/completions"


class Stand:
    """An application with everything around it at hand."""

    def __init__(self, factory: Factory, token: str | None = None) -> None:
        self.worker = Worker(factory)
        self.presence = Presence()
        self.finished = 0
        identity = Identity(model="tiny", weights=None, version="9.9", pid=42)
        self.app: ASGIApp = create_app(
            Api(self.worker, identity, self.presence, self._finish), self.presence, token=token
        )
        self.worker.start()

    def _finish(self) -> None:
        self.finished += 1

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            return await client.request(method, path, **options)

    async def ask(self, **fields: Any) -> httpx.Response:
        return await self.send("POST", PATH, json={"prompt": "x", **fields})


@pytest.fixture
def infiller() -> FakeInfiller:
    return FakeInfiller()


@pytest.fixture
def stand(infiller: FakeInfiller) -> Iterator[Stand]:
    stand = Stand(lambda _: infiller)
    yield stand
    assert stand.worker.stop(10)


class Wire:
    """One raw ASGI exchange whose client can hang up."""

    def __init__(self, app: ASGIApp, fields: dict[str, Any]) -> None:
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self._body: bytes | None = json.dumps(fields).encode()
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1", "method": "POST", "path": PATH, "raw_path": PATH.encode(),
            "query_string": b"", "headers": [], "scheme": "http", "root_path": "",
            "server": ("engine", 80), "client": None,
        }  # fmt: skip
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


async def test_a_completion_has_every_field_of_the_contract(stand: Stand) -> None:
    response = await stand.ask(suffix="y", max_tokens=5)
    assert response.status_code == 200
    body = response.json()
    assert body["object"] == "text_completion"
    assert body["id"] and body["created"] > 0 and body["model"] == "fake"
    assert body["choices"] == [{"index": 0, "text": "".join(PIECES), "finish_reason": "stop"}]
    assert body["usage"] == {
        "prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13, "cached_input_tokens": 7,
    }  # fmt: skip
    ours = body["dlsp"]
    ms = ours.pop("ms")
    assert ours == {
        "mode": "verified", "tokens": 3, "forwards": 2, "tokens_per_forward": 1.5,
        "from": {"base": 1, "lookup": 1, "denoiser": 1, "memory": 0}, "steps": 4, "near_ties": 1,
        "syntax": "ok", "repaired": False, "confidence": 0.5, "kernels": "cpu", "graphs": 0,
    }  # fmt: skip
    assert {name: ms[name] for name in ("encode", "denoise", "verify", "syntax")} == {
        "encode": 1.0, "denoise": 2.0, "verify": 3.0, "syntax": 4.0,
    }  # fmt: skip
    assert 0 <= ms["queue"] <= ms["total"]


async def test_every_field_reaches_the_engine(stand: Stand, infiller: FakeInfiller) -> None:
    extensions = {
        "deadline_ms": 250, "language": "python", "path": "a.py", "seed": 7, "want": "block",
        "mode": "ar", "explain": True, "syntax": False, "patience_ms": 500, "guess": "x)",
    }  # fmt: skip
    response = await stand.ask(
        prompt="vor\r\n", suffix="nach 🙂", max_tokens=9, temperature=1, stop="\n", dlsp=extensions
    )
    assert response.status_code == 200
    asked = infiller.asked[0]
    assert (asked.prefix, asked.suffix, asked.max_tokens) == ("vor\r\n", "nach 🙂", 9)
    assert (asked.temperature, asked.stop, asked.seed) == (1.0, ("\n",), 7)
    assert (asked.language, asked.path, asked.want) == ("python", "a.py", "block")
    assert (asked.mode, asked.syntax) == ("ar", False)
    assert (asked.guess, asked.idle) == ("x)", False)
    assert 250 < asked.patience_ms <= 500
    assert asked.deadline_ms is not None and 0 < asked.deadline_ms <= 250


async def test_keys_of_other_clients_and_nulls_are_ignored(stand: Stand) -> None:
    response = await stand.ask(
        suffix=None, stop=None, temperature=None, max_tokens=None, dlsp=None, stream=None,
        model="tiny", top_p=0.9, presence_penalty=0.1, n=1, user="me", echo=False, logprobs=None,
    )  # fmt: skip
    assert response.status_code == 200


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"prompt": 3}, "prompt must be a string"),
        ({"prompt": None}, "prompt must be a string"),
        ({"prompt": "\ud800"}, "half a surrogate pair"),
        ({"suffix": ["y"]}, "suffix must be a string"),
        ({"max_tokens": "5"}, "max_tokens must be a whole number"),
        ({"max_tokens": True}, "max_tokens must be a whole number"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": 3}, "temperature must lie between 0 and 2"),
        ({"temperature": 10**400}, "temperature must be a finite number"),
        ({"stop": [1]}, "stop must be a string or a list of strings"),
        ({"stream": "yes"}, "stream must be true or false"),
        ({"n": 2}, "n must be 1"),
        ({"dlsp": []}, "dlsp must be an object"),
        ({"dlsp": {"dead_line_ms": 3}}, "dlsp.dead_line_ms is unknown"),
        ({"dlsp": {"deadline_ms": -1}}, "deadline_ms must be positive"),
        ({"dlsp": {"want": "file"}}, "want must be 'line' or 'block'"),
        ({"dlsp": {"mode": 1}}, "mode must be a string"),
        ({"dlsp": {"seed": 2**70}}, "seed must be a whole number"),
        ({"dlsp": {"syntax": 1}}, "syntax must be true or false"),
        ({"dlsp": {"explain": "x"}}, "explain must be true or false"),
        ({"dlsp": {"guess": 1}}, "guess must be a string"),
        ({"dlsp": {"idle": "no"}}, "idle must be true or false"),
        ({"dlsp": {"patience_ms": -1}}, "patience_ms must not be negative"),
    ],
)
async def test_wrong_fields_give_one_clear_line(
    stand: Stand, fields: dict[str, Any], says: str
) -> None:
    body = json.dumps({"prompt": "x", **fields}).encode()
    response = await stand.send("POST", PATH, content=body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["code"], error["type"]) == ("bad_request", "BadRequest")
    assert says in error["message"]
    assert "\n" not in error["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"prompt": "x", "dlsp": {"a": NaN}}',
     b'{"prompt": "x", "temperature": NaN}', b"{}"],
)  # fmt: skip
async def test_bodies_that_are_no_request_are_refused(stand: Stand, body: bytes) -> None:
    response = await stand.send("POST", PATH, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "bad_request"


async def test_a_body_over_the_limit_is_refused_and_one_below_is_not(stand: Stand) -> None:
    response = await stand.send("POST", PATH, content=b" " * (MAX_BODY_BYTES + 1))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    response = await stand.ask(suffix="y" * (MAX_BODY_BYTES - 1000))
    assert response.status_code == 200


async def test_another_model_is_not_silently_replaced_by_ours(stand: Stand) -> None:
    response = await stand.ask(model="huge")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_model")


async def test_engine_errors_carry_their_status(stand: Stand) -> None:
    response = await stand.ask(prompt="refuse")
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "refused by the model"
    response = await stand.ask(prompt="boom")
    assert response.status_code == 500
    assert "Traceback" not in response.text


async def test_a_load_error_is_answered_and_shown_by_health() -> None:
    def factory(_: object) -> FakeInfiller:
        raise DownloadError("no source answered; give --weights FILE")

    stand = Stand(factory)
    try:
        response = await stand.ask()
        assert (response.status_code, response.json()["error"]["code"]) == (503, "download")
        health = (await stand.send("GET", "/health")).json()
        assert health["status"] == "error"
        assert health["message"] == "no source answered; give --weights FILE"
    finally:
        assert stand.worker.stop(10)


async def test_health_and_models(stand: Stand) -> None:
    await stand.ask()
    health = (await stand.send("GET", "/health")).json()
    assert health == {
        "status": "ready", "message": "", "version": "9.9", "wire_version": WIRE_VERSION,
        "model": "tiny",
        "weights": None, "pid": 42, "clients": 0, "requests": 1, "progress": None,
    }  # fmt: skip
    models = (await stand.send("GET", "/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["tiny"]


async def test_unknown_paths_and_methods_answer_in_json(stand: Stand) -> None:
    assert (await stand.send("GET", "/nothing")).json()["error"]["code"] == "http_error"
    response = await stand.send("GET", PATH)
    assert (response.status_code, response.json()["error"]["code"]) == (405, "http_error")


async def test_a_stream_brings_text_first_and_figures_last(stand: Stand) -> None:
    response = await stand.ask(stream=True)
    assert response.headers["content-type"] == "text/event-stream"
    events = response.text.split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [chunk["choices"][0]["text"] for chunk in chunks] == list(PIECES)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert "usage" not in chunks[0]
    assert chunks[-1]["usage"]["completion_tokens"] == 3
    assert chunks[-1]["dlsp"]["tokens_per_forward"] == 1.5


async def test_a_stream_that_fails_before_any_text_is_an_error_response(stand: Stand) -> None:
    response = await stand.ask(prompt="refuse", stream=True)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "refused by the model"


async def test_a_stream_that_fails_later_ends_with_an_error_event(stand: Stand) -> None:
    response = await stand.ask(prompt="late", stream=True)
    assert response.status_code == 200
    events = [json.loads(part[6:]) for part in response.text.split("\n\n") if part]
    assert events[0]["choices"][0]["text"] == PIECES[0]
    assert events[-1]["error"]["message"] == "refused after some text"


@pytest.mark.parametrize("stream", [False, True])
async def test_hanging_up_cancels_the_work(
    stand: Stand, infiller: FakeInfiller, stream: bool
) -> None:
    wire = Wire(stand.app, {"prompt": "wait", "stream": stream})
    assert await asyncio.to_thread(infiller.waiting.wait, 20)
    assert stand.presence.running == 1
    wire.gone.set()
    await asyncio.wait_for(wire.task, 20)
    assert await asyncio.to_thread(infiller.saw_cancel.wait, 20)
    assert stand.presence.running == 0
    assert (await stand.ask()).status_code == 200


async def test_hanging_up_in_the_queue_means_the_engine_never_sees_it(
    stand: Stand, infiller: FakeInfiller
) -> None:
    first = Wire(stand.app, {"prompt": "wait"})
    assert await asyncio.to_thread(infiller.waiting.wait, 20)
    second = Wire(stand.app, {"prompt": "second"})
    while stand.presence.running < 2:
        await asyncio.sleep(0.005)
    second.gone.set()
    await asyncio.wait_for(second.task, 20)
    infiller.release.set()
    await asyncio.wait_for(first.task, 20)
    assert (await stand.ask(prompt="third")).status_code == 200
    assert [request.prefix for request in infiller.asked] == ["wait", "third"]


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/attach", PATH, "/v1/shutdown"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}, {"authorization": "ü"}],
)
async def test_without_the_token_nothing_is_answered(path: str, headers: dict[str, str]) -> None:
    stand = Stand(lambda _: FakeInfiller(), token="s3cret")
    try:
        encoded = {name: value.encode() for name, value in headers.items()}
        response = await stand.send("POST", path, headers=encoded, json={"prompt": "x"})
        assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
        assert stand.finished == 0
    finally:
        assert stand.worker.stop(10)


async def test_with_the_token_everything_works() -> None:
    stand = Stand(lambda _: FakeInfiller(), token="s3cret")
    try:
        headers = {"authorization": "Bearer s3cret"}
        response = await stand.send("POST", PATH, headers=headers, json={"prompt": "x"})
        assert response.status_code == 200
        assert (await stand.send("POST", "/v1/shutdown", headers=headers)).status_code == 200
        assert stand.finished == 1
    finally:
        assert stand.worker.stop(10)


async def test_a_finishing_engine_sends_new_requests_elsewhere(stand: Stand) -> None:
    stand.presence.closing.set()
    response = await stand.ask()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "closing")
    assert (await stand.send("GET", "/health")).status_code == 200


async def test_warming_encodes_a_context_and_fills_nothing(
    stand: Stand, infiller: FakeInfiller
) -> None:
    fields = {"prompt": "def f", "suffix": "\n", "dlsp": {"language": "python"}}
    response = await stand.send("POST", "/v1/dlsp/warm", json=fields)
    assert (response.status_code, response.json()["choices"][0]["text"]) == (200, "")
    [warmed] = infiller.warmed
    assert (warmed.prefix, warmed.suffix, warmed.idle) == ("def f", "\n", True)
    assert infiller.asked == []

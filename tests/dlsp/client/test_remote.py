"""Engines elsewhere: which kind answers, what it is asked, its key, and patience with limits."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail

from dlsp.client import remote
from dlsp.client.backend import Backend, EngineUnavailable, RemoteError
from dlsp.client.dialects import PREFIX_CHARACTERS, Fim, LlamaServer, Own
from dlsp.client.remote import RateLimited, RemoteEngine, default_model, describe, retry_after_s
from dlsp.config.settings import Settings
from engine.place import ServeOptions
from engine.request import WIRE_VERSION, InfillRequest, Snippet
from tests.dlsp.stand_ins import KEY, fim_endpoint, llama_server
from tests.engine.running_engine import RunningEngine

REQUEST = InfillRequest(
    prefix="import os\ndef add(a, b):\n    return ",
    suffix="\nadd(1, 2)\n",
    language="python",
    deadline_ms=5000.0,
    snippets=(Snippet(path="pkg/x.py", text="X = 1"),),
)


async def ask(backend: Backend, request: InfillRequest = REQUEST):  # type: ignore[no-untyped-def]
    try:
        return await backend.complete(request)
    finally:
        await backend.close()


async def test_a_fim_endpoint_gets_only_what_it_knows() -> None:
    with fim_endpoint() as server:
        reply = await ask(Backend.remote(server.url, KEY, model="m"))
    assert (reply.text, reply.model, reply.tokens, reply.cached_tokens) == ("a + b", "m", 3, 8)
    [asked] = server.asked
    assert asked["prompt"] == "# pkg/x.py\n# X = 1\n" + REQUEST.prefix
    assert (asked["suffix"], asked["stop"]) == (REQUEST.suffix, ["\n"])
    assert server.paths == ["/health", "/props", "/v1/fim/completions"]


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/fim/completions"])
async def test_an_endpoint_may_be_named_in_any_way(path: str) -> None:
    with fim_endpoint() as server:
        assert (await ask(Backend.remote(server.url + path, KEY, model="m"))).text == "a + b"


async def test_a_refused_key_is_said() -> None:
    with fim_endpoint() as server, pytest.raises(RemoteError, match="refuses the token"):
        await ask(Backend.remote(server.url, "wrong", model="m"))


async def test_llama_server_is_found_and_asked_its_own_way() -> None:
    with llama_server() as server:
        backend = Backend.remote(server.url)
        assert (await backend.health()).status == "ready"
        reply = await ask(backend)
    assert (reply.text, reply.model, reply.tokens) == ("a + b", "q.gguf", 3)
    assert (reply.prompt_tokens, reply.cached_tokens, reply.ms.encode) == (20, 8, 30.0)
    [asked] = server.asked
    assert (asked["input_prefix"], asked["prompt"]) == (
        "import os\ndef add(a, b):\n",
        "    return ",
    )
    assert asked["input_suffix"] == REQUEST.suffix
    assert asked["input_extra"] == [{"filename": "pkg/x.py", "text": "X = 1"}]
    assert (asked["n_predict"], asked["stop"], asked["t_max_predict_ms"]) == (64, ["\n"], 5000)


async def test_an_infill_address_needs_no_probe() -> None:
    with llama_server() as server:
        assert (await ask(Backend.remote(server.url + "/infill"))).text == "a + b"
        assert server.paths == ["/infill"]


async def test_our_own_engine_elsewhere_is_told_everything(tmp_path: Path) -> None:
    options = ServeOptions(
        model="tiny", port=0, token_file=tmp_path / "token", endpoint=tmp_path / "engine.json"
    )
    with RunningEngine(options) as engine:
        token = (tmp_path / "token").read_text().strip()
        url = str(engine.record()["url"])
        line = await RemoteEngine(url, token).link()
        assert isinstance(line.dialect, Own)
        await line.close()
        assert (await ask(Backend.remote(url, token))).text == "alpha beta gamma"
        assert [request.snippets for request in engine.infiller.asked] == [REQUEST.snippets]


async def test_another_version_of_our_engine_is_asked_as_any_other() -> None:
    with fim_endpoint() as server:
        server.health = {"status": "ready", "wire_version": WIRE_VERSION + 1}
        assert (await ask(Backend.remote(server.url, KEY, model="m"))).text == "a + b"
    assert "dlsp" not in server.asked[0]


async def test_nobody_there_is_said_and_asked_again_later() -> None:
    backend = Backend.remote("http://127.0.0.1:9")
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match=r"cannot reach the engine at 127\.0\.0\.1"):
            await backend.complete(REQUEST)
    await backend.close()


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_under_load_is_asked_again(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = note_sleeps(monkeypatch)
    with fim_endpoint() as server:
        server.refusals = [(status, {"retry-after": "1"}), (status, {})]
        assert (await ask(Backend.remote(server.url, KEY, model="m"))).text == "a + b"
    assert waits[0] == 1.0
    assert 0.5 <= waits[1] <= 0.75


async def test_after_three_refusals_the_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    note_sleeps(monkeypatch)
    with fim_endpoint() as server:
        server.refusals = [(502, {})] * 3
        with pytest.raises(RemoteError, match="too many"):
            await ask(Backend.remote(server.url, KEY, model="m"))
        assert server.asked == []


async def test_a_long_wait_is_kept_without_asking_again() -> None:
    with fim_endpoint() as server:
        server.refusals = [(429, {"retry-after": "60"})]
        backend = Backend.remote(server.url, KEY, model="m")
        for _ in range(3):
            with pytest.raises(RateLimited, match="asks to wait"):
                await backend.complete(REQUEST)
        await backend.close()
    assert server.paths.count("/v1/fim/completions") == 1


async def test_a_request_that_is_wrong_is_not_repeated() -> None:
    with fim_endpoint() as server, pytest.raises(RemoteError, match="unexpected"):
        await ask(Backend.remote(server.url, KEY, model="m", dialect=Own()))
    assert server.paths == ["/v1/fim/completions"]


def note_sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    really = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await really(0)

    monkeypatch.setattr(remote.asyncio, "sleep", sleep)
    return waits


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after_s("12") == 12.0
    soon = retry_after_s(email.utils.formatdate(time.time() + 100, usegmt=True))
    assert soon is not None and 95 < soon <= 100
    assert retry_after_s(email.utils.formatdate(0, usegmt=True)) == 0.0
    assert retry_after_s(None) is None
    assert retry_after_s("soon") is None
    assert retry_after_s("-3") is None


class OneKey(KeyringBackend):
    """A keyring of the system with one key in it."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.append((service, username))
        return KEY if (service, username) == ("dlsp", "engine.example:8443") else None

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError

    def delete_password(self, service: str, username: str) -> None:
        raise NotImplementedError


@contextmanager
def system_keyring(backend: KeyringBackend) -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    try:
        yield
    finally:
        keyring.set_keyring(before)


async def test_the_key_comes_from_the_keyring_once() -> None:
    engine = RemoteEngine("https://engine.example:8443/v1", None)
    given = RemoteEngine("https://engine.example:8443/v1", "from-the-environment")
    with system_keyring(one := OneKey()):
        await engine.link()
        await engine.link()
        await given.link()
    assert engine.client.headers["authorization"] == f"Bearer {KEY}"
    assert given.client.headers["authorization"] == "Bearer from-the-environment"
    assert one.asked == [("dlsp", "engine.example:8443")]
    for each in (engine, given):
        await each.close()


async def test_no_keyring_is_no_error() -> None:
    engine = RemoteEngine("https://engine.example/v1", None)
    with system_keyring(fail.Keyring()):
        await engine.link()
    assert "authorization" not in engine.client.headers
    await engine.close()


def test_the_status_says_where_the_code_goes() -> None:
    assert describe("http://localhost:8080/v1") == "engine at localhost:8080"
    assert describe("http://127.0.0.1:8080") == "engine at 127.0.0.1:8080"
    assert describe("https://me:pw@api.example.org/v1") == "code is sent to api.example.org"
    assert describe("http://10.0.0.7:1") == "code is sent to 10.0.0.7, unencrypted"
    assert default_model("https://api.inceptionlabs.ai/v1") == "mercury-edit-2"
    assert default_model("https://elsewhere.example") is None


LONG = "import os\n\n\nclass Box:\n" + "".join(
    f"    def method_{n}(self):\n        return {n}\n\n" for n in range(600)
)


@pytest.mark.parametrize("dialect", [Fim(), LlamaServer(), LlamaServer(context_tokens=3000)])
def test_long_files_keep_imports_and_headers(dialect: Fim | LlamaServer) -> None:
    request = InfillRequest(prefix=LONG + "    def last(self", suffix=LONG, language="python")
    fields = dialect.render(request, None)
    if isinstance(dialect, Fim):
        prefix, suffix = fields["prompt"], fields["suffix"]
    else:
        prefix, suffix = fields["input_prefix"] + fields["prompt"], fields["input_suffix"]
    assert prefix.startswith("import os\nclass Box:\n")
    assert prefix.endswith("method_599(self):\n        return 599\n\n    def last(self")
    assert len(prefix) <= min(PREFIX_CHARACTERS, 3000 if "3000" in repr(dialect) else 10**6)
    assert suffix and LONG.startswith(suffix)
    assert len(suffix) < len(prefix)


def test_a_block_may_go_on_and_a_line_may_not() -> None:
    block = InfillRequest(prefix="x", want="block", stop=("a", "b", "c", "d", "e"))
    assert Fim().render(block, None)["stop"] == ["a", "b", "c", "d"]
    assert Fim().render(InfillRequest(prefix="x"), None)["stop"] == ["\n"]
    assert LlamaServer().render(InfillRequest(prefix="a\nb"), None)["prompt"] == "b"
    assert LlamaServer().render(InfillRequest(prefix="b"), None)["input_prefix"] == ""


@pytest.mark.parametrize("strange", [None, [], {}, {"content": 3}, "x"])
def test_strange_answers_of_a_llama_server(strange: object) -> None:
    with pytest.raises(RemoteError, match="llama-server"):
        LlamaServer().parse(strange, REQUEST, "http")
    odd = {"content": "x", "timings": [], "tokens_predicted": "many", "stop_type": "limit"}
    reply = LlamaServer().parse(odd, REQUEST, "http")
    assert (reply.tokens, reply.finish_reason, reply.model) == (0, "length", "llama-server")


def test_a_chat_shaped_answer_is_read() -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "a + b"}}]}
    assert Fim().parse(body, REQUEST, "http").text == "a + b"


def test_the_token_is_part_of_what_names_an_engine() -> None:
    one = Settings(engine_url="https://a.example", engine_token="x")
    assert one.engine_identity != Settings(engine_url="https://a.example").engine_identity

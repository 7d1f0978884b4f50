"""Engines elsewhere, without a model: servers that behave as their public descriptions say.

`fim_endpoint` is of Mercury's shape: a key, known fields only, an error object. `llama_server` has
/health, /props and /infill. Both note what they were asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback import serving

FIM_FIELDS = {"model", "prompt", "suffix", "max_tokens", "temperature", "top_p",
              "presence_penalty", "stop", "stream"}  # fmt: skip
KEY = "key-of-a-test"


@dataclass
class StandIn:
    """`answers`: (status, headers) of the next refusals, given before anything is answered."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    context_tokens: int = 4096
    health: dict[str, Any] = field(default_factory=dict)


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn

    def do_GET(self) -> None:
        self.stand_in.paths.append(self.path)
        status, body = self.page()
        self.reply(status, body)

    def do_POST(self) -> None:
        self.stand_in.paths.append(self.path)
        fields = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.stand_in.refusals:
            status, headers = self.stand_in.refusals.pop(0)
            self.reply(status, {"error": {"message": "too many", "type": "limit"}}, headers)
            return
        self.stand_in.asked.append(fields)
        status, body = self.complete(fields)
        self.reply(status, body)

    def page(self) -> tuple[int, object]:
        return 404, {"error": {"message": "no such page"}}

    def complete(self, fields: dict[str, Any]) -> tuple[int, object]:
        raise NotImplementedError

    def reply(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class _Fim(_Handler):
    def page(self) -> tuple[int, object]:
        if self.path == "/health" and self.stand_in.health:
            return 200, self.stand_in.health
        return super().page()

    def complete(self, fields: dict[str, Any]) -> tuple[int, object]:
        if self.headers["authorization"] != f"Bearer {KEY}":
            return 401, {"error": {"message": "Incorrect API key provided", "type": "auth"}}
        unknown = sorted(set(fields) - FIM_FIELDS)
        if self.path != "/v1/fim/completions" or unknown or len(fields.get("stop", [])) > 4:
            return 422, {"error": {"message": f"unexpected {unknown} at {self.path}"}}
        return 200, {
            "id": "cmpl-1", "object": "text_completion", "created": 1, "model": fields["model"],
            "choices": [{"index": 0, "text": "a + b", "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23,
                      "reasoning_tokens": 0, "cached_input_tokens": 8},
        }  # fmt: skip


class _Llama(_Handler):
    def page(self) -> tuple[int, object]:
        if self.path == "/health":
            return 200, {"status": "ok"}
        if self.path == "/props":
            context = self.stand_in.context_tokens
            return 200, {
                "default_generation_settings": {"n_ctx": context, "params": {}},
                "total_slots": 1,
                "model_path": "/models/q.gguf",
            }
        return super().page()

    def complete(self, fields: dict[str, Any]) -> tuple[int, object]:
        if "input_prefix" not in fields or "input_suffix" not in fields:
            return 400, {"error": {"code": 400, "message": "input_prefix is required"}}
        return 200, {
            "index": 0, "content": "a + b", "model": "/models/q.gguf", "tokens_predicted": 3,
            "tokens_evaluated": 20, "tokens_cached": 22, "truncated": False, "stop": True,
            "stop_type": "word", "stopping_word": "\n",
            "timings": {"prompt_n": 12, "prompt_ms": 30.0, "predicted_n": 3, "predicted_ms": 9.5},
        }  # fmt: skip


@contextmanager
def _served(handler: type[_Handler]) -> Iterator[StandIn]:
    stand_in = StandIn()
    bound = type("Bound", (handler,), {"stand_in": stand_in})
    with serving(bound) as stand_in.url:
        yield stand_in


@contextmanager
def fim_endpoint() -> Iterator[StandIn]:
    """A FIM endpoint of Mercury's shape."""
    with _served(_Fim) as stand_in:
        yield stand_in


@contextmanager
def llama_server() -> Iterator[StandIn]:
    """A llama-server that fills holes."""
    with _served(_Llama) as stand_in:
        yield stand_in

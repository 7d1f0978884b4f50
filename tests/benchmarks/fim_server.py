"""A FIM engine that answers from a table, for driving the real LSP server without a model."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback import serving


def completion(text: str) -> dict[str, Any]:
    count = len(text.split())
    figures = {
        "mode": "verified",
        "tokens": count,
        "forwards": count,
        "tokens_per_forward": 1.0,
        "from": {"base": count, "lookup": 0, "denoiser": 0},
        "steps": 2,
        "near_ties": 0,
        "syntax": "ok",
        "repaired": False,
        "confidence": 0.9,
        "ms": {"queue": 0, "encode": 1, "denoise": 2, "verify": 3, "syntax": 0, "total": 6},
    }
    return {
        "id": "1",
        "object": "text_completion",
        "created": 0,
        "model": "table",
        "choices": [{"index": 0, "text": text, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count},
        "dlsp": figures,
    }


@contextlib.contextmanager
def fim_server(answer: Callable[[str], str], *, status: int = 200) -> Iterator[str]:
    """The address of a server that answers each prompt with `answer`, or always this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            error = {"error": {"message": "no memory left", "type": "EngineError", "code": "x"}}
            self.answer(status, completion(answer(asked["prompt"])) if status == 200 else error)

        def do_GET(self) -> None:
            health = {"status": "ready", "message": "", "version": "0", "wire_version": 1}
            self.answer(200, {**health, "model": "table", "pid": 1, "clients": 0, "data": []})

        def answer(self, code: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a test's output is not this server's place."""

    with serving(Handler) as address:
        yield address

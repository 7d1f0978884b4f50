"""A FIM server without a model, for tests of the protocol: its text tells which prompt it saw.

Run as a process: `python fake_fim.py PORT DELAY_MS`. Answers after DELAY_MS with the number of
characters of the prompt; GET /stats tells how many requests came, ended and were cut off.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine.request import WIRE_VERSION


class FakeFim:
    def __init__(self, delay_ms: float) -> None:
        self.delay_s = delay_ms / 1000.0
        self.stats = {"received": 0, "answered": 0, "cut_off": 0}

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.stats["received"] += 1
        if "FAIL" in body["prompt"][-8:]:
            error = {"message": "the engine is out of memory", "type": "engine", "code": "memory"}
            return JSONResponse({"error": error}, status_code=503)
        slow = "SLOW" in body["prompt"][-8:]
        until = time.monotonic() + (3600 if slow else self.delay_s)
        while time.monotonic() < until:
            if await request.is_disconnected():
                self.stats["cut_off"] += 1
                return Response(status_code=499)
            await asyncio.sleep(0.005)
        self.stats["answered"] += 1
        extra = body.get("dlsp", {})
        return JSONResponse(self.reply(f"{len(body['prompt'])}", extra.get("mode", "verified")))

    def reply(self, text: str, mode: str) -> dict[str, object]:
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": "fake",
            "choices": [{"index": 0, "text": text, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12,
                      "cached_input_tokens": 4},
            "dlsp": {
                "mode": mode, "tokens": 3, "forwards": 2, "tokens_per_forward": 1.5,
                "from": {"base": 2, "lookup": 0, "denoiser": 1}, "steps": 2, "near_ties": 0,
                "syntax": "unknown", "repaired": False, "confidence": 0.9,
                "ms": {"queue": 1.0, "encode": 2.0, "denoise": 3.0, "verify": 4.0, "syntax": 5.0,
                       "total": 15.0},
            },
        }  # fmt: skip

    async def health(self, request: Request) -> Response:
        return JSONResponse(
            {"status": "ready", "message": "ready", "version": "0", "wire_version": WIRE_VERSION,
             "model": "fake", "pid": 0, "clients": 1}
        )  # fmt: skip

    async def show_stats(self, request: Request) -> Response:
        return JSONResponse(self.stats)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/fim/completions", self.complete, methods=["POST"]),
                Route("/health", self.health),
                Route("/stats", self.show_stats),
            ]
        )


if __name__ == "__main__":
    port, delay_ms = int(sys.argv[1]), float(sys.argv[2])
    uvicorn.run(FakeFim(delay_ms).app(), host="127.0.0.1", port=port, log_level="error")

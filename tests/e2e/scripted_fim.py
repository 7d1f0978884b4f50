"""A FIM server that answers what a test has told it to, by the end of the prompt.

Run as a process: `python scripted_fim.py PORT`. POST /script takes {end of prompt: text}; the
longest that fits answers, else nothing. GET /requests tells the bodies that came.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine.request import WIRE_VERSION


class ScriptedFim:
    def __init__(self) -> None:
        self.script: dict[str, str] = {}
        self.delay_s = 0.0
        self.confidence = 0.9
        self.bodies: list[dict[str, Any]] = []

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        ends = [end for end in self.script if body["prompt"].endswith(end)]
        text = self.script[max(ends, key=len)] if ends else ""
        await asyncio.sleep(self.delay_s)
        choice = {"index": 0, "text": text, "finish_reason": "stop" if text else "empty"}
        ours = {"mode": "verified", "tokens": 3, "forwards": 2, "confidence": self.confidence}
        return JSONResponse({"id": "1", "model": "scripted", "choices": [choice], "dlsp": ours})

    async def take_script(self, request: Request) -> Response:
        given = await request.json()
        self.script, self.bodies = given["ends"], []
        self.delay_s = given.get("delay_s", 0.0)
        self.confidence = given.get("confidence", 0.9)
        return JSONResponse({})

    async def tell_requests(self, request: Request) -> Response:
        return JSONResponse(self.bodies)

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ready", "model": "scripted", "wire_version": WIRE_VERSION})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/fim/completions", self.complete, methods=["POST"]),
                Route("/script", self.take_script, methods=["POST"]),
                Route("/requests", self.tell_requests),
                Route("/health", self.health),
            ]
        )


if __name__ == "__main__":
    uvicorn.run(ScriptedFim().app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")

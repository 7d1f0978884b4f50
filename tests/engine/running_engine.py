"""A whole engine on a real socket, in a thread of the test's process, around a fake infiller."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from engine.place import ServeOptions
from engine.serve import run_with
from tests.engine.fake_infiller import FakeInfiller


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must happen, however slow the machine."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


class RunningEngine:
    """`run_with` in a thread; leaving the context asks it to finish and checks that it does."""

    def __init__(self, options: ServeOptions, *, version: str | None = None) -> None:
        self.infiller = FakeInfiller()
        self.code: int | None = None
        self._options = options
        self._version = {} if version is None else {"version": version}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.code = run_with(self._options, lambda _: self.infiller, **self._version)

    def __enter__(self) -> RunningEngine:
        self._thread.start()
        until(lambda: self._announced() or not self._thread.is_alive())
        return self

    def _announced(self) -> bool:
        try:
            return self.endpoint is None or self.record()["pid"] == os.getpid()
        except (FileNotFoundError, KeyError):
            return False

    def __exit__(self, *_: object) -> None:
        self.infiller.release.set()
        if self._thread.is_alive():
            with self.client() as client:
                client.post("/v1/shutdown")
        self.join()

    def join(self) -> int | None:
        """Wait until the engine has ended; its exit code."""
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.code

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, having been watched for so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def endpoint(self) -> Path | None:
        if self._options.endpoint is not None:
            return self._options.endpoint
        return self._options.socket.with_suffix(".json") if self._options.socket else None

    def record(self) -> dict[str, Any]:
        assert self.endpoint is not None
        return json.loads(self.endpoint.read_text())

    def client(self) -> httpx.Client:
        """A client for the place where the engine said it listens."""
        record = self.record()
        headers = {}
        if record["token_file"]:
            token = Path(record["token_file"]).read_text().strip()
            headers["authorization"] = f"Bearer {token}"
        transport = httpx.HTTPTransport(uds=record["socket"])
        return httpx.Client(
            transport=transport, base_url=record["url"], headers=headers, timeout=30
        )

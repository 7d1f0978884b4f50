"""A model hub on this machine with one file, for a first start that needs no network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.loopback import serving

_CHUNK = 1 << 20


@contextmanager
def hub_with(file: Path, *, seconds: float) -> Iterator[str]:
    """Serve the file under any address of its name, in so many seconds; yields the hub's own."""
    size = file.stat().st_size
    pause_s = seconds / (size / _CHUNK)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(0)

        def do_GET(self) -> None:
            start = int((self.headers["Range"] or "bytes=0-")[6:].split("-")[0])
            if self._answer(start):
                with file.open("rb") as source:
                    source.seek(start)
                    while chunk := source.read(_CHUNK):
                        self.wfile.write(chunk)
                        time.sleep(pause_s)

        def _answer(self, start: int) -> bool:
            known = self.path.endswith(file.name)
            self.send_response((206 if self.headers["Range"] else 200) if known else 404)
            self.send_header("Content-Length", str(size - start if known else 0))
            self.send_header("ETag", '"file"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.end_headers()
            return known

        def log_message(self, format: str, *args: object) -> None:
            """The tests' output is theirs."""

    with serving(Handler) as address:
        yield address

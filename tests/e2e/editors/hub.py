"""A model hub on this machine with one file, for a first start that needs no network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.loopback import serving

_CHUNK = 1 << 20
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Hub:
    """Where the hub is, and the word that lets the second half of its file go."""

    address: str
    go_on: threading.Event


@contextmanager
def hub_with(file: Path) -> Iterator[Hub]:
    """Serve the file under any address of its name: the first half, and the rest when told so."""
    size = file.stat().st_size
    go_on = threading.Event()

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
                        if source.tell() > size // 2:
                            go_on.wait(_PATIENCE_S)
                        self.wfile.write(chunk)

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
        try:
            yield Hub(address, go_on)
        finally:
            go_on.set()

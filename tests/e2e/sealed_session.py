"""A whole session inside a network namespace, watched: `python sealed_session.py FOLDER WAY`.

Started by `unshare --net`. WAY is `sealed` (no interface is up), `loopback` (the loopback interface
is, and every packet on it is noted), or `address` (as loopback, with the engine at an address of
it). Prints one JSON line: what was answered, what was seen of the network, and the server's log.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from lsprotocol import types as lsp

from benchmarks.lsp_session import LspSession

HERE = Path(__file__).parent
PORT = 47111
CODE = "very_peculiar_name_of_mine"
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3
TEXT = f"token = '{SECRET}'\ndef {CODE}(a, b):\n    return "
_SET_FLAGS, _UP, _EVERY_PROTOCOL = 0x8914, 0x1, 0x0003


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14s", b"lo", _UP, b""))


class Watch(threading.Thread):
    """Notes every packet, and every Internet socket of the namespace, until stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.packets: list[bytes] = []
        self.sockets: set[str] = set()
        self._ended = threading.Event()
        self._capture = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(_EVERY_PROTOCOL)
        )
        self._capture.settimeout(0.01)

    def run(self) -> None:
        while not self._ended.is_set():
            for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
                lines = Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
                self.sockets.update(f"{kind} {line.split()[1]}" for line in lines)
            try:
                while True:
                    self.packets.append(self._capture.recv(1 << 18))
            except TimeoutError:
                pass

    def stop(self) -> None:
        time.sleep(0.1)
        self._ended.set()
        self.join()
        self._capture.close()


@contextmanager
def engine(folder: Path, way: str) -> Iterator[None]:
    """The engine around a model that is not there, on its socket or at an address."""
    if way == "address":
        command = [str(HERE / "fake_fim.py"), str(PORT), "1"]
    else:
        command = [str(HERE / "fake_engine.py"), "--starts", str(folder / "starts")]
        command += ["--socket", str(folder / "engine.sock")]
        command += ["--endpoint", str(folder / "engine.json")]
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not listens(folder, way):
            assert time.monotonic() < until, "the engine did not come up"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def listens(folder: Path, way: str) -> bool:
    if way != "address":
        return (folder / "engine.json").exists()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", PORT)) == 0


async def session(folder: Path, way: str) -> dict[str, Any]:
    """What an editor does: open, type, ask, in a file and in one that is private."""
    statuses: list[str] = []
    options: dict[str, object] = {"model": "fake", "deadline_ms": 20_000}
    if way == "address":
        options["engineUrl"] = f"http://127.0.0.1:{PORT}"
    lived = LspSession(
        options=options,
        environment={"DLSP_RUNTIME_DIR": str(folder), "DLSP_DATA_DIR": str(folder)},
        on_status=lambda state, message: statuses.append(f"{state}: {message}"),
    )
    async with lived:
        uri = (folder / "app.py").as_uri()
        lived.open(uri, "python", TEXT)
        at = lsp.Position(line=2, character=11)
        lived.insert(uri, at, "(")
        found = await lived.complete(uri, lsp.Position(line=2, character=12))
        private = (folder / ".env").as_uri()
        lived.open(private, "python", "A=")
        refused = await lived.complete(private, lsp.Position(line=0, character=2))
        await asyncio.sleep(0.3)  # for what a server may do when nobody asks
    return {
        "text": found.detail.get("text"),
        "tokens": found.detail.get("tokens"),
        "error": found.error,
        "refused": refused.detail.get("reason"),
        "statuses": statuses,
        "log": list(lived._stderr),
    }


def main() -> None:
    folder, way = Path(sys.argv[1]), sys.argv[2]
    if way != "sealed":
        bring_loopback_up()
    watch = Watch()
    watch.start()
    with engine(folder, way):
        told = asyncio.run(session(folder, way))
    watch.stop()
    seen = b"".join(watch.packets)
    told |= {
        "packets": len(watch.packets),
        "sockets": sorted(watch.sockets),
        "code_seen": CODE.encode() in seen,
        "secret_seen": SECRET.encode() in seen,
        "interfaces": [name for _, name in socket.if_nameindex()],
        "pid": os.getpid(),
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()

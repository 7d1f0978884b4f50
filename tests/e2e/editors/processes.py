"""The engine processes that the editors under test share."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.e2e.processes import alive


def engines(runtime: Path) -> list[int]:
    """The process ids of the engines that use the runtime folder."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and alive(int(entry.name))
        and _serves_in(entry, str(runtime / "engine.sock").encode())
    ]


def end_engines(runtime: Path) -> None:
    """Ask the engines that use the runtime folder to finish, and wait until they have."""
    running = engines(runtime)
    for process_id in running:
        os.kill(process_id, signal.SIGTERM)
    until = time.monotonic() + 15
    while any(alive(process_id) for process_id in running) and time.monotonic() < until:
        time.sleep(0.05)


def _serves_in(entry: Path, socket: bytes) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"serve" in words and socket in words


def descendants(process_id: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found: list[int] = []
    for children in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            started = [int(child) for child in children.read_text().split()]
        except OSError:
            continue
        for child in started:
            found += [child, *descendants(child)]
    return found


def language_servers(process_id: int) -> list[int]:
    """The processes of `dlsp` that run under a process."""
    return [child for child in descendants(process_id) if _is_server(Path(f"/proc/{child}"))]


def _is_server(entry: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return False
    # By Neovim as the script `dlsp`, by VS Code as the module.
    script = any(Path(word.decode(errors="replace")).name == "dlsp" for word in words[:2])
    return script or words[-3:] == [b"-m", b"dlsp", b"lsp"]

"""An engine of the measurement's own: a private runtime folder, and nothing left running after.

So that no figure comes from an engine that other editors keep warm or busy. Knows the endpoint
file's place and its process id, nothing else of the engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

#: How long an engine that was asked to end may take before it is killed.
ENDING_S = 10.0


@contextlib.contextmanager
def own_engine() -> Iterator[dict[str, str]]:
    """The environment for an LSP server whose engine is its own; that engine is ended after."""
    # A Unix socket's path is short by law: no nested names.
    with tempfile.TemporaryDirectory(prefix="dlsp-") as folder:
        try:
            yield {"DLSP_RUNTIME_DIR": folder, "DLSP_DATA_DIR": folder}
        finally:
            for process_id in engines(Path(folder)):
                end_process(process_id)


def engines(folder: Path) -> list[int]:
    """The process ids in the endpoint files of this runtime folder."""
    found = []
    for file in folder.rglob("*.json"):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and isinstance(record.get("pid"), int):
            found.append(int(record["pid"]))
    return found


def engine_clients(folder: Path) -> Iterator[httpx.AsyncClient]:
    """A client for each engine of this runtime folder."""
    for file in folder.rglob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(file.read_text(encoding="utf-8"))
            headers = {}
            if record["token_file"]:
                token = Path(record["token_file"]).read_text(encoding="ascii").strip()
                headers["authorization"] = f"Bearer {token}"
            yield httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(uds=record["socket"]),
                base_url=record["url"],
                headers=headers,
                trust_env=False,
            )


def end_process(process_id: int) -> None:
    """Asks the process to end, waits, and kills it if it does not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process_id, signal.SIGTERM)
        until = time.monotonic() + ENDING_S
        while time.monotonic() < until and runs(process_id):
            time.sleep(0.05)
        if runs(process_id):
            os.kill(process_id, signal.SIGKILL)


def runs(process_id: int) -> bool:
    """Whether the process still runs; one that ended but was not waited for does not."""
    try:
        os.kill(process_id, 0)
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return False
    except OSError:
        return True  # no /proc here, or not ours to read: the signal said that it exists
    return state.rpartition(")")[2].split()[0] != "Z"

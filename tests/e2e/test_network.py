"""Nothing leaves the machine: whole sessions in a network namespace, with every packet noted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.sealed_session import CODE, SECRET

SCRIPT = Path(__file__).parent / "sealed_session.py"
UNSHARE = ["unshare", "--map-root-user", "--net"]


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    """Skips where the system lets nobody make a network namespace."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no `unshare` here: network namespaces are Linux's")
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this system permits no network namespace: {tried.stderr.strip()}")


@pytest.fixture
def folder() -> Iterator[Path]:
    # A Unix socket's path is short by law: no nested names.
    with tempfile.TemporaryDirectory(prefix="dlsp-") as name:
        yield Path(name).resolve()


def session(folder: Path, way: str) -> dict[str, Any]:
    ended = subprocess.run(
        [*UNSHARE, sys.executable, str(SCRIPT), str(folder), way],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert told["interfaces"] == ["lo"]
    assert told["error"] is None
    assert told["tokens"] == 3, "the engine answered"
    return told


def test_a_session_needs_no_network_at_all(folder: Path) -> None:
    told = session(folder, "sealed")
    assert told["sockets"] == []
    assert told["packets"] == 0
    assert told["refused"] == "privacy: .env is, by its name, an environment file"
    assert not any(CODE in line or SECRET in line for line in told["log"])


def test_with_the_local_engine_not_even_loopback_sees_a_packet(folder: Path) -> None:
    told = session(folder, "loopback")
    assert told["sockets"] == []
    assert told["packets"] == 0
    assert not any("code is sent" in status or "engine at" in status for status in told["statuses"])


def test_an_engine_at_an_address_gets_code_without_secrets_and_the_status_says_so(
    folder: Path,
) -> None:
    told = session(folder, "address")
    assert told["code_seen"], "the capture sees what goes over the loopback interface"
    assert not told["secret_seen"]
    assert any("engine at 127.0.0.1:47111" in status for status in told["statuses"])

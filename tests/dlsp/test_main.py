"""The command line as a shell sees it: outputs that are closed, full or left, and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from dlsp.__main__ import BROKEN_PIPE, DISK_FULL

FULL = Path("/dev/full")
STATS = "from dlsp.__main__ import main; sys.exit(main(['stats', '--json']))"


def run(tmp_path: Path, program: str, stdout: int | IO[bytes]) -> tuple[int, str]:
    """The exit code of a Python program with dlsp's data in `tmp_path`, and its complaints."""
    environment = {**os.environ, "DLSP_DATA_DIR": str(tmp_path)}
    environment.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run(
        [sys.executable, "-c", f"import os, sys; {program}"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
    )
    return done.returncode, done.stderr.decode()


def test_a_reader_that_goes_away_causes_no_complaint(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stdout:
        assert run(tmp_path, STATS, stdout) == (BROKEN_PIPE, "")


def test_a_closed_output_is_no_error(tmp_path: Path) -> None:
    assert run(tmp_path, f"sys.stdout = None; {STATS}", subprocess.DEVNULL) == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    with FULL.open("wb") as stdout:
        found = run(tmp_path, STATS, stdout)
    assert found == (DISK_FULL, "dlsp: cannot write: No space left on device\n")


def test_an_editor_that_shuts_down_is_left_in_silence(tmp_path: Path) -> None:
    messages = [
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":'
        '{"processId":null,"rootUri":null,"capabilities":{}}}',
        '{"jsonrpc":"2.0","id":2,"method":"shutdown"}',
        '{"jsonrpc":"2.0","method":"exit"}',
    ]
    done = subprocess.run(
        [sys.executable, "-m", "dlsp"],
        input="".join(f"Content-Length: {len(each)}\r\n\r\n{each}" for each in messages).encode(),
        capture_output=True,
        env={**os.environ, "DLSP_DATA_DIR": str(tmp_path), "DLSP_RUNTIME_DIR": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")

"""An engine of the measurement's own leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.own_engine import end_process, engines, own_engine, runs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_the_engine_of_the_folder_is_ended() -> None:
    process = sleeper()
    try:
        with own_engine() as environment:
            folder = Path(environment["DLSP_RUNTIME_DIR"])
            (folder / "engine.json").write_text(json.dumps({"pid": process.pid}))
            (folder / "other.json").write_text("not json")
        assert not folder.exists()
        assert process.wait(1.0) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_gone_is_no_error() -> None:
    process = sleeper()
    process.kill()
    process.wait()
    end_process(process.pid)
    assert process.returncode is not None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_process_that_nobody_waited_for_has_ended() -> None:
    process = sleeper()
    assert runs(process.pid)
    end_process(process.pid)
    assert not runs(process.pid)
    assert process.wait() == -signal.SIGTERM


def test_an_empty_folder_has_no_engines(tmp_path: Path) -> None:
    assert engines(tmp_path) == []

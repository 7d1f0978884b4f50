"""The sandbox's verdicts and its limits, on real processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks.sandbox import Limits, run_program

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")


def test_a_program_that_runs_to_its_end_passes() -> None:
    assert run_program("assert 1 + 1 == 2\n").outcome == "passed"


def test_a_failed_assertion_fails_and_says_so() -> None:
    run = run_program("assert 1 + 1 == 3, 'sum'\n")
    assert (run.outcome, run.detail) == ("failed", "AssertionError: sum")


def test_a_syntax_error_fails() -> None:
    run = run_program("def f(:\n")
    assert run.outcome == "failed"
    assert run.detail.startswith("SyntaxError")


@pytest.mark.parametrize("leave", ["exit(0)", "import os; os._exit(0)", "raise SystemExit"])
def test_leaving_before_the_tests_is_no_pass(leave: str) -> None:
    assert run_program(f"{leave}\nassert False\n").outcome == "failed"


def test_the_wall_clock_ends_a_sleeper_and_its_children(tmp_path: Path) -> None:
    late = tmp_path / "late"
    source = f"""
import subprocess, sys, time
code = "import time; time.sleep(2); open({str(late)!r}, 'w')"
subprocess.Popen([sys.executable, "-c", code])
time.sleep(60)
"""
    run = run_program(source, Limits(wall_s=0.7))
    assert (run.outcome, run.detail) == ("timeout", "wall clock")
    time.sleep(2.5)
    assert not late.exists()


def test_cpu_time_is_limited() -> None:
    run = run_program("while True: pass\n", Limits(wall_s=30.0, cpu_s=1))
    assert (run.outcome, run.detail) == ("timeout", "cpu time")


def test_memory_is_limited() -> None:
    run = run_program("x = bytearray(2 << 30)\n")
    assert (run.outcome, run.detail) == ("failed", "MemoryError")


def test_file_size_is_limited() -> None:
    run = run_program("open('big', 'wb').write(bytes(2 << 20))\n")
    assert run.outcome == "failed"
    assert "File too large" in run.detail


def test_open_files_are_limited() -> None:
    run = run_program("files = [open(__file__) for _ in range(100)]\n")
    assert run.outcome == "failed"
    assert "Too many open files" in run.detail


def test_nothing_of_our_environment_or_folder_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLSP_SECRET", "1")
    source = """
import os, sys
assert "DLSP_SECRET" not in os.environ
assert os.listdir(".") == []
assert sys.stdin.read() == ""
assert os.getsid(0) == os.getpid()
"""
    run = run_program(source)
    assert run.outcome == "passed", run.detail


def test_a_flood_of_output_does_no_harm() -> None:
    source = "import sys\nfor _ in range(100_000): print('x' * 100)\n"
    assert run_program(source).outcome == "passed"

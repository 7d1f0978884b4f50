"""Runs one generated program in a process of its own, with limits on time, memory and files.

It keeps a wrong program from hurting the measurement: it is no wall against hostile code. Knows
nothing of models or tasks. POSIX only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.report import BenchmarkError

Outcome = Literal["passed", "failed", "timeout"]

#: The launcher's own sign of a program that ran to its end. A program that calls exit(0) before
#: its tests must not pass, so success is not 0.
_PASSED = 71

# Limits are set in the child, not with preexec_fn: forking a process that holds torch's threads
# and then running Python before exec can deadlock.
_LAUNCHER = """
import resource, runpy, sys
cpu, memory, file_size, files, passed = map(int, sys.argv[2:7])
resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
program = sys.argv[1]
sys.argv[:] = [program]
try:
    runpy.run_path(program, run_name="__main__")
except SystemExit as stop:
    sys.stderr.write(f"SystemExit: {stop.code}")
    sys.exit(1)
sys.exit(passed)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use."""

    wall_s: float = 10.0
    cpu_s: int = 10
    memory_bytes: int = 1 << 30
    file_bytes: int = 1 << 20
    open_files: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a program ended; `detail` is the last line it wrote to stderr."""

    outcome: Outcome
    detail: str = ""


def run_program(source: str, limits: Limits | None = None) -> Run:
    """Runs the source in a fresh interpreter, in a fresh folder, with an empty environment."""
    if os.name != "posix":
        raise BenchmarkError("programs are only run on Linux and macOS, where they can be limited")
    limits = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="dlsp-sandbox-") as folder:
        program, errors = Path(folder, "program.py"), Path(folder, "stderr")
        program.write_text(source, encoding="utf-8")
        work = Path(folder, "work")
        work.mkdir()
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                _command(program, limits),
                cwd=work,
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
            code = _wait(process, limits.wall_s)
        return _verdict(code, errors)


def _command(program: Path, limits: Limits) -> list[str]:
    figures = (
        limits.cpu_s,
        limits.memory_bytes,
        limits.file_bytes,
        limits.open_files,
        _PASSED,
    )
    flags = ("-I", "-S", "-B")  # no environment, no site-packages, no bytecode files
    return [sys.executable, *flags, "-c", _LAUNCHER, str(program), *map(str, figures)]


def _wait(process: subprocess.Popen[bytes], wall_s: float) -> int | None:
    """The exit code, None on a timeout; nothing of the program's session is left running."""
    try:
        return process.wait(wall_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # The leader may be gone while what it started is not; it was made leader of its own group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _verdict(code: int | None, errors: Path) -> Run:
    if code is None:
        return Run(outcome="timeout", detail="wall clock")
    if code == -signal.SIGXCPU:
        return Run(outcome="timeout", detail="cpu time")
    if code == _PASSED:
        return Run(outcome="passed")
    lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return Run(outcome="failed", detail=(lines[-1] if lines else f"exit code {code}")[:200])

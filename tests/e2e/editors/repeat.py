"""The editor tests many times over: `python -m tests.e2e.editors.repeat N`, one line of JSON a run.

Runs of the same commit that stand in the file already count, so a broken-off series goes on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.e2e.editors import offline

ROOT = Path(__file__).parents[3]
RUNS = ROOT / "benchmarks" / "results" / "editor-runs.jsonl"


def main(wanted: int) -> int:
    """Run until so many runs of this commit are on record; the exit status tells of failures."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if _git("status", "--porcelain", "--", "dlsp", "engine", "editors", "tests"):
        commit += "+"  # and what is not committed
    done = [run for run in recorded() if run["commit"] == commit]
    for _ in range(wanted - len(done)):
        done.append({"commit": commit, **run_once()})
        with RUNS.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return int(any(run["failed"] for run in done))


def recorded() -> list[dict[str, Any]]:
    """The runs so far, the oldest first."""
    return [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.exists() else []


def run_once() -> dict[str, Any]:
    """One run in a process of its own: what passed, failed and was skipped, and its seconds."""
    started = time.monotonic()
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        tests = ["pytest", str(Path(__file__).parent), "-m", "editors", f"--junit-xml={report}"]
        command = [sys.executable, "-m", offline.__name__, sys.executable, "-m", *tests]
        subprocess.run(command, cwd=ROOT, check=False)
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [_name(case) for case in cases if any(case.find(kind) is not None for kind in _BAD)]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "passed": len(cases) - len(failed) - skipped,
        "failed": len(failed),
        "skipped": skipped,
        "seconds": round(time.monotonic() - started),
        "failures": failed,
    }


_BAD = ("failure", "error")


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').rsplit('.', 1)[-1]}::{case.get('name')}"


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

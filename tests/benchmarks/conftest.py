"""A small data set of our own, in the published format, and an engine that solves it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks import infilling
from tests.benchmarks.fake_engine import FakeEngine, answer, run_here


def task(number: int, line: str, suffix: str = "") -> dict[str, str]:
    return {
        "task_id": f"SingleLineInfilling/HumanEval/{number}/L1",
        "entry_point": "double",
        "prompt": "def double(x):\n    y = x\n",
        "suffix": suffix,
        "canonical_solution": line,
        "test": "def check(candidate):\n    assert candidate(4) == 8\n",
    }


def write_data(path: Path, rows: list[dict[str, str]]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [task(number, "    return x + y\n") for number in range(3)]
    rows.append(task(3, "    y = y + y\n", suffix="    return y\n"))
    return write_data(tmp_path / "HumanEval-SingleLineInfilling.jsonl.gz", rows)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """What the infilling benchmark loads: it answers right."""
    engine = FakeEngine(answer)
    monkeypatch.setattr(infilling, "load_engine", lambda *_: engine)
    monkeypatch.setattr(infilling, "run_program", run_here)
    return engine

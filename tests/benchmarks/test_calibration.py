"""Calibration: shares among what is shown, and the threshold from which enough is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import calibration


def _row(confidence: float, right: bool, text: str = "x") -> dict[str, object]:
    row = {"text": text, "confidence": confidence, "first_line": right, "kind": "line"}
    return {**row, "useful_share": 1.0 if right else 0.25}


ROWS = [_row(0.95, True), _row(0.9, True), _row(0.6, True), _row(0.55, False), _row(0.1, False)]


def test_a_point_counts_what_is_shown_from_its_confidence_on() -> None:
    points = {
        point["confidence"]: point for point in calibration.curve([*ROWS, _row(0, False, "")])
    }
    assert points[0.0] == {"confidence": 0.0, "shown": 0.8333, "right": 0.6, "useful": 0.7}
    assert points[0.5] == {"confidence": 0.5, "shown": 0.6667, "right": 0.75, "useful": 0.8125}
    assert points[0.6]["right"] == 1.0
    assert points[0.98]["right"] is None


def test_the_threshold_is_the_lowest_that_holds_from_there_on() -> None:
    points = calibration.curve(ROWS)
    assert calibration.least(points, 0.8) == 0.6
    assert calibration.least(points, 0.7) == 0.2
    assert calibration.least(calibration.curve([_row(0.9, False)]), 0.5) is None


def test_files_are_read_and_one_line_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"id": str(n), "run": "r", **row}) for n, row in enumerate(ROWS)]
    path.write_text("\n".join(lines) + "\n")
    assert calibration.main([str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n"] == 5
    assert found["least"]["0.80"] == 0.6
    path.write_text(json.dumps({"id": "a", "run": "r", "text": "x"}) + "\n")
    assert calibration.main([str(path), "--json"]) == 2
    assert "realcode --out" in capsys.readouterr().err

"""Settings, curves and their picture, with a fake engine."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import infilling, tradeoff
from benchmarks.plot import draw
from benchmarks.report import BenchmarkError
from engine.request import InfillRequest
from tests.benchmarks.fake_engine import FakeEngine, answer, json_line, run_here

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Wrong where `free` may close a canvas in one step, right elsewhere."""

    def hasty(request: InfillRequest) -> str:
        return "    pass" if request.mode == "free" and request.steps == 1 else answer(request)

    engine = FakeEngine(hasty)
    monkeypatch.setattr(tradeoff, "load_engine", lambda *_: engine)
    monkeypatch.setattr(infilling, "run_program", run_here)
    return engine


def test_a_setting_is_a_mode_with_steps_and_threshold() -> None:
    one = tradeoff.Setting.parse("free:2:0.3")
    assert (one.mode, one.steps, one.threshold) == ("free", 2, 0.3)
    assert tradeoff.Setting.parse("verified").mode == "verified"
    assert {tradeoff.Setting.parse(label).steps for label in tradeoff.GRID} == {1, 2, 4}


@pytest.mark.parametrize("label", ["fast", "free:x", "free:0", "free:2:7", "free:1:0.5:1", ""])
def test_anything_else_is_one_line(label: str) -> None:
    with pytest.raises(BenchmarkError, match="no setting"):
        tradeoff.Setting.parse(label)


def test_every_setting_on_the_same_tasks_in_turns(
    data: Path, fake: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, svg = tmp_path / "rows", tmp_path / "docs" / "curve.svg"
    command = [f"--infilling=--data {data} --limit 3", "--out", str(out), "--json"]
    command += ["--settings", "ar", "verified", "free:1", "--svg", str(svg)]
    assert tradeoff.main(command) == 0
    figures = json_line(capsys)
    part = figures["infilling"]
    assert isinstance(part, dict)
    assert (part["accuracy"], part["n"]) == ("pass@1", 3)
    points = {point["label"]: point for point in part["points"]}
    assert {label: point["pass@1"] for label, point in points.items()} == {
        "ar": 1.0,
        "verified": 1.0,
        "free:1": 0.0,
    }
    assert points["ar"]["tokens_per_forward"] == 1.0 < points["verified"]["tokens_per_forward"]
    assert (points["free:1"]["steps"], points["free:1"]["from"]["base"]) == (1, 3)
    assert [asked.mode for asked in fake.asked[:6]] == [
        *("ar", "verified", "free"),
        *("verified", "free", "ar"),
    ]
    assert sorted(path.name for path in out.iterdir()) == [
        "infilling-ar.jsonl",
        "infilling-free-1.jsonl",
        "infilling-verified.jsonl",
    ]
    assert svg.read_text() == drawn(figures, tmp_path, capsys)
    asked = len(fake.asked)
    assert tradeoff.main(command) == 0
    assert len(fake.asked) == asked


def drawn(figures: dict[str, object], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The picture of figures that lie in a file, without a model."""
    past, svg = folder / "past.json", folder / "again.svg"
    past.write_text(json.dumps(figures))
    capsys.readouterr()
    assert tradeoff.main(["--figures", str(past), "--svg", str(svg)]) == 0
    assert "free:1" in capsys.readouterr().out
    return svg.read_text()


def point(label: str, accuracy: float, rate: float) -> dict[str, object]:
    setting = tradeoff.Setting.parse(label)
    return {
        "label": label,
        "mode": setting.mode,
        "steps": setting.steps,
        "threshold": setting.threshold,
        "em": accuracy,
        "tokens_per_forward": rate,
        "decode_ms_p50": 1000 / rate,
    }


def test_the_picture_has_every_point_where_it_belongs() -> None:
    points = [
        point("ar", 0.5, 1.0),
        point("verified", 0.5, 1.5),
        point("free:2:0.9", 0.45, 1.6),
        point("free:2:0.3", 0.30, 2.4),
    ]
    figures = {"model": "a<b", "realcode": {"accuracy": "em", "n": 7, "points": points}}
    root = ElementTree.fromstring(draw(figures))
    first, second = root.findall(f"{SVG}g")
    assert len(root.findall(f".//{SVG}circle")) == 8
    places = {
        str(circle.findtext(f"{SVG}title")).partition(":")[0]: (
            float(circle.attrib["cx"]),
            float(circle.attrib["cy"]),
        )
        for circle in first.findall(f"{SVG}circle")
        if "free" not in str(circle.findtext(f"{SVG}title"))
    }
    assert places["ar"][0] < places["verified"][0]
    assert places["ar"][1] == places["verified"][1]
    lines = first.findall(f"{SVG}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [2]
    low, high = (float(pair.split(",")[1]) for pair in lines[0].attrib["points"].split())
    assert low > high > places["ar"][1]  # pixels grow downwards: less accurate is lower
    slow = [float(circle.attrib["cx"]) for circle in second.findall(f"{SVG}circle")]
    assert max(slow) == slow[0]  # ar comes first, and is the slowest
    assert "a<b" in str(root.findtext(f"{SVG}title"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "rows"], "--infilling"),
        (["--infilling=--every 4"], "--out"),
    ],
)
def test_what_is_missing_is_said(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        tradeoff.main(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_figures_of_something_else_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"benchmark": "latency"}')
    assert tradeoff.main(["--figures", str(other)]) == 2
    assert "holds no figures" in capsys.readouterr().err

"""Scoring, resuming and the keys of the infilling benchmark, with a fake engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import infilling
from benchmarks.report import Rows
from benchmarks.tasks import load_tasks
from engine.request import InfillRequest, WeightsError
from tests.benchmarks.conftest import task, write_data
from tests.benchmarks.fake_engine import FakeEngine

RIGHT, EQUIVALENT, WRONG = "    return x + y", "    return 2 * x", "    return x"


def answer(request: InfillRequest) -> str:
    return "    y = y + y" if "return y" in request.suffix else RIGHT


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine(answer)
    monkeypatch.setattr(infilling, "load_engine", lambda *_: engine)
    return engine


def json_line(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    figures: dict[str, object] = json.loads(lines[0])
    return figures


def test_a_whole_line_hole_keeps_its_line_end_in_the_suffix(data: Path) -> None:
    last = load_tasks(data)[3]
    assert (last.suffix, last.canonical) == ("\n    return y\n", "    y = y + y")
    raw = load_tasks(data, "raw")[3]
    assert (raw.suffix, raw.canonical) == ("    return y\n", "    y = y + y\n")
    assert last.program(last.canonical) == raw.program(raw.canonical)


@pytest.mark.parametrize(
    ("text", "passed", "em", "parses"),
    [
        (RIGHT, True, True, True),
        (EQUIVALENT, True, False, True),
        (WRONG, False, False, True),
        ("    return (x", False, False, False),
        ("", False, False, True),
    ],
)
def test_a_text_is_scored_as_returned(
    data: Path, text: str, passed: bool, em: bool, parses: bool
) -> None:
    first = load_tasks(data)[0]
    row = infilling.measure_task(FakeEngine(lambda _: text), first, infilling.Filling(mode="ar"))
    assert (row["passed"], row["em"], row["parses"]) == (passed, em, parses)


def test_the_request_is_what_an_editor_would_ask(data: Path) -> None:
    engine = FakeEngine(answer)
    filling = infilling.Filling(mode="free", max_tokens=7, syntax=False)
    infilling.measure_task(engine, load_tasks(data)[3], filling)
    request = engine.asked[0]
    assert request.prefix == "def double(x):\n    y = x\n"
    assert request.suffix == "\n    return y\n"
    assert (request.want, request.language, request.deadline_ms) == ("line", "python", None)
    assert (request.mode, request.max_tokens, request.syntax) == ("free", 7, False)


def test_the_json_line_has_its_keys(
    data: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infilling.main(["--data", str(data), "--mode", "verified", "--json"]) == 0
    figures = json_line(capsys)
    assert figures["pass@1"] == figures["em"] == figures["parse_rate"] == 1.0
    assert (figures["n"], figures["tokens"], figures["forwards"]) == (4, 17, 9)
    assert figures["tokens_per_forward"] == 1.889
    assert figures["from"] == {"base": 17, "lookup": 0, "denoiser": 0}
    assert {"ms_p50", "ms_p90", "near_ties", "model", "mode", "data", "every"} <= figures.keys()
    assert (figures["model"], figures["mode"]) == ("fake", "verified")


def test_every_offset_and_limit_choose_the_tasks(
    data: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    infilling.main(["--data", str(data), "--every", "2", "--offset", "1", "--json"])
    assert json_line(capsys)["n"] == 2
    assert "return y" in fake.asked[-1].suffix
    infilling.main(["--data", str(data), "--limit", "1", "--json"])
    assert json_line(capsys)["n"] == 1


def test_a_stopped_run_goes_on_where_it_stopped(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "rows.jsonl"

    def stop_at_the_third(request: InfillRequest) -> str:
        if len(engine.asked) == 3:
            raise KeyboardInterrupt
        return answer(request)

    engine = FakeEngine(stop_at_the_third)
    monkeypatch.setattr(infilling, "load_engine", lambda *_: engine)
    command = ["--data", str(data), "--out", str(out), "--json"]
    assert infilling.main(command) == 130
    assert capsys.readouterr().out == ""
    with out.open("a") as file:
        file.write('{"id": "half a row')

    second = FakeEngine(answer)
    monkeypatch.setattr(infilling, "load_engine", lambda *_: second)
    assert infilling.main(command) == 0
    assert len(second.asked) == 2
    assert json_line(capsys)["n"] == 4
    assert len(out.read_text().splitlines()) == 4


def test_rows_of_another_run_are_not_mixed_in(
    data: Path, tmp_path: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.jsonl"
    command = ["--data", str(data), "--out", str(out), "--mode"]
    assert infilling.main([*command, "ar"]) == 0
    capsys.readouterr()
    assert infilling.main([*command, "free"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "another run" in captured.err


def test_nothing_is_reported_when_the_original_solutions_fail(
    tmp_path: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = write_data(tmp_path / "bad.jsonl.gz", [task(0, "    return x\n")])
    assert infilling.main(["--data", str(bad), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "original solution" in captured.err
    assert fake.asked == []


def test_an_engine_that_cannot_load_is_one_line_and_its_exit_code(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*_: object) -> FakeEngine:
        raise WeightsError("the weights are missing; run dlsp-engine pull")

    monkeypatch.setattr(infilling, "load_engine", load)
    assert infilling.main(["--data", str(data)]) == 3
    assert capsys.readouterr().err == "error: the weights are missing; run dlsp-engine pull\n"


@pytest.mark.parametrize("content", [b"not gzip", None])
def test_a_wrong_data_file_is_one_line(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data.jsonl.gz"
    if content is not None:
        path.write_bytes(content)
    assert infilling.main(["--data", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_rows_come_back_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.jsonl", "run")
    rows.add("b", {"x": 1})
    rows.add("a", {"x": 2})
    again = Rows(tmp_path / "rows.jsonl", "run")
    assert [row["x"] for row in again.of(["a", "c", "b"])] == [2, 1]

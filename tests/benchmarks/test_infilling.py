"""Scoring, resuming and the keys of the infilling benchmark, with a fake engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import filling, infilling
from benchmarks.report import Rows
from benchmarks.sandbox import Run
from benchmarks.tasks import load_tasks
from engine.request import InfillRequest, WeightsError
from tests.benchmarks.conftest import task, write_data
from tests.benchmarks.fake_engine import RIGHT, FakeEngine, answer, json_line

EQUIVALENT, WRONG = "    return 2 * x", "    return x"


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
    row = infilling.score(first, {"text": text})
    assert (row["passed"], row["em"], row["parses"]) == (passed, em, parses)
    assert (row["task"], row["set"]) == (first.task_id, "SingleLineInfilling")
    assert row["group"] == "SingleLineInfilling/HumanEval/0"


def test_the_request_is_what_an_editor_would_ask(data: Path) -> None:
    how = filling.Filling(mode="free", max_tokens=7, syntax=False)
    request = infilling.request_of(load_tasks(data)[3], how)
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


def test_the_figures_are_split_by_length_and_cursor(
    data: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    infilling.main(["--data", str(data), "--json"])
    figures = json_line(capsys)
    line = {"n": 3, "pass@1": 1.0, "em": 1.0, "parse_rate": 1.0, "tokens_per_forward": 2.0}
    lengths, cursors = figures["by_length"], figures["by_cursor"]
    assert isinstance(lengths, dict) and isinstance(cursors, dict)
    assert list(lengths) == ["1-4", "5-8"]  # "    return x + y", "    y = y + y"
    assert {key: lengths["1-4"][key] for key in line} == line
    assert list(cursors) == ["line_start"]
    assert "by_set" not in figures
    assert (figures["tokens_per_completion"], figures["forwards_per_completion"]) == (4.25, 2.25)


def test_several_sets_of_a_folder_are_told_apart(
    data: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    multi = {**task(0, "    return x + y\n"), "task_id": "MultiLineInfilling/HumanEval/0/L1_L1"}
    write_data(data.parent / "HumanEval-MultiLineInfilling.jsonl.gz", [multi])
    command = ["--data", str(data.parent), "--set", "single-line", "multi-line", "--json"]
    assert infilling.main(command) == 0
    figures = json_line(capsys)
    by_set = figures["by_set"]
    assert isinstance(by_set, dict)
    assert {name: part["n"] for name, part in by_set.items()} == {
        "MultiLineInfilling": 1,
        "SingleLineInfilling": 4,
    }
    assert fake.asked[-1].want == "block"


@pytest.mark.parametrize("jobs", ["0", "1", "3"])
def test_programs_tested_beside_the_model_give_the_same_rows_in_order(
    data: Path,
    fake: FakeEngine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    jobs: str,
) -> None:
    out = tmp_path / "rows.jsonl"
    assert infilling.main(["--data", str(data), "--out", str(out), "--jobs", jobs, "--json"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in rows] == [task.task_id for task in load_tasks(data)]
    assert all(row["passed"] for row in rows)


def test_the_model_waits_for_each_program_with_no_jobs(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def answering(request: InfillRequest) -> str:
        events.append("fill")
        return answer(request)

    def testing(source: str) -> Run:
        events.append("test")
        return Run(outcome="passed")

    monkeypatch.setattr(infilling, "load_engine", lambda *_: FakeEngine(answering))
    monkeypatch.setattr(infilling, "run_program", testing)
    assert infilling.main(["--data", str(data), "--jobs", "0", "--limit", "2"]) == 0
    assert events[-4:] == ["fill", "test", "fill", "test"]


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

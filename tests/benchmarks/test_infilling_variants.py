"""The infilling benchmark with something taken away: cursors inside tokens, healing, the suffix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import infilling
from tests.benchmarks.fake_engine import FakeEngine, json_line


@pytest.mark.parametrize(("more", "prefix"), [([], "    r"), (["--uncut"], "")])
def test_recut_puts_the_cursor_inside_a_token(
    data: Path,
    fake: FakeEngine,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    prefix: str,
    tmp_path: Path,
) -> None:
    out = tmp_path / "rows.jsonl"
    command = ["--data", str(data), "--recut", "2", "--out", str(out), "--json", *more]
    assert infilling.main(command) == 0
    assert json_line(capsys)["n"] == 2
    assert all(asked.prefix.rpartition("\n")[2].startswith(prefix) for asked in fake.asked)
    assert all(asked.prefix.endswith("\n") is not bool(prefix) for asked in fake.asked)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["task"][-4] for row in rows] == ["0", "1"]
    assert {row["cursor"] for row in rows} == {"mid_token" if prefix else "line_start"}
    assert infilling.main([*command, "--seed", "5"]) == 2  # other cuts are another run


def test_uncut_means_nothing_without_recut(data: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        infilling.main(["--data", str(data), "--uncut"])
    assert stop.value.code == 2


def test_a_blank_suffix_is_hidden_from_the_engine_and_stays_in_the_program(
    data: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infilling.main(["--data", str(data), "--offset", "3", "--blank-suffix", "--json"]) == 0
    figures = json_line(capsys)
    assert fake.asked[0].suffix == ""
    # It answers RIGHT there, a return of its own before the suffix: the program passes.
    assert (figures["pass@1"], figures["em"], figures["blank_suffix"]) == (1.0, 0.0, True)


def test_healing_can_be_switched_off(
    data: Path, fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--data", str(data), "--limit", "1", "--json"]
    assert infilling.main([*command, "--no-healing"]) == 0
    assert json_line(capsys)["healing"] is False
    assert infilling.main(command) == 0
    assert [asked.healing for asked in fake.asked] == [False, True]

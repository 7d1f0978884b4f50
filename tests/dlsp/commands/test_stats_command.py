"""`dlsp stats`: what the figures mean, how they look, and that erasing asks first."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from dlsp.__main__ import main
from dlsp.commands.stats_command import page, plot
from dlsp.scores.scorecard import Row, default_path, read_rows
from dlsp.scores.summary import figures, percentile, summarise
from tests.dlsp.scores.test_scorecard import row, write

NOON = time.mktime((2026, 11, 2, 12, 0, 0, 0, 0, -1))
DAY = 86_400


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DLSP_DATA_DIR", str(tmp_path))


def some_rows() -> list[Row]:
    taken = {"accepted": True, "accepted_characters": 20, "acceptances": 1}
    return [
        row(1, at=NOON, latency_ms=10.0, **taken, kept_30=1.0, kept_300=0.2),
        row(2, at=NOON, latency_ms=20.0, accepted_characters=5, acceptances=2, kept_30=0.5),
        row(3, at=NOON + DAY, latency_ms=30.0, typed_characters=4),
        row(4, at=NOON + DAY, latency_ms=40.0, language="rust"),
        row(5, at=NOON + DAY, shown=False),
    ]


def test_figures() -> None:
    found = figures(some_rows())
    assert found == {
        "shown": 4, "withheld": 1, "accepted": 1, "partial": 1, "typedThrough": 1,
        "acceptance": 0.5,
        "kept30": {"kept": 1, "of": 2, "share": 0.5},
        "kept300": {"kept": 0, "of": 1, "share": 0.0},
        "keystrokesSaved": 22, "msP50": 25.0, "msP90": 37.0,
    }  # fmt: skip
    nothing = figures([])
    assert (nothing["acceptance"], nothing["msP50"], nothing["kept30"]["share"]) == (None,) * 3


def test_percentiles() -> None:
    assert percentile([], 50) is None
    assert percentile([7.0], 90) == 7.0
    assert percentile([float(n) for n in range(101)], 90) == 90.0


def test_by_language_and_day() -> None:
    found = summarise(some_rows(), days=30)
    assert list(found["byLanguage"]) == ["python", "rust"]
    assert found["byLanguage"]["rust"]["msP90"] == 40.0
    assert [(day["day"], day["shown"], day["accepted"]) for day in found["byDay"]] == [
        ("2026-11-02", 2, 2), ("2026-11-03", 2, 0),
    ]  # fmt: skip


def test_the_page_is_plain_without_a_terminal() -> None:
    lines = list(page(summarise(some_rows(), days=30), bars=False))
    assert "".join(lines).isascii()
    assert "4 suggestions shown, 1 accepted, 1 in part, 1 typed along; 1 withheld" in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["language", "python", "rust", "all"]
    assert len({len(line) for line in lines[2:]}) == 1
    assert list(page(summarise([], days=7), bars=True)) == ["no suggestions in the last 7 days"]


def test_the_plot_has_a_bar_a_day_and_fits() -> None:
    days = [{"day": f"d{n}", "shown": n, "accepted": n // 2} for n in range(1, 101)]
    _, shown, taken, under = plot(days, columns=60)
    assert (len(shown), len(taken)) == (60, 60)
    assert shown[-1] == "█" and taken[-1] == "▄"
    assert under.strip() == "d49 to d100, at most 100 a day"
    assert plot_of([8, 0, 1]) == "█ ▁"


def plot_of(values: list[int]) -> str:
    days = [{"day": "d", "shown": value, "accepted": 0} for value in values]
    return list(plot(days, columns=80))[1].removeprefix("shown").strip()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    write(default_path(), row(1), row(2, language="go"), row(3, at=time.time() - 3 * DAY))
    assert main(["stats", "--json", "--days", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["days"], found["shown"], set(found["byLanguage"])) == (2, 2, {"python", "go"})
    assert main(["stats"]) == 0
    assert "3 suggestions shown" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["stats", "--days", "soon"])
    assert ended.value.code == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_erasing_asks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write(default_path(), row(1))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["stats", "--erase"]) == 2
    assert "--yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    assert main(["stats", "--erase"]) == 1
    assert len(read_rows(default_path(), days=1)) == 1
    replay = default_path().parent / "replays" / "replay-1.json"
    replay.parent.mkdir()
    replay.write_text("{}")
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert main(["stats", "--erase"]) == 0
    assert "erased: 1 suggestions, 1 replay files" in capsys.readouterr().err
    assert not replay.exists()
    write(default_path(), row(2))
    assert main(["stats", "--erase", "--yes"]) == 0
    assert read_rows(default_path(), days=1) == []

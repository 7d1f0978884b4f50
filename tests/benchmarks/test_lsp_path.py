"""The demo and the latency benchmark over the real LSP server; the FIM engine knows the answers."""

from __future__ import annotations

import json

import pytest

from benchmarks import demo, latency
from benchmarks.tasks import stdlib_files
from tests.benchmarks.fim_server import fim_server

pytestmark = pytest.mark.e2e


def test_the_demo_shows_nine_holes_and_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fim_server(lambda _: "x") as url:
        monkeypatch.setenv("DLSP_ENGINE_URL", url)
        assert demo.main([]) == 0
    out, err = capsys.readouterr()
    assert err.count("examples/") == 9
    for name in ("inventory.py", "router.ts", "cache.go"):
        assert out.count(f"\n{name}\n") == 1
    assert "return sum(⟦x⟧)" in out
    table = out[out.index("hole  ") :].splitlines()
    assert len(table) == 10
    assert table[1].split()[:5] == ["inventory.py:50:20", "mid-line", "1", "2", "1"]


def test_a_hole_without_a_suggestion_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fim_server(lambda _: "") as url:
        monkeypatch.setenv("DLSP_ENGINE_URL", url)
        assert demo.main([]) == 0
    assert capsys.readouterr().err.count("no suggestion: ") == 9


def test_the_demo_fails_with_the_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fim_server(lambda _: "", status=500) as url:
        monkeypatch.setenv("DLSP_ENGINE_URL", url)
        assert demo.main([]) == 1
    assert "error: " in capsys.readouterr().err


def rest_of_line(prompt: str) -> str:
    """What stands behind the prompt's last lines in Python's own sources, up to the line's end."""
    for file in stdlib_files():
        _, found, after = file.read_text(encoding="utf-8").partition(prompt[-150:])
        if found:
            return after.partition("\n")[0]
    return ""


def test_latency_reports_one_json_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fim_server(rest_of_line) as url:
        monkeypatch.setenv("DLSP_ENGINE_URL", url)
        assert latency.main(["--requests", "12", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    found = json.loads(lines[0])
    assert found["model"] == "table"
    for kind in ("warm", "fresh"):
        assert found[kind]["n"] == 12
        assert found[kind]["ms_total"]["p50"] > 0
    assert found["fresh"]["ms"]["encode"]["p50"] == 1  # a warm one may come from memory


def test_latency_refuses_when_answers_are_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fim_server(lambda _: "") as url:
        monkeypatch.setenv("DLSP_ENGINE_URL", url)
        assert latency.main(["--requests", "10", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "only 0 of 10 warm requests had an answer" in captured.err

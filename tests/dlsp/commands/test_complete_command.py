"""`dlsp complete`: what is refused before any server starts, and how the answer is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlsp.__main__ import main
from dlsp.commands import one_shot
from dlsp.commands.complete_command import JSON_KEYS, read_hole
from engine.request import BadRequest


def write(folder: Path, content: bytes) -> str:
    path = folder / "file.py"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "at", "line", "column"),
    [
        (b"abc\ndef\n", "1:1", 0, 0),
        (b"abc\ndef\n", "1:4", 0, 3),
        (b"abc\ndef\n", "3:1", 2, 0),
        (b"", "1:1", 0, 0),
        ("é😀x".encode(), "1:4", 0, 3),
        (b"ab\r\ncd\re", "3:2", 2, 1),
        (b"a\x0cb\xe2\x80\xa8c", "1:6", 0, 5),
    ],
)
def test_places(tmp_path: Path, content: bytes, at: str, line: int, column: int) -> None:
    hole = read_hole(write(tmp_path, content), at)
    assert (hole.line, hole.column) == (line, column)
    assert hole.text.encode() == content


@pytest.mark.parametrize(
    ("content", "at", "says"),
    [
        (b"abc\ndef\n", "4:1", "has 3 lines"),
        (b"abc", "2:1", "has 1 line"),
        (b"abc\n", "1:5", "has 3 characters, so COL is at most 4"),
        (b"a\n", "1:3", "has 1 character, so"),
        (b"abc", "0:1", "LINE:COL"),
        (b"abc", "1", "LINE:COL"),
        (b"abc", "1:-1", "LINE:COL"),
        (b"abc", "a:b", "LINE:COL"),
        pytest.param(b"abc", f"{'9' * 5000}:1", "LINE:COL", id="5000 digits"),
        (b"ok\xff\xfe", "1:1", "not UTF-8 text (byte 2)"),
        (b"\x7fELF\x00\x01", "1:1", "binary"),
    ],
)
def test_refused_with_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, at: str, says: str
) -> None:
    assert main(["complete", write(tmp_path, content), "--at", at]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert says in shown.err


def test_missing_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["complete", str(tmp_path / "none.py"), "--at", "1:1"]) == 2
    assert "no such file" in capsys.readouterr().err
    with pytest.raises(BadRequest, match="folder"):
        read_hole(str(tmp_path), "1:1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["complete"],
        ["complete", "x.py"],
        ["complete", "x.py", "--at", "1:1", "--want", "page"],
        ["complete", "x.py", "--at", "1:1", "--deadline-ms", "0"],
        ["complete", "x.py", "--at", "1:1", "--deadline-ms", "soon"],
        ["nonsense"],
    ],
)
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: dlsp" in capsys.readouterr().err


def test_help_explains_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["complete", "--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "both count from 1, COL in characters" in shown


def found(**changes: Any) -> dict[str, Any]:
    detail: dict[str, Any] = dict.fromkeys((*JSON_KEYS, "error"))
    return {**detail, "text": "x + y", "ms": {"total": 1.0}, **changes}


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for the server process: what it is asked with, and what it answers."""
    told: dict[str, Any] = {"answer": found()}
    monkeypatch.setenv("DLSP_ENGINE_URL", "http://127.0.0.1:9")  # so that none is started here

    async def ask(hole: Any, options: dict[str, Any]) -> dict[str, Any]:
        told["options"] = options
        answer: dict[str, Any] = told["answer"]
        return answer

    monkeypatch.setattr(one_shot, "ask_server", ask)
    return told


def test_exit_codes_and_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answered: dict[str, Any]
) -> None:
    arguments = ["complete", write(tmp_path, b"a = "), "--at", "1:5"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "x + y\n"

    answered["answer"] = found(text="", reason="inside a comment")
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "dlsp: nothing to suggest: inside a comment\n")

    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["text"] == ""

    error = {"code": "download", "message": "no source answered", "exit_code": 4}
    answered["answer"] = found(text="", error=error)
    assert main(arguments) == 4
    assert capsys.readouterr().err == "dlsp: no source answered\n"


def test_arguments_become_settings(tmp_path: Path, answered: dict[str, Any]) -> None:
    file = write(tmp_path, b"a = ")
    main(["complete", file, "--at", "1:5", "--model", "m", "--weights", "w.gguf", "--want", "line",
          "--mode", "ar", "--deadline-ms", "300"])  # fmt: skip
    options = answered["options"]
    developer = options.pop("developer")
    assert Path(developer.pop("weights")).is_absolute()
    assert developer.pop("start_wait_ms") > 0
    assert developer == {"want": "line", "decoding": "ar", "scorecard": False}
    assert options == {"model": "m", "deadline_ms": 300.0}


def test_json_has_the_promised_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answered: dict[str, Any]
) -> None:
    assert main(["complete", write(tmp_path, b""), "--at", "1:1", "--json"]) == 0
    assert tuple(json.loads(capsys.readouterr().out)) == JSON_KEYS

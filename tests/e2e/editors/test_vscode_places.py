"""VS Code where code is not a file of one trusted folder: notebooks, untitled files, workspaces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.editors.code_server import CodeServer
from tests.e2e.editors.conftest import OpenWorkbench
from tests.e2e.editors.samples import PAIRS, START, WHOLE
from tests.e2e.editors.workbench import Workbench


def notebook(*cells: str) -> str:
    """A notebook in Python with these cells of code."""
    made = [
        {"cell_type": "code", "id": f"cell{number}", "source": cell.splitlines(keepends=True)}
        | {"metadata": {}, "outputs": [], "execution_count": None}
        for number, cell in enumerate(cells)
    ]
    about = {"language_info": {"name": "python"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": about, "cells": made})


def test_a_cell_of_a_notebook(workbench: Workbench) -> None:
    file = workbench.write("calc.ipynb", notebook("total = 1", START))
    workbench.open_notebook(file, cell=1)
    workbench.type("    return ", then=WHOLE)
    workbench.accept()
    saved = json.loads(workbench.save(file))
    assert "".join(saved["cells"][1]["source"]) == START + WHOLE


def test_an_untitled_file(workbench: Workbench) -> None:
    workbench.new_file()
    # In one go, and without indents, of which VS Code would make more.
    workbench.page.keyboard.insert_text(PAIRS[PAIRS.index("total") :])
    workbench.type("print(", then="print(product)")
    workbench.accept()
    assert "print(product)" in workbench.lines()


def test_a_workspace_of_two_folders(open_workbench: OpenWorkbench, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for kind in ("made", "calc"):
            (tmp_path / folder / f"{kind}_{folder}.py").write_text(START)
    both = tmp_path / "both.code-workspace"
    # Such a pattern begins at the folder that a file lies in.
    settings = {"dlsp.paths": {"/made_*.py": False}}
    folders = [{"path": "one"}, {"path": "two"}]
    both.write_text(json.dumps({"folders": folders, "settings": settings}))
    workbench = open_workbench(both)
    workbench.until_ready()
    for folder in ("one", "two"):
        workbench.open(tmp_path / folder / f"made_{folder}.py")
        workbench.page.keyboard.type("    return ")
        workbench.command("Why This Suggestion, or None")
        workbench.until(lambda: "switched off" in "".join(workbench.lines()), "it says why")
        assert workbench.ghost() == ""
        workbench.discard()
        workbench.open(tmp_path / folder / f"calc_{folder}.py")
        workbench.type("    return ", then=WHOLE)
        workbench.discard()


@pytest.fixture
def distrustful(code_server: CodeServer) -> Iterator[None]:
    """A user whose editor trusts no folder unasked, which is what VS Code does by itself."""
    code_server.configure({"dlsp.python": sys.executable, "security.workspace.trust.enabled": True})
    yield
    code_server.configure({"dlsp.python": sys.executable})


@pytest.mark.usefixtures("distrustful")
def test_an_untrusted_folder_chooses_no_program(
    open_workbench: OpenWorkbench, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\nexec '{sys.executable}' \"$@\"\n")
    program.chmod(0o755)
    project = tmp_path / "project"
    (project / ".vscode").mkdir(parents=True)
    chosen = {"dlsp.python": str(program), "dlsp.model": "no such model"}
    (project / ".vscode" / "settings.json").write_text(json.dumps(chosen))
    (project / "calc.py").write_text(START)
    workbench = open_workbench(project)
    workbench.page.locator(".statusbar-item", has_text="Restricted Mode").wait_for()
    workbench.until_ready()
    workbench.open(project / "calc.py")
    workbench.type("    return ", then=WHOLE)
    assert not ran.exists()

"""What `dlsp-engine about` prints: everything, whatever is missing."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from engine import about_command
from engine.__main__ import main
from engine.request import WIRE_VERSION


def test_this_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["about"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wireVersion"] == WIRE_VERSION
    assert found["torch"]["version"] == torch.__version__
    assert len(found["torch"]["gpus"]) == torch.cuda.device_count()
    assert found["kernels"]["threads"] >= 1
    assert found["missingGrammars"] == []


def test_without_torch_the_rest_is_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "engine.kernels.cpu", raising=False)
    found = about_command.about()
    assert "torch" in found["torch"]["error"]
    assert "error" in found["kernels"]
    assert found["missingGrammars"] == []


def test_missing_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about_command, "LANGUAGES", ("python", "klingon"))
    assert about_command.about()["missingGrammars"] == ["klingon"]

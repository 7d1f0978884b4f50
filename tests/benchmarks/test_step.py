"""The step benchmark reports figures of one run, and nothing when a layer is wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from benchmarks import step
from engine.kernels import cpu, dispatch


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = replace(
        step.SHAPES["135M"], hidden=64, intermediate=96, layers=2, heads=4, kv_heads=2, head_dim=16,
        vocab=200, qkv_bias=True,
    )  # fmt: skip
    monkeypatch.setattr(step, "SHAPES", {**step.SHAPES, "135M": tiny})
    monkeypatch.setattr(step, "_READ_BYTES", 1 << 20)


ARGUMENTS = ["--model", "135M", "--context", "40", "--repeats", "1", "--json"]


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_one_line_of_figures(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(dispatch.VARIABLE, name)
    assert step.main(ARGUMENTS) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["kernels"] == name and line["device"] == "cpu"
    figures = ("ms_1_row", "ms_8_rows", "ms_16_rows", "prefill_tok_s", "read_floor_ms")
    assert all(line[figure] > 0 for figure in figures)


@pytest.mark.parametrize("kernel", ["linear", "attention", "rms_norm"])
def test_a_wrong_layer_gets_no_figures(
    kernel: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = getattr(cpu, kernel)

    def wrong(*given: object) -> torch.Tensor:
        found: torch.Tensor = right(*given)
        return found * 1.2

    monkeypatch.setattr(cpu, kernel, wrong)
    assert step.main(ARGUMENTS) == 2
    said = capsys.readouterr()
    assert said.out == "" and "off its reference" in said.err


def test_a_row_that_depends_on_its_neighbours_gets_no_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = cpu.linear
    monkeypatch.setattr(cpu, "linear", lambda x, *rest: right(x, *rest) * (1 + 2e-3 * (len(x) > 1)))
    assert step.main(ARGUMENTS) == 2
    assert "depends on the rows beside it" in capsys.readouterr().err


def test_large_shapes_are_for_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert step.main(["--model", "7B"]) == 2
    assert "for a GPU" in capsys.readouterr().err

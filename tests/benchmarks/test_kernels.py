"""The kernel benchmark reports ratios of one run, and nothing when a kernel is wrong."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import kernels
from engine.kernels import cpu


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "FORWARD", ((16, 64, 2), (64, 16, 2)))
    monkeypatch.setattr(kernels, "HEAD", (40, 64, 1))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # a GPU's are another test's


def test_one_line_of_medians_and_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    assert kernels.main(["--repeats", "1", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    found = line["kernels"]["layers_8"]
    assert found["rows"] == 8
    assert found["fbgemm_int8_over_ours"] > 0 and found["float32_over_ours"] > 0
    assert "float32_ms" not in line["kernels"]["layers_32"]
    assert line["kernels"]["attention_500_1"]["torch_over_ours"] > 0


@pytest.mark.parametrize("kernel", ["linear", "attention"])
def test_a_wrong_kernel_gets_no_figures(
    kernel: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = getattr(cpu, kernel)

    def wrong(*given: object) -> torch.Tensor:
        found: torch.Tensor = right(*given)
        found[0, 0] = float("nan")
        return found

    monkeypatch.setattr(cpu, kernel, wrong)
    assert kernels.main(["--repeats", "1", "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "off its reference" in said.err

"""The cases that `benchmarks.kernels` times on a GPU pass their own gate, at a tiny shape."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu_kernels
from benchmarks.report import BenchmarkError
from benchmarks.triton_cases import Shape

TINY = Shape(hidden=64, inner=48, heads=4, kv_heads=2, dim=32, vocab=101)


def test_every_case_computes_what_it_should(device: torch.device) -> None:
    found = list(gpu_kernels.cases(TINY, "tiny", context=70))
    assert {case.name.split(" ", 1)[1].split(":")[0].split(",")[0] for case in found} == {
        "norm", "confidence", "residual and norm", "swiglu", "rotation and cache",
        "attention over 70", "commit",
    }  # fmt: skip
    for case in found:
        gpu_kernels.check(case)
        case.eager()


def test_a_wrong_kernel_gets_no_time() -> None:
    case = gpu_kernels.Case(
        name="off",
        ours=lambda: torch.ones(3),
        meant=lambda: torch.tensor([1.0, 1.0, 1.1]),
        eager=lambda: None,
        bytes=12,
    )
    with pytest.raises(BenchmarkError, match="off its reference"):
        gpu_kernels.check(case)


def test_the_share_of_the_ceiling() -> None:
    case = gpu_kernels.Case(
        name="half", ours=torch.ones, meant=torch.ones, eager=lambda: None, bytes=4_000_000
    )
    times = iter((2.0, 5.0))
    line = gpu_kernels.figures(case, lambda run: next(times), ceiling_gb_s=4.0)
    assert (line["ms"], line["share_of_ceiling"], line["eager_over_ours"]) == (2.0, 0.5, 2.5)


@pytest.mark.gpu
def test_a_gpu_is_timed() -> None:
    assert gpu_kernels.ceiling_gb_s() > 0

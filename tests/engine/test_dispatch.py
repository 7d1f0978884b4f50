"""Kernels are chosen once, by machine or by name; what cannot run says so."""

from __future__ import annotations

import pytest
import torch

from engine.kernels import cpu, dispatch, reference
from engine.request import WeightsError

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")


def test_unasked_the_cpu_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(dispatch.VARIABLE, raising=False)
    chosen = dispatch.choose()
    assert (chosen.name, chosen.kernels, chosen.product) == ("cpu", cpu, None)
    assert chosen.why


def test_a_name_in_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(dispatch.VARIABLE, "reference")
    chosen = dispatch.choose()
    assert chosen.kernels is reference and dispatch.VARIABLE in chosen.why
    assert dispatch.choose("cpu").kernels is cpu


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(dispatch.VARIABLE, "cuda")
    with pytest.raises(WeightsError, match="cpu, triton, reference"):
        dispatch.choose()


@no_gpu
def test_triton_without_a_device_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(WeightsError, match=r"no CUDA device|pip install"):
        dispatch.choose("triton")
    monkeypatch.setattr(dispatch, "find_spec", lambda name: None)
    with pytest.raises(WeightsError, match=r"dlsp\[gpu\]"):
        dispatch.choose("triton")
    assert dispatch.choose().name == "cpu"


@pytest.mark.gpu
def test_triton_takes_the_gpu() -> None:
    chosen = dispatch.choose("triton")
    assert (chosen.name, chosen.device.type) == ("triton", "cuda")

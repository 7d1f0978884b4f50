"""Which kernels a model computes with, chosen once when it is loaded.

`cpu`, unless DLSP_KERNELS names `triton`, or `reference`, for tests. `triton` has not been run on a
GPU yet, so it is never chosen unasked; without a device it needs TRITON_INTERPRET=1 and is slow.
Knows no models.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from engine.kernels import Kernels, cpu, reference, reference_step
from engine.kernels.grouped import Matrix
from engine.request import WeightsError

VARIABLE = "DLSP_KERNELS"
NAMES = ("cpu", "triton", "reference")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """What a model computes with, and where its tensors lie.

    `product(x, weight, bias)`: the linear over `Matrix` weights, None where linears are the CPU's
    packed ones. `why`: in one line, how the choice came about.
    """

    name: str
    device: torch.device
    kernels: Kernels
    product: Callable[[Tensor, Matrix, Tensor | None], Tensor] | None
    why: str


def choose(wanted: str | None = None) -> KernelSet:
    """The kernels of this machine, or those that `wanted` or the environment names. Raises
    WeightsError where those cannot run here."""
    wanted = wanted or os.environ.get(VARIABLE)
    if wanted is not None and wanted not in NAMES:
        raise WeightsError(f"{VARIABLE} is {wanted!r}; use one of {', '.join(NAMES)}")
    if wanted == "triton" and (missing := _why_not_triton()):
        raise WeightsError(f"the Triton kernels cannot run: {missing}")
    why = f"{VARIABLE} says so" if wanted else "the default"
    chosen = {"cpu": _cpu, "triton": _triton, "reference": _reference}[wanted or "cpu"](why)
    _log.info("kernels: %s on %s (%s)", chosen.name, chosen.device, why)
    return chosen


def _why_not_triton() -> str | None:
    if find_spec("triton") is None:
        return "triton is not installed; `pip install 'dlsp[gpu]'` (Linux only)"
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return "there is no CUDA device"
    return None


def _cpu(why: str) -> KernelSet:
    device = torch.device("cpu")
    return KernelSet(name="cpu", device=device, kernels=cpu, product=None, why=why)


def _reference(why: str) -> KernelSet:
    device = torch.device("cpu")
    return KernelSet(
        name="reference", device=device, kernels=reference, product=reference_step.linear, why=why
    )


def _triton(why: str) -> KernelSet:
    from engine.kernels.triton import kernels

    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    device = torch.device("cpu" if interpreted else "cuda")
    return KernelSet(name="triton", device=device, kernels=kernels, product=kernels.linear, why=why)

"""The Triton kernels against their reference: on the interpreter where TRITON_INTERPRET=1 says so,
on a GPU otherwise (mark `gpu`).

The interpreter is chosen when triton is imported, so it gets a process of its own:
tests/engine/test_triton_interpreter.py starts it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_HERE = Path(__file__).parent

pytest.importorskip("triton")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the interpreter every test here needs a GPU."""
    for item in items:
        if item.path.is_relative_to(_HERE) and not INTERPRETED:
            item.add_marker("gpu")


@pytest.fixture
def device() -> torch.device:
    """Where the kernels run."""
    return torch.device("cpu" if INTERPRETED else "cuda")


@pytest.fixture(autouse=True)
def poisoned_outputs(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> Iterator[None]:
    """What a kernel does not write stays NaN, or a number that no result can be."""
    empty, empty_like = torch.empty, torch.empty_like

    def poison(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(float("nan") if tensor.is_floating_point() else 99)

    monkeypatch.setattr(torch, "empty", lambda *a, **k: poison(empty(*a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: poison(empty_like(*a, **k)))
    torch.manual_seed(7)
    with device:
        yield

"""A whole engine on the Triton kernels writes what it writes on the reference, token for token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from engine.canvas_runner import CanvasRunner
from engine.engine import Engine
from engine.fused_denoiser import FusedDenoiser
from engine.kernels import dispatch
from engine.placement import PlacedTransformer, place
from engine.request import InfillRequest
from tests.engine.tiny_denoiser import tiny_engine

HOLE = InfillRequest(
    prefix="def area(w, h):\n    return ",
    suffix="\n",
    language="python",
    max_tokens=3,
    deadline_ms=None,
    syntax=False,
)


def on(engine: Engine, name: str) -> Engine:
    """The same model on other kernels; drafts seem to pay, so that the denoiser is asked."""
    kernels = dispatch.choose(name)
    runner = engine.runner
    assert isinstance(runner, CanvasRunner)
    base, denoiser = place(runner.base, runner.denoiser, kernels)
    assert isinstance(base, PlacedTransformer) and base.device == kernels.device
    assert isinstance(denoiser, FusedDenoiser) == (name == "triton")
    return Engine(engine.name, CanvasRunner(base, engine.tokenizer, denoiser, (0.9,) * 5), name)


@pytest.mark.parametrize(("fim", "mode"), [(True, "verified"), (False, "free")])
def test_token_for_token(tmp_path: Path, fim: bool, mode: Literal["verified", "free"]) -> None:
    """With the suffix in the base's own stream, and in one that only the denoiser sees."""
    with torch.device("cpu"):
        engine = tiny_engine(tmp_path, fim=fim)
        hole = replace(HOLE, mode=mode)
        mine, meant = (on(engine, name).infill(hole) for name in ("triton", "reference"))
    assert mine.text and mine.text == meant.text
    assert (mine.tokens, mine.forwards, mine.steps) == (meant.tokens, meant.forwards, meant.steps)
    assert mine.confidence == pytest.approx(meant.confidence, abs=1e-4)
    assert mine.steps > 0
    assert (mine.kernels, meant.kernels) == ("triton", "reference")
    # on a GPU a fall-back is a failure
    assert (mine.graphs > 0) == torch.cuda.is_available()

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks import native_step
from benchmarks.step import SHAPES, random_base
from engine.kernels import dispatch
from engine.model.family import Family


def test_a_cached_step_is_checked_against_a_whole_one_and_timed() -> None:
    torch.manual_seed(0)
    family = Family(attention="bidirectional", mask_id=native_step.MASK)
    small = replace(
        SHAPES["0.5B"], hidden=128, intermediate=256, layers=2, heads=2, kv_heads=1, family=family
    )
    base = random_base(replace(small, vocab=2048), dispatch.choose("cpu"))
    with torch.inference_mode():
        figures = native_step.measure(base, 128, 8, 2)
    assert figures["cached_ms"] > 0
    assert figures["exact_ms"] > 0
    # keys and values: 2 layers x 1 head x 64 floats; features: whatever the stream keeps
    assert figures["memory_mb"] > 128 * 2 * 64 * 4 * 2 / 1e6 * 0.9

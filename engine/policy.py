"""Which slots commit at a denoising step: pure tensor functions.

confidence [R] float32 of the open slots' best tokens, open [R] bool -> commit [R] bool. Never a
closed slot; at least one open slot unless none is open; ties go to the leftmost.
"""

from __future__ import annotations

import torch
from torch import Tensor


def one_per_step(confidence: Tensor, open_: Tensor) -> Tensor:
    """The most confident open slot: the lossless reference (LLaDA, low-confidence re-masking)."""
    commit = torch.zeros_like(open_)
    if bool(open_.any()):
        ranked = confidence.nan_to_num(0.0).masked_fill(~open_, float("-inf"))
        commit[ranked.argmax()] = True
    return commit


def confidence_threshold(confidence: Tensor, open_: Tensor, threshold: float) -> Tensor:
    """Every open slot above the threshold, or the best one (Fast-dLLM, parallel decoding)."""
    commit = open_ & (confidence.nan_to_num(0.0) > threshold)
    return commit if bool(commit.any()) else one_per_step(confidence, open_)

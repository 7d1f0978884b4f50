"""Rotary positions, half-split layout, and the published ways to stretch them.

`linear` (position interpolation), `yarn` (YaRN, 2309.00071), `llama3` (Llama 3.1) and the factors
that llama.cpp keeps beside the weights; each as `transformers` defines it. Knows no models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from engine.request import WeightsError

Kind = Literal["linear", "yarn", "llama3", "factors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How frequencies are stretched by `factor` over `original_length` positions.

    low, high: the two bounds between which stretched and plain frequencies are mixed, in rotations
    over the original length (yarn: beta_slow, beta_fast; llama3: low and high frequency factor).
    attention: what cosines and sines are multiplied by. whole: yarn's bounds at whole dimensions.
    factors: per frequency, for the kind of that name.
    """

    kind: Kind
    factor: float = 1.0
    original_length: int = 0
    low: float = 1.0
    high: float = 1.0
    attention: float = 1.0
    whole: bool = True
    factors: tuple[float, ...] = ()


class Rope:
    """Rotary tables; positions may be negative."""

    def __init__(self, head_dim: int, theta: float, scaling: RopeScaling | None = None) -> None:
        plain = theta ** -(torch.arange(0, head_dim, 2).float() / head_dim)
        self.frequencies = _stretch(plain, theta, scaling) if scaling else plain
        self.attention = scaling.attention if scaling else 1.0

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions [n] -> (cos, sin) each [n, head_dim // 2]."""
        angles = positions.to(torch.float32)[:, None] * self.frequencies
        if self.attention == 1.0:
            return angles.cos(), angles.sin()
        return angles.cos() * self.attention, angles.sin() * self.attention


def _stretch(plain: Tensor, theta: float, scaling: RopeScaling) -> Tensor:
    """plain [D // 2] -> stretched frequencies."""
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "factors":
        return plain / torch.tensor(scaling.factors)
    if scaling.kind == "llama3":
        rotations = scaling.original_length / (2 * math.pi / plain)
        share = ((rotations - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    else:
        share = _yarn_share(plain.shape[0], theta, scaling)
    return (1 - share) * plain / scaling.factor + share * plain


def _yarn_share(half: int, theta: float, scaling: RopeScaling) -> Tensor:
    """How much of each plain frequency stays, 1 for the quickest ones."""

    def dimension(rotations: float) -> float:
        length = scaling.original_length / (rotations * 2 * math.pi)
        return 2 * half * math.log(length) / (2 * math.log(theta))

    first, last = dimension(scaling.high), dimension(scaling.low)
    if scaling.whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * half - 1)
    width = last - first or 0.001
    return 1 - ((torch.arange(half).float() - first) / width).clamp(0, 1)


def from_hub(config: Mapping[str, Any]) -> RopeScaling | None:
    """The scaling in a `config.json`, in its old form (`rope_scaling`) or the new one; raises
    WeightsError for a kind that is not known or lacks a number."""
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    if kind in (None, "default"):
        return None
    if kind not in ("linear", "yarn", "llama3"):
        raise WeightsError(f"RoPE scaling {kind!r} is not supported; use a model without it")
    length = given.get("original_max_position_embeddings", config.get("max_position_embeddings"))
    try:
        factor, length = float(given["factor"]), int(length or 0)
        if kind == "linear":
            return RopeScaling(kind="linear", factor=factor)
        if kind == "llama3":
            low, high = float(given["low_freq_factor"]), float(given["high_freq_factor"])
            return _checked(
                RopeScaling(
                    kind="llama3", factor=factor, original_length=length, low=low, high=high
                )
            )
        return _checked(
            RopeScaling(
                kind="yarn",
                factor=factor,
                original_length=length,
                low=float(given.get("beta_slow") or 1),
                high=float(given.get("beta_fast") or 32),
                attention=_yarn_attention(given, factor),
                whole=bool(given.get("truncate", True)),
            )
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"config.json's RoPE scaling is not complete ({error!r})") from error


def from_gguf(meta: Mapping[str, Any], arch: str, length: int) -> RopeScaling | None:
    """The scaling in GGUF metadata; raises WeightsError for a kind that is not known."""
    kind = meta.get(f"{arch}.rope.scaling.type")
    if kind in (None, "none"):
        return None
    if kind not in ("linear", "yarn"):
        raise WeightsError(f"RoPE scaling {kind!r} is not supported; use a model without it")
    factor = float(meta.get(f"{arch}.rope.scaling.factor") or 1)
    if kind == "linear":
        return RopeScaling(kind="linear", factor=factor)
    return _checked(
        RopeScaling(
            kind="yarn",
            factor=factor,
            original_length=int(meta.get(f"{arch}.rope.scaling.original_context_length") or length),
            low=float(meta.get(f"{arch}.rope.scaling.yarn_beta_slow") or 1),
            high=float(meta.get(f"{arch}.rope.scaling.yarn_beta_fast") or 32),
            attention=_magnitude(factor, 1.0),
        )
    )


def _yarn_attention(given: Mapping[str, Any], factor: float) -> float:
    if given.get("attention_factor") is not None:
        return float(given["attention_factor"])
    scale, everywhere = given.get("mscale"), given.get("mscale_all_dim")
    if scale and everywhere:
        return _magnitude(factor, float(scale)) / _magnitude(factor, float(everywhere))
    return _magnitude(factor, 1.0)


def _magnitude(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _checked(scaling: RopeScaling) -> RopeScaling:
    right = scaling.factor > 0 and scaling.original_length > 0 and scaling.low < scaling.high
    if not right:
        raise WeightsError("the model's RoPE scaling is damaged: its numbers cannot be right")
    return scaling

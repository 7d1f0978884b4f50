"""What a masked-diffusion model does unless the request says otherwise: values for the catalogue.

Free of torch. Knows names and numbers; `native_runner` acts on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.lengths import PUBLISHED_BIAS, Bias
from engine.request import LengthName, PolicyName


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """When frozen context is computed anew: every `refresh` passes, or when the mean cosine
    distance of the canvas's rows from what they were at the last refresh exceeds `drift`."""

    refresh: int = 16
    drift: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """`policy`; `length` strategy (None: expand and delete where the model has them, blocks where
    it writes in blocks, else the probe); the probe's `bias`, measured with `lengths.measure_bias`
    where that was done; and when its frozen context is computed anew."""

    policy: PolicyName = "confidence"
    length: LengthName | None = None
    bias: Bias = PUBLISHED_BIAS
    caching: Caching = field(default_factory=Caching)

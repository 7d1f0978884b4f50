"""What the models compute with: `reference` is the meaning, `cpu` the compiled form of the same."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from engine.kernels.packing import Packed


class Kernels(Protocol):
    """One implementation. The modules `reference`, which says what each does, and `cpu` are two."""

    def linear(self, x: Tensor, weight: Packed, bias: Tensor | None) -> Tensor: ...

    def pack(self, weight: Tensor) -> Packed: ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def swiglu(self, gate_up: Tensor) -> Tensor: ...

    def rope_cache(
        self,
        fused: Tensor,
        rotation: tuple[Tensor, Tensor],
        keys: Tensor,
        values: Tensor,
        start: int,
    ) -> Tensor: ...

    def causal_attention(self, q: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor: ...

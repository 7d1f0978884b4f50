"""What the models compute with: `reference` and `reference_step` are the meaning, `cpu` is the same
in C, `triton` for GPUs."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Kernels(Protocol):
    """What a model computes with beside its linears. The modules `reference`, which says what each
    does, `cpu` and `triton.kernels` are three; `dispatch` chooses."""

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

    def attention(self, q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor: ...

"""A loaded model moved onto other kernels: the same networks, their weights as those kernels read
them, on their device.

What comes out of a placed model, logits and drafts, lies on the CPU again. Knows no files, no text.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from torch import Tensor

from engine.cache import Stream
from engine.kernels.dispatch import KernelSet
from engine.kernels.grouped import Grouped, Matrix
from engine.kernels.packing import Packed
from engine.model.denoiser import Context, Denoiser, Inputs
from engine.model.linear import FloatLinear, Linear, PackedLinear
from engine.model.transformer import Embedding, Head, Layer, Transformer

_Parts = TypeVar("_Parts", Layer, Inputs)


class GroupedLinear:
    """Weight-only: 8-bit groups or floats, activations as they come."""

    def __init__(self, weight: Matrix, bias: Tensor | None, kernels: KernelSet) -> None:
        assert kernels.product is not None
        self.weight, self.bias, self._kernels, self._product = (
            weight,
            bias,
            kernels,
            kernels.product,
        )

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x, self.weight, self.bias)

    def rows(self, ids: Tensor) -> GroupedLinear:
        """The same layer over some of its output rows."""
        weight = self.weight.rows(ids) if isinstance(self.weight, Grouped) else self.weight[ids]
        bias = None if self.bias is None else self.bias[ids]
        return GroupedLinear(weight, bias, self._kernels)


class PlacedTransformer(Transformer):
    """A base on a device; `logits` come back to the CPU, where tokens are chosen."""

    def __init__(self, base: Transformer, kernels: KernelSet) -> None:
        self.device = kernels.device
        layers = tuple(_moved(layer, kernels) for layer in base.layers)
        with self.device:
            super().__init__(
                base.config,
                _embedding(base.embedding, kernels),
                layers,
                _head(base.head, kernels),
                base.feature_depths,
                kernels.kernels,
            )

    def forward(
        self, ids: list[int] | Tensor, stream: Stream, *, start: int, visible: Tensor
    ) -> Tensor:
        """See `Transformer.forward`."""
        with self.device:
            seen = visible.to(self.device)
            return super().forward(ids, stream, start=start, visible=seen)

    def new_stream(self, capacity: int = 256) -> Stream:
        """See `Transformer.new_stream`."""
        with self.device:
            return super().new_stream(capacity)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Transformer.logits`."""
        return super().logits(hidden).cpu()


class PlacedDenoiser(Denoiser):
    """A denoiser on a device; `logits` come back to the CPU."""

    def __init__(self, denoiser: Denoiser, kernels: KernelSet) -> None:
        self.device = kernels.device
        layers = tuple(_moved(layer, kernels) for layer in denoiser.layers)
        with self.device:
            super().__init__(
                denoiser.config,
                _moved(denoiser.inputs, kernels),
                layers,
                _head(denoiser.head, kernels),
                denoiser.shortlist,
            )

    def hidden(self, embedded: Tensor, masked: Tensor, context: Context) -> Tensor:
        """See `Denoiser.hidden`."""
        with self.device:
            lengths = context.lengths.to(self.device)
            masked = masked.to(self.device)
            return super().hidden(embedded, masked, replace(context, lengths=lengths))

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Denoiser.logits`."""
        return super().logits(hidden).cpu()


def place(
    base: Transformer, denoiser: Denoiser | None, kernels: KernelSet
) -> tuple[Transformer, Denoiser | None]:
    """Base and denoiser on these kernels; they themselves where those are the CPU's."""
    if kernels.product is None:
        return base, denoiser
    placed = PlacedTransformer(base, kernels)
    if denoiser is None:
        return placed, None
    if kernels.name != "triton":
        return placed, PlacedDenoiser(denoiser, kernels)
    from engine.fused_denoiser import FusedDenoiser

    return placed, FusedDenoiser(denoiser, placed.embedding, kernels)


def grouped(linear: Linear) -> GroupedLinear:
    """A placed network's linear as what it is."""
    if not isinstance(linear, GroupedLinear):
        raise TypeError(f"a {type(linear).__name__} is not placed")
    return linear


def _moved(parts: _Parts, kernels: KernelSet) -> _Parts:
    """Every linear and tensor of a layer, or of a denoiser's entry."""
    values = {field.name: getattr(parts, field.name) for field in fields(parts)}
    moved: dict[str, Any] = {
        name: value.to(kernels.device) if isinstance(value, Tensor) else _linear(value, kernels)
        for name, value in values.items()
        if value is not None
    }
    return replace(parts, **moved)


def _linear(linear: Linear, kernels: KernelSet) -> GroupedLinear:
    if not isinstance(linear, FloatLinear | PackedLinear | GroupedLinear):
        raise TypeError(f"a {type(linear).__name__} cannot be placed")
    bias = None if linear.bias is None else linear.bias.to(kernels.device)
    weight = linear.weight
    if isinstance(weight, Packed):
        weight = Grouped.of(weight)
    return GroupedLinear(weight.to(kernels.device), bias, kernels)


def _head(head: Head, kernels: KernelSet) -> Head:
    norm = head.norm.to(kernels.device)
    return Head(norm, _linear(head.project, kernels), head.eps, kernels.kernels)


def _embedding(embedding: Embedding, kernels: KernelSet) -> Embedding:
    scale = None if embedding.scale is None else embedding.scale.to(kernels.device)
    return Embedding(embedding.weight.to(kernels.device), scale)

"""Where training runs: the CPU, or one CUDA device.

The small network multiplies in bfloat16 on CUDA and on CPUs that have instructions for it (AMX),
its parameters stay float32. On CUDA the frozen base is float32 (its int8 kernels are for CPUs),
multiplied in TF32. The rest of the engine makes its tensors on torch's default device, which
`Device.here` sets.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from engine.model.linear import FloatLinear, Linear
from engine.model.transformer import Embedding, Head, Layer, Transformer
from engine.request import BadRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """`place`, and whether the small network computes in bfloat16 (`half`)."""

    place: torch.device
    half: bool

    def here(self) -> AbstractContextManager[object]:
        """New tensors lie on this device inside; on the CPU they do anyway."""
        return nullcontext() if self.place.type == "cpu" else self.place

    def fast(self) -> AbstractContextManager[object]:
        """Matrix products of the small network in bfloat16 inside, if so wanted."""
        if not self.half:
            return nullcontext()
        return torch.autocast(self.place.type, dtype=torch.bfloat16)


CPU = Device(place=torch.device("cpu"), half=False)


def _cpu() -> Device:
    return replace(CPU, half=bool(torch.cpu.get_capabilities().get("amx_bf16")))


def choose(name: str) -> Device:
    """`cpu`, `cuda`, or `auto`: CUDA where there is one. Raises BadRequest."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return _cpu()
    if not torch.cuda.is_available():
        raise BadRequest("there is no CUDA device here, or this torch is built without CUDA")
    torch.set_float32_matmul_precision("high")
    return Device(place=torch.device("cuda"), half=True)


def moved(base: Transformer, place: torch.device) -> Transformer:
    """A float base with its weights on `place`."""
    layers = tuple(_moved_layer(layer, place) for layer in base.layers)
    end = base.head
    head = Head(end.norm.to(place), _moved_linear(end.project, place), end.eps, end.kernels)
    embedding = Embedding(base.embedding.weight.to(place))
    with place:
        return Transformer(base.config, embedding, layers, head, base.feature_depths, base.kernels)


def _moved_layer(layer: Layer, place: torch.device) -> Layer:
    return replace(
        layer,
        attn_norm=layer.attn_norm.to(place),
        qkv=_moved_linear(layer.qkv, place),
        out=_moved_linear(layer.out, place),
        ffn_norm=layer.ffn_norm.to(place),
        gate_up=_moved_linear(layer.gate_up, place),
        down=_moved_linear(layer.down, place),
    )


def _moved_linear(linear: Linear, place: torch.device) -> FloatLinear:
    assert isinstance(linear, FloatLinear), "only a float base is moved"
    bias = None if linear.bias is None else linear.bias.to(place)
    return FloatLinear(linear.weight.to(place), bias)

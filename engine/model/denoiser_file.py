"""Denoiser parameters: made from copies of the base's top layers, saved small, loaded fast.

On disk: packed matrices, the rest float32 (engine/packed_file.py). The head is the base's own rows
at the shortlist and is not stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine import packed_file
from engine.kernels import cpu, reference
from engine.model.config import ModelConfig
from engine.model.denoiser import Denoiser, Inputs
from engine.model.linear import FloatLinear, Linear, PackedLinear
from engine.model.transformer import Head, Layer, Transformer
from engine.packed_file import PackedFile
from engine.request import WeightsError

MakeLinear = Callable[[str], Linear]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiserConfig:
    """Shape of a denoiser over a base of `base_layers` layers and hidden size `hidden`.

    `rows`: the base's next token and the slots behind it; `calibration`: per slot, the measured
    share of drafts that the base agrees with (validation), the prior of the slot chooser.
    """

    base: str
    base_layers: int
    hidden: int
    layers: int
    inner: int
    rows: int
    calibration: tuple[float, ...] = ()

    @property
    def depths(self) -> tuple[int, int]:
        """Layers of the base whose input hidden state is kept: middle and entry."""
        return self.base_layers // 2, self.base_layers - self.layers


Parameters = dict[str, Tensor]


def from_base(
    config: DenoiserConfig, base: ModelConfig, get: Callable[[str], Tensor]
) -> Parameters:
    """Initial float32 parameters: the base's top layers, feed-forward cut to `inner` neurons.

    `get` returns a float32 tensor of the base by our names (engine/store.py). Raises WeightsError
    for a base that a denoiser cannot read.
    """
    if base.qk_norm:
        raise WeightsError("a denoiser cannot be made from a base that norms queries and keys")
    parameters: Parameters = {
        "norm": get("norm").clone(),
        "mask": torch.zeros(base.hidden),
        "slots": torch.zeros(config.rows, base.hidden),
    }
    for name in ("token", "last", "middle"):
        parameters[name] = torch.zeros(base.hidden, base.hidden)
    for n in range(config.layers):
        source = f"layers.{config.depths[1] + n}."
        gate, up = get(source + "gate_up").chunk(2)
        down = get(source + "down")
        # neurons that write most when they fire, by the norms of their weights
        weight = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
        keep = weight.topk(config.inner).indices.sort().values
        mine = f"layers.{n}."
        parameters[mine + "gate_up"] = torch.cat((gate[keep], up[keep]))
        parameters[mine + "down"] = down[:, keep].clone()
        for part in ("attn_norm", "ffn_norm", "qkv", "out"):
            parameters[mine + part] = get(source + part).clone()
        if base.qkv_bias:
            parameters[mine + "qkv.bias"] = get(source + "qkv.bias").clone()
    return parameters


def build(
    config: DenoiserConfig,
    base: ModelConfig,
    parameters: Mapping[str, Tensor],
    shortlist: Tensor,
    head: Linear,
    linear: MakeLinear | None = None,
) -> Denoiser:
    """The network over `parameters`: float32 and fit for training, unless `linear` makes packed
    layers of their names."""

    def float_linear(name: str) -> Linear:
        return FloatLinear(parameters[name], parameters.get(name + ".bias"))

    make, kernels = linear or float_linear, cpu if linear else reference
    layers = tuple(
        Layer(
            attn_norm=parameters[f"layers.{n}.attn_norm"],
            qkv=make(f"layers.{n}.qkv"),
            out=make(f"layers.{n}.out"),
            ffn_norm=parameters[f"layers.{n}.ffn_norm"],
            gate_up=make(f"layers.{n}.gate_up"),
            down=make(f"layers.{n}.down"),
        )
        for n in range(config.layers)
    )
    inputs = Inputs(
        token=make("token"),
        last=make("last"),
        middle=make("middle"),
        mask=parameters["mask"],
        slots=parameters["slots"],
    )
    end = Head(parameters["norm"], head, base.norm_eps, kernels)
    return Denoiser(base, inputs, layers, end, shortlist)


def save(
    path: Path, config: DenoiserConfig, parameters: Mapping[str, Tensor], shortlist: Tensor
) -> None:
    """Write the packed form, atomically."""
    tensors: Parameters = {"shortlist": shortlist.to(torch.int32)}
    matrices = {}
    for name, value in parameters.items():
        value = value.detach()
        if value.dim() == 2 and name != "slots":
            matrices[name] = cpu.pack(value)
        else:
            tensors[name] = value.clone()
    part = path.with_suffix(".part")
    packed_file.save(part, tensors, matrices, asdict(config))
    part.replace(path)


def read_metadata(path: Path, key: str) -> dict[str, Any]:
    """A JSON value from a safetensors header; raises WeightsError if it is not there."""
    try:
        with safe_open(path, framework="pt") as handle:
            value: dict[str, Any] = json.loads(handle.metadata()[key])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{path} is not a file that dlsp-engine wrote ({error})") from error
    return value


def load_config(path: Path) -> DenoiserConfig:
    """The config of a saved denoiser."""
    raw = read_metadata(path, packed_file.HEADER)
    try:
        about = raw["about"]
        return DenoiserConfig(**about | {"calibration": tuple(about["calibration"])})
    except (KeyError, TypeError) as error:
        raise WeightsError(f"{path} is not a denoiser that this version reads ({error})") from error


def shipped(model: str) -> Path | None:
    """The denoiser that comes with this package for a model, or None."""
    path = Path(__file__).parent.parent / "data" / "denoisers" / f"{model}.safetensors"
    return path if path.is_file() else None


def load(path: Path, base: Transformer) -> Denoiser:
    """The packed network over `base`, whose head rows it shares. Raises WeightsError."""
    config = load_config(path)
    if (config.base_layers, config.hidden) != (base.config.layers, base.config.hidden):
        raise WeightsError(f"{path.name} was trained for another base ({config.base})")
    try:
        file = PackedFile(path)
        plain = {
            name: file.tensor(name)
            for name in file.names()
            if not file.is_packed(name.removesuffix(".scale"))
        }

        def linear(name: str) -> Linear:
            return PackedLinear(file.matrix(name), plain.get(name + ".bias"))

        shortlist = plain["shortlist"].long()
        head = base.head.project.rows(shortlist)
        return build(config, base.config, plain, shortlist, head, linear)
    except (KeyError, IndexError, ValueError) as error:
        raise WeightsError(f"{path} does not fit its base or lacks a tensor ({error})") from error

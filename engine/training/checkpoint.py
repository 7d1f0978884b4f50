"""Parameters and optimiser state in one file, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.model import denoiser_file
from engine.request import BadRequest

_MOMENTS = ("exp_avg", "exp_avg_sq")


def save(
    path: Path,
    parameters: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer,
    about: Mapping[str, Any],
) -> None:
    """Write atomically; `about` is JSON."""
    tensors = {name: value.detach() for name, value in parameters.items()}
    for name, parameter in parameters.items():
        state = optimiser.state.get(parameter, {})
        for key in (*_MOMENTS, "step"):
            if key in state:
                tensors[f"{key}:{name}"] = state[key].detach().clone()
    part = path.with_suffix(".part")
    save_file(tensors, part, metadata={"state": json.dumps(about)})
    part.replace(path)


def restore(
    path: Path, parameters: Mapping[str, Tensor], optimiser: torch.optim.Optimizer
) -> dict[str, Any] | None:
    """Read into what `save` was given, and return its `about`; None without such a file. Raises
    BadRequest when the file is of other shapes, WeightsError when it is not ours."""
    if not path.is_file():
        return None
    tensors = load_file(path)
    kept = {n: t.shape for n, t in tensors.items() if ":" not in n}
    if kept != {n: p.shape for n, p in parameters.items()}:
        raise BadRequest(f"{path} is of a network of another shape; give its own, or another --out")
    for name, parameter in parameters.items():
        with torch.no_grad():
            parameter.copy_(tensors[name])
        moments = [key for key in _MOMENTS if f"{key}:{name}" in tensors]
        if moments:
            state = {key: tensors[f"{key}:{name}"].to(parameter.device) for key in moments}
            optimiser.state[parameter] = state | {"step": tensors[f"step:{name}"]}
    return denoiser_file.read_metadata(path, "state")

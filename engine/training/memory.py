"""What a training will take of memory and disk, told before it starts.

Estimates from shapes; the libraries themselves come on top (about 0.4 GB).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.model.config import ModelConfig
from engine.model.denoiser_file import DenoiserConfig
from engine.request import BadRequest
from engine.training.device import Device
from engine.training.encode import TOP

_LIBRARIES = 400_000_000
_FLOAT, _HALF = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes that decide: tokens per document, canvases per step, documents kept."""

    length: int
    sites: int
    shortlist: int
    keep_documents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Bytes: the frozen base, weights with gradients and moments, one step, texts; and on disk."""

    base: int
    training: int
    step: int
    texts: int
    disk: int

    @property
    def total(self) -> int:
        """All that must fit in memory at once."""
        return self.base + self.training + self.step + self.texts + _LIBRARIES

    def line(self, free: int | None) -> str:
        """For a person."""
        parts = (("base", self.base), ("training", self.training), ("step", self.step))
        listed = ", ".join(
            f"{name} {size / 1e9:.1f}" for name, size in (*parts, ("texts", self.texts))
        )
        here = "" if free is None else f" of {free / 1e9:.1f} GB free"
        warning = "" if free is None or free >= self.total else "; TOO LITTLE: lower --sites"
        return (
            f"memory: about {self.total / 1e9:.1f} GB{here} ({listed}); "
            f"disk: up to {self.disk / 1e9:.1f} GB of encoded documents{warning}"
        )


def needs(
    denoiser: DenoiserConfig, base: ModelConfig, shape: Shape, fixed: tuple[int, int, int]
) -> Needs:
    """`fixed`: bytes of the base as it is loaded, parameters of the denoiser, bytes of texts."""
    base_bytes, parameters, texts = fixed
    rows = shape.sites * denoiser.rows
    # kept for the backward pass: scores, weights and their gradients; gate, up and products
    attention = 4 * denoiser.layers * rows * base.heads * shape.length
    hidden = denoiser.layers * rows * (6 * denoiser.inner + 12 * base.hidden)
    logits = 4 * rows * shape.shortlist
    keys = 2 * denoiser.layers * base.kv_heads * base.head_dim
    per_token = _HALF * (2 * base.hidden + keys + TOP) + _FLOAT * (TOP + 2)
    return Needs(
        base=base_bytes + 2 * _FLOAT * shape.shortlist * base.hidden,
        training=4 * _FLOAT * parameters,
        step=_FLOAT * (attention + hidden + logits),
        texts=texts,
        disk=shape.keep_documents * shape.length * per_token + 5 * _FLOAT * parameters,
    )


def free_memory(device: Device) -> int | None:
    """Bytes that could be taken now, or None where the system does not say."""
    if device.place.type == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(n.split()[1]) * 1024 for n in lines if n.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def check_disk(folder: Path, wanted: int) -> None:
    """Raises BadRequest where the disk of `folder` cannot hold what is still to come."""
    there = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    free = shutil.disk_usage(folder).free
    if free < wanted - there:
        raise BadRequest(
            f"training needs up to {(wanted - there) / 1e9:.1f} GB in {folder}, and "
            f"{free / 1e9:.1f} GB are free; give --out on another disk, or a smaller --keep"
        )

"""A tiny engine for tests: a random base from disk and a random denoiser over it."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from engine import store
from engine.canvas_runner import CanvasRunner
from engine.engine import Engine
from engine.model import denoiser_file
from engine.model.denoiser import Denoiser
from engine.model.denoiser_file import DenoiserConfig, Parameters
from engine.model.transformer import Transformer
from engine.weights import open_checkpoint
from tests.engine.tiny_base import make_folder

ROWS = 6


def shape_of(folder: Path, layers: int = 2, inner: int = 48) -> DenoiserConfig:
    """The shape of a small denoiser over the base of `folder`."""
    base = open_checkpoint(folder).config
    return DenoiserConfig(
        base="tiny",
        base_layers=base.layers,
        hidden=base.hidden,
        layers=layers,
        inner=inner,
        rows=ROWS,
        calibration=(0.5, 0.4, 0.4, 0.3, 0.3),
    )


def random_parameters(folder: Path, config: DenoiserConfig, seed: int = 1) -> Parameters:
    """Copies of the base's layers with noise on everything, so that every path has a weight."""
    checkpoint = open_checkpoint(folder)
    start = denoiser_file.from_base(config, checkpoint.config, store.fused_reader(checkpoint))
    generator = torch.Generator().manual_seed(seed)

    def noise(name: str, value: torch.Tensor) -> torch.Tensor:
        fresh = "." not in name and name != "norm"  # all zero at first
        scale = 0.5 if fresh else 0.2 * float(value.std())
        return scale * torch.randn(value.shape, generator=generator)

    return {name: value + noise(name, value) for name, value in start.items()}


def shortlist_of(base: Transformer, end_id: int) -> torch.Tensor:
    """Most of the vocabulary, in an order of its own, with the end token in it."""
    ids = [i for i in range(base.config.vocab - 40) if i % 7]
    return torch.tensor(sorted({*ids, end_id}))


def float_denoiser(
    base: Transformer, config: DenoiserConfig, parameters: Parameters, shortlist: torch.Tensor
) -> Denoiser:
    """The float32 network; the head is the base's own rows."""
    head = base.head.project.rows(shortlist)
    return denoiser_file.build(config, base.config, parameters, shortlist, head)


def tiny_engine(
    folder: Path, *, architecture: str = "qwen2", fim: bool = True, seed: int = 0
) -> Engine:
    """An int8 engine over a random base written into `folder`, with a random denoiser.

    Without `fim` the tokenizer lacks the markers: prefix and suffix are two streams.
    """
    make_folder(folder, architecture=architecture, seed=seed)
    if not fim:
        drop_markers(folder / "tokenizer.json")
    config = shape_of(folder)
    store.convert(folder, folder / "int8")
    base, tokenizer = store.open_int8(folder / "int8", config.depths)
    end_id = tokenizer.special("<|endoftext|>")
    assert end_id is not None
    shortlist = shortlist_of(base, end_id)
    path = folder / "denoiser.safetensors"
    denoiser_file.save(path, config, random_parameters(folder, config, seed + 1), shortlist)
    denoiser = denoiser_file.load(path, base)
    return Engine("tiny", CanvasRunner(base, tokenizer, denoiser, config.calibration))


def drop_markers(path: Path) -> None:
    """Take the fill-in-the-middle markers out of a tokenizer.json."""
    data = json.loads(path.read_text(encoding="utf-8"))
    data["added_tokens"] = [t for t in data["added_tokens"] if "fim_" not in t["content"]]
    path.write_text(json.dumps(data), encoding="utf-8")

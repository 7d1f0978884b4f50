"""Converted weights, cached and memory-mapped; and a base built from them.

A checkpoint is converted once to packed weights of 7 bits, or of 5 where they have no more (about
590 MB for 0.5B parameters with an untied head), and opened by `mmap` afterwards: nothing is copied
or laid out at start. Knows where tensors lie, not what they compute.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from engine import converted, packed_file
from engine.kernels import cpu, reference
from engine.kernels.packing import GROUP, Packed
from engine.model import config as model_config
from engine.model.config import ModelConfig
from engine.model.linear import FloatLinear, Linear, PackedLinear
from engine.model.traits import Traits
from engine.model.transformer import Embedding, Head, Layer, Transformer
from engine.packed_file import PackedFile
from engine.request import DownloadError, WeightsError
from engine.tokenizer import Tokenizer
from engine.weights import Checkpoint, open_checkpoint, read

Progress = Callable[[str, int, int], None]

_EMBED_ROWS = 16_384


def convert(
    source: Path, folder: Path, progress: Progress | None = None, traits: Traits | None = None
) -> None:
    """Write the packed form of the checkpoint at `source` into `folder`, unless it is there; forms
    of earlier versions go.

    `traits`: what is known of the model beside its files. Raises WeightsError for a bad checkpoint,
    DownloadError when the disk is full.
    """
    if converted.is_current(folder):
        return
    checkpoint = open_checkpoint(source, traits)
    tensors, matrices = _packed_tensors(checkpoint, progress)
    tokenizer = load_tokenizer(checkpoint)
    meta = {"format": converted.FORMAT, "config": asdict(checkpoint.config)}
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True, exist_ok=True)
        packed_file.save(part / converted.WEIGHTS, tensors, matrices, meta)
        (part / converted.TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
        (part / converted.META).write_text(json.dumps(meta), encoding="utf-8")
        if not converted.is_current(folder):  # another process may have been faster
            shutil.rmtree(folder, ignore_errors=True)
            part.replace(folder)
        for old in converted.outdated(folder):  # what is mapped elsewhere lives on there
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or "No space" in str(error)
        why = "the disk is full" if full else str(error)
        raise DownloadError(
            f"cannot write converted weights to {folder}: {why}; "
            "free some space or set DLSP_CACHE_DIR to another disk"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer that came with a checkpoint."""
    source = checkpoint.tokenizer
    return Tokenizer.from_hub(source) if isinstance(source, Path) else Tokenizer.from_gguf(source)


def open_int8(
    folder: Path, depths: tuple[int, ...], tokenizer: Future[Tokenizer] | None = None
) -> tuple[Transformer, Tokenizer]:
    """The base over memory-mapped weights. `depths`: where features are kept; `tokenizer`: of this
    folder, where somebody has begun to read it already."""
    try:
        meta = json.loads((folder / converted.META).read_text(encoding="utf-8"))
        config = model_config.from_plain(meta["config"])
        file = PackedFile(folder / converted.WEIGHTS)
        with ThreadPoolExecutor(max_workers=1) as pool:
            tokenizer = tokenizer or pool.submit(converted.read_tokenizer, folder)
            return _int8_base(config, file, depths), tokenizer.result()
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        RuntimeError,
        SafetensorError,
        WeightsError,
    ) as error:
        raise WeightsError(
            f"the converted weights in {folder} are damaged ({_one_line(error)}); "
            "delete that folder"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _int8_base(config: ModelConfig, file: PackedFile, depths: tuple[int, ...]) -> Transformer:
    get = file.tensor

    def linear(name: str) -> Linear:
        biased = config.qkv_bias and name.endswith("qkv")
        return PackedLinear(file.matrix(name), get(name + ".bias") if biased else None)

    layers = tuple(_layer(n, config, get, linear) for n in range(config.layers))
    embedding = Embedding(get("embed"), get("embed.scale"))
    end = Head(get("norm"), linear("head"), config.norm_eps, cpu)
    return Transformer(config, embedding, layers, end, depths, cpu)


def open_float(
    source: Path, depths: tuple[int, ...], traits: Traits | None = None
) -> tuple[Transformer, Tokenizer]:
    """The base in float32, straight from the checkpoint: the reference for the packed one."""
    checkpoint = open_checkpoint(source, traits)
    config = checkpoint.config
    tensors = fused_reader(checkpoint)

    def linear(name: str) -> Linear:
        bias = tensors(name + ".bias") if config.qkv_bias and name.endswith("qkv") else None
        return FloatLinear(tensors(name), bias)

    layers = tuple(_layer(n, config, tensors, linear) for n in range(config.layers))
    head = Head(tensors("norm"), linear("head"), config.norm_eps, reference)
    base = Transformer(config, Embedding(tensors("embed")), layers, head, depths, reference)
    return base, load_tokenizer(checkpoint)


def _layer(
    n: int, config: ModelConfig, get: Callable[[str], Tensor], linear: Callable[[str], Linear]
) -> Layer:
    at = f"layers.{n}."
    return Layer(
        attn_norm=get(at + "attn_norm"),
        qkv=linear(at + "qkv"),
        out=linear(at + "out"),
        ffn_norm=get(at + "ffn_norm"),
        gate_up=linear(at + "gate_up"),
        down=linear(at + "down"),
        q_norm=get(at + "q_norm") if config.qk_norm else None,
        k_norm=get(at + "k_norm") if config.qk_norm else None,
    )


def fused_reader(checkpoint: Checkpoint) -> Callable[[str], Tensor]:
    """Our tensor name -> float32 tensor; q, k, v and gate, up are joined row-wise."""
    joined = {
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": ("self_attn.o_proj",),
        "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
    }
    norms = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
    }
    top = {
        "embed": "model.embed_tokens.weight",
        "norm": "model.norm.weight",
        "head": "lm_head.weight",
    }

    def get(name: str) -> Tensor:
        if name in top:
            return read(checkpoint, top[name])
        _, number, part = name.split(".", 2)
        layer = f"model.layers.{number}."
        if part in norms:
            return read(checkpoint, f"{layer}{norms[part]}.weight")
        stem, _, bias = part.partition(".")
        kind = "bias" if bias else "weight"
        return torch.cat([read(checkpoint, f"{layer}{p}.{kind}") for p in joined[stem]])

    return get


def _packed_tensors(
    checkpoint: Checkpoint, progress: Progress | None
) -> tuple[dict[str, Tensor], dict[str, Packed]]:
    config, get = checkpoint.config, fused_reader(checkpoint)
    names, plain = ["head"], ["norm"]
    for n in range(config.layers):
        names += [f"layers.{n}.{part}" for part in ("qkv", "out", "gate_up", "down")]
        plain += [f"layers.{n}.attn_norm", f"layers.{n}.ffn_norm"]
        plain += [f"layers.{n}.qkv.bias"] if config.qkv_bias else []
        plain += [f"layers.{n}.{norm}" for norm in ("q_norm", "k_norm") if config.qk_norm]
    tensors = {name: get(name) for name in plain}
    tensors["embed"], tensors["embed.scale"] = _quantised_rows(get("embed"))
    matrices = {}
    for done, name in enumerate(names):
        matrices[name] = cpu.pack(get(name))
        if progress:
            progress("converting", done + 1, len(names))
    return tensors, matrices


def _quantised_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [V, H] -> int8 codes [V, H], scales [V, groups] float16, for looking rows up."""
    # in parts: a large vocabulary takes gigabytes in float32, and this several copies
    codes, scales = zip(*(_quantised_part(part) for part in weight.split(_EMBED_ROWS)), strict=True)
    return torch.cat(codes), torch.cat(scales)


def _quantised_part(weight: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = weight.shape
    groups = width // GROUP if width % GROUP == 0 else 1
    parts = weight.view(rows, groups, -1)
    scale = (parts.abs().amax(dim=2) / 127).to(torch.float16)
    whole = (parts / scale.float().clamp_min(1e-12)[..., None]).round_().clamp_(-127, 127)
    return whole.to(torch.int8).view(rows, width), scale

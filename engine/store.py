"""Converted weights, cached and memory-mapped; and a base built from them.

A checkpoint is converted once to int8 rows with a scale each (about 500 MB for 0.5B parameters) and
opened by `mmap` afterwards. Knows where tensors lie, not what they compute.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.digest import cache_dir
from engine.model.config import ModelConfig
from engine.model.linear import FloatLinear, Int8Linear, Linear, quantise_rows
from engine.model.transformer import Embedding, Head, Layer, Transformer
from engine.request import DownloadError, WeightsError
from engine.tokenizer import Tokenizer
from engine.weights import Checkpoint, open_checkpoint, read

_FORMAT = 3
_WEIGHTS, _TOKENIZER, _META = "int8.safetensors", "tokenizer.json", "meta.json"
Progress = Callable[[str, int, int], None]


def converted_folder(sha256: str) -> Path:
    """Where the converted form of the weights of that digest lies."""
    return cache_dir() / "converted" / f"{sha256[:24]}-{_FORMAT}"


def convert(source: Path, folder: Path, progress: Progress | None = None) -> None:
    """Write the int8 form of the checkpoint at `source` into `folder`, unless it is there.

    Raises WeightsError for a bad checkpoint, DownloadError when the disk is full.
    """
    if _is_current(folder):
        return
    checkpoint = open_checkpoint(source)
    tensors = _int8_tensors(checkpoint, progress)
    tokenizer = load_tokenizer(checkpoint)
    meta = {"format": _FORMAT, "config": asdict(checkpoint.config)}
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True, exist_ok=True)
        save_file(tensors, part / _WEIGHTS)
        (part / _TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
        (part / _META).write_text(json.dumps(meta), encoding="utf-8")
        if not _is_current(folder):  # another process may have been faster
            shutil.rmtree(folder, ignore_errors=True)
            part.replace(folder)
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


def open_int8(folder: Path, depths: tuple[int, ...]) -> tuple[Transformer, Tokenizer]:
    """The base over memory-mapped int8 weights. `depths`: where features are kept."""
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
        config = ModelConfig(**meta["config"])
        handle = safe_open(folder / _WEIGHTS, framework="pt")
        definition = (folder / _TOKENIZER).read_text(encoding="utf-8")
        with ThreadPoolExecutor(max_workers=1) as pool:
            tokenizer = pool.submit(Tokenizer, definition)
            return _int8_base(config, handle.get_tensor, depths), tokenizer.result()
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


def _int8_base(
    config: ModelConfig, get: Callable[[str], Tensor], depths: tuple[int, ...]
) -> Transformer:
    has_bias = config.qkv_bias

    def linear(name: str, bias: bool = False) -> Linear:
        return Int8Linear(get(name), get(name + ".scale"), get(name + ".bias") if bias else None)

    def layer(n: int) -> Layer:
        return _layer(n, get, lambda name: linear(name, has_bias and name.endswith("qkv")))

    # packing is a copy per matrix and releases the interpreter lock
    with ThreadPoolExecutor(max_workers=2) as pool:
        head = pool.submit(linear, "head")
        layers = tuple(pool.map(layer, range(config.layers)))
    embedding = Embedding(get("embed"), get("embed.scale"))
    end = Head(get("norm"), head.result(), config.norm_eps)
    return Transformer(config, embedding, layers, end, depths)


def open_float(source: Path, depths: tuple[int, ...]) -> tuple[Transformer, Tokenizer]:
    """The base in float32, straight from the checkpoint: the reference for int8."""
    checkpoint = open_checkpoint(source)
    config = checkpoint.config
    tensors = fused_reader(checkpoint)

    def linear(name: str) -> Linear:
        bias = tensors(name + ".bias") if config.qkv_bias and name.endswith("qkv") else None
        return FloatLinear(tensors(name), bias)

    layers = tuple(_layer(n, tensors, linear) for n in range(config.layers))
    head = Head(tensors("norm"), linear("head"), config.norm_eps)
    base = Transformer(config, Embedding(tensors("embed")), layers, head, depths)
    return base, load_tokenizer(checkpoint)


def _layer(n: int, get: Callable[[str], Tensor], linear: Callable[[str], Linear]) -> Layer:
    at = f"layers.{n}."
    return Layer(
        attn_norm=get(at + "attn_norm"),
        qkv=linear(at + "qkv"),
        out=linear(at + "out"),
        ffn_norm=get(at + "ffn_norm"),
        gate_up=linear(at + "gate_up"),
        down=linear(at + "down"),
    )


def fused_reader(checkpoint: Checkpoint) -> Callable[[str], Tensor]:
    """Our tensor name -> float32 tensor; q, k, v and gate, up are joined row-wise."""
    joined = {
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": ("self_attn.o_proj",),
        "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
    }
    norms = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
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


def _int8_tensors(checkpoint: Checkpoint, progress: Progress | None) -> dict[str, Tensor]:
    config, get = checkpoint.config, fused_reader(checkpoint)
    matrices = ["embed", "head"]
    plain = ["norm"]
    for n in range(config.layers):
        matrices += [f"layers.{n}.{part}" for part in ("qkv", "out", "gate_up", "down")]
        plain += [f"layers.{n}.attn_norm", f"layers.{n}.ffn_norm"]
        plain += [f"layers.{n}.qkv.bias"] if config.qkv_bias else []
    tensors = {name: get(name) for name in plain}
    for done, name in enumerate(matrices):
        tensors[name], tensors[name + ".scale"] = quantise_rows(get(name))
        if progress:
            progress("converting", done + 1, len(matrices))
    return tensors


def _is_current(folder: Path) -> bool:
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return meta.get("format") == _FORMAT and (folder / _WEIGHTS).is_file()

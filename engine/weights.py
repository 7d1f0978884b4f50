"""Published checkpoints -> named float tensors, strict on both sides.

Reads GGUF (every quantisation the `gguf` package can) and safetensors folders in the hub's layout.
A missing, extra or misshapen tensor is an error that names it. Never pickle, never remote code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.model import config as model_config
from engine.model.config import ModelConfig
from engine.request import WeightsError

Read = Callable[[], Tensor]

_GGUF_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
}
_LONGEST_ARRAY = 2**20  # entries; the largest vocabularies have a quarter
_IGNORED = "rotary_emb.inv_freq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model on disk: its config, lazily read float32 tensors by hub name, tokenizer source.

    `tokenizer` is GGUF metadata (a mapping) or the path of a `tokenizer.json`.
    """

    config: ModelConfig
    tensors: Mapping[str, Read]
    tokenizer: Mapping[str, Any] | Path


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a .gguf file or a hub-layout folder; raises WeightsError naming what is wrong."""
    if path.is_dir():
        checkpoint = _open_folder(path)
    elif path.is_file():
        checkpoint = _open_gguf(path)
    else:
        raise WeightsError(f"no weights at {path}; give a .gguf file or a model folder")
    _check_names(checkpoint, path)
    return checkpoint


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Hub name -> shape of every tensor the config implies (`lm_head.weight` may be tied)."""
    h, i, d = config.hidden, config.intermediate, config.head_dim
    q, kv = config.heads * d, config.kv_heads * d
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab, h),
        "model.norm.weight": (h,),
        "lm_head.weight": (config.vocab, h),
    }
    for n in range(config.layers):
        layer = f"model.layers.{n}."
        shapes[layer + "input_layernorm.weight"] = (h,)
        shapes[layer + "post_attention_layernorm.weight"] = (h,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = (rows, h)
            if config.qkv_bias:
                shapes[f"{layer}self_attn.{name}_proj.bias"] = (rows,)
        shapes[layer + "self_attn.o_proj.weight"] = (h, q)
        shapes[layer + "mlp.gate_proj.weight"] = (i, h)
        shapes[layer + "mlp.up_proj.weight"] = (i, h)
        shapes[layer + "mlp.down_proj.weight"] = (h, i)
    return shapes


def read(checkpoint: Checkpoint, name: str) -> Tensor:
    """One float32 tensor by hub name, its shape checked."""
    want = expected_shapes(checkpoint.config)[name]
    if name == "lm_head.weight" and name not in checkpoint.tensors:
        name = "model.embed_tokens.weight"
    tensor = checkpoint.tensors[name]()
    if tuple(tensor.shape) != want:
        raise WeightsError(f"tensor {name} has shape {tuple(tensor.shape)}, expected {want}")
    return tensor


def _check_names(checkpoint: Checkpoint, path: Path) -> None:
    expected = set(expected_shapes(checkpoint.config))
    found = set(checkpoint.tensors)
    missing = sorted(expected - found - {"lm_head.weight"})
    extra = sorted(found - expected)
    if missing:
        raise WeightsError(f"{path.name} lacks tensor {missing[0]} ({len(missing)} missing)")
    if extra:
        raise WeightsError(f"{path.name} has an unknown tensor {extra[0]} ({len(extra)} unknown)")


def _open_gguf(path: Path) -> Checkpoint:
    try:
        reader = _gguf_reader(path)
        meta = {key: field.contents() for key, field in reader.fields.items()}
    except (ValueError, KeyError, IndexError, OSError, TypeError) as error:
        raise WeightsError(
            f"{path} is not a readable GGUF file ({error}); delete it and pull the model again"
        ) from error
    by_name = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in by_name:
        raise WeightsError(f"{path.name} lacks tensor token_embd.weight")
    config = model_config.from_gguf(meta, int(by_name["token_embd.weight"].shape[-1]))
    tensors: dict[str, Read] = {}
    for name, tensor in by_name.items():
        if name == "rope_freqs.weight":
            raise WeightsError(f"{path.name} scales RoPE ({name}), which is not supported")
        # llama-architecture GGUF files interleave the rotary halves of q and k
        heads = 0
        if config.architecture == "llama":
            heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[-2], 0)
        tensors[_hub_name(name)] = partial(_dequantise, tensor, heads)
    return Checkpoint(config=config, tensors=tensors, tokenizer=meta)


def _gguf_reader(path: Path) -> Any:
    import gguf

    class Reader(gguf.GGUFReader):
        @property
        def data(self) -> Any:
            return self._plain

        @data.setter
        def data(self, mapped: Any) -> None:
            # half a million small slices: those of a plain view cost a quarter of np.memmap's
            self._plain = np.asarray(mapped)

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            # past the end the library reads nothing, as often as a damaged length says
            is_array = raw_type == gguf.GGUFValueType.ARRAY
            if is_array and self._get(orig_offs + 4, np.uint64)[0] > _LONGEST_ARRAY:
                raise ValueError("a list in it is too long")
            return super()._get_field_parts(orig_offs, raw_type)

    return Reader(path)


def _dequantise(tensor: Any, heads: int) -> Tensor:
    """A GGUF tensor in float32; `heads`: unless 0, its rows are put back into halves."""
    import gguf

    try:
        array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        kind = tensor.tensor_type.name
        raise WeightsError(
            f"tensor {tensor.name} has the quantisation {kind}, which cannot be read; "
            "use a file with another one"
        ) from error
    out = torch.tensor(np.asarray(array, dtype=np.float32))
    # a misshapen one is named by `read`
    return _unpermute(out, heads) if heads and out.shape[0] % (2 * heads) == 0 else out


def _hub_name(name: str) -> str:
    if name in _GGUF_TOP:
        return _GGUF_TOP[name]
    parts = name.split(".", 2)
    if len(parts) == 3 and parts[0] == "blk":
        rest = parts[2]
        stem, _, kind = rest.rpartition(".")
        mapped = _GGUF_LAYER.get(rest) or (
            f"{_GGUF_LAYER[stem]}.{kind}" if stem in _GGUF_LAYER else None
        )
        if mapped:
            return f"model.layers.{parts[1]}.{mapped}"
    return name


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    rows = weight.shape[0]
    paired = weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:])
    return paired.swapaxes(1, 2).reshape(weight.shape).contiguous()


def _open_folder(path: Path) -> Checkpoint:
    config_path, tokenizer_path = path / "config.json", path / "tokenizer.json"
    for needed in (config_path, tokenizer_path):
        if not needed.is_file():
            raise WeightsError(f"{path} has no {needed.name}; it is not a folder in the hub layout")
    raw = _json_object(config_path)
    config = model_config.from_hub(raw)
    tensors: dict[str, Read] = {}
    for shard in _shards(path):
        tensors.update(_open_shard(shard))
    tied = raw.get("tie_word_embeddings")
    if tied:
        tensors.pop("lm_head.weight", None)
    elif tied is False and "lm_head.weight" not in tensors:
        raise WeightsError(f"{path.name} lacks tensor lm_head.weight (1 missing)")
    return Checkpoint(config=config, tensors=tensors, tokenizer=tokenizer_path)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path} is not valid JSON ({error})") from error
    if not isinstance(data, dict):
        raise WeightsError(f"{path} does not hold a JSON object")
    return data


def _shards(path: Path) -> list[Path]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        placed = _json_object(index).get("weight_map")
        if not isinstance(placed, dict):
            raise WeightsError(f"{index} has no weight_map; copy the whole model folder")
        shards = [path / str(name) for name in sorted(set(placed.values()))]
    else:
        shards = sorted(path.glob("*.safetensors"))
    absent = [shard.name for shard in shards if not shard.is_file()]
    if absent or not shards:
        what = absent[0] if absent else "*.safetensors"
        raise WeightsError(f"{path} lacks {what}; copy the whole model folder")
    return shards


def _open_shard(shard: Path) -> dict[str, Read]:
    from safetensors import SafetensorError, safe_open

    try:
        handle = safe_open(shard, framework="pt")
        names = list(handle.keys())
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{shard} is not a readable safetensors file ({error})") from error

    def loader(name: str) -> Read:
        return lambda: handle.get_tensor(name).to(torch.float32)

    return {name: loader(name) for name in names if not name.endswith(_IGNORED)}

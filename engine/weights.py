"""Published checkpoints -> named float tensors, strict on both sides.

Reads GGUF (every quantisation the `gguf` package can) and safetensors folders in the hub's layout.
A missing, extra or misshapen tensor is an error that names it. Never pickle, never remote code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine import json_file, special_tokens, tokenizer_files
from engine.model import architectures, family, names
from engine.model import config as model_config
from engine.model.architectures import Architecture, Names
from engine.model.config import ModelConfig
from engine.model.family import Named
from engine.model.names import expected_shapes
from engine.model.rope import RopeScaling
from engine.model.traits import CAUSAL, Traits
from engine.request import WeightsError

Read = Callable[[], Tensor]

_LONGEST_ARRAY = 2**20  # entries; the largest vocabularies have a quarter
_IGNORED = "rotary_emb.inv_freq"
_ROPE_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model on disk: its config, lazily read float32 tensors by hub name, tokenizer source.

    `tokenizer` is GGUF metadata (a mapping) or the path that `tokenizer_files.find` found; `names`:
    how the tensors are called in the file, for messages.
    """

    config: ModelConfig
    tensors: Mapping[str, Read]
    tokenizer: Mapping[str, Any] | Path
    names: Names = "llama"


def open_checkpoint(path: Path, traits: Traits | None = None) -> Checkpoint:
    """Open a .gguf file or a hub-layout folder; raises WeightsError naming what is wrong.

    `traits`: what is known of the model where its files do not say it (engine/catalog.py).
    """
    if path.is_dir():
        checkpoint = _open_folder(path, traits)
    elif path.is_file():
        checkpoint = _open_gguf(path, traits)
    else:
        raise WeightsError(f"no weights at {path}; give a .gguf file or a model folder")
    _check_names(checkpoint, path)
    return checkpoint


def read(checkpoint: Checkpoint, name: str) -> Tensor:
    """One float32 tensor by hub name, its shape checked."""
    want = expected_shapes(checkpoint.config)[name]
    if name == "lm_head.weight" and name not in checkpoint.tensors:
        name = "model.embed_tokens.weight"
    tensor = checkpoint.tensors[name]()
    if tuple(tensor.shape) != want:
        theirs = names.in_folder(name, checkpoint.names)
        raise WeightsError(f"tensor {theirs} has shape {tuple(tensor.shape)}, expected {want}")
    return tensor


def _check_names(checkpoint: Checkpoint, path: Path) -> None:
    expected = set(expected_shapes(checkpoint.config))
    found = set(checkpoint.tensors)
    missing = sorted(expected - found - {"lm_head.weight"})
    extra = sorted(found - expected)
    if missing:
        first = names.in_folder(missing[0], checkpoint.names)
        raise WeightsError(f"{path.name} lacks tensor {first} ({len(missing)} missing)")
    if extra:
        first = names.in_folder(extra[0], checkpoint.names)
        raise WeightsError(f"{path.name} has an unknown tensor {first} ({len(extra)} unknown)")


def _with_family(config: ModelConfig, traits: Traits, named: Named) -> ModelConfig:
    length = min(config.context_length, traits.context or config.context_length)
    resolved = family.resolve(traits, named, config.vocab)
    return replace(config, context_length=length, family=resolved)


def _open_gguf(path: Path, traits: Traits | None) -> Checkpoint:
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
    if (factors := by_name.pop(_ROPE_FACTORS, None)) is not None:
        config = replace(config, rope_scaling=_rope_factors(factors, config))
    kind = architectures.of_gguf(config.architecture)
    known = traits or _traits_of_gguf(meta, kind, config.architecture)
    config = _with_family(config, known, special_tokens.of_gguf(meta))
    tensors: dict[str, Read] = {}
    for name, tensor in by_name.items():
        heads = 0
        if kind.interleaved:
            heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[-2], 0)
        tensors[names.from_gguf(name)] = partial(_dequantise, tensor, heads)
    return Checkpoint(config=config, tensors=tensors, tokenizer=meta)


def _traits_of_gguf(meta: Mapping[str, Any], kind: Architecture, arch: str) -> Traits:
    """The architecture's, with what the metadata says of attention and logits."""
    shifted = meta.get("diffusion.shift_logits")
    if kind.traits.attention != "causal":
        return kind.traits if shifted is None else replace(kind.traits, shifted=bool(shifted))
    if meta.get(f"{arch}.attention.causal") is not False:
        return kind.traits
    # as llama.cpp reads a file without the key
    begin = bool(meta.get("tokenizer.ggml.add_bos_token"))
    return Traits(attention="bidirectional", shifted=shifted is not False, begin=begin)


def _rope_factors(tensor: Any, config: ModelConfig) -> RopeScaling:
    factors = _dequantise(tensor, 0).flatten().tolist()
    if (
        len(factors) != config.head_dim // 2
        or config.rope_scaling
        or not all(f > 0 for f in factors)
    ):
        raise WeightsError(f"tensor {_ROPE_FACTORS} does not fit the configuration")
    return RopeScaling(kind="factors", factors=tuple(factors))


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


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    rows = weight.shape[0]
    paired = weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:])
    return paired.swapaxes(1, 2).reshape(weight.shape).contiguous()


def _open_folder(path: Path, traits: Traits | None) -> Checkpoint:
    config_path, tokenizer = path / "config.json", tokenizer_files.find(path)
    if not config_path.is_file() or tokenizer is None:
        lacks = "tokenizer.json" if config_path.is_file() else "config.json"
        raise WeightsError(f"{path} has no {lacks}; it is not a folder in the hub layout")
    raw = json_file.read_object(config_path)
    config = model_config.from_hub(raw)
    kind = architectures.of_hub(config.architecture)
    if traits is None and raw.get("mask_token_id") is not None and kind.traits == CAUSAL:
        raise WeightsError(
            f"{path} has a mask token, but nothing says how the model denoises; "
            "give --model NAME, one of `dlsp-engine models`, together with --weights"
        )
    named = special_tokens.of_folder(path, raw, tokenizer)
    config = _with_family(config, traits or kind.traits, named)
    tensors: dict[str, Read] = {}
    for shard in _shards(path):
        tensors.update(_open_shard(shard, kind.names))
    _check_head(model_config.plain_keys(raw).get("tie_word_embeddings"), tensors, path, kind.names)
    return Checkpoint(config=config, tensors=tensors, tokenizer=tokenizer, names=kind.names)


def _check_head(tied: Any, tensors: dict[str, Read], path: Path, called: Names) -> None:
    """A tied head is the embedding, whatever the file holds; an untied one must be there."""
    if tied:
        tensors.pop("lm_head.weight", None)
    elif tied is False and "lm_head.weight" not in tensors:
        name = names.in_folder("lm_head.weight", called)
        raise WeightsError(f"{path.name} lacks tensor {name} (1 missing)")


def _shards(path: Path) -> list[Path]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        placed = json_file.read_object(index).get("weight_map")
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


def _open_shard(shard: Path, called: Names) -> dict[str, Read]:
    from safetensors import SafetensorError, safe_open

    try:
        handle = safe_open(shard, framework="pt")
        found = [name for name in list(handle.keys()) if not name.endswith(_IGNORED)]
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{shard} is not a readable safetensors file ({error})") from error

    def loader(name: str) -> Read:
        return lambda: handle.get_tensor(name).to(torch.float32)

    return {names.from_hub(name, called): loader(name) for name in found}

"""Which token plays which part in a model, as its own files say.

A folder's config, generation config and tokenizer may disagree. The mask is what the model's code
reads, the config's; begin, end and padding are what its prompts are made with, the tokenizer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine import json_file, tokenizer_files
from engine.model.family import Named

_OF_THE_MODEL, _OF_THE_TEXT = ("mask", "expand", "delete"), ("bos", "eos", "pad")
#: Names that published tokenizers give these tokens, where nothing but the name tells.
_USUAL = {
    "mask": ("<|mask|>", "<M>", "<|mdm_mask|>", "<[MASK_TOKEN]>", "<|MASK|>", "|<MASK>|"),
    "expand": ("<|expand|>",),
    "delete": ("<|delete|>",),
}
_IN_GGUF = {"mask": "mask", "bos": "bos", "eos": "eos", "pad": "padding"}
_ENDS_IN_GGUF = ("eos", "eot", "padding", "eom")
_BLOCK_KEYS = ("block_size", "bd_size")


def of_folder(folder: Path, config: Mapping[str, Any], tokenizer: Path) -> Named:
    """What a hub folder names. `config`: its config.json; `tokenizer`: its tokenizer's file."""
    special = tokenizer_files.special_in_hub(tokenizer)
    generation = _json(folder / "generation_config.json")
    texts = {**_json(folder / "special_tokens_map.json"), **_json(folder / "tokenizer_config.json")}
    numbers = [config, generation]
    ids: dict[str, int] = {}
    for role in (*_OF_THE_MODEL, *_OF_THE_TEXT):
        by_number = [i for source in numbers for i in _ids(source, role)]
        by_name = _named(texts.get(f"{role}_token"), special)
        usual = [special[name] for name in _USUAL.get(role, ()) if name in special]
        found = by_number + by_name if role in _OF_THE_MODEL else by_name + by_number
        if found or usual:
            ids[role] = (found or usual)[0]
    ends = [i for source in numbers for role in ("eos", "pad") for i in _ids(source, role)]
    ends += [i for role in ("eos", "pad") for i in _named(texts.get(f"{role}_token"), special)]
    block = next((int(config[key]) for key in _BLOCK_KEYS if config.get(key)), 0)
    return Named(ids=ids, ends=tuple(sorted(set(ends))), special=special, block=block)


def of_gguf(meta: Mapping[str, Any]) -> Named:
    """What GGUF metadata names."""
    special = tokenizer_files.special_in_gguf(meta)
    given = {key: meta.get(f"tokenizer.ggml.{key}_token_id") for key in {*_IN_GGUF.values()}}
    ids = {role: int(i) for role, key in _IN_GGUF.items() if (i := given[key]) is not None}
    for role, names in _USUAL.items():
        usual = [special[name] for name in names if name in special]
        if role not in ids and usual:
            ids[role] = usual[0]
    ends = {meta.get(f"tokenizer.ggml.{key}_token_id") for key in _ENDS_IN_GGUF} - {None}
    return Named(
        ids=ids, ends=tuple(sorted(int(i) for i in ends if i is not None)), special=special
    )


def _ids(source: Mapping[str, Any], role: str) -> list[int]:
    """A configuration's id for that role, or ids."""
    value = source.get(f"{role}_token_id")
    values: Iterable[Any] = value if isinstance(value, list) else (value,)
    return [i for i in values if isinstance(i, int) and not isinstance(i, bool)]


def _named(token: Any, special: Mapping[str, int]) -> list[int]:
    """The id of a token that a tokenizer's configuration gives by name, plain or as an object."""
    name = token.get("content") if isinstance(token, dict) else token
    return [special[name]] if isinstance(name, str) and name in special else []


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no such file; raises WeightsError for a damaged one."""
    return json_file.read_object(path) if path.is_file() else {}

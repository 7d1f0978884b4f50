"""Published tokenizers: GGUF metadata, and the files of a hub folder, as one definition.

Knows the files and their formats, byte-level BPE only; not how text is encoded (tokenizer.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.request import WeightsError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_QWEN = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
_SEED_CODER = _QWEN.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+", 1)
_BAILING = (
    rf"'(?i:[sdmt]|ll|ve|re)|{_WORDS}|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SPELLED, _SPECIAL = (1, 6), (3, 4)  # GGUF token types: normal, byte; control, user-defined
#: Tokenizer classes that read vocab.json and merges.txt, and GGUF's name of how they cut text.
_CLASSES = {
    "Qwen2Tokenizer": "qwen2",
    "Qwen2TokenizerFast": "qwen2",
    "DreamTokenizer": "qwen2",
    "GPT2Tokenizer": "gpt-2",
    "GPT2TokenizerFast": "gpt-2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A byte-level BPE: tokens that spell text, merges in order ("a b"), special tokens, and the
    pre-tokenizer and `ignore_merges` as the `tokenizers` library reads them."""

    plain: Mapping[str, int]
    merges: tuple[str, ...]
    special: Mapping[str, int]
    pre_tokenizer: Mapping[str, Any]
    ignore_merges: bool = False


def from_gguf(meta: Mapping[str, Any]) -> Definition:
    """The tokenizer in GGUF metadata; raises WeightsError."""
    kind, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise WeightsError(f"tokenizer {kind!r} with pre-tokenizer {pre!r} is not supported")
    tokens: list[str] = meta.get("tokenizer.ggml.tokens") or []
    types: list[int] = meta.get("tokenizer.ggml.token_type") or []
    merges: list[str] = meta.get("tokenizer.ggml.merges") or []
    if not merges or len(tokens) != len(types):
        raise WeightsError("the tokenizer in the GGUF file is incomplete; pull the model again")
    return Definition(
        plain={t: i for i, t in enumerate(tokens) if types[i] in _SPELLED},
        merges=tuple(merges),
        special=special_in_gguf(meta),
        pre_tokenizer=_pre_tokenizer(str(pre)),
        ignore_merges=pre in _IGNORES_MERGES,
    )


def special_in_gguf(meta: Mapping[str, Any]) -> dict[str, int]:
    """Special tokens by name."""
    tokens: list[str] = meta.get("tokenizer.ggml.tokens") or []
    types: list[int] = meta.get("tokenizer.ggml.token_type") or []
    both = zip(tokens, types, strict=False)
    return {token: i for i, (token, kind) in enumerate(both) if kind in _SPECIAL}


def find(folder: Path) -> Path | None:
    """The tokenizer's file in a hub folder: tokenizer.json, or vocab.json with merges.txt."""
    if (folder / "tokenizer.json").is_file():
        return folder / "tokenizer.json"
    both = folder / "vocab.json", folder / "merges.txt"
    return both[0] if all(file.is_file() for file in both) else None


def from_hub(path: Path) -> Definition:
    """The tokenizer whose file `find` found; raises WeightsError."""
    try:
        return _from_vocabulary(path) if path.name == "vocab.json" else _from_json(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path} is not a tokenizer definition ({error!r})") from error


def special_in_hub(path: Path) -> dict[str, int]:
    """Special tokens by name, of the file that `find` found and those beside it."""
    try:
        data = {} if path.name == "vocab.json" else _read(path)
        return _added(path.parent) | {t["content"]: t["id"] for t in data.get("added_tokens", ())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path} is not a tokenizer definition ({error!r})") from error


def _from_json(path: Path) -> Definition:
    data = _read(path)
    model, pre_tokenizer = data["model"], data["pre_tokenizer"]
    if model["type"] != "BPE" or not pre_tokenizer:
        raise WeightsError(f"{path} holds a {model['type']} tokenizer; a byte-level BPE is needed")
    special = special_in_hub(path)
    merges = (m if isinstance(m, str) else " ".join(m) for m in model.get("merges", ()))
    return Definition(
        plain={t: i for t, i in model["vocab"].items() if t not in special},
        merges=tuple(merges),
        special=special,
        pre_tokenizer=pre_tokenizer,
        ignore_merges=bool(model.get("ignore_merges")),
    )


def _from_vocabulary(path: Path) -> Definition:
    folder = path.parent
    name = _read(folder / "tokenizer_config.json").get("tokenizer_class")
    if name not in _CLASSES:
        raise WeightsError(
            f"{folder} has no tokenizer.json, and its tokenizer class {name!r} is not known"
        )
    special = special_in_hub(path)
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    if lines and lines[0].startswith("#version"):
        del lines[0]
    return Definition(
        plain={t: i for t, i in _read(path).items() if t not in special},
        merges=tuple(line for line in lines if line),
        special=special,
        pre_tokenizer=_pre_tokenizer(_CLASSES[name]),
    )


def _added(folder: Path) -> dict[str, int]:
    """What added_tokens.json and tokenizer_config.json add to the vocabulary."""
    added: dict[str, int] = {}
    if (folder / "added_tokens.json").is_file():
        added.update(_read(folder / "added_tokens.json"))
    if (folder / "tokenizer_config.json").is_file():
        decoder = _read(folder / "tokenizer_config.json").get("added_tokens_decoder") or {}
        added.update({token["content"]: int(number) for number, token in decoder.items()})
    return added


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _pre_tokenizer(name: str) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[name]}


def _split(pattern: str) -> list[dict[str, Any]]:
    split = {"Regex": pattern}
    return [
        {"type": "Split", "pattern": split, "behavior": "Isolated", "invert": False},
        _BYTE_LEVEL | {"use_regex": False},
    ]


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_GPT2 = [_BYTE_LEVEL | {"use_regex": True}]
#: GGUF's name of the pre-tokenizer -> its definition as the `tokenizers` library reads it
_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "qwen2": _split(_QWEN),
    "llama-bpe": _split(_LLAMA3),
    "seed-coder": _split(_SEED_CODER),
    "bailingmoe": _split(_BAILING),
    "llada-moe": _split(_BAILING),
    "gpt-2": _GPT2,
    "default": _GPT2,
    "smollm": [{"type": "Digits", "individual_digits": True}, *_GPT2],
}
#: Llama 3's vocabulary holds words that its merges do not reach.
_IGNORES_MERGES = ("llama-bpe",)

"""Text <-> token ids, byte-exact.

Built from GGUF metadata or a hub `tokenizer.json` on the `tokenizers` library. Special tokens are
never read out of user text, and no normaliser changes it: what is encoded is spelled exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HfTokenizer

from engine.request import WeightsError
from engine.token_table import TokenTable

_QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
#: GGUF's name of the pre-tokenizer -> its definition as the `tokenizers` library reads it
_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "qwen2": [
        {
            "type": "Split",
            "pattern": {"Regex": _QWEN_PATTERN},
            "behavior": "Isolated",
            "invert": False,
        },
        _BYTE_LEVEL | {"use_regex": False},
    ],
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        _BYTE_LEVEL | {"use_regex": True},
    ],
}
_SPELLED, _SPECIAL = (1, 6), (3, 4)  # GGUF token types: normal, byte; control, user-defined
#: Of the second format are definitions without a token table.
_FORMAT, _WITHOUT_TABLE = "dlsp-tokenizer-3", "dlsp-tokenizer-2"
#: What a tokenizer must spell unchanged: spaces, line ends, accents, wide characters.
_PROBE = "x  = 'é'\r\n\ty\t\u0301 # 中文 ½ 42 🎉\n\n "


class Tokenizer:
    """`encode` and `decode`, and the token table that healing searches."""

    def __init__(self, definition: str) -> None:
        """`definition` is what `to_json` wrote: a line of our own, a line that holds the token
        table, then the library's JSON, which is megabytes and so is parsed once, by the library.
        A table that is missing or damaged is made again."""
        header, _, rest = definition.partition("\n")
        data = json.loads(header)
        kind = data.get("format") if isinstance(data, dict) else None
        if kind not in (_FORMAT, _WITHOUT_TABLE):
            raise WeightsError("the cached tokenizer is of another version; delete it and reload")
        table, _, self._library_json = rest.partition("\n") if kind == _FORMAT else ("", "", rest)
        try:
            self._hf = HfTokenizer.from_str(self._library_json)
        except Exception as error:  # the library raises nothing narrower
            raise WeightsError(f"the tokenizer is not usable ({error})") from error
        self.special_ids: dict[str, int] = data["special"]
        self.size: int = data["size"]
        self._table = TokenTable.from_text(table, self.size) or self._fresh_table()
        self.token_bytes = self._table.spelled

    @classmethod
    def from_gguf(cls, meta: Mapping[str, Any]) -> Tokenizer:
        """From GGUF metadata of a byte-level BPE tokenizer."""
        kind, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
        if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
            raise WeightsError(f"tokenizer {kind!r} with pre-tokenizer {pre!r} is not supported")
        tokens: list[str] = meta.get("tokenizer.ggml.tokens") or []
        types: list[int] = meta.get("tokenizer.ggml.token_type") or []
        merge_lines: list[str] = meta.get("tokenizer.ggml.merges") or []
        if not merge_lines or len(tokens) != len(types):
            raise WeightsError("the tokenizer in the GGUF file is incomplete; pull the model again")
        plain = {t: i for i, t in enumerate(tokens) if types[i] in _SPELLED}
        special = {t: i for i, t in enumerate(tokens) if types[i] in _SPECIAL}
        pre_tokenizer = {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[str(pre)]}
        return cls._build(plain, merge_lines, special, pre_tokenizer)

    @classmethod
    def from_hub(cls, path: Path) -> Tokenizer:
        """From a hub `tokenizer.json` (byte-level BPE)."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            model, pre_tokenizer = data["model"], data["pre_tokenizer"]
            kind = model["type"]
            merges = [m if isinstance(m, str) else " ".join(m) for m in model.get("merges", ())]
        except (ValueError, KeyError, TypeError) as error:
            raise WeightsError(f"{path} is not a tokenizer definition ({error!r})") from error
        if kind != "BPE" or not pre_tokenizer:
            raise WeightsError(f"{path} holds a {kind} tokenizer; a byte-level BPE is needed")
        special = {t["content"]: t["id"] for t in data.get("added_tokens", [])}
        plain = {t: i for t, i in model["vocab"].items() if t not in special}
        return cls._build(plain, merges, special, pre_tokenizer)

    @classmethod
    def _build(
        cls,
        plain: dict[str, int],
        merges: list[str],
        special: dict[str, int],
        pre_tokenizer: dict[str, Any],
    ) -> Tokenizer:
        alphabet = set(_byte_alphabet())
        if not plain or any(not alphabet.issuperset(token) for token in plain):
            raise WeightsError("the tokenizer does not spell bytes; a byte-level BPE is needed")
        size = 1 + max([*plain.values(), *special.values()])
        tokenizer: dict[str, Any] = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": None,
            "model": {"type": "BPE", "vocab": plain, "merges": merges, "ignore_merges": False},
        }
        header = json.dumps({"format": _WITHOUT_TABLE, "size": size, "special": special})
        built = cls(f"{header}\n{json.dumps(tokenizer, ensure_ascii=False)}")
        probe = built.clean(_PROBE)
        if built.spell(built.encode(probe)) != probe.encode("utf-8"):
            raise WeightsError("the tokenizer changes text that it encodes; use another model")
        return built

    def to_json(self) -> str:
        """The definition `Tokenizer` takes, the token table included."""
        data = {"format": _FORMAT, "size": self.size, "special": self.special_ids}
        return f"{json.dumps(data)}\n{self._table.to_text()}\n{self._library_json}"

    def clean(self, text: str) -> str:
        """`text` with `?` for each character that no tokens spell: lone surrogates, and in some
        vocabularies a few control characters. Its length stays."""
        data = text.encode("utf-8", "replace")
        known = self._known_bytes
        if not data.translate(None, known):
            return data.decode("utf-8")
        return "".join(
            "?" if character.encode("utf-8").translate(None, known) else character
            for character in data.decode("utf-8")
        )

    def encode(self, text: str) -> list[int]:
        """Ids that spell `clean(text)` exactly."""
        if not text:
            return []
        ids: list[int] = self._hf.encode(self.clean(text), add_special_tokens=False).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text that `ids` spell; a character cut at either edge is left out."""
        return self.spell(ids).decode("utf-8", "ignore")

    def spell(self, ids: Iterable[int]) -> bytes:
        """The bytes that `ids` spell; special tokens spell nothing."""
        table = self.token_bytes
        return b"".join(table[i] for i in ids)

    def pieces(self, text: str) -> list[int]:
        """Start offsets of the pre-tokens of `text`: no token ever crosses one."""
        if not text:
            return []
        pre = self._hf.pre_tokenizer
        return sorted({span[0] for _, span in pre.pre_tokenize_str(self.clean(text))})

    def _fresh_table(self) -> TokenTable:
        spelled = [b""] * self.size
        alphabet = _byte_alphabet()
        for token, index in self._hf.get_vocab(with_added_tokens=False).items():
            spelled[index] = bytes(alphabet[c] for c in token)
        return TokenTable.of(spelled)

    @cached_property
    def _known_bytes(self) -> bytes:
        """The bytes that a token of one byte spells."""
        return b"".join(spelled for spelled in self.token_bytes if len(spelled) == 1)

    def spelling(self, wanted: bytes) -> list[int]:
        """Ids of the tokens that begin with `wanted` or are a proper prefix of it (not empty)."""
        return self._table.spelling(wanted)

    def special(self, name: str) -> int | None:
        """The id of a special token, or None if this tokenizer lacks it."""
        return self.special_ids.get(name)


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE uses for the 256 bytes (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in set(printable)]
    stand_ins = {chr(b): b for b in printable}
    stand_ins.update({chr(256 + n): b for n, b in enumerate(others)})
    return stand_ins

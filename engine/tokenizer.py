"""Text <-> token ids, byte-exact.

Built from a published definition (tokenizer_files.py) on the `tokenizers` library. Special tokens
are never read out of user text, and no normaliser changes it: what is encoded is spelled exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HfTokenizer

from engine import tokenizer_files
from engine.request import WeightsError
from engine.token_table import TokenTable
from engine.tokenizer_files import Definition

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
        return cls._build(tokenizer_files.from_gguf(meta))

    @classmethod
    def from_hub(cls, path: Path) -> Tokenizer:
        """From a hub `tokenizer.json`, or a `vocab.json` and its neighbours (byte-level BPE)."""
        return cls._build(tokenizer_files.from_hub(path))

    @classmethod
    def _build(cls, given: Definition) -> Tokenizer:
        alphabet = set(_byte_alphabet())
        if not given.plain or any(not alphabet.issuperset(token) for token in given.plain):
            raise WeightsError("the tokenizer does not spell bytes; a byte-level BPE is needed")
        size = 1 + max([*given.plain.values(), *given.special.values()])
        tokenizer: dict[str, Any] = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": given.pre_tokenizer,
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "BPE",
                "vocab": given.plain,
                "merges": given.merges,
                "ignore_merges": given.ignore_merges,
            },
        }
        head = {"format": _WITHOUT_TABLE, "size": size, "special": given.special}
        built = cls(f"{json.dumps(head)}\n{json.dumps(tokenizer, ensure_ascii=False)}")
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

"""Documents -> what the frozen base computed for them, kept on disk for later epochs.

A document is arranged as users make holes: prefix, suffix and middle in the base's own
fill-in-the-middle order, or plain; every position is then a site for canvases. Bases without such
training get the suffix as a stream of its own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.cache import Stream
from engine.model.linear import Linear
from engine.model.transformer import Transformer
from engine.prompt import PromptStyle
from engine.tokenizer import Tokenizer

_CHUNK = 128
TOP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One encoded document of N tokens (bfloat16 unless said).

    ids [N] int32; features [N, 2, H]; keys, values [layers, kv_heads, N, D] of the base's top
    layers; top_ids [N, TOP] int32 indices into the shortlist and top_p [N, TOP]: the base's most
    probable next tokens; choice [N] int32: the vocabulary id of the first of them. after_keys,
    after_values [layers, kv_heads, M, D]: a suffix stream, M may be 0.
    """

    ids: Tensor
    features: Tensor
    keys: Tensor
    values: Tensor
    top_ids: Tensor
    top_p: Tensor
    choice: Tensor
    after_keys: Tensor
    after_values: Tensor

    def save(self, path: Path) -> None:
        """Write atomically."""
        part = path.with_suffix(".part")
        save_file({name: getattr(self, name).contiguous() for name in self.__slots__}, part)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Document:
        """Read what `save` wrote."""
        return cls(**load_file(path))

    def to(self, place: torch.device) -> Document:
        """This document with its tensors on a device (itself, if they are there)."""
        if self.ids.device.type == place.type:
            return self
        return Document(**{name: getattr(self, name).to(place) for name in self.__slots__})


def arrange(
    tokenizer: Tokenizer, style: PromptStyle, text: str, length: int, rng: random.Random
) -> tuple[list[int], list[int]] | None:
    """A random stretch of `text` as (main ids, suffix ids); None if it is too short.

    Two in three documents have a hole: its cut lies at any character, as a cursor's would.
    """
    budget = length * 4
    if len(text) < 200:
        return None
    start = rng.randrange(max(1, len(text) - budget))
    start = text.rfind("\n", 0, start) + 1
    piece = text[start : start + budget]
    if rng.random() < 1 / 3:
        return tokenizer.encode(piece)[:length], []
    first = rng.randrange(len(piece) // 4, len(piece) * 3 // 4)
    if rng.random() < 0.7:  # a cursor's anchor is the start of its line
        first = piece.rfind("\n", 0, first) + 1
    last = min(len(piece), first + rng.randrange(20, max(21, budget // 2)))
    prefix, middle, suffix = piece[:first], piece[first:last], piece[last : last + 800]
    if not style.trained:
        return tokenizer.encode(prefix + middle)[:length], tokenizer.encode(suffix)[:128]
    ids = style.order(tokenizer.encode(prefix), tokenizer.encode(suffix)[:160])
    ids += tokenizer.encode(middle)
    if len(ids) >= length:  # cut short: the middle does not end here
        return ids[:length], []
    return [*ids, style.end_ids[0]], []


class Encoder:
    """Runs the frozen base over arranged documents."""

    def __init__(self, base: Transformer, layers: int, shortlist: Tensor, head: Linear) -> None:
        """`layers`: how many top layers' keys to keep; `head` scores the shortlist."""
        self.base, self.layers, self.shortlist, self.head = base, layers, shortlist, head

    def __call__(self, ids: list[int], after: list[int]) -> Document:
        """Encode one document (blocking; about the base's prefill speed)."""
        stream, hidden = self._run(ids)
        suffix, _ = self._run(after)
        end = self.base.head
        normed = end.kernels.rms_norm(hidden, end.norm, end.eps)
        probability = self.head(normed).softmax(dim=-1)
        top_p, top_ids = probability.topk(TOP, dim=-1)
        n, m, top = len(ids), len(after), slice(-self.layers, None)
        half = torch.bfloat16
        return Document(
            ids=torch.tensor(ids, dtype=torch.int32),
            features=stream.features[:n, :2].to(half),
            keys=stream.keys[top, :, :n].to(half),
            values=stream.values[top, :, :n].to(half),
            top_ids=top_ids.to(torch.int32),
            top_p=top_p.to(half),
            choice=self.shortlist[top_ids[:, 0]].to(torch.int32),
            after_keys=suffix.keys[top, :, :m].to(half),
            after_values=suffix.values[top, :, :m].to(half),
        )

    def _run(self, ids: list[int]) -> tuple[Stream, Tensor]:
        stream = self.base.new_stream(max(len(ids), 1))
        parts = [
            self.base.encode(ids[at : at + _CHUNK], stream) for at in range(0, len(ids), _CHUNK)
        ]
        return stream, torch.cat(parts) if parts else torch.empty(0)

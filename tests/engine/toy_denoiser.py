"""A model of a few multiplications that scores slots from all slots, for tests of the loop."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from engine.hole import Hole
from engine.lengths import Length
from engine.model.family import Family
from engine.request import InfillRequest
from engine.slot_canvas import SlotCanvas
from engine.slot_rules import SlotRules, SlotVocabulary
from engine.tokenizer import Tokenizer
from tests.engine.tiny_base import tokenizer_json

HIDDEN, MOST = 8, 24


@cache
def vocabulary(*, edits: bool = False) -> SlotVocabulary:
    """The tiny tokenizer's, with a mask and, for `edits`, an expand token behind it."""
    data = json.loads(tokenizer_json())
    first = 1 + max(token["id"] for token in data["added_tokens"])
    template = data["added_tokens"][0]
    for n, name in enumerate(("<|mask|>", "<|expand|>")):
        data["added_tokens"].append(template | {"id": first + n, "content": name})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(data), encoding="utf-8")
        tokenizer = Tokenizer.from_hub(path)
    end = tokenizer.special("<|endoftext|>")
    assert end is not None
    family = Family(
        attention="bidirectional",
        mask_id=first,
        eos_id=end,
        end_ids=(end,),
        expand_id=first + 1 if edits else None,
        delete_id=end if edits else None,
    )
    return SlotVocabulary(tokenizer, family, tokenizer.size)


class ToyModel:
    """Random weights, one set per seed. Every slot's logits depend on every slot's token."""

    def __init__(self, words: SlotVocabulary, seed: int, *, likes: tuple[int, ...] = ()) -> None:
        """`likes`: tokens that get a push, so that rare ones occur."""
        generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(words.rows, HIDDEN, generator=generator)
        self.place = torch.randn(2 * MOST, HIDDEN, generator=generator)
        self.head = torch.randn(HIDDEN, words.rows, generator=generator)
        self.head[:, list(likes)] *= 1.7
        self.seen: list[list[int]] = []

    def hidden(self, canvas: SlotCanvas) -> Tensor:
        self.seen.append(canvas.ids.tolist())
        rows = self.embedding[canvas.ids] + self.place[: len(canvas)]
        return torch.tanh(rows + rows.roll(1, 0) + rows.mean(0))

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.head

    def reach(self, canvas: SlotCanvas) -> int:
        return len(canvas)


def rules(
    words: SlotVocabulary, length: Length, request: InfillRequest | None = None, spell: bytes = b""
) -> SlotRules:
    """The rules of a hole in the middle of a line, unless a request says otherwise."""
    asked = request or InfillRequest(prefix="x = ", suffix=" + 1\n", want="block", healing=False)
    return SlotRules(words, Hole.of(asked), spell, length)

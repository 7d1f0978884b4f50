"""One model's way of denoising: the traits of its kind, and the token ids that its files name.

Knows nothing of tensors but the counts that attention takes, and nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.traits import Attention, Order, Traits
from engine.request import WeightsError

#: Names that the fill-in-the-middle markers go by: prefix, suffix, middle (Qwen2.5; Seed-Coder).
_MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model's way of denoising. The default is an autoregressive model: a base for a canvas.

    expand_id becomes two masks in place, delete_id none (DreamOn); end_ids end the text: what
    follows one is filler. before, after: ids around a prompt; marker_ids: prefix, suffix, middle.
    """

    attention: Attention = "causal"
    shifted: bool = False
    block: int = 0
    order: Order = "around"
    mask_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None
    expand_id: int | None = None
    delete_id: int | None = None
    end_ids: tuple[int, ...] = ()
    before_ids: tuple[int, ...] = ()
    after_ids: tuple[int, ...] = ()
    marker_ids: tuple[int, ...] = ()

    @property
    def diffuses(self) -> bool:
        """Whether the model itself fills masks; else it is a base that needs a denoiser."""
        return self.attention != "causal"

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids that play a part here; none of them may reach the user's file."""
        named = (self.mask_id, self.bos_id, self.eos_id, self.pad_id, self.expand_id)
        ids = {*named, self.delete_id, *self.end_ids, *self.marker_ids}
        return frozenset(i for i in ids if i is not None)

    def visible(self, start: int, rows: int, length: int) -> Tensor:
        """How many keys each row from position `start` on may see, of a canvas of `length` [rows].

        For `Transformer.forward`; int64, never more than `length`.
        """
        if self.attention == "bidirectional":
            return torch.full((rows,), length)
        positions = torch.arange(start, start + rows)
        if self.attention == "block_causal":
            return ((positions // self.block + 1) * self.block).clamp_max(length)
        return positions + 1

    def sides(self, prefix_ids: list[int], suffix_ids: list[int]) -> tuple[list[int], list[int]]:
        """The ids before the hole and those behind it."""
        if self.order == "around":
            return [*self.before_ids, *prefix_ids], [*suffix_ids, *self.after_ids]
        if not self.marker_ids:  # no way to tell it of the suffix
            return [*self.before_ids, *prefix_ids], []
        prefix, suffix, middle = self.marker_ids
        parts = ([prefix, *prefix_ids], [suffix, *suffix_ids])
        first, second = parts if self.order == "prefix_first" else parts[::-1]
        return [*self.before_ids, *first, *second, middle], []

    def scoring_row(self, position: int) -> int:
        """The row whose logits are those of `position` (the first has none before it)."""
        return max(0, position - 1) if self.shifted else position


#: The family of an autoregressive model whose files name no token.
PLAIN = Family()


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a model's files say of its tokens.

    ids: by role (mask, bos, eos, pad, expand, delete), from config and tokenizer; ends: every id
    that any of the files calls an end; special: the tokenizer's special tokens by name; block: the
    block size, 0 if none is given.
    """

    ids: Mapping[str, int]
    ends: tuple[int, ...]
    special: Mapping[str, int]
    block: int = 0


def resolve(traits: Traits, named: Named, vocab: int) -> Family:
    """The family of a model with `vocab` embedding rows; raises WeightsError for what is missing.

    What the files name wins over what is known of the kind, but for the block size: it is the
    kind's where the kind has one.
    """
    bos, eos = named.ids.get("bos"), named.ids.get("eos")
    family = Family(
        attention=traits.attention,
        shifted=traits.shifted,
        block=traits.block or named.block if traits.attention == "block_causal" else 0,
        order=traits.order,
        mask_id=named.ids.get("mask", traits.mask_id),
        bos_id=bos,
        eos_id=eos,
        pad_id=named.ids.get("pad"),
        expand_id=named.ids.get("expand", traits.expand_id),
        delete_id=named.ids.get("delete", traits.delete_id),
        end_ids=named.ends,
        before_ids=(bos,) if traits.begin and bos is not None else (),
        after_ids=(eos,) if traits.end and eos is not None else (),
        marker_ids=_markers(named.special),
    )
    _check(family, vocab)
    return family


def _markers(special: Mapping[str, int]) -> tuple[int, ...]:
    for names in _MARKERS:
        if all(name in special for name in names):
            return tuple(special[name] for name in names)
    return ()


def _check(family: Family, vocab: int) -> None:
    beyond = [i for i in family.special_ids if not 0 <= i < vocab]
    if beyond and family.diffuses:
        raise WeightsError(f"special token {beyond[0]} lies beyond the model's {vocab} embeddings")
    if family.diffuses and family.mask_id is None:
        raise WeightsError(
            "neither the configuration nor the tokenizer names a mask token; "
            "use the model's name of `dlsp-engine models` together with --weights"
        )
    if family.attention == "block_causal" and family.block < 1:
        raise WeightsError(
            "the model denoises in blocks, but nothing says how long they are; "
            "use the model's name of `dlsp-engine models` together with --weights"
        )

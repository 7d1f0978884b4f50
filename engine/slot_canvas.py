"""The hole of a masked-diffusion model: slots in a row, each open or holding a token.

Grows, shrinks, commits and masks again. A pinned slot never changes. Knows ids and tensors; knows
nothing of models, text, or why a slot is filled.
"""

from __future__ import annotations

import torch
from torch import Tensor


class SlotCanvas:
    """n slots, all tensors [n].

    `ids` int64, the mask id where open; `open`, `pinned` bool; `probability` float32 of each token
    when it was committed; `turn` int64, when it was committed or masked again; `again` int64, how
    often it was masked again. `spent` counts insertions: what bounds growth.
    """

    def __init__(self, slots: int, mask_id: int, most: int | None = None) -> None:
        """`slots` open slots; at most `most` (as many by default) at any time."""
        self.mask_id, self.most = mask_id, max(slots, most or 0)
        self.ids = torch.full((slots,), mask_id)
        self.open = torch.ones(slots, dtype=torch.bool)
        self.pinned = torch.zeros(slots, dtype=torch.bool)
        self.probability = torch.zeros(slots)
        self.turn = torch.zeros(slots, dtype=torch.long)
        self.again = torch.zeros(slots, dtype=torch.long)
        self.spent = 0
        self._banned: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def closed(self) -> bool:
        """Whether no slot is open."""
        return not bool(self.open.any())

    @property
    def room(self) -> int:
        """How many slots may still be inserted: within `most`, and `most` insertions in all, so
        that growing and shrinking in turn comes to an end."""
        return max(0, min(self.most - len(self), self.most - self.spent))

    def pin(self, at: int, token_id: int) -> None:
        """Fill a slot for good."""
        self.ids[at], self.open[at], self.pinned[at] = token_id, False, True
        self.probability[at] = 1.0

    def commit(self, at: Tensor, token: Tensor, probability: Tensor, turn: int) -> None:
        """Fill the open slots `at` [k] int64 with token [k]."""
        self.ids[at], self.open[at] = token, False
        self.probability[at], self.turn[at] = probability, turn

    def mask(self, again: Tensor, turn: int) -> None:
        """Open the filled slots of a mask [n] bool again, and count it; pinned ones stay."""
        again = again & ~self.pinned & ~self.open
        self.blank(again)
        self.turn[again] = turn
        self.again[again] += 1

    def blank(self, slots: Tensor) -> None:
        """Open the slots of a mask [n] bool; pinned ones stay."""
        slots = slots & ~self.pinned
        self.ids[slots], self.open[slots] = self.mask_id, True

    def insert(self, at: int, count: int = 1) -> None:
        """Put open slots before slot `at` (n appends)."""
        for name, value in self._fresh(count).items():
            old: Tensor = getattr(self, name)
            setattr(self, name, torch.cat((old[:at], value, old[at:])))
        self._banned = {p + count * (p >= at): ids for p, ids in self._banned.items()}
        self.spent += count

    def drop(self, gone: Tensor) -> None:
        """Take the slots of a mask [n] bool out; pinned ones stay."""
        stay = ~(gone & ~self.pinned)
        for name in self._fresh(0):
            setattr(self, name, getattr(self, name)[stay])
        places = (stay.cumsum(0) - 1).tolist()
        kept = stay.tolist()
        self._banned = {places[p]: ids for p, ids in self._banned.items() if kept[p]}

    def ban(self, at: int, token_id: int) -> None:
        """Never again commit this token in this slot."""
        self._banned.setdefault(at, set()).add(token_id)

    def banned(self, at: int) -> set[int]:
        """Tokens banned in a slot."""
        return self._banned.get(at, set())

    def copy(self) -> SlotCanvas:
        """A canvas of the same content that changes apart from this one."""
        twin = SlotCanvas(0, self.mask_id, self.most)
        for name in self._fresh(0):
            setattr(twin, name, getattr(self, name).clone())
        twin.spent, twin._banned = self.spent, {p: set(ids) for p, ids in self._banned.items()}
        return twin

    def _fresh(self, count: int) -> dict[str, Tensor]:
        """The tensors of `count` open slots."""
        return {
            "ids": torch.full((count,), self.mask_id),
            "open": torch.ones(count, dtype=torch.bool),
            "pinned": torch.zeros(count, dtype=torch.bool),
            "probability": torch.zeros(count),
            "turn": torch.zeros(count, dtype=torch.long),
            "again": torch.zeros(count, dtype=torch.long),
        }

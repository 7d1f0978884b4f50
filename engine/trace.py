"""What a canvas looked like after each step: values for `--explain`, and their one-line form.

Knows text and numbers only; the loops of all families write it, the command line shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["open", "held", "committed", "remasked", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """One slot after a step. `text` is what it spells (empty while open), `probability` that of its
    token when it was written. `state`: open; held from before; committed, masked again or rejected
    in this very step."""

    text: str
    state: State
    probability: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The canvas after one step; `note` says what else happened, such as growth."""

    step: int
    slots: tuple[SlotView, ...]
    note: str = ""


Observer = Callable[[Snapshot], None]

_OPEN = "_"
_MARKS: dict[State, str] = {"committed": "+", "remasked": "~", "rejected": "-"}


def line(snapshot: Snapshot) -> str:
    """One line of a terminal: the slots between bars, `+` committed now, `~` masked again, `-`
    rejected, `_` open, with the probability in per cent of what is new."""
    parts = [_show(slot) for slot in snapshot.slots]
    note = f"  ({snapshot.note})" if snapshot.note else ""
    return f"{snapshot.step:3} |{'|'.join(parts)}|{note}"


def _show(slot: SlotView) -> str:
    text = slot.text.replace("\n", "\\n").replace("\t", "\\t")
    if slot.state == "open":
        return _OPEN
    if slot.state == "held":
        return text
    sure = f":{slot.probability:.0%}" if slot.state != "remasked" else ""
    return f"{_MARKS[slot.state]}{text}{sure}"

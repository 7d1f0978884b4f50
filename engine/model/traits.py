"""What a kind of model was trained to do, as data: who sees whom, and which row scores a slot.

Said by an architecture (architectures.py) or a catalogue entry (engine/catalog_entries.py). Free of
torch, as those are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: `bidirectional`: every row sees every row; `block_causal`: its own block and those before it.
Attention = Literal["causal", "bidirectional", "block_causal"]
#: Where the suffix stands: `around`: behind the hole; else before it, since the hole sees only what
#: is before it, in the order of the markers that the model was trained with.
Order = Literal["around", "prefix_first", "suffix_first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How a kind of model works, token ids aside.

    shifted: a position's logits come from the row before it (models made of autoregressive ones),
    else from its own row. block: positions per block, counted from the first (0: the files say).
    begin, end: whether BOS stands before the text and EOS behind it. context: the longest text it
    was trained with, where its files say more (0: what they say). The three ids are facts of
    published models whose files do not name the token: only used where they do not.
    """

    attention: Attention = "causal"
    shifted: bool = False
    block: int = 0
    order: Order = "around"
    begin: bool = False
    end: bool = False
    context: int = 0
    mask_id: int | None = None
    expand_id: int | None = None
    delete_id: int | None = None


#: An autoregressive model.
CAUSAL = Traits()

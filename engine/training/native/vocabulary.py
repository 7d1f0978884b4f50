"""A byte-level BPE of a small vocabulary, learnt from the training texts.

A model of ten million parameters cannot spare fifty for the rows of a large vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

END, MASK = "<|endoftext|>", "<|mask|>"
#: Words with what stands before them, single digits, runs of signs, line ends, white space.
_PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def learn(texts: Iterable[str], size: int) -> str:
    """The JSON of a tokenizer of `size` entries, END and MASK among them."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    return library.to_str()


def write_config(folder: Path) -> None:
    """The special tokens, as the hub's `tokenizer_config.json` names them."""
    about = {"eos_token": END, "pad_token": END, "mask_token": MASK}
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1), encoding="utf-8")

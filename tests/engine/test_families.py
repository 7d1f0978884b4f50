"""Every published architecture computes what `transformers` does, masks and shifts done by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine import store
from engine.model.traits import Traits
from engine.model.transformer import Transformer
from tests.engine.tiny_family import (
    BEGIN,
    END,
    EXPAND,
    MASK,
    TURN,
    VOCAB,
    Kind,
    Published,
    publish,
    random_model,
    write_gguf,
)

LENGTH = 45
IDS = torch.randint(0, 650, (LENGTH,), generator=torch.Generator().manual_seed(3)).tolist()
WIDE = {"head_dim": 24}
IN_CONFIG = {"mask_token_id": MASK, "eos_token_id": END, "pad_token_id": END}
DREAM = {"tokenizer_class": "DreamTokenizer", "bos_token": "<|beginoftext|>"}
BLOCKS = Traits(attention="block_causal", block=4, order="suffix_first")

DREAM_KIND = Kind(model_type="Dream", of="qwen2", config=IN_CONFIG, tokenizer=DREAM, slow=True)
LLADA_KIND = Kind(
    model_type="llada", of="llama", sizes={"num_key_value_heads": 4}, config=IN_CONFIG
)
#: kind, what the catalogue adds, attention, shifted, block
FAMILIES = {
    "dream": (DREAM_KIND, None, "bidirectional", True, 0),
    "llada": (LLADA_KIND, None, "bidirectional", False, 0),
    "coda": (
        Kind(
            model_type="CoDA",
            of="qwen3",
            sizes={**WIDE, "tie_word_embeddings": True},
            config=IN_CONFIG,
        ),
        None,
        "bidirectional",
        True,
        0,
    ),
    "mdlm-qwen2": (
        Kind(model_type="a2d-qwen2", of="qwen2", sizes={"tie_word_embeddings": True}),
        None,
        "bidirectional",
        False,
        0,
    ),
    "mdlm-qwen3": (Kind(model_type="a2d-qwen3", of="qwen3"), None, "bidirectional", False, 0),
    "mdlm-llama": (Kind(model_type="a2d-llama", of="llama"), None, "bidirectional", False, 0),
    "bd3lm-qwen3": (
        Kind(model_type="a2d-qwen3", of="qwen3", sizes=WIDE),
        replace(BLOCKS, block=16),
        "block_causal",
        False,
        16,
    ),
    "sdar": (
        Kind(model_type="sdar", of="qwen3", sizes=WIDE, config=IN_CONFIG | {"block_size": 8}),
        None,
        "block_causal",
        False,
        8,
    ),
    "fast-dllm-v2": (
        Kind(model_type="Fast_dLLM_Qwen", of="qwen2", config={"bd_size": 32}),
        None,
        "block_causal",
        True,
        32,
    ),
    "open-dcoder": (
        Kind(model_type="qwen2", of="qwen2", sizes={"tie_word_embeddings": True}),
        Traits(attention="bidirectional", shifted=True),
        "bidirectional",
        True,
        0,
    ),
    "stable-diffcoder": (Kind(model_type="llama", of="llama"), BLOCKS, "block_causal", False, 4),
}


def scored(base: Transformer, ids: list[int]) -> Tensor:
    """Logits of every position, aligned as the family says."""
    family, length = base.config.family, len(ids)
    with torch.inference_mode():
        hidden = base.forward(
            ids, base.new_stream(), start=0, visible=family.visible(0, length, length)
        )
        return base.logits(hidden)[[family.scoring_row(p) for p in range(length)]]


def expected(model: Published, ids: list[int], block: int, shifted: bool) -> Tensor:
    """The same by the reference: a block of the whole length is bidirectional."""
    ends = [min(len(ids), (p // block + 1) * block) for p in range(len(ids))]
    logits = model.logits(ids, torch.tensor(ends))
    return torch.cat((logits[:1], logits[:-1])) if shifted else logits


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_equal_those_of_the_reference(tmp_path: Path, name: str) -> None:
    kind, traits, attention, shifted, block = FAMILIES[name]
    model = publish(tmp_path / name, kind)
    base, tokenizer = store.open_float(model.folder, (), traits)
    family = base.config.family
    assert (family.attention, family.shifted, family.block) == (attention, shifted, block)
    assert (family.mask_id, family.eos_id, family.pad_id) == (MASK, END, END)
    meant = expected(model, IDS, block or LENGTH, shifted)
    assert meant.std() > 0.3
    assert (scored(base, IDS) - meant).abs().max() < 1e-4
    text = "def f(x):\n\treturn 'é' * 中 # 42\r\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", FAMILIES)
def test_packed_weights_come_close_and_rows_do_not_depend_on_their_batch(
    tmp_path: Path, name: str
) -> None:
    kind, traits, _, _, _ = FAMILIES[name]
    model = publish(tmp_path / "m", kind)
    exact, _ = store.open_float(model.folder, (), traits)
    store.convert(model.folder, tmp_path / "packed", traits=traits)
    packed, tokenizer = store.open_int8(tmp_path / "packed", ())
    assert packed.config == exact.config
    assert tokenizer.special_ids["<|mask|>"] == MASK
    mine, meant = scored(packed, IDS), scored(exact, IDS)
    assert torch.corrcoef(torch.stack((mine.flatten(), meant.flatten())))[0, 1] > 0.99
    # the canvas alone, over the keys of a whole pass: what a frozen context computes
    stream, visible = packed.new_stream(), packed.config.family.visible(0, LENGTH, LENGTH)
    with torch.inference_mode():
        whole = packed.forward(IDS, stream, start=0, visible=visible)
        part = packed.forward(IDS[20:30], stream, start=20, visible=visible[20:30])
        alone = packed.forward(IDS[25:26], stream, start=25, visible=visible[25:26])
    assert torch.equal(part, whole[20:30])
    assert torch.equal(alone, whole[25:26])
    assert stream.ids == IDS


@pytest.mark.parametrize("name", ["dream", "llada", "sdar"])
def test_greedy_denoising_takes_the_same_tokens(tmp_path: Path, name: str) -> None:
    kind, traits, _, shifted, block = FAMILIES[name]
    model = publish(tmp_path / "m", kind)
    base, _ = store.open_float(model.folder, (), traits)
    masked = [*IDS[:14], *[MASK] * 10, *IDS[24:]]
    mine, theirs = list(masked), list(masked)
    for _ in range(10):
        commit(mine, scored(base, mine))
        commit(theirs, expected(model, theirs, block or LENGTH, shifted))
        assert mine == theirs
    assert MASK not in mine


def commit(ids: list[int], logits: Tensor) -> None:
    """Put the surest token into one masked place."""
    open_places = [p for p, i in enumerate(ids) if i == MASK]
    logits = logits[open_places]
    logits[:, MASK] = float("-inf")
    sure, tokens = logits.softmax(dim=-1).max(dim=-1)
    best = int(sure.argmax())
    ids[open_places[best]] = int(tokens[best])


SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    "yarn with its own numbers": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 0.4,
        "truncate": False,
    },
    "yarn, attention given": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "attention_factor": 1.3,
    },
}


@pytest.mark.parametrize("name", SCALINGS)
def test_stretched_positions(tmp_path: Path, name: str) -> None:
    rope = {**SCALINGS[name], "rope_theta": 10_000.0}
    kind = Kind(model_type="a2d-llama", of="llama", sizes={"rope_parameters": rope})
    model = publish(tmp_path / "m", kind)
    base, _ = store.open_float(model.folder, ())
    assert base.config.rope_scaling is not None
    ids = (IDS * 6)[:250]
    assert (scored(base, ids) - expected(model, ids, len(ids), False)).abs().max() < 1e-4
    plain = replace(base.config, rope_scaling=None)
    unscaled = Transformer(plain, base.embedding, base.layers, base.head, (), base.kernels)
    assert (scored(unscaled, ids) - scored(base, ids)).abs().max() > 0.01


SHIFTED, IN_PLACE = {"diffusion.shift_logits": True}, {"diffusion.shift_logits": False}
SEES_ALL = {"tokenizer.ggml.mask_token_id": MASK}
#: kind, GGUF architecture, metadata, shifted
FILES = {
    "dream": (DREAM_KIND, "dream", SEES_ALL | SHIFTED, True),
    "dream, silent about logits": (DREAM_KIND, "dream", SEES_ALL, True),
    "llada": (LLADA_KIND, "llada", SEES_ALL | IN_PLACE, False),
    "llama": (
        Kind(model_type="a2d-llama", of="llama"),
        "llama",
        SEES_ALL | IN_PLACE | {"llama.attention.causal": False},
        False,
    ),
    "qwen2": (
        Kind(model_type="a2d-qwen2", of="qwen2", sizes={"tie_word_embeddings": True}),
        "qwen2",
        SEES_ALL | IN_PLACE | {"qwen2.attention.causal": False},
        False,
    ),
    "qwen3": (
        Kind(model_type="CoDA", of="qwen3", sizes=WIDE),
        "qwen3",
        {"qwen3.attention.causal": False},  # the mask is found by its name
        True,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_gguf_files_equal_the_reference(tmp_path: Path, name: str) -> None:
    kind, arch, metadata, shifted = FILES[name]
    reference = random_model(kind)
    file = write_gguf(tmp_path / "m.gguf", reference, arch, metadata)
    base, tokenizer = store.open_float(file, ())
    family = base.config.family
    assert (family.attention, family.shifted) == ("bidirectional", shifted)
    assert (family.mask_id, family.eos_id, family.expand_id) == (MASK, END, EXPAND)
    model = Published(folder=tmp_path, reference=reference)
    assert (scored(base, IDS) - expected(model, IDS, LENGTH, shifted)).abs().max() < 1e-4
    assert tokenizer.special_ids["<|beginoftext|>"] == BEGIN
    store.convert(file, tmp_path / "packed")
    assert store.open_int8(tmp_path / "packed", ())[0].config == base.config


def test_an_ordinary_model_stays_a_base_for_a_canvas(tmp_path: Path) -> None:
    kind = Kind(model_type="qwen3", of="qwen3", sizes=WIDE, tokenizer={"mask_token": None})
    model = publish(tmp_path / "m", kind)
    base, _ = store.open_float(model.folder, ())
    assert not base.config.family.diffuses
    with torch.inference_mode():
        logits = base.logits(base.encode(IDS, base.new_stream()))
    meant = model.logits(IDS, torch.arange(1, LENGTH + 1))
    assert (logits - meant).abs().max() < 1e-4
    assert torch.equal(base.config.family.visible(3, 4, 20), torch.arange(4, 8))


def test_special_tokens_and_prompts(tmp_path: Path) -> None:
    config = IN_CONFIG | {"bos_token_id": END, "eos_token_id": [END, TURN]}
    kind = replace(DREAM_KIND, config=config)
    base, _ = store.open_float(publish(tmp_path / "m", kind).folder, ())
    family = base.config.family
    # the tokenizer's BOS, which prompts are made with, and not the config's
    assert (family.bos_id, family.expand_id) == (BEGIN, EXPAND)
    assert family.end_ids == (END, TURN)
    assert family.sides([1, 2], [3]) == ([BEGIN, 1, 2], [3, END])
    assert family.special_ids == {MASK, BEGIN, END, TURN, EXPAND}
    assert base.config.vocab == VOCAB

"""The files of diffusion models: strict about tensors, exact about tokens, whatever the layout."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine import store, tokenizer_files
from engine.model.family import Family, Named, resolve
from engine.model.traits import Traits
from engine.request import WeightsError
from engine.tokenizer import Tokenizer
from engine.weights import open_checkpoint, read
from tests.engine.tiny_family import (
    BEGIN,
    END,
    EXPAND,
    MASK,
    TURN,
    VOCAB,
    Kind,
    publish,
    write_tensors,
)

LLADA = Kind(model_type="llada", of="llama", sizes={"num_hidden_layers": 1})
DREAM = Kind(model_type="Dream", of="qwen2", sizes={"num_hidden_layers": 1}, slow=True)
DREAM_TOKENIZER = {"tokenizer_class": "DreamTokenizer", "bos_token": "<|beginoftext|>"}
QWEN3 = Kind(model_type="a2d-qwen3", of="qwen3", sizes={"num_hidden_layers": 1, "head_dim": 24})
TEXTS = (
    "def f(x):\n\treturn x  # 12345 don't\r\n",
    "α = 'naïve' + \"中文\" * 3\n\n\n    🎉👩‍💻",
    " leading, trailing ",
)


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    shards = sorted(folder.glob("*.safetensors"))
    return {name: tensor for shard in shards for name, tensor in load_file(shard).items()}


def edit(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(data | changes))


def refusal(folder: Path) -> str:
    with pytest.raises(WeightsError) as caught:
        store.open_float(folder, ())
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (LLADA, "model.transformer.blocks.0.attn_out.weight"),
        (LLADA, "model.transformer.ln_f.weight"),
        (LLADA, "model.transformer.ff_out.weight"),
        (QWEN3, "model.layers.0.self_attn.k_norm.weight"),
    ],
)
def test_a_tensor_is_named_as_the_publisher_does(tmp_path: Path, kind: Kind, name: str) -> None:
    folder = publish(tmp_path / "m", kind).folder
    tensors = tensors_in(folder)
    assert name in tensors
    write_tensors(folder, {n: t for n, t in tensors.items() if n != name}, 1)
    assert f"lacks tensor {name}" in refusal(folder)
    write_tensors(folder, {**tensors, name: torch.zeros(7, 3)}, 1)
    assert f"tensor {name} has shape (7, 3)" in refusal(folder)
    extra = name.replace(".weight", ".bias")
    write_tensors(folder, {**tensors, extra: torch.zeros(3)}, 1)
    assert f"unknown tensor {extra}" in refusal(folder)


def test_lladas_last_product_is_the_head_and_not_a_layers(tmp_path: Path) -> None:
    model = publish(tmp_path / "m", LLADA)
    checkpoint, written = open_checkpoint(model.folder), tensors_in(model.folder)
    assert torch.equal(
        read(checkpoint, "lm_head.weight"), written["model.transformer.ff_out.weight"]
    )
    assert torch.equal(
        read(checkpoint, "model.layers.0.mlp.down_proj.weight"),
        written["model.transformer.blocks.0.ff_out.weight"],
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"block_type": "sequential"}, "block_type 'sequential'"),
        ({"layer_norm_type": "default"}, "layer_norm_type 'default'"),
        ({"activation_type": "swiglu"}, "activation 'swiglu'"),
        ({"scale_logits": True}, "scale_logits True"),
        ({"attention_layer_norm": True}, "attention_layer_norm True"),
        ({"alibi": True}, "alibi True"),
        ({"d_model": None}, "'d_model'"),
    ],
)
def test_what_lladas_code_could_do_and_ours_cannot(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    folder = publish(tmp_path / "m", LLADA).folder
    edit(folder / "config.json", **changes)
    assert named in refusal(folder)


def test_the_folder_of_an_untied_model_must_have_a_head(tmp_path: Path) -> None:
    folder = publish(tmp_path / "m", LLADA).folder
    head = "model.transformer.ff_out.weight"
    write_tensors(folder, {n: t for n, t in tensors_in(folder).items() if n != head}, 2)
    assert f"lacks tensor {head}" in refusal(folder)
    edit(folder / "config.json", weight_tying=True)
    base, _ = store.open_float(folder, ())
    assert torch.equal(base.head.project.weight, base.embedding.weight)  # type: ignore[attr-defined]


def test_both_layouts_of_a_tokenizer_are_the_same_one(tmp_path: Path) -> None:
    fast = publish(tmp_path / "fast", replace(DREAM, slow=False, tokenizer=DREAM_TOKENIZER)).folder
    slow = publish(tmp_path / "slow", replace(DREAM, tokenizer=DREAM_TOKENIZER)).folder
    assert not (slow / "tokenizer.json").exists()
    one, other = (Tokenizer.from_hub(open_checkpoint(f).tokenizer) for f in (fast, slow))  # type: ignore[arg-type]
    assert one.special_ids == other.special_ids
    for text in TEXTS:
        assert one.encode(text) == other.encode(text)
        assert one.spell(one.encode(text)).decode() == text


def test_a_tokenizer_of_an_unknown_class_is_refused(tmp_path: Path) -> None:
    folder = publish(tmp_path / "m", replace(DREAM, tokenizer=DREAM_TOKENIZER)).folder
    edit(folder / "tokenizer_config.json", tokenizer_class="BloomTokenizer")
    assert "'BloomTokenizer' is not known" in refusal(folder)
    (folder / "merges.txt").unlink()
    assert "has no tokenizer.json" in refusal(folder)


@pytest.mark.parametrize("name", sorted(tokenizer_files._PRE_TOKENIZERS))
def test_every_pre_tokenizer_loads_and_spells_what_it_reads(name: str) -> None:
    alphabet = [chr(n) for n in (*range(33, 127), *range(161, 173), *range(174, 324))]
    meta = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": [*alphabet, "ab", "<|mask|>"],
        "tokenizer.ggml.token_type": [1] * (len(alphabet) + 1) + [3],
        "tokenizer.ggml.merges": ["a b"],
    }
    tokenizer = Tokenizer.from_gguf(meta)
    assert len(tokenizer.encode("xab")) == 2
    for text in TEXTS:
        assert tokenizer.spell(tokenizer.encode(text)).decode() == text


def test_digits_are_cut_as_published() -> None:
    """One by one by Qwen and Seed-Coder, in threes by Llama 3; line ends belong to Qwen's signs."""
    alphabet = [chr(n) for n in (*range(33, 127), *range(161, 173), *range(174, 324))]
    meta = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*alphabet, "ab"],
        "tokenizer.ggml.token_type": [1] * (len(alphabet) + 1),
        "tokenizer.ggml.merges": ["a b"],
    }
    pieces = {
        name: Tokenizer.from_gguf(meta | {"tokenizer.ggml.pre": name}).pieces("x12345+\ny")
        for name in ("qwen2", "seed-coder", "llama-bpe")
    }
    assert pieces["qwen2"] == [0, 1, 2, 3, 4, 5, 6, 8]
    assert pieces["seed-coder"] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert pieces["llama-bpe"] == [0, 1, 4, 6, 8]


def family_of(folder: Path) -> Family:
    return open_checkpoint(folder).config.family


def test_begin_is_the_tokenizers_and_the_mask_the_configs(tmp_path: Path) -> None:
    """DiffuCoder's and Dream-Coder's configurations agree; their prompts begin differently."""
    config = {"mask_token_id": MASK, "bos_token_id": END, "eos_token_id": END, "pad_token_id": END}
    kind = replace(DREAM, config=config, tokenizer=DREAM_TOKENIZER)
    dream_coder = publish(tmp_path / "one", kind).folder
    assert family_of(dream_coder).before_ids == (BEGIN,)
    edit(dream_coder / "tokenizer_config.json", bos_token={"content": "<|endoftext|>"})
    assert family_of(dream_coder).before_ids == (END,)
    edit(dream_coder / "tokenizer_config.json", bos_token=None, mask_token="<|im_end|>")
    assert family_of(dream_coder).before_ids == (END,)
    assert family_of(dream_coder).mask_id == MASK


def test_every_end_that_any_file_names_ends_the_text(tmp_path: Path) -> None:
    folder = publish(tmp_path / "m", QWEN3).folder
    edit(folder / "config.json", eos_token_id=[TURN])
    edit(folder / "generation_config.json", eos_token_id=BEGIN, expand_token_id=EXPAND)
    family = family_of(folder)
    assert family.end_ids == (END, TURN, BEGIN)
    assert family.expand_id == EXPAND
    assert family.delete_id is None


def test_a_kinds_facts_fill_in_what_the_files_do_not_name() -> None:
    traits = Traits(attention="bidirectional", mask_id=5, expand_id=6, delete_id=7)
    silent = resolve(traits, Named(ids={}, ends=(), special={}), 10)
    assert (silent.mask_id, silent.expand_id, silent.delete_id) == (5, 6, 7)
    spoken = resolve(traits, Named(ids={"mask": 1, "expand": 2}, ends=(), special={}), 10)
    assert (spoken.mask_id, spoken.expand_id, spoken.delete_id) == (1, 2, 7)


@pytest.mark.parametrize(
    ("traits", "ids", "said"),
    [
        (Traits(attention="bidirectional"), {}, "names a mask token"),
        (Traits(attention="block_causal"), {"mask": 1}, "how long they are"),
        (Traits(attention="bidirectional"), {"mask": VOCAB}, "beyond the model's"),
        (Traits(attention="bidirectional", expand_id=-1), {"mask": 1}, "beyond the model's"),
    ],
)
def test_a_family_that_cannot_work_is_refused(
    traits: Traits, ids: dict[str, int], said: str
) -> None:
    with pytest.raises(WeightsError, match=said):
        resolve(traits, Named(ids=ids, ends=(), special={}), VOCAB)


def test_prompts_of_models_that_see_nothing_behind_the_hole() -> None:
    special = {"<[fim-prefix]>": 1, "<[fim-suffix]>": 2, "<[fim-middle]>": 3}
    named = Named(ids={"mask": 5}, ends=(), special=special)
    blocks = Traits(attention="block_causal", block=4)
    first = resolve(replace(blocks, order="prefix_first"), named, 10)
    assert first.sides([8, 8], [9]) == ([1, 8, 8, 2, 9, 3], [])
    second = resolve(replace(blocks, order="suffix_first"), named, 10)
    assert second.sides([8, 8], [9]) == ([2, 9, 1, 8, 8, 3], [])
    plain = resolve(replace(blocks, order="suffix_first"), replace(named, special={}), 10)
    assert plain.sides([8], [9]) == ([8], [])


def test_what_a_row_sees_and_which_row_scores_it() -> None:
    blocks = Family(attention="block_causal", block=4)
    assert blocks.visible(0, 10, 10).tolist() == [4, 4, 4, 4, 8, 8, 8, 8, 10, 10]
    assert blocks.visible(6, 3, 10).tolist() == [8, 8, 10]
    assert Family(attention="bidirectional").visible(3, 2, 9).tolist() == [9, 9]
    assert Family().visible(3, 2, 9).tolist() == [4, 5]
    assert [Family(shifted=True).scoring_row(p) for p in (0, 1, 5)] == [0, 0, 4]
    assert Family().scoring_row(5) == 5

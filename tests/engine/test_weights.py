"""Both published forms give the same tensors, and whatever is wrong with them is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engine.model.names import expected_shapes
from engine.model.rope import Rope
from engine.request import WeightsError
from engine.weights import open_checkpoint, read
from tests.engine.tiny_base import (
    edit_config,
    gguf_name,
    load_tensors,
    make_folder,
    make_gguf,
    save_tensors,
)

ARCHITECTURES = ("qwen2", "llama")
WRITABLE = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    checkpoint = open_checkpoint(path)
    return {name: read(checkpoint, name) for name in expected_shapes(checkpoint.config)}


def refusal(path: Path) -> str:
    with pytest.raises(WeightsError) as caught:
        tensors_of(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_folder_and_gguf_hold_equal_models(tmp_path: Path, architecture: str) -> None:
    folder = make_folder(tmp_path / "model", architecture=architecture, heads=8, layers=2)
    file = make_gguf(tmp_path / "model.gguf", folder)
    written, one, other = load_tensors(folder), tensors_of(folder), tensors_of(file)
    assert set(one) == set(other) == set(written)
    for name in written:
        assert torch.equal(one[name], written[name]), name
        assert torch.equal(other[name], written[name]), name
    mine, theirs = open_checkpoint(folder).config, open_checkpoint(file).config
    # GGUF keeps the epsilon in single precision
    assert mine.norm_eps == pytest.approx(theirs.norm_eps, rel=1e-6)
    # and names the tokens that a folder's tokenizer_config.json would
    same = [name for name in mine.__slots__ if name not in ("norm_eps", "family")]
    assert [getattr(mine, name) for name in same] == [getattr(theirs, name) for name in same]


@pytest.mark.parametrize("quantisation", WRITABLE)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_quantisation_that_can_be_written_is_read(
    tmp_path: Path, architecture: str, quantisation: str
) -> None:
    folder = make_folder(tmp_path / "model", architecture=architecture, layers=1)
    file = make_gguf(tmp_path / "model.gguf", folder, quantisation)
    kind, originals = gguf.GGMLQuantizationType[quantisation], load_tensors(folder)
    for name, mine in tensors_of(file).items():
        original = originals[name]
        if original.ndim == 1:
            assert torch.equal(mine, original)
            continue
        # quantisation works along a row, so that the order of rows changes nothing
        rounded = gguf.quants.dequantize(gguf.quants.quantize(original.numpy(), kind), kind)
        assert np.array_equal(mine.numpy(), rounded), name
        bits = {"F32": 24, "F16": 11, "BF16": 8}.get(quantisation) or int(quantisation[1])
        assert (mine - original).abs().max() <= original.abs().max() * 2.0 ** (1 - bits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_folders_are_widened_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = make_folder(tmp_path / "model", layers=1, dtype=dtype)
    for name, tensor in tensors_of(folder).items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, load_tensors(folder)[name])


def test_shards_are_joined(tmp_path: Path) -> None:
    whole = tensors_of(make_folder(tmp_path / "whole", layers=2))
    sharded = make_folder(tmp_path / "sharded", layers=2, shards=3)
    assert len(list(sharded.glob("*.safetensors"))) == 3
    joined = tensors_of(sharded)
    assert all(torch.equal(whole[name], joined[name]) for name in whole)


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_a_tied_head_is_the_embedding(tmp_path: Path, form: str) -> None:
    path = make_folder(tmp_path / "model", layers=1, tied=True)
    assert "lm_head.weight" not in load_tensors(path)
    if form == "gguf":
        path = make_gguf(tmp_path / "model.gguf", path)
    tensors = tensors_of(path)
    assert torch.equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])


def test_a_head_that_the_config_ties_is_not_read_from_the_file(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    edit_config(folder, tie_word_embeddings=True)
    tensors = tensors_of(folder)
    assert torch.equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])


def test_an_untied_head_must_be_there(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    tensors = load_tensors(folder)
    del tensors["lm_head.weight"]
    save_tensors(folder, tensors)
    assert "lm_head.weight" in refusal(folder)


@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.k_proj.bias"])
def test_a_missing_tensor_is_named(tmp_path: Path, form: str, name: str) -> None:
    path = make_folder(tmp_path / "model", layers=2)
    tensors = load_tensors(path)
    del tensors[name]
    save_tensors(path, tensors)
    if form == "gguf":
        path = make_gguf(tmp_path / "model.gguf", path)
    assert f"lacks tensor {name}" in refusal(path)


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    extra = "model.layers.0.self_attn.o_proj.bias"
    save_tensors(folder, load_tensors(folder) | {extra: torch.zeros(64)})
    assert f"unknown tensor {extra}" in refusal(folder)
    file = make_gguf(tmp_path / "model.gguf", folder)
    assert f"unknown tensor {extra}" in refusal(file)


@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize("rows", [32, 33])
def test_a_misshapen_tensor_is_named(tmp_path: Path, form: str, rows: int) -> None:
    path = make_folder(tmp_path / "model", architecture="llama", layers=1, kv_heads=1)
    name = "model.layers.0.self_attn.k_proj.weight"
    save_tensors(path, load_tensors(path) | {name: torch.zeros(rows, 64)})
    if form == "gguf":
        path = _odd_gguf(tmp_path / "model.gguf", path, name)
    message = refusal(path)
    assert name in message and str((rows, 64)) in message and "(16, 64)" in message


def _odd_gguf(path: Path, folder: Path, name: str) -> Path:
    """A GGUF file whose tensor `name` has the folder's rows, which no permutation would take."""
    odd = load_tensors(folder)[name]
    save_tensors(folder, load_tensors(folder) | {name: torch.zeros(16, 64)})
    make_gguf(path, folder)
    data = path.read_bytes()
    at = data.index(gguf_name(name).encode()) + len(gguf_name(name)) + 4 + 8
    assert data[at : at + 8] == (16).to_bytes(8, "little")
    path.write_bytes(data[:at] + odd.shape[0].to_bytes(8, "little") + data[at + 8 :])
    return path


@pytest.mark.parametrize("size", [0, 3, 30, 3000, 20_000, -1])
def test_a_gguf_file_that_is_cut_short_is_refused(tmp_path: Path, size: int) -> None:
    whole = make_gguf(tmp_path / "whole.gguf", make_folder(tmp_path / "model", layers=1))
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole.read_bytes()[:size])
    assert "cut.gguf" in refusal(cut)


def test_a_gguf_file_with_an_absurd_list_is_refused_at_once(tmp_path: Path) -> None:
    file = make_gguf(tmp_path / "model.gguf", make_folder(tmp_path / "model", layers=1))
    data, key = file.read_bytes(), b"tokenizer.ggml.token_type"
    at = data.index(key) + len(key) + 8
    file.write_bytes(data[:at] + (2**60).to_bytes(8, "little") + data[at + 8 :])
    assert "not a readable GGUF file" in refusal(file)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"not tensors"),
        ("model.safetensors", b""),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"\xff\xfe"),
        ("model.safetensors.index.json", b"nonsense"),
        ("model.safetensors.index.json", b"{}"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "absent.safetensors"}}'),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    (folder / name).write_bytes(content)
    message = refusal(folder)
    assert name in message or "absent.safetensors" in message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    (folder / name).unlink()
    assert name.replace("model.", "*.") in refusal(folder)


def test_nothing_there(tmp_path: Path) -> None:
    assert "absent.gguf" in refusal(tmp_path / "absent.gguf")


DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"model_type": None}, "model_type"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "many"}, "many"),
        ({"num_attention_heads": 0}, "heads"),
        ({"num_key_value_heads": 3}, "3 key heads"),
        ({"num_hidden_layers": 10**9}, "layers"),
        ({"rope_scaling": DYNAMIC}, "dynamic"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "longrope"),
        ({"rope_scaling": {"type": "linear"}}, "'factor'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ({"rope_scaling": YARN | {"factor": 0}}, "numbers cannot be right"),
        ({"rope_scaling": YARN | {"factor": "four"}}, "not complete"),
        ({"mask_token_id": 3}, "nothing says how the model denoises"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"use_sliding_window": True}, "sliding"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
    ],
)
def test_what_we_would_compute_wrongly_is_refused(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    edit_config(folder, **changes)
    assert named in refusal(folder)


def test_default_rope_parameters_are_no_scaling(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    parameters = {"rope_type": "default", "rope_theta": 5e5}
    edit_config(folder, rope_theta=None, rope_scaling=None, rope_parameters=parameters)
    assert open_checkpoint(folder).config.rope_theta == 5e5


Write = Callable[[gguf.GGUFWriter], None]


def gguf_with(path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> Path:
    """A llama GGUF file with whatever `write` adds; heads of 16."""
    header = gguf.GGUFWriter.write_header_to_file
    folder = make_folder(path.parent / "model", architecture="llama", layers=1)

    def with_more(writer: gguf.GGUFWriter) -> None:
        write(writer)
        header(writer)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", with_more)
    return make_gguf(path, folder)


def rope_freqs(*factors: float) -> Write:
    return lambda w: w.add_tensor("rope_freqs.weight", np.array(factors, np.float32))


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), "longrope"),
        (lambda w: w.add_rope_dimension_count(8), "part of each head"),
        (rope_freqs(*[1.0] * 7), "rope_freqs"),
        (rope_freqs(*[1.0] * 7, 0.0), "rope_freqs"),
    ],
)
def test_a_gguf_file_that_we_would_compute_wrongly_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, named: str
) -> None:
    assert named in refusal(gguf_with(tmp_path / "model.gguf", monkeypatch, write))


def test_a_gguf_file_that_stretches_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def yarn(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(64)

    scaling = open_checkpoint(gguf_with(tmp_path / "a.gguf", monkeypatch, yarn)).config.rope_scaling
    assert scaling is not None
    assert (scaling.kind, scaling.factor, scaling.original_length) == ("yarn", 4.0, 64)
    monkeypatch.undo()
    write = rope_freqs(*[1.0] * 4, *[8.0] * 4)
    config = open_checkpoint(gguf_with(tmp_path / "b.gguf", monkeypatch, write)).config
    plain, stretched = Rope(16, 1e4), Rope(16, 1e4, config.rope_scaling)
    assert torch.equal(stretched.frequencies[:4], plain.frequencies[:4])
    assert torch.equal(stretched.frequencies[4:], plain.frequencies[4:] / 8)


#: Bytes of a block, and which of them are the half-precision scales.
K_QUANTS = {
    "Q2_K": (84, [80, 82]),
    "Q3_K": (110, [108]),
    "Q4_K": (144, [0, 2]),
    "Q5_K": (176, [0, 2]),
    "Q6_K": (210, [208]),
}


@pytest.mark.parametrize("quantisation", K_QUANTS)
def test_k_quants_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quantisation: str
) -> None:
    """The writer cannot make them, so the blocks are random, with scales that are finite."""
    size, scales = K_QUANTS[quantisation]
    folder = make_folder(tmp_path / "m", hidden=256, layers=1, intermediate=256)
    kind, name = gguf.GGMLQuantizationType[quantisation], "model.layers.0.mlp.down_proj.weight"
    blocks = np.random.default_rng(0).integers(0, 256, (256, size), dtype=np.uint8)
    for at in scales:
        blocks[:, at : at + 2] = np.full(256, 0.01, np.float16).view(np.uint8).reshape(256, 2)
    add = gguf.GGUFWriter.add_tensor

    def add_blocks(writer: gguf.GGUFWriter, called: str, tensor: object, **how: object) -> None:
        if called == gguf_name(name):
            tensor, how = blocks, {"raw_dtype": kind}
        add(writer, called, tensor, **how)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", add_blocks)
    path = make_gguf(tmp_path / "m.gguf", folder)
    meant = gguf.quants.dequantize(blocks, kind)
    assert meant.std() > 0
    assert np.array_equal(tensors_of(path)[name].numpy(), meant)


def test_an_unsupported_gguf_architecture_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "'mamba'" in refusal(tmp_path / "model.gguf")


def test_config_json_is_the_truth_about_shapes(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", layers=1)
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    edit_config(folder, vocab_size=vocab + 1)
    message = refusal(folder)
    assert "model.embed_tokens.weight" in message and str(vocab + 1) in message

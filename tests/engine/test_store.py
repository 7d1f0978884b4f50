"""Weights are converted once, reopened exactly, and never left half-written."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from engine import packed_file, store
from engine.model.linear import PackedLinear
from engine.model.transformer import Transformer
from engine.request import DownloadError, WeightsError
from tests.engine.tiny_base import make_folder, make_gguf

TEXT = "def load(path: Path) -> str:\n    return path.read_text()\n\n\nprint(load('中文 🎉'))\n"


def logits_of(base: Transformer, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return base.logits(base.encode(ids, base.new_stream()))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "model", layers=2)


def test_convert_once_and_reopen(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "cache" / "converted" / "x"
    told: list[tuple[str, int, int]] = []
    store.convert(source, folder, lambda *step: told.append(step))
    assert [done for _, done, _ in told] == list(range(1, told[-1][2] + 1))
    assert [p.name for p in folder.parent.iterdir()] == ["x"]
    one, tokenizer = store.open_int8(folder, (1,))
    ids = tokenizer.encode(TEXT)
    first = logits_of(one, ids)
    stamp = (folder / "int8.safetensors").stat().st_mtime_ns
    told.clear()
    store.convert(tmp_path / "the source is not even looked at", folder)
    assert not told and (folder / "int8.safetensors").stat().st_mtime_ns == stamp
    again, _ = store.open_int8(folder, (1,))
    assert torch.equal(logits_of(again, ids), first)


def test_folder_and_gguf_convert_alike(tmp_path: Path, source: Path) -> None:
    store.convert(source, tmp_path / "one")
    store.convert(make_gguf(tmp_path / "m.gguf", source), tmp_path / "other")
    one, other = (load_file(tmp_path / n / "int8.safetensors") for n in ("one", "other"))
    assert all(torch.equal(one[name], other[name]) for name in one) and len(one) == len(other)
    texts = [(tmp_path / n / "tokenizer.json").read_text() for n in ("one", "other")]
    headers = [json.loads(text.partition("\n")[0]) for text in texts]
    assert headers[0]["special"] == headers[1]["special"]


def test_the_format_is_part_of_the_folder_and_an_older_one_is_converted_again(
    tmp_path: Path, source: Path
) -> None:
    folder = tmp_path / "converted"
    store.convert(source, folder)
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"format": meta["format"] - 1}))
    (folder / "int8.safetensors").write_bytes(b"old")
    store.convert(source, folder)
    assert json.loads((folder / "meta.json").read_text()) == meta
    store.open_int8(folder, ())


@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
def test_int8_is_near_float32(tmp_path: Path, architecture: str) -> None:
    source = make_folder(tmp_path / "m", architecture=architecture, hidden=256, layers=4)
    store.convert(source, tmp_path / "c")
    exact_base, tokenizer = store.open_float(source, ())
    base, _ = store.open_int8(tmp_path / "c", ())
    assert isinstance(base.layers[0].qkv, PackedLinear)
    ids = tokenizer.encode(TEXT * 2)
    exact, rough = logits_of(exact_base, ids), logits_of(base, ids)
    # random weights amplify noise more than trained ones do
    assert (rough - exact).norm() < 0.2 * exact.norm()
    assert (rough.argmax(1) == exact.argmax(1)).float().mean() > 0.7


def _no_file(folder: Path, name: str) -> None:
    (folder / name).unlink()


def _cut(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])


def _nonsense(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\x00\xff nonsense")


def _other_json(folder: Path, name: str) -> None:
    (folder / name).write_text("[]")


@pytest.mark.parametrize("harm", [_no_file, _cut, _nonsense, _other_json])
@pytest.mark.parametrize("name", ["int8.safetensors", "tokenizer.json", "meta.json"])
def test_damage_is_one_clear_line(tmp_path: Path, source: Path, name: str, harm: Any) -> None:
    folder = tmp_path / "converted"
    store.convert(source, folder)
    harm(folder, name)
    with pytest.raises(WeightsError) as caught:
        store.open_int8(folder, ())
    message = str(caught.value)
    assert "\n" not in message and ("delete" in message)


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("name", ["layers.1.qkv", "head.scale"])
def test_a_lost_or_misshapen_tensor_is_damage(
    tmp_path: Path, source: Path, name: str, lost: bool
) -> None:
    folder = tmp_path / "converted"
    store.convert(source, folder)
    tensors = load_file(folder / "int8.safetensors")
    with safe_open(folder / "int8.safetensors", framework="pt") as handle:
        header = handle.metadata()
    if lost:
        del tensors[name]
    else:
        tensors[name] = tensors[name][:-1].clone()
    save_file(tensors, folder / "int8.safetensors", metadata=header)
    with pytest.raises(WeightsError, match="damaged") as caught:
        store.open_int8(folder, ())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("at", ["tensors", "tokenizer"])
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    folder = tmp_path / "cache" / "converted"
    full = OSError(errno.ENOSPC, "No space left on device")
    if at == "tensors":

        def save(path: Path, tensors: object, matrices: object, about: object) -> None:
            path.write_bytes(b"the first half")
            raise full

        monkeypatch.setattr(packed_file, "save", save)
    else:
        write = Path.write_text

        def write_text(path: Path, data: str, **options: Any) -> int:
            if path.name == "tokenizer.json":
                write(path, data[:10], **options)
                raise full
            return write(path, data, **options)

        monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(DownloadError, match="the disk is full") as caught:
        store.convert(source, folder)
    assert "\n" not in str(caught.value) and "DLSP_CACHE_DIR" in str(caught.value)
    assert list(folder.parent.iterdir()) == []
    monkeypatch.undo()
    store.convert(source, folder)
    store.open_int8(folder, ())


def test_a_bad_checkpoint_leaves_nothing_behind(tmp_path: Path, source: Path) -> None:
    (source / "model.safetensors").write_bytes(b"")
    with pytest.raises(WeightsError):
        store.convert(source, tmp_path / "cache" / "converted")
    assert not (tmp_path / "cache").exists()


def test_another_process_may_convert_at_the_same_time(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, save = tmp_path / "cache" / "converted", packed_file.save

    def slow(path: Path, tensors: Any, matrices: Any, about: Any) -> None:
        save(path, tensors, matrices, about)
        monkeypatch.setattr(packed_file, "save", save)
        monkeypatch.setattr(store.os, "getpid", lambda: 1)
        store.convert(source, folder)

    monkeypatch.setattr(packed_file, "save", slow)
    store.convert(source, folder)
    store.open_int8(folder, ())
    assert [p.name for p in folder.parent.iterdir()] == ["converted"]

"""Names and paths to weights: what is found, what is refused, and in which words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine import catalog
from engine.catalog import default_model, find, known, resolve
from engine.catalog_entries import DEFAULT_MODEL
from engine.download import Asset
from engine.hub_folder import HubFolder
from engine.request import UnknownModel, WeightsError
from engine.sources import HubFile, Wheels
from tests.engine.tiny_model import CONTENT, digest, tiny_entry


@pytest.fixture
def hub_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


PINNED = [entry for entry in known() if isinstance(entry.asset, Asset)]
FOLDERS = [entry for entry in known() if isinstance(entry.asset, HubFolder)]


def test_the_default_comes_first_and_is_the_recommendation() -> None:
    assert known()[0].name == DEFAULT_MODEL == default_model()
    names = [entry.name for entry in known()]
    assert len(set(names)) == len(names)
    assert {"qwen2.5-coder-0.5b", "smollm2-135m"} == {entry.name for entry in PINNED}


def test_the_environment_names_another_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLSP_MODEL", "smollm2-135m")
    assert default_model() == "smollm2-135m"
    monkeypatch.setenv("DLSP_MODEL", "")
    assert default_model() == DEFAULT_MODEL


@pytest.mark.parametrize("entry", PINNED, ids=lambda entry: entry.name)
def test_every_entry_is_pinned(entry: catalog.CatalogEntry) -> None:
    asset = entry.asset
    assert isinstance(asset, Asset)
    assert asset.name == entry.name
    assert re.fullmatch(r"[0-9a-f]{64}", asset.sha256)
    assert entry.licence == "Apache-2.0"
    for source in asset.sources:
        if isinstance(source, HubFile):
            assert re.fullmatch(r"[0-9a-f]{40}", source.revision)
        else:
            assert all("==" in part.requirement for part in source.parts)
            assert all(re.fullmatch(r"[0-9a-f]{64}", part.sha256) for part in source.parts)
            assert sum(part.size for part in source.parts) == asset.size


@pytest.mark.parametrize("entry", PINNED, ids=lambda entry: entry.name)
def test_the_hub_comes_before_the_package_index(entry: catalog.CatalogEntry) -> None:
    assert isinstance(entry.asset, Asset)
    assert [type(source) for source in entry.asset.sources] == [HubFile, Wheels]


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve("qwen3")
    assert "'qwen3'" in str(caught.value)
    assert all(entry.name in str(caught.value) for entry in known())
    assert caught.value.exit_code == 2


def test_weights_win_whatever_the_model_is_called(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(CONTENT)
    for model in (DEFAULT_MODEL, "anything"):
        files = resolve(model, path)
        assert (files.name, files.path, files.prompt) == (model, path, "auto")
        assert files.sha256 == digest(CONTENT)


def test_a_path_may_stand_for_the_model(
    tmp_path: Path, hub_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(CONTENT)
    assert resolve(str(path)).name == "mine"
    assert resolve(str(hub_folder)).path == hub_folder
    monkeypatch.chdir(tmp_path)
    assert resolve("mine.gguf").path == path
    assert resolve("my-model").path == hub_folder
    (tmp_path / DEFAULT_MODEL).mkdir()
    assert find(DEFAULT_MODEL).name == DEFAULT_MODEL
    assert not catalog._looks_like_path(DEFAULT_MODEL), "a catalogue name is never a folder"


def test_weights_of_a_catalogue_model_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_ENTRIES", (tiny_entry(),))
    path = tmp_path / "renamed.gguf"
    path.write_bytes(CONTENT)
    files = resolve("whatever", path)
    assert (files.name, files.prompt, files.path) == ("tiny", "streams", path)


def test_a_folder_changes_its_fingerprint_with_its_content(hub_folder: Path) -> None:
    before = resolve("mine", hub_folder).sha256
    assert resolve("mine", hub_folder).sha256 == before
    (hub_folder / "model.safetensors").write_text("other")
    assert resolve("mine", hub_folder).sha256 != before


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_folder_says_what_it_lacks(hub_folder: Path, missing: str) -> None:
    (hub_folder / missing).unlink()
    wanted = missing.replace("model.", "*.")
    with pytest.raises(WeightsError, match=re.escape(f"lacks {wanted}")):
        resolve("mine", hub_folder)


def test_missing_and_foreign_weights(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such file or folder"):
        resolve(DEFAULT_MODEL, tmp_path / "nothing.gguf")
    (tmp_path / "model.bin").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(WeightsError, match="is not a GGUF file"):
        resolve(DEFAULT_MODEL, tmp_path / "model.bin")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(WeightsError, match="is not a GGUF file"):
        resolve(DEFAULT_MODEL, tmp_path / "empty.gguf")


@pytest.mark.model
@pytest.mark.parametrize("fixture", ["qwen", "smollm2"])
def test_real_weights_are_the_pinned_ones(fixture: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(fixture)
    assert path.read_bytes()[:4] == b"GGUF"
    assert digest(path.read_bytes()) in {entry.asset.sha256 for entry in PINNED}

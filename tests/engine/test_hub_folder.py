"""Fetching a model of many files: what is taken, checked, resumed, and said when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from engine import catalog, store
from engine.catalog_entries import CatalogEntry
from engine.hub_folder import HubFolder, cached_folder, fetch_folder
from engine.model.traits import Traits
from engine.request import DownloadError
from tests.engine.model_hub import COMMIT, REPO, ModelHub, serving_hub
from tests.engine.tiny_family import Kind, publish
from tests.engine.tiny_model import point_hub_at

ROOT = Path(__file__).parent.parent.parent
SOURCE = HubFolder(repo=REPO, size=1)
OTHERS = {
    "modeling_tiny.py": b"raise SystemExit('executed')",
    "pytorch_model.bin": b"\x80\x02}q\x00.",
    "README.md": b"# Tiny",
    "onnx/model.safetensors": b"nested",
}
TRAITS = Traits(attention="bidirectional", shifted=True)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("published") / "m"
    publish(folder, Kind(model_type="qwen2", of="qwen2", sizes={"num_hidden_layers": 1}))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def hub(published: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelHub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving_hub(ModelHub(files={**published, **OTHERS})) as hub:
        point_hub_at(hub.address, monkeypatch)
        yield hub


def entry() -> CatalogEntry:
    return CatalogEntry(
        name="tiny-diffusion",
        description="for tests",
        licence="MIT",
        asset=SOURCE,
        parameters=1_000_000,
        traits=TRAITS,
    )


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"lock"}


def test_what_a_model_needs_is_fetched_and_nothing_else(
    hub: ModelHub, published: dict[str, bytes]
) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = fetch_folder("tiny", SOURCE, lambda *step: seen.append(step))
    assert left(folder) == {*published, "files.json"}
    assert all((folder / name).read_bytes() == content for name, content in published.items())
    assert folder.name == COMMIT
    ends = {label: done for label, done, total in seen if done == total}
    assert {f"downloading tiny: {name}" for name in published} <= set(ends)
    before = len(hub.asked)
    assert fetch_folder("tiny", SOURCE) == folder == cached_folder(SOURCE)
    assert len(hub.asked) == before, "the second time nobody is asked"


def test_a_pulled_model_loads_as_the_catalogue_says(
    hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_ENTRIES", (entry(),))
    assert not catalog.is_cached(entry())
    files = catalog.resolve("tiny-diffusion")
    assert catalog.is_cached(entry())
    base, _ = store.open_float(files.path, (), files.traits)
    assert (base.config.family.attention, base.config.family.shifted) == ("bidirectional", True)
    # the same folder by its path alone is an ordinary base, converted to another place
    plain = catalog.resolve(str(files.path))
    assert plain.traits is None and plain.sha256 != files.sha256
    # and by its name with --weights, the same model
    named = catalog.resolve("tiny-diffusion", files.path)
    assert (named.traits, named.sha256) == (TRAITS, files.sha256)


def test_a_broken_connection_goes_on_where_it_broke(hub: ModelHub) -> None:
    hub.breaks["model-00001-of-00002.safetensors"] = 1000
    fetch_folder("tiny", SOURCE)
    ranges = [r for path, r, _ in hub.asked if path.endswith("model-00001-of-00002.safetensors")]
    assert ranges == ["bytes=0-", "bytes=1000-"]


def test_what_was_fetched_is_kept_for_the_next_attempt(hub: ModelHub) -> None:
    spoilt = "model-00002-of-00002.safetensors"
    hub.served[spoilt] = b"x" * len(hub.files[spoilt])
    with pytest.raises(DownloadError, match=rf"{spoilt} arrived corrupt"):
        fetch_folder("tiny", SOURCE)
    assert cached_folder(SOURCE) is None
    hub.served.clear()
    hub.asked.clear()
    folder = fetch_folder("tiny", SOURCE)
    assert hub.names_asked()[0] == spoilt, "what was right is not fetched again"
    assert (folder / spoilt).read_bytes() == hub.files[spoilt]


@pytest.mark.parametrize("name", ["config.json", "model-00001-of-00002.safetensors"])
def test_damage_on_the_way_is_noticed_and_mended(hub: ModelHub, name: str) -> None:
    content = hub.files[name]
    hub.served[name] = content[:-1] + bytes([content[-1] ^ 1])
    said: list[str] = []

    def listen(label: str, done: int, total: int) -> None:
        said.append(label)
        if "corrupt" in label:
            hub.served.clear()

    folder = fetch_folder("tiny", SOURCE, listen)
    assert f"tiny: {name} arrived corrupt" in said
    assert (folder / name).read_bytes() == content


def test_a_file_that_went_missing_is_fetched_again(hub: ModelHub) -> None:
    folder = fetch_folder("tiny", SOURCE)
    (folder / "config.json").unlink()
    assert cached_folder(SOURCE) is None
    hub.asked.clear()
    assert fetch_folder("tiny", SOURCE) == folder
    assert hub.names_asked() == ["config.json"]


def test_a_gated_model_wants_a_token(hub: ModelHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_mine"
    with pytest.raises(DownloadError, match=r"accept its licence.*set HF_TOKEN"):
        fetch_folder("tiny", SOURCE)
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    assert cached_folder(SOURCE) != fetch_folder("tiny", SOURCE)


def test_the_token_stays_with_the_hub(
    hub: ModelHub, published: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_mine"
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    with serving_hub(ModelHub(files=published)) as other:
        hub.elsewhere = other.address
        fetch_folder("tiny", SOURCE)
    assert {token for _, _, token in hub.asked} == {"Bearer hf_mine"}
    assert other.names_asked() == [n for n in published if n.endswith(".safetensors")]
    assert {token for _, _, token in other.asked} == {None}


def test_what_cannot_be_had_is_said_in_one_line(
    hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = {}
    for name in ("no such", "offline", "unreachable"):
        source = HubFolder(repo="someone/Else", size=1) if name == "no such" else SOURCE
        if name == "offline":
            monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        if name == "unreachable":
            point_hub_at("http://127.0.0.1:9", monkeypatch)
        with pytest.raises(DownloadError) as caught:
            fetch_folder("tiny", source)
        reasons[name] = str(caught.value)
    assert "the hub has no someone/Else" in reasons["no such"]
    assert "HF_HUB_OFFLINE" in reasons["offline"]
    assert "cannot be reached" in reasons["unreachable"]
    assert all("\n" not in line and "--weights FOLDER" in line for line in reasons.values())


def test_a_repository_without_safetensors_is_refused(hub: ModelHub) -> None:
    hub.files = {n: c for n, c in hub.files.items() if not n.endswith(".safetensors")}
    with pytest.raises(DownloadError, match=r"no config\.json with safetensors"):
        fetch_folder("tiny", SOURCE)


def test_what_another_program_has_fetched_is_used(
    tmp_path: Path, published: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = tmp_path / "models--someone--Tiny-Diffusion"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for name, content in sorted(
        published.items(), key=lambda item: item[0] != "tokenizer_config.json"
    ):
        assert cached_folder(SOURCE) is None, "not before it is complete"
        (snapshot / name).write_bytes(content)
    assert cached_folder(SOURCE) == snapshot


def test_the_hubs_own_variables_lead_to_a_mirror(hub: ModelHub, tmp_path: Path) -> None:
    """The command as a user starts it: HF_ENDPOINT and HF_TOKEN are read by the process itself."""
    hub.token = "hf_mine"
    program = (
        "import sys, engine.__main__, engine.catalog\n"
        "from tests.engine.test_hub_folder import entry\n"
        "engine.catalog._ENTRIES = (entry(),)\n"
        "sys.exit(engine.__main__.main(['pull', 'tiny-diffusion']))"
    )
    kept = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=kept
        | {
            "HF_ENDPOINT": hub.address,
            "HF_TOKEN": "hf_mine",
            "HF_HUB_OFFLINE": "0",
            "DLSP_CACHE_DIR": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert (Path(result.stdout.strip()) / "files.json").is_file()
    assert "tiny-diffusion: model-00001-of-00002.safetensors: 100 %" in result.stderr

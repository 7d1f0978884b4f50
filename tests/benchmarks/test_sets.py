"""Where the sets are found: a file, a folder, or the hub, whose content is checked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from benchmarks import sets
from benchmarks.report import BenchmarkError
from tests.benchmarks.conftest import task


def test_a_file_is_itself_and_a_folder_has_every_set(tmp_path: Path, data: Path) -> None:
    assert sets.locate(data, ["multi-line"]) == [data]
    plain = tmp_path / "HumanEval-MultiLineInfilling.jsonl"
    plain.write_text(json.dumps(task(0, "    pass\n")) + "\n")
    assert sets.locate(tmp_path, ["multi-line", "single-line"]) == [plain, data]
    assert sets.read_rows(plain) == [task(0, "    pass\n")]


def test_a_folder_without_the_set_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"no HumanEval-MultiLineInfilling\.jsonl\.gz"):
        sets.locate(tmp_path, ["multi-line"])


def hub(monkeypatch: pytest.MonkeyPatch, files: list[str], path: Path) -> None:
    def api() -> SimpleNamespace:
        return SimpleNamespace(list_repo_files=lambda *_, **__: files)

    monkeypatch.setattr(huggingface_hub, "HfApi", api)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: str(path))


def test_the_hub_gives_the_published_rows_however_packed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path
) -> None:
    rows = sets.read_rows(data)
    monkeypatch.setitem(sets.DIGESTS, "single-line", sets.digest(rows))
    plain = tmp_path / "copy.jsonl"
    reordered = [dict(reversed(row.items())) for row in rows]
    plain.write_text("".join(json.dumps(row) + "\n" for row in reordered))
    hub(monkeypatch, ["README.md", "data/HumanEval-SingleLineInfilling.jsonl"], plain)
    assert sets.locate(None, ["single-line"]) == [plain]


def test_rows_of_somebody_else_are_refused(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    hub(monkeypatch, [data.name], data)
    with pytest.raises(BenchmarkError, match="not the published data"):
        sets.locate(None, ["single-line"])


def test_a_hub_without_the_set_or_without_a_network_is_one_line(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    hub(monkeypatch, ["README.md"], data)
    with pytest.raises(BenchmarkError, match="--data"):
        sets.locate(None, ["single-line"])

    def unreachable() -> None:
        raise ConnectionError("no name")

    monkeypatch.setattr(huggingface_hub, "HfApi", unreachable)
    with pytest.raises(BenchmarkError, match=r"cannot be reached \(ConnectionError\)"):
        sets.locate(None, ["single-line"])

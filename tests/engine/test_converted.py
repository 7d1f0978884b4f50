"""What is read ahead of opening converted weights: the same tokenizer, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import converted, store
from engine.request import WeightsError
from tests.engine.tiny_base import make_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store.convert(make_folder(tmp_path / "model", layers=1), tmp_path / "converted")
    return tmp_path / "converted"


def test_what_was_read_ahead_is_what_is_opened(folder: Path) -> None:
    ahead = converted.read_ahead(folder)
    assert ahead is not None
    _, tokenizer = store.open_int8(folder, (), ahead)
    assert tokenizer is ahead.result()
    _, other = store.open_int8(folder, ())
    assert other.encode("x = '中文'") == tokenizer.encode("x = '中文'")


def test_nothing_is_read_before_the_weights_are_converted(tmp_path: Path, folder: Path) -> None:
    assert converted.read_ahead(tmp_path / "none") is None
    (folder / converted.META).write_text('{"format": 1}')
    assert converted.read_ahead(folder) is None


def test_a_damaged_tokenizer_is_told_by_who_opens_the_folder(folder: Path) -> None:
    (folder / converted.TOKENIZER).write_text("{}")
    ahead = converted.read_ahead(folder)
    with pytest.raises(WeightsError, match="delete that folder"):
        store.open_int8(folder, (), ahead)


@pytest.mark.parametrize("meta", ["", "[]", "5", "{}"])
def test_a_folder_that_says_nothing_of_its_format_is_converted_anew(
    folder: Path, meta: str
) -> None:
    assert converted.is_current(folder)
    (folder / converted.META).write_text(meta)
    assert not converted.is_current(folder)


def test_formats_of_earlier_versions_of_the_same_weights_are_outdated(tmp_path: Path) -> None:
    for name in ("abc-2", "abc-11", "abc-12", "abc-13", "abd-2", "abc-x", "abc-12.7.part"):
        (tmp_path / name).mkdir()
    (tmp_path / "abc-3").write_text("a file")
    found = converted.outdated(tmp_path / "abc-12")
    assert [path.name for path in found] == ["abc-11", "abc-2"]

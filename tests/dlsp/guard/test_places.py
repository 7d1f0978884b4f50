"""Languages and paths that the user has switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsp.config.settings import Settings
from dlsp.guard.places import switched_off

FOLDERS = (Path("/w/one"), Path("/w/two"))


@pytest.mark.parametrize(
    ("languages", "names", "silent"),
    [
        ({}, ["python"], False),
        ({"python": False}, ["python"], True),
        ({"python": False}, ["go"], False),
        ({"*": False}, ["go"], True),
        ({"*": False, "go": True}, ["go"], False),
        ({"*": False}, [], True),
        ({"typescriptreact": False}, ["typescriptreact", "tsx"], True),
        ({"tsx": False}, ["typescriptreact", "tsx"], True),
    ],
)
def test_languages(languages: dict[str, bool], names: list[str], silent: bool) -> None:
    settings = Settings(languages=languages)
    found = switched_off(settings, path="/w/one/a", languages=names, folders=FOLDERS)
    assert (found is not None) is silent
    assert found is None or "'languages'" in found


@pytest.mark.parametrize(
    ("paths", "path", "silent"),
    [
        ({"vendor/": False}, "/w/one/vendor/a/b.py", True),
        ({"/vendor/": False}, "/w/two/sub/vendor/b.py", False),
        ({"*.min.js": False}, "/w/two/x/y.min.js", True),
        ({"*": False, "src/**": True}, "/w/one/src/a.py", False),
        ({"src/**": True, "*": False}, "/w/one/src/a.py", True),
        ({"etc/": False}, "/etc/hosts", True),
        ({"x": False}, None, False),
        ({"a.py": True}, "/w/one/a.py", False),
    ],
)
def test_paths(paths: dict[str, bool], path: str | None, silent: bool) -> None:
    found = switched_off(Settings(paths=paths), path=path, languages=["python"], folders=FOLDERS)
    assert (found is not None) is silent
    assert found is None or "'paths'" in found

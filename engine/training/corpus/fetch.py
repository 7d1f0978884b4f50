"""Packages of a list, downloaded by pip and npm as they are set up here.

From the Python index come wheels; source distributions only where that is asked for, since pip runs
their build code to learn their metadata. npm packs what the registry holds, with scripts off.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.request import BadRequest, DownloadError

#: The list that comes with this package.
OURS = Path(__file__).parents[2] / "data" / "corpus" / "packages.toml"
_FETCHED = "fetched.txt"  # one `registry name version` a line
_PATIENCE_S = 600
_NAME = re.compile(r"(@[\w.-]+/)?[\w][\w.-]*")
_VERSION = re.compile(r"[\w.+!-]+")
_PIP_OPTIONS = ("--no-deps", "--no-input", "--quiet")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of a list. `licence` and `languages` are what was found when it was listed."""

    registry: str
    name: str
    version: str
    licence: str
    languages: tuple[str, ...]
    sdist: bool = False

    @property
    def label(self) -> str:
        """How the folder of downloads remembers it."""
        return f"{self.registry} {self.name} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """`sdists`: whether pip may run the build code of source distributions."""

    to: Path
    source: Path = OURS
    languages: frozenset[str]
    sdists: bool = False


def run(options: FetchOptions, say: Say) -> int:
    """Download what is listed for those languages and not there yet; 1 if anything failed."""
    wanted = [p for p in read_list(options.source) if options.languages.intersection(p.languages)]
    listed = [p for p in wanted if options.sdists or not p.sdist]
    if len(listed) < len(wanted):
        say(
            f"leaving out {len(wanted) - len(listed)} source distributions; --sdists fetches them, "
            "and pip then runs their build code"
        )
    folder = options.to
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / _FETCHED
    done = set(record.read_text().splitlines()) if record.is_file() else set()
    failed = 0
    for n, package in enumerate(listed, start=1):
        if package.label in done:
            continue
        try:
            download(package, folder)
        except DownloadError as error:
            failed += 1
            say(str(error))
            continue
        with record.open("a") as lines:
            lines.write(package.label + "\n")
        say(f"{n} of {len(listed)}: {package.name} {package.version}")
    if failed:
        say(f"{failed} of {len(listed)} packages failed; run the same command again")
    return 1 if failed else 0


def read_list(path: Path) -> list[Listed]:
    """The packages of a list, each name and version checked. Raises BadRequest."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["package"]
        return [_listed(table) for table in tables]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"{path} is not a list of packages ({error})") from error


def _listed(table: dict[str, Any]) -> Listed:
    registry, name, version = (str(table[key]) for key in ("registry", "name", "version"))
    if registry not in ("npm", "pypi"):
        raise ValueError(f"registry {registry!r}: npm or pypi")
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise ValueError(f"{name!r} {version!r} is not a name and a version")
    return Listed(
        registry=registry,
        name=name,
        version=version,
        licence=str(table.get("licence", "")),
        languages=tuple(table["languages"]),
        sdist=bool(table.get("sdist", False)),
    )


def download(package: Listed, folder: Path) -> None:
    """Put one package's archive into `folder`. Raises DownloadError."""
    if package.registry == "pypi":
        command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS]
        command += [f"--no-binary={package.name}" if package.sdist else "--only-binary=:all:"]
        command += ["--dest", str(folder), f"{package.name}=={package.version}"]
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise DownloadError(f"{package.name} is an npm package, and npm is not installed here")
        command = [npm, "pack", "--ignore-scripts", "--silent"]
        command += ["--pack-destination", str(folder), f"{package.name}@{package.version}"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"{package.name}: {command[0]} failed ({error})") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()] or [""]
        raise DownloadError(f"{package.name} {package.version}: {said[-1].strip() or 'failed'}")

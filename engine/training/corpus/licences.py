"""What a package's metadata says of its licence, and whether that is permissive.

Only what is claimed counts; no licence text is read. A claim that names any copyleft or restricted
licence is refused, even where it also offers a permissive one.
"""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from typing import Any

_PERMISSIVE = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|Python-2\.0|Python Software Foundation|Zlib|Unlicense|CC0"
    r"|BSL-1\.0|Boost|NCSA|HPND|BlueOak)(?![a-z])",
    re.I,
)
_RESTRICTED = re.compile(
    r"[AL]?GPL|General Public|Mozilla|\b(MPL|EPL|CDDL|EUPL|OSL|SSPL|BUSL|CECILL|MS-RL|Artistic)"
    r"|Eclipse Public|Proprietary|Business Source|Commons Clause|Elastic|Non-?Commercial|-NC\b",
    re.I,
)


def is_permissive(claimed: str) -> bool:
    """Whether a claim names a permissive licence and no other kind."""
    return bool(_PERMISSIVE.search(claimed)) and not _RESTRICTED.search(claimed)


def claimed_by(about: metadata.PackageMetadata) -> str:
    """The licence that Python core metadata claims: what is said most exactly, on one line."""
    classifiers = [c for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    return _line(
        _first(about, "License-Expression") or " ".join(classifiers) or _first(about, "License")
    )


def licence_of(package: metadata.Distribution) -> str | None:
    """The claim of an installed package if it is permissive, else None."""
    claimed = claimed_by(package.metadata)
    return claimed if is_permissive(claimed) else None


def claimed_in_package_json(about: dict[str, Any]) -> str:
    """The licence of an npm package: `license`, or the older `licenses`."""
    said = about.get("license") or about.get("licenses") or ""
    each = said if isinstance(said, list) else [said]
    return _line(" AND ".join(_npm_name(one) for one in each))


def claimed_in_cargo_toml(text: str) -> tuple[str, str, str]:
    """Name, version and licence of a crate; empty where it does not say."""
    try:
        package = tomllib.loads(text).get("package", {})
    except tomllib.TOMLDecodeError:
        return "", "", ""
    values = (package.get(key) for key in ("name", "version", "license"))
    name, version, licence = (value if isinstance(value, str) else "" for value in values)
    return name, version, _line(licence)


def _npm_name(one: object) -> str:
    return str(one.get("type", "")) if isinstance(one, dict) else str(one)


def _first(about: metadata.PackageMetadata, key: str) -> str:
    return next(iter(about.get_all(key) or ()), "")


def _line(text: str) -> str:
    return " ".join(text[:200].split())

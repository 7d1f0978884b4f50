"""What `dlsp-engine models` prints: what is known, what is on disk, and what fits this machine.

Knows the catalogue and the machine's memory; loads no model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from engine.catalog import default_model, is_cached, known
from engine.catalog_entries import CatalogEntry
from engine.download import Asset

#: Bytes of a parameter in our packed form: a code, and its share of a group's scale.
_PACKED = 1 + 2 / 32
#: Python, torch and the contexts kept, beside the weights.
_BESIDE = 1_000_000_000


def rows() -> list[dict[str, Any]]:
    """One object per model of the catalogue, the default first.

    megabytes: to fetch; memory_megabytes: about what it takes to run; fits: whether this machine
    has as much (null where that cannot be told).
    """
    have = memory_bytes()
    return [_row(entry, have) for entry in known()]


def _row(entry: CatalogEntry, have: int | None) -> dict[str, Any]:
    needs = memory_needed(entry.parameters)
    pinned = isinstance(entry.asset, Asset)
    return {
        "name": entry.name,
        "default": entry.name == default_model(),
        "kind": "canvas" if pinned else "diffusion",
        "cached": is_cached(entry),
        "sha256": entry.asset.sha256 if isinstance(entry.asset, Asset) else None,
        "megabytes": round(entry.asset.size / 1e6),
        "memory_megabytes": round(needs / 1e6),
        "fits": None if have is None else needs <= have,
        "licence": entry.licence,
        "description": entry.description,
    }


def memory_needed(parameters: int) -> int:
    """About how many bytes it takes to run a model of so many parameters on the CPU."""
    return int(parameters * _PACKED) + _BESIDE


def memory_bytes() -> int | None:
    """How much memory this machine has; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def table(listed: Sequence[dict[str, Any]]) -> str:
    """The same for a person, a line each."""
    wide = max(len(row["name"]) for row in listed)
    lines = []
    for row in listed:
        mark = "*" if row["default"] else " "
        where = "on disk" if row["cached"] else "to fetch"
        fits = {True: "fits", False: "too big", None: ""}[row["fits"]]
        lines.append(
            f"{mark} {row['name']:<{wide}} {row['megabytes']:>6} MB  {where:<8}  "
            f"{row['memory_megabytes'] / 1e3:>4.1f} GB memory {fits:<7}  {row['licence']:<12}  "
            f"{row['description']}\n"
        )
    return "".join(lines)

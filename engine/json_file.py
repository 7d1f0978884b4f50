"""The JSON files of a model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.request import WeightsError


def read_object(path: Path) -> dict[str, Any]:
    """What the file holds. Raises OSError, and WeightsError where it is no JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path} is not valid JSON ({error})") from error
    if not isinstance(data, dict):
        raise WeightsError(f"{path} does not hold a JSON object")
    return data

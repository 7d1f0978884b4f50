"""What a setting's value may be: each check returns the value in its own type or raises ValueError.

The error reads as the end of a sentence that begins with the setting's name. A value may come from
JSON or from an environment variable, whose text stands for it. Does not know any setting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, get_args
from urllib.parse import urlsplit

Check = Callable[[object], Any]


def one_of(literal: object) -> Check:
    """One of the strings of a `Literal`."""
    choices = get_args(literal)

    def check(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return check


def some_of(literal: object) -> Check:
    """A list of strings of a `Literal`, or their names with commas; empty is none of them."""
    choices = get_args(literal)

    def check(value: object) -> tuple[str, ...]:
        given = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if given == [""]:
            given = []
        if not isinstance(given, list | tuple) or not all(name in choices for name in given):
            raise ValueError(f"must be a list of some of {', '.join(choices)}")
        return tuple(dict.fromkeys(given))

    return check


def number(low: float, high: float) -> Check:
    """A number within both bounds."""

    def check(value: object) -> float:
        wrong = ValueError(f"must be a number between {low:g} and {high:g}")
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise wrong
        try:
            found = float(value)
        except (ValueError, OverflowError):
            raise wrong from None
        if math.isnan(found) or not low <= found <= high:
            raise wrong
        return found

    return check


def whole_number(low: int, high: int) -> Check:
    """A whole number within both bounds."""
    check_number = number(low, high)

    def check(value: object) -> int:
        found = float(check_number(value))
        if not found.is_integer():
            raise ValueError(f"must be a whole number between {low} and {high}")
        return int(found)

    return check


def text(value: object) -> str:
    """A string with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a non-empty string")
    return value.strip()


def url(value: object) -> str | None:
    """An HTTP address; the empty string, which settings pages write for none, is none."""
    if value == "":
        return None
    address = text(value)
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        known = known and address.isprintable() and " " not in address
    except ValueError:
        known = False
    if not known:
        raise ValueError("must be an http:// or https:// address")
    return address.rstrip("/")


def switch(value: object) -> bool:
    """True or false, in JSON or in an environment variable."""
    if value in (True, "1", "true"):
        return True
    if value in (False, "0", "false"):
        return False
    raise ValueError("must be true or false")


def switches(value: object) -> Mapping[str, bool]:
    """An object of names with true or false."""
    found = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError:
            found = None
    if not isinstance(found, Mapping) or not all(isinstance(on, bool) for on in found.values()):
        raise ValueError("must be an object of names with true or false")
    return {str(name): on for name, on in found.items()}


def patterns(value: object) -> Mapping[str, bool]:
    """An object of gitignore-style patterns with true or false."""
    import pathspec  # not read by a cold start that has no such setting

    found = switches(value)
    for pattern in found:
        try:
            pathspec.GitIgnoreSpec.from_lines([pattern])
        except ValueError:
            raise ValueError(f"holds {pattern!r}, which is not a pattern of paths") from None
    return found

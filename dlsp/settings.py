"""One frozen `Settings`, merged from environment, initialization options and client configuration.

Knows names, types, ranges and defaults; does not know who uses a setting or how to tell the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from engine.request import Mode

WantSetting = Literal["auto", "line", "block"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a user may choose.

    `weights` names a weights file for the local engine; `engine_url` a FIM engine elsewhere, in
    which case no local engine is started. `deadline_ms` is the budget of one suggestion;
    `start_wait_ms` is how long a request may wait, on top, for an engine that is still starting
    (None: the deadline alone decides). `debug` opens requests that exist for tests only.
    """

    model: str = "qwen2.5-coder-0.5b"
    weights: str | None = None
    mode: Mode = "verified"
    want: WantSetting = "auto"
    deadline_ms: float = 1500.0
    max_tokens: int = 64
    engine_url: str | None = None
    engine_token: str | None = None
    start_wait_ms: float | None = None
    log_level: LogLevel = "warning"
    debug: bool = False

    @property
    def engine_identity(self) -> tuple[str | None, ...]:
        """The settings that decide which engine answers: when they change, the backend must."""
        return (self.model, self.weights, self.engine_url, self.engine_token)


Check = Callable[[object], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """Usable settings, and one sentence for every key that had to be left out."""

    settings: Settings
    problems: tuple[str, ...] = ()


def parse(*, environment: Mapping[str, str], layers: tuple[tuple[str, object], ...] = ()) -> Parsed:
    """Merge defaults, `DLSP_*` variables and named layers of options; the later layer wins."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name in _CHECKS:
        variable = f"DLSP_{name.upper()}"
        if environment.get(variable):
            _take(values, problems, name, environment[variable], source=variable)
    for source, layer in layers:
        if layer is None:
            continue
        if not isinstance(layer, Mapping):
            problems.append(f"{source}: expected an object of settings; ignored")
            continue
        for name, value in layer.items():
            if name in _CHECKS:
                _take(values, problems, name, value, source=f"{source}: {name}")
            else:
                problems.append(
                    f"{source}: unknown setting {name!r}; known are {', '.join(_CHECKS)}"
                )
    return Parsed(settings=Settings(**values), problems=tuple(dict.fromkeys(problems)))


def _take(
    values: dict[str, Any], problems: list[str], name: str, value: object, *, source: str
) -> None:
    """Check one value; a bad one falls back to the default, whatever an earlier layer said."""
    if value is None:
        return
    try:
        values[name] = _CHECKS[name](value)
    except ValueError as error:
        values.pop(name, None)
        default = getattr(Settings(), name)
        problems.append(f"{source} {error}, not {value!r}; using {default!r}")


def _one_of(choices: tuple[str, ...]) -> Check:
    def check(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return check


def _number(low: float, high: float) -> Check:
    def check(value: object) -> float:
        wrong = ValueError(f"must be a number between {low:g} and {high:g}")
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise wrong
        try:
            number = float(value)
        except ValueError:
            raise wrong from None
        if not low <= number <= high:
            raise wrong
        return number

    return check


def _whole_number(low: int, high: int) -> Check:
    number = _number(low, high)

    def check(value: object) -> int:
        found = float(number(value))
        if not found.is_integer():
            raise ValueError(f"must be a whole number between {low} and {high}")
        return int(found)

    return check


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a non-empty string")
    return value.strip()


def _url(value: object) -> str:
    url = _text(value)
    if not url.startswith(("http://", "https://")):
        raise ValueError("must be an http:// or https:// address")
    return url.rstrip("/")


def _switch(value: object) -> bool:
    if value in (True, "1", "true"):
        return True
    if value in (False, "0", "false"):
        return False
    raise ValueError("must be true or false")


_CHECKS: Mapping[str, Check] = {
    "model": _text,
    "weights": _text,
    "mode": _one_of(get_args(Mode)),
    "want": _one_of(get_args(WantSetting)),
    "deadline_ms": _number(1, 600_000),
    "max_tokens": _whole_number(1, 1024),
    "engine_url": _url,
    "engine_token": _text,
    "start_wait_ms": _number(0, 86_400_000),
    "log_level": _one_of(get_args(LogLevel)),
    "debug": _switch,
}

assert tuple(_CHECKS) == tuple(field.name for field in fields(Settings))

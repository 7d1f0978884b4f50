"""One frozen `Settings`, merged from environment, initialization options and client configuration.

Knows names, types, ranges and defaults; does not know who uses a setting or how to tell the user.
What each value may be is in `setting_checks`; docs/settings.md is the page for users.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dlsp.config import setting_checks as check
from engine.request import Mode as Decoding

Mode = Literal["automatic", "manual"]
Mood = Literal["quiet", "balanced", "eager"]
#: Where snippets of other places come from: files that are open or were edited last, signatures of
#: imported modules, and what was changed last.
ContextSource = Literal["open", "imports", "edits"]
LogLevel = Literal["debug", "info", "warning", "error"]
WantSetting = Literal["auto", "line", "block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Developer:
    """What developers, tests and benchmarks may choose, besides.

    `start_wait_ms` is how long a request may wait, on top of its deadline, for an engine that is
    still starting (None: the deadline alone decides). `weights` names a weights file for the local
    engine. `scorecard` off keeps no figures. `debug` opens requests that exist for tests only.
    """

    decoding: Decoding = "verified"
    want: WantSetting = "auto"
    max_tokens: int = 64
    start_wait_ms: float | None = None
    weights: str | None = None
    scorecard: bool = True
    debug: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a user may choose: twelve settings; then what only developers and the environment may.

    `languages` maps language ids, and `paths` gitignore-style patterns, to on or off. `memory_mb`
    bounds the contexts that the local engine keeps; 0 `idle_unload_minutes` means never.
    `engine_url` names a FIM engine elsewhere, in which case no local engine is started.
    `engine_token` is the key for it: never from a client, whose settings may be a repository's.
    """

    model: str = "qwen2.5-coder-0.5b"
    mode: Mode = "automatic"
    mood: Mood = "balanced"
    deadline_ms: float = 250.0
    languages: Mapping[str, bool] = field(default_factory=dict)
    paths: Mapping[str, bool] = field(default_factory=dict)
    multi_line: bool = True
    context: tuple[ContextSource, ...] = ()
    memory_mb: int = 512
    idle_unload_minutes: float = 10.0
    engine_url: str | None = None
    log_level: LogLevel = "warning"

    developer: Developer = field(default_factory=Developer)
    engine_token: str | None = None

    @property
    def engine_identity(self) -> tuple[str | None, ...]:
        """The settings that decide which engine answers: when they change, the backend must."""
        return (self.model, self.developer.weights, self.engine_url, self.engine_token)

    @property
    def engine_limits(self) -> tuple[float, ...]:
        """The settings that a local engine is told at its start: a change needs another start."""
        return (self.memory_mb, self.idle_unload_minutes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """Usable settings, and one sentence for every key that had to be left out."""

    settings: Settings
    problems: tuple[str, ...] = ()


_USER: Mapping[str, check.Check] = {
    "model": check.text,
    "mode": check.one_of(Mode),
    "mood": check.one_of(Mood),
    "deadline_ms": check.number(1, 600_000),
    "languages": check.switches,
    "paths": check.patterns,
    "multi_line": check.switch,
    "context": check.some_of(ContextSource),
    "memory_mb": check.whole_number(16, 1_000_000),
    "idle_unload_minutes": check.number(0, 100_000),
    "engine_url": check.url,
    "log_level": check.one_of(LogLevel),
}
_DEVELOPER: Mapping[str, check.Check] = {
    "decoding": check.one_of(Decoding),
    "want": check.one_of(WantSetting),
    "max_tokens": check.whole_number(1, 1024),
    "start_wait_ms": check.number(0, 86_400_000),
    "weights": check.text,
    "scorecard": check.switch,
    "debug": check.switch,
}
#: Keys of the same section that belong to the clients' own libraries.
_OF_CLIENTS = ("trace",)
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def camel_case(name: str) -> str:
    """The name as the settings pages of editors show it: deadline_ms is deadlineMs."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def parse(*, environment: Mapping[str, str], layers: tuple[tuple[str, object], ...] = ()) -> Parsed:
    """Merge defaults, `DLSP_*` variables and named layers of options; the later layer wins."""
    user = _Values(_USER, Settings())
    developer = _Values(_DEVELOPER, Developer())
    user.read_environment(environment)
    developer.read_environment(environment)
    for source, layer in layers:
        user.read(source, layer, inner="developer")
        if isinstance(layer, Mapping):
            developer.read(f"{source}: developer", layer.get("developer"))
    settings = Settings(
        **user.values,
        developer=Developer(**developer.values),
        engine_token=environment.get("DLSP_ENGINE_TOKEN", "").strip() or None,
    )
    return Parsed(
        settings=settings, problems=tuple(dict.fromkeys([*user.problems, *developer.problems]))
    )


class _Values:
    """The checked values of one group of settings, and what was wrong with the others."""

    def __init__(self, checks: Mapping[str, check.Check], defaults: Settings | Developer) -> None:
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self._checks = checks
        self._defaults = defaults

    def read_environment(self, environment: Mapping[str, str]) -> None:
        for name in self._checks:
            variable = f"DLSP_{name.upper()}"
            if environment.get(variable):
                self._take(name, environment[variable], source=variable)

    def read(self, source: str, layer: object, *, inner: str | None = None) -> None:
        """Take a layer over; `inner` is the key of another group in it."""
        if layer is None:
            return
        if not isinstance(layer, Mapping):
            self.problems.append(f"{source}: expected an object of settings; ignored")
            return
        for key, value in layer.items():
            name = _WORD_START.sub("_", str(key)).lower()
            if name in self._checks:
                self._take(name, value, source=f"{source}: {key}")
            elif key != inner and key not in _OF_CLIENTS:
                self.problems.append(f"{source}: {_unknown(str(key), name, self._checks)}")

    def _take(self, name: str, value: object, *, source: str) -> None:
        """Check one value; a bad one falls back to the default, whatever an earlier layer said."""
        if value is None:
            return
        try:
            self.values[name] = self._checks[name](value)
        except ValueError as error:
            self.values.pop(name, None)
            default = getattr(self._defaults, name)
            self.problems.append(f"{source} {error}, not {value!r}; using {default!r}")


def _unknown(key: str, name: str, known: Mapping[str, check.Check]) -> str:
    if name == "engine_token":
        return (
            f"{key!r} is not read from settings, which may lie in a repository; set the "
            "environment variable DLSP_ENGINE_TOKEN or use the system's keyring"
        )
    if name in _DEVELOPER:
        return f"{key!r} is for developers: give it under 'developer', or as DLSP_{name.upper()}"
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"unknown setting {key!r}; did you mean {camel_case(near[0])!r}?"
    return f"unknown setting {key!r}; known are {', '.join(map(camel_case, known))}"


assert (*_USER, "developer", "engine_token") == tuple(f.name for f in dataclasses.fields(Settings))
assert tuple(_DEVELOPER) == tuple(f.name for f in dataclasses.fields(Developer))

"""Settings: names, layers, bad values, unknown keys, and the page that lists them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from dlsp.config.settings import Developer, Settings, camel_case, parse

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"
USER_SETTINGS = [
    field.name
    for field in dataclasses.fields(Settings)
    if field.name not in ("developer", "engine_token")
]


def test_defaults_without_any_layer() -> None:
    assert parse(environment={}).settings == Settings()
    assert parse(environment={}).problems == ()


def test_there_are_at_most_twelve_and_the_page_names_each_with_its_default() -> None:
    assert len(USER_SETTINGS) <= 12
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name: default.strip(" `") for name, default in rows}
    defaults = {name: getattr(Settings(), name) for name in USER_SETTINGS}
    words = {True: "true", None: "none", (): "[]"}
    assert shown == {
        camel_case(name): str(words[value])
        if value in words
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
        for name, value in defaults.items()
        if not isinstance(value, dict)
    } | {camel_case(name): "{}" for name, value in defaults.items() if isinstance(value, dict)}


def test_later_layers_win_in_either_spelling() -> None:
    parsed = parse(
        environment={"DLSP_MODEL": "from-env", "DLSP_DEADLINE_MS": "300", "DLSP_DEBUG": "1"},
        layers=(
            ("init", {"model": "from-init", "developer": {"want": "block"}, "multiLine": False}),
            ("client", {"developer": {"want": "line"}, "memory_mb": 64, "memoryMb": 128}),
        ),
    )
    found = parsed.settings
    assert (found.model, found.deadline_ms, found.multi_line) == ("from-init", 300.0, False)
    assert (found.developer.want, found.developer.debug, found.memory_mb) == ("line", True, 128)
    assert parsed.problems == ()


def test_every_setting_can_be_given_in_camel_case() -> None:
    layer = {
        "model": "m", "mode": "manual", "mood": "eager", "deadlineMs": 100,
        "languages": {"*": False, "python": True}, "paths": {"vendor/**": False},
        "multiLine": False, "context": ["imports"], "memoryMb": 64, "idleUnloadMinutes": 0,
        "engineUrl": "https://example.org/", "logLevel": "error",
    }  # fmt: skip
    parsed = parse(environment={}, layers=(("client", layer),))
    assert parsed.problems == ()
    assert [camel_case(name) for name in USER_SETTINGS] == list(layer)
    for name in USER_SETTINGS:
        assert getattr(parsed.settings, name) != getattr(Settings(), name)
    assert parsed.settings.engine_url == "https://example.org"


@pytest.mark.parametrize(
    "address",
    ["example.org", "ftp://example.org", "http://", "http://[::1", "http://h:99999", "http://h:x",
     "http://a b", "http://\0/"],
)  # fmt: skip
def test_an_address_that_no_client_can_reach_is_refused(address: str) -> None:
    parsed = parse(environment={}, layers=(("client", {"engineUrl": address}),))
    assert parsed.settings.engine_url is None
    assert "must be an http:// or https:// address" in parsed.problems[0]


def test_the_environment_can_say_lists_and_objects() -> None:
    environment = {"DLSP_CONTEXT": "open, edits", "DLSP_LANGUAGES": '{"markdown": false}'}
    found = parse(environment=environment).settings
    assert found.context == ("open", "edits")
    assert found.languages == {"markdown": False}
    assert parse(environment={}, layers=(("init", {"context": ""}),)).settings.context == ()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("modell", "did you mean 'model'?"),
        ("multiline", "did you mean 'multiLine'?"),
        ("deadline", "did you mean 'deadlineMs'?"),
        ("nonsense", "known are model, mode, mood, deadlineMs"),
        ("decoding", "give it under 'developer', or as DLSP_DECODING"),
        ("engineToken", "DLSP_ENGINE_TOKEN"),
    ],
)
def test_an_unknown_key_is_named_once_with_the_nearest_known_one(key: str, hint: str) -> None:
    layer = ("initializationOptions", {key: "x"})
    parsed = parse(environment={}, layers=(layer, layer))
    assert parsed.settings == Settings()
    assert len(parsed.problems) == 1
    assert f"{key!r}" in parsed.problems[0]
    assert hint in parsed.problems[0]


def test_a_key_of_the_clients_own_library_is_left_alone() -> None:
    assert parse(environment={}, layers=(("client", {"trace": {"server": "off"}}),)).problems == ()


def test_the_token_comes_from_the_environment_alone() -> None:
    environment = {"DLSP_ENGINE_TOKEN": " key "}
    assert parse(environment=environment).settings.engine_token == "key"
    layer = {"engine_token": "k", "developer": {"engine_token": "k"}}
    parsed = parse(environment={}, layers=(("client", layer),))
    assert parsed.settings.engine_token is None
    assert len(parsed.problems) == 2


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("deadlineMs", "soon", "a number between"),
        ("deadlineMs", 0, "a number between"),
        ("deadlineMs", True, "a number between"),
        ("deadlineMs", float("nan"), "a number between"),
        ("deadlineMs", 10**400, "a number between"),
        ("memoryMb", 64.5, "a whole number"),
        ("mode", "fast", "automatic, manual"),
        ("mood", 7, "quiet, balanced, eager"),
        ("model", "  ", "a non-empty string"),
        ("languages", ["python"], "an object of names"),
        ("languages", {"python": "on"}, "an object of names"),
        ("paths", {"!": True}, "not a pattern"),
        ("context", ["tabs"], "open, imports, edits"),
        ("context", "open,tabs", "open, imports, edits"),
        ("context", [["open"]], "open, imports, edits"),
        ("engineUrl", "unix:/x", "http"),
        ("engineUrl", "https://[", "http"),
        ("logLevel", "loud", "debug, info"),
        ("multiLine", "maybe", "true or false"),
    ],
)
def test_a_bad_value_falls_back_to_the_default_and_is_said(
    name: str, value: object, expected: str
) -> None:
    parsed = parse(environment={}, layers=(("init", {name: value}),))
    assert parsed.settings == Settings()
    assert len(parsed.problems) == 1
    assert parsed.problems[0].startswith(f"init: {name} ")
    assert expected in parsed.problems[0]
    assert "using" in parsed.problems[0]


def test_a_bad_developer_value_is_named_with_its_place() -> None:
    parsed = parse(environment={}, layers=(("init", {"developer": {"max_tokens": 1.5}}),))
    assert parsed.settings.developer == Developer()
    assert parsed.problems[0].startswith("init: developer: max_tokens must be a whole number")


def test_a_bad_environment_variable_is_named() -> None:
    problems = parse(environment={"DLSP_MODE": "fast"}).problems
    assert len(problems) == 1
    assert problems[0].startswith("DLSP_MODE must be one of")


def test_a_layer_that_is_no_object_is_ignored() -> None:
    layers = (("init", ["model"]), ("client", None), ("other", {"developer": 3}))
    parsed = parse(environment={}, layers=layers)
    assert parsed.settings == Settings()
    assert len(parsed.problems) == 2


def test_null_means_not_set() -> None:
    parsed = parse(environment={"DLSP_MODEL": "m"}, layers=(("init", {"model": None}),))
    assert parsed.settings.model == "m"


def test_only_engine_settings_change_the_engine() -> None:
    base = Settings()
    other = dataclasses.replace(base, developer=Developer(decoding="ar"), mood="eager")
    assert other.engine_identity == base.engine_identity
    assert other.engine_limits == base.engine_limits
    assert dataclasses.replace(base, model="x").engine_identity != base.engine_identity
    assert dataclasses.replace(base, memory_mb=64).engine_limits != base.engine_limits

"""Settings: layers, bad values and unknown keys."""

from __future__ import annotations

import dataclasses

import pytest

from dlsp.settings import Settings, parse


def test_defaults_without_any_layer() -> None:
    assert parse(environment={}).settings == Settings()
    assert parse(environment={}).problems == ()


def test_later_layers_win() -> None:
    parsed = parse(
        environment={"DLSP_MODEL": "from-env", "DLSP_DEADLINE_MS": "300", "DLSP_DEBUG": "1"},
        layers=(("init", {"model": "from-init", "want": "block"}), ("client", {"want": "line"})),
    )
    found = parsed.settings
    assert (found.model, found.deadline_ms, found.want) == ("from-init", 300.0, "line")
    assert found.debug is True
    assert parsed.problems == ()


def test_an_unknown_key_is_named_once_with_the_known_ones() -> None:
    layer = ("initializationOptions", {"modle": "x"})
    parsed = parse(environment={}, layers=(layer, layer))
    assert len(parsed.problems) == 1
    assert "'modle'" in parsed.problems[0]
    assert "model" in parsed.problems[0]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("deadline_ms", "soon", "a number between"),
        ("deadline_ms", 0, "a number between"),
        ("deadline_ms", True, "a number between"),
        ("deadline_ms", float("nan"), "a number between"),
        ("max_tokens", 1.5, "a whole number"),
        ("mode", "fast", "verified, free, ar"),
        ("want", 7, "auto, line, block"),
        ("model", "  ", "a non-empty string"),
        ("engine_url", "unix:/x", "http"),
        ("log_level", "loud", "debug, info"),
        ("debug", "maybe", "true or false"),
    ],
)
def test_a_bad_value_falls_back_to_the_default_and_is_said(
    name: str, value: object, expected: str
) -> None:
    parsed = parse(environment={}, layers=(("init", {name: value}),))
    assert parsed.settings == Settings()
    assert len(parsed.problems) == 1
    assert parsed.problems[0].startswith(f"init: {name} must be ")
    assert expected in parsed.problems[0]
    assert "using" in parsed.problems[0]


def test_a_bad_environment_variable_is_named() -> None:
    problems = parse(environment={"DLSP_MODE": "fast"}).problems
    assert len(problems) == 1
    assert problems[0].startswith("DLSP_MODE must be one of")


def test_a_layer_that_is_no_object_is_ignored() -> None:
    parsed = parse(environment={}, layers=(("init", ["model"]), ("client", None)))
    assert parsed.settings == Settings()
    assert len(parsed.problems) == 1


def test_null_means_not_set() -> None:
    parsed = parse(environment={"DLSP_MODEL": "m"}, layers=(("init", {"model": None}),))
    assert parsed.settings.model == "m"


def test_only_engine_settings_change_the_engine() -> None:
    base = Settings()
    assert dataclasses.replace(base, mode="ar").engine_identity == base.engine_identity
    assert dataclasses.replace(base, model="x").engine_identity != base.engine_identity

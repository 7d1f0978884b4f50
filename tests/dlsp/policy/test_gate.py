"""Whether to ask, for how much, and how sure the answer must be."""

from __future__ import annotations

import pytest

from dlsp.policy.gate import LEAST_CONFIDENCE, MAX_CHARACTERS, Gate, Scene, decide, kind_of
from dlsp.text.edits import EditKind


def gate_at(
    prefix: str, suffix: str, *, invoked: bool = False, last_edit: EditKind = "typed"
) -> Gate:
    scene = Scene(prefix=prefix, suffix=suffix, language="python", last_edit=last_edit)
    return decide(scene, mode="automatic", mood="balanced", invoked=invoked)


@pytest.mark.parametrize("invoked", [True, False])
@pytest.mark.parametrize(
    ("prefix", "suffix", "want"),
    [
        ("def f():\n    ", "\n", "block"),
        ("def f():\n", "", "block"),
        ("", "\nx = 1\n", "block"),
        ("x = ", "\n", "line"),
        ("x = foo(", ")\n", "line"),
        ("    ", "x = 1\n", "line"),
        ("func f() {\n\t", "\n}\n", "block"),
        ("func f() {", "\n}\n", "line"),
    ],
)
def test_line_or_block(prefix: str, suffix: str, want: str, invoked: bool) -> None:
    assert gate_at(prefix, suffix, invoked=invoked).want == want


@pytest.mark.parametrize(
    ("prefix", "suffix", "last_edit", "reason"),
    [
        ("PNG\0\1", "", "typed", "binary"),
        ("x = ", "\0", "typed", "binary"),
        ("\0" + "x" * 20_000, "", "typed", "binary"),
        ("x" * MAX_CHARACTERS, "y", "typed", "huge file"),
        ("# a remark", "\n", "typed", "in a comment"),
        ("x = 'a", "'\n", "typed", "in a string"),
        ('"""Doc', '\n"""\n', "typed", "in a string"),
        ("x = ", "\n", "deleted", "after a deletion"),
        ("x = ", "\n", "undone", "after an undo"),
        ("x = か", "\n", "composed", "an input method composes"),
    ],
)
def test_silence_unless_invoked(prefix: str, suffix: str, last_edit: EditKind, reason: str) -> None:
    gate = gate_at(prefix, suffix, last_edit=last_edit)
    assert (gate.ask, gate.reason) == (False, reason)
    asked = gate_at(prefix, suffix, last_edit=last_edit, invoked=True)
    assert (asked.ask, asked.reason, asked.least_confidence) == (True, "invoked", 0.0)


def test_where_the_start_is_out_of_sight_only_the_line_counts() -> None:
    scene = Scene(prefix="b'''\nx = ", suffix="", language="python", whole=False)
    assert decide(scene, mode="automatic", mood="quiet", invoked=False).ask
    scene = Scene(prefix="'''\n# b", suffix="", language="python", whole=False)
    assert not decide(scene, mode="automatic", mood="eager", invoked=False).ask


def test_in_manual_mode_only_a_hand_asks() -> None:
    scene = Scene(prefix="x = foo(", suffix=")\n", language="python")
    assert not decide(scene, mode="manual", mood="eager", invoked=False).ask
    assert decide(scene, mode="manual", mood="eager", invoked=True).ask


@pytest.mark.parametrize(
    ("prefix", "suffix", "kind"),
    [
        ("x\n    ", "\n", "line"),
        ("x = ", "\n", "edge"),
        ("x.", ")\n", "edge"),
        ("", ")\n", "edge"),
        ("pri", "\n", "word"),
        ("pri", "nt()\n", "inside"),
        ("é", "é\n", "inside"),
        ("", "x = 1\n", "inside"),
    ],
)
def test_kinds_of_places(prefix: str, suffix: str, kind: str) -> None:
    assert kind_of(prefix, suffix) == kind


def test_inside_a_word_only_what_is_nearly_certain_is_shown() -> None:
    inside, edge = gate_at("pri", "nt(x)\n"), gate_at("print(", ")\n")
    assert inside.ask
    assert (inside.shows(0.8), inside.shows(0.97)) == (False, True)
    assert (edge.shows(0.8), edge.shows(0.2)) == (True, False)
    assert edge.shows(0.0), "an engine that says nothing of it is believed"


def test_a_quieter_mood_wants_to_be_surer() -> None:
    for moods in LEAST_CONFIDENCE.values():
        assert 0 < moods["eager"] < moods["balanced"] < moods["quiet"] < 1

"""The detail of an answer in words: each thing that decided is told, and only what is known."""

from __future__ import annotations

import dataclasses

import pytest

from dlsp.client.wire import BackendReply
from dlsp.diagnosis.why import explain
from dlsp.policy.gate import Gate
from dlsp.suggestion.reply import Answer, detail
from engine.request import EngineError, Sources, StageTimes

GATE = Gate(ask=True, want="line", kind="edge", reason="line", least_confidence=0.5)
REPLY = BackendReply(
    text="a + b", finish_reason="stop", model="m", mode="verified", tokens=3, forwards=2,
    sources=Sources(base=1, lookup=2), confidence=0.81, repaired=True,
    ms=StageTimes(encode=20.0, verify=12.0),
)  # fmt: skip


def words(answer: Answer) -> dict[str, str]:
    told = explain(detail(answer, total_ms=41.0))
    return dict(line.split(": ", 1) for line in told)


def test_a_suggestion() -> None:
    told = words(Answer(text="a + b", gate=GATE, reply=REPLY, syntax="ok", context_ms=3.0))
    assert told == {
        "shown": "5 characters on 1 line",
        "gate": "open for a line, asked while typing",
        "model": "m, verified, ended by stop; 3 tokens: 1 from the model itself, 2 from look-up in "
        "the file",
        "confidence": "0.81, and 0.50 is the least that is shown here",
        "syntax": "the document with it in place has no new error, after a repair",
        "privacy": "the text went to the engine on this machine, over a private socket",
        "timing": "41 ms in all: context 3, encode 20, verify 12",
    }


def test_where_the_text_went() -> None:
    far = dataclasses.replace(REPLY, backend="http")
    elsewhere = explain(detail(Answer(reply=far), total_ms=1.0), "https://engine.example")
    assert "privacy: the text went to https://engine.example, which the settings name" in elsewhere
    assert words(Answer(reply=far))["privacy"].endswith("on this machine, over loopback")
    known = dataclasses.replace(REPLY, backend="memory")
    assert words(Answer(reply=known))["privacy"].startswith("nothing left the language server")


@pytest.mark.parametrize(
    ("answer", "key", "told"),
    [
        (Answer(reason="paused"), "nothing shown", "paused"),
        (Answer(reason="paused"), "gate", "the request did not come that far"),
        (Answer(reason="paused"), "privacy", "nothing left the language server"),
        (Answer(reason="paused"), "model", "not asked"),
        (Answer(error=EngineError("no memory")), "nothing shown", "no memory"),
        (Answer(gate=Gate(ask=False, want="line", kind="edge", reason="in a comment")), "gate",
         "silent here (in a comment)"),
        (Answer(gate=Gate(ask=True, want="block", kind="line", reason="invoked")), "gate",
         "open for a block, asked by hand"),
        (Answer(reply=REPLY, reason="breaks the syntax", syntax="broken"), "syntax",
         "it would have broken the document, after a repair"),
        (Answer(reply=REPLY), "nothing shown", "the model had nothing to add"),
    ],
)  # fmt: skip
def test_silence_says_why(answer: Answer, key: str, told: str) -> None:
    assert words(answer)[key] == told

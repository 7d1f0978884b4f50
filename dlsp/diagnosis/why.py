"""Why something was shown or not: the detail of one answer in words.

Pure: the JSON that `reply.detail` makes in, sentences out. Does not know how it came about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SYNTAX = {
    "ok": "the document with it in place has no new error",
    "broken": "it would have broken the document",
    "unknown": "not judged: there is no grammar for this language, or the file is too broken",
}
_STAGES = ("context", "queue", "encode", "denoise", "verify", "syntax")
_SOURCES = {
    "base": "the model itself",
    "lookup": "look-up in the file",
    "denoiser": "the denoiser",
    "memory": "an earlier suggestion",
}


def explain(detail: Mapping[str, Any], engine_url: str | None = None) -> list[str]:
    """A sentence for each thing that decided: gate, model, confidence, syntax, privacy, time.

    `engine_url` is the address of an engine elsewhere, where the settings name one.
    """
    return [
        *_outcome(detail),
        *_gate(detail),
        *_model(detail),
        _place(detail, engine_url),
        _time(detail),
    ]


def _outcome(detail: Mapping[str, Any]) -> Iterator[str]:
    text = detail["text"]
    if text:
        lines = text.count("\n") + 1
        yield f"shown: {_count(len(text), 'character')} on {_count(lines, 'line')}"
    elif detail.get("error"):
        yield f"nothing shown: {detail['error']['message']}"
    else:
        yield f"nothing shown: {detail.get('reason') or 'the model had nothing to add'}"


def _gate(detail: Mapping[str, Any]) -> Iterator[str]:
    gate = detail.get("gate")
    if gate is None:
        yield "gate: the request did not come that far"
    elif not gate["ask"]:
        yield f"gate: silent here ({gate['reason']})"
    else:
        how = "by hand" if gate["reason"] == "invoked" else "while typing"
        yield f"gate: open for a {gate['want']}, asked {how}"


def _model(detail: Mapping[str, Any]) -> Iterator[str]:
    if not detail.get("model"):
        yield "model: not asked"
        return
    sources = [
        f"{count} from {_SOURCES.get(name, name)}"
        for name, count in detail["from"].items()
        if count
    ]
    yield (
        f"model: {detail['model']}, {detail['mode']}, ended by {detail['finish_reason']}; "
        f"{_count(detail['tokens'], 'token')}" + (f": {', '.join(sources)}" if sources else "")
    )
    confidence, gate = detail.get("confidence"), detail.get("gate")
    if confidence:
        least = gate["least_confidence"] if gate else 0.0
        asked = f", and {least:.2f} is the least that is shown here" if least else ""
        yield f"confidence: {confidence:.2f}{asked}"
    repaired = ", after a repair" if detail.get("repaired") else ""
    yield f"syntax: {_SYNTAX.get(detail['syntax'], detail['syntax'])}{repaired}"


def _place(detail: Mapping[str, Any], engine_url: str | None) -> str:
    backend = detail.get("backend")
    if backend == "memory":
        return "privacy: nothing left the language server: it remembered an earlier suggestion"
    if backend is None:
        return "privacy: nothing left the language server"
    if engine_url is not None:
        return f"privacy: the text went to {engine_url}, which the settings name"
    way = "a private socket" if backend == "unix" else "loopback"
    return f"privacy: the text went to the engine on this machine, over {way}"


def _time(detail: Mapping[str, Any]) -> str:
    ms = detail["ms"]
    stages = [f"{name} {ms[name]:.0f}" for name in _STAGES if ms.get(name, 0.0) >= 0.5]
    split = f": {', '.join(stages)}" if stages else ""
    return f"timing: {ms['total']:.0f} ms in all{split}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

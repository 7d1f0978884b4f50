"""The JSON of the wire: a request's fields in, a result's fields out.

Knows the public shape of the API and checks every type by hand. Does not know HTTP or the model.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from engine.request import BadRequest, EngineError, InfillRequest, InfillResult, Snippet

#: Keys under `dlsp`. An unknown one is refused, so that a misspelt option is noticed.
_EXTENSIONS = (
    "deadline_ms", "language", "path", "seed", "want", "mode", "explain", "syntax", "steps",
    "threshold", "patience_ms", "guess", "snippets", "idle", "policy", "strength", "left_bias",
    "remask", "length", "slots", "exact",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A checked request: what to fill, whether to stream, and which model was asked for."""

    infill: InfillRequest
    stream: bool
    model: str | None


def parse_completion(body: bytes) -> Completion:
    """Check a request body; top-level keys of other clients that we do not use are ignored."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not valid JSON in UTF-8") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a JSON object")
    if "prompt" not in fields:
        raise BadRequest("the key 'prompt' is missing: the text before the cursor")
    if fields.get("n") not in (None, 1):
        raise BadRequest("n must be 1: one completion is made per request")
    extensions = _extensions(fields)
    optional = {
        "max_tokens": _whole(fields, "max_tokens"),
        "temperature": _number(fields, "temperature"),
        "stop": _stop(fields.get("stop")),
        "want": _text(extensions, "want"),
        "mode": _text(extensions, "mode"),
        "syntax": _switch(extensions, "syntax"),
        "steps": _whole(extensions, "steps"),
        "threshold": _number(extensions, "threshold"),
        "patience_ms": _number(extensions, "patience_ms"),
        "guess": _text(extensions, "guess"),
        "snippets": _snippets(extensions.get("snippets")),
        "idle": _switch(extensions, "idle"),
        "policy": _text(extensions, "policy"),
        "strength": _number(extensions, "strength"),
        "left_bias": _number(extensions, "left_bias"),
        "remask": _text(extensions, "remask"),
        "length": _text(extensions, "length"),
        "slots": _whole(extensions, "slots"),
        "exact": _switch(extensions, "exact"),
    }
    seed = _whole(extensions, "seed")
    given: dict[str, Any] = {name: value for name, value in optional.items() if value is not None}
    infill = InfillRequest(
        prefix=_text(fields, "prompt") or "",
        suffix=_text(fields, "suffix") or "",
        seed=_whole(fields, "seed") if seed is None else seed,
        language=_text(extensions, "language"),
        path=_text(extensions, "path"),
        deadline_ms=_number(extensions, "deadline_ms"),
        **given,
    )
    return Completion(
        infill=infill, stream=bool(_switch(fields, "stream")), model=_text(fields, "model")
    )


def _extensions(fields: dict[str, Any]) -> dict[str, Any]:
    extensions = fields.get("dlsp")
    if extensions is None:
        return {}
    if not isinstance(extensions, dict):
        raise BadRequest("dlsp must be an object")
    for name in extensions:
        if name not in _EXTENSIONS:
            raise BadRequest(f"dlsp.{name} is unknown; known are {', '.join(_EXTENSIONS)}")
    _switch(extensions, "explain")
    return extensions


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None and name != "prompt":
        return None
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{name} holds half a surrogate pair, which is not text") from None
    return value


def _number(fields: dict[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{name} must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadRequest(f"{name} must be a finite number")
    return number


def _whole(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise BadRequest(f"{name} must be a whole number")
    return value


def _switch(fields: dict[str, Any], name: str) -> bool | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false")
    return value


def _snippets(value: object) -> tuple[Snippet, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadRequest("snippets must be a list of objects with path and text")
    return tuple(
        Snippet(path=_text(item, "path") or "", text=_text(item, "text") or "") for item in value
    )


def _stop(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadRequest("stop must be a string or a list of strings")
    return tuple(text for text in texts if text)


def render_error(error: EngineError) -> dict[str, Any]:
    """The error object that FIM clients know."""
    return {"error": {"message": str(error), "type": type(error).__name__, "code": error.code}}


def render_chunk(head: dict[str, Any], text: str, finish_reason: str | None) -> dict[str, Any]:
    """One choice under the common head; the shape of whole answers and of streamed parts."""
    choice = {"index": 0, "text": text, "finish_reason": finish_reason}
    return {**head, "object": "text_completion", "choices": [choice]}


def render_figures(result: InfillResult) -> dict[str, Any]:
    """`usage` as every client knows it, and our own figures under `dlsp`."""
    sources, ms = result.sources, result.ms
    return {
        "usage": {
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": result.tokens,
            "total_tokens": result.prompt_tokens + result.tokens,
            "cached_input_tokens": result.cached_tokens,
        },
        "dlsp": {
            "mode": result.mode,
            "tokens": result.tokens,
            "forwards": result.forwards,
            "tokens_per_forward": result.tokens_per_forward,
            "from": {
                "base": sources.base,
                "lookup": sources.lookup,
                "denoiser": sources.denoiser,
                "memory": sources.memory,
            },
            "steps": result.steps,
            "near_ties": result.near_ties,
            "syntax": result.syntax,
            "repaired": result.repaired,
            "confidence": result.confidence,
            "kernels": result.kernels,
            "graphs": result.graphs,
            "ms": {
                "queue": ms.queue,
                "encode": ms.encode,
                "denoise": ms.denoise,
                "verify": ms.verify,
                "syntax": ms.syntax,
                "total": ms.total,
            },
        },
    }

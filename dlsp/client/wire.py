"""The JSON of the wire as a client sees it: a request out, a reply or an error in.

Reads the answers of any FIM server: what a foreign one does not say is zero. Does not know HTTP
connections or engine processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from engine.request import (
    BadRequest,
    DownloadError,
    EndpointError,
    EngineError,
    InfillRequest,
    InfillResult,
    Mode,
    Sources,
    StageTimes,
    UnknownModel,
    WeightsError,
)

_ERRORS = (BadRequest, UnknownModel, WeightsError, DownloadError, EndpointError)
_REASONS = ("stop", "length", "deadline", "cancelled", "syntax", "empty")
_VERDICTS = ("ok", "broken", "unknown")


class RemoteError(EngineError):
    """The engine answered with an error, or with something that is not an answer."""

    code, http_status, exit_code = "remote_error", 502, 6


class EngineClosing(EngineError):
    """The engine is finishing; another one has to be found."""

    code, http_status, exit_code = "closing", 503, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReply(InfillResult):
    """A result and the way it came: `unix` or `http`."""

    backend: str = "unix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What an engine says of itself; a foreign server may say nothing but `ready`."""

    status: str = "ready"
    message: str = ""
    version: str | None = None
    wire_version: int | None = None
    model: str | None = None
    weights: str | None = None
    pid: int | None = None
    clients: int = 0
    progress: tuple[str, int, int] | None = None


def render_request(request: InfillRequest, model: str | None, *, extended: bool) -> dict[str, Any]:
    """The body of a completion request; foreign servers get no key that they may refuse."""
    fields: dict[str, Any] = {
        "prompt": request.prefix,
        "suffix": request.suffix,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stream": False,
    }
    if model is not None:
        fields["model"] = model
    if request.stop:
        fields["stop"] = list(request.stop)
    if extended:
        fields["dlsp"] = {
            "deadline_ms": request.deadline_ms,
            "language": request.language,
            "path": request.path,
            "seed": request.seed,
            "want": request.want,
            "mode": request.mode,
            "syntax": request.syntax,
            "patience_ms": request.patience_ms,
            "guess": request.guess,
            "snippets": [{"path": s.path, "text": s.text} for s in request.snippets],
            "idle": request.idle,
        }
    return fields


def parse_reply(body: object, request: InfillRequest, backend: str) -> BackendReply:
    """The reply in an answer's body."""
    fields = _mapping(body)
    choices = fields.get("choices")
    choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    # a few FIM endpoints answer in the shape of a chat
    text = choice.get("text", _mapping(choice.get("message")).get("content"))
    if not isinstance(text, str):
        raise RemoteError("the engine's answer holds no choices[0].text; is it a FIM endpoint?")
    usage, ours = _mapping(fields.get("usage")), _mapping(fields.get("dlsp"))
    sources, ms = _mapping(ours.get("from")), _mapping(ours.get("ms"))
    return BackendReply(
        text=text,
        finish_reason=_one_of(choice.get("finish_reason"), _REASONS, "stop" if text else "empty"),
        model=str(fields.get("model") or "unknown"),
        mode=_one_of(ours.get("mode"), get_args(Mode), request.mode),
        tokens=_count(ours.get("tokens", usage.get("completion_tokens"))),
        forwards=_count(ours.get("forwards")),
        steps=_count(ours.get("steps")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(usage.get("cached_input_tokens")),
        near_ties=_count(ours.get("near_ties")),
        sources=Sources(
            base=_count(sources.get("base")),
            lookup=_count(sources.get("lookup")),
            denoiser=_count(sources.get("denoiser")),
            memory=_count(sources.get("memory")),
        ),
        syntax=_one_of(ours.get("syntax"), _VERDICTS, "unknown"),
        repaired=ours.get("repaired") is True,
        confidence=_real(ours.get("confidence")),
        ms=_stage_times(ms),
        backend=backend,
    )


def _stage_times(ms: Mapping[str, Any]) -> StageTimes:
    return StageTimes(
        queue=_real(ms.get("queue")),
        encode=_real(ms.get("encode")),
        denoise=_real(ms.get("denoise")),
        verify=_real(ms.get("verify")),
        syntax=_real(ms.get("syntax")),
        total=_real(ms.get("total")),
    )


def parse_error(status: int, body: object) -> EngineError:
    """The error of an answer, as the class it left the engine with where we know it."""
    error = _mapping(_mapping(body).get("error"))
    code, message = error.get("code"), error.get("message")
    line = " ".join(str(message).split()) if message else f"the engine answered with HTTP {status}"
    if code == EngineClosing.code:
        return EngineClosing(line)
    for known in _ERRORS:
        if code == known.code:
            return known(line)
    if status in (401, 403):
        return RemoteError(f"the engine refuses the token (HTTP {status}): {line}")
    return RemoteError(line)


def parse_health(body: object) -> Health:
    """The answer of /health."""
    fields = _mapping(body)
    progress = _mapping(fields.get("progress"))
    return Health(
        status=str(fields.get("status") or "ready"),
        message=str(fields.get("message") or ""),
        version=fields.get("version"),
        wire_version=fields.get("wire_version"),
        model=fields.get("model"),
        weights=fields.get("weights"),
        pid=fields.get("pid") if isinstance(fields.get("pid"), int) else None,
        clients=_count(fields.get("clients")),
        progress=(
            (str(progress.get("what")), _count(progress.get("done")), _count(progress.get("total")))
            if progress
            else None
        ),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return int(_real(value))


def _real(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0.0


def _one_of(value: object, known: tuple[str, ...], otherwise: str) -> Any:
    return value if value in known else otherwise

"""The request and answer of each kind of engine, as JSON: ours, any FIM endpoint, llama-server.

`Own` says everything; the others get what they know: snippets as comments or as files, a stop at
the line's end where one line is wanted, and no more text than their context holds. Does not know
connections, retries or keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dlsp.client.wire import BackendReply, RemoteError, parse_reply, render_request
from engine.request import InfillRequest, StageTimes
from engine.syntax import comment_out, lead

FIM_PATH = "/v1/fim/completions"
INFILL_PATH = "/infill"
#: Code points before and after the cursor that an engine elsewhere gets: some 4,000 tokens.
PREFIX_CHARACTERS, SUFFIX_CHARACTERS = 12_000, 4_000
#: FIM endpoints take so many stop strings.
_MOST_STOPS = 4


class Dialect(Protocol):
    """How an engine is asked, and its answer read."""

    @property
    def path(self) -> str: ...
    def render(self, request: InfillRequest, model: str | None) -> dict[str, Any]: ...
    def parse(self, body: object, request: InfillRequest, backend: str) -> BackendReply: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Our engine, here or elsewhere."""

    path: str = FIM_PATH

    def render(self, request: InfillRequest, model: str | None) -> dict[str, Any]:
        return render_request(request, model, extended=True)

    def parse(self, body: object, request: InfillRequest, backend: str) -> BackendReply:
        return parse_reply(body, request, backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fim:
    """Any FIM endpoint; it gets no key that it may refuse."""

    path: str = FIM_PATH

    def render(self, request: InfillRequest, model: str | None) -> dict[str, Any]:
        asked = _narrowed(request, PREFIX_CHARACTERS)
        shown = "".join(
            comment_out(f"{snippet.path}\n{snippet.text}", request.language)
            for snippet in request.snippets
        )
        return render_request(
            replace(asked, prefix=shown + asked.prefix, snippets=()), model, extended=False
        )

    def parse(self, body: object, request: InfillRequest, backend: str) -> BackendReply:
        return parse_reply(body, request, backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaServer:
    """llama-server's `/infill`; `context_tokens` is what one of its slots holds, if it said so."""

    path: str = INFILL_PATH
    context_tokens: int | None = None

    def render(self, request: InfillRequest, model: str | None) -> dict[str, Any]:
        del model  # it serves the one it was started with
        # Half of the context for the prefix, at two characters a token at the worst.
        room = min(PREFIX_CHARACTERS, self.context_tokens or PREFIX_CHARACTERS)
        asked = _narrowed(request, room)
        above, _, line = asked.prefix.rpartition("\n")
        fields: dict[str, Any] = {
            "input_prefix": f"{above}\n" if above or asked.prefix.startswith("\n") else "",
            "input_suffix": asked.suffix,
            # behind its marker for the middle, so that typing keeps what it has cached
            "prompt": line,
            "input_extra": [{"filename": s.path, "text": s.text} for s in request.snippets],
            "n_predict": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(asked.stop),
            "stream": False,
            "cache_prompt": True,
        }
        if request.seed is not None:
            fields["seed"] = request.seed
        if request.deadline_ms is not None:
            fields["t_max_predict_ms"] = int(request.deadline_ms)
        return fields

    def parse(self, body: object, request: InfillRequest, backend: str) -> BackendReply:
        fields: Mapping[str, Any] = body if isinstance(body, dict) else {}
        text = fields.get("content")
        if not isinstance(text, str):
            raise RemoteError("the answer holds no content; is it a llama-server's /infill?")
        timings = fields.get("timings")
        ms: Mapping[str, Any] = timings if isinstance(timings, dict) else {}
        encoded, generated = _number(ms.get("prompt_ms")), _number(ms.get("predicted_ms"))
        tokens = int(_number(fields.get("tokens_predicted")))
        cut = fields.get("stop_type") == "limit" or fields.get("stopped_limit") is True
        prompt = int(_number(fields.get("tokens_evaluated")))
        return BackendReply(
            text=text,
            finish_reason=("length" if cut else "stop") if text else "empty",
            model=_model_name(fields.get("model")),
            mode="ar",
            tokens=tokens,
            forwards=tokens,
            prompt_tokens=prompt,
            cached_tokens=max(prompt - int(_number(ms.get("prompt_n"))), 0),
            ms=StageTimes(encode=encoded, verify=generated, total=encoded + generated),
            backend=backend,
        )


def _narrowed(request: InfillRequest, room: int) -> InfillRequest:
    """No more text than fits, a prefix that is cut with its imports and headers on top; and an end
    at the line's end, where one line is wanted."""
    prefix, suffix = request.prefix, request.suffix[: min(SUFFIX_CHARACTERS, room // 3)]
    if len(prefix) > room:
        cut = len(prefix) - room * 2 // 3
        start = prefix.find("\n", cut) + 1 or cut
        top = lead(prefix + request.suffix, start, request.language)
        while len(top) > room // 3:
            top = top.partition("\n")[2]
        prefix = top + prefix[start:]
    stop = request.stop
    if request.want == "line" and "\n" not in stop:
        stop = ("\n", *stop)
    return replace(request, prefix=prefix, suffix=suffix, stop=stop[:_MOST_STOPS])


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0.0


def _model_name(value: object) -> str:
    """The file's name where a whole path is given: the rest is about their machine."""
    return str(value or "llama-server").replace("\\", "/").rpartition("/")[2]

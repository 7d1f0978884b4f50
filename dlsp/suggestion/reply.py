"""An answer as the client gets it: the LSP list, and the detail that `dlsp/why` returns.

Knows LSP shapes; does not know how the answer came about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lsprotocol import types as lsp

from dlsp.client.backend import BackendReply
from dlsp.policy.gate import Gate
from dlsp.suggestion.memory import Suggestion
from dlsp.text.lines import to_lf
from engine.request import EngineError, InfillRequest, StageTimes

ACCEPTED_COMMAND = "dlsp.accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one request. Without `text` there is nothing to show, and `reason` says why.

    `range` is what accepting replaces, in the client's units; `request` what the engine was asked.
    `suggestion` is the same in terms of the text around it.
    """

    text: str = ""
    range: lsp.Range | None = None
    reason: str | None = None
    gate: Gate | None = None
    request: InfillRequest | None = None
    reply: BackendReply | None = None
    syntax: str = "unknown"
    error: EngineError | None = None
    suggestion: Suggestion | None = None
    context_ms: float = 0.0
    verdict_ms: float = 0.0


def inline_completions(
    answer: Answer, suggestion_id: str | None = None
) -> lsp.InlineCompletionList | None:
    """One item with its range, or null. Clients split an insertion at LF only.

    Clients that run an item's command after inserting it tell us so what was accepted.
    """
    if not answer.text or answer.range is None:
        return None
    text = to_lf(answer.text)
    accepted = lsp.Command(title="", command=ACCEPTED_COMMAND, arguments=[suggestion_id])
    item = lsp.InlineCompletionItem(
        insert_text=text, range=answer.range, command=accepted if suggestion_id else None
    )
    return lsp.InlineCompletionList(items=[item])


def detail(answer: Answer, *, total_ms: float) -> dict[str, Any]:
    """The whole story of one answer, as plain JSON."""
    reply = answer.reply
    ms = reply.ms if reply else StageTimes()
    sources = reply.sources if reply else None
    return {
        "text": answer.text,
        "range": _plain_range(answer.range),
        "model": reply.model if reply else None,
        "mode": reply.mode if reply else None,
        "tokens": reply.tokens if reply else 0,
        "forwards": reply.forwards if reply else 0,
        "tokens_per_forward": round(reply.tokens_per_forward, 3) if reply else 0.0,
        "from": {
            "base": sources.base if sources else 0,
            "lookup": sources.lookup if sources else 0,
            "denoiser": sources.denoiser if sources else 0,
            "memory": sources.memory if sources else 0,
        },
        "steps": reply.steps if reply else 0,
        "finish_reason": reply.finish_reason if reply else "empty",
        "syntax": answer.syntax,
        "repaired": reply.repaired if reply else False,
        "backend": reply.backend if reply else None,
        "ms": {
            "context": round(answer.context_ms, 3),
            "queue": round(ms.queue, 3),
            "encode": round(ms.encode, 3),
            "denoise": round(ms.denoise, 3),
            "verify": round(ms.verify, 3),
            "syntax": round(ms.syntax + answer.verdict_ms, 3),
            "total": round(total_ms, 3),
        },
        "gate": _plain_gate(answer.gate),
        "confidence": round(reply.confidence, 4) if reply else None,
        "reason": answer.reason,
        "error": _plain_error(answer.error),
    }


def _plain_range(where: lsp.Range | None) -> dict[str, Any] | None:
    if where is None:
        return None
    return {
        "start": {"line": where.start.line, "character": where.start.character},
        "end": {"line": where.end.line, "character": where.end.character},
    }


def _plain_gate(gate: Gate | None) -> dict[str, Any] | None:
    if gate is None:
        return None
    return {
        "ask": gate.ask,
        "want": gate.want,
        "reason": gate.reason,
        "least_confidence": gate.least_confidence,
    }


def _plain_error(error: EngineError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"code": error.code, "message": str(error), "exit_code": error.exit_code}

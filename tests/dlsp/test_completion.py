"""The path of one request, with an engine that answers what the test says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from lsprotocol import types as lsp

from dlsp.backend import Backend, BackendReply
from dlsp.completion import Ask, complete
from dlsp.context import gather
from dlsp.document import Document, Documents, Encoding
from dlsp.reply import Answer, detail, inline_completions
from dlsp.settings import Settings
from engine.request import InfillRequest, Sources, StageTimes, WeightsError

URI = "file:///project/file.py"


class FakeBackend:
    """Answers every request with one text, after doing what happens meanwhile."""

    def __init__(self, text: str = "", meanwhile: Callable[[], None] = lambda: None) -> None:
        self.text = text
        self.meanwhile = meanwhile
        self.requests: list[InfillRequest] = []
        self.wait_ms: list[float | None] = []

    async def complete(
        self, request: InfillRequest, *, wait_ms: float | None = None
    ) -> BackendReply:
        self.requests.append(request)
        self.wait_ms.append(wait_ms)
        await asyncio.sleep(0)
        self.meanwhile()
        return BackendReply(
            text=self.text, finish_reason="stop", model="fake", mode=request.mode, tokens=6,
            forwards=4, steps=5, sources=Sources(base=3, lookup=1, denoiser=2),
            ms=StageTimes(queue=1, encode=2, denoise=3, verify=4, syntax=5, total=15),
            backend="unix",
        )  # fmt: skip


def opened(text: str, uri: str = URI, encoding: Encoding = "utf-16") -> Documents:
    documents = Documents(root_uri=None, folders=(), encoding=encoding)
    documents.put_text_document(
        lsp.TextDocumentItem(uri=uri, language_id="python", version=1, text=text)
    )
    return documents


def ask_at(line: int, character: int, uri: str = URI) -> Ask:
    return Ask(
        uri=uri,
        position=lsp.Position(line=line, character=character),
        invoked=True,
        received=time.perf_counter(),
    )


def answer(ask: Ask, documents: Documents, backend: FakeBackend, **changes: Any) -> Answer:
    return asyncio.run(
        complete(
            ask,
            documents=documents,
            backend=cast(Backend, backend),
            settings=Settings(**changes),
        )
    )


def test_a_suggestion_goes_through_every_station() -> None:
    backend = FakeBackend("one + two")
    found = answer(ask_at(1, 11), opened("def add(one, two):\n    return \n"), backend)
    assert found.text == "one + two"
    assert found.syntax == "ok"
    [request] = backend.requests
    assert request.prefix == "def add(one, two):\n    return "
    assert request.suffix == "\n"
    assert (request.language, request.path) == ("python", "/project/file.py")
    assert request.deadline_ms is not None
    assert 0 < request.deadline_ms <= Settings().deadline_ms
    replied = inline_completions(found)
    assert replied is not None
    [item] = replied.items
    assert item.insert_text == "one + two"
    here = lsp.Position(line=1, character=11)
    assert item.range == lsp.Range(start=here, end=here)


def test_settings_reach_the_request() -> None:
    backend = FakeBackend("1")
    documents = opened("x = ")
    answer(ask_at(0, 4), documents, backend, want="block", mode="ar", max_tokens=7, start_wait_ms=9)
    [request] = backend.requests
    assert (request.want, request.mode, request.max_tokens) == ("block", "ar", 7)
    assert backend.wait_ms == [9]


def test_a_closer_the_editor_inserted_is_covered_by_the_range() -> None:
    found = answer(ask_at(0, 9), opened('print("é")\n'), FakeBackend(', "x")'))
    replied = inline_completions(found)
    assert replied is not None
    [item] = replied.items
    kept = 'print("é"' + str(item.insert_text)
    assert item.range is not None
    assert kept + 'print("é")\n'[item.range.end.character :] == 'print("é", "x")\n'


def test_text_that_breaks_the_document_is_not_shown() -> None:
    found = answer(ask_at(0, 4), opened("x = \ny = 1\n"), FakeBackend(") ]"))
    assert found.text == ""
    assert found.reason
    assert inline_completions(found) is None


def change(documents: Documents) -> None:
    documents.update_text_document(
        lsp.VersionedTextDocumentIdentifier(uri=URI, version=2),
        lsp.TextDocumentContentChangeWholeDocument(text="x = 2"),
    )


def close_and_reopen(documents: Documents) -> None:
    documents.remove_text_document(URI)
    documents.put_text_document(
        lsp.TextDocumentItem(uri=URI, language_id="python", version=1, text="x = ")
    )


@pytest.mark.parametrize("meanwhile", [change, close_and_reopen])
def test_an_answer_to_a_text_that_is_gone_is_null(
    meanwhile: Callable[[Documents], None],
) -> None:
    documents = opened("x = ")
    found = answer(ask_at(0, 4), documents, FakeBackend("1", lambda: meanwhile(documents)))
    assert inline_completions(found) is None
    assert "changed" in str(found.reason)


def test_a_document_that_is_not_open_asks_nobody() -> None:
    backend = FakeBackend("1")
    found = answer(ask_at(0, 0, "file:///other.py"), opened("x"), backend)
    assert (inline_completions(found), backend.requests) == (None, [])


def test_an_engine_error_comes_out_as_itself() -> None:
    def fail() -> None:
        raise WeightsError("the weights are corrupt; delete them")

    with pytest.raises(WeightsError):
        answer(ask_at(0, 4), opened("x = "), FakeBackend("1", fail))


def test_an_empty_answer_says_why() -> None:
    found = answer(ask_at(0, 4), opened("x = "), FakeBackend(""))
    assert inline_completions(found) is None
    assert found.reason


def test_without_a_grammar_it_still_completes_and_says_unknown() -> None:
    uri = "file:///notes.unheard-of"
    documents = Documents(root_uri=None, folders=(), encoding="utf-16")
    documents.put_text_document(
        lsp.TextDocumentItem(uri=uri, language_id="", version=1, text="dear ")
    )
    found = answer(ask_at(0, 5, uri), documents, FakeBackend("reader"))
    assert (found.text, found.syntax) == ("reader", "unknown")


def test_insertions_have_lf_only() -> None:
    here = lsp.Position(line=0, character=0)
    replied = inline_completions(Answer(text="a\r\nb\rc", range=lsp.Range(start=here, end=here)))
    assert replied is not None
    assert replied.items[0].insert_text == "a\nb\nc"


def test_detail_tells_tokens_sources_and_times() -> None:
    found = answer(ask_at(0, 4), opened("x = "), FakeBackend("1"))
    told = detail(found, total_ms=20.5)
    assert told["text"] == "1"
    assert told["from"] == {"base": 3, "lookup": 1, "denoiser": 2}
    assert (told["tokens"], told["forwards"], told["tokens_per_forward"]) == (6, 4, 1.5)
    assert (told["ms"]["queue"], told["ms"]["total"]) == (1, 20.5)
    assert told["ms"]["syntax"] >= 5
    assert told["backend"] == "unix"
    assert told["range"]["start"] == {"line": 0, "character": 4}


def test_detail_of_a_failure() -> None:
    error = WeightsError("corrupt")
    told = detail(Answer(reason="corrupt", error=error), total_ms=1.0)
    assert told["error"] == {"code": "weights", "message": "corrupt", "exit_code": 3}
    assert (told["text"], told["range"], told["tokens"]) == ("", None, 0)


def test_context_is_bounded_and_starts_at_a_line() -> None:
    document = Document(
        uri=URI, text="line\n" * 1000 + "here|after\n" + "tail\n" * 1000, encoding="utf-8",
        version=1, language_id="",
    )  # fmt: skip
    context = gather(document, lsp.Position(line=1000, character=4), limit=52)
    assert context.prefix == "line\n" * 9 + "here"
    assert context.suffix == ("|after\n" + "tail\n" * 1000)[:52]


def test_half_a_surrogate_pair_can_travel() -> None:
    document = Document(uri=URI, text="a\ud83d\nb", encoding="utf-16", version=1, language_id="")
    context = gather(document, lsp.Position(line=1, character=1))
    assert context.prefix.encode() == "a\ufffd\nb".encode()

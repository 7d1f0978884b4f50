"""The path of one request, with an engine that answers what the test says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from lsprotocol import types as lsp

from dlsp.client.backend import Backend, BackendReply
from dlsp.completion import PATIENCE_MS, Ask, Desk, complete
from dlsp.config.settings import Developer, Settings
from dlsp.context.sides import gather
from dlsp.suggestion.reply import Answer, detail, inline_completions
from dlsp.text.document import Document, Documents, Encoding
from engine.request import InfillRequest, Sources, StageTimes, WeightsError

URI = "file:///project/file.py"


class FakeBackend:
    """Answers every request with one text, after doing what happens meanwhile."""

    def __init__(
        self,
        text: str = "",
        meanwhile: Callable[[], None] = lambda: None,
        *,
        confidence: float = 0.9,
        finish_reason: Any = "stop",
    ) -> None:
        self.text = text
        self.confidence = confidence
        self.finish_reason = finish_reason
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
            text=self.text, finish_reason=self.finish_reason, model="fake", mode=request.mode,
            tokens=6, forwards=4, steps=5, sources=Sources(base=3, lookup=1, denoiser=2),
            ms=StageTimes(queue=1, encode=2, denoise=3, verify=4, syntax=5, total=15),
            backend="unix", confidence=self.confidence,
        )  # fmt: skip


def opened(text: str, uri: str = URI, encoding: Encoding = "utf-16") -> Documents:
    documents = Documents(root_uri=None, folders=(), encoding=encoding)
    documents.put_text_document(
        lsp.TextDocumentItem(uri=uri, language_id="python", version=1, text=text)
    )
    return documents


def ask_at(line: int, character: int, uri: str = URI, *, invoked: bool = True) -> Ask:
    return Ask(
        uri=uri,
        position=lsp.Position(line=line, character=character),
        invoked=invoked,
        received=time.perf_counter(),
    )


def desk(documents: Documents, backend: FakeBackend, **changes: Any) -> Desk:
    return Desk(documents=documents, backend=cast(Backend, backend), settings=Settings(**changes))


def answer(ask: Ask, documents: Documents, backend: FakeBackend, **changes: Any) -> Answer:
    return asyncio.run(complete(ask, desk(documents, backend, **changes)))


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
    developer = Developer(want="block", decoding="ar", max_tokens=7, start_wait_ms=9)
    answer(ask_at(0, 4), documents, backend, developer=developer)
    [request] = backend.requests
    assert (request.want, request.mode, request.max_tokens) == ("block", "ar", 7)
    assert backend.wait_ms == [9]


def test_secrets_are_blanked_and_private_or_switched_off_files_are_silent() -> None:
    backend = FakeBackend("1")
    answer(ask_at(1, 4), opened("password = 'hunter22!'\nx = "), backend)
    assert backend.requests[0].prefix == "password = 'xxxxxxxx!'\nx = "

    env = "file:///project/.env"
    silent = answer(ask_at(0, 2, env), opened("A=", env), backend)
    assert silent.reason == "privacy: .env is, by its name, an environment file"
    silent = answer(ask_at(0, 4), opened("x = "), backend, languages={"python": False})
    assert silent.reason is not None and "'languages'" in silent.reason
    silent = answer(ask_at(0, 4), opened("x = "), backend, paths={"*.py": False})
    assert silent.reason is not None and "'paths'" in silent.reason
    assert len(backend.requests) == 1


def test_without_multi_line_a_block_is_never_asked_for() -> None:
    for multi_line, want in ((True, "block"), (False, "line")):
        backend = FakeBackend("pass")
        answer(ask_at(1, 0), opened("if x:\n"), backend, multi_line=multi_line)
        assert backend.requests[0].want == want


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
    assert told["from"] == {"base": 3, "lookup": 1, "denoiser": 2, "memory": 0}
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


def type_at(documents: Documents, line: int, character: int, text: str, covered: int = 0) -> None:
    document = documents.find(URI)
    assert document is not None and document.version is not None
    where = lsp.Range(
        start=lsp.Position(line=line, character=character),
        end=lsp.Position(line=line, character=character + covered),
    )
    documents.update_text_document(
        lsp.VersionedTextDocumentIdentifier(uri=URI, version=document.version + 1),
        lsp.TextDocumentContentChangePartial(range=where, text=text),
    )


def test_typing_what_it_says_asks_nobody() -> None:
    documents, backend = opened("x = \n"), FakeBackend("foo(a, 1)")
    at = desk(documents, backend)
    shown = [asyncio.run(complete(ask_at(0, 4, invoked=False), at)).text]
    for column, key in ((4, "f"), (5, "o"), (6, "o"), (7, "()")):
        type_at(documents, 0, column, key)
        found = asyncio.run(complete(ask_at(0, column + 1, invoked=False), at))
        shown.append(found.text)
    assert shown == ["foo(a, 1)", "oo(a, 1)", "o(a, 1)", "(a, 1)", "a, 1)"]
    assert len(backend.requests) == 1
    assert found.reply is not None
    assert (found.reply.backend, found.reply.tokens, found.syntax) == ("memory", 0, "ok")
    # the closer that the editor set gives way
    assert found.range is not None
    assert (found.range.start.character, found.range.end.character) == (8, 9)


def test_departing_sends_what_is_left_as_a_guess() -> None:
    documents, backend = opened("x = \n"), FakeBackend("foo(a, 1)")
    at = desk(documents, backend)
    asyncio.run(complete(ask_at(0, 4), at))
    type_at(documents, 0, 4, "foo(b, ")
    asyncio.run(complete(ask_at(0, 11), at))
    assert [request.guess for request in backend.requests] == ["", "1)"]
    assert at.pace.rhythm.hit_rate < 0.5


def test_a_word_accepted_then_a_letter_taken_back() -> None:
    documents, backend = opened("x = \n"), FakeBackend("foo(a, 1)")
    at = desk(documents, backend)
    asyncio.run(complete(ask_at(0, 4), at))
    type_at(documents, 0, 4, "foo(")
    assert asyncio.run(complete(ask_at(0, 8, invoked=False), at)).text == "a, 1)"
    type_at(documents, 0, 7, "", covered=1)
    assert asyncio.run(complete(ask_at(0, 7, invoked=False), at)).text == "(a, 1)"
    type_at(documents, 0, 6, "", covered=1)
    type_at(documents, 0, 5, "", covered=1)
    type_at(documents, 0, 4, "", covered=1)
    type_at(documents, 0, 3, "", covered=1)
    silent = asyncio.run(complete(ask_at(0, 3, invoked=False), at))
    assert (silent.text, silent.reason) == ("", "after a deletion")
    assert len(backend.requests) == 1


def test_after_full_acceptance_the_engine_is_asked_at_the_new_place() -> None:
    documents, backend = opened("x = \ny\n"), FakeBackend("foo()")
    at = desk(documents, backend)
    asyncio.run(complete(ask_at(0, 4), at))
    type_at(documents, 0, 4, "foo()")
    backend.text = " + 1"
    assert asyncio.run(complete(ask_at(0, 9), at)).text == " + 1"
    assert backend.requests[1].prefix == "x = foo()"


def test_another_suffix_is_another_question() -> None:
    documents, backend = opened("x = \ny = 1\n"), FakeBackend("2")
    at = desk(documents, backend)
    asyncio.run(complete(ask_at(0, 4), at))
    type_at(documents, 1, 0, "z = 0\n")
    asyncio.run(complete(ask_at(0, 4), at))
    assert len(backend.requests) == 2


def test_a_late_answer_is_kept_for_whoever_typed_on() -> None:
    documents = opened("x = \n")
    backend = FakeBackend("foo(a)", lambda: type_at(documents, 0, 4, "f"))
    at = desk(documents, backend)
    stale = asyncio.run(complete(ask_at(0, 4), at))
    assert (stale.text, stale.reason) == ("", "the document has changed since")
    assert asyncio.run(complete(ask_at(0, 5), at)).text == "oo(a)"
    assert len(backend.requests) == 1


def test_nothing_is_not_asked_for_twice_unless_by_hand() -> None:
    documents, backend = opened("x = \n"), FakeBackend("")
    at = desk(documents, backend)
    for invoked, requests in ((False, 1), (False, 1), (True, 2)):
        found = asyncio.run(complete(ask_at(0, 4, invoked=invoked), at))
        assert (found.text, len(backend.requests)) == ("", requests)


@pytest.mark.parametrize(("text", "requests"), [("", 2), ("a", 1)])
def test_what_came_too_late_to_be_anything_is_asked_for_again(text: str, requests: int) -> None:
    documents, backend = opened("x = \n"), FakeBackend(text, finish_reason="deadline")
    at = desk(documents, backend)
    for _ in range(2):
        asyncio.run(complete(ask_at(0, 4, invoked=False), at))
    assert len(backend.requests) == requests


def test_an_unsure_reply_is_shown_to_a_hand_only() -> None:
    documents, backend = opened("x = \n"), FakeBackend("foo", confidence=0.2)
    for invoked, text in ((False, ""), (True, "foo")):
        found = answer(ask_at(0, 4, invoked=invoked), documents, backend)
        assert found.text == text
    found = answer(ask_at(0, 4, invoked=False), documents, backend)
    assert "not sure enough (0.20 < " in str(found.reason)


def test_the_deadline_is_the_users_and_patience_goes_beyond() -> None:
    backend = FakeBackend("1")
    answer(ask_at(0, 4), opened("x = "), backend, deadline_ms=120)
    assert 50 <= float(backend.requests[0].deadline_ms or 0) <= 120
    assert backend.requests[0].patience_ms == PATIENCE_MS


def selecting(text: str, start: int, end: int) -> Ask:
    where = lsp.Range(
        start=lsp.Position(line=0, character=start), end=lsp.Position(line=0, character=end)
    )
    return Ask(
        uri=URI,
        position=lsp.Position(line=0, character=end),
        invoked=False,
        received=time.perf_counter(),
        selected=lsp.SelectedCompletionInfo(range=where, text=text),
    )


def test_the_item_selected_in_the_editors_list_is_extended() -> None:
    documents, backend = opened("é = pri\n"), FakeBackend("(x)")
    found = answer(selecting("print", 4, 7), documents, backend)
    assert backend.requests[0].prefix == "é = print"
    assert backend.requests[0].suffix == "\n"
    assert found.text == "print(x)"
    assert found.range == selecting("print", 4, 7).selected.range  # type: ignore[union-attr]


def test_with_an_item_selected_nothing_to_the_right_gives_way() -> None:
    documents, backend = opened("f(pri)\n"), FakeBackend("(x)) + (1")
    found = answer(selecting("print", 2, 5), documents, backend)
    assert found.text in ("", "print(x)) + (1")
    assert found.text == "" or found.range == selecting("print", 2, 5).selected.range  # type: ignore[union-attr]
    backend.text = "(x))"
    assert answer(selecting("print", 2, 5), documents, backend).text == "print(x)"


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_line_ends_make_no_difference(end: str) -> None:
    documents = opened(f"def f(a):{end}    {end}    return a{end}")
    backend = FakeBackend("a = a + 1\r\n    return a\r\n")
    found = answer(ask_at(1, 4), documents, backend)
    assert found.text == "a = a + 1", "the line below is not repeated, and no CR inserted"


def test_a_suggestion_that_was_undone_is_not_shown_again() -> None:
    documents, backend = opened("x = \n"), FakeBackend("foo(a, 1)")
    at = desk(documents, backend)
    assert asyncio.run(complete(ask_at(0, 4, invoked=False), at)).text
    type_at(documents, 0, 4, "foo(a, 1)")
    type_at(documents, 0, 4, "", covered=9)
    silent = asyncio.run(complete(ask_at(0, 4, invoked=False), at))
    assert (silent.text, silent.reason) == ("", "after an undo")
    assert asyncio.run(complete(ask_at(0, 4), at)).text == "foo(a, 1)"


def test_typing_on_while_the_engine_works_gets_the_rest_of_what_it_says() -> None:
    async def scenario() -> None:
        documents, backend = opened("x = \n"), FakeBackend("foo(a, 1)")
        release = asyncio.Event()
        answering = backend.complete

        async def slow(request: InfillRequest, *, wait_ms: float | None = None) -> BackendReply:
            await release.wait()
            return await answering(request, wait_ms=wait_ms)

        backend.complete = slow  # type: ignore[method-assign]
        at = desk(documents, backend, deadline_ms=60_000)
        asking = asyncio.ensure_future(complete(ask_at(0, 4), at))
        for column, key in ((4, "f"), (5, "o")):
            await asyncio.sleep(0.01)
            asking.cancel()
            type_at(documents, 0, column, key)
            asking = asyncio.ensure_future(complete(ask_at(0, column + 1), at))
        await asyncio.sleep(0.01)
        release.set()
        assert (await asking).text == "o(a, 1)"
        assert len(backend.requests) == 1

    asyncio.run(scenario())

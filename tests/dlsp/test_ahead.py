"""What is prepared before anybody asks, with an engine that answers what the test says."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from lsprotocol import types as lsp

from dlsp.ahead import first_place, prepare_next, warm
from dlsp.client.backend import Backend
from dlsp.completion import Ask, Desk, complete
from dlsp.config.settings import Settings
from dlsp.suggestion.cursor import Cursor
from dlsp.text.document import Document
from engine.request import EngineError, InfillRequest
from tests.dlsp.test_completion import URI, FakeBackend, ask_at, desk, opened, type_at


class Warming(FakeBackend):
    """Remembers what it was to warm."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.warmed: list[InfillRequest] = []

    async def warm(self, request: InfillRequest) -> None:
        self.warmed.append(request)


async def show(ask: Ask, at: Desk) -> tuple[Document, Any]:
    document = at.documents.find(URI)
    assert document is not None
    return document, await complete(ask, at)


def test_the_suggestion_behind_is_there_when_this_one_is_accepted() -> None:
    async def scenario() -> None:
        documents, backend = opened("x = \ny\n"), FakeBackend("foo()")
        at = desk(documents, backend)
        document, answer = await show(ask_at(0, 4), at)
        backend.text = " + 1"
        await prepare_next(URI, Cursor.at(document, ask_at(0, 4).position), answer.suggestion, at)
        [_, ahead] = backend.requests
        assert (ahead.prefix, ahead.suffix, ahead.idle) == ("x = foo()", "\ny\n", True)

        type_at(documents, 0, 4, "foo()")
        found = await complete(ask_at(0, 9, invoked=False), at)
        assert (found.text, len(backend.requests)) == (" + 1", 2)

    asyncio.run(scenario())


def test_it_is_prepared_once() -> None:
    async def scenario() -> None:
        documents, backend = opened("x = \n"), FakeBackend("foo()")
        at = desk(documents, backend)
        document, answer = await show(ask_at(0, 4), at)
        for _ in range(3):
            cursor = Cursor.at(document, ask_at(0, 4).position)
            await prepare_next(URI, cursor, answer.suggestion, at)
        assert len(backend.requests) == 2

    asyncio.run(scenario())


def test_what_was_covered_is_gone_behind_it() -> None:
    async def scenario() -> None:
        documents, backend = opened("f()\n"), FakeBackend("a) + (b")
        at = desk(documents, backend)
        document, answer = await show(ask_at(0, 2), at)
        assert answer.suggestion.covers == 1 or answer.text == "a) + (b"
        cursor = Cursor.at(document, ask_at(0, 2).position)
        await prepare_next(URI, cursor, answer.suggestion, at)
        ahead = backend.requests[1]
        whole = "f(" + answer.text + "f()\n"[2 + answer.suggestion.covers :]
        assert ahead.prefix + ahead.suffix == whole

    asyncio.run(scenario())


def test_where_the_gate_would_be_silent_nothing_is_prepared() -> None:
    async def scenario() -> None:
        documents, backend = opened("x = \n"), FakeBackend("1  # one")
        at = desk(documents, backend)
        document, answer = await show(ask_at(0, 4), at)
        cursor = Cursor.at(document, ask_at(0, 4).position)
        await prepare_next(URI, cursor, answer.suggestion, at)
        assert len(backend.requests) == 1

    asyncio.run(scenario())


def test_a_failure_is_nobodys_business() -> None:
    async def scenario() -> None:
        documents, backend = opened("x = \n"), FakeBackend("foo()")
        at = desk(documents, backend)
        document, answer = await show(ask_at(0, 4), at)

        def fail() -> None:
            raise EngineError("out of memory")

        backend.meanwhile = fail
        cursor = Cursor.at(document, ask_at(0, 4).position)
        await prepare_next(URI, cursor, answer.suggestion, at)
        assert at.memory.recall(URI, "x = foo()", "\n") is None

    asyncio.run(scenario())


def test_warming_sends_the_context_of_the_cursor() -> None:
    async def scenario() -> None:
        documents, backend = opened("a\nb\nc\n"), Warming()
        document = documents.find(URI)
        assert document is not None
        cursor = Cursor.at(document, lsp.Position(line=1, character=1))
        at = Desk(documents=documents, backend=cast(Backend, backend), settings=Settings())
        await warm(cursor, at)
        [warmed] = backend.warmed
        assert (warmed.prefix, warmed.suffix) == ("a\nb", "\nc\n")
        assert backend.requests == []

    asyncio.run(scenario())


def test_a_document_just_opened_is_warmed_at_its_first_part() -> None:
    assert first_place(10).line == 9
    assert first_place(10_000).line == 60

"""What a session shows besides the file itself, and when it chooses."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types as lsp

from dlsp.config.settings import ContextSource, Settings
from dlsp.context.modules import find_module
from dlsp.context.surroundings import MOST_TOKENS, Surroundings
from dlsp.text.document import Document, Documents
from engine.request import InfillResult, Snippet, StageTimes
from engine.syntax import Import

HERE = "from .store import InvoiceStore\n\n\ndef load_invoice(path):\n    return InvoiceStore.\n"
STORE = (
    "class InvoiceStore:\n    '''Docs.'''\n    path: str\n\n"
    "    def open(self, path: str) -> bytes:\n"
    "        return b''\n\n\ndef unrelated():\n    pass\n"
)
USER = "def print_invoice(path):\n    invoice = InvoiceStore.open(path)\n    print(invoice)\n"


class Project:
    """A folder with files, some of them open."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.documents = Documents(
            root_uri=None,
            folders=[lsp.WorkspaceFolder(uri=root.as_uri(), name="w")],
            encoding="utf-16",
        )
        self.surroundings = Surroundings(self.documents.folder_paths())

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def open(self, name: str, text: str) -> Document:
        uri = self.write(name, text).as_uri()
        self.documents.put_text_document(
            lsp.TextDocumentItem(uri=uri, language_id="python", version=1, text=text)
        )
        document = self.documents.find(uri)
        assert document is not None
        return document

    async def choose(
        self, here: Document, line: int, *sources: ContextSource
    ) -> tuple[Snippet, ...]:
        settings = Settings(context=sources)
        await self.surroundings.choose(here, line, self.documents, settings)
        return self.surroundings.snippets(here, settings)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_imported_signatures_come_without_bodies(project: Project) -> None:
    project.write("pkg/store.py", STORE)
    [found] = await project.choose(project.open("pkg/here.py", HERE), 4, "imports")
    assert found.path == "pkg/store.py"
    assert found.text == (
        "class InvoiceStore:\n    path: str\n    def open(self, path: str) -> bytes: ..."
    )


async def test_open_files_and_edits(project: Project) -> None:
    here = project.open("pkg/here.py", HERE)
    user = project.open("pkg/user.py", "x = 1\n" * 40 + USER)
    [found] = await project.choose(here, 4, "open")
    assert found.path == "pkg/user.py"
    assert "print_invoice" in found.text

    assert await project.choose(here, 4, "edits") == ()
    at = lsp.Position(line=41, character=0)
    user.apply(
        lsp.TextDocumentContentChangePartial(range=lsp.Range(start=at, end=at), text="    # é\n")
    )
    await project.choose(here, 400, "edits")  # the cursor was elsewhere meanwhile
    [found] = await project.choose(here, 4, "edits")
    assert "# é" in found.text and "InvoiceStore" in found.text


async def test_without_sources_nothing_is_read_or_shown(project: Project) -> None:
    project.open("pkg/user.py", USER)
    assert await project.choose(project.open("pkg/here.py", HERE), 4) == ()


@pytest.mark.parametrize("name", [".env.py", "ignored.py", "../outside.py"])
async def test_private_files_are_not_shown(project: Project, name: str, tmp_path: Path) -> None:
    inner = Project(tmp_path / "inner")
    inner.write(".git/HEAD", "")
    inner.write(".gitignore", "ignored.py\n.env.py\n")
    inner.open(name, USER)
    assert await inner.choose(inner.open("pkg/here.py", HERE), 4, "open", "edits") == ()


async def test_a_piece_with_a_secret_is_left_out(project: Project) -> None:
    project.open("pkg/user.py", USER + "    password = 'hunter22!'\n")
    assert await project.choose(project.open("pkg/here.py", HERE), 4, "open") == ()


async def test_the_choice_stays_until_the_cursor_is_far_away(project: Project) -> None:
    here = project.open("pkg/here.py", HERE + "\n" * 100 + "weather = Forecast.today(wind)\n")
    first = await project.choose(here, 4, "open")
    project.open("pkg/user.py", USER)
    assert await project.choose(here, 5, "open") == first == ()
    project.open("pkg/sky.py", "class Forecast:\n    def today(wind): ...\n    weather = 1\n")
    [found] = await project.choose(here, 105, "open")
    assert found.path == "pkg/sky.py"


async def test_switched_sources_and_closed_documents_show_nothing_old(project: Project) -> None:
    here = project.open("pkg/here.py", HERE)
    project.open("pkg/user.py", USER)
    assert await project.choose(here, 4, "open")
    assert project.surroundings.snippets(here, Settings(context=("imports",))) == ()
    project.surroundings.forget(here.uri)
    assert project.surroundings.snippets(here, Settings(context=("open",))) == ()


def reply(tokens: int, encode_ms: float) -> InfillResult:
    return InfillResult(
        text="", finish_reason="stop", model="m", mode="ar",
        prompt_tokens=tokens + 7, cached_tokens=7, ms=StageTimes(encode=encode_ms),
    )  # fmt: skip


def test_the_budget_follows_the_measured_speed() -> None:
    surroundings = Surroundings()
    first = surroundings.budget_tokens
    for _ in range(30):
        surroundings.learn(reply(100, 600.0))
    slow = surroundings.budget_tokens
    assert 0 < slow < first
    surroundings.learn(reply(2, 10_000.0))  # too few tokens to say anything
    assert surroundings.budget_tokens == slow
    for _ in range(30):
        surroundings.learn(reply(100, 5000.0))
    assert surroundings.budget_tokens == 0
    for _ in range(60):
        surroundings.learn(reply(1000, 20.0))
    assert surroundings.budget_tokens == MOST_TOKENS


async def test_an_engine_too_slow_for_snippets_gets_none(project: Project) -> None:
    for _ in range(40):
        project.surroundings.learn(reply(100, 5000.0))
    project.open("pkg/user.py", USER)
    assert await project.choose(project.open("pkg/here.py", HERE), 4, "open") == ()


@pytest.mark.parametrize(
    ("file", "module", "names", "expected"),
    [
        ("pkg/sub/here.py", "..store", (), "pkg/store.py"),
        ("pkg/sub/here.py", ".", ("near",), "pkg/sub/near.py"),
        ("pkg/sub/here.py", "pkg.store", ("X",), "pkg/store.py"),
        ("pkg/sub/here.py", "pkg", ("store",), "pkg/store.py"),
        ("pkg/sub/here.py", "pkg", ("X",), "pkg/__init__.py"),
        ("tests/test_x.py", "lib.core", (), "src/lib/core.py"),
        ("pkg/sub/here.py", "os", (), None),
        ("pkg/sub/here.py", "......", (), None),
        ("web/a.ts", "./b", (), "web/b.tsx"),
        ("web/a.ts", "./b.js", (), "web/b.tsx"),
        ("web/a.ts", "./c", (), "web/c/index.js"),
        ("web/a.ts", "react", (), None),
        ("c/a.c", "a.h", (), "c/a.h"),
        ("c/a.c", "lib/x.h", (), "include/lib/x.h"),
    ],
)
def test_modules_are_found(
    project: Project, file: str, module: str, names: tuple[str, ...], expected: str | None
) -> None:
    for name in ("pkg/__init__.py", "pkg/store.py", "pkg/sub/near.py", "src/lib/core.py",
                 "web/b.tsx", "web/c/index.js", "c/a.h", "include/lib/x.h"):  # fmt: skip
        project.write(name, "")
    wanted = Import(module=module, names=names)
    found = find_module(wanted, project.root / file, (project.root,))
    assert found == (None if expected is None else project.root / expected)

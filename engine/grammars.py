"""Grammars: which language a document is in, and tree-sitter trees of it.

Knows the grammar wheels, how to load one when it is first needed, and how to get a tree, its faults
and its brackets quickly. Knows nothing of holes, suggestions or verdicts: see `engine.syntax`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import PurePosixPath
from threading import Lock
from types import MappingProxyType
from typing import Final

import tree_sitter

log = logging.getLogger(__name__)

#: Bytes from which a document is a large one.
LARGE: Final = 12_000

#: language -> (module of its wheel, function that returns the grammar)
_WHEELS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "python": ("tree_sitter_python", "language"),
        "javascript": ("tree_sitter_javascript", "language"),
        "typescript": ("tree_sitter_typescript", "language_typescript"),
        "tsx": ("tree_sitter_typescript", "language_tsx"),
        "go": ("tree_sitter_go", "language"),
        "rust": ("tree_sitter_rust", "language"),
        "c": ("tree_sitter_c", "language"),
        "cpp": ("tree_sitter_cpp", "language"),
        "java": ("tree_sitter_java", "language"),
        "csharp": ("tree_sitter_c_sharp", "language"),
        "ruby": ("tree_sitter_ruby", "language"),
        "php": ("tree_sitter_php", "language_php"),
        "lua": ("tree_sitter_lua", "language"),
        "bash": ("tree_sitter_bash", "language"),
        "json": ("tree_sitter_json", "language"),
        "yaml": ("tree_sitter_yaml", "language"),
        "toml": ("tree_sitter_toml", "language"),
        "html": ("tree_sitter_html", "language"),
        "css": ("tree_sitter_css", "language"),
    }
)

LANGUAGES: Final = tuple(_WHEELS)

#: ids that editors send (LSP, Vim and Emacs names) where they differ from ours
_IDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "javascriptreact": "javascript",
        "javascript.jsx": "javascript",
        "js": "javascript",
        "jsx": "javascript",
        "typescriptreact": "tsx",
        "typescript.tsx": "tsx",
        "ts": "typescript",
        "golang": "go",
        "c++": "cpp",
        "cs": "csharp",
        "c#": "csharp",
        "shellscript": "bash",
        "sh": "bash",
        "shell": "bash",
        "jsonc": "json",
        "dockercompose": "yaml",
        "yml": "yaml",
        "py": "python",
        "rb": "ruby",
        "rs": "rust",
    }
)

_EXTENSIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        extension: language
        for language, extensions in {
            "python": "py pyi pyw",
            "javascript": "js jsx mjs cjs",
            "typescript": "ts mts cts",
            "tsx": "tsx",
            "go": "go",
            "rust": "rs",
            "c": "c h",
            "cpp": "cc cpp cxx c++ hh hpp hxx h++ inl ipp cu cuh",
            "java": "java",
            "csharp": "cs csx",
            "ruby": "rb rake gemspec ru",
            "php": "php phtml",
            "lua": "lua",
            "bash": "sh bash",
            "json": "json jsonc webmanifest geojson",
            "yaml": "yaml yml",
            "toml": "toml",
            "html": "html htm xhtml",
            "css": "css",
        }.items()
        for extension in extensions.split()
    }
)

_FILE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Rakefile": "ruby",
        "Gemfile": "ruby",
        "Vagrantfile": "ruby",
        ".bashrc": "bash",
        ".bash_profile": "bash",
        ".profile": "bash",
        "PKGBUILD": "bash",
        "Pipfile": "toml",
        "poetry.lock": "toml",
        "Cargo.lock": "toml",
        ".babelrc": "json",
    }
)


def language_for(path: str | None, language_id: str | None) -> str | None:
    """Return our name of a document's language, or None when there is no grammar for it.

    The editor's `language_id` decides; the file name does where the id is absent or unknown.
    """
    identifier = (language_id or "").strip().lower()
    identifier = _IDS.get(identifier, identifier)
    if identifier in _WHEELS:
        return identifier
    name = PurePosixPath((path or "").replace("\\", "/")).name
    if name in _FILE_NAMES:
        return _FILE_NAMES[name]
    return _EXTENSIONS.get(name.rpartition(".")[2].lower()) if "." in name else None


@dataclass(frozen=True, slots=True)
class Fault:
    """An ERROR or MISSING node: where it stands in the document (bytes) and what it is."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Bracket:
    """A bracket that is a token of the language (not one inside a string or a comment)."""

    start: int
    char: str


class Grammar:
    """One language's parser. Parses by editing its last good tree; safe to share by threads."""

    def __init__(self, name: str, language: tree_sitter.Language) -> None:
        self.name = name
        self._parser = tree_sitter.Parser(language)
        # In HTML an end tag without a beginning is a node of its own, not an error.
        stray = "(erroneous_end_tag) @stray"
        self._strays = tree_sitter.Query(language, stray) if name == "html" else None
        kinds = " ".join(f'"{kind}"' for kind in _bracket_kinds(language))
        self._brackets = tree_sitter.Query(language, f"[{kinds}] @bracket") if kinds else None
        # of large documents and of small ones: a file, and excerpts of it
        self._latest: dict[bool, tuple[bytes, tree_sitter.Tree]] = {}
        self._lock = Lock()

    def tree(self, document: bytes) -> tree_sitter.Tree:
        """Parse; incrementally where the last document without faults is near this one."""
        large = len(document) > LARGE
        with self._lock:
            latest = self._latest.get(large)
            if latest is not None and latest[0] == document:
                return latest[1]
            if latest is not None:
                edited = _edited(latest[1], latest[0], document)
                tree = self._parser.parse(document, edited)
                # Error recovery depends on what was re-used: only a clean result is trusted.
                if not tree.root_node.has_error:
                    self._latest[large] = (document, tree)
                    return tree
            tree = self._parser.parse(document)
            if latest is None or not tree.root_node.has_error:
                self._latest[large] = (document, tree)
            return tree

    def parse_apart(self, document: bytes) -> tree_sitter.Tree:
        """Parse from nothing, and keep nothing: for documents that nobody is editing."""
        with self._lock:
            return self._parser.parse(document)

    def faults(self, document: bytes) -> tuple[Fault, ...]:
        """All ERROR and MISSING nodes of a document, by position."""
        root = self.tree(document).root_node
        if not root.has_error and self._strays is None:
            return ()
        faults = {
            Fault(node.start_byte, node.end_byte, _kind(node))
            for node in _faulty(root)
            if node.is_error or node.is_missing or not node.child_count
        }
        if self._strays is not None:
            strays = tree_sitter.QueryCursor(self._strays).captures(root)
            for node in strays.get("stray", []):
                faults.add(Fault(node.start_byte, node.end_byte, "error"))
        return tuple(sorted(faults, key=lambda fault: (fault.start, -fault.end, fault.kind)))

    def brackets(self, document: bytes) -> tuple[Bracket, ...]:
        """The brackets of a document in order; `${`, `#[`, `((` count as the brackets in them."""
        if self._brackets is None:
            return ()
        root = self.tree(document).root_node
        nodes = tree_sitter.QueryCursor(self._brackets).captures(root).get("bracket", [])
        return tuple(
            Bracket(start + index, char)
            for start, kind in sorted((node.start_byte, node.type) for node in nodes)
            for index, char in enumerate(kind)
            if char in "()[]{}" and document[start + index : start + index + 1] == char.encode()
        )


def _faulty(root: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """All nodes that are or hold a fault; a leaf that has one is missing, whatever it says.

    (A query for MISSING does not find them all, nor does `is_missing`: C#'s identifiers.)
    """
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in node.children if child.has_error or child.is_missing)


def _kind(node: tree_sitter.Node) -> str:
    return "error" if node.is_error else f"missing {node.type}"


def _bracket_kinds(language: tree_sitter.Language) -> list[str]:
    kinds = set()
    for kind_id in range(language.node_kind_count):
        kind = language.node_kind_for_id(kind_id) or ""
        if language.node_kind_is_named(kind_id) or not language.node_kind_is_visible(kind_id):
            continue
        if len(kind) <= 4 and set(kind) & set("()[]{}") and not set(kind) & set('"\\'):
            kinds.add(kind)
    return sorted(kinds)


def _edited(tree: tree_sitter.Tree, old: bytes, new: bytes) -> tree_sitter.Tree:
    """Return a copy of `tree` that knows which bytes changed from `old` to `new`."""
    start = _common(old, new)
    while start and (old[start : start + 1] or b"a")[0] & 0xC0 == 0x80:
        start -= 1
    tail = _common(old[start:][::-1], new[start:][::-1])
    while tail and old[len(old) - tail] & 0xC0 == 0x80:
        tail -= 1
    edited = tree.copy()
    edited.edit(
        start_byte=start,
        old_end_byte=len(old) - tail,
        new_end_byte=len(new) - tail,
        start_point=_point(old, start),
        old_end_point=_point(old, len(old) - tail),
        new_end_point=_point(new, len(new) - tail),
    )
    return edited


def _common(one: bytes, other: bytes) -> int:
    """Length of the common beginning, by bisection: comparing slices costs next to nothing."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _point(document: bytes, offset: int) -> tuple[int, int]:
    return document.count(b"\n", 0, offset), offset - (document.rfind(b"\n", 0, offset) + 1)


@cache
def grammar(language: str) -> Grammar | None:
    """Load a language's grammar on first use; None (said once in the log) where it is missing."""
    if language not in _WHEELS:
        return None
    module, function = _WHEELS[language]
    try:
        return Grammar(language, tree_sitter.Language(getattr(import_module(module), function)()))
    except (ImportError, AttributeError, ValueError, OSError) as error:
        log.warning("no syntax checks for %s: install %s (%s)", language, module, error)
        return None

"""Holes as users make them, cut out of real files: by line, by syntax node, or anywhere.

The syntax nodes come from tree-sitter. A hole never holds the indentation before it: editors have
put it there. Knows text and grammars, nothing of engines.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import tree_sitter

from benchmarks.projects import SourceFile
from benchmarks.report import say
from benchmarks.scoring import parses
from engine.grammars import grammar
from engine.request import Want

Kind = Literal["rest", "line", "statement", "arguments", "expression", "block", "body", "span"]
KINDS: tuple[Kind, ...] = (
    "rest",  # of a line, from any character
    "line",  # a whole line
    "statement",  # one that holds no block
    "arguments",  # what stands between the brackets of a call
    "expression",
    "block",  # of an if, a loop, …
    "body",  # of a function
    "span",  # from any character, of any length
)
MOST_CHARACTERS, MOST_LINES = 320, 12
_LONGEST_SPAN = 200
_TRIES = 40  # files looked at for each hole that is wanted

_BLOCK = re.compile(
    r"(statement_)?block|compound_statement|constructor_body|function_body|switch_block"
)
_FUNCTION = re.compile(r"function|method|constructor|closure|func_literal|lambda")
_ROOTS = ("module", "program", "source_file", "translation_unit")
_ARGUMENTS = ("arguments", "argument_list")
_EXPRESSION = re.compile(
    r"\w+_expression|(boolean|comparison|binary|not|unary)_operator|call|subscript"
    r"|lambda|list|dictionary|set|tuple|\w+_comprehension|array|object|method_invocation"
    r"|composite_literal|template_string"
)
#: Expressions by name, but statements in all that matters, or parts of the one around them.
_NO_EXPRESSION = re.compile(
    r"(if|match|loop|while|for|return|break|continue|block|unsafe|async|try"
    r"|member|selector|field|parenthesized)_expression"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A hole in a real file: what stands before, in and behind it."""

    hole_id: str
    kind: Kind
    language: str
    project: str
    file: str
    prefix: str
    canonical: str
    suffix: str

    @property
    def want(self) -> Want:
        """What the language server would ask for there."""
        return "block" if self.kind in ("block", "body") or "\n" in self.canonical else "line"


Spans = list[tuple[int, int]]


def choose_holes(
    files: Sequence[SourceFile], kind: Kind, count: int, rng: random.Random, nodes: Nodes
) -> list[Hole]:
    """`count` holes of a kind in the files; a project weighs as the root of its files.

    Fewer where there are not enough; that is said. A smaller count gives the first of them.
    """
    by_project: dict[str, list[SourceFile]] = {}
    for file in files:
        by_project.setdefault(file.project, []).append(file)
    names = sorted(by_project)
    weights = [math.sqrt(len(by_project[name])) for name in names]
    found: dict[str, Hole] = {}
    for _ in range(count * _TRIES if names else 0):
        if len(found) == count:
            break
        file = rng.choice(by_project[rng.choices(names, weights)[0]])
        spans = _spans(nodes, file, kind, rng)
        if spans:
            hole = _hole(file, kind, *rng.choice(spans))
            found.setdefault(hole.hole_id, hole)
    if len(found) < count:
        say(f"only {len(found)} of {count} holes of kind {kind} found")
    return list(found.values())


def _hole(file: SourceFile, kind: Kind, start: int, end: int) -> Hole:
    line = file.text.count("\n", 0, start) + 1
    column = start - file.text.rfind("\n", 0, start)
    return Hole(
        hole_id=f"{kind}/{file.project}/{file.name}:{line}:{column}+{end - start}",
        kind=kind,
        language=file.language,
        project=file.project,
        file=file.name,
        prefix=file.text[:start],
        canonical=file.text[start:end],
        suffix=file.text[end:],
    )


def _spans(nodes: Nodes, file: SourceFile, kind: Kind, rng: random.Random) -> Spans:
    """(start, end) of what may be a hole of this kind in the file."""
    if not nodes.sound(file):
        return []
    if kind in ("rest", "line", "span"):
        spans = [_by_text(file.text, kind, rng)]
    else:
        spans = nodes.spans(file, kind)
    return [(start, end) for start, end in spans if _fair(file.text[start:end])]


def _fair(text: str) -> bool:
    small = len(text) <= MOST_CHARACTERS and text.count("\n") < MOST_LINES
    return small and bool(text.strip())


def _by_text(text: str, kind: Kind, rng: random.Random) -> tuple[int, int]:
    """A random line, rest of a line, or span; it may turn out to be blank."""
    at = rng.randrange(len(text))
    if kind == "span":
        return at, min(len(text), at + round(math.exp(rng.uniform(0, math.log(_LONGEST_SPAN)))))
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    start += len(text[start:end]) - len(text[start:end].lstrip())
    end = start + len(text[start:end].rstrip())
    if kind == "rest" and start < end:
        start = rng.randrange(start, end)
    return start, end


class Nodes:
    """The syntax nodes of files, each file parsed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[Kind, Spans] | None] = {}

    def sound(self, file: SourceFile) -> bool:
        """Whether the file is free of syntax errors as it is: else no verdict means anything."""
        return self._of(file) is not None

    def spans(self, file: SourceFile, kind: Kind) -> Spans:
        """(start, end) of the nodes of a kind, in characters."""
        return (self._of(file) or {}).get(kind, [])

    def _of(self, file: SourceFile) -> dict[Kind, Spans] | None:
        key = (file.project, file.name)
        if key not in self._known:
            self._known[key] = _classified(file)
        return self._known[key]


def _classified(file: SourceFile) -> dict[Kind, Spans] | None:
    known = grammar(file.language)
    document = file.text.encode("utf-8", "replace")
    if known is None or known.faults(document) or not parses(file.text, file.language):
        return None
    spans: dict[Kind, Spans] = {}
    for node in _walk(known.tree(document).root_node):
        for kind, first, last in _kinds(node):
            start = len(document[: first.start_byte].decode())
            length = len(document[first.start_byte : last.end_byte].decode())
            spans.setdefault(kind, []).append((start, start + length))
    return spans


def _walk(root: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.named_children))


def _kinds(node: tree_sitter.Node) -> Iterator[tuple[Kind, tree_sitter.Node, tree_sitter.Node]]:
    """(kind, first node, last node) of the holes that this node stands for."""
    inside = node.named_children
    if inside and _BLOCK.fullmatch(node.type):
        owner = node.parent
        of_function = owner is not None and _FUNCTION.search(owner.type)
        yield ("body" if of_function else "block"), inside[0], inside[-1]
    if inside and node.type in _ARGUMENTS:
        yield "arguments", inside[0], inside[-1]
    if _is_expression(node):
        yield "expression", node, node
    if _is_statement(node):
        yield "statement", node, node


def _is_expression(node: tree_sitter.Node) -> bool:
    named = _EXPRESSION.fullmatch(node.type) and not _NO_EXPRESSION.fullmatch(node.type)
    return bool(named) and not _holds_block(node)


def _is_statement(node: tree_sitter.Node) -> bool:
    """A child of a block or of the file itself that is no comment, no bare string, no block."""
    owner = node.parent
    if owner is None or "comment" in node.type or "preproc" in node.type:
        return False
    if owner.type == "statement_list" and owner.parent is not None:
        owner = owner.parent
    if not (_BLOCK.fullmatch(owner.type) or owner.type in _ROOTS):
        return False
    if [child.type for child in node.named_children] == ["string"]:
        return False
    return node.type != "statement_list" and not _holds_block(node)


def _holds_block(node: tree_sitter.Node) -> bool:
    return any(
        _BLOCK.fullmatch(inner.type) or inner.type in ("class_body", "declaration_list")
        for inner in _walk(node)
    )

"""A large document cut down to what a verdict on one hole in it depends on.

Statements far from the hole are left out, level by level on the way down to it: the rest still
parses, and breaks where the whole document would. Knows trees and holes; nothing of verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from engine.python_block import block_around, in_string
from engine.readings import Hole, indentation

if TYPE_CHECKING:
    import tree_sitter

    from engine.grammars import Grammar

#: Documents of fewer bytes are left whole.
SMALL: Final = 6_000
#: Languages in which a statement may be left out of a list of them and the rest still parses.
_LISTS: Final = frozenset(
    [
        "python",
        "javascript",
        "typescript",
        "tsx",
        "go",
        "rust",
        "c",
        "cpp",
        "java",
        "csharp",
        "ruby",
        "lua",
        "bash",
        "css",
    ]
)
#: Nodes whose named children are such statements; the root is one too.
_BODIES: Final = frozenset(
    [
        "block",
        "statement_block",
        "compound_statement",
        "class_body",
        "interface_body",
        "enum_body_declarations",
        "declaration_list",
        "field_declaration_list",
        "body_statement",
        "do_block",
    ]
)
_SEPARATORS: Final = ("\n", ";")

_Range = tuple[int, int]


def excerpt(grammar: Grammar, hole: Hole) -> Hole:
    """The same hole in a smaller document, or the hole itself.

    Statements are left out only where the document has no fault before the text is in it: what is
    left out of a faulty one could be what mends it. In Python the function around is enough, too.
    """
    document = hole.document
    if len(document) < SMALL or grammar.name not in _LISTS:
        return hole
    left, right = document[: hole.line_start], document[hole.line_end :]
    for middle in _lines(grammar, hole):
        root = grammar.tree(left + middle + right).root_node
        if not root.has_error:
            line = (len(left), len(left) + len(middle))
            return _without(hole, list(_far(root, line)), line)
    return _function(hole) if grammar.name == "python" else hole


def _function(hole: Hole) -> Hole:
    """The hole in its function alone: for a statement of several lines, which breaks without the
    cursor's. Not inside a string of several lines, whose begin could be left out."""
    head = hole.prefix[: hole.line_start].decode(errors="replace")
    if in_string(head):
        return hole
    right, _, below = hole.suffix.decode(errors="replace").partition("\n")
    before, after = block_around(head.split("\n")[:-1], below.split("\n"))
    if not before:
        return hole
    left = hole.prefix[hole.line_start :]
    return replace(hole, prefix=before.encode() + left, suffix=(right + after).encode())


def _lines(grammar: Grammar, hole: Hole) -> Iterator[bytes]:
    """What the cursor's line may be, for the document to be whole before the text."""
    yield b""
    if grammar.name == "python":
        indent = indentation(hole.head) or indentation(hole.text.decode(errors="replace"))
        yield indent.encode() + b"pass"


def _far(root: tree_sitter.Node, line: _Range) -> Iterator[_Range]:
    """Byte ranges of statements that are not beside the line, nor beside what is."""
    stack = [root]
    while stack:
        node = stack.pop()
        before = [child for child in node.children if child.end_byte < line[0]]
        after = [child for child in node.children if child.start_byte > line[1]]
        nearest = _last_statement(before), _last_statement(after[::-1])
        if node.parent is None or node.type in _BODIES:
            yield from _runs(before[: nearest[0]])
            yield from _runs(after[len(after) - nearest[1] :])
        stack += node.children[len(before) : len(node.children) - len(after)]
        stack += [before[nearest[0]]] if before else []
        stack += [after[-1 - nearest[1]]] if after else []


def _last_statement(nodes: list[tree_sitter.Node]) -> int:
    """The index of the last statement, 0 if there is none."""
    return next((i for i in reversed(range(len(nodes))) if _is_statement(nodes[i])), 0)


def _is_statement(node: tree_sitter.Node) -> bool:
    return node.is_named and not node.is_extra


def _runs(nodes: list[tree_sitter.Node]) -> Iterator[_Range]:
    """Ranges of neighbours that may be left out together."""
    start = end = None
    for node in nodes:
        if node.is_named or node.type in _SEPARATORS:
            start, end = node.start_byte if start is None else start, node.end_byte
        elif start is not None and end is not None:
            yield start, end
            start = end = None
    if start is not None and end is not None:
        yield start, end


def _without(hole: Hole, ranges: list[_Range], line: _Range) -> Hole:
    """The hole without some ranges of the document that had `line` for the cursor's line."""
    shift = hole.line_end - hole.text_end - line[1]  # from that document to the suffix
    prefix, suffix = hole.prefix, hole.suffix
    for start, end in sorted(ranges, reverse=True):
        if end <= line[0]:
            prefix = prefix[:start] + prefix[end:]
        else:
            suffix = suffix[: start + shift] + suffix[end + shift :]
    return replace(hole, prefix=prefix, suffix=suffix)

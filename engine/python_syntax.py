"""Python's own parser as a judge: a file that parsed before must parse after.

Knows `ast.parse`, Python's blocks and how to parse only the statements around the hole. Knows
nothing of tree-sitter faults: `engine.syntax` asks it first and narrows the failing span itself.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from engine.grammars import Grammar
from engine.readings import Hole, block_opened, indentation, tails

#: Above this many bytes a document is judged by tree-sitter alone: `ast.parse` takes 0.8 ms per kB.
MAX_AST_BYTES: Final = 300_000

_DECORATOR: Final = re.compile(r"\s*@")
_TRY: Final = re.compile(r"\s*try\s*:")
_MATCH: Final = re.compile(r"\s*match\b.*:\s*(#.*)?\Z")
#: A line that belongs to the statement above it and so does not end the search for an open `try`.
_HANDLER: Final = re.compile(r"\s*(except\b|finally\b)")


@lru_cache(maxsize=8)
def fault_in(source: bytes) -> tuple[int, int] | None:
    """Where `ast.parse` fails, as (line from 1, column in code points from 0); None if it parses.

    Raises RecursionError or MemoryError on nesting that is too deep for the parser.
    """
    text = source.decode(errors="replace").removeprefix("\ufeff")  # a file may begin with it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        if error.msg.startswith("too many"):  # nested brackets, levels of indentation
            raise MemoryError(error.msg) from error
        return error.lineno or 1, max((error.offset or 1) - 1, 0)
    except ValueError:  # a NUL in the source, on Python 3.11
        return 1, 0
    return None


def parses(source: bytes) -> bool:
    return fault_in(source) is None


def parses_around(grammar: Grammar, hole: Hole) -> bool:
    """True if tree-sitter is content with the document and `ast` with the statements at the hole.

    Whole top-level statements are parsed, one neighbour on each side included (`else:` at the left
    margin belongs to its neighbour): what is outside is unchanged, so the file parses if it did.
    """
    document = hole.document
    window = _window(grammar, document, hole.line_start, hole.line_end)
    return window is not None and parses(document[window[0] : window[1]])


def _window(grammar: Grammar, document: bytes, start: int, end: int) -> tuple[int, int] | None:
    root = grammar.tree(document).root_node
    if root.has_error:
        return None
    margins = [
        child.start_byte
        for child in root.children
        if child.start_point[1] == 0 and not child.is_extra
    ]
    before = [margin for margin in margins if margin <= start]
    after = [margin for margin in margins if margin > end]
    return (
        before[-2] if len(before) > 1 else 0,
        after[1] if len(after) > 1 else len(document),
    )


def parsed_before(hole: Hole) -> bool:
    """True if the file was whole before the suggestion, in any fair reading of the cursor's line.

    Blank is the rule. A file whose block was just opened above the cursor needs something in it, a
    cursor on a block's own header needs a header, and what the user left of an empty hole may be
    whole as it stands.
    """
    left = hole.prefix[: hole.line_start]
    right = hole.document[hole.line_end :]
    indent = (indentation(hole.head) or indentation(hole.text.decode(errors="replace"))).encode()
    if parses(left + right) or parses(hole.prefix + hole.suffix):
        return True
    ends = ["", *_open_tries(hole)]
    return any(
        parses(left + indent + line + end.encode() + right)
        for line in (b"pass", b"if 1:")
        for end in (ends if line == b"pass" else ends[:1])
    )


def python_tails(grammar: Grammar, hole: Hole) -> Iterator[str]:
    """What might finish the line in Python: a block's body, closing brackets, an open `try`."""
    finish = list(_block_bodies(hole.last_line)) if hole.text else []
    tries = _open_tries(hole)
    if not hole.text:
        indent = indentation(hole.head)
        finish += [f"{indent}pass"] + [f"{indent}pass{end}" for end in tries]
    yield from finish
    yield from tries
    yield from (body + end for body in finish if hole.text for end in tries)
    for tail in tails(grammar, hole):
        yield tail.replace("@", "")
        if tries:
            yield tail + tries[0]


def _block_bodies(line: str) -> Iterator[str]:
    indent = indentation(line)
    inner = f"{indent}\t" if "\t" in indent else f"{indent}    "
    if _DECORATOR.match(line):
        yield f"\n{indent}def _(): pass"
    elif _TRY.match(line):
        yield f"\n{inner}pass\n{indent}finally: pass"
        yield f"\n{inner}pass"
    elif _MATCH.match(line):
        yield f"\n{inner}case _: pass"
    elif block_opened("python", line):
        yield f"\n{inner}pass"


def _open_tries(hole: Hole) -> list[str]:
    """Ends for the `try` blocks around the cursor without a handler above it, innermost first."""
    before = hole.document[: hole.line_end].decode(errors="replace").split("\n")
    depth = 10_000
    ends: list[str] = []
    for line in reversed(before[-400:]):
        if not line.strip():
            continue
        indent = indentation(line)
        if len(indent) < depth:
            depth = len(indent) if not _HANDLER.match(line) else depth
            if _TRY.match(line):
                ends.append((ends[-1] if ends else "") + f"\n{indent}finally: pass")
            elif _HANDLER.match(line):
                depth = len(indent)
        if depth == 0 or len(ends) == 2:
            break
    return ends

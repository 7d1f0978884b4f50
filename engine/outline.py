"""What a piece of code declares: imports, enclosing headers, signatures. By tree-sitter, no torch.

Used where code is too long to be shown whole: the start of a file that is cut, and other files of
which only the interface matters. Knows trees and text; nothing of budgets, tokens or files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from engine.grammars import grammar

if TYPE_CHECKING:
    import tree_sitter

_MAX_BYTES: Final = 1_000_000
_IMPORTS: Final = frozenset(
    [
        "import_statement", "import_from_statement", "future_import_statement",
        "import_declaration", "use_declaration", "extern_crate_declaration", "preproc_include",
        "using_directive", "namespace_use_declaration", "package_clause", "package_declaration",
    ]
)  # fmt: skip
#: Declarations with a body; what else has one (loops, lambdas) is no place that has a name.
_SCOPE: Final = re.compile(
    "class|function_|^function|method|interface|struct|enum|trait|impl|module|namespace|mod_item"
    "|constructor|record|object"
)
_TYPE: Final = re.compile("class|interface|struct|enum|trait|impl|record|object")
#: Wrappers around a declaration: what is exported or decorated.
_WRAPPERS: Final = frozenset(["export_statement", "decorated_definition", "template_declaration"])
_DECLARES: Final = ("declaration", "definition", "value")
#: Statements of which the first part gives a value a name.
_VALUES: Final = frozenset(["expression_statement", "lexical_declaration", "type_declaration"])
_NO_MEMBERS: Final = frozenset(["comment", "pass_statement", "access_specifier"])
_MEMBER_CHARACTERS: Final = 160
_MOST_CHARACTERS: Final = 2_000
_NAME: Final = re.compile(r"\w+")

#: language -> what begins a comment on a line, and what ends it there
_COMMENTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        **dict.fromkeys(("python", "ruby", "bash", "yaml", "toml"), ("# ", "")),
        "lua": ("-- ", ""),
        "css": ("/* ", " */"),
        "html": ("<!-- ", " -->"),
    }
)
_OTHER_COMMENT: Final = ("// ", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported module as it is written (`..pkg.mod`, `./file`, `a/b.h`), and the names taken
    from it; none where the module as a whole is."""

    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A declaration without its bodies, as it stands at the top of its file."""

    name: str
    text: str


def comment_out(text: str, language: str | None) -> str:
    """The text as line comments of a language; C's way where the language is not known."""
    begin, end = _COMMENTS.get(language or "", _OTHER_COMMENT)
    lines = text.rstrip("\n").split("\n")
    inside = (line.replace(end.strip(), "") if end else line for line in lines)
    return "".join(f"{begin}{line}".rstrip() + f"{end}\n" for line in inside)


def lead(document: str, start: int, language: str | None) -> str:
    """Whole lines before `start`: the file's imports, and the headers of what encloses `start`.

    `start` counts code points. Empty where there is no grammar, or nothing to keep.
    """
    root = _parse(document, language)
    if root is None:
        return ""
    source = document.encode(errors="replace")
    at = len(document[:start].encode(errors="replace"))
    kept = [
        _lines(source, child.start_byte, child.end_byte)
        for child in root.children
        if child.end_byte <= at and child.type in _IMPORTS
    ]
    headers: list[str] = []
    node = root.descendant_for_byte_range(at, at)
    while node is not None:
        body = node.child_by_field_name("body")
        if body is not None and body.start_byte < at and _SCOPE.search(node.type):
            # an indented body begins on the next line
            end = len(source[: body.start_byte].rstrip())
            headers.append(_lines(source, node.start_byte, max(end, node.start_byte + 1)))
        node = node.parent
    return "".join(dict.fromkeys([*kept, *reversed(headers)]))


def imports(document: str, language: str | None) -> tuple[Import, ...]:
    """The modules that a file of Python, JavaScript, TypeScript, C or C++ imports at its top."""
    root = _parse(document, language)
    if root is None:
        return ()
    return tuple(found for child in root.children for found in _imports_in(child))


def _imports_in(node: tree_sitter.Node) -> Iterator[Import]:
    source = node.child_by_field_name("source")  # JavaScript's and TypeScript's
    if source is not None:
        names = [_text(each) for each in _descendants(node, "identifier")]
        yield Import(module=_text(source).strip("'\"`"), names=tuple(names))
    elif node.type == "preproc_include":
        path = node.child_by_field_name("path")
        if path is not None and path.type == "string_literal":
            yield Import(module=_text(path).strip('"'))
    elif node.type == "import_from_statement":
        module = node.child_by_field_name("module_name")
        taken = [_imported_name(each) for each in node.children_by_field_name("name")]
        if module is not None:
            yield Import(module=_text(module), names=tuple(taken))
    elif node.type == "import_statement":
        for each in node.children_by_field_name("name"):
            yield Import(module=_imported_name(each))


def _imported_name(node: tree_sitter.Node) -> str:
    inner = node.child_by_field_name("name")  # of `name as alias`
    return _text(inner if inner is not None else node)


def signatures(document: str, language: str | None) -> tuple[Signature, ...]:
    """What a file declares at its top, types with their members, without any body."""
    root = _parse(document, language)
    if root is None:
        return ()
    ending = " ..." if language == "python" else " ... }"
    found = []
    for child in root.children:
        node = _unwrapped(child)
        if node.type in _IMPORTS or not node.is_named:
            continue
        if node.type in _VALUES:
            name, text = _name(node.named_children[0]), _text(node).partition("\n")[0]
        else:
            name, text = _name(node), _declared(node, ending)
        if name and len(text) <= _MOST_CHARACTERS:
            found.append(Signature(name=name, text=text))
    return tuple(found)


def _name(node: tree_sitter.Node) -> str:
    """What a declaration declares, in whatever field its grammar keeps that; '' for nothing."""
    for field in ("name", "left", "declarator", "type"):
        named = node.child_by_field_name(field)
        word = _NAME.search(_text(named)) if named is not None else None
        if word is not None:
            return word.group()
    return ""


def _declared(node: tree_sitter.Node, ending: str) -> str:
    """A declaration with its members where it is a type, else its header."""
    body = node.child_by_field_name("body")
    if body is None or not _TYPE.search(node.type):
        return _header(node, ending)
    members = []
    for child in body.children:
        member = _unwrapped(child)
        text = _header(member, ending)
        # not a docstring, nor a statement that declares nothing
        plain = member.is_named and member.type not in _NO_MEMBERS
        string = member.child_count == 1 and member.children[0].type == "string"
        if plain and not string and len(text) <= _MEMBER_CHARACTERS and "\n" not in text:
            members.append(text)
    begin = _text(node)[: body.start_byte - node.start_byte].rstrip()
    brace = "" if begin.endswith(":") else " {"
    close = "" if begin.endswith(":") else "\n}"
    return begin + brace + "".join(f"\n    {member}" for member in members) + close


def _header(node: tree_sitter.Node, ending: str) -> str:
    body = node.child_by_field_name("body")
    if body is None:
        return _text(node)
    begin = _text(node)[: body.start_byte - node.start_byte]
    begin = " ".join(begin.split())
    return begin + (ending if begin.endswith(":") else " {" + ending)


def _unwrapped(node: tree_sitter.Node) -> tree_sitter.Node:
    while node.type in _WRAPPERS:
        fields = map(node.child_by_field_name, _DECLARES)
        inner = next((field for field in fields if field is not None), None)
        if inner is None:
            break
        node = inner
    return node


def _parse(document: str, language: str | None) -> tree_sitter.Node | None:
    known = grammar(language) if language else None
    source = document.encode(errors="replace")
    if known is None or len(source) > _MAX_BYTES:
        return None
    return known.parse_apart(source).root_node


def _descendants(node: tree_sitter.Node, kind: str) -> Iterator[tree_sitter.Node]:
    for child in node.children:
        if child.type == kind:
            yield child
        yield from _descendants(child, kind)


def _text(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _lines(source: bytes, start: int, end: int) -> str:
    """The whole lines that hold the bytes from start to end."""
    first = source.rfind(b"\n", 0, start) + 1
    last = source.find(b"\n", max(end - 1, start))
    return source[first : len(source) if last < 0 else last].decode(errors="replace") + "\n"

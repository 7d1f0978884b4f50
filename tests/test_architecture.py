"""The arrows between rooms and the sizes of files and functions, read off the syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("dlsp", "engine")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

MAX_FILE_LINES = 330
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 80
MAX_PARAMETERS = 6

#: What `dlsp` may see of the engine; all are free of torch.
ENGINE_FOR_DLSP = {"engine.credentials", "engine.request", "engine.syntax"}
#: The rooms of `dlsp`, and which of them each may import: only ones above it, so there is no cycle.
#: The modules beside the rooms (the path of a request, the server) may import any room; no room
#: imports one of them.
ROOMS_OF_DLSP: dict[str, set[str]] = {
    "config": set(),
    "text": set(),
    "guard": {"config"},
    "policy": {"config", "text"},
    "client": {"config"},
    "context": {"config", "guard", "text"},
    "suggestion": {"client", "context", "policy", "text"},
    "scores": {"suggestion", "text"},
    "diagnosis": {"client", "scores"},
    "commands": {"client", "config", "diagnosis", "scores", "text"},
}
HEAVY = {"torch", "numpy", "transformers", "triton", "safetensors", "tokenizers", "gguf"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function, as an absolute name.

    `from engine import request` counts as `engine.request`: what is imported, not only from where.
    """
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module or "").split("."))).strip(".")
            yield from ((f"{module}.{alias.name}") for alias in node.names)


def is_inside(module: str, packages: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in packages)


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_rooms_are_there() -> None:
    assert {name_of(path) for path in MODULES} >= {"dlsp/__init__.py", "engine/__main__.py"}
    rooms = {path.parent.name for path in (ROOT / "dlsp").glob("*/__init__.py")}
    assert rooms == set(ROOMS_OF_DLSP)


def test_rooms_of_dlsp_build_only_on_those_above() -> None:
    rooms = list(ROOMS_OF_DLSP)
    for place, room in enumerate(rooms):
        assert ROOMS_OF_DLSP[room] <= set(rooms[:place]), f"{room} is above what it builds on"


@pytest.mark.parametrize(
    "path", [p for p in MODULES if name_of(p).startswith("dlsp/")], ids=name_of
)
def test_a_room_of_dlsp_imports_only_its_own(path: Path) -> None:
    room = path.relative_to(ROOT / "dlsp").parts[0]
    if room not in ROOMS_OF_DLSP:
        return  # beside the rooms
    allowed = {f"dlsp.{name}" for name in {room, *ROOMS_OF_DLSP[room]}} | {"dlsp.__version__"}
    of_dlsp = [m for m in imports_of(path) if is_inside(m, {"dlsp"})]
    assert [m for m in of_dlsp if not is_inside(m, allowed)] == []


@pytest.mark.parametrize("path", [*(ROOT / "dlsp").rglob("__init__.py")], ids=name_of)
def test_the_door_of_a_room_is_empty(path: Path) -> None:
    body = tree_of(path).body
    assigned = [node for node in body[1:] if not isinstance(node, ast.Assign)]
    assert assigned == [], f"{name_of(path)} does more than say what the room is"


@pytest.mark.parametrize(
    "path", [p for p in MODULES if name_of(p).startswith("dlsp/")], ids=name_of
)
def test_dlsp_sees_only_the_light_rooms_of_the_engine(path: Path) -> None:
    imported = set(imports_of(path))
    assert [m for m in imported if is_inside(m, HEAVY)] == []
    of_engine = [m for m in imported if is_inside(m, {"engine"})]
    assert [m for m in of_engine if not is_inside(m, ENGINE_FOR_DLSP)] == []


@pytest.mark.parametrize(
    "path", [p for p in MODULES if name_of(p).startswith("engine/")], ids=name_of
)
def test_the_engine_never_sees_the_editor(path: Path) -> None:
    imported = set(imports_of(path))
    assert [m for m in imported if is_inside(m, {"dlsp", "pygls", "lsprotocol"})] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_triton_stays_in_the_kernels(path: Path) -> None:
    if not name_of(path).startswith("engine/kernels/"):
        assert [m for m in imports_of(path) if is_inside(m, {"triton"})] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_pickle_and_no_remote_code(path: Path) -> None:
    assert [m for m in imports_of(path) if is_inside(m, {"pickle", "dill", "joblib"})] == []
    keywords = {
        keyword.arg: keyword.value
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
    }
    trusted = keywords.get("trust_remote_code")
    assert trusted is None or ast.unparse(trusted) == "False"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_sizes(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES, f"{name_of(path)} has {lines} lines"
    kernel = name_of(path).startswith("engine/kernels/")
    limit = MAX_KERNEL_LINES if kernel else MAX_FUNCTION_LINES
    for function in functions_of(path):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        assert length <= limit, f"{name_of(path)}: {function.name} has {length} lines"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_parameters(path: Path) -> None:
    if name_of(path).startswith("engine/kernels/"):
        return  # a kernel takes pointers and strides one by one
    for function in functions_of(path):
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        own = [a for a in named if a.arg not in ("self", "cls")]
        assert len(own) <= MAX_PARAMETERS, f"{name_of(path)}: {function.name} takes {len(own)}"
        assert arguments.kwarg is None, f"{name_of(path)}: {function.name} takes **kwargs"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_words(path: Path) -> None:
    assert path.name != "utils.py"
    tree = tree_of(path)
    prints = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert prints == [], "standard output is the wire"
    if path.read_text(encoding="utf-8").strip():
        assert ast.get_docstring(tree), f"{name_of(path)} does not say what it knows"


def test_torch_is_never_loaded_in_the_editor_process() -> None:
    """Import every module of `dlsp`, and what it may see of the engine, and look."""
    modules = [
        name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in MODULES
        if name_of(path).startswith("dlsp/")
    ]
    program = (
        "import importlib, sys\n"
        f"for name in {modules + sorted(ENGINE_FOR_DLSP)!r}: importlib.import_module(name)\n"
        f"sys.stdout.write(' '.join(name for name in {sorted(HEAVY)!r} if name in sys.modules))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "", "heavy modules in the editor's process"

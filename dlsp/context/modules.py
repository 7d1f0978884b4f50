"""Where in the open folders an imported module lies, by the rules of a few languages.

Only files beside the importing one or inside the open folders are found: what is installed is known
to the model, or is not ours to read. Knows paths and how modules are named; reads no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.syntax import Import

_SCRIPTS = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs")
#: What a written extension may stand for: TypeScript names the file that will be built.
_BUILT = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",)}


def find_module(wanted: Import, file: Path, folders: Sequence[Path]) -> Path | None:
    """The file of an imported module as `file` sees it, or None."""
    if file.suffix in (".py", ".pyi"):
        candidates = _python(wanted, file, folders)
    elif wanted.module.startswith("."):
        candidates = _script(file.parent / wanted.module)
    else:
        candidates = _header(wanted.module, file, folders)
    return next((path for path in candidates if path != file and path.is_file()), None)


def _python(wanted: Import, file: Path, folders: Sequence[Path]) -> Iterator[Path]:
    name = wanted.module.lstrip(".")
    dots = len(wanted.module) - len(name)
    parts = [part for part in name.split(".") if part]
    if dots:
        roots = [file.parents[dots - 1]] if dots <= len(file.parents) else []
    else:
        inside = [folder for folder in folders if file.is_relative_to(folder)]
        above = [parent for parent in file.parents if any(map(parent.is_relative_to, inside))]
        roots = [*above, *(folder / "src" for folder in inside), *folders]
    for root in roots:
        place = root.joinpath(*parts)
        # `from package import module` names the file in the second place
        for inner in wanted.names:
            yield place / f"{inner}.py"
        if parts:
            yield place.with_name(f"{place.name}.py")
        yield place / "__init__.py"


def _script(place: Path) -> Iterator[Path]:
    yield place
    for built in _BUILT.get(place.suffix, ()):
        yield place.with_suffix(built)
    for suffix in _SCRIPTS:
        yield place.with_name(place.name + suffix)
        yield place / f"index{suffix}"


def _header(name: str, file: Path, folders: Sequence[Path]) -> Iterator[Path]:
    yield file.parent / name
    for folder in folders:
        yield folder / name
        yield folder / "include" / name
        yield folder / "src" / name

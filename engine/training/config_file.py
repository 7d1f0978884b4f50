"""A TOML file in place of a command line: its keys are the long options, without their dashes.

What is given on the command line wins. Relative paths in the file are relative to the file.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

from engine.request import BadRequest

_NOT_IN_FILES = frozenset({"help", "config"})


def with_config(parser: argparse.ArgumentParser, argv: list[str]) -> list[str]:
    """`argv` with the options of its `--config` file put before it. Raises BadRequest."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config", type=Path)
    path = finder.parse_known_args(argv)[0].config
    return argv if path is None else [*_as_arguments(parser, path), *argv]


def _as_arguments(parser: argparse.ArgumentParser, path: Path) -> list[str]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRequest(f"cannot read the config file {path} ({error})") from error
    actions = {a.dest: a for a in parser._actions if a.dest not in _NOT_IN_FILES}
    arguments: list[str] = []
    for key, value in values.items():
        action = actions.get(key.replace("-", "_"))
        if action is None:
            known = ", ".join(sorted(actions))
            raise BadRequest(f"{path}: no option is called {key!r}; there are {known}")
        arguments += _one(action, key, value, path)
    return arguments


def _one(action: argparse.Action, key: str, value: object, path: Path) -> list[str]:
    """One option as arguments; the parser then checks it like any other."""
    given = value if isinstance(value, list) else [value]
    if isinstance(value, dict):  # a table: `[mix]` with `python = 4` is `--mix python=4`
        given = [f"{name}={each}" for name, each in value.items()]
    many = action.nargs in ("*", "+")
    plain = all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in given)
    if not plain or (not many and (len(given) != 1 or isinstance(value, list | dict))):
        raise BadRequest(f"{path}: {key} = {value!r} is not what --{key} takes")
    if action.type is Path:
        given = [path.parent / str(each) for each in given]
    elif key == "base" and (path.parent / str(value)).exists():
        given = [path.parent / str(value)]
    option = action.option_strings[-1]
    if many:
        return [option, *map(str, given)]
    return [f"{option}={given[0]}"]

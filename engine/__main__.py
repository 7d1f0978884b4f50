"""`dlsp-engine`: the engine's command line.

This room knows arguments, exit codes and how an error is told: one line on standard error. The work
is done elsewhere, imported only when it is asked for, so that `--help` is instant.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from engine import __version__
from engine.request import EngineError

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_PROGRAM = "dlsp-engine"
_INTERRUPTED, _BUG, _BROKEN_PIPE, _DISK_FULL = 130, 70, 141, 74

#: Commands with a parser of their own: (module, what they do).
_DELEGATED = {
    "about": ("engine.about_command", "print what this installation can run, as JSON"),
    "infill": ("engine.infill_command", "fill the hole at a place of a file, and print the text"),
    "corpus": (
        "engine.training.corpus.command",
        "fetch packages and build a corpus of token shards",
    ),
    "train": ("engine.training.command", "train a denoiser for a frozen base model"),
    "train-native": (
        "engine.training.native.command",
        "train a small masked-diffusion model from nothing",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except EngineError as error:
        return _tell(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _tell("interrupted", _INTERRUPTED)
    except BrokenPipeError:  # the reader went away
        _abandon_output()
        return _BROKEN_PIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _abandon_output()
            return _tell(f"cannot write: {error.strerror}", _DISK_FULL)
        if os.environ.get("DLSP_DEBUG"):
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        return _tell(f"a bug: {what} (DLSP_DEBUG=1 shows where)", _BUG)


def _abandon_output() -> None:
    """Point stdout elsewhere so that the final flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(message: str, code: int) -> int:
    sys.stderr.write(f"{_PROGRAM}: {message}\n")
    return code


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] in _DELEGATED:
        module = importlib.import_module(_DELEGATED[arguments[0]][0])
        command: Callable[[list[str]], int] = module.main
        return command(arguments[1:])
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="A masked-diffusion infilling engine for code."
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_pull(commands)
    _add_models(commands)
    for name, (_, summary) in _DELEGATED.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser


def _add_serve(commands: _Commands) -> None:
    serve = commands.add_parser("serve", help="answer completion requests over HTTP")
    _add_model_options(serve)
    place = serve.add_mutually_exclusive_group()
    place.add_argument(
        "--socket", type=Path, metavar="PATH", help="listen on this Unix socket (a private one)"
    )
    place.add_argument(
        "--port", type=int, metavar="N", help="listen on this loopback TCP port instead (0: any)"
    )
    serve.add_argument(
        "--token-file", type=Path, metavar="FILE", help="bearer token that TCP clients must send"
    )
    serve.add_argument(
        "--endpoint", type=Path, metavar="FILE", help="write here where the engine listens"
    )
    serve.add_argument(
        "--idle-exit",
        type=_seconds,
        metavar="SECONDS",
        help="exit after so long without a client (default 900; 0: never)",
    )
    serve.add_argument(
        "--idle-unload",
        type=_seconds,
        metavar="SECONDS",
        help="drop the model after so long unused (default 600; 0: never)",
    )
    serve.add_argument(
        "--memory-mb",
        type=_count,
        metavar="N",
        help="keep contexts of at most so many megabytes between requests (default 512)",
    )
    serve.add_argument(
        "--threads", type=_count, metavar="N", help="CPU threads (default: all cores)"
    )
    serve.set_defaults(run=_serve)


def _seconds(text: str) -> float:
    """A number of seconds that a timer can count to."""
    number = float(text)
    if not 0 <= number <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0")
    return number


def _count(text: str) -> int:
    """A whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def _add_pull(commands: _Commands) -> None:
    pull = commands.add_parser("pull", help="fetch models into the cache and print their paths")
    pull.add_argument("models", nargs="*", metavar="MODEL", help="default: the default model")
    pull.set_defaults(run=_pull)


def _add_models(commands: _Commands) -> None:
    models = commands.add_parser("models", help="list the models one can name")
    models.add_argument("--json", action="store_true", help="as JSON")
    models.set_defaults(run=_models)


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="a model of the catalogue, or a path (default: DLSP_MODEL or the default model)",
    )
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="a .gguf file or a folder in the hub's layout; fetches nothing",
    )


def _serve(options: argparse.Namespace) -> int:
    from engine.catalog import default_model
    from engine.serve import ServeOptions, run
    from engine.worker import THREAD_NAME

    code = run(
        ServeOptions(
            model=options.model or default_model(),
            weights=options.weights,
            socket=options.socket,
            port=options.port,
            token_file=options.token_file,
            endpoint=options.endpoint,
            idle_exit=options.idle_exit,
            idle_unload=options.idle_unload,
            memory_mb=options.memory_mb,
            threads=options.threads,
        )
    )
    if any(thread.name == THREAD_NAME for thread in threading.enumerate()):
        # A load cannot be interrupted, and Python's own way out would wait for its helpers, or
        # pull the ground from under its native code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _pull(options: argparse.Namespace) -> int:
    from engine.catalog import default_model, resolve
    from engine.progress import TerminalProgress

    for model in options.models or [default_model()]:
        with TerminalProgress() as progress:
            files = resolve(model, None, progress)
        sys.stdout.write(f"{files.path}\n")
    return 0


def _models(options: argparse.Namespace) -> int:
    from engine.model_list import rows, table

    listed = rows()
    sys.stdout.write(json.dumps(listed, indent=2) + "\n" if options.json else table(listed))
    return 0


if __name__ == "__main__":
    sys.exit(main())

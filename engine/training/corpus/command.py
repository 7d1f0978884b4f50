"""`dlsp-engine corpus`: fetch packages, and build a corpus of token shards."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from engine import catalog, store
from engine.request import BadRequest
from engine.training.corpus import fetch, manifest, packages
from engine.training.corpus.build import Builder, BuildOptions
from engine.training.corpus.languages import LANGUAGES
from engine.training.corpus.packages import Package
from engine.weights import open_checkpoint


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="dlsp-engine corpus",
        description="Build a corpus for `dlsp-engine train --shards` from packages and folders.",
    )
    commands = p.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_fetch(commands.add_parser("fetch", help="download listed packages with pip and npm"))
    _add_build(commands.add_parser("build", help="filter, split and pack into token shards"))
    return p


def _add_fetch(p: argparse.ArgumentParser) -> None:
    p.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder of downloads")
    p.add_argument(
        "--list", type=Path, default=fetch.OURS, metavar="FILE", help="default: our list (TOML)"
    )
    p.add_argument(
        "--sdists",
        action="store_true",
        help="source distributions, too: pip runs their build code to learn their metadata",
    )
    p.add_argument(
        "--language", nargs="*", choices=LANGUAGES, default=[], help="only packages of these"
    )


def _add_build(p: argparse.ArgumentParser) -> None:
    p.add_argument("--out", type=Path, required=True, metavar="DIR", help="shards and manifest")
    p.add_argument(
        "--data",
        type=Path,
        nargs="*",
        default=[],
        metavar="DIR",
        help="folders of packages (.whl, .tar.gz, .tgz, .crate, node_modules), or of your sources",
    )
    p.add_argument(
        "--site", type=Path, nargs="*", default=[], metavar="DIR", help="site-packages folders"
    )
    p.add_argument("--no-library", action="store_true", help="leave Python's own library out")
    p.add_argument(
        "--exclude",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE",
        help="benchmark tasks (.jsonl or .jsonl.gz) that must not be in the corpus",
    )
    p.add_argument(
        "--language", nargs="*", choices=LANGUAGES, default=list(LANGUAGES), help="default: all"
    )
    p.add_argument("--base", default=catalog.DEFAULT_MODEL, help="whose tokenizer: name or file")
    p.add_argument("--weights", type=Path, help="weights of the base, if not from the catalogue")
    p.add_argument(
        "--package-limit",
        type=float,
        default=8.0,
        metavar="MB",
        help="most text of one language from one package (default 8; 0: no limit)",
    )


def main(argv: list[str]) -> int:
    """Run the command; returns the exit status."""
    args = parser().parse_args(argv)
    if args.command == "fetch":
        wanted = fetch.FetchOptions(
            to=args.to,
            source=args.list,
            languages=frozenset(args.language or LANGUAGES),
            sdists=args.sdists,
        )
        return fetch.run(wanted, say)
    return _build(args)


def say(line: str) -> None:
    """One progress line on stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def _build(args: argparse.Namespace) -> int:
    if args.package_limit < 0:
        raise BadRequest("--package-limit cannot be negative")
    if (args.out / manifest.NAME).exists():
        raise BadRequest(f"{args.out} already holds a corpus; remove it or give another --out")
    found = packages.newest_of_each(_sources(args))
    if not any(package.names for package in found):
        raise BadRequest("no source files there; give folders with --data or --site")
    say(f"{len(found)} packages")
    files = catalog.resolve(args.base, args.weights)
    tokenizer = store.load_tokenizer(open_checkpoint(files.path))
    args.out.mkdir(parents=True, exist_ok=True)
    options = BuildOptions(
        out=args.out,
        languages=frozenset(args.language),
        exclude=tuple(args.exclude),
        package_bytes=int(args.package_limit * 1e6),
    )
    corpus = Builder(options, tokenizer).build(found, say)
    path = corpus.save(args.out)
    sys.stdout.write("\n".join([*corpus.report(), f"wrote {path}"]) + "\n")
    return 0


def _sources(args: argparse.Namespace) -> Iterator[Package]:
    if not args.no_library:
        yield packages.standard_library()
    for site in args.site:
        yield from packages.installed(site)
    for folder in args.data:
        yield from packages.in_folder(folder)

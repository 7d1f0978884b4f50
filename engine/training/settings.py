"""The options of `dlsp-engine train`: their names, defaults and checks."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path

from engine.catalog import DEFAULT_MODEL
from engine.request import BadRequest
from engine.training.config_file import with_config
from engine.training.texts import read_mix

SHORTEST = 64  # tokens of a document that is worth a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One training, as the command line and the config file give it."""

    base: str
    weights: Path | None
    data: list[Path]
    site: list[Path]
    shards: Path | None
    mix: list[str]
    exclude: list[Path]
    out: Path
    hours: float
    steps: int
    layers: int
    inner: int
    slots: int
    shortlist: int
    length: int
    sites: int
    keep: int
    seed: int
    threads: int
    device: str

    def __post_init__(self) -> None:
        """Raises BadRequest."""
        if self.hours <= 0 or self.steps < 0:
            raise BadRequest("--hours must be positive and --steps not negative")
        if min(self.slots, self.layers, self.sites, self.shortlist, self.keep) < 1:
            raise BadRequest("--slots, --layers, --sites, --shortlist and --keep must be positive")
        if self.length < SHORTEST * 2:
            raise BadRequest(f"--length must be at least {SHORTEST * 2}")
        if self.shards and (self.data or self.site or self.exclude):
            raise BadRequest(
                "--shards is a corpus already; give --data, --site and --exclude to "
                "`dlsp-engine corpus build`"
            )
        if self.data and self.site:
            raise BadRequest("give --data or --site; `dlsp-engine corpus build` takes both")

    @property
    def shares(self) -> dict[str, float]:
        """Weights of languages; empty to draw all texts alike."""
        return read_mix(self.mix)


def read(argv: list[str]) -> Settings:
    """Settings from a command line. Raises BadRequest; exits as argparse does."""
    p = parser()
    args = p.parse_args(with_config(p, argv))
    if args.out is None:
        raise BadRequest("give --out DIR (or `out` in the config file): where checkpoints go")
    given = {field.name: getattr(args, field.name) for field in fields(Settings)}
    return Settings(**given)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="dlsp-engine train",
        allow_abbrev=False,
        description="Train a denoiser over a frozen autoregressive code model. Resumable: run the "
        "same command again after an interruption.",
    )
    p.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="options as TOML, without dashes; the command line wins",
    )
    p.add_argument("--base", default=DEFAULT_MODEL, help="model name, file or folder")
    p.add_argument("--weights", type=Path, help="weights of the base, if not from the catalogue")
    _add_texts(p.add_argument_group("what to learn from"))
    _add_shape(p.add_argument_group("the denoiser"))
    _add_run(p.add_argument_group("the run"))
    return p


def _add_texts(p: argparse._ArgumentGroup) -> None:
    folders: tuple[tuple[str, str], ...] = (
        ("--data", "folders of source files (default: this Python's library and packages)"),
        ("--site", "site-packages folders to take permissively licensed packages from"),
    )
    for option, text in folders:
        p.add_argument(option, type=Path, nargs="*", default=[], metavar="DIR", help=text)
    p.add_argument("--shards", type=Path, metavar="DIR", help="what `corpus build` wrote")
    p.add_argument(
        "--mix",
        nargs="*",
        default=[],
        metavar="LANGUAGE=WEIGHT",
        help="draw languages by weight, as python=4 go=1 (default: all texts alike)",
    )
    p.add_argument(
        "--exclude",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE",
        help="benchmark tasks (.jsonl, .jsonl.gz): leave files out that hold them",
    )


def _add_shape(p: argparse._ArgumentGroup) -> None:
    p.add_argument("--layers", type=int, default=2, help="top layers of the base to copy")
    p.add_argument("--inner", type=int, default=0, help="feed-forward neurons (default: half)")
    p.add_argument("--slots", type=int, default=6, help="slots behind the base's next token")
    p.add_argument("--shortlist", type=int, default=16384, help="vocabulary of the draft head")


def _add_run(p: argparse._ArgumentGroup) -> None:
    p.add_argument("--out", type=Path, metavar="DIR", help="folder of checkpoints, curve, result")
    p.add_argument("--hours", type=float, default=2.0, help="training time in all (default 2)")
    p.add_argument(
        "--steps",
        type=int,
        default=0,
        help="steps in all, instead of --hours: the same seed then gives the same result",
    )
    p.add_argument("--length", type=int, default=512, help="tokens per document")
    p.add_argument("--sites", type=int, default=112, help="canvases per document and step")
    p.add_argument("--keep", type=int, default=2500, help="encoded documents kept on disk")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")

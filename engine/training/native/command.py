"""`dlsp-engine train-native`: a masked-diffusion infiller from source files, from nothing."""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from engine import catalog, store
from engine.request import BadRequest
from engine.tokenizer import Tokenizer
from engine.training import device, texts
from engine.training.command import run_alone, say
from engine.training.config_file import with_config
from engine.training.device import Device
from engine.training.interrupts import Interrupts
from engine.training.native import holes, network, vocabulary
from engine.training.native.holes import Batch, Marks
from engine.training.native.network import Network, Shape
from engine.training.native.tokens import Tokens, encoded
from engine.training.native.trainer import Draw, Options, Trainer
from engine.weights import open_checkpoint

_LEARNT_FROM, _HELD_OUT_BATCHES, _HELD_OUT_SEED = 6000, 12, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One training, as the command line and the config file give it."""

    shards: Path
    tokenizer: str
    mix: list[str]
    out: Path
    start: Path | None
    hours: float
    steps: int
    vocabulary: int
    hidden: int
    layers: int
    inner: int
    length: int
    batch: int
    learning_rate: float
    seed: int
    threads: int
    device: str

    def __post_init__(self) -> None:
        """Raises BadRequest."""
        if self.hours <= 0 or self.steps < 0 or self.learning_rate <= 0:
            raise BadRequest("--hours and --learning-rate must be positive, --steps not negative")
        if min(self.layers, self.inner, self.batch, self.length - 1) < 1:
            raise BadRequest("--layers, --inner, --batch and --length must be positive")
        if self.hidden < 64 or self.hidden % 64:
            raise BadRequest("--hidden must be a multiple of 64")
        if not 300 <= self.vocabulary <= 65_536:
            raise BadRequest("--vocabulary must lie between 300 and 65536")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit status."""
    p = parser()
    args = p.parse_args(with_config(p, argv))
    if args.out is None or args.shards is None:
        raise BadRequest("give --shards DIR (of `dlsp-engine corpus build`) and --out DIR")
    given = Settings(**{f.name: getattr(args, f.name) for f in fields(Settings)})
    place = device.choose(given.device)
    return run_alone(given.out, given.threads, place, lambda signals: _train(given, place, signals))


def _train(given: Settings, place: Device, interrupts: Interrupts) -> int:
    (given.out / "model").mkdir(exist_ok=True)
    train, valid, tokenizer = _data(given)
    marks = _marks(tokenizer)
    trainer = Trainer(_network(given, tokenizer), marks, _options(given), place, given.out)
    count = sum(p.numel() for p in trainer.network.parameters())
    say(f"{count / 1e6:.1f} M parameters; {len(train.ids) / 1e6:.1f} M tokens to learn from")
    masked = _drawer(valid, {}, given, marks, fully=1.0)
    held_out = [masked(random.Random(n + _HELD_OUT_SEED)) for n in range(_HELD_OUT_BATCHES)]
    draw = _drawer(train, texts.read_mix(given.mix), given, marks)
    interrupts.deferring = True  # from here on there is something to save
    trainer.run(draw, held_out, say, interrupts.wanted)
    say(f"wrote {given.out / 'model'}")
    return 0


def _drawer(
    tokens: Tokens, shares: dict[str, float], given: Settings, marks: Marks, fully: float = 0.6
) -> Draw:
    """Draws batches from `tokens`; `fully`: how often a canvas is masked throughout."""
    pick = tokens.by_share(shares)

    def draw(rng: random.Random) -> Batch:
        windows = [tokens.window(pick(rng), given.length, rng) for _ in range(given.batch)]
        return holes.draw(windows, given.length, marks, rng, fully)

    return draw


def _data(given: Settings) -> tuple[Tokens, Tokens, Tokenizer]:
    """Tokens to learn from and held out, in the small vocabulary, which is learnt first."""
    files = catalog.resolve(given.tokenizer)
    sources = texts.from_shards(given.shards, store.load_tokenizer(open_checkpoint(files.path)))
    path = given.out / "model" / "tokenizer.json"
    if not path.is_file():
        picker = texts.Picker(sources.train, texts.read_mix(given.mix))
        rng = random.Random(_HELD_OUT_SEED)
        say(f"learning a vocabulary of {given.vocabulary}")
        learnt = vocabulary.learn(
            (picker.pick(rng)[:20_000] for _ in range(_LEARNT_FROM)), given.vocabulary
        )
        part = path.with_suffix(".part")
        part.write_text(learnt, encoding="utf-8")
        part.replace(path)
    vocabulary.write_config(path.parent)
    tokenizer = Tokenizer.from_hub(path)
    about = json.dumps(sources.manifest, indent=1)
    (given.out / "manifest.json").write_text(about, encoding="utf-8")
    train = encoded(sources.train, tokenizer, given.out / "train.safetensors", say)
    valid = encoded(sources.valid, tokenizer, given.out / "held-out.safetensors", say)
    return train, valid, tokenizer


def _marks(tokenizer: Tokenizer) -> Marks:
    breaks = torch.tensor([b"\n" in word for word in tokenizer.token_bytes])
    named = tokenizer.special_ids
    return Marks(end=named[vocabulary.END], mask=named[vocabulary.MASK], breaks=breaks)


def _network(given: Settings, tokenizer: Tokenizer) -> Network:
    torch.manual_seed(given.seed)
    if given.start is not None:
        return network.load(given.start)
    heads = given.hidden // 64
    return Network(
        Shape(
            vocab=tokenizer.size,
            hidden=given.hidden,
            layers=given.layers,
            heads=heads,
            kv_heads=heads,
            inner=given.inner,
        )
    )


def _options(given: Settings) -> Options:
    return Options(
        seconds=given.hours * 3600,
        max_steps=given.steps,
        learning_rate=given.learning_rate,
        seed=given.seed,
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="dlsp-engine train-native",
        allow_abbrev=False,
        description="Train a small masked-diffusion infiller from nothing. Resumable: run the same "
        "command again after an interruption. The result is a folder in the hub's layout.",
    )
    p.add_argument("--config", type=Path, metavar="FILE", help="options as TOML, without dashes")
    _add_texts(p.add_argument_group("what to learn from"))
    _add_run(p.add_argument_group("the run"))
    shape = p.add_argument_group("the network")
    shape.add_argument("--vocabulary", type=int, default=8192, help="entries of its tokenizer")
    shape.add_argument("--hidden", type=int, default=384, help="a multiple of 64")
    shape.add_argument("--layers", type=int, default=6)
    shape.add_argument("--inner", type=int, default=1024, help="feed-forward neurons")
    return p


def _add_texts(p: argparse._ArgumentGroup) -> None:
    p.add_argument("--shards", type=Path, metavar="DIR", help="what `corpus build` wrote")
    p.add_argument(
        "--tokenizer", default=catalog.DEFAULT_MODEL, help="the model whose tokenizer wrote it"
    )
    p.add_argument(
        "--mix",
        nargs="*",
        default=[],
        metavar="LANGUAGE=WEIGHT",
        help="draw languages by weight, as python=4 go=1 (default: all tokens alike)",
    )


def _add_run(p: argparse._ArgumentGroup) -> None:
    p.add_argument("--out", type=Path, metavar="DIR", help="folder of checkpoints, curve, result")
    p.add_argument(
        "--start",
        type=Path,
        metavar="DIR",
        help="a `model` folder to go on from, on a new schedule",
    )
    p.add_argument("--hours", type=float, default=6.0, help="training time in all (default 6)")
    p.add_argument("--steps", type=int, default=0, help="steps in all, instead of --hours")
    p.add_argument("--length", type=int, default=320, help="tokens per sequence")
    p.add_argument("--batch", type=int, default=32, help="sequences per step")
    p.add_argument("--learning-rate", type=float, default=1.5e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")

"""`dlsp-engine train-native`: a masked-diffusion infiller from source files, from nothing."""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from engine import catalog, store
from engine.kernels import cpu
from engine.request import BadRequest
from engine.tokenizer import Tokenizer
from engine.training import device, texts
from engine.training.command import say
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


def main(argv: list[str]) -> int:
    """Run the command; returns the exit status."""
    p = parser()
    args = p.parse_args(with_config(p, argv))
    if args.out is None or args.shards is None:
        raise BadRequest("give --shards DIR (of `dlsp-engine corpus build`) and --out DIR")
    given = Settings(**{f.name: getattr(args, f.name) for f in fields(Settings)})
    if given.threads:
        torch.set_num_threads(given.threads)
    cpu.set_threads(given.threads or None)
    (given.out / "model").mkdir(parents=True, exist_ok=True)
    lock = FileLock(given.out / ".lock", blocking=False)
    place = device.choose(given.device)
    try:
        with lock, Interrupts() as interrupts, place.here():
            return _train(given, place, interrupts)
    except Timeout:
        raise BadRequest(f"another training runs in {given.out}; give another --out") from None


def _train(given: Settings, place: Device, interrupts: Interrupts) -> int:
    try:
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
    except KeyboardInterrupt:  # Stopped is one
        say("stopped; run the same command to go on")
        return interrupts.exit_status
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

"""`dlsp-engine train`: from a base model and source files to a denoiser."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from engine import catalog, store
from engine.model import denoiser_file
from engine.model.denoiser import Denoiser
from engine.model.denoiser_file import DenoiserConfig
from engine.model.linear import FloatLinear, Int8Linear, quantise_rows
from engine.model.transformer import Transformer
from engine.prompt import PromptStyle, style_of
from engine.request import BadRequest
from engine.tokenizer import Tokenizer
from engine.training import data
from engine.training.data import Project
from engine.training.encode import Document, Encoder, arrange
from engine.training.loop import Student, Trainer, TrainOptions
from engine.weights import open_checkpoint

_SHORTEST = 64  # tokens of a document that is worth a step
_FRUITLESS = 1000  # so many texts in a row without one


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="dlsp-engine train",
        description="Train a denoiser over a frozen autoregressive code model. Resumable: run the "
        "same command again after an interruption.",
    )
    p.add_argument("--base", default="qwen2.5-coder-0.5b", help="model name, file or folder")
    p.add_argument("--weights", type=Path, help="weights of the base, if not from the catalogue")
    p.add_argument(
        "--data",
        type=Path,
        nargs="*",
        default=[],
        metavar="DIR",
        help="folders of source files (default: this Python's library and packages)",
    )
    p.add_argument(
        "--site",
        type=Path,
        nargs="*",
        default=[],
        metavar="DIR",
        help="site-packages folders to take permissively licensed packages from",
    )
    p.add_argument("--exclude", type=Path, help="benchmark tasks (.jsonl.gz): skip their functions")
    p.add_argument("--out", type=Path, required=True, help="folder of checkpoints, curve, result")
    p.add_argument("--hours", type=float, default=2.0, help="training time in all (default 2)")
    p.add_argument("--layers", type=int, default=2, help="top layers of the base to copy")
    p.add_argument("--inner", type=int, default=0, help="feed-forward neurons (default: half)")
    p.add_argument("--slots", type=int, default=6, help="slots behind the base's next token")
    p.add_argument("--shortlist", type=int, default=16384, help="vocabulary of the draft head")
    p.add_argument("--length", type=int, default=512, help="tokens per document")
    p.add_argument("--sites", type=int, default=112, help="canvases per document and step")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    return p


def main(argv: list[str]) -> int:
    """Run the command; returns the exit status."""
    args = parser().parse_args(argv)
    if args.hours <= 0 or min(args.slots, args.layers, args.sites, args.shortlist) < 1:
        raise BadRequest("--hours, --slots, --layers, --sites and --shortlist must be positive")
    if args.length < _SHORTEST * 2:
        raise BadRequest(f"--length must be at least {_SHORTEST * 2}")
    if args.threads:
        torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    session = _Session(args)
    trainer = session.trainer()
    held_out = session.held_out()
    say(f"{len(session.train)} training texts, {len(held_out)} held-out documents")
    try:
        trainer.run(session.documents(trainer.steps), held_out, say)
    except KeyboardInterrupt:
        trainer.checkpoint()
        say("interrupted; the checkpoint is saved, run the same command to go on")
        return 130
    target = args.out / "denoiser.safetensors"
    trainer.export(target, held_out)
    say(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB)")
    return 0


def say(line: str) -> None:
    """One progress line on stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


class _Session:
    """The base, the texts and what both imply."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        files = catalog.resolve(args.base, args.weights)
        checkpoint = open_checkpoint(files.path)
        self.config = DenoiserConfig(
            base=files.name,
            base_layers=checkpoint.config.layers,
            hidden=checkpoint.config.hidden,
            layers=args.layers,
            inner=args.inner or checkpoint.config.intermediate // 2,
            rows=args.slots + 1,
        )
        if (
            args.layers > self.config.base_layers
            or self.config.inner > checkpoint.config.intermediate
        ):
            raise BadRequest(
                f"{files.name} has {self.config.base_layers} layers of "
                f"{checkpoint.config.intermediate} neurons; --layers and --inner cannot exceed them"
            )
        folder = store.converted_folder(files.sha256)
        store.convert(files.path, folder)
        base, tokenizer = store.open_int8(folder, self.config.depths)
        self.base: Transformer = base
        self.tokenizer: Tokenizer = tokenizer
        self.style: PromptStyle = style_of(tokenizer)
        self.get = store.fused_reader(checkpoint)
        self.train, self.valid = self._texts()
        self.shortlist = self._shortlist()
        self.head_rows = self.get("head")[self.shortlist].clone()

    def trainer(self) -> Trainer:
        """A trainer at the last checkpoint, or at copies of the base's layers."""
        args = self.args
        start = denoiser_file.from_base(self.config, self.base.config, self.get)
        count = sum(p.numel() for p in start.values())
        say(f"denoiser: {count / 1e6:.1f} M parameters; about {count * 16 / 1e9:.1f} GB to train")
        options = TrainOptions(seconds=args.hours * 3600, sites=args.sites, seed=args.seed)
        head = FloatLinear(self.head_rows)

        def network(parameters: denoiser_file.Parameters) -> Denoiser:
            return denoiser_file.build(
                self.config, self.base.config, parameters, self.shortlist, head
            )

        (args.out / "config.json").write_text(
            json.dumps({"denoiser": asdict(self.config), "options": asdict(options)}, indent=1)
        )
        student = Student(config=self.config, parameters=start, network=network)
        return Trainer(options, student, self.base.embedding, args.out)

    def held_out(self, count: int = 24) -> list[Document]:
        """Documents of projects that training never sees, always the same; encoded once."""
        kept = self.args.out / "held_out"
        paths = [kept / f"{n:02d}.safetensors" for n in range(count)]
        if all(path.is_file() for path in paths):
            return [Document.load(path) for path in paths]
        kept.mkdir(exist_ok=True)
        found = []
        for path, document in zip(
            paths, self._encoded(self.valid, random.Random(20)), strict=False
        ):
            document.save(path)
            found.append(document)
        return found

    def documents(self, offset: int) -> Iterator[Document]:
        """Endless fresh training documents, in an order that the seed and `offset` fix."""
        return self._encoded(self.train, random.Random(self.args.seed * 1_000_003 + offset))

    def _encoded(self, texts: list[str], rng: random.Random) -> Iterator[Document]:
        encoder, fruitless = self._encoder(), 0
        while fruitless < _FRUITLESS:
            text = texts[rng.randrange(len(texts))]
            arranged = arrange(self.tokenizer, self.style, text, self.args.length, rng)
            if arranged and len(arranged[0]) > _SHORTEST:
                fruitless = 0
                yield encoder(*arranged)
            else:
                fruitless += 1
        raise BadRequest("the source files are too short to train on; give more with --data")

    def _encoder(self) -> Encoder:
        head = Int8Linear(*quantise_rows(self.head_rows))
        return Encoder(self.base, self.config.layers, self.shortlist, head)

    def _texts(self) -> tuple[list[str], list[str]]:
        args = self.args
        projects: list[Project] = [data.folder_project(path) for path in args.data]
        if not args.data:
            projects = data.installed_projects(args.site)
        banned = data.benchmark_functions(args.exclude) if args.exclude else frozenset()
        train = list(data.read_texts((p for p in projects if not p.held_out), banned))
        valid = list(data.read_texts((p for p in projects if p.held_out), banned))
        if not train or not valid:  # one project only: hold out every twelfth file
            texts = train or valid
            train, valid = [t for i, t in enumerate(texts) if i % 12], texts[::12]
        if not train or not valid:
            raise BadRequest("no source files to train on; give folders with --data")
        manifest = [
            {
                "name": p.name,
                "version": p.version,
                "licence": p.licence,
                "files": len(p.files),
                "held_out": p.held_out,
            }
            for p in projects
        ]
        (args.out / "manifest.json").write_text(json.dumps(manifest, indent=1))
        return train, valid

    def _shortlist(self) -> Tensor:
        saved = self.args.out / "shortlist.json"
        if saved.is_file():
            return torch.tensor(json.loads(saved.read_text()))
        rng, counts = random.Random(3), Counter[int]()
        for text in rng.sample(self.train, min(len(self.train), 2500)):
            counts.update(self.tokenizer.encode(text[:20_000]))
        ends = list(self.style.end_ids[:1])
        common = [i for i, _ in counts.most_common(self.args.shortlist) if i not in ends]
        ids = sorted(ends + common[: self.args.shortlist - len(ends)])
        saved.write_text(json.dumps(ids))
        return torch.tensor(ids)

"""One training: the base, its texts, the documents it encodes, and the trainer over them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from engine import catalog, converted, store
from engine.catalog import ModelFiles
from engine.model import denoiser_file
from engine.model.config import ModelConfig
from engine.model.denoiser import Denoiser
from engine.model.denoiser_file import DenoiserConfig
from engine.model.linear import FloatLinear
from engine.model.transformer import Transformer
from engine.prompt import style_of
from engine.request import BadRequest
from engine.tokenizer import Tokenizer
from engine.training import device, memory, texts
from engine.training.encode import Document, Encoder, arrange
from engine.training.interrupts import Stop, Stopped
from engine.training.loop import Student, Trainer, TrainOptions
from engine.training.run import Log, step_seed
from engine.training.settings import SHORTEST, Settings
from engine.training.texts import Picker, Sources
from engine.weights import open_checkpoint

_FRUITLESS = 1000  # so many texts in a row without a document
_HELD_OUT_SEED, _SHORTLIST_SEED = 20, 3


class Session:
    """The base, the texts and what both imply. Make and use it inside `device.here()`."""

    def __init__(self, settings: Settings) -> None:
        """Fetches and converts the base if need be. Raises EngineError of several kinds."""
        self.settings, self.device = settings, device.choose(settings.device)
        files = catalog.resolve(settings.base, settings.weights)
        checkpoint = open_checkpoint(files.path)
        self.config = _shape(settings, files, checkpoint.config)
        self.base, self.tokenizer, self.base_bytes = self._open(files)
        self.style = style_of(self.tokenizer)
        self.get = store.fused_reader(checkpoint)
        self.sources = self._sources()
        self.picker = Picker(self.sources.train, settings.shares)
        place = self.device.place
        self.shortlist = self._shortlist().to(place)
        self.head_rows = self.get("head")[self.shortlist.cpu()].clone().to(place)
        scored = self.base.head.project.rows(self.shortlist)
        self.encoder = Encoder(self.base, self.config.layers, self.shortlist, scored)

    def trainer(self, log: Log) -> Trainer:
        """A trainer at the last checkpoint, or at copies of the base's layers; `log` is told what
        it will need."""
        given = self.settings
        start = denoiser_file.from_base(self.config, self.base.config, self.get)
        start = {name: value.to(self.device.place) for name, value in start.items()}
        count = sum(p.numel() for p in start.values())
        options = TrainOptions(
            seconds=given.hours * 3600,
            max_steps=given.steps,
            sites=given.sites,
            seed=given.seed,
            keep_documents=given.keep,
        )
        log(f"denoiser: {count / 1e6:.1f} M parameters, {self.config.layers} layers")
        self._state_needs(count, options, log)
        head = FloatLinear(self.head_rows)

        def network(parameters: denoiser_file.Parameters) -> Denoiser:
            return denoiser_file.build(
                self.config, self.base.config, parameters, self.shortlist, head
            )

        about = {"denoiser": asdict(self.config), "options": asdict(options)}
        (given.out / "config.json").write_text(json.dumps(about, indent=1))
        student = Student(config=self.config, parameters=start, network=network, device=self.device)
        return Trainer(options, student, self.base.embedding, given.out)

    def held_out(self, stop: Stop, count: int = 24) -> list[Document]:
        """Documents of projects that training never sees, always the same; encoded once. Raises
        Stopped when `stop` says so."""
        kept = self.settings.out / "held_out"
        paths = [kept / f"{n:02d}.safetensors" for n in range(count)]
        if not all(path.is_file() for path in paths):
            kept.mkdir(exist_ok=True)
            rng = random.Random(_HELD_OUT_SEED)
            everything = Picker(self.sources.valid, {})
            for path, document in zip(paths, self._encoded(everything, rng), strict=False):
                document.save(path)
                if stop():
                    raise Stopped
        return [Document.load(path).to(self.device.place) for path in paths]

    def document(self, step: int) -> Document:
        """A fresh training document, fixed by the seed and `step`."""
        rng = random.Random(step_seed(self.settings.seed, step))
        return next(self._encoded(self.picker, rng))

    def _encoded(self, picker: Picker, rng: random.Random) -> Iterator[Document]:
        fruitless = 0
        while fruitless < _FRUITLESS:
            text = picker.pick(rng)
            arranged = arrange(self.tokenizer, self.style, text, self.settings.length, rng)
            if arranged and len(arranged[0]) > SHORTEST:
                fruitless = 0
                yield self.encoder(*arranged)
            else:
                fruitless += 1
        raise BadRequest("the source files are too short to train on; give more with --data")

    def _open(self, files: ModelFiles) -> tuple[Transformer, Tokenizer, int]:
        """The base, its tokenizer, and the bytes it takes."""
        place = self.device.place
        if place.type != "cpu":
            base, tokenizer = store.open_float(files.path, self.config.depths)
            base = device.moved(base, place)
            return base, tokenizer, base.embedding.weight.nbytes * 2 + _float_bytes(base.config)
        folder = converted.converted_folder(files.sha256)
        store.convert(files.path, folder)
        base, tokenizer = store.open_int8(folder, self.config.depths)
        size = sum(path.stat().st_size for path in folder.iterdir())
        return base, tokenizer, size

    def _sources(self) -> Sources:
        given = self.settings
        if given.shards:
            found = texts.from_shards(given.shards, self.tokenizer)
        else:
            found = texts.from_folders(given.data, given.site, given.exclude)
        about = json.dumps(found.manifest, indent=1)
        (given.out / "manifest.json").write_text(about, encoding="utf-8")
        return found

    def _state_needs(self, parameters: int, options: TrainOptions, log: Log) -> None:
        given = self.settings
        shape = memory.Shape(
            length=given.length,
            sites=options.sites,
            shortlist=len(self.shortlist),
            keep_documents=options.keep_documents,
        )
        fixed = (self.base_bytes, parameters, self.sources.memory_bytes)
        found = memory.needs(self.config, self.base.config, shape, fixed)
        log(found.line(memory.free_memory(self.device)))
        memory.check_disk(given.out, found.disk)

    def _shortlist(self) -> Tensor:
        """The commonest tokens of the training texts; fixed once it is written."""
        saved, size = self.settings.out / "shortlist.json", self.settings.shortlist
        if saved.is_file():
            return torch.tensor(json.loads(saved.read_text()))
        train = self.sources.train
        rng, counts = random.Random(_SHORTLIST_SEED), Counter[int]()
        for index in rng.sample(range(len(train)), min(len(train), 2500)):
            counts.update(self.tokenizer.encode(train[index][:20_000]))
        ends = list(self.style.end_ids[:1])
        common = [i for i, _ in counts.most_common(size) if i not in ends]
        ids = sorted(ends + common[: size - len(ends)])
        part = saved.with_suffix(".part")
        part.write_text(json.dumps(ids))
        part.replace(saved)
        return torch.tensor(ids)


def _shape(settings: Settings, files: ModelFiles, base: ModelConfig) -> DenoiserConfig:
    config = DenoiserConfig(
        base=files.name,
        base_layers=base.layers,
        hidden=base.hidden,
        layers=settings.layers,
        inner=settings.inner or base.intermediate // 2,
        rows=settings.slots + 1,
    )
    if config.layers > base.layers or not 0 < config.inner <= base.intermediate:
        raise BadRequest(
            f"{files.name} has {base.layers} layers of {base.intermediate} neurons; "
            "--layers and --inner cannot exceed them"
        )
    return config


def _float_bytes(base: ModelConfig) -> int:
    attention = (2 * base.heads + 2 * base.kv_heads) * base.head_dim * base.hidden
    return 4 * base.layers * (attention + 3 * base.intermediate * base.hidden)

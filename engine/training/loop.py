"""The training loop: encode, denoise, step; resumable at any kill.

Each step takes one fresh document and replays some that were encoded before, so that the cost of
the frozen base is shared. Only the small network gets gradients. What a step draws depends on the
seed and its number alone, so that a training that was stopped goes on as if it had not been.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from engine.model import denoiser_file
from engine.model.denoiser import Denoiser
from engine.model.denoiser_file import DenoiserConfig, Parameters
from engine.model.transformer import Embedding
from engine.training import checkpoint
from engine.training.device import Device
from engine.training.encode import Document
from engine.training.evaluate import Scores, evaluate
from engine.training.interrupts import Stop, Stopped, never
from engine.training.objective import draw, loss, predictions

Log = Callable[[str], None]
#: The number of a step -> a fresh document for it.
Fresh = Callable[[int], Document]

_SEED_STRIDE = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The schedule is `max_steps` long or, if that is 0, `seconds` of training time; both count
    across resumes."""

    seconds: float
    max_steps: int = 0
    sites: int = 112
    replays: int = 2
    reveal: float = 0.15
    off_path: float = 0.3
    learning_rate: float = 4e-4
    input_learning_rate: float = 1.2e-3
    evaluate_every: float = 600.0
    save_every: float = 300.0
    keep_documents: int = 2500
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """What is trained: its shape, its first parameters, and the network over any parameters."""

    config: DenoiserConfig
    parameters: Parameters
    network: Callable[[Parameters], Denoiser]
    device: Device


class Trainer:
    """Owns the parameters, the optimiser and the checkpoint folder."""

    def __init__(
        self,
        options: TrainOptions,
        student: Student,
        embedding: Embedding,
        folder: Path,
    ) -> None:
        self.options, self.config, self.folder = options, student.config, folder
        self.device = student.device
        self.parameters = {n: p.clone().requires_grad_() for n, p in student.parameters.items()}
        self.denoiser, self.embedding = student.network(self.parameters), embedding
        fresh = [p for n, p in self.parameters.items() if "." not in n]
        copied = [p for n, p in self.parameters.items() if "." in n]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": fresh, "base_lr": options.input_learning_rate},
                {"params": copied, "base_lr": options.learning_rate},
            ],
            lr=options.learning_rate,
            betas=(0.9, 0.97),
            weight_decay=0.01,
        )
        self.elapsed, self.steps, self.slots = 0.0, 0, 0
        self.generator = torch.Generator(device="cpu")
        self._resume()

    def run(self, fresh: Fresh, held_out: Sequence[Document], log: Log, stop: Stop) -> None:
        """Train until the schedule ends; checkpoints and curve points on the way. When `stop` says
        so, saves a checkpoint and raises Stopped."""
        options = self.options
        saved = evaluated = self.elapsed
        average = None
        try:
            while self._done() < 1.0:
                if stop():
                    raise Stopped
                value = self._timed_step(fresh)
                average = value if average is None else 0.95 * average + 0.05 * value
                if self.steps % 20 == 0:
                    log(self._progress(average))
                if self.elapsed - saved >= options.save_every:
                    self.checkpoint()
                    saved = self.elapsed
                if self.elapsed - evaluated >= options.evaluate_every:
                    self._measure(held_out, average, log, stop)
                    evaluated = self.elapsed
        except Stopped:
            self.checkpoint()
            raise
        self.checkpoint()
        self._measure(held_out, average, log, stop)

    def _timed_step(self, fresh: Fresh) -> float:
        """One step with all that belongs to it; its loss. Counts its time."""
        started, number = time.monotonic(), self.options.seed * _SEED_STRIDE + self.steps
        self.generator.manual_seed(number)
        document = fresh(self.steps)
        self._keep(document)
        value = self._step([document, *self._replay(random.Random(number))])
        self.elapsed += time.monotonic() - started
        return value

    def _step(self, documents: Sequence[Document]) -> float:
        options, total = self.options, 0.0
        rate = self._rate()
        for group in self.optimiser.param_groups:
            group["lr"] = group["base_lr"] * rate
        self.optimiser.zero_grad(set_to_none=True)
        for document in documents:
            batch = draw(document, self.config.rows, options.sites, options.reveal, self.generator)
            if batch is None or not bool(batch.masked.any()):
                continue
            with self.device.fast():
                logits, flat = predictions(self.denoiser, self.embedding, batch)
            value = loss(logits.float(), flat, batch, document, options.off_path)
            value = value / len(documents)
            value.backward()
            total += value.item()
            self.slots += len(flat)
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        self.optimiser.step()
        self.steps += 1
        return total

    def _done(self) -> float:
        """The share of the schedule that lies behind, 1 at its end."""
        if self.options.max_steps:
            return min(self.steps / self.options.max_steps, 1.0)
        return min(self.elapsed / self.options.seconds, 1.0)

    def _rate(self) -> float:
        warm = min(1.0, (self.steps + 1) / 30)
        return warm * max(0.02, 0.5 * (1 + math.cos(math.pi * self._done())))

    def _keep(self, document: Document) -> None:
        store = self.folder / "documents"
        store.mkdir(parents=True, exist_ok=True)
        document.save(store / f"{self.steps % self.options.keep_documents:05d}.safetensors")

    def _replay(self, picker: random.Random) -> list[Document]:
        kept = min(self.steps + 1, self.options.keep_documents)
        count = min(self.options.replays, kept - 1)
        store = self.folder / "documents"
        paths = [store / f"{n:05d}.safetensors" for n in picker.sample(range(kept), count)]
        place = self.device.place
        return [Document.load(path).to(place) for path in paths if path.is_file()]

    def _progress(self, average: float) -> str:
        rate = self.slots / max(self.elapsed, 1e-9)
        done = max(self._done(), 1e-9)
        left = self.options.seconds - self.elapsed
        if self.options.max_steps:
            left = self.elapsed * (1 - done) / done
        return (
            f"step {self.steps}  loss {average:.3f}  {self.slots} slots"
            f"  {rate:.0f} slots/s  {max(left, 0) / 60:.0f} min left"
        )

    def _measure(
        self, held_out: Sequence[Document], average: float | None, log: Log, stop: Stop
    ) -> None:
        scores = self._evaluated(held_out, stop)
        point = {
            "seconds": round(self.elapsed),
            "step": self.steps,
            "slots": self.slots,
            "loss": None if average is None else round(average, 4),
            **asdict(scores),
        }
        with (self.folder / "curve.jsonl").open("a", encoding="utf-8") as curve:
            curve.write(json.dumps(point) + "\n")
        log(f"held out: run {scores.run:.3f}, slots right {[round(r, 3) for r in scores.right]}")

    def checkpoint(self) -> None:
        """Save parameters and optimiser state, atomically; the next trainer goes on from there."""
        about = {"elapsed": self.elapsed, "steps": self.steps, "slots": self.slots}
        checkpoint.save(self._path, self.parameters, self.optimiser, about)

    @property
    def _path(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def _resume(self) -> None:
        about = checkpoint.restore(self._path, self.parameters, self.optimiser)
        if about:
            self.elapsed, self.steps = about["elapsed"], about["steps"]
            self.slots = about["slots"]

    def export(self, path: Path, held_out: Sequence[Document]) -> None:
        """Write the int8 denoiser with its measured acceptance."""
        scores = self._evaluated(held_out, never)
        config = DenoiserConfig(**{**asdict(self.config), "calibration": scores.accepted})
        denoiser_file.save(path, config, self.parameters, self.denoiser.shortlist)

    def _evaluated(self, held_out: Sequence[Document], stop: Stop) -> Scores:
        def watched() -> Iterator[Document]:
            for document in held_out:
                if stop():
                    raise Stopped
                yield document

        with self.device.fast():
            return evaluate(self.denoiser, self.embedding, watched(), self.config.rows)

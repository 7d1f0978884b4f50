"""The training of a denoiser: encode, denoise, step.

Each step takes one fresh document and replays some that were encoded before, so that the cost of
the frozen base is shared. Only the small network gets gradients.
"""

from __future__ import annotations

import random
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
from engine.training.run import Log, Schedule, Training, step_seed

#: The number of a step -> a fresh document for it.
Fresh = Callable[[int], Document]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(Schedule):
    """The schedule, and what a step learns from."""

    sites: int = 112
    replays: int = 2
    reveal: float = 0.15
    off_path: float = 0.3
    learning_rate: float = 4e-4
    input_learning_rate: float = 1.2e-3
    keep_documents: int = 2500


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """What is trained: its shape, its first parameters, and the network over any parameters."""

    config: DenoiserConfig
    parameters: Parameters
    network: Callable[[Parameters], Denoiser]
    device: Device


class Trainer(Training):
    """Owns the parameters, the optimiser and the checkpoint folder."""

    def __init__(
        self,
        options: TrainOptions,
        student: Student,
        embedding: Embedding,
        folder: Path,
    ) -> None:
        super().__init__(options, folder)
        self.options, self.config = options, student.config
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
        self.slots = 0
        self.generator = torch.Generator(device="cpu")
        self._resume()

    def run(self, fresh: Fresh, held_out: Sequence[Document], log: Log, stop: Stop) -> None:
        """Train until the schedule ends; checkpoints and curve points on the way. When `stop` says
        so, saves a checkpoint and raises Stopped."""
        self._train(
            lambda: self._drawn_step(fresh),
            lambda average: self._measure(held_out, average, log, stop),
            log,
            stop,
        )

    def _drawn_step(self, fresh: Fresh) -> float:
        """One step with all that belongs to it; its loss."""
        number = step_seed(self.options.seed, self.steps)
        self.generator.manual_seed(number)
        document = fresh(self.steps)
        self._keep(document)
        return self._step([document, *self._replay(random.Random(number))])

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

    def _seen(self) -> tuple[str, float, str]:
        return f"{self.slots} slots", self.slots, "slots"

    def _measure(
        self, held_out: Sequence[Document], average: float | None, log: Log, stop: Stop
    ) -> None:
        scores = self._evaluated(held_out, stop)
        loss = None if average is None else round(average, 4)
        self._plot({"slots": self.slots, "loss": loss, **asdict(scores)})
        log(f"held out: run {scores.run:.3f}, slots right {[round(r, 3) for r in scores.right]}")

    def checkpoint(self) -> None:
        """Save parameters and optimiser state."""
        about = {"elapsed": self.elapsed, "steps": self.steps, "slots": self.slots}
        checkpoint.save(self._path, self.parameters, self.optimiser, about)

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

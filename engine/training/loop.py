"""The training loop: encode, denoise, step; resumable at any kill.

Each step takes one fresh document and replays some that were encoded before, so that the cost of
the frozen base is shared. Only the small network gets gradients.
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
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.model import denoiser_file
from engine.model.denoiser import Denoiser
from engine.model.denoiser_file import DenoiserConfig, Parameters
from engine.model.transformer import Embedding
from engine.request import BadRequest
from engine.training.encode import Document
from engine.training.evaluate import evaluate
from engine.training.objective import draw, loss, predictions

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """`seconds` of training time are the length of the schedule, kept across resumes."""

    seconds: float
    sites: int = 112
    replays: int = 2
    reveal: float = 0.15
    off_path: float = 0.3
    learning_rate: float = 4e-4
    input_learning_rate: float = 1.2e-3
    warmup: float = 0.03
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
        self.generator = torch.Generator().manual_seed(options.seed)
        self._resume()

    def run(self, fresh: Iterator[Document], held_out: Sequence[Document], log: Log) -> None:
        """Train until the schedule ends; checkpoints and curve points on the way."""
        options, last = self.options, time.monotonic()
        picker = random.Random(options.seed + self.steps)
        saved = evaluated = self.elapsed
        average = None
        while self.elapsed < options.seconds:
            document = next(fresh)
            self._keep(document)
            value = self._step([document, *self._replay(picker)])
            average = value if average is None else 0.95 * average + 0.05 * value
            now = time.monotonic()
            self.elapsed, last = self.elapsed + now - last, now
            if self.steps % 20 == 0:
                log(self._progress(average))
            if self.elapsed - saved >= options.save_every:
                self.checkpoint()
                saved = self.elapsed
            if self.elapsed - evaluated >= options.evaluate_every:
                self._measure(held_out, average, log)
                evaluated, last = self.elapsed, time.monotonic()
        self._measure(held_out, average, log)
        self.checkpoint()

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
            logits, flat = predictions(self.denoiser, self.embedding, batch)
            value = loss(logits, flat, batch, document, options.off_path) / len(documents)
            value.backward()
            total += value.item()
            self.slots += len(flat)
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        self.optimiser.step()
        self.steps += 1
        return total

    def _rate(self) -> float:
        done = min(self.elapsed / self.options.seconds, 1.0)
        warm = min(1.0, (self.steps + 1) / 30)
        return warm * max(0.02, 0.5 * (1 + math.cos(math.pi * done)))

    def _keep(self, document: Document) -> None:
        store = self.folder / "documents"
        store.mkdir(parents=True, exist_ok=True)
        document.save(store / f"{self.steps % self.options.keep_documents:05d}.safetensors")

    def _replay(self, picker: random.Random) -> list[Document]:
        kept = min(self.steps + 1, self.options.keep_documents)
        count = min(self.options.replays, kept - 1)
        store = self.folder / "documents"
        paths = [store / f"{n:05d}.safetensors" for n in picker.sample(range(kept), count)]
        return [Document.load(path) for path in paths if path.is_file()]

    def _progress(self, average: float) -> str:
        rate = self.slots / max(self.elapsed, 1e-9)
        left = max(self.options.seconds - self.elapsed, 0) / 60
        return (
            f"step {self.steps}  loss {average:.3f}  {self.slots} slots"
            f"  {rate:.0f} slots/s  {left:.0f} min left"
        )

    def _measure(self, held_out: Sequence[Document], average: float | None, log: Log) -> None:
        scores = evaluate(self.denoiser, self.embedding, held_out, self.config.rows)
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
        """Save parameters and optimiser state, atomically; `_resume` reads it."""
        tensors: dict[str, Tensor] = {n: p.detach() for n, p in self.parameters.items()}
        for name, parameter in self.parameters.items():
            for key in ("exp_avg", "exp_avg_sq", "step"):
                state = self.optimiser.state.get(parameter, {})
                if key in state:
                    tensors[f"{key}:{name}"] = state[key].detach().clone()
        about = {"elapsed": self.elapsed, "steps": self.steps, "slots": self.slots}
        part = self.folder / "checkpoint.part"
        save_file(tensors, part, metadata={"state": json.dumps(about)})
        part.replace(self.folder / "checkpoint.safetensors")

    def _resume(self) -> None:
        path = self.folder / "checkpoint.safetensors"
        if not path.is_file():
            return
        tensors = load_file(path)
        kept = {n: t.shape for n, t in tensors.items() if ":" not in n}
        if kept != {n: p.shape for n, p in self.parameters.items()}:
            raise BadRequest(
                f"{path} is of a denoiser of another shape; give its own --layers, --inner and "
                "--slots, or another --out"
            )
        for name, parameter in self.parameters.items():
            with torch.no_grad():
                parameter.copy_(tensors[name])
            keys = [k for k in ("exp_avg", "exp_avg_sq", "step") if f"{k}:{name}" in tensors]
            if keys:
                self.optimiser.state[parameter] = {k: tensors[f"{k}:{name}"] for k in keys}
        about = denoiser_file.read_metadata(path, "state")
        self.elapsed, self.steps = about["elapsed"], about["steps"]
        self.slots = about["slots"]
        self.generator.manual_seed(self.options.seed + self.steps)

    def export(self, path: Path, held_out: Sequence[Document]) -> None:
        """Write the int8 denoiser with its measured acceptance."""
        scores = evaluate(self.denoiser, self.embedding, held_out, self.config.rows)
        config = DenoiserConfig(**{**asdict(self.config), "calibration": scores.accepted})
        denoiser_file.save(path, config, self.parameters, self.denoiser.shortlist)

"""Training steps over drawn batches; resumable at any kill, the same for a seed."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.training import checkpoint
from engine.training.device import Device
from engine.training.interrupts import Stop, Stopped
from engine.training.native import network
from engine.training.native.holes import Batch, Marks
from engine.training.native.network import Network

Log = Callable[[str], None]
#: A seeded source -> a batch.
Draw = Callable[[random.Random], Batch]
_SEED_STRIDE = 1_000_003
_END_WEIGHT = 0.25  # of the end tokens that fill a canvas, which are easy and many


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The schedule is `max_steps` long or, if that is 0, `seconds` of training time."""

    seconds: float
    max_steps: int = 0
    learning_rate: float = 1.5e-3
    warm_up: int = 100
    evaluate_every: float = 600.0
    save_every: float = 240.0
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """On held-out holes, all slots masked: the share of slots whose likeliest token is the text's
    (without end tokens), of canvases right in every slot at once, and the loss."""

    slots_right: float
    canvases_right: float
    loss: float


class Trainer:
    """Owns the network, the optimiser and the folder."""

    def __init__(
        self, net: Network, marks: Marks, options: Options, device: Device, folder: Path
    ) -> None:
        self.network, self.marks, self.options = net, marks, options
        self.device, self.folder = device, folder
        matrices = [p for p in net.parameters() if p.dim() > 1]
        vectors = [p for p in net.parameters() if p.dim() < 2]
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            lr=options.learning_rate,
            betas=(0.9, 0.95),
            fused=True,
        )
        self.elapsed, self.steps, self.tokens = 0.0, 0, 0
        about = checkpoint.restore(self._path, dict(net.named_parameters()), self.optimiser)
        if about:
            self.elapsed, self.steps, self.tokens = (
                about["elapsed"],
                about["steps"],
                about["tokens"],
            )

    @property
    def _path(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def run(self, draw: Draw, held_out: Sequence[Batch], log: Log, stop: Stop) -> None:
        """Train until the schedule ends. When `stop` says so, saves and raises Stopped."""
        saved = measured = self.elapsed
        average = None
        while self._done() < 1.0:
            if stop():
                self.save()
                raise Stopped
            value = self._step(draw)
            average = value if average is None else 0.95 * average + 0.05 * value
            if self.steps % 20 == 0:
                log(self._progress(average))
            if self.elapsed - saved >= self.options.save_every:
                self.save()
                saved = self.elapsed
            if self.elapsed - measured >= self.options.evaluate_every:
                self._measure(held_out, log)
                measured = self.elapsed
        self.save()
        self._measure(held_out, log)

    def save(self) -> None:
        """The checkpoint, and the network as it stands."""
        about = {"elapsed": self.elapsed, "steps": self.steps, "tokens": self.tokens}
        named = dict(self.network.named_parameters())
        checkpoint.save(self._path, named, self.optimiser, about)
        network.save(self.network, self.folder / "model", self.marks.end, self.marks.mask)

    def _step(self, draw: Draw) -> float:
        started = time.monotonic()
        batch = draw(random.Random(self.options.seed * _SEED_STRIDE + self.steps))
        for group in self.optimiser.param_groups:
            group["lr"] = self.options.learning_rate * self._rate()
        self.optimiser.zero_grad(set_to_none=True)
        logits, truth = self._scored(batch)
        value = self._loss(logits, truth)
        value.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.steps += 1
        self.tokens += batch.shown.numel()
        self.elapsed += time.monotonic() - started
        return float(value.detach())

    def _scored(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits [n, V] of the open slots, and what belongs there [n]."""
        with self.device.fast():
            hidden = self.network(batch.shown, None if bool(batch.real.all()) else batch.real)
            logits = self.network.logits(hidden[batch.open])
        return logits.float(), batch.truth[batch.open]

    def _loss(self, logits: Tensor, truth: Tensor) -> Tensor:
        weight = torch.where(truth == self.marks.end, _END_WEIGHT, 1.0)
        each = F.cross_entropy(logits, truth, reduction="none")
        return (each * weight).sum() / weight.sum()

    def _measure(self, held_out: Sequence[Batch], log: Log) -> None:
        scores = self.scores(held_out)
        point = {"seconds": round(self.elapsed), "step": self.steps, "tokens": self.tokens}
        with (self.folder / "curve.jsonl").open("a", encoding="utf-8") as curve:
            curve.write(json.dumps(point | asdict(scores)) + "\n")
        log(
            f"held out: slots right {scores.slots_right:.3f}, "
            f"whole canvases {scores.canvases_right:.3f}, loss {scores.loss:.3f}"
        )

    @torch.no_grad()
    def scores(self, held_out: Sequence[Batch]) -> Scores:
        """One forward per batch."""
        right = slots = whole = canvases = 0
        loss = 0.0
        for batch in held_out:
            logits, truth = self._scored(batch)
            loss += float(self._loss(logits, truth)) / len(held_out)
            good = logits.argmax(dim=-1) == truth
            said = truth != self.marks.end
            right, slots = right + int((good & said).sum()), slots + int(said.sum())
            for canvas in _canvases(batch, good):
                whole, canvases = whole + bool(canvas.all()), canvases + 1
        return Scores(
            slots_right=right / max(slots, 1),
            canvases_right=whole / max(canvases, 1),
            loss=loss,
        )

    def _done(self) -> float:
        options = self.options
        return (
            self.steps / options.max_steps if options.max_steps else self.elapsed / options.seconds
        )

    def _rate(self) -> float:
        warm = min(1.0, (self.steps + 1) / self.options.warm_up)
        return warm * max(0.02, 0.5 * (1 + math.cos(math.pi * min(1.0, self._done()))))

    def _progress(self, average: float) -> str:
        left = self.elapsed * (1 / max(self._done(), 1e-9) - 1)
        rate = self.tokens / max(self.elapsed, 1e-9)
        return (
            f"step {self.steps}  loss {average:.3f}  {self.tokens / 1e6:.1f} M tokens"
            f"  {rate:.0f} tokens/s  {left / 60:.0f} min left"
        )


def _canvases(batch: Batch, good: Tensor) -> list[Tensor]:
    """`good` [n] of all open slots, cut at the places where a run of open slots ends."""
    at = batch.open.flatten().nonzero()[:, 0]
    ends = (at.diff() > 1).nonzero()[:, 0] + 1
    return list(torch.tensor_split(good, ends.cpu()))

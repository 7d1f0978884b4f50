"""The training of a masked-diffusion model: steps over drawn batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.training import checkpoint
from engine.training.device import Device
from engine.training.interrupts import Stop
from engine.training.native import network
from engine.training.native.holes import Batch, Marks
from engine.training.native.network import Network
from engine.training.run import Log, Schedule, Training, step_seed

#: A seeded source -> a batch.
Draw = Callable[[random.Random], Batch]
_END_WEIGHT = 0.25  # of the end tokens that fill a canvas, which are easy and many


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Schedule):
    """The schedule and its highest learning rate."""

    learning_rate: float = 1.5e-3
    warm_up: int = 100
    save_every: float = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """On held-out holes, all slots masked: the share of slots whose likeliest token is the text's
    (without end tokens), of canvases right in every slot at once, and the loss."""

    slots_right: float
    canvases_right: float
    loss: float


class Trainer(Training):
    """Owns the network, the optimiser and the folder."""

    def __init__(
        self, net: Network, marks: Marks, options: Options, device: Device, folder: Path
    ) -> None:
        super().__init__(options, folder)
        self.network, self.marks, self.options = net, marks, options
        self.device = device
        matrices = [p for p in net.parameters() if p.dim() > 1]
        vectors = [p for p in net.parameters() if p.dim() < 2]
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            lr=options.learning_rate,
            betas=(0.9, 0.95),
            fused=True,
        )
        self.tokens = 0
        about = checkpoint.restore(self._path, dict(net.named_parameters()), self.optimiser)
        if about:
            self.elapsed, self.steps = about["elapsed"], about["steps"]
            self.tokens = about["tokens"]

    def run(self, draw: Draw, held_out: Sequence[Batch], log: Log, stop: Stop) -> None:
        """Train until the schedule ends. When `stop` says so, saves and raises Stopped."""
        self._train(lambda: self._step(draw), lambda _: self._measure(held_out, log), log, stop)

    def checkpoint(self) -> None:
        """The checkpoint, and the network as it stands."""
        about = {"elapsed": self.elapsed, "steps": self.steps, "tokens": self.tokens}
        named = dict(self.network.named_parameters())
        checkpoint.save(self._path, named, self.optimiser, about)
        network.save(self.network, self.folder / "model", self.marks.end, self.marks.mask)

    def _step(self, draw: Draw) -> float:
        batch = draw(random.Random(step_seed(self.options.seed, self.steps)))
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
        self._plot({"tokens": self.tokens, **asdict(scores)})
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

    def _seen(self) -> tuple[str, float, str]:
        return f"{self.tokens / 1e6:.1f} M tokens", self.tokens, "tokens"


def _canvases(batch: Batch, good: Tensor) -> list[Tensor]:
    """`good` [n] of all open slots, cut at the places where a run of open slots ends."""
    at = batch.open.flatten().nonzero()[:, 0]
    ends = (at.diff() > 1).nonzero()[:, 0] + 1
    return list(torch.tensor_split(good, ends.cpu()))

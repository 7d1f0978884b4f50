"""How many drafted tokens the base would accept, on held-out documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from engine.model.denoiser import Denoiser
from engine.model.transformer import Embedding
from engine.training.encode import Document
from engine.training.objective import agreeing_slots, draw, predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Over `sites` fully masked canvases, one denoising step each.

    run: mean slots accepted before the first rejection, that is tokens per base forward less one;
    accepted: per slot, the share accepted given that all before it were; right: per slot, the
    share that equals the base's choice where the base followed the text so far.
    """

    sites: int
    run: float
    accepted: tuple[float, ...]
    right: tuple[float, ...]


@torch.inference_mode()
def evaluate(
    denoiser: Denoiser,
    embedding: Embedding,
    documents: Iterable[Document],
    rows: int,
    sites: int = 64,
) -> Scores:
    """Score one-step drafts against the base's own choices (greedy, verified as in use)."""
    generator = torch.Generator(device="cpu").manual_seed(7)
    slots = rows - 1
    reached, accepted = torch.zeros(slots), torch.zeros(slots)
    comparable, right = torch.zeros(slots), torch.zeros(slots)
    total = 0
    for document in documents:
        batch = draw(document, rows, sites, 0.0, generator)
        if batch is None:
            continue
        logits, _ = predictions(denoiser, embedding, batch)
        drafted = denoiser.shortlist[logits.argmax(dim=-1)].view(-1, slots)
        at = batch.positions[:, None] + torch.arange(1, rows)
        hit = drafted == document.choice[at]
        on_path = agreeing_slots(batch, document)[:, 1:]
        follows = torch.cat((torch.ones_like(hit[:, :1]), hit[:, :-1]), dim=1).cumprod(1).bool()
        tried = on_path & follows
        reached += tried.sum(0)
        accepted += (tried & hit).sum(0)
        comparable += on_path.sum(0)
        right += (on_path & hit).sum(0)
        total += len(batch.positions)
    return Scores(
        sites=total,
        run=float(accepted.sum()) / max(total, 1),
        accepted=tuple((accepted / reached.clamp_min(1)).tolist()),
        right=tuple((right / comparable.clamp_min(1)).tolist()),
    )

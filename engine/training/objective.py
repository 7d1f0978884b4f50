"""What the denoiser learns: to say what the base would say next, several tokens at once.

Canvases are put at sites of an encoded document where the base's own choice is the text's, so that
row 0 holds what it will hold in use; slot targets are the base's own next-token distributions on
the true text (distillation), weighted by whether the base agreed all the way to that slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.denoiser import Context, Denoiser
from engine.model.transformer import Embedding
from engine.training.encode import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """S canvases of one document. positions [S]: last visible token; row_ids [S, R] token ids of
    row 0 and the true text behind it; masked [S, R] bool; context as the network takes it."""

    positions: Tensor
    row_ids: Tensor
    masked: Tensor
    context: Context


def draw(
    document: Document, rows: int, sites: int, reveal: float, generator: torch.Generator
) -> Batch | None:
    """Up to `sites` canvases of `rows` rows at random agreeing sites; None if there are none.

    A share `reveal` of them shows some of their slots, the rest are masked throughout.
    """
    n = document.ids.shape[0]
    agree = document_agrees(document)[: n - rows]
    found = agree.nonzero()[:, 0]
    if found.numel() == 0:
        return None
    # drawn on the CPU, so that every device trains on the same canvases
    order = torch.randperm(found.numel(), generator=generator, device="cpu")[:sites]
    positions = found[order.to(found.device)].sort().values
    row_ids = document.ids.long()[positions[:, None] + 1 + torch.arange(rows)]
    masked = torch.ones(len(positions), rows, dtype=torch.bool, device="cpu")
    shown = torch.rand(len(positions), generator=generator, device="cpu") < reveal
    some = torch.rand(len(positions), rows, generator=generator, device="cpu") < 0.4
    masked[shown] &= ~some[shown]
    masked[:, 0] = False
    masked = masked.to(positions.device)
    context = Context(
        keys=document.keys.float(),
        values=document.values.float(),
        lengths=positions + 1,
        features=document.features[positions].float(),
        after_keys=document.after_keys.float() if document.after_keys.numel() else None,
        after_values=document.after_values.float() if document.after_values.numel() else None,
    )
    return Batch(positions=positions, row_ids=row_ids, masked=masked, context=context)


def document_agrees(document: Document) -> Tensor:
    """[N - 1] bool: whether the base's first choice after each token is the text's next token."""
    return document.choice[:-1] == document.ids[1:]


def predictions(denoiser: Denoiser, embedding: Embedding, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits [k, V'] of the masked rows, and their flat indices [k] into S * R."""
    flat = batch.masked.flatten().nonzero()[:, 0]
    shape = (*batch.row_ids.shape, -1)
    embedded = embedding(batch.row_ids.flatten()).view(shape)
    hidden = denoiser.hidden(embedded, batch.masked, batch.context)
    return denoiser.logits(hidden[flat]), flat


def loss(logits: Tensor, flat: Tensor, batch: Batch, document: Document, off_path: float) -> Tensor:
    """Weighted cross-entropy against the base's own distribution, per masked slot.

    logits [k, V'] of the rows `flat` [k]; `off_path`: the weight of slots behind a place where the
    base disagreed with the text.
    """
    rows = batch.row_ids.shape[1]
    site, row = flat // rows, flat % rows
    at = batch.positions[site] + row  # the base's distribution after this token is the target
    probability = document.top_p[at].float()
    probability = probability / probability.sum(dim=1, keepdim=True)
    log_q = logits.log_softmax(dim=-1).gather(1, document.top_ids[at].long())
    each = -(probability * log_q).sum(dim=1)
    on_path = agreeing_slots(batch, document)[site, row]
    weight = torch.where(on_path, 1.0, off_path)
    return (each * weight).sum() / weight.sum()


def agreeing_slots(batch: Batch, document: Document) -> Tensor:
    """[S, R] bool: whether the base chose the text at every row before this one."""
    rows = batch.row_ids.shape[1]
    agrees = document_agrees(document)
    chosen = agrees[batch.positions[:, None] + torch.arange(rows)]
    path = chosen.cumprod(dim=1).bool()
    return torch.cat((torch.ones_like(path[:, :1]), path[:, :-1]), dim=1)

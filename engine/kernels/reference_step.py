"""The meaning of what a denoising step on a GPU adds to `reference`, in plain torch.

Shapes: n rows, H hidden, K inputs, N outputs, V vocabulary, R slots of a canvas, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine import policy
from engine.kernels import reference
from engine.kernels.grouped import Grouped, Matrix
from engine.policy import Slots

#: A slot without a token; what a closed slot gets for its best tokens.
MASKED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """RMSNorm to be applied to a product's input: weight [K]."""

    weight: Tensor
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What the head says of R slots: the best tokens [R] int64, the second best, and figures of the
    distribution [R] float32: probability of the best, entropy in nats, and by how much the best
    leads the second in probability. A closed slot, or one where all is forbidden: MASKED and 0."""

    token: Tensor
    second: Tensor
    probability: Tensor
    entropy: Tensor
    margin: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A policy of `engine.policy` by name, and its strength."""

    name: str
    strength: float


def linear(
    x: Tensor,
    weight: Matrix,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """norm(x) [n, K] times weight, plus bias, plus residual [n, N] -> [n, N], in x's dtype.

    `gated`: weight holds gate and up rows [2 N, K], and the product is silu(gate) * up.
    """
    rows = x.float()
    if norm is not None:
        rows = reference.rms_norm(rows, norm.weight.float(), norm.eps)
    matrix = weight.unpack() if isinstance(weight, Grouped) else weight.float()
    product = F.linear(rows, matrix, None if bias is None else bias.float())
    if gated:
        product = reference.swiglu(product)
    if residual is not None:
        product = product + residual.float()
    return product.to(x.dtype)


def enter(tokens: Tensor, weight: Tensor, scales: Tensor | None, mask: Tensor) -> Tensor:
    """tokens [R] int64 -> [R, H]: a token's embedding at unit root mean square, `mask` [H] where
    the slot is MASKED.

    weight [V, H] float, or int8 with scales [V, groups] float16.
    """
    rows = weight[tokens.clamp_min(0)].float()
    if scales is not None:
        scale = scales[tokens.clamp_min(0)].float()
        rows = (rows.unflatten(1, (scale.shape[1], -1)) * scale[..., None]).flatten(1)
    unit = rows * torch.rsqrt(rows.square().mean(dim=-1, keepdim=True) + 1e-8)
    return torch.where((tokens == MASKED)[:, None], mask, unit.to(mask.dtype))


def add_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x, residual [n, K] -> their sum, and the sum normalised as by `rms_norm`."""
    total = x + residual
    return total, reference.rms_norm(total.float(), weight.float(), eps).to(x.dtype)


def attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor,
    rotation: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """`reference.attention` over queries that are rotated first, where a rotation is given."""
    turned = q if rotation is None else reference.rotate(q, *rotation)
    return reference.attention(turned, keys, values, visible)


def confidence(
    hidden: Tensor,
    weight: Matrix,
    open_: Tensor,
    *,
    norm: Norm | None = None,
    temperature: float = 1.0,
    forbidden: Tensor | None = None,
    names: Tensor | None = None,
) -> Guess:
    """The best tokens of the open slots, and how sure they are.

    hidden [R, H]; weight, the head [V, H]; open_ [R] bool; forbidden [V] bool. Logits are divided
    by the temperature; ties go to the lower row; the second is MASKED where only one is allowed.
    `names` [V] int64: the token ids of the head's rows, where they are not the rows' numbers.
    """
    logits = linear(hidden.float(), weight, norm=norm) / temperature
    if forbidden is not None:
        logits = logits.masked_fill(forbidden, float("-inf"))
    share = logits.softmax(dim=-1)
    terms = torch.where(share > 0, share * logits.log_softmax(dim=-1), 0.0)
    first = logits.argmax(dim=-1, keepdim=True)
    rest = logits.scatter(1, first, float("-inf"))
    second = rest.argmax(dim=-1, keepdim=True)
    none = rest.gather(1, second).isneginf()
    certain, likely = share.gather(1, first), torch.where(none, 0.0, share.gather(1, second))
    counts = open_ & ~logits.gather(1, first)[:, 0].isneginf()
    best, next_ = first[:, 0], second[:, 0]
    if names is not None:
        best, next_ = names[best], names[next_]
    return Guess(
        token=torch.where(counts, best, MASKED),
        second=torch.where(counts & ~none[:, 0], next_, MASKED),
        probability=torch.where(counts, certain[:, 0], 0.0),
        entropy=torch.where(counts, -terms.sum(dim=-1), 0.0),
        margin=torch.where(counts, (certain - likely)[:, 0], 0.0),
    )


def commit(tokens: Tensor, sure: Tensor, guess: Guess, rule: Rule, progress: Tensor) -> None:
    """Write the guesses that the rule chooses into the canvas, in place.

    tokens [R] int64, MASKED where open; sure [R] float32 gets their probability; progress [2]
    int32: whether the canvas is done, and how many steps are left. At least one open slot closes,
    in the last step all do. A slot whose guess is MASKED (all forbidden) stays open. A done canvas
    stays as it is. `Guess.token` of a closed slot never counts.
    """
    if bool(progress[0]):
        return
    open_ = (tokens == MASKED) & (guess.token != MASKED)
    slots = Slots(
        open=open_, probability=guess.probability, entropy=guess.entropy, margin=guess.margin
    )
    last = bool(progress[1] <= 1)
    chosen = open_ if last else policy.POLICIES[rule.name].select(slots, rule.strength)
    tokens.copy_(torch.where(chosen, guess.token, tokens))
    sure.copy_(torch.where(chosen, guess.probability, sure))
    progress[0] = int(last or not bool((open_ & ~chosen).any()))
    progress[1] -= 1

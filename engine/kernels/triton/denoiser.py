"""One denoising step of one canvas: 6 launches, and 6 (7 with a suffix) for each layer.

enter -> token projection + what every slot is told; per layer norm, q k v | attention over prefix,
suffix and canvas, shares joined | output + residual | norm, gate, up, silu | down + residual; then
norm, head, best tokens | joined | commit. Meaning: `engine.model.denoiser` and `engine.policy`.
Nothing here waits for the device: a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.kernels.grouped import Matrix
from engine.kernels.reference_step import MASKED, Norm, Rule
from engine.kernels.triton.attention import Rotation, Segment, attend
from engine.kernels.triton.commit import commit
from engine.kernels.triton.confidence import confidence
from engine.kernels.triton.enter import enter
from engine.kernels.triton.linear import linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One layer's parameters, as in `engine.model.transformer.Layer`."""

    attn_norm: Norm
    qkv: Matrix
    qkv_bias: Tensor | None
    out: Matrix
    ffn_norm: Norm
    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The denoiser on the device. embedding [V, H] with scales [V, groups] or None; mask [H]; the
    head's rows have the token ids `names` [V']."""

    embedding: Tensor
    scales: Tensor | None
    mask: Tensor
    token: Matrix
    blocks: tuple[Block, ...]
    norm: Norm
    head: Matrix
    names: Tensor
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One canvas of R slots and all that its steps read and write.

    tokens [R] int64, MASKED where open; sure [R] float32; progress [2] int32 (see `commit`); entry
    [R, H]: what each slot is told beside its token. keys, values [layers, kv_heads, T, D]: of the
    prefix, the first `seen` [R] int64 visible; `near`: cos, sin [R, D // 2] of the slots' places
    behind it. suffix_keys, suffix_values, suffix_seen and `far` likewise, or None. own [R] int64:
    how many slots there are, the first of the R.
    """

    tokens: Tensor
    sure: Tensor
    progress: Tensor
    entry: Tensor
    keys: Tensor
    values: Tensor
    seen: Tensor
    own: Tensor
    near: Rotation
    suffix_keys: Tensor | None = None
    suffix_values: Tensor | None = None
    suffix_seen: Tensor | None = None
    far: Rotation | None = None


def step(network: Network, board: Board, rule: Rule) -> None:
    """Fill the open slots that the rule chooses, in place; nothing once the canvas is done."""
    x = enter(board.tokens, network.embedding, network.scales, network.mask)
    x = linear(x, network.token, residual=board.entry)
    for depth, block in enumerate(network.blocks):
        fused = linear(x, block.qkv, block.qkv_bias, norm=block.attn_norm)
        x = linear(_mix(network, board, fused, depth), block.out, residual=x)
        inner = linear(x, block.gate_up, norm=block.ffn_norm, gated=True)
        x = linear(inner, block.down, residual=x)
    is_open = board.tokens == MASKED
    guess = confidence(x, network.head, is_open, norm=network.norm, names=network.names)
    commit(board.tokens, board.sure, guess, rule, board.progress)


def _mix(network: Network, board: Board, fused: Tensor, depth: int) -> Tensor:
    """fused [R, (heads + 2 kv_heads) D] -> what each slot's heads see [R, heads * D]."""
    heads = fused.view(len(fused), -1, network.head_dim).transpose(0, 1)
    q, k, v = heads.tensor_split((-2 * network.kv_heads, -network.kv_heads))
    near = board.near
    segments = [
        Segment(keys=board.keys[depth], values=board.values[depth], visible=board.seen, turn=near),
        Segment(keys=k, values=v, visible=board.own, turn=near, turn_keys=near),
    ]
    if board.suffix_keys is not None:
        assert board.suffix_values is not None and board.suffix_seen is not None
        segments.append(
            Segment(
                keys=board.suffix_keys[depth],
                values=board.suffix_values[depth],
                visible=board.suffix_seen,
                turn=board.far,
            )
        )
    return attend(q, segments)

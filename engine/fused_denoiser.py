"""A denoiser whose steps run whole on the device: entered, denoised and committed there.

Turns a context into a `Board` and lets `StepGraphs` run it. Knows no text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.kernels.dispatch import KernelSet
from engine.kernels.reference_step import Norm, Rule
from engine.model.denoiser import Context, Denoiser, unit
from engine.model.transformer import Embedding
from engine.placement import GroupedLinear, PlacedDenoiser, grouped

if TYPE_CHECKING:
    from engine.kernels.triton.denoiser import Block, Board, Network
    from engine.kernels.triton.graphs import Filled


class FusedDenoiser(PlacedDenoiser):
    """`fill` runs all steps of one canvas; the rest is the plain placed denoiser."""

    def __init__(self, denoiser: Denoiser, embedding: Embedding, kernels: KernelSet) -> None:
        """`kernels` must be the Triton set; `embedding`: the placed base's."""
        from engine.kernels.triton import graphs

        super().__init__(denoiser, kernels)
        self._embedding = embedding
        capture = graphs.cuda_capture() if self.device.type == "cuda" else None
        self.graphs = graphs.StepGraphs(self._network(), capture)

    def fill(self, tokens: Tensor, context: Context, steps: int, rule: Rule) -> Filled:
        """Close the MASKED slots of a canvas in up to `steps` steps; the last one closes all.

        tokens [R] int64, the first of them visible, at most `max_rows`; context of one canvas.
        """
        with self.device:
            board = self.board(tokens.to(self.device), context, steps)
            return self.graphs.run(board, steps, rule)

    def board(self, tokens: Tensor, context: Context, steps: int) -> Board:
        """One canvas ready for its first step."""
        from engine.kernels.triton.denoiser import Board

        rows, give = len(tokens), self.inputs
        length = context.lengths.to(self.device)
        places = torch.arange(rows)
        first = unit(self._embedding(tokens[:1]))
        told = give.last(first) + give.middle(unit(context.features[:, 0])) + context.features[:, 1]
        suffix = None if context.after_keys is None else context.after_keys.shape[2]
        return Board(
            tokens=tokens.clone(),
            sure=torch.ones(rows),
            progress=torch.tensor([0, steps], dtype=torch.int32),
            entry=told + give.slots[:rows],
            keys=context.keys,
            values=context.values,
            seen=length.repeat(rows),
            own=torch.full((rows,), rows),
            near=self.rope.at(length + places),
            suffix_keys=context.after_keys,
            suffix_values=context.after_values,
            suffix_seen=None if suffix is None else torch.full((rows,), suffix),
            far=None if suffix is None else self.rope.at(places - rows),
        )

    def _network(self) -> Network:
        from engine.kernels.triton.denoiser import Network

        return Network(
            embedding=self._embedding.weight,
            scales=self._embedding.scale,
            mask=self.inputs.mask,
            token=grouped(self.inputs.token).weight,
            blocks=tuple(self._block(depth) for depth in range(len(self.layers))),
            norm=Norm(weight=self.head.norm, eps=self.head.eps),
            head=grouped(self.head.project).weight,
            names=self.shortlist.to(self.device),
            kv_heads=self.config.kv_heads,
            head_dim=self.config.head_dim,
        )

    def _block(self, depth: int) -> Block:
        from engine.kernels.triton.denoiser import Block

        layer, eps = self.layers[depth], self.config.norm_eps
        qkv: GroupedLinear = grouped(layer.qkv)
        return Block(
            attn_norm=Norm(weight=layer.attn_norm, eps=eps),
            qkv=qkv.weight,
            qkv_bias=qkv.bias,
            out=grouped(layer.out).weight,
            ffn_norm=Norm(weight=layer.ffn_norm, eps=eps),
            gate_up=grouped(layer.gate_up).weight,
            down=grouped(layer.down).weight,
        )

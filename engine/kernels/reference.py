"""The meaning of every kernel, in plain torch; gradients flow through all but `rope_cache`.

Shapes: n rows, K inputs, N outputs, T cached tokens, D head size. All tensors float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kernels.packing import (
    GROUP,
    LANES,
    OFFSETS,
    Packed,
    bits_for,
    candidates,
    squeezed,
)


def linear(x: Tensor, weight: Packed, bias: Tensor | None) -> Tensor:
    """x [n, K] -> [n, N]: packed weights times activations in 8-bit groups of 32, plus bias."""
    groups = F.pad(x, (0, -x.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    largest = groups.abs().amax(dim=2, keepdim=True)
    # a true quotient: `127 / largest` would be a reciprocal times 127, and round otherwise
    inverse = torch.where(largest == 0, 0.0, torch.full_like(largest, 127) / largest)
    codes = (groups * inverse).round()
    return F.linear((codes * (largest / 127)).flatten(1)[:, : x.shape[1]], weight.unpack(), bias)


def pack(weight: Tensor) -> Packed:
    """weight [N, K] -> its packed form, of the better of two scales per group; in 5 bits where
    that loses nothing, else in 7."""
    bits = bits_for(weight)
    offset = OFFSETS[bits]
    padded = F.pad(weight, (0, -weight.shape[1] % GROUP, 0, -weight.shape[0] % LANES))
    groups = padded.unflatten(1, (-1, GROUP))
    scales = candidates(padded, bits)
    parts = [scale[..., None] for scale in scales]
    found = [
        torch.where(s == 0, 0.0, (groups * (1 / s)).round().clamp(-offset, offset - 1))
        for s in parts
    ]
    first, second = ((c * s - groups).square().sum(2) for c, s in zip(found, parts, strict=True))
    better = second < first
    code = torch.where(better[..., None], found[1], found[0])
    scale = torch.where(better, scales[1], scales[0]).to(torch.float16)
    blocks = (code + offset).to(torch.uint8).unflatten(2, (-1, 4)).unflatten(0, (-1, LANES))
    codes = blocks.permute(0, 2, 3, 1, 4).contiguous()
    return Packed(
        codes=squeezed(codes) if bits == 5 else codes,
        scales=scale.unflatten(0, (-1, LANES)).transpose(1, 2).contiguous(),
        outputs=weight.shape[0],
        inputs=weight.shape[1],
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., K] scaled to unit root mean square, times weight [K]."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def swiglu(gate_up: Tensor) -> Tensor:
    """gate_up [n, 2 * inner] -> [n, inner]: silu(gate) * up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding, half-split, of x [..., n, D] by cos, sin [n, D // 2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rope_cache(
    fused: Tensor, rotation: tuple[Tensor, Tensor], keys: Tensor, values: Tensor, start: int
) -> Tensor:
    """Write n rows to a layer's cache; returns the rotated queries [heads, n, D].

    fused [n, (heads + 2 kv_heads) D]: q, k, v; rotation: cos, sin [n, D // 2]; keys, values
    [kv_heads, capacity, D], written from row `start` on.
    """
    kv_heads, _, dim = keys.shape
    rows = fused.shape[0]
    heads = fused.view(rows, -1, dim).transpose(0, 1)
    turned = rotate(heads[:-kv_heads], *rotation)
    keys[:, start : start + rows] = turned[-kv_heads:]
    values[:, start : start + rows] = heads[-kv_heads:]
    return turned[:-kv_heads]


def attention(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """q [heads, n, D], keys and values [kv_heads, capacity, D] -> [n, heads * D].

    Row i sees the first visible[i] keys, visible [n] int64 from 1 to capacity; query heads of one
    group share a key head.
    """
    heads, rows, dim = q.shape
    groups, length = keys.shape[0], int(visible.max())
    later = torch.arange(length, device=q.device) >= visible.to(q.device)[:, None]
    grouped = q.reshape(groups, heads // groups, rows, dim) * dim**-0.5
    scores = grouped @ keys[:, None, :length].transpose(2, 3)
    weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
    mixed: Tensor = (weights @ values[:, None, :length]).view(heads, rows, dim)
    return mixed.transpose(0, 1).reshape(rows, heads * dim)

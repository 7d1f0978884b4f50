"""The compiled CPU kernels: `reference`, row for row, but a row's bits depend on no other row.

Inference only. Calls release the interpreter lock; one pool of threads serves them all.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch
from torch import Tensor

from engine.kernels.packing import (
    LANES,
    OFFSETS,
    STEPS,
    Packed,
    bits_for,
    candidates,
    squeezed,
)
from engine.request import WeightsError

_POINTER, _SIZE, _FLOAT, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
_SIGNATURES: dict[str, tuple[object, Sequence[object]]] = {
    "pool_set_threads": (_INT, (_INT,)),
    "widest_level": (_INT, ()),
    "linear": (_INT, (_POINTER, *(_SIZE,) * 3, *(_POINTER,) * 3, _SIZE, _POINTER, _INT)),
    "pack": (None, (*(_POINTER,) * 3, *(_SIZE,) * 3, _POINTER, _POINTER)),
    "rms_norm": (None, (_POINTER, _POINTER, _FLOAT, _SIZE, _SIZE, _POINTER)),
    "swiglu": (None, (_POINTER, _SIZE, _SIZE, _POINTER)),
    "rope_cache": (None, (*(_POINTER,) * 6, ctypes.POINTER(_SIZE))),
    "attention": (_INT, (*(_POINTER,) * 5, ctypes.POINTER(_SIZE), _FLOAT)),
}


@cache
def _library() -> ctypes.CDLL:
    here = Path(__file__).parent
    names = [here / f"_cpu{suffix}" for suffix in EXTENSION_SUFFIXES]
    path = next((name for name in names if name.is_file()), None)
    if path is None:
        raise WeightsError(
            "the CPU kernels are not built; run `make setup`, or `pip install -e .` with a C "
            "compiler at hand"
        )
    library = ctypes.CDLL(str(path))
    if library.needs_avx2() and torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        raise WeightsError(
            "the CPU kernels were built for AVX2, which this processor lacks; "
            "rebuild them here with DLSP_PORTABLE=1 `pip install -e .`"
        )
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    return library


@cache
def widest_level() -> int:
    """How wide `linear` may compute here: 0 plain code, 1 AVX2, 2 AVX-VNNI, 3 AVX-512 with VNNI."""
    level: int = _library().widest_level()
    return level


def set_threads(threads: int | None) -> int:
    """How many threads share a kernel's work from now on (None: one per core that this process
    may use); returns how many really do."""
    if threads is None:
        allowed = getattr(os, "sched_getaffinity", None)
        threads = len(allowed(0)) if allowed else os.cpu_count() or 1
    count: int = _library().pool_set_threads(threads)
    return count


def linear(x: Tensor, weight: Packed, bias: Tensor | None, level: int | None = None) -> Tensor:
    """See `reference.linear`. Every `level` up to `widest_level()`, the default, gives the same
    bits, but for 0."""
    x = x.contiguous()
    out = torch.empty(x.shape[0], weight.outputs)
    failed = _library().linear(
        x.data_ptr(),
        x.shape[0],
        weight.inputs,
        weight.bits,
        weight.codes.data_ptr(),
        weight.scales.data_ptr(),
        None if bias is None else bias.data_ptr(),
        weight.outputs,
        out.data_ptr(),
        widest_level() if level is None else level,
    )
    _check(failed)
    return out


def pack(weight: Tensor) -> Packed:
    """See `reference.pack`."""
    weight, bits = weight.contiguous(), bits_for(weight)
    outputs, inputs = weight.shape
    first, second = candidates(weight, bits)
    blocks, groups = -(-outputs // LANES), first.shape[1]
    codes = torch.empty((blocks, groups, STEPS, LANES, 4), dtype=torch.uint8)
    chosen = torch.empty(blocks, groups, LANES)
    _library().pack(
        weight.data_ptr(),
        first.data_ptr(),
        second.data_ptr(),
        OFFSETS[bits],
        outputs,
        inputs,
        codes.data_ptr(),
        chosen.data_ptr(),
    )
    codes = squeezed(codes) if bits == 5 else codes
    return Packed(codes=codes, scales=chosen.to(torch.float16), outputs=outputs, inputs=inputs)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `reference.rms_norm`; x [n, K]."""
    x = x.contiguous()
    out = torch.empty_like(x)
    _library().rms_norm(
        x.data_ptr(), weight.data_ptr(), eps, x.shape[0], x.shape[1], out.data_ptr()
    )
    return out


def swiglu(gate_up: Tensor) -> Tensor:
    """See `reference.swiglu`."""
    gate_up = gate_up.contiguous()
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, size)
    _library().swiglu(gate_up.data_ptr(), rows, size, out.data_ptr())
    return out


def rope_cache(
    fused: Tensor, rotation: tuple[Tensor, Tensor], keys: Tensor, values: Tensor, start: int
) -> Tensor:
    """See `reference.rope_cache`."""
    cos, sin = rotation
    kv_heads, _, dim = keys.shape
    rows, heads = fused.shape[0], fused.shape[1] // dim - 2 * kv_heads
    q = torch.empty(heads, rows, dim)
    _library().rope_cache(
        fused.data_ptr(),
        cos.data_ptr(),
        sin.data_ptr(),
        q.data_ptr(),
        keys[0, start].data_ptr(),
        values[0, start].data_ptr(),
        (_SIZE * 5)(rows, heads, kv_heads, dim, keys.stride(0)),
    )
    return q


def attention(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """See `reference.attention`; D a multiple of 8, capacities of 16."""
    heads, rows, dim = q.shape
    out = torch.empty(rows, heads * dim)
    kv_heads, capacity, _ = keys.shape
    visible = visible.to(torch.int64).contiguous()
    failed = _library().attention(
        q.data_ptr(),
        keys.data_ptr(),
        values.data_ptr(),
        out.data_ptr(),
        visible.data_ptr(),
        (_SIZE * 6)(rows, heads, kv_heads, dim, keys.stride(0), capacity),
        dim**-0.5,
    )
    _check(failed)
    return out


def _check(failed: int) -> None:
    if failed == 1:
        raise MemoryError("no memory for a kernel's scratch space")
    if failed == 3:
        raise ValueError("a row must see at least one key and no more than there are")
    if failed:
        raise WeightsError(
            "the heads of this model do not fit the CPU kernel (size a multiple of 8, at most 256)"
        )

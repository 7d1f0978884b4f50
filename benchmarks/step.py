"""Milliseconds of a forward of 1, 8 and 16 rows, head included, and tokens encoded per second.

`read_floor_ms` is what reading every weight once takes at the bandwidth measured here: no step can
be faster. NAME is a model of the catalogue, with its own weights, or a shape (135M, 0.5B, 1.5B, 7B,
8B) with random ones, on the kernels that `engine.kernels.dispatch` chooses. Refuses to report when
a layer's output is not its reference's, or a row depends on its neighbours.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.engine_run import finish
from benchmarks.report import BenchmarkError, Progress, percentile, ratio, write_figures
from engine import catalog, converted, store
from engine.kernels import cpu, dispatch
from engine.kernels.dispatch import KernelSet
from engine.kernels.grouped import Grouped
from engine.kernels.packing import Packed
from engine.model.config import ModelConfig
from engine.model.linear import Linear, PackedLinear
from engine.model.transformer import Embedding, Head, Layer, Transformer
from engine.placement import GroupedLinear, PlacedTransformer, place

ROWS = (1, 8, 16)
CHUNK = 32
#: Largest difference from the reference relative to its largest value: the CPU's activations have
#: eight bits, the reference's have not.
TOLERANCE = 3e-2
_EMBEDDED = 1024  # rows of a random embedding: looking one up costs the same in any
_READ_BYTES = 1 << 28


def _shape(sizes: tuple[int, ...], *, bias: bool) -> ModelConfig:
    hidden, inner, layers, heads, kv_heads, dim, vocab = sizes
    return ModelConfig(
        architecture="qwen2" if bias else "llama",
        hidden=hidden,
        intermediate=inner,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        vocab=vocab,
        rope_theta=1e6,
        norm_eps=1e-6,
        context_length=32_768,
        qkv_bias=bias,
    )


#: SmolLM2-135M, Qwen2.5-Coder 0.5B, 1.5B and 7B, Llama-3.1-8B.
SHAPES = {
    "135M": _shape((576, 1536, 30, 9, 3, 64, 49_152), bias=False),
    "0.5B": _shape((896, 4864, 24, 14, 2, 64, 151_936), bias=True),
    "1.5B": _shape((1536, 8960, 28, 12, 2, 128, 151_936), bias=True),
    "7B": _shape((3584, 18_944, 28, 28, 4, 128, 152_064), bias=True),
    "8B": _shape((4096, 14_336, 32, 32, 8, 128, 128_256), bias=False),
}
ON_CPU = ("135M", "0.5B")


def random_base(config: ModelConfig, kernels: KernelSet) -> Transformer:
    """A base of that shape; every matrix lies in memory of its own."""
    made: dict[tuple[int, int], Packed] = {}

    def linear(outputs: int, inputs: int, biased: bool = False) -> Linear:
        bias = torch.randn(outputs) if biased else None
        if kernels.product is not None:
            codes = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
            scales = torch.full((outputs, inputs // 32), inputs**-0.5 / 64, dtype=torch.float16)
            weight = Grouped(codes=codes, scales=scales, inputs=inputs, bits=8)
            return GroupedLinear(weight, bias, kernels)
        size = (outputs, inputs)
        if size not in made:
            made[size] = cpu.pack(torch.randn(size) * inputs**-0.5)
        one = made[size]
        copy = replace(one, codes=one.codes.clone(), scales=one.scales.clone())
        return PackedLinear(copy, bias)

    h, inner, mixed = config.hidden, config.intermediate, config.heads * config.head_dim
    with kernels.device:
        layers = tuple(
            Layer(
                attn_norm=torch.ones(h),
                qkv=linear(config.qkv_rows, h, config.qkv_bias),
                out=linear(h, mixed),
                ffn_norm=torch.ones(h),
                gate_up=linear(2 * inner, h),
                down=linear(h, inner),
            )
            for _ in range(config.layers)
        )
        head = Head(torch.ones(h), linear(config.vocab, h), config.norm_eps, kernels.kernels)
        embedding = Embedding(torch.randn(_EMBEDDED, h))
        base = Transformer(config, embedding, layers, head, (), kernels.kernels)
    return base if kernels.product is None else PlacedTransformer(base, kernels)


def load(name: str, kernels: KernelSet) -> Transformer:
    """The base of that name. Raises BenchmarkError, EngineError."""
    if name in SHAPES:
        if kernels.device.type == "cpu" and name not in ON_CPU:
            raise BenchmarkError(f"{name} is for a GPU; on a CPU use one of {', '.join(ON_CPU)}")
        return random_base(SHAPES[name], kernels)
    files = catalog.resolve(name)
    folder = converted.converted_folder(files.sha256)
    store.convert(files.path, folder, None, files.traits)
    base, _ = store.open_int8(folder, ())
    placed, _ = place(base, None, kernels)
    return placed


def check(base: Transformer) -> None:
    """Raises BenchmarkError when the first layer is wrong, or a row is not the same alone."""
    ids = list(range(5, 13))
    first = _with_layers(base, 1)
    plain, _ = place(_with_layers(base, 1), None, dispatch.choose("reference"))
    mine = first.encode(ids, first.new_stream()).cpu()
    meant = plain.encode(ids, plain.new_stream())
    worst = float((mine - meant).abs().max() / meant.abs().max())
    if not worst <= TOLERANCE:
        raise BenchmarkError(
            f"a layer is off its reference by {worst:.1e}: no time is worth a look"
        )
    alone = first.encode(ids[:1], first.new_stream()).cpu()
    if not torch.allclose(alone[0], mine[0], rtol=1e-4, atol=1e-4):
        raise BenchmarkError("a row depends on the rows beside it: no time is worth a look")


def _with_layers(base: Transformer, count: int) -> Transformer:
    """The same base cut to its first layers."""
    part = object.__new__(type(base))
    part.__dict__.update(base.__dict__)
    part.layers, part.config = base.layers[:count], replace(base.config, layers=count)
    return part


def weight_bytes(base: Transformer) -> int:
    """What one forward and its head have to read."""
    parts = [getattr(one, n) for one in base.layers for n in ("qkv", "out", "gate_up", "down")]
    weights = [linear.weight for linear in (*parts, base.head.project)]
    return sum(
        w.codes.nbytes + w.scales.nbytes if isinstance(w, Packed | Grouped) else w.nbytes
        for w in weights
    )


def read_gb_s(device: torch.device) -> float:
    """How fast memory is read here: the best of a few sums over a large tensor."""
    large = torch.ones(_READ_BYTES // 4 * (8 if device.type == "cuda" else 1), device=device)
    return large.nbytes / min(timed(large.sum, device) for _ in range(5)) / 1e6


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of one run, until the device is done."""
    started = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) * 1e3


def measure(
    base: Transformer, device: torch.device, context: int, repeats: int
) -> dict[str, float]:
    """The figures of one base over a context of so many tokens."""
    stream = base.new_stream(context + max(ROWS))
    ids = [n % _EMBEDDED for n in range(context)]

    def encode() -> None:
        stream.truncate(0)
        for at in range(0, context, CHUNK):
            base.encode(ids[at : at + CHUNK], stream)

    def step(rows: int) -> Tensor:
        stream.truncate(context)
        return base.logits(base.encode(ids[:rows], stream))

    steps: list[Callable[[], object]] = [encode, *(lambda n=n: step(n) for n in ROWS)]
    times: list[list[float]] = [[] for _ in steps]
    with Progress(repeats + 1, "rounds") as progress:
        for _ in range(repeats + 1):  # in turns; the first round warms up
            for one, spent in zip(steps, times, strict=True):
                spent.append(timed(one, device))
            progress.step()
    encoded, *rows = (percentile(spent[1:], 0.5) for spent in times)
    bandwidth = read_gb_s(device)
    return {
        **{f"ms_{n}_row{'s' * (n > 1)}": round(ms, 3) for n, ms in zip(ROWS, rows, strict=True)},
        "prefill_tok_s": round(context / encoded * 1e3, 1),
        "read_floor_ms": round(weight_bytes(base) / bandwidth / 1e6, 3),
        "read_gb_s": round(bandwidth, 1),
    }


def run(options: argparse.Namespace) -> None:
    """Measures and reports; raises BenchmarkError, EngineError."""
    kernels = dispatch.choose()
    threads = cpu.set_threads(options.threads)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with torch.inference_mode():
        base = load(options.model, kernels)
        check(base)
        figures = measure(base, kernels.device, options.context, options.repeats)
    floor = figures["read_floor_ms"]
    labels = {"benchmark": "step", "model": options.model, "kernels": kernels.name}
    labels |= {"device": str(kernels.device), "threads": threads, "context": options.context}
    over = {f"{n}_over_floor": ratio(figures[n], floor, 2) for n in ("ms_1_row", "ms_16_rows")}
    write_figures({**labels, **figures, **over}, as_json=options.json)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step", description=__doc__)
    parser.add_argument(
        "--model", required=True, help=f"a catalogue name, or a shape: {', '.join(SHAPES)}"
    )
    parser.add_argument("--context", type=int, default=256, help="tokens of context (default: 256)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: one per core)")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    return finish(lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())

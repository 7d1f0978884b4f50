"""The kernels against torch's own operators: the same shapes, in turns, in one run.

On a machine with a CUDA device, the Triton kernels of `gpu_kernels`: one JSON line each. Elsewhere
the CPU's, in one line.

Linears: every matrix of a 0.5B model's forward (and its head), against torch's dynamic int8
linears (fbgemm) and float32. Attention: new rows over cached keys, against torch's. Refuses to
report when a kernel's result is not its reference's.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks import gpu_kernels
from benchmarks.engine_run import finish
from benchmarks.report import (
    BenchmarkError,
    Progress,
    percentile,
    ratio,
    write_figures,
    write_json_line,
)
from engine.kernels import cpu, reference
from engine.kernels.packing import Packed

#: (outputs, inputs, how many in a forward): Qwen2.5-Coder-0.5B
FORWARD = ((1152, 896, 24), (896, 896, 24), (9728, 896, 24), (896, 4864, 24))
HEAD = (151_936, 896, 1)
LAYERS, HEADS, KV_HEADS, DIM = 24, 14, 2, 64
#: Largest difference from the reference, relative to its largest value.
TOLERANCE = 1e-4

Run = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Things that compute the same, timed in turns; the first is ours."""

    name: str
    rows: int
    runs: dict[str, Run]


def check(name: str, mine: Tensor, meant: Tensor) -> None:
    """Raises BenchmarkError when a kernel computes something else than its reference."""
    worst = float((mine - meant).abs().max() / meant.abs().max())
    if not worst <= TOLERANCE:
        raise BenchmarkError(f"{name} is off its reference by {worst:.1e}: no time is worth a look")


def linears(name: str, shapes: Sequence[tuple[int, int, int]], rows: int) -> Contest:
    """All matrices of one forward pass over `rows` rows, each lying elsewhere in memory."""
    packed, int8, floats = [], [], []
    for outputs, inputs, count in shapes:
        weight, x = torch.randn(outputs, inputs), torch.randn(rows, inputs)
        one = cpu.pack(weight)
        check(
            f"linear {outputs}x{inputs}", cpu.linear(x, one, None), reference.linear(x, one, None)
        )
        packed += [(x, _copy(one)) for _ in range(count)]
        int8 += [(x, _dynamic(weight)) for _ in range(count)]
        floats += [(x, weight)] * count if rows <= 8 else []
    multiply = torch.ops.quantized.linear_dynamic.default
    runs: dict[str, Run] = {
        "ours": lambda: [cpu.linear(x, one, None) for x, one in packed],
        "fbgemm_int8": lambda: [multiply(x, one, True) for x, one in int8],
    }
    if floats:
        runs["float32"] = lambda: [torch.nn.functional.linear(x, one) for x, one in floats]
    return Contest(name=name, rows=rows, runs=runs)


def _copy(one: Packed) -> Packed:
    return Packed(
        codes=one.codes.clone(), scales=one.scales.clone(), outputs=one.outputs, inputs=one.inputs
    )


def _dynamic(weight: Tensor) -> object:
    """torch's packed form, int8 with a scale per output."""
    scale = weight.abs().amax(dim=1).double() / 127
    codes = (weight / scale[:, None]).round().to(torch.int8)
    zero = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = torch._make_per_channel_quantized_tensor(codes, scale, zero, 0)
    return torch.ops.quantized.linear_prepack(quantised, None)


def attention(rows: int, length: int) -> Contest:
    """Every layer's attention of `rows` new rows over `length` keys."""
    q = torch.randn(HEADS, rows, DIM)
    keys, values = torch.randn(2, KV_HEADS, -(-(length + rows) // 16) * 16, DIM).unbind()
    seen = torch.arange(length + 1, length + rows + 1)
    mine = cpu.attention(q, keys, values, seen)
    check("attention", mine, reference.attention(q, keys, values, seen))
    layers = range(LAYERS)
    return Contest(
        name=f"attention_{length}",
        rows=rows,
        runs={
            "ours": lambda: [cpu.attention(q, keys, values, seen) for _ in layers],
            "torch": lambda: [reference.attention(q, keys, values, seen) for _ in layers],
        },
    )


def measure(contest: Contest, repeats: int) -> dict[str, object]:
    """Medians in milliseconds, and how many times as long the others take."""
    times: dict[str, list[float]] = {name: [] for name in contest.runs}
    for _ in range(repeats + 1):
        for name, run in contest.runs.items():
            started = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - started) * 1e3)
    medians = {name: percentile(spent[1:], 0.5) for name, spent in times.items()}
    figures: dict[str, object] = {f"{name}_ms": round(ms, 2) for name, ms in medians.items()}
    ours = medians["ours"]
    figures |= {f"{n}_over_ours": ratio(ms, ours, 2) for n, ms in medians.items() if n != "ours"}
    return {"rows": contest.rows, **figures}


def run(options: argparse.Namespace) -> None:
    """Measures and reports; raises BenchmarkError."""
    if torch.cuda.is_available():
        run_gpu()
    else:
        run_cpu(options)


def run_gpu() -> None:
    """A line for each Triton kernel and shape, as soon as it is checked and timed."""
    with torch.inference_mode(), torch.device("cuda"):
        torch.manual_seed(0)
        ceiling = gpu_kernels.ceiling_gb_s()
        for size, shape in gpu_kernels.SHAPES.items():
            for case in gpu_kernels.cases(shape, size):
                gpu_kernels.check(case)
                write_json_line(gpu_kernels.figures(case, gpu_kernels.cuda_ms, ceiling))


def run_cpu(options: argparse.Namespace) -> None:
    """One line for all CPU kernels."""
    threads = cpu.set_threads(options.threads)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if torch.backends.quantized.engine not in ("fbgemm", "x86"):
        raise BenchmarkError("this torch has no fbgemm to compare with")
    makers: list[Callable[[], Contest]] = [
        *(lambda n=n: linears("layers", FORWARD, n) for n in (1, 4, 8, 16, 32)),
        *(lambda n=n: linears("head", (HEAD,), n) for n in (1, 8)),
        *(lambda n=n: attention(n, 500) for n in (1, 8, 32)),
    ]
    results: dict[str, object] = {}
    with torch.inference_mode(), Progress(len(makers), "kernels") as progress:
        for make in makers:
            contest = make()
            results[f"{contest.name}_{contest.rows}"] = measure(contest, options.repeats)
            progress.step(contest.name)
    labels = {"benchmark": "kernels", "threads": threads, "repeats": options.repeats}
    write_figures({**labels, "kernels": results}, as_json=options.json)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--threads", type=int, help="CPU threads (default: one per core)")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    return finish(lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())

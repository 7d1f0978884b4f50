"""Milliseconds of a denoising step of a bidirectional model at the size of Qwen2.5-Coder-0.5B, by
the length of its context: computed whole (`exact`), and with the context's keys and values frozen
(`cached`), in turns.

Random weights: what a step costs does not depend on them. A whole step computes every token, so it
grows with the context; a cached one computes the canvas alone, and what grows is only how many keys
it attends to. Refuses to report when a cached step behind a whole one scores otherwise than that.
`memory_mb`: keys, values and features of one sequence; the weights come on top.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.engine_run import finish
from benchmarks.report import BenchmarkError, Progress, percentile, ratio, write_figures
from benchmarks.step import SHAPES, random_base, timed, weight_bytes
from engine.context import Context
from engine.habits import Caching
from engine.kernels import cpu, dispatch
from engine.model.family import Family
from engine.model.transformer import Transformer
from engine.slot_canvas import SlotCanvas

CONTEXTS = (256, 1024, 4096)
SUFFIX = 64  # of the context, behind the canvas
MASK = 1
_NEVER = Caching(refresh=1_000_000, drift=1e9)
_WORDS = 1000


def sequence(base: Transformer, family: Family, length: int, caching: Caching | None) -> Context:
    """A canvas's surroundings of `length` tokens."""
    ids = [2 + n % _WORDS for n in range(length)]
    sides = (ids[:-SUFFIX], ids[-SUFFIX:])
    return Context(base, family, base.new_stream(length + 64), sides, caching)


def step(context: Context, canvas: SlotCanvas) -> Tensor:
    """One forward and the scores of every slot."""
    return context.logits(context.hidden(canvas))


def measure(base: Transformer, length: int, slots: int, repeats: int) -> dict[str, float]:
    """The figures of one length; raises BenchmarkError."""
    family = base.config.family
    whole, frozen = (sequence(base, family, length, c) for c in (None, _NEVER))
    canvas = SlotCanvas(slots, MASK)
    first = step(frozen, canvas)
    if not torch.equal(first, step(whole, canvas)):
        raise BenchmarkError("two whole steps differ: no time is worth a look")
    if not torch.allclose(step(frozen, canvas), first, rtol=1e-3, atol=1e-3):
        raise BenchmarkError("a cached step differs from a whole one: no time is worth a look")
    runs: dict[str, Callable[[], Tensor]] = {
        "exact": lambda: step(whole, canvas),
        "cached": lambda: step(frozen, canvas),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(timed(run, base.embedding.weight.device))
    exact, cached = (percentile(times[name], 0.5) for name in runs)
    return {
        "exact_ms": round(exact, 1),
        "cached_ms": round(cached, 1),
        "exact_over_cached": ratio(exact, cached, 1) or 0.0,
        "memory_mb": round(frozen.stream.bytes / 1e6, 1),
    }


def run(options: argparse.Namespace) -> None:
    """Measures and reports; raises BenchmarkError."""
    threads = cpu.set_threads(options.threads)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    family = Family(attention="bidirectional", mask_id=MASK)
    with torch.inference_mode():
        base = random_base(replace(SHAPES["0.5B"], family=family), dispatch.choose("cpu"))
        figures: dict[str, object] = {}
        with Progress(len(options.contexts), "lengths") as progress:
            for length in options.contexts:
                figures[str(length)] = measure(base, length, options.slots, options.repeats)
                progress.step(f"{length} tokens")
    labels = {"benchmark": "native_step", "shape": "0.5B", "threads": threads}
    labels |= {"slots": options.slots, "weights_mb": round(weight_bytes(base) / 1e6)}
    write_figures({**labels, "contexts": figures}, as_json=options.json)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native_step", description=__doc__)
    parser.add_argument(
        "--contexts", type=int, nargs="+", default=list(CONTEXTS), help="tokens around the canvas"
    )
    parser.add_argument("--slots", type=int, default=16, help="of the canvas (default: 16)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: one per core)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    return finish(lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())

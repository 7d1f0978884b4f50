"""Every Triton kernel built ahead of time, no GPU needed: registers, shared memory and spills.

The launchers run on tensors without data; what they would launch is compiled for each architecture,
specialised as Triton itself would. Refuses to report a build that spills registers, or that needs
more shared memory than small cards have.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.engine_run import finish
from benchmarks.report import BenchmarkError, Progress, write_figures

ARCHITECTURES = (80, 90, 100)
#: Bytes that a block may have on the cards that people own (sm_86, sm_89, sm_120).
MOST_SHARED = 101_376
RESULTS = Path(__file__).parent / "results" / "triton_builds.json"
_NEEDS = "triton is not installed here; `pip install 'dlsp[gpu]'` (Linux only)"
_POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.bool: "*i1",
}
_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A kernel as one launcher called it: `signature` and `constants` by argument name, which
    arguments are divisible by 16, and the compiler's options (num_warps, num_stages, maxnreg)."""

    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, object]
    divisible: tuple[int, ...]
    options: Mapping[str, object]

    @property
    def name(self) -> str:
        """Module and function."""
        return f"{self.kernel.__module__.rpartition('.')[2]}.{self.kernel.__name__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What the assembler says of one build. Shared memory in bytes."""

    registers: int
    shared: int
    spills: int


def specialise(kernel: Any, arguments: Sequence[object], named: Mapping[str, object]) -> Launch:
    """One call as Triton specialises it: None and 1 are constants, multiples of 16 are marked."""
    names = list(kernel.arg_names)
    given = dict(zip(names, arguments, strict=False)) | {n: named[n] for n in names if n in named}
    signature, constants, divisible = {}, {}, []
    for place, name in enumerate(names):
        value = given[name]
        if name in named or value is None or (type(value) is int and value == 1):
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = _POINTERS[value.dtype]
            divisible.append(place)  # allocations are aligned
        elif isinstance(value, int):
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            divisible += [place] if value % 16 == 0 else []
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            raise TypeError(f"{kernel.__name__} takes {name} = {value!r}")
    return Launch(
        kernel=kernel,
        signature=signature,
        constants=constants,
        divisible=tuple(divisible),
        options={name: value for name, value in named.items() if name not in names},
    )


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """What is launched inside is collected and not run."""
    from triton.runtime.jit import JITFunction

    launches: list[Launch] = []

    def record(kernel: Any, *arguments: object, **named: object) -> None:
        launches.append(specialise(kernel, arguments, named))

    with mock.patch.object(JITFunction, "run", record):
        yield launches


def build(launch: Launch, arch: int) -> Build:
    """Compiles one launch for one architecture; raises BenchmarkError when it needs the stack."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(
        fn=launch.kernel,
        signature=dict(launch.signature),
        constexprs=dict(launch.constants),
        attrs={(place,): [["tt.divisibility", 16]] for place in launch.divisible},
    )
    target = GPUTarget("cuda", arch, 32)
    compiled = triton.compile(source, target=target, options=dict(launch.options))
    registers, spills = assemble(compiled.asm["ptx"], arch)
    shared = compiled.metadata.shared
    if spills:
        raise BenchmarkError(f"{launch.name} for sm_{arch} spills {spills} bytes")
    if shared > MOST_SHARED:
        raise BenchmarkError(f"{launch.name} for sm_{arch} needs {shared} bytes of shared memory")
    return Build(
        registers=registers,
        shared=shared,
        spills=spills,
    )


def assemble(ptx: str, arch: int) -> tuple[int, int]:
    """Registers of a thread, and bytes of stack and of spills, as Triton's assembler reports."""
    from triton.backends.nvidia.compiler import get_ptxas

    target = re.search(r"\.target (\w+)", ptx)
    assert target is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx, encoding="utf-8")
        command = [get_ptxas(arch).path, "-v", f"-arch={target[1]}", str(path)]
        command += ["-o", str(path.with_suffix(".cubin"))]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    used, spilled = _USED.search(told.stderr), _SPILLS.search(told.stderr)
    if told.returncode or used is None or spilled is None:
        raise BenchmarkError(f"ptxas failed for sm_{arch}: {told.stderr.strip()[:300]}")
    return int(used[1]), sum(int(part) for part in spilled.groups())


def collect(cases: Mapping[str, Callable[[], object]]) -> dict[str, Launch]:
    """Every launch that some case makes, once, under the name of the first such case."""
    found: dict[str, Launch] = {}
    seen: set[str] = set()
    for name, case in cases.items():
        with recorded() as launches:
            case()
        for launch in launches:
            key = repr(launch)
            if key not in seen:
                found[f"{launch.name}, {name}"] = launch
            seen.add(key)
    return found


def run(options: argparse.Namespace) -> None:
    """Builds all, writes the table; raises BenchmarkError."""
    try:
        import triton
    except ImportError:
        raise BenchmarkError(_NEEDS) from None
    from benchmarks.triton_cases import cases

    work = collect(cases())
    rows: dict[str, dict[str, object]] = {}
    with Progress(len(work) * len(ARCHITECTURES), "builds") as progress:
        for name, launch in work.items():
            rows[name] = {}
            for arch in ARCHITECTURES:
                rows[name][f"sm_{arch}"] = asdict(build(launch, arch))
                progress.step(f"{name} sm_{arch}")
    figures = {"benchmark": "triton_builds", "triton": triton.__version__, "builds": rows}
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    write_figures(figures, as_json=options.json)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.triton_builds", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    return finish(lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())

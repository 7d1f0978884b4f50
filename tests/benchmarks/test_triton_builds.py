"""Kernels are built ahead of time as their launchers would launch them; a spill is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import triton_builds, triton_cases
from benchmarks.report import BenchmarkError

pytest.importorskip("triton")


@pytest.fixture
def one_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Only the quickest kernel is built; the table goes elsewhere."""
    from engine.kernels.triton.swiglu import swiglu

    gate_up = triton_cases.empty(3, 64)
    monkeypatch.setattr(triton_cases, "cases", lambda: {"tiny": lambda: swiglu(gate_up)})
    monkeypatch.setattr(triton_builds, "RESULTS", tmp_path / "builds.json")
    return tmp_path / "builds.json"


def test_a_table_of_every_build(one_case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert triton_builds.main(["--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line == json.loads(one_case.read_text(encoding="utf-8"))
    built = line["builds"]["swiglu._swiglu, tiny"]
    assert set(built) == {"sm_80", "sm_90", "sm_100"}
    for figures in built.values():
        assert figures["registers"] > 0 and figures["spills"] == 0


def test_a_build_that_spills_is_refused(
    one_case: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(triton_builds, "assemble", lambda ptx, arch: (255, 8))
    assert triton_builds.main(["--json"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "swiglu._swiglu for sm_80 spills 8 bytes" in said.err
    assert not one_case.exists()


def test_a_build_for_large_cards_only_is_refused(
    one_case: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(triton_builds, "MOST_SHARED", -1)
    assert triton_builds.main(["--json"]) == 2
    assert "bytes of shared memory" in capsys.readouterr().err


def test_the_assembler_counts_what_it_spills() -> None:
    """Sixty-four live values in sixteen registers do not fit."""
    lines = [f"ld.volatile.global.u32 %r{n}, [%rd0+{4 * n}];" for n in range(64)]
    lines += [f"st.volatile.global.u32 [%rd0+{4 * n}], %r{63 - n};" for n in range(64)]
    body = "\n".join(lines)
    ptx = (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 p) .maxnreg 16 {\n"
        ".reg .b32 %r<64>; .reg .b64 %rd<1>;\nld.param.u64 %rd0, [p];\n" + body + "\nret;\n}\n"
    )
    registers, spills = triton_builds.assemble(ptx, 80)
    assert registers <= 24 and spills > 0
    with pytest.raises(BenchmarkError, match="ptxas failed for sm_80"):
        triton_builds.assemble(ptx.replace("ret;", "retire;"), 80)


def test_arguments_are_specialised_as_at_a_launch() -> None:
    from engine.kernels.triton.linear import linear

    x, weight = triton_cases.empty(1, 64), triton_cases.matrix(40, 64, "int8")
    with triton_builds.recorded() as launches:
        linear(x, weight)
    (launch,) = launches
    assert launch.name == "linear._linear"
    assert launch.signature["x"] == "*fp32" and launch.signature["weight"] == "*i8"
    assert launch.signature["outputs"] == "i32" and launch.signature["eps"] == "fp32"
    assert launch.constants["bias"] is None and launch.constants["rows"] == 1
    places = {launch.kernel.arg_names[place] for place in launch.divisible}
    assert {"x", "weight", "inputs"} <= places and "outputs" not in places
    assert launch.options["num_warps"] == 4


def test_every_kernel_has_a_build() -> None:
    """Whatever is launched in the package is launched by some case."""
    import engine.kernels.triton as package

    kernels = {
        f"{path.stem}.{name}"
        for path in Path(package.__file__).parent.glob("*.py")
        for name in re.findall(r"@triton\.jit\ndef (\w+)", path.read_text(encoding="utf-8"))
    }
    inner = {"tiles._accumulate", "tiles._spread", "tiles.product", "attention._turn"}
    launched = {one.name for one in triton_builds.collect(triton_cases.cases()).values()}
    assert launched == kernels - inner - {"confidence._best"}


@pytest.mark.e2e
def test_all_builds_are_free_of_spills_and_in_the_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole table, some minutes of compiling; registers may differ between assemblers."""
    recorded = json.loads(triton_builds.RESULTS.read_text(encoding="utf-8"))["builds"]
    monkeypatch.setattr(triton_builds, "RESULTS", tmp_path / "builds.json")
    assert triton_builds.main(["--json"]) == 0
    built = json.loads((tmp_path / "builds.json").read_text(encoding="utf-8"))["builds"]
    assert set(built) == set(recorded), "python -m benchmarks.triton_builds renews the table"

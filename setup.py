"""Builds the CPU kernels (engine/kernels/*.c); everything else is in pyproject.toml.

They are a plain shared library, opened by ctypes: no Python headers are needed, only a C compiler.
`CC` names it; `CC="python -m ziglang cc"` works where there is none (pip install ziglang).
"""

import os
import platform

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

LINEAR = ("plain", "avx2", "avxvnni", "avx512")
NAMES = ("pool", "processor", "pack", "activations", "linear", "attention", "rows", "multiply")
HEADERS = ("pool", "lanes", "layout", "linear", "multiply_rows", "vectors256")


def flags() -> list[str]:
    """AVX2 on x86-64; DLSP_PORTABLE=1 builds for any processor, much slower."""
    common = ["-O3", "-std=gnu11", "-fvisibility=hidden", "-Wno-psabi", "-fno-math-errno"]
    wide = platform.machine().lower() in ("x86_64", "amd64") and not os.environ.get("DLSP_PORTABLE")
    return [*common, "-mavx2", "-mfma", "-mf16c"] if wide else common


class Build(build_ext):
    """A library without a Python init function."""

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []


kernels = Extension(
    "engine.kernels._cpu",
    sources=[f"engine/kernels/{n}.c" for n in (*NAMES, *(f"multiply_{n}" for n in LINEAR))],
    depends=[*(f"engine/kernels/{name}.h" for name in HEADERS), "setup.py"],
    extra_compile_args=flags(),
    libraries=[] if os.name == "nt" else ["m", "pthread"],
)

setup(ext_modules=[kernels], cmdclass={"build_ext": Build})

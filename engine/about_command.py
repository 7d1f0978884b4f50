"""`dlsp-engine about`: what this installation can run, as JSON, for `dlsp doctor` and bug reports.

Knows versions, devices, kernels and grammars; loads no model.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from typing import Any

from engine import __version__
from engine.digest import cache_dir
from engine.grammars import LANGUAGES, grammar
from engine.request import WIRE_VERSION, WeightsError


def main(arguments: list[str]) -> int:
    """Print everything; a part that fails says why in its own place."""
    parser = argparse.ArgumentParser(prog="dlsp-engine about", description=__doc__)
    parser.add_argument("--json", action="store_true", help="accepted, and the only form")
    parser.parse_args(arguments)
    sys.stdout.write(json.dumps(about(), indent=2) + "\n")
    return 0


def about() -> dict[str, Any]:
    """Versions, what torch sees, whether the CPU kernels load, and which grammars are missing."""
    return {
        "version": __version__,
        "wireVersion": WIRE_VERSION,
        "python": platform.python_version(),
        "executable": sys.executable,
        "cache": str(cache_dir()),
        "torch": _torch(),
        "kernels": _kernels(),
        "missingGrammars": [name for name in LANGUAGES if grammar(name) is None],
    }


def _torch() -> dict[str, Any]:
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"error": str(error)}
    gpus = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(index)
            gpus.append({"name": found.name, "memoryMb": found.total_memory >> 20})
    return {
        "version": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
    }


def _kernels() -> dict[str, Any]:
    try:
        from engine.kernels.cpu import set_threads

        return {"threads": set_threads(None)}
    except (ImportError, OSError, WeightsError) as error:
        return {"error": str(error)}

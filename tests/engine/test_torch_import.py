"""Torch imported for inference computes as ever, and leaves out what only tracing needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import gc, sys
from engine.torch_import import import_for_inference
import_for_inference("engine.engine")
assert gc.isenabled()
assert "torch._meta_registrations" not in sys.modules
import torch
assert not hasattr(torch, "_meta_registrations")
{then}
"""


def run(then: str) -> None:
    program = PROGRAM.format(then=then)
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_inference_and_gradients_work() -> None:
    run(
        "with torch.inference_mode():\n"
        "    x = torch.eye(4) @ torch.ones(4, 2)\n"
        "    assert x.softmax(dim=0).sum().item() == 2.0\n"
        "layer = torch.nn.Linear(3, 1)\n"
        "layer(torch.ones(2, 3)).sum().backward()\n"
        "assert layer.weight.grad is not None\n"
    )


def test_it_can_be_had_later_by_its_name() -> None:
    run(
        "import torch._meta_registrations\n"
        "assert hasattr(torch._meta_registrations, 'register_meta')\n"
        "double = torch.compile(lambda x: torch.linalg.lu(x)[0] * 2, backend='aot_eager')\n"
        "assert double(torch.eye(2)).sum().item() == 4.0\n"
    )


def test_once_torch_is_there_nothing_is_left_out() -> None:
    program = (
        "import sys, torch\n"
        "before = sys.modules['torch._meta_registrations']\n"
        "from engine.torch_import import import_for_inference\n"
        "assert import_for_inference('engine.choice').Vocabulary\n"
        "assert sys.modules['torch._meta_registrations'] is before\n"
        "assert torch._meta_registrations is before\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr

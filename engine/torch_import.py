"""Import torch for inference, without what only its compiler needs.

Knows torch's import and nothing of what is computed. Torch registers, at every import, what each
operator would do to tensors without data (`torch._meta_registrations`), a third of its import
time; only tracing and compiling look at that. Here it is left out: whoever wants to compile in
such a process imports that module by name first.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

_TRACING_ONLY = "torch._meta_registrations"


def import_for_inference(module: str) -> ModuleType:
    """Import `module`, whose imports include torch; quicker than an `import` statement.

    The garbage collector rests meanwhile, for it would look again and again at hundreds of
    thousands of objects of which none is garbage, and leaves them alone from then on.
    """
    with _collector_resting(), _deferred(_TRACING_ONLY):
        found = importlib.import_module(module)
    gc.freeze()
    return found


@contextlib.contextmanager
def _collector_resting() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _deferred(name: str) -> Iterator[None]:
    """Let imports of `name` find an empty module meanwhile; afterwards it can be imported."""
    if "torch" in sys.modules or name in sys.modules:
        yield
        return
    placeholder = ModuleType(name)
    sys.modules[name] = placeholder
    try:
        yield
    finally:
        if sys.modules.get(name) is placeholder:
            del sys.modules[name]
        torch = sys.modules.get("torch")
        # `import torch` binds the name too, and would go on finding the placeholder there.
        if torch is not None and vars(torch).get("_meta_registrations") is placeholder:
            delattr(torch, "_meta_registrations")

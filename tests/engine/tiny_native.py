"""A tiny masked-diffusion model on disk, in the hub's layout, and an engine over it."""

from __future__ import annotations

import json
from pathlib import Path

from engine import store
from engine.engine import Engine
from engine.habits import Habits
from engine.model.family import Family
from engine.native_runner import NativeRunner
from tests.engine.tiny_base import edit_config, make_folder

MASK, EXPAND, BEGIN = "<|mask|>", "<|expand|>", "<|beginoftext|>"


def make_native(
    folder: Path, model_type: str = "Dream", *, seed: int = 0, edits: bool = False
) -> Path:
    """A random checkpoint of a native architecture: `Dream` (bidirectional, shifted), `a2d-qwen2`
    (bidirectional, in place), `sdar` (blocks of 8) or `Fast_dLLM_Qwen` (blocks, shifted).

    With `edits` it has an expand token, and deletes with its end token, as DreamOn does.
    """
    make_folder(folder, seed=seed)
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    first = 1 + max(token["id"] for token in data["added_tokens"])
    template = data["added_tokens"][0]
    ids = {name: first + n for n, name in enumerate((MASK, BEGIN, EXPAND)[: 2 + edits])}
    data["added_tokens"] += [template | {"id": i, "content": name} for name, i in ids.items()]
    path.write_text(json.dumps(data), encoding="utf-8")
    end = next(t["id"] for t in data["added_tokens"] if t["content"] == "<|endoftext|>")
    edit_config(
        folder,
        model_type=model_type,
        mask_token_id=ids[MASK],
        bos_token_id=ids[BEGIN],
        eos_token_id=end,
        pad_token_id=end,
        delete_token_id=end if edits else None,
        block_size=8,
    )
    return folder


def native_engine(
    folder: Path,
    model_type: str = "Dream",
    *,
    seed: int = 0,
    edits: bool = False,
    habits: Habits | None = None,
) -> Engine:
    """A float32 engine over a fresh checkpoint."""
    made = make_native(folder, model_type, seed=seed, edits=edits)
    base, tokenizer = store.open_float(made, ())
    return Engine("tiny", NativeRunner(base, tokenizer, base.config.family, habits))


def family_of(engine: Engine) -> Family:
    runner = engine.runner
    assert isinstance(runner, NativeRunner)
    return runner.family

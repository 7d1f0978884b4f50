"""`dlsp-engine train`: from a base model and source files to a denoiser."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from engine.kernels import cpu
from engine.request import BadRequest
from engine.training import device, settings
from engine.training.device import Device
from engine.training.interrupts import Interrupts
from engine.training.session import Session
from engine.training.settings import Settings


def main(argv: list[str]) -> int:
    """Run the command; returns the exit status."""
    given = settings.read(argv)
    return run_alone(
        given.out,
        given.threads,
        device.choose(given.device),
        lambda signals: _train(given, signals),
    )


def run_alone(out: Path, threads: int, place: Device, train: Callable[[Interrupts], int]) -> int:
    """Run `train` as the only training in the folder `out`, on `threads` CPU threads (0: all) and a
    device; returns the exit status, a signal's where one ended it. Raises BadRequest."""
    cpu.set_threads(threads or None)
    if threads:
        torch.set_num_threads(threads)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"cannot make the folder {out} ({error.strerror})") from error
    lock = FileLock(out / ".lock", blocking=False)
    try:
        with lock, Interrupts() as interrupts, place.here():
            try:
                return train(interrupts)
            except KeyboardInterrupt:  # Stopped is one
                say(f"stopped{_saved(out)}")
                return interrupts.exit_status
    except Timeout:
        raise BadRequest(f"another training runs in {out}; give another --out") from None


def say(line: str) -> None:
    """One progress line on stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def _train(given: Settings, interrupts: Interrupts) -> int:
    session = Session(given)
    trainer = session.trainer(say)
    held_out = session.held_out(interrupts.wanted)
    say(f"{len(session.sources.train)} training texts, {len(held_out)} held-out documents")
    interrupts.deferring = True  # from here on there is something to save
    trainer.run(session.document, held_out, say, interrupts.wanted)
    interrupts.deferring = False
    target = given.out / "denoiser.safetensors"
    trainer.export(target, held_out)
    say(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB)")
    return 0


def _saved(out: Path) -> str:
    if not (out / "checkpoint.safetensors").is_file():
        return " before there was anything to save"
    return "; the checkpoint is saved, run the same command to go on"

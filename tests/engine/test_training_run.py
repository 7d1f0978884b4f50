"""The training as a command: config files, signals, devices, memory, the same result twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file

from engine import store
from engine.model import denoiser_file
from engine.model.denoiser import Context, Denoiser
from engine.model.linear import FloatLinear
from engine.model.transformer import Transformer
from engine.request import BadRequest
from engine.training import command, device, memory, settings, texts
from engine.training.data import SourceText
from engine.training.device import Device
from engine.training.encode import Document
from engine.training.interrupts import Interrupts, Stopped, never
from engine.training.loop import Trainer
from engine.training.session import Session
from engine.training.texts import ListedTexts, Picker
from tests.engine.tiny_base import make_folder

TEXT = "".join(f"def add_{n}(a, b):\n    total = a + b\n    return total\n\n\n" for n in range(12))
SIZES = ["--layers=1", "--slots=3", "--shortlist=300", "--length=128", "--sites=16"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(Path(tmp_path_factory.mktemp("base")) / "tiny", layers=3)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(tmp_path_factory.mktemp("sources"))
    for n in range(14):
        (folder / f"m{n}.py").write_text(TEXT.replace("total", f"total_{n}"))
    return folder


def _argv(base: Path, sources: Path, out: Path, *more: str) -> list[str]:
    return [f"--base={base}", "--data", str(sources), f"--out={out}", *SIZES, *more]


def _trained(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "checkpoint.safetensors")


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(t, other[n]) for n, t in one.items())


def test_the_same_seed_gives_the_same_denoiser(base: Path, sources: Path, tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    assert command.main(_argv(base, sources, a, "--steps=4", "--threads=1")) == 0
    assert command.main(_argv(base, sources, b, "--steps=4", "--threads=1")) == 0
    assert command.main(_argv(base, sources, c, "--steps=4", "--threads=1", "--seed=2")) == 0
    results = [load_file(out / "denoiser.safetensors") for out in (a, b)]
    assert _equal(*results)
    configs = [denoiser_file.load_config(out / "denoiser.safetensors") for out in (a, b)]
    assert configs[0] == configs[1]
    assert _equal(_trained(a), _trained(b))
    assert not _equal(_trained(a), _trained(c))


def _stop_after(steps: int, trainer: Trainer, session: Session) -> None:
    with pytest.raises(Stopped):
        trainer.run(session.document, [], lambda line: None, lambda: trainer.steps >= steps)


def test_a_stopped_training_ends_as_if_it_had_not_been(
    base: Path, sources: Path, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    argv = _argv(base, sources, whole, "--steps=6", "--threads=1", "--keep=3")
    assert command.main(argv) == 0
    argv[3] = f"--out={parts}"
    parts.mkdir()
    session = Session(settings.read(argv))
    for steps in (2, 5):
        _stop_after(steps, session.trainer(lambda line: None), session)
    assert command.main(argv) == 0
    assert _equal(_trained(whole), _trained(parts))


def test_steps_count_as_the_schedule(base: Path, sources: Path, tmp_path: Path) -> None:
    session = _session(base, sources, tmp_path, "--steps=10", "--hours=0.000001")
    trainer = session.trainer(lambda line: None)
    rates = []
    for step in range(11):
        trainer.steps = step + 1000  # past the warm-up
        trainer.options = replace(trainer.options, max_steps=1000 + 10)
        rates.append(trainer._rate())
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.02)


def _session(base: Path, sources: Path, tmp_path: Path, *more: str) -> Session:
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    return Session(settings.read(_argv(base, sources, out, *more)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_checkpoints_and_ends_even_in_the_background(
    base: Path, sources: Path, tmp_path: Path, number: int
) -> None:
    out = tmp_path / "out"
    program = "import sys; from engine.training.command import main; sys.exit(main(sys.argv[1:]))"
    argv = _argv(base, sources, out, "--hours=1", "--threads=1")
    process = subprocess.Popen(
        [sys.executable, "-c", program, *argv],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
        # as a shell starts it behind `&`
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    documents = out / "documents"
    deadline = time.monotonic() + 90
    while len(list(documents.glob("*.safetensors"))) < 3 and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    os.kill(process.pid, number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number, said
    assert "the checkpoint is saved" in said
    assert len(_trained(out)) > 10
    assert not (out / "denoiser.safetensors").exists()


def test_a_signal_before_the_first_step_ends_at_once() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        assert interrupts.exit_status == 143
    with Interrupts() as interrupts:
        interrupts.deferring = True
        signal.raise_signal(signal.SIGINT)
        assert interrupts.wanted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_two_trainings_never_share_a_folder(base: Path, sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with FileLock(out / ".lock"), pytest.raises(BadRequest, match="another training"):
        command.main(_argv(base, sources, out, "--steps=1"))


def test_a_config_file_gives_options_and_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    config = tmp_path / "train.toml"
    config.write_text(
        'base = "smollm2-135m"\ndata = ["code"]\nout = "runs/a"\nhours = 0.5\nsteps = 7\n'
        'device = "cpu"\n[mix]\npython = 4\ngo = 1.5\n'
    )
    found = settings.read(["--config", str(config), "--steps=9", f"--out={tmp_path / 'b'}"])
    assert (found.base, found.hours, found.steps) == ("smollm2-135m", 0.5, 9)
    assert found.data == [tmp_path / "code"]
    assert found.out == tmp_path / "b"
    assert found.shares == {"python": 4.0, "go": 1.5}
    (tmp_path / "mine.gguf").touch()
    config.write_text('base = "mine.gguf"\nout = "x"\n')
    assert settings.read([f"--config={config}"]).base == str(tmp_path / "mine.gguf")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hour = 3", "hour"),
        ("hours = [1, 2]", "hours"),
        ("hours = true", "hours"),
        ("sites = {a = 1}", "sites"),
        ("data = [[1]]", "data"),
        ("config = 'x'", "config"),
        ("hours = ", "config file"),
        ("hours = 0", "--hours"),
    ],
)
def test_a_config_file_that_cannot_be_meant(tmp_path: Path, line: str, said: str) -> None:
    config = tmp_path / "train.toml"
    config.write_text(line + "\n")
    with pytest.raises(BadRequest, match=said):
        settings.read([f"--config={config}", "--out=x"])


def test_options_that_need_others(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="--out"):
        settings.read([])
    with pytest.raises(BadRequest, match="cannot read"):
        settings.read([f"--config={tmp_path / 'none.toml'}"])
    with pytest.raises(BadRequest, match="corpus build"):
        settings.read(["--out=x", "--shards=a", "--data", "b"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none_is_an_error_and_auto_is_the_cpu() -> None:
    with pytest.raises(BadRequest, match="CUDA"):
        device.choose("cuda")
    for name in ("auto", "cpu"):
        chosen = device.choose(name)
        assert chosen.place.type == "cpu"
        # bfloat16 only where the processor multiplies in it
        assert chosen.half == bool(torch.cpu.get_capabilities().get("amx_bf16"))


def test_a_base_is_moved_whole_and_computes_where_it_lies(base: Path) -> None:
    """On `meta`, which refuses to mix with tensors of the CPU as CUDA does."""
    opened, _ = store.open_float(base, (1, 2))
    place = torch.device("meta")
    base_there = device.moved(opened, place)
    with Device(place=place, half=False).here():
        stream = base_there.new_stream(64)
        hidden = base_there.encode([1, 2, 3, 4], stream)
        logits = base_there.logits(hidden)
    assert hidden.device == logits.device == stream.keys.device == place
    assert logits.shape == (4, opened.config.vocab)
    assert base_there.rope.frequencies.device == place


def test_the_small_network_computes_where_it_lies(
    base: Path, sources: Path, tmp_path: Path
) -> None:
    session = _session(base, sources, tmp_path)
    place, config = torch.device("meta"), session.base.config
    parameters = {
        n: p.detach().to(place) for n, p in session.trainer(lambda s: None).parameters.items()
    }
    denoiser, embedding = _network_on(place, session, parameters)
    with Device(place=place, half=False).here():
        keys = torch.zeros(1, config.kv_heads, 20, config.head_dim)
        context = Context(
            keys=keys,
            values=keys,
            lengths=torch.zeros(5, dtype=torch.long),
            features=torch.zeros(5, 2, config.hidden),
            after_keys=keys,
            after_values=keys,
        )
        masked = torch.zeros(5, 4, dtype=torch.bool)
        rows = embedding.embedding(torch.zeros(20, dtype=torch.long)).view(5, 4, -1)
        logits = denoiser.logits(denoiser.hidden(rows, masked, context))
    assert logits.device == place
    assert logits.shape == (20, len(session.shortlist))


def _network_on(
    place: torch.device, session: Session, parameters: dict[str, torch.Tensor]
) -> tuple[Denoiser, Transformer]:
    opened, _ = store.open_float(Path(session.settings.base), session.config.depths)
    with place:
        head = FloatLinear(session.head_rows.to(place))
        made = denoiser_file.build(
            session.config, opened.config, parameters, session.shortlist.to(place), head
        )
    return made, device.moved(opened, place)


def _agreeing(document: Document) -> Document:
    """The document as if the base chose its text at some places; a random base seldom does."""
    choice = document.choice.clone()
    choice[10:60:3] = document.ids[11:61:3]
    return replace(document, choice=choice)


def test_half_precision_learns_too(base: Path, sources: Path, tmp_path: Path) -> None:
    """The branch that CUDA takes, run on the CPU."""
    session = _session(base, sources, tmp_path)
    documents = [_agreeing(session.document(n)) for n in range(2)]
    losses = {}
    for half in (False, True):
        session.device = Device(place=torch.device("cpu"), half=half)
        trainer = session.trainer(lambda line: None)
        trainer.generator.manual_seed(3)
        losses[half] = [trainer._step(documents) for _ in range(40)]
        assert all(p.dtype == torch.float32 for p in trainer.parameters.values())
        assert trainer._evaluated(documents, never).sites > 0
    assert losses[True] != losses[False]  # bfloat16 was used
    assert losses[True][0] == pytest.approx(losses[False][0], rel=2e-2)
    assert sum(losses[True][-8:]) < 0.9 * sum(losses[True][:8])


def test_memory_is_told_before_the_training(
    base: Path, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(_argv(base, sources, tmp_path / "out", "--steps=1")) == 0
    said = capsys.readouterr().err.splitlines()
    first_step = next(n for n, line in enumerate(said) if "held out: run" in line)
    assert any("memory: about" in line for line in said[:first_step])


def test_needs_grow_with_what_is_asked_for(base: Path, sources: Path, tmp_path: Path) -> None:
    session = _session(base, sources, tmp_path)
    shape = memory.Shape(length=128, sites=16, shortlist=300, keep_documents=100)
    few = memory.needs(session.config, session.base.config, shape, (1000, 50, 7))
    many = memory.needs(
        session.config, session.base.config, replace(shape, sites=32), (1000, 50, 7)
    )
    assert many.step == 2 * few.step
    assert (many.training, many.base, many.disk) == (few.training, few.base, few.disk)
    assert few.training == 50 * 16
    assert "TOO LITTLE" in many.line(1)
    assert "TOO LITTLE" not in many.line(many.total)
    # what is promised of the disk holds a document as it is really written
    document = session.document(0)
    document.save(tmp_path / "d.safetensors")
    one = memory.needs(
        session.config, session.base.config, replace(shape, keep_documents=1), (0, 0, 0)
    )
    written = (tmp_path / "d.safetensors").stat().st_size
    assert 0.4 * one.disk < written - 1200 <= one.disk
    with pytest.raises(BadRequest, match="GB"):
        memory.check_disk(tmp_path, 10**18)


def test_languages_are_drawn_by_their_weights() -> None:
    found = ListedTexts(
        [SourceText(language="python", text="p")] * 90 + [SourceText(language="go", text="g")] * 10
    )
    rng = random.Random(0)
    even = Picker(found, {"python": 1.0, "go": 1.0})
    drawn = [even.pick(rng) for _ in range(400)]
    assert 150 < drawn.count("g") < 250
    assert {Picker(found, {"go": 2.0}).pick(rng) for _ in range(50)} == {"g"}
    plain = [Picker(found, {}).pick(rng) for _ in range(400)]
    assert 15 < plain.count("g") < 80
    with pytest.raises(BadRequest, match="--mix"):
        Picker(found, {"rust": 1.0})
    assert texts.read_mix(["c=2", "go=0.5"]) == {"c": 2.0, "go": 0.5}


def test_the_manifest_says_what_was_learnt_from(base: Path, sources: Path, tmp_path: Path) -> None:
    session = _session(base, sources, tmp_path)
    about = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [(p["name"], p["files"]) for p in about] == [(sources.name, 14)]
    assert len(session.sources.train) + len(session.sources.valid) == 14

"""A masked-diffusion model from nothing: what it sees, that it learns, that the engine runs it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from engine import store
from engine.engine import Engine
from engine.kernels import reference
from engine.model.family import Family
from engine.native_runner import NativeRunner
from engine.request import BadRequest, InfillRequest
from engine.tokenizer import Tokenizer
from engine.training.corpus import manifest
from engine.training.corpus.shards import ShardWriter, fingerprint
from engine.training.device import CPU
from engine.training.interrupts import Stopped, never
from engine.training.native import command, holes, network, vocabulary
from engine.training.native.holes import CANVASES, Batch, Marks
from engine.training.native.network import Network, Shape
from engine.training.native.trainer import Options, Trainer
from tests.engine.tiny_base import make_folder

TEXT = "".join(f"def add_{n}(a, b):\n    total = a + b\n    return total\n\n\n" for n in range(12))
MARKS = Marks(end=0, mask=1, breaks=torch.tensor([False] * 5 + [True] + [False] * 44))


def windows(count: int, size: int) -> list[torch.Tensor]:
    """Ids 2 to 49, token 5 (a line's end) after every ninth."""
    source = random.Random(4)
    ids = [5 if n % 10 == 9 else source.choice([2, 3, 4, *range(6, 50)]) for n in range(size)]
    return [torch.tensor(ids) for _ in range(count)]


def test_a_canvas_holds_its_hole_and_end_tokens_behind_it() -> None:
    for seed in range(40):
        window = windows(1, 100)[0]
        batch = holes.draw([window], 200, MARKS, random.Random(seed), fully=0.5)
        shown, truth = batch.shown[0], batch.truth[0]
        assert bool(batch.open.any())
        assert torch.equal(shown == MARKS.mask, batch.open[0])
        assert torch.equal(shown[~batch.open[0]], truth[~batch.open[0]])
        said = truth[batch.real[0] & (truth != MARKS.end)]
        assert torch.equal(said, window)  # nothing is lost, doubled or moved


def test_a_canvas_masked_throughout_has_one_of_the_sizes() -> None:
    lengths = set()
    for seed in range(60):
        batch = holes.draw(windows(1, 100), 300, MARKS, random.Random(seed), fully=1.0)
        edges = torch.nn.functional.pad(batch.open[0].int(), (1, 1)).diff()
        starts, stops = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
        lengths |= set((stops - starts).tolist())
    sums = {a + b for a in CANVASES for b in CANVASES}  # two may touch
    assert set(CANVASES) <= lengths <= set(CANVASES) | sums | {n for n in lengths if n > 64}


def test_the_engine_computes_what_the_trained_network_computes(tmp_path: Path) -> None:
    torch.manual_seed(1)
    net = Network(Shape(vocab=300, hidden=128, layers=2, heads=2, kv_heads=2, inner=192))
    with torch.no_grad():  # as the file will hold them
        for parameter in net.parameters():
            parameter.copy_((parameter * 3).to(torch.bfloat16))
    network.save(net, tmp_path, end=0, mask=1)
    (tmp_path / "tokenizer.json").write_text(vocabulary.learn([TEXT], 300), encoding="utf-8")
    vocabulary.write_config(tmp_path)
    base, _ = store.open_float(tmp_path, ())
    assert isinstance(base.config.family, Family)
    assert (base.config.family.attention, base.config.family.mask_id) == ("bidirectional", 1)
    ids = torch.randint(0, 300, (40,))
    stream = base.new_stream(40)
    mine = base.forward(ids.tolist(), stream, start=0, visible=torch.full((40,), 40))
    normed = reference.rms_norm(mine, base.head.norm, base.head.eps)
    with torch.no_grad():
        assert torch.allclose(normed, net(ids[None])[0], atol=1e-4)
        again = network.load(tmp_path)
        assert torch.equal(again(ids[None]), net(ids[None]))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a base with its tokenizer, a corpus that it wrote)."""
    base = make_folder(Path(tmp_path_factory.mktemp("base")) / "tiny")
    tokenizer = Tokenizer.from_hub(base / "tokenizer.json")
    folder = Path(tmp_path_factory.mktemp("shards"))
    written = []
    for split, count in (("train", 30), ("held-out", 4)):
        writer = ShardWriter(folder, split, fingerprint(tokenizer))
        for n in range(count):
            writer.add(tokenizer.encode(TEXT.replace("total", f"total_{n}")), "python")
        writer.flush()
        written += [{"file": entry.file} for entry in writer.written]
    (folder / manifest.NAME).write_text(json.dumps({"shards": written}), encoding="utf-8")
    return base, folder


def argv(shards: tuple[Path, Path], out: Path, *more: str) -> list[str]:
    base, folder = shards
    sizes = [
        "--vocabulary=400",
        "--hidden=64",
        "--layers=2",
        "--inner=96",
        "--length=96",
        "--batch=8",
    ]
    return [f"--tokenizer={base}", f"--shards={folder}", f"--out={out}", *sizes, *more]


def test_it_learns_the_same_for_a_seed_and_the_engine_fills_holes_with_it(
    shards: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert command.main(argv(shards, one, "--steps=120")) == 0
    points = [json.loads(line) for line in (one / "curve.jsonl").read_text().splitlines()]
    assert points[-1]["loss"] < 3.5  # knowing nothing costs log 400, which is 6
    assert command.main(argv(shards, two, "--steps=120")) == 0
    first = (one / "model" / "model.safetensors").read_bytes()
    assert (two / "model" / "model.safetensors").read_bytes() == first
    base, tokenizer = store.open_float(one / "model", ())
    engine = Engine("tiny", NativeRunner(base, tokenizer, base.config.family))
    request = InfillRequest(
        prefix="def add_3(a, b):\n    total = ", suffix="\n    return total\n", max_tokens=8
    )
    result = engine.infill(request)
    assert result.finish_reason in ("stop", "length", "empty")
    assert "<|" not in result.text


def trainer(folder: Path) -> Trainer:
    torch.manual_seed(2)
    net = Network(Shape(vocab=50, hidden=64, layers=1, heads=1, kv_heads=1, inner=64))
    return Trainer(net, MARKS, Options(seconds=1, max_steps=12), CPU, folder)


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    def draw(rng: random.Random) -> Batch:
        return holes.draw(windows(2, 60), 90, MARKS, rng, fully=0.5)

    held_out = [draw(random.Random(9))]
    weights = []
    for name, stops in (("whole", []), ("parts", [3, 7])):
        folder = tmp_path / name
        (folder / "model").mkdir(parents=True)
        for at in stops:
            part = trainer(folder)
            with pytest.raises(Stopped):
                part.run(draw, held_out, lambda _: None, lambda: part.steps >= at)  # noqa: B023
            assert trainer(folder).steps == at
        last = trainer(folder)
        last.run(draw, held_out, lambda _: None, never)
        assert last.steps == 12
        weights.append([p.detach().clone() for p in last.network.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_what_is_missing_is_said(shards: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="--shards"):
        command.main([f"--out={tmp_path}"])
    with pytest.raises(BadRequest, match="holds no corpus"):
        command.main([f"--tokenizer={shards[0]}", f"--shards={tmp_path}", f"--out={tmp_path}"])
    for option in ("--hours=0", "--batch=0", "--hidden=100", "--vocabulary=70000"):
        with pytest.raises(BadRequest, match=option.split("=")[0]):
            command.main(argv(shards, tmp_path / "none", option))
    assert not (tmp_path / "none").exists()

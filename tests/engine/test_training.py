from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
import torch

from engine import store
from engine.model import denoiser_file
from engine.request import BadRequest
from engine.training import command, data, settings
from engine.training.corpus.licences import licence_of
from engine.training.data import Project
from engine.training.encode import Document, arrange
from engine.training.loop import Trainer
from engine.training.objective import document_agrees, draw, loss, predictions
from engine.training.session import Session
from engine.training.split import is_held_out
from tests.engine.tiny_base import make_folder

TEXT = "".join(f"def add_{n}(a, b):\n    total = a + b\n    return total\n\n\n" for n in range(12))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(Path(tmp_path_factory.mktemp("base")) / "tiny", layers=3)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for n in range(6):
        (folder / f"m{n}.py").write_text(TEXT.replace("total", f"total_{n}"))
    return folder


def _command(base: Path, corpus: Path, out: Path, seconds: float) -> list[str]:
    sizes = ["--layers=1", "--slots=3", "--shortlist=300", "--length=128", "--sites=16"]
    where = [f"--base={base}", "--data", str(corpus), "--out", str(out)]
    return [*where, *sizes, f"--hours={seconds / 3600}"]


def _session(base: Path, corpus: Path, out: Path, *more: str) -> Session:
    out.mkdir(exist_ok=True)
    return Session(settings.read([*_command(base, corpus, out, 3600), *more]))


def _trainer(session: Session) -> Trainer:
    return session.trainer(lambda line: None)


def _points(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]


def _steps(trainer: Trainer, documents: list[Document], count: int) -> list[float]:
    trainer.generator.manual_seed(3)
    return [trainer._step(documents) for _ in range(count)]


def _same(one: Trainer, other: Trainer) -> bool:
    return all(torch.equal(p, other.parameters[n]) for n, p in one.parameters.items())


def test_the_command_trains_and_goes_on(base: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command.main(_command(base, corpus, out, 1.0)) == 0
    made = out / "denoiser.safetensors"
    config = denoiser_file.load_config(made)
    assert (config.rows, config.layers, len(config.calibration)) == (4, 1, 3)
    opened, _ = store.open_float(base, config.depths)
    assert denoiser_file.load(made, opened).max_rows == 4
    first = _points(out)
    assert first[-1]["step"] >= 1
    assert first[-1]["sites"] > 0
    # the same command with more time goes on where the first ended
    assert command.main(_command(base, corpus, out, 2.5)) == 0
    more = _points(out)
    assert more[: len(first)] == first
    assert more[-1]["step"] > first[-1]["step"]
    assert more[-1]["seconds"] >= first[-1]["seconds"]
    manifest = json.loads((out / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest] == ["corpus"]


def test_the_loss_falls_on_what_repeats(base: Path, corpus: Path, tmp_path: Path) -> None:
    session = _session(base, corpus, tmp_path / "out")
    trainer = _trainer(session)
    documents = [_agreeing(session.document(n)) for n in range(3)]
    losses = _steps(trainer, documents, 60)
    assert sum(losses[-8:]) < 0.85 * sum(losses[:8])


def test_only_the_small_network_learns(base: Path, corpus: Path, tmp_path: Path) -> None:
    session = _session(base, corpus, tmp_path / "out")
    trainer = _trainer(session)
    head, embedding = session.head_rows.clone(), session.base.embedding.weight.clone()
    start = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    _steps(trainer, [_agreeing(session.document(0))], 3)
    assert torch.equal(session.head_rows, head)
    assert torch.equal(session.base.embedding.weight, embedding)
    changed = [n for n, p in trainer.parameters.items() if not torch.equal(p, start[n])]
    assert {"slots", "mask", "layers.0.qkv", "layers.0.down", "norm"} <= set(changed)


def test_a_killed_training_goes_on_from_its_checkpoint(
    base: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    session = _session(base, corpus, out)
    first = _trainer(session)
    documents = [_agreeing(session.document(n)) for n in range(2)]
    _steps(first, documents, 3)
    first.elapsed = 12.5
    first.checkpoint()
    kept = {name: p.detach().clone() for name, p in first.parameters.items()}
    expected = _steps(first, documents, 2)  # lost in the kill
    second = _trainer(_session(base, corpus, out))
    assert (second.steps, second.elapsed) == (3, 12.5)
    assert all(torch.equal(p, kept[n]) for n, p in second.parameters.items())
    assert _steps(second, documents, 2) == pytest.approx(expected, rel=1e-4)
    for name, parameter in second.parameters.items():  # the optimiser's memory went on, too
        torch.testing.assert_close(parameter, first.parameters[name], atol=1e-5, rtol=1e-3)


def test_a_checkpoint_of_another_shape_is_refused(base: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _trainer(_session(base, corpus, out)).checkpoint()
    with pytest.raises(BadRequest, match="another shape"):
        command.main([*_command(base, corpus, out, 1.0), "--slots=5"])


@pytest.mark.parametrize(
    "wrong",
    [
        "--hours=0",
        "--slots=0",
        "--layers=0",
        "--sites=0",
        "--length=64",
        "--layers=9",
        "--inner=9999",
        "--inner=-1",
        "--steps=-1",
        "--keep=0",
        "--mix=cobol=3",
        "--mix=go",
        "--mix=go=-1",
        "--mix=go=1",
        "--shards=nowhere",
        "--site=nowhere",
    ],
)
def test_options_that_cannot_work(base: Path, corpus: Path, tmp_path: Path, wrong: str) -> None:
    with pytest.raises(BadRequest):
        command.main([*_command(base, corpus, tmp_path / "out", 1.0), wrong])


@pytest.mark.parametrize("files", [0, 3])
def test_too_little_to_train_on(base: Path, tmp_path: Path, files: int) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for n in range(files):
        (folder / f"m{n}.py").write_text("中" * 150)  # enough bytes, too few characters
    with pytest.raises(BadRequest, match="--data"):
        command.main(_command(base, folder, tmp_path / "out", 1.0))


def _agreeing(document: Document) -> Document:
    """The document as if the base chose its text at some places; a random base seldom does."""
    choice = document.choice.clone()
    choice[10:60:3] = document.ids[11:61:3]
    return replace(document, choice=choice)


def _document(session: Session) -> Document:
    return session.document(1)


def test_canvases_stand_where_the_base_agrees(base: Path, corpus: Path, tmp_path: Path) -> None:
    document = _agreeing(_document(_session(base, corpus, tmp_path / "out")))
    batch = draw(document, 4, 9, 0.5, torch.Generator().manual_seed(1))
    assert batch is not None
    assert len(batch.positions) <= 9
    assert bool(document_agrees(document)[batch.positions].all())
    for site, position in enumerate(batch.positions.tolist()):
        assert torch.equal(batch.row_ids[site], document.ids[position + 1 : position + 5].long())
    assert not bool(batch.masked[:, 0].any())
    assert batch.context.lengths.tolist() == [p + 1 for p in batch.positions.tolist()]
    same = draw(document, 4, 9, 0.0, torch.Generator().manual_seed(1))
    assert same is not None
    assert bool(same.masked[:, 1:].all())


def test_the_loss_is_least_when_the_base_is_repeated(
    base: Path, corpus: Path, tmp_path: Path
) -> None:
    session = _session(base, corpus, tmp_path / "out")
    document = _document(session)
    document.choice[:-1] = document.ids[1:]
    batch = draw(document, 4, 5, 0.0, torch.Generator().manual_seed(1))
    assert batch is not None
    logits, flat = predictions(_trainer(session).denoiser, session.base.embedding, batch)
    assert logits.shape == (15, len(session.shortlist))
    at = batch.positions[flat // 4] + flat % 4
    perfect = torch.full_like(logits, -30.0)
    perfect.scatter_(1, document.top_ids[at].long(), document.top_p[at].float().log())
    best = loss(perfect, flat, batch, document, 0.3)
    assert float(best) < float(loss(logits.detach(), flat, batch, document, 0.3))
    entropy = document.top_p[at].float()
    entropy = entropy / entropy.sum(1, keepdim=True)
    assert float(best) == pytest.approx(float(-(entropy * entropy.log()).sum(1).mean()), abs=1e-2)


def test_documents_survive_the_disk(base: Path, corpus: Path, tmp_path: Path) -> None:
    document = _document(_session(base, corpus, tmp_path / "out"))
    document.save(tmp_path / "d.safetensors")
    again = Document.load(tmp_path / "d.safetensors")
    assert all(
        torch.equal(getattr(document, name), getattr(again, name)) for name in Document.__slots__
    )


def test_holes_are_arranged_as_the_base_expects(base: Path, corpus: Path, tmp_path: Path) -> None:
    session = _session(base, corpus, tmp_path / "out")
    before, between, middle = session.style.marker_ids
    holes = 0
    for seed in range(40):
        length = 1500 if seed % 2 else 400
        found = arrange(session.tokenizer, session.style, TEXT, length, random.Random(seed))
        assert found is not None
        ids, after = found
        assert after == []
        assert len(ids) <= length
        if before in ids and len(ids) == length:
            assert ids[-1] != session.style.end_ids[0]  # cut short: it does not end here
        elif before in ids:
            holes += 1
            first, second = ids.index(between), ids.index(middle)
            assert ids[0] == before
            assert ids[-1] == session.style.end_ids[0]
            prefix, inside = ids[1:first], ids[second + 1 : -1]
            joined = session.tokenizer.spell(prefix) + session.tokenizer.spell(inside)
            assert joined.decode("utf-8", "ignore") in TEXT
    assert holes > 10
    assert arrange(session.tokenizer, session.style, "short", 256, random.Random(0)) is None


class _Package(metadata.Distribution):
    """A distribution with only the metadata given."""

    def __init__(self, **fields: str | list[str]) -> None:
        self._message = Message()
        for key, value in fields.items():
            for each in [value] if isinstance(value, str) else value:
                self._message[key.replace("_", "-")] = each

    @property
    def metadata(self) -> Message:  # type: ignore[override]
        return self._message

    def read_text(self, filename: str) -> None:
        return None

    def locate_file(self, path: object) -> Path:
        return Path(str(path))


@pytest.mark.parametrize(
    ("fields", "permissive"),
    [
        ({"License_Expression": "MIT"}, True),
        ({"License_Expression": "Apache-2.0 OR BSD-3-Clause"}, True),
        ({"License": "Simplified BSD"}, True),
        ({"License": "BSD 3-Clause, see deployment notes"}, True),
        ({"Classifier": ["License :: OSI Approved :: MIT License", "Topic :: X"]}, True),
        ({"Classifier": ["License :: OSI Approved :: ISC License (ISCL)"]}, True),
        ({"License_Expression": "GPL-3.0-or-later"}, False),
        ({"License_Expression": "MIT AND LGPL-2.1-only"}, False),
        ({"License": "AGPLv3"}, False),
        ({"License_Expression": "MPL-2.0"}, False),
        (
            {"Classifier": ["License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)"]},
            False,
        ),
        ({"License": "Proprietary, based on MIT code"}, False),
        ({"License": "GNU General Public License"}, False),
        ({"License": "Limited use"}, False),
        ({"License": "UNLICENSED"}, False),
        ({"License": "Business Source License 1.1, later MIT"}, False),
        ({"License_Expression": "0BSD"}, True),
        ({"License": "Apache 2.0 with Commons Clause"}, False),
        ({"Classifier": ["Topic :: MIT"]}, False),
        ({}, False),
        # what is said most exactly counts
        ({"License_Expression": "GPL-3.0-only", "License": "MIT"}, False),
    ],
)
def test_licences(fields: dict[str, str | list[str]], permissive: bool) -> None:
    assert (licence_of(_Package(**fields)) is not None) is permissive


def test_the_split_is_by_project_and_stable() -> None:
    names = [f"project-{n}" for n in range(600)]
    projects = [Project(name=n, version="1", licence="MIT", files=()) for n in names]
    held = [p.name for p in projects if p.held_out]
    assert 25 < len(held) < 80
    assert all(is_held_out(name) for name in held)
    again = [Project(name=n, version="2", licence="BSD", files=()) for n in names]
    assert [p.name for p in again if p.held_out] == held


@pytest.mark.parametrize("held_out", [True, False])
def test_one_folder_is_split_whatever_it_is_called(
    base: Path, corpus: Path, tmp_path: Path, held_out: bool
) -> None:
    name = next(
        n
        for n in (f"code-{i}" for i in range(100))
        if Project(name=n, version="", licence="own", files=()).held_out == held_out
    )
    folder = corpus.rename(tmp_path / name)
    session = _session(base, folder, tmp_path / "out")
    train, valid = list(session.sources.train), list(session.sources.valid)
    assert train
    assert valid
    assert not set(train) & set(valid)


def test_benchmark_functions_are_left_out(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl.gz"
    with gzip.open(tasks, "wt", encoding="utf-8") as lines:
        for name in ("has_close_elements", "truncate_number"):
            lines.write(json.dumps({"task_id": name, "entry_point": name}) + "\n")
    texts = {
        "own.py": "def close():\n    return 1\n",
        "leak.py": "def has_close_elements(numbers):\n    return 2\n",
        "inner.py": "class A:\n    async def truncate_number(self):\n        return 3\n",
        "calls.py": "x = has_close_elements([])\n",
        "latin.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.py").write_bytes("é".encode("latin-1"))
    files = tuple(tmp_path / name for name in texts)
    project = Project(name="p", version="1", licence="MIT", files=files)
    found = [text.text for _, text in data.read_texts([project], [tasks])]
    assert found == [texts["own.py"], texts["calls.py"]]
    assert len(list(data.read_texts([project]))) == 4


def test_vendored_tiny_and_generated_files_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "own"
    for name in ("a.py", "_vendor/b.py", "x_pb2.py", "node_modules/c.py", "d.txt", "sub/e.ts"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n" * 100)
    (root / "small.py").write_text("x = 1\n")
    (root / "huge.py").write_text("x = 1\n" * 30_000)
    found = data.folder_project(root)
    assert [p.name for p in found.files] == ["a.py", "e.ts"]

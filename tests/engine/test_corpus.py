"""The corpus builder as a whole: packages in, shards and manifest out, and a training over them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import store
from engine.request import BadRequest, DownloadError
from engine.tokenizer import Tokenizer
from engine.training import command as training
from engine.training import settings
from engine.training.corpus import archives, command, fetch, packages
from engine.training.corpus.build import Split
from engine.training.corpus.languages import LANGUAGES
from engine.training.corpus.licences import is_permissive
from engine.training.corpus.manifest import Corpus, LanguageCount
from engine.training.corpus.packages import Package
from engine.training.corpus.shards import ShardTexts, ShardWriter, fingerprint
from engine.training.session import Session
from engine.training.split import is_held_out
from engine.weights import open_checkpoint
from tests.engine.tiny_base import make_folder

HELD = next(f"held{n}" for n in range(99) if is_held_out(f"held{n}"))
SEEN = [name for n in range(20) if not is_held_out(name := f"seen{n}")]


def python(seed: int) -> str:
    """A file unlike that of any other seed."""
    names = [f"{a}_{(seed * 7919 + n * 104729) % 99991}" for n, a in enumerate("abcdefghijkl" * 3)]
    return "".join(f"def {n}(value, {n}_limit):\n    return value + {n}_limit\n\n" for n in names)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(Path(tmp_path_factory.mktemp("base")) / "tiny", layers=3)


@pytest.fixture(scope="module")
def tokenizer(base: Path) -> Tokenizer:
    return store.load_tokenizer(open_checkpoint(base))


def wheel(folder: Path, name: str, licence: str, files: dict[str, str]) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        about = (
            f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: {licence}\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/METADATA", about)
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path


def tarball(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for inside, text in files.items():
            member = tarfile.TarInfo(inside)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    folder = tmp_path / "downloads"
    folder.mkdir()
    for n, name in enumerate([HELD, *SEEN[:3]]):
        wheel(folder, name, "MIT", {f"{name}/m{k}.py": python(10 * n + k) for k in range(3)})
    copied = {"copy/same.py": python(0).replace("limit", "bound", 2)}  # of the held-out project
    wheel(folder, SEEN[4], "BSD-3-Clause", copied | {"copy/own.py": python(77)})
    wheel(folder, SEEN[5], "GPL-3.0-only", {"gpl/m.py": python(88)})
    package = {"name": "@scope/part", "version": "2.0.0", "license": "ISC"}
    script = "".join(f"export const f{n} = (a, b) => {{ return a + b * {n} }}\n" for n in range(30))
    tarball(
        folder / "scope-part-2.0.0.tgz",
        {
            "package/package.json": json.dumps(package),
            "package/src/a.ts": script,
            "package/src/a.d.ts": script,
            "package/dist/a.js": script,
            "package/node_modules/x/a.js": script,
        },
    )
    return folder


def build(base: Path, data: Path, out: Path, *more: str) -> dict[str, object]:
    argv = ["build", f"--base={base}", "--no-library", "--data", str(data), f"--out={out}", *more]
    assert command.main(argv) == 0
    found: dict[str, object] = json.loads((out / "corpus.json").read_text())
    return found


def texts(out: Path, split: str, tokenizer: Tokenizer) -> list[str]:
    return list(ShardTexts(out.glob(f"{split}-*.safetensors"), tokenizer))


def test_packages_become_shards(
    base: Path, downloads: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    out = tmp_path / "out"
    about = build(base, downloads, out)
    held, train = texts(out, "held-out", tokenizer), texts(out, "train", tokenizer)
    # the only TypeScript project is split by directory, and its one directory is not held out
    assert set(held) == {python(k) for k in range(3)}
    assert {t for t in train if t.startswith("def")} == {
        *(python(10 * n + k) for n in (1, 2, 3) for k in range(3)),
        python(77),
    }
    assert [t[:12] for t in train if not t.startswith("def")] == ["export const"]
    assert about["dropped"] == {"duplicate": 1, "declarations": 1, "generated": 1, "vendored": 1}
    assert about["refused"] == [
        {"registry": "pypi", "name": SEEN[5], "version": "1.0", "licence": "GPL-3.0-only"}
    ]
    rows = {p["name"]: p for p in about["packages"]}  # type: ignore[attr-defined]
    assert rows[HELD]["held_out"]
    assert not rows["@scope/part"]["held_out"]
    assert (rows["@scope/part"]["licence"], rows["@scope/part"]["version"]) == ("ISC", "2.0.0")
    assert rows[SEEN[0]]["languages"]["python"]["files"] == 3
    languages = about["languages"]
    tokens = sum(len(tokenizer.encode(t)) for t in [*held, *train])
    assert sum(row["tokens"] for row in languages.values()) == tokens  # type: ignore[attr-defined]


def test_a_corpus_is_the_same_twice(base: Path, downloads: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    build(base, downloads, one)
    build(base, downloads.rename(tmp_path / "elsewhere"), two)
    assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in two.iterdir())
    assert all(p.read_bytes() == (two / p.name).read_bytes() for p in one.iterdir())


def test_a_training_reads_the_shards(
    base: Path, downloads: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    build(base, downloads, corpus)
    argv = [f"--base={base}", f"--shards={corpus}", f"--out={out}", "--layers=1", "--slots=3"]
    argv += ["--shortlist=300", "--length=128", "--sites=16", "--steps=2", "--mix", "python=1"]
    assert training.main(argv) == 0
    assert (out / "denoiser.safetensors").is_file()
    assert json.loads((out / "manifest.json").read_text())["refused"][0]["name"] == SEEN[5]
    session = Session(settings.read(argv))
    assert sorted(session.sources.valid) == sorted(texts(corpus, "held-out", tokenizer))
    ids = session.document(5).ids.tolist()
    markers = set(session.style.marker_ids) | set(session.style.end_ids)
    spelled = tokenizer.decode(i for i in ids if i not in markers)
    assert spelled[:20] in "".join(session.sources.train)


def test_shards_of_another_tokenizer_are_refused(
    base: Path, downloads: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    writer = ShardWriter(corpus, "train", "another")
    writer.add([1, 2, 3], "go")
    writer.flush()
    manifest = Corpus(tokenizer="another", packages=(), refused=(), shards=tuple(writer.written))
    manifest.save(corpus)
    with pytest.raises(BadRequest, match="another tokenizer"):
        training.main([f"--base={base}", f"--shards={corpus}", f"--out={tmp_path / 'o'}"])
    (corpus / "train-00000.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadRequest, match="not a token shard"):
        training.main([f"--base={base}", f"--shards={corpus}", f"--out={tmp_path / 'o'}"])


def test_shards_stay_under_their_size(tmp_path: Path, tokenizer: Tokenizer) -> None:
    made_by, most = fingerprint(tokenizer), 12_000
    writer = ShardWriter(tmp_path, "train", made_by, most)
    documents = [tokenizer.encode(python(n))[: 50 + 90 * n] for n in range(12)]
    documents.append(tokenizer.encode(python(99)) * 40)  # more than a shard can hold: cut
    written = [writer.add(ids, LANGUAGES[n % 8]) for n, ids in enumerate(documents)]
    writer.flush()
    assert len(writer.written) > 2
    assert all((tmp_path / s.file).stat().st_size <= most for s in writer.written)
    assert written[:-1] == [len(ids) for ids in documents[:-1]]
    assert 0 < written[-1] < len(documents[-1])
    found = ShardTexts(tmp_path.glob("*.safetensors"), tokenizer)
    assert list(found)[:-1] == [tokenizer.decode(ids) for ids in documents[:-1]]
    assert found.languages == [LANGUAGES[n % 8] for n in range(13)]
    assert sum(s.tokens for s in writer.written) == sum(written)
    with pytest.raises(BadRequest):
        ShardWriter(tmp_path, "train", made_by, 100)


def test_a_package_gives_no_more_than_its_limit(
    base: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    files = {f"p/m{n}.py": python(n) for n in range(30)}
    wheel(folder, SEEN[0], "MIT", files)
    wheel(folder, HELD, "MIT", {"q/m.py": python(99)})
    limit = 4 * len(python(0)) + 100
    about = build(base, folder, tmp_path / "out", f"--package-limit={limit / 1e6}")
    assert about["dropped"] == {"package limit": 26}
    assert len(texts(tmp_path / "out", "train", tokenizer)) == 4


def _package(name: str, *files: str, registry: str = "pypi") -> Package:
    return Package(
        registry=registry, name=name, version="1", licence="MIT", names=files, read=lambda: iter(())
    )


def test_the_split_is_by_project_and_leaves_no_language_without() -> None:
    go = [_package(name, *(f"f{k}.go" for k in range(n + 1))) for n, name in enumerate(SEEN[:4])]
    rust = _package(SEEN[7], *(f"d{n}/lib.rs" for n in range(40)))
    scoped = [_package(f"@s/{n}", "a.ts", registry="npm") for n in range(3)]
    other = _package("other", "a.ts", registry="npm")
    split = Split([*go, rust, *scoped, other], frozenset(LANGUAGES))
    held = [p.name for p in go if split.is_held_out(p, "go", "f0.go")]
    assert len(held) == 1
    assert held != [go[-1].name]  # never the largest
    # one project only: by directory, never all of it, and never its only one
    directories = [split.is_held_out(rust, "rust", name) for name in rust.names]
    assert 0 < sum(directories) < 20
    for n in range(15):
        alone = _package(f"alone{n}", "src/a.c", "src/b.c")
        assert not Split([alone], frozenset(LANGUAGES)).is_held_out(alone, "c", "src/a.c")
    # a scope is one project
    assert len({split.is_held_out(p, "typescript", "a.ts") for p in scoped}) == 1
    assert sorted([*go, *scoped], key=split.order)[0].project in {*held, "@s"}


def test_what_a_folder_is(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "web").mkdir(parents=True)
    (own / "web" / "package.json").write_text('{"name": "web"}')
    (own / "web" / "a.ts").write_text("x")
    (own / "main.py").write_text("x")
    wheel(own, "x", "MIT", {"x.py": "y"})
    (found,) = packages.in_folder(own)
    assert (found.registry, found.licence) == ("folder", packages.OWN)
    assert found.names == ("main.py", "web/a.ts")
    modules = tmp_path / "node_modules"
    for name in ("@s/a", "b"):
        (modules / name).mkdir(parents=True)
        about = {"name": name, "version": "3", "licenses": [{"type": "MIT"}, {"type": "BSD"}]}
        (modules / name / "package.json").write_text(json.dumps(about))
        (modules / name / "i.js").write_text("x")
    (modules / ".bin").mkdir()
    assert [(p.name, p.licence) for p in packages.in_folder(modules)] == [
        ("@s/a", "MIT AND BSD"),
        ("b", "MIT AND BSD"),
    ]
    with pytest.raises(BadRequest):
        list(packages.in_folder(tmp_path / "none"))
    with pytest.raises(BadRequest):
        list(packages.installed(tmp_path / "none"))


def test_archives_say_what_they_are(tmp_path: Path) -> None:
    crate = '[package]\nname = "thing"\nversion = "0.3.0"\nlicense = "MIT OR Apache-2.0"\n'
    inner = {"thing-0.3.0/Cargo.toml": crate, "thing-0.3.0/src/lib.rs": "fn a() {}"}
    found = archives.describe(tarball(tmp_path / "thing-0.3.0.crate", inner))
    assert (found.registry, found.name, found.licence) == ("crates", "thing", "MIT OR Apache-2.0")
    assert found.names == ("thing-0.3.0/src/lib.rs",)
    core = "Metadata-Version: 2.1\nName: sd\nVersion: 2\nLicense: BSD\n"
    sdist = {
        "sd-2/PKG-INFO": core,
        "sd-2/sd.egg-info/PKG-INFO": "Name: wrong\n",
        "sd-2/src/m.c": "int a;",
    }
    found = archives.describe(tarball(tmp_path / "sd-2.tar.gz", sdist))
    assert (found.registry, found.name, found.version, found.licence) == ("pypi", "sd", "2", "BSD")
    (tmp_path / "bad.whl").write_bytes(b"PK no")
    (tmp_path / "bad.tgz").write_bytes(b"\x1f\x8b no")
    assert archives.describe(tmp_path / "bad.whl").registry == "damaged"
    assert archives.describe(tmp_path / "bad.tgz").licence == ""
    read = dict(archives.read(tmp_path / "sd-2.tar.gz", frozenset({"sd-2/src/m.c"}), 3))
    assert read == {"sd-2/src/m.c": None}  # too large


def test_one_version_of_a_package() -> None:
    old = Package(
        registry="pypi", name="Some_Thing", version="1.9", licence="MIT", names=(), read=iter
    )
    new = Package(
        registry="pypi", name="some-thing", version="1.10", licence="MIT", names=(), read=iter
    )
    npm = Package(
        registry="npm", name="some-thing", version="1.0", licence="MIT", names=(), read=iter
    )
    assert packages.newest_of_each([old, new, npm]) == [npm, new]
    assert packages.newest_of_each([new, old]) == [new]


def test_installed_packages_and_the_library() -> None:
    library = packages.standard_library()
    assert "argparse.py" in library.names
    assert not any("site-packages" in name for name in library.names)
    site = Path(torch.__file__).parents[1]
    found = {p.name: p for p in packages.installed(site)}
    assert found["starlette"].licence.startswith("BSD")
    name, data = next(found["starlette"].read())
    assert name.endswith(".py")
    assert data


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["build", "--no-library", "--out=x"], "--data"),
        (["build", "--out=x", "--data", "nowhere"], "nowhere"),
        (["build", "--out=x", "--package-limit=-1"], "negative"),
    ],
)
def test_builds_that_cannot_work(
    argv: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadRequest, match=said):
        command.main(argv)


def test_a_corpus_is_not_overwritten(base: Path, downloads: Path, tmp_path: Path) -> None:
    build(base, downloads, tmp_path / "out")
    with pytest.raises(BadRequest, match="already"):
        build(base, downloads, tmp_path / "out")


def test_counts_add_up() -> None:
    one = LanguageCount().plus(10, 40, True).plus(5, 20, False)
    assert one == LanguageCount(files=2, tokens=15, bytes=60, held_out_tokens=10)
    assert one.with_all(one) == LanguageCount(files=4, tokens=30, bytes=120, held_out_tokens=20)


def test_our_list_is_well_formed() -> None:
    listed = fetch.read_list(fetch.OURS)
    assert {language for p in listed for language in p.languages} == set(LANGUAGES)
    assert len({p.label for p in listed}) == len(listed)
    assert [p.name for p in listed if not is_permissive(p.licence)] == []
    assert "://" not in fetch.OURS.read_text()  # no hosts


@pytest.mark.parametrize(
    "line",
    [
        'registry = "gems"\nname = "a"\nversion = "1"',
        'registry = "npm"\nname = "--registry=x"\nversion = "1"',
        'registry = "npm"\nname = "../a"\nversion = "1"',
        'registry = "pypi"\nname = "a"\nversion = "1 @ x"',
        'registry = "pypi"\nname = "a"',
    ],
)
def test_lists_that_could_do_harm_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "list.toml"
    path.write_text(f'[[package]]\n{line}\nlanguages = ["go"]\n')
    with pytest.raises(BadRequest, match="not a list"):
        fetch.read_list(path)


def test_fetching_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.toml"
    path.write_text(
        "".join(
            f'[[package]]\nregistry = "{registry}"\nname = "{name}"\nversion = "1"\n'
            f'languages = ["{language}"]\n'
            for registry, name, language in (
                ("npm", "@s/a", "go"),
                ("pypi", "b", "go"),
                ("npm", "c", "rust"),
            )
        )
    )
    ran: list[list[str]] = []
    fails = {"b==1"}

    def run(arguments: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(arguments)
        failed = arguments[-1] in fails
        return subprocess.CompletedProcess(arguments, int(failed), "", "ERROR: no such version\n")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/bin/{name}")
    said: list[str] = []
    wanted = fetch.FetchOptions(to=tmp_path / "to", source=path, languages=frozenset({"go"}))
    assert fetch.run(wanted, said.append) == 1
    assert [arguments[-1] for arguments in ran] == ["@s/a@1", "b==1"]
    assert "--ignore-scripts" in ran[0]
    assert ran[1][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--only-binary=:all:" in ran[1]
    assert any("no such version" in line for line in said)
    fails.clear()
    assert fetch.run(wanted, said.append) == 0
    assert [arguments[-1] for arguments in ran[2:]] == ["b==1"]
    monkeypatch.setattr(fetch.shutil, "which", lambda name: None)
    with pytest.raises(DownloadError, match="npm is not installed"):
        fetch.download(fetch.read_list(path)[0], tmp_path)


def test_source_distributions_only_where_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "list.toml"
    path.write_text(
        '[[package]]\nregistry = "pypi"\nname = "a"\nversion = "1"\nsdist = true\n'
        'languages = ["rust"]\n'
    )
    ran: list[list[str]] = []

    def run(arguments: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(arguments)
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    said: list[str] = []
    wanted = fetch.FetchOptions(to=tmp_path / "to", source=path, languages=frozenset({"rust"}))
    assert fetch.run(wanted, said.append) == 0
    assert ran == []
    assert "--sdists" in said[0]
    assert fetch.run(replace(wanted, sdists=True), said.append) == 0
    assert "--no-binary=a" in ran[0]

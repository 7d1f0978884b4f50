"""The pipeline: packages in, token shards and a manifest out; streaming, one package at a time.

Held-out projects come first, so that what a training project shares with them leaves the training
side. The same packages give the same shards, whatever the folders are called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.credentials import holds_secret
from engine.tokenizer import Tokenizer
from engine.training.corpus import filters
from engine.training.corpus.benchmarks import Benchmarks
from engine.training.corpus.duplicates import NearDuplicates
from engine.training.corpus.languages import language_of, refined
from engine.training.corpus.licences import is_permissive
from engine.training.corpus.manifest import Corpus, LanguageCount, PackageEntry
from engine.training.corpus.packages import OWN, Package
from engine.training.corpus.shards import MAX_BYTES, ShardWriter, fingerprint
from engine.training.corpus.words import Hashes, Words
from engine.training.split import is_held_out, rank

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """`package_bytes`: how much text of one language one package may give (0: all of it)."""

    out: Path
    languages: frozenset[str]
    exclude: tuple[Path, ...] = ()
    package_bytes: int = 8_000_000
    shard_bytes: int = MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file that its own text does not rule out."""

    path: str
    language: str
    text: str
    words: Hashes


class Builder:
    """Holds what the stages remember: words, duplicates, benchmark runs, open shards."""

    def __init__(self, options: BuildOptions, tokenizer: Tokenizer) -> None:
        self.options, self.tokenizer = options, tokenizer
        self.words = Words()
        self.benchmarks = Benchmarks(options.exclude, self.words)
        self.duplicates = NearDuplicates()
        made_by = fingerprint(tokenizer)
        self.writers = {
            held_out: ShardWriter(options.out, split, made_by, options.shard_bytes)
            for held_out, split in ((True, "held-out"), (False, "train"))
        }

    def build(self, packages: Sequence[Package], say: Say) -> Corpus:
        """Judge and pack all packages; writes shards, returns what the manifest tells."""
        allowed: list[Package] = []
        refused: list[Package] = []
        for package in packages:
            fine = package.licence == OWN or is_permissive(package.licence)
            (allowed if fine else refused).append(package)
        split = Split(allowed, self.options.languages)
        entries = []
        for n, package in enumerate(sorted(allowed, key=split.order)):
            entries.append(self._pack(package, split))
            if n % 20 == 19:
                say(
                    f"{n + 1} of {len(allowed)} packages, {sum(e.tokens for e in entries):,} tokens"
                )
        for writer in self.writers.values():
            writer.flush()
        return Corpus(
            tokenizer=self.writers[True].tokenizer,
            packages=tuple(sorted(entries, key=lambda e: (e.registry, e.name.lower()))),
            refused=tuple((p.registry, p.name, p.version, p.licence) for p in refused),
            shards=tuple(s for writer in self.writers.values() for s in writer.written),
        )

    def _pack(self, package: Package, split: Split) -> PackageEntry:
        dropped: Counter[str] = Counter()
        kept: dict[str, LanguageCount] = {}
        sizes: Counter[str] = Counter()
        most = self.options.package_bytes
        held_files = 0
        # by hash, so that a limit takes a fair sample
        for file in sorted(self._judged(package, dropped), key=lambda f: rank(f.path)):
            if most and sizes[file.language] + len(file.text) > most:
                dropped["package limit"] += 1
                continue
            if self.duplicates.seen(file.words):
                dropped["duplicate"] += 1
                continue
            ids = self.tokenizer.encode(file.text)
            held_out = split.is_held_out(package, file.language, file.path)
            tokens = self.writers[held_out].add(ids, file.language)
            sizes[file.language] += len(file.text)
            held_files += held_out
            kept[file.language] = kept.get(file.language, LanguageCount()).plus(
                tokens, len(file.text.encode("utf-8")), held_out
            )
        return PackageEntry(
            registry=package.registry,
            name=package.name,
            version=package.version,
            licence=package.licence,
            held_out=held_files > 0,
            languages=dict(sorted(kept.items())),
            dropped=dict(sorted(dropped.items())),
        )

    def _judged(self, package: Package, dropped: Counter[str]) -> Iterator[_File]:
        """The files that pass every test of their own; counts the others by reason."""
        for path, data in package.read():
            language = language_of(path)
            if language is None:
                continue
            judged = self._judge(path, data, language)
            if isinstance(judged, str):
                dropped[judged] += 1
            elif judged.language in self.options.languages:
                yield judged

    def _judge(self, path: str, data: bytes | None, language: str) -> _File | str:
        """A file, or the reason it is dropped for; the cheap tests first."""
        reason = filters.reason_by_name(path)
        if reason or data is None:
            return reason or "size"
        if reason := filters.reason_by_size(len(data)):
            return reason
        text = _decoded(data)
        if text is None or self.tokenizer.clean(text) != text:
            return "encoding"
        if reason := filters.reason_by_text(text):
            return reason
        if holds_secret(text):
            return "secret"
        language = refined(language, text)
        if self.benchmarks.defines(language, text):
            return "benchmark name"
        words = self.words(text)
        if self.benchmarks.overlaps(words):
            return "benchmark overlap"
        return _File(path=path, language=language, text=text, words=words)


class Split:
    """By project: one in twelve is held out, by its name. A language that would have none gets its
    lowest-ranked project that is not its largest; a language in one project only is split by
    directory, in the same way."""

    def __init__(self, packages: Sequence[Package], languages: frozenset[str]) -> None:
        sizes: dict[str, Counter[str]] = {language: Counter() for language in languages}
        directories: dict[str, Counter[str]] = {language: Counter() for language in languages}
        for package in packages:
            for name in package.names:
                language = language_of(name)
                if language in sizes and not filters.reason_by_name(name):
                    sizes[language][package.project] += 1
                    directories[language][_directory(package, name)] += 1
        self._single = {n for n, found in sizes.items() if len(found) == 1}
        self._held_out: set[str] = set()
        for language, found in sizes.items():
            self._held_out |= _some(directories[language] if language in self._single else found)

    def order(self, package: Package) -> tuple[bool, str]:
        """Held-out projects first."""
        return package.project not in self._held_out, package.identity

    def is_held_out(self, package: Package, language: str, path: str) -> bool:
        """Where one file of a package goes."""
        if language in self._single:
            return _directory(package, path) in self._held_out
        return package.project in self._held_out


def _some(sizes: Counter[str]) -> set[str]:
    """One in twelve of these names; at least one but never the largest, if there are two."""
    if len(sizes) < 2:
        return set()
    largest = max(sizes, key=lambda name: (sizes[name], rank(name)))
    held_out = {name for name in sizes if is_held_out(name)}
    return held_out or {min((name for name in sizes if name != largest), key=rank)}


def _directory(package: Package, path: str) -> str:
    return f"{package.name}/{PurePosixPath(path).parent.as_posix()}"


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        return None

"""What a corpus was made of, as JSON that is committed where the corpus is not."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from engine.training.corpus.shards import FORMAT, ShardEntry

NAME = "corpus.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageCount:
    """Files, tokens and bytes, and how many of the tokens are held out."""

    files: int = 0
    tokens: int = 0
    bytes: int = 0
    held_out_tokens: int = 0

    def plus(self, tokens: int, size: int, held_out: bool) -> LanguageCount:
        """This count with one more file."""
        return replace(
            self,
            files=self.files + 1,
            tokens=self.tokens + tokens,
            bytes=self.bytes + size,
            held_out_tokens=self.held_out_tokens + (tokens if held_out else 0),
        )

    def with_all(self, other: LanguageCount) -> LanguageCount:
        """The sum of two counts."""
        return LanguageCount(
            files=self.files + other.files,
            tokens=self.tokens + other.tokens,
            bytes=self.bytes + other.bytes,
            held_out_tokens=self.held_out_tokens + other.held_out_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageEntry:
    """One package: what was kept of it by language, and how many files each filter dropped."""

    registry: str
    name: str
    version: str
    licence: str
    held_out: bool
    languages: dict[str, LanguageCount]
    dropped: dict[str, int]

    @property
    def tokens(self) -> int:
        """Tokens kept in all languages."""
        return sum(count.tokens for count in self.languages.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """`tokenizer`: fingerprint; `refused`: (registry, name, version, claimed licence)."""

    tokenizer: str
    packages: tuple[PackageEntry, ...]
    refused: tuple[tuple[str, str, str, str], ...]
    shards: tuple[ShardEntry, ...] = field(default=())

    def by_language(self) -> dict[str, LanguageCount]:
        """Totals per language, the most tokens first."""
        totals: dict[str, LanguageCount] = {}
        for package in self.packages:
            for language, count in package.languages.items():
                totals[language] = totals.get(language, LanguageCount()).with_all(count)
        return dict(sorted(totals.items(), key=lambda item: -item[1].tokens))

    def by_reason(self) -> Counter[str]:
        """Dropped files per filter."""
        total: Counter[str] = Counter()
        for package in self.packages:
            total.update(package.dropped)
        return total

    def by_licence(self) -> Counter[str]:
        """Tokens per claimed licence."""
        total: Counter[str] = Counter()
        for package in self.packages:
            total[package.licence] += package.tokens
        return total

    def save(self, folder: Path) -> Path:
        """Write the manifest; its path."""
        path = folder / NAME
        about = {
            "format": FORMAT,
            "tokenizer": self.tokenizer,
            "languages": {name: asdict(count) for name, count in self.by_language().items()},
            "licences": dict(self.by_licence().most_common()),
            "dropped": dict(self.by_reason().most_common()),
            "refused": [
                dict(zip(("registry", "name", "version", "licence"), row, strict=True))
                for row in self.refused
            ],
            "shards": [asdict(shard) for shard in self.shards],
            "packages": [asdict(package) for package in self.packages if package.languages],
        }
        path.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path

    def report(self) -> list[str]:
        """The counts, as lines for a person."""
        lines = [f"{'language':<12}{'files':>8}{'tokens':>14}{'held out':>12}"]
        lines += [
            f"{name:<12}{count.files:>8,}{count.tokens:>14,}{count.held_out_tokens:>12,}"
            for name, count in self.by_language().items()
        ]
        lines.append("dropped: " + _listed(self.by_reason()))
        lines.append(f"refused by licence: {len(self.refused)} packages")
        return lines


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "nothing"

"""What may never leave the buffer: files that are not completed in or read from, and secrets.

`Privacy.forbids` judges a path by its name, by the ignore files above it, and by the open folders;
`blanked` takes secret-looking strings out of a text and keeps its length, so that offsets hold.
Does not know documents, requests or who asks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

import pathspec

from dlsp.guard.ignore_files import IgnoreFiles
from engine.credentials import secret_spans

#: Files that hold secrets by their very nature, as gitignore-style patterns; by what they are.
_SENSITIVE = {
    "an environment file": (".env*", "*.env"),
    "a private key": (
        "*.pem", "*.key", "*.ppk", "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.asc",
        "*.gpg", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/", ".gnupg/",
    ),
    "a certificate": ("*.crt", "*.cer", "*.der", "*.csr", "*.p7b", "*.p7c"),
    "a credentials file": (
        ".netrc", "_netrc", ".authinfo*", ".pgpass", ".my.cnf", ".npmrc", ".yarnrc.yml", ".pypirc",
        ".git-credentials", ".htpasswd", ".dockercfg", ".docker/config.json", ".kube/config",
        ".aws/credentials", ".aws/config", ".azure/", ".config/gcloud/", ".config/gh/hosts.yml",
        ".vault-token", ".terraformrc", "*.tfvars", "*.tfstate", "credentials", "credentials.json",
        "credentials.y*ml", "client_secret*.json", "service[-_]account*.json", "secrets.json",
        "secrets.y*ml", "secrets.toml", "*.ovpn",
    ),
}  # fmt: skip

_BLOCK_LINES = 128
_WORD = re.compile(r"[^\W_]")
_PRIVATE_KEY_LINE = "PRIVATE KEY"


class Privacy:
    """The rules for one editor session. Reads ignore files again when they have changed.

    `folders` are the open workspace folders: nothing outside them is read from the disk.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.folders = tuple(folders)
        self._ignored = IgnoreFiles(self.folders)
        self._sensitive = tuple(
            (what, pathspec.GitIgnoreSpec.from_lines(patterns))
            for what, patterns in _SENSITIVE.items()
        )

    def forbids(self, path: str | None) -> str | None:
        """Why a file may be neither completed in nor read; None when it may, or has no path."""
        if path is None or not os.path.isabs(path):
            return self._by_name(PurePath(path)) if path else None
        file = Path(path)
        # A link must not hide what it leads to.
        for each in dict.fromkeys((file, _resolved(file))):
            if reason := self._by_name(each):
                return reason
            if rule := self._ignored.rule_for(each):
                return f"privacy: {rule} leaves this file out"
        return None

    def forbids_reading(self, path: Path) -> str | None:
        """`forbids`, and for files outside the open folders: they are not the editor's to show."""
        found = _resolved(path)
        if not any(found.is_relative_to(_resolved(folder)) for folder in self.folders):
            return "privacy: outside the open folders"
        return self.forbids(str(path))

    def _by_name(self, path: PurePath) -> str | None:
        relative = path.relative_to(path.anchor).as_posix() if path.anchor else path.as_posix()
        # Editors on systems that ignore case keep the case that a user typed.
        relative = relative.lower()
        for what, patterns in self._sensitive:
            if patterns.match_file(relative):
                return f"privacy: {path.name} is, by its name, {what}"
        return None


def blanked(prefix: str, suffix: str) -> tuple[str, str]:
    """Both sides of a cursor with every secret's letters and digits replaced by `x`.

    Lengths and line ends stay. A secret in which the cursor stands is blanked on both sides.
    """
    text = prefix + suffix
    for start, end in _secrets(text):
        text = text[:start] + _WORD.sub("x", text[start:end]) + text[end:]
    return text[: len(prefix)], text[len(prefix) :]


def holds_secret(text: str) -> bool:
    """Whether a text holds something that `blanked` would replace."""
    return any(True for _ in _secrets(text))


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    if _PRIVATE_KEY_LINE in text:  # over many lines
        yield from secret_spans(text, wary=True)
        return
    offset = 0
    lines = text.split("\n")
    for first in range(0, len(lines), _BLOCK_LINES):
        block = "\n".join(lines[first : first + _BLOCK_LINES + 1])
        for start, end in _secrets_in_block(block):
            yield offset + start, offset + end
        offset += sum(len(line) + 1 for line in lines[first : first + _BLOCK_LINES])


@lru_cache(maxsize=1024)
def _secrets_in_block(block: str) -> tuple[tuple[int, int], ...]:
    """Kept, because most of a document is as it was at the keystroke before."""
    return tuple(secret_spans(block, wary=True))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path

"""Privacy: what is neither completed nor read, and what is blanked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsp.guard.privacy import Privacy, blanked, holds_secret

AWS = "AKIA" + "IOSFODNN7ABCDEFG"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (".env", "an environment file"),
        (".env.local", "an environment file"),
        ("conf/prod.env", "an environment file"),
        ("id_rsa", "a private key"),
        ("ID_RSA", "a private key"),
        ("tls/server.key", "a private key"),
        ("Cert.PEM", "a private key"),
        (".ssh/config", "a private key"),
        ("ca.crt", "a certificate"),
        (".netrc", "a credentials file"),
        (".aws/credentials", "a credentials file"),
        ("secrets.yaml", "a credentials file"),
        ("client_secret_123.json", "a credentials file"),
        ("main.tfvars", "a credentials file"),
        ("app.py", None),
        ("environment.py", None),
        ("keys.py", None),
        ("secrets.py", None),
        ("credentials.py", None),
        ("monkey.ts", None),
    ],
)
def test_files_that_hold_secrets_by_their_name(tmp_path: Path, name: str, what: str | None) -> None:
    found = Privacy((tmp_path,)).forbids(str(tmp_path / name))
    assert (found is None) if what is None else (found or "").endswith(what)


def test_a_buffer_without_a_file_is_judged_by_its_name() -> None:
    assert Privacy().forbids(None) is None
    assert Privacy().forbids("Untitled-1") is None
    assert Privacy().forbids(".env") is not None


def test_a_link_does_not_hide_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1")
    os.symlink(tmp_path / ".env", tmp_path / "settings.txt")
    assert Privacy().forbids(str(tmp_path / "settings.txt")) is not None


def test_a_link_does_not_hide_what_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": "private/\n", "private/a.py": "", "b.py": ""})
    os.symlink(tmp_path / "private", tmp_path / "public")
    os.symlink(tmp_path / "private/a.py", tmp_path / "a.py")
    os.symlink(tmp_path / "b.py", tmp_path / "c.py")
    assert Privacy().forbids(str(tmp_path / "public/a.py")) is not None
    assert Privacy().forbids(str(tmp_path / "a.py")) is not None
    assert Privacy().forbids(str(tmp_path / "c.py")) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_as_ignore_file_does_not_block(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", "a.py": ""})
    os.mkfifo(tmp_path / ".gitignore")
    assert Privacy().forbids(str(tmp_path / "a.py")) is None


@pytest.mark.parametrize("folder", ["a\0b", "x" * 300, "deep/" * 2000])
def test_a_path_that_no_system_has_is_judged_by_its_name(folder: str) -> None:
    assert Privacy().forbids(f"/{folder}/a.py") is None
    assert Privacy().forbids(f"/{folder}/.env") is not None


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_gitignore_nested_negated_and_changed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".git/HEAD": "",
            ".gitignore": "*.log\nbuild/\n/only_top.py\n!/keep.log\n# comment\n",
            "sub/.gitignore": "!wanted.log\nlocal.py\n",
            "build/.gitignore": "!back.py\n",
        },
    )
    privacy = Privacy((tmp_path,))

    def ignored(name: str) -> bool:
        return privacy.forbids(str(tmp_path / name)) is not None

    assert ignored("a.log") and ignored("sub/deep/a.log") and ignored("build/x/y.py")
    assert ignored("only_top.py") and not ignored("sub/only_top.py")
    assert not ignored("keep.log") and not ignored("sub/wanted.log")
    assert ignored("sub/local.py") and not ignored("local.py")
    assert ignored("build/back.py"), "what lies in an ignored folder cannot be taken back"
    reason = privacy.forbids(str(tmp_path / "sub/local.py"))
    assert reason == f"privacy: {tmp_path / 'sub/.gitignore'} leaves this file out"

    (tmp_path / ".gitignore").write_text("*.py\n")
    assert ignored("other.py") and not ignored("a.log")


def test_dlspignore_adds_to_and_takes_back_from_gitignore(tmp_path: Path) -> None:
    write(
        tmp_path,
        {".git/HEAD": "", ".gitignore": "*.gen.py\n", ".dlspignore": "!fine.gen.py\nsecret/\n"},
    )
    privacy = Privacy()
    assert privacy.forbids(str(tmp_path / "x.gen.py")) is not None
    assert privacy.forbids(str(tmp_path / "fine.gen.py")) is None
    reason = privacy.forbids(str(tmp_path / "secret/a.py"))
    assert reason is not None and ".dlspignore" in reason


def test_ignore_files_above_the_repository_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*\n", "repo/.git/HEAD": "", "repo/a.py": ""})
    assert Privacy().forbids(str(tmp_path / "repo/a.py")) is None


def test_the_open_folder_bounds_the_search_without_a_repository(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "a.py\n", "open/.gitignore": "b.py\n"})
    privacy = Privacy((tmp_path / "open",))
    assert privacy.forbids(str(tmp_path / "open/sub/a.py")) is None
    assert privacy.forbids(str(tmp_path / "open/sub/b.py")) is not None


def test_a_pattern_that_git_cannot_read_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": "!\n***//[\nx.py\n"})
    assert Privacy().forbids(str(tmp_path / "x.py")) is not None
    assert Privacy().forbids(str(tmp_path / "y.py")) is None


def test_nothing_outside_the_open_folders_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"open/a.py": "", "other/b.py": ""})
    privacy = Privacy((tmp_path / "open",))
    assert privacy.forbids_reading(tmp_path / "open/a.py") is None
    outside = "privacy: outside the open folders"
    assert privacy.forbids_reading(tmp_path / "other/b.py") == outside
    os.symlink(tmp_path / "other/b.py", tmp_path / "open/link.py")
    assert privacy.forbids_reading(tmp_path / "open/link.py") == outside
    assert Privacy().forbids_reading(tmp_path / "open/a.py") == outside
    assert privacy.forbids(str(tmp_path / "other/b.py")) is None, "an open file may be completed"


@pytest.mark.parametrize(
    "secret",
    [AWS, "ghp_" + "a1B2" * 9, "sk-ant-" + "abcDEF123_" * 3, "xoxb-123456789012-abc",
     KEY, "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0NTY3.SflKxwRJSMeKKF2QT4fwp"],
)  # fmt: skip
def test_keys_are_blanked_on_both_sides(secret: str) -> None:
    text = f"before = 1\nkey = '{secret}'\nafter = 2\n"
    assert holds_secret(text)
    for cut in (0, 15, 25, len(text)):
        prefix, suffix = blanked(text[:cut], text[cut:])
        assert (len(prefix), len(prefix + suffix)) == (cut, len(text))
        words = secret.replace("\n", " ").replace("-", " ").split()
        assert not any(word in prefix + suffix for word in words if len(word) > 5)
        assert "before = 1\n" in prefix + suffix and "\nafter = 2\n" in prefix + suffix


def test_passwords_are_blanked_and_plain_code_is_not() -> None:
    assert blanked("password = 'hunter22!'\n", "")[0] == "password = 'xxxxxxxx!'\n"
    assert blanked("api_key:\n", "  'a1b2c3d4e5'\n")[1] == "  'xxxxxxxxxx'\n"
    assert blanked("u = 'https://me:pass1word@host.org/'", "")[0] == (
        "u = 'https://me:xxxxxxxxx@host.org/'"
    )
    assert blanked("DB = 'postgres://me:pa55word@localhost:5432/db'", "")[0] == (
        "DB = 'postgres://me:xxxxxxxx@localhost:5432/db'"
    )
    code = "token = next(tokens)\nkey = 'keyword.operator'\nsecret = load('path')\nSKIP = 'x'\n"
    assert blanked(code, code) == (code, code)


def test_a_private_key_that_the_text_cuts_off_is_blanked_to_the_end() -> None:
    begun = KEY[: KEY.index("IBAAKC")]
    assert "MIIEow" not in blanked(f"x = '''{begun}", "")[0]


def test_a_secret_on_the_border_of_blocks_is_found() -> None:
    for lines in (126, 127, 128, 129):
        text = "x = 1\n" * lines + "password =\n    'hunter22!'\n" + "y = 2\n" * 200
        assert "hunter22" not in "".join(blanked(text, ""))


@given(st.text(alphabet="ab\n\r\u2028İK'\"=:key pasword1", max_size=200), st.integers(0, 200))
def test_blanking_keeps_lengths_and_line_ends(text: str, cut: int) -> None:
    prefix, suffix = blanked(text[:cut], text[cut:])
    assert (len(prefix), len(suffix)) == (len(text[:cut]), len(text[cut:]))
    assert [c for c in prefix + suffix if c in "\r\n\u2028"] == [
        c for c in text if c in "\r\n\u2028"
    ]

"""Replay files: nothing of the code is in them, the shape is, and they are read back as written."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsp.client.wire import BackendReply
from dlsp.diagnosis import replay as replay_room
from dlsp.diagnosis.redaction import Redaction
from dlsp.diagnosis.replay import (
    KEEP_FILES,
    Replay,
    ReplayError,
    differences,
    figures_of,
    read,
    repeatable,
    result_of,
    this_version,
    write,
)
from engine.request import InfillRequest, Snippet
from engine.syntax import check

CODE = '''import os

API_KEY = "sk-live-8a7f6e5d4c3b2a19"  # Müller's key, do not share
class Überweisung:
    def amount_of(self, customerName, iban="DE89370400440532013000"):
        """Ask 東京 for the total."""
        for entry in self.entries_2024:
            if entry.customerName == customerName and len(iban) > 15:
                return entry.amount * 1.19
'''
SECRETS = re.compile(
    "sk-live|8a7f|Müller|key|Überweisung|amount|customer|iban|DE89|3704|東京|total|entr|2024|1\\.19",
    re.IGNORECASE,
)


def request(**changes: Any) -> InfillRequest:
    plain = InfillRequest(
        prefix=CODE, suffix="\nprint(Überweisung)\n", path="/home/müller/bank/money.py",
        language="python", deadline_ms=250.0, guess="entry.amount", idle=True, stop=("\nentry",),
        snippets=(Snippet(path="bank/customer.py", text=CODE),),
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def test_nothing_of_the_code_is_left_and_its_shape_is() -> None:
    found = repeatable(request(), with_code=False)
    assert SECRETS.search(repr(found)) is None
    assert (len(found.prefix), len(found.prefix.encode())) == (len(CODE), len(CODE.encode()))
    assert re.sub(r"\w", "x", found.prefix) == re.sub(r"\w", "x", CODE)
    verdict = check(prefix=found.prefix, text="x", suffix=found.suffix, language="python")
    assert verdict.status == "ok"
    assert found.path == "file.py"
    [snippet] = found.snippets
    assert (snippet.path, snippet.text) == ("file.py", found.prefix)
    assert (found.deadline_ms, found.guess, found.idle, found.seed) == (None, "", False, 0)
    for public in ("import ", "class ", "(self, ", "return ", "len("):
        assert public in found.prefix


def test_the_same_word_is_the_same_everywhere_and_other_elsewhere() -> None:
    found = repeatable(request(), with_code=False)
    name = re.search(r"class (\w+)", found.prefix)
    assert name is not None
    assert found.suffix == f"\nprint({name[1]})\n"
    assert repeatable(request(), with_code=False).prefix != found.prefix, "no table can undo it"


def test_code_is_kept_when_its_user_says_so() -> None:
    found = repeatable(request(), with_code=True)
    assert (found.prefix, found.path) == (CODE, "/home/müller/bank/money.py")
    assert (found.deadline_ms, found.guess) == (None, "")


@given(st.text(max_size=200))
def test_any_text_keeps_its_length_width_and_lines(text: str) -> None:
    made_up = Redaction(b"fixed").text(text)
    assert len(made_up) == len(text)
    assert [len(c.encode("utf-8", "surrogatepass")) for c in made_up] == [
        len(c.encode("utf-8", "surrogatepass")) for c in text
    ]
    assert re.sub(r"[^\W_]", "x", made_up) == re.sub(r"[^\W_]", "x", text)
    assert Redaction(b"fixed").text(text) == made_up


@pytest.mark.parametrize("path", [None, "C:\\Users\\me\\money.rs", "Makefile", "/a.b/.env"])
def test_paths(path: str | None) -> None:
    expected = {"C:\\Users\\me\\money.rs": "file.rs", "Makefile": "file", "/a.b/.env": "file"}
    assert Redaction().path(path) == (expected[path] if path else None)


def reply(**changes: Any) -> BackendReply:
    plain = BackendReply(text="abc", finish_reason="stop", model="m", mode="verified")
    return dataclasses.replace(plain, **changes)


def replay(**changes: Any) -> Replay:
    plain = Replay(
        request=repeatable(request(), with_code=False),
        result=result_of(reply()),
        model="m",
        digest="d1",
        with_code=False,
        original=figures_of({"text": "amount", "tokens": 3, "range": {"start": 1}}),
        versions=this_version(),
        created=time.time(),
    )
    return dataclasses.replace(plain, **changes)


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = write(replay(), tmp_path / "new")
    found = read(path)
    assert found.request == replay(request=found.request).request
    assert found.original == {**found.original, "characters": 6, "tokens": 3}
    assert "amount" not in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o077 == 0 or path.drive
    assert differences(found, reply(), "d1") == ([], False)


def test_what_is_other_is_told() -> None:
    told, changed = differences(replay(), reply(text="abd"), "d1")
    assert (told, changed) == (["text: 'abc' in the file, 'abd' here"], True)
    versions = {**this_version(), "dlsp": "0.0.1"}
    told, changed = differences(replay(versions=versions), reply(), "d2")
    assert not changed
    assert [line.split(":")[0] for line in told] == ["dlsp", "weights"]


def test_few_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_room, "KEEP_FILES", 3)
    paths = [write(replay(created=time.time() + n), tmp_path) for n in range(5)]
    assert sorted(tmp_path.iterdir()) == sorted(paths[2:])
    assert KEEP_FILES >= 3


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": 99}', '{"format": 1}', '{"format": 1, "request": {"stop": [], '
     '"prefix": "x", "unheard": 1}}'],
)  # fmt: skip
def test_other_files_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ReplayError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    with pytest.raises(ReplayError, match="cannot be read"):
        read(tmp_path / "none.json")


@pytest.mark.parametrize(
    "change",
    [{"result": 5}, {"versions": None}, {"original": []}, {"model": 7}, {"request": None}],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write(replay(), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}))
    with pytest.raises(ReplayError, match="damaged"):
        read(path)


@pytest.mark.parametrize(
    "change", [{"snippets": 5}, {"snippets": [{"x": 1}]}, {"prefix": "\ud800"}]
)
def test_a_damaged_request_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write(replay(), tmp_path)
    fields = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**fields, "request": {**fields["request"], **change}}))
    with pytest.raises(ReplayError, match="damaged"):
        read(path)


def test_nesting_without_end_is_no_replay_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ReplayError, match="not a replay file"):
        read(tmp_path / "a.json")


def test_the_file_is_plain_json_with_its_format(tmp_path: Path) -> None:
    fields = json.loads(write(replay(), tmp_path).read_text(encoding="utf-8"))
    assert fields["format"] == 1
    assert set(fields) == {
        "format", "request", "result", "model", "digest", "with_code", "original", "versions",
        "created",
    }  # fmt: skip

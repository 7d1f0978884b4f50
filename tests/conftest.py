"""Marks and fixtures that all rooms' tests share.

Everything under tests/e2e is an end-to-end test; fast tests never see the user's cache or settings.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_E2E = Path(__file__).parent / "e2e"
_REAL_WORK_S = 900


def pytest_configure() -> None:
    """Whatever a test starts must not count in the developer's own scorecard."""
    os.environ["DLSP_DATA_DIR"] = tempfile.mkdtemp(prefix="dlsp-tests-")


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ.get("DLSP_DATA_DIR", ""), ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by place, skip what this machine cannot run, and give real models and processes time."""
    for item in items:
        if item.path.is_relative_to(_E2E):
            item.add_marker("e2e")
        slow = item.get_closest_marker("model") or item.get_closest_marker("e2e")
        if slow and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_REAL_WORK_S))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A GPU test without a GPU says so, when it is asked for."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


@pytest.fixture(autouse=True)
def _own_settings(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hide the developer's settings; the cache with real weights only slow tests may see."""
    node = request.node
    slow = node.get_closest_marker("model") or node.get_closest_marker("e2e")
    monkeypatch.setenv("DLSP_DATA_DIR", str(tmp_path / "dlsp-data"))
    for name in [name for name in os.environ if name.startswith("DLSP_")]:
        if name != "DLSP_DATA_DIR" and (name != "DLSP_CACHE_DIR" or not slow):
            monkeypatch.delenv(name)
    if not slow:
        monkeypatch.setenv("DLSP_CACHE_DIR", str(tmp_path / "dlsp-cache"))


@pytest.fixture(scope="session")
def qwen() -> Path:
    """The default model's weights, fetched if they are not in the cache. Only for `model` tests."""
    return _weights("qwen2.5-coder-0.5b")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The small model's weights, fetched if they are not in the cache. Only for `model` tests."""
    return _weights("smollm2-135m")


def _weights(name: str) -> Path:
    from engine.catalog import resolve

    return resolve(name).path

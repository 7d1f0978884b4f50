"""A first start: no server, then no model. Both editors tell how far it is, and then work."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.editors.code_server import CodeServer, Installation
from tests.e2e.editors.conftest import environment_of
from tests.e2e.editors.hub import Hub, hub_with
from tests.e2e.editors.neovim import INIT, STATUS, Neovim
from tests.e2e.editors.processes import end_engines
from tests.e2e.editors.samples import START, WHOLE
from tests.e2e.editors.terminal import ENTER
from tests.e2e.editors.workbench import Workbench

ROOT = Path(__file__).parents[3]
SMALL = "smollm2-135m"


def test_none_of_these_tests_has_a_network() -> None:
    """With the model on the disk both editors do all that is tested here offline."""
    interfaces = {name for _, name in socket.if_nameindex()}
    if interfaces != {"lo"}:
        pytest.skip("run by itself, or this system permits no network namespace")
    with pytest.raises(OSError, match="unreachable"):
        socket.create_connection(("192.0.2.1", 443), timeout=5)


@pytest.fixture
def own_runtime(tmp_path: Path) -> Iterator[Path]:
    """The folder for an engine of one's own, which ends once the editors have."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    yield runtime
    end_engines(runtime)


@pytest.fixture
def without_model(tmp_path: Path, own_runtime: Path) -> dict[str, str]:
    """A user without any model, whose hub does not answer."""
    return {
        **environment_of(tmp_path / "home", own_runtime),
        "DLSP_CACHE_DIR": str(tmp_path / "cache"),
        "DLSP_MODEL": SMALL,
        "HF_ENDPOINT": "http://127.0.0.1:9",
        # Neither has its package index, which is asked next.
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "HF_HOME": str(tmp_path / "hub"),
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture
def hub(smollm2: Path) -> Iterator[Hub]:
    """A hub on this machine that has the small model."""
    with hub_with(smollm2) as hub:
        yield hub


@pytest.fixture
def new_user(without_model: dict[str, str], hub: Hub) -> dict[str, str]:
    """A user without any model, who can fetch the small one."""
    return {**without_model, "HF_ENDPOINT": hub.address}


@pytest.fixture
def first_neovim(
    nvim: Path, tmp_path: Path, own_runtime: Path
) -> Iterator[Callable[[dict[str, str]], Neovim]]:
    """A Neovim of a user's own, with one file."""
    opened: list[Neovim] = []

    def start(environment: dict[str, str]) -> Neovim:
        file = tmp_path / "calc.py"
        file.write_text(START)
        opened.append(Neovim(nvim, file, environment=environment, init=INIT + STATUS))
        return opened[-1]

    yield start
    for neovim in opened:
        neovim.close()


def test_neovim_fetches_the_model(
    first_neovim: Callable[[dict[str, str]], Neovim], new_user: dict[str, str], hub: Hub
) -> None:
    neovim = first_neovim(new_user)
    neovim.terminal.shows("[dlsp downloading")
    hub.go_on.set()
    neovim.wait_for_client()
    neovim.terminal.press("Go")
    neovim.terminal.type("return ")
    neovim.terminal.until(lambda _: neovim.ghost() != "", "a suggestion")


def test_neovim_without_model_and_network(
    first_neovim: Callable[[dict[str, str]], Neovim], without_model: dict[str, str]
) -> None:
    neovim = first_neovim(without_model)
    neovim.terminal.shows("cannot fetch smollm2-135m")
    neovim.terminal.press(ENTER)  # the message is longer than its line
    neovim.terminal.shows("[dlsp error]")
    neovim.normal()
    neovim.terminal.press("Goreturn a")
    assert neovim.save() == START + "    return a\n"


@pytest.fixture
def open_first(
    installation: Installation, browser: Browser, tmp_path: Path, own_runtime: Path
) -> Iterator[Callable[..., Workbench]]:
    """A code-server of a user's own, with one window."""
    servers: list[CodeServer] = []

    def start(environment: dict[str, str], settings: dict[str, str]) -> Workbench:
        folder = tmp_path / "project"
        folder.mkdir()
        home = tmp_path / "code-server"
        home.mkdir()
        server = CodeServer(installation, home, environment=environment)
        servers.append(server)
        server.configure(settings)
        server.start()
        return Workbench(browser, server, folder)

    yield start
    for server in servers:
        server.close()


def test_vscode_fetches_the_model(
    open_first: Callable[..., Workbench], new_user: dict[str, str], hub: Hub
) -> None:
    workbench = open_first(new_user, {"dlsp.python": sys.executable})
    workbench.until(lambda: "dlsp downloading" in workbench.status(), "the download")
    hub.go_on.set()
    workbench.until_ready()
    workbench.open(workbench.write("calc.py", START))
    workbench.page.keyboard.type("    return ")
    workbench.until(lambda: workbench.ghost() != "", "a suggestion")
    workbench.close()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is published, kernels compiled; built from a copy, away from old builds."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("dlsp", "engine"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = ["wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(built), "."]
    subprocess.run([sys.executable, "-m", "pip", *command], cwd=source, check=True)
    [found] = built.glob("*.whl")
    return found


@pytest.fixture
def without_dlsp(tmp_path: Path) -> Path:
    """Every package that `dlsp` needs, as links, but not `dlsp`: so pip has nothing to fetch."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "dlsp" not in entry.name:
            (folder / entry.name).symlink_to(entry)
    return folder


def test_vscode_installs_the_server(
    open_first: Callable[..., Workbench],
    environment: dict[str, str],
    wheel: Path,
    without_dlsp: Path,
    tmp_path: Path,
) -> None:
    path = f"{sys.base_prefix}/bin:/usr/bin:/bin"
    environment = {**environment, "PATH": path, "PYTHONPATH": str(without_dlsp)}
    workbench = open_first(environment, {"dlsp.package": str(wheel)})
    workbench.until(lambda: workbench.status() == "dlsp error", "no server")
    # In the list: the notice itself goes after some seconds.
    workbench.command("Notifications: Show Notifications")
    workbench.page.locator(".notifications-center a", has_text="Install").first.click()
    workbench.page.get_by_text("Installing dlsp").first.wait_for()
    workbench.until(lambda: workbench.status() == "dlsp starting", "on its way")
    workbench.until_ready(patience_s=400)
    file = workbench.write("calc.py", START)
    workbench.open(file)
    workbench.type("    return ", then=WHOLE)
    workbench.accept()
    assert workbench.save(file) == START + WHOLE
    storage = tmp_path / "code-server" / "data" / "User" / "globalStorage" / "dlsp.dlsp"
    assert (storage / "environment" / "bin" / "python").exists()
    workbench.close()

"""A first start: no server, then no model. Both editors tell how far it is, and then work."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.editors.conftest import environment_of
from tests.e2e.editors.hub import hub_with
from tests.e2e.editors.neovim import INIT, Neovim
from tests.e2e.editors.processes import end_engines
from tests.e2e.editors.samples import START, WHOLE
from tests.e2e.editors.workbench import CodeServer, Installation, Workbench

ROOT = Path(__file__).parents[3]
SMALL = "smollm2-135m"


@pytest.fixture
def new_user(smollm2: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A user without any model; the small one comes from a hub on this machine."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    environment = environment_of(tmp_path / "home", runtime)
    with hub_with(smollm2, seconds=8.0) as hub:
        yield {
            **environment,
            "DLSP_CACHE_DIR": str(tmp_path / "cache"),
            "DLSP_MODEL": SMALL,
            "HF_ENDPOINT": hub,
            "HF_HOME": str(tmp_path / "hub"),
            "NO_PROXY": "127.0.0.1",
        }
    end_engines(runtime)


def test_neovim_fetches_the_model(nvim: Path, new_user: dict[str, str], tmp_path: Path) -> None:
    line = "vim.o.laststatus = 2 vim.o.statusline = \"[%{v:lua.require'dlsp'.statusline()}]\"\n"
    file = tmp_path / "calc.py"
    file.write_text(START)
    neovim = Neovim(nvim, file, environment=new_user, init=INIT + line)
    try:
        neovim.terminal.shows("[dlsp downloading")
        neovim.wait_for_client()
        neovim.terminal.press("Go")
        neovim.terminal.type("return ")
        neovim.terminal.until(lambda _: neovim.ghost() != "", "a suggestion")
    finally:
        neovim.close()


@pytest.fixture
def open_first(
    installation: Installation, vsix: Path, browser: Browser, tmp_path: Path
) -> Iterator[Callable[..., Workbench]]:
    """A code-server of a user's own, with one window."""
    servers: list[CodeServer] = []

    def start(environment: dict[str, str], settings: dict[str, str]) -> Workbench:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "calc.py").write_text(START)
        home = tmp_path / "code-server"
        home.mkdir()
        server = CodeServer(installation, home, environment=environment)
        servers.append(server)
        server.configure(settings)
        server.install(vsix)
        server.start()
        return Workbench(browser, server, folder)

    yield start
    for server in servers:
        server.close()


def test_vscode_fetches_the_model(
    open_first: Callable[..., Workbench], new_user: dict[str, str]
) -> None:
    workbench = open_first(new_user, {"dlsp.python": sys.executable})
    workbench.until(lambda: "dlsp downloading" in workbench.status(), "the download")
    workbench.open("calc.py")
    workbench.until_ready()
    before = workbench.lines()
    workbench.type("    return ", then="    return ")
    workbench.until(
        lambda: len("".join(workbench.lines())) > len("".join([*before, "    return "])),
        "a suggestion",
    )
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
    workbench.page.locator(".notification-toast a", has_text="Install").first.click()
    workbench.page.get_by_text("Installing dlsp").first.wait_for()
    workbench.open("calc.py")
    workbench.until_ready(patience_s=400)
    workbench.type("    return ", then=WHOLE)
    workbench.press("Tab")
    assert workbench.save("calc.py") == START + WHOLE
    storage = tmp_path / "code-server" / "data" / "User" / "globalStorage" / "dlsp.dlsp"
    assert (storage / "environment" / "bin" / "python").exists()
    workbench.close()

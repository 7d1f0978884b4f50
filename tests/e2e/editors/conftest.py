"""What the editor tests share: the installed editors, one engine, and a user's environment.

They run by `make test-editors` only, which installs the editors, and the packages in
requirements.txt, first. The engine is the real one with the default model; DLSP_MODEL names a
smaller one while developing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dlsp.config.settings import Settings
from tests.e2e.editors.processes import end_engines

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.e2e.editors.code_server import CodeServer, Installation
    from tests.e2e.editors.neovim import Neovim
    from tests.e2e.editors.workbench import Workbench

# Any other run passes this folder by, whose tests could not even be imported.
if any(find_spec(package) is None for package in ("playwright", "pyte", "PIL")):
    collect_ignore_glob = ["test_*.py"]

#: Read here, because every test runs without DLSP_* variables.
EDITORS = Path(
    os.environ.get("DLSP_EDITORS_DIR")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dlsp-editors"
)
CACHE = Path(os.environ.get("DLSP_CACHE_DIR") or Path.home() / ".cache" / "dlsp")
MODEL = os.environ.get("DLSP_MODEL") or Settings().model
#: A folder with the folders of Neovim's plugins that some tests ask for.
NVIM_PLUGINS = Path(os.environ["DLSP_NVIM_PLUGINS"]) if "DLSP_NVIM_PLUGINS" in os.environ else None
#: Where pictures are to be kept.
SCREENSHOTS = Path(os.environ["DLSP_SCREENSHOTS"]) if "DLSP_SCREENSHOTS" in os.environ else None

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.editors)


@pytest.fixture(scope="session")
def editors() -> Path:
    """The folder with the installed editors."""
    if not (EDITORS / "bin" / "nvim-0.12").exists():
        pytest.fail(f"no editors in {EDITORS}: run make test-editors, which installs them")
    return EDITORS


@pytest.fixture(scope="session")
def runtime() -> Iterator[Path]:
    """The folder in which all tests' servers find their one engine."""
    folder = Path(tempfile.mkdtemp(prefix="dlsp-editors-"))
    try:
        yield folder
    finally:
        end_engines(folder)
        shutil.rmtree(folder, ignore_errors=True)


def environment_of(home: Path, runtime: Path) -> dict[str, str]:
    """A new user's: an empty home, `dlsp` on the path, no proxy, time enough on a busy machine."""
    home.mkdir()
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        # Short, so that a message with the log's path fits into one line.
        "XDG_STATE_HOME": str(runtime),
        "DLSP_CACHE_DIR": str(CACHE),
        "DLSP_RUNTIME_DIR": str(runtime),
        "DLSP_MODEL": MODEL,
        "DLSP_DEADLINE_MS": "20000",
    }


@pytest.fixture
def environment(tmp_path: Path, runtime: Path) -> dict[str, str]:
    return environment_of(tmp_path / "home", runtime)


@pytest.fixture(scope="session", params=["0.12", "0.11"])
def nvim(request: pytest.FixtureRequest, editors: Path) -> Path:
    """Each Neovim that the plugin supports."""
    return editors / "bin" / f"nvim-{request.param}"


OpenNeovim = Callable[..., "Neovim"]
OpenFile = Callable[..., "Neovim"]


@pytest.fixture
def open_neovim(nvim: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[OpenNeovim]:
    """Opens files in Neovim, and closes every one in the end."""
    from tests.e2e.editors.neovim import INIT, Neovim

    opened: list[Neovim] = []

    def start(name: str, text: str = "", *, init: str = INIT) -> Neovim:
        file = tmp_path / "project" / name
        file.parent.mkdir(exist_ok=True)
        (file.parent / ".git").mkdir(exist_ok=True)
        file.write_bytes(text.encode())
        neovim = Neovim(nvim, file, environment=environment, init=init)
        opened.append(neovim)
        return neovim

    yield start
    for neovim in opened:
        neovim.close()


@pytest.fixture(scope="module")
def neovims() -> Iterator[list[Neovim]]:
    """The Neovim that the module's tests share, once there is one."""
    neovims: list[Neovim] = []
    yield neovims
    for neovim in neovims:
        neovim.close()


@pytest.fixture
def edit(
    request: pytest.FixtureRequest,
    neovims: list[Neovim],
    nvim: Path,
    runtime: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OpenFile]:
    """Opens a file in the module's Neovim, which is a new one after a test that failed."""
    from tests.e2e.editors.neovim import INIT, KEYS, STATUS, Neovim

    if neovims and neovims[0].binary != nvim:
        neovims.pop().close()
    if not neovims:
        folder = tmp_path_factory.mktemp("neovim")
        (folder / ".git").mkdir()
        environment = environment_of(folder / "home", runtime)
        file = folder / "empty.py"
        init = INIT + KEYS + STATUS
        neovims.append(Neovim(nvim, file, environment=environment, init=init))

    def open_file(name: str, text: str = "", *options: str) -> Neovim:
        file = neovims[0].file.parent / name
        file.write_bytes(text.encode())
        neovims[0].open(file, *options)
        return neovims[0]

    failed = request.session.testsfailed
    yield open_file
    if request.session.testsfailed > failed:
        neovims.pop().close()
    else:
        neovims[0].discard()


@pytest.fixture(scope="session")
def vsix() -> Path:
    """The extension as it is published."""
    package = _HERE.parents[2] / "editors" / "vscode" / "dist" / "dlsp.vsix"
    if not package.exists():
        pytest.fail(f"no {package}: run make test-editors, which packages it")
    return package


@pytest.fixture(scope="session")
def installation(
    editors: Path, vsix: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """VS Code with the extension, installed from its package."""
    from tests.e2e.editors.code_server import Installation

    modules = editors / "code-server"
    installed = Installation(
        node=modules / "node" / "node_modules" / "node" / "bin" / "node",
        program=modules / "node_modules" / "code-server",
        extensions=tmp_path_factory.mktemp("extensions"),
    )
    installed.install(vsix, tmp_path_factory.mktemp("installing"))
    return installed


@pytest.fixture(scope="session")
def code_server(
    installation: Installation, runtime: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CodeServer]:
    """One code-server for all windows, with the Python of these tests."""
    from tests.e2e.editors.code_server import CodeServer

    home = tmp_path_factory.mktemp("code-server")
    server = CodeServer(installation, home, environment=environment_of(home / "home", runtime))
    server.configure({"dlsp.python": sys.executable})
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.e2e.editors.workbench import BROWSER

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("no chromium: run make test-editors as root, or install it")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=chromium, args=list(BROWSER))


OpenWorkbench = Callable[[Path], "Workbench"]


@pytest.fixture
def open_workbench(code_server: CodeServer, browser: Browser) -> Iterator[OpenWorkbench]:
    """Opens a folder or a workspace in a window, and closes every window in the end."""
    from tests.e2e.editors.workbench import Workbench

    opened: list[Workbench] = []

    def start(target: Path) -> Workbench:
        opened.append(Workbench(browser, code_server, target))
        return opened[-1]

    yield start
    for workbench in reversed(opened):
        workbench.close()


@pytest.fixture(scope="module")
def windows(
    code_server: CodeServer, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Workbench]]:
    """The window that the module's tests share, once there is one."""
    windows: list[Workbench] = []
    yield windows
    for window in windows:
        window.close()


@pytest.fixture
def workbench(
    request: pytest.FixtureRequest,
    windows: list[Workbench],
    code_server: CodeServer,
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workbench]:
    """The module's window, ready and with nothing open; after a test that failed, a new one."""
    from tests.e2e.editors.workbench import Workbench

    if not windows:
        windows.append(Workbench(browser, code_server, tmp_path_factory.mktemp("project")))
        windows[0].until_ready()
    failed = request.session.testsfailed
    yield windows[0]
    if request.session.testsfailed > failed:
        windows.pop().close()
    else:
        windows[0].discard()

"""Clients of `dlsp-engine serve --port`: a request as curl sends it, and a plugin of Neovim.

The fields and headers are those of minuet-ai.nvim's provider `openai_fim_compatible`, set up as
docs/editors.md says. The plugin itself is in no package registry: it runs where DLSP_NVIM_PLUGINS
names a folder that has it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.editors.conftest import CACHE, NVIM_PLUGINS, OpenNeovim
from tests.e2e.editors.samples import START

MODEL = "smollm2-135m"
GUIDE = Path(__file__).parents[3] / "docs" / "editors.md"


@pytest.fixture(scope="module")
def served(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address and the token of an engine on a port of this machine."""
    folder = tmp_path_factory.mktemp("engine")
    endpoint, token = folder / "engine.json", folder / "token"
    options = ["--model", MODEL, "--port", "0", "--token-file", token, "--endpoint", endpoint]
    command = [sys.executable, "-m", "engine", "serve", *map(str, options)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "DLSP_CACHE_DIR": str(CACHE)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 120
        while not endpoint.exists():
            assert time.monotonic() < until and process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        yield json.loads(endpoint.read_text())["url"], token.read_text().strip()
    finally:
        process.terminate()
        process.wait()


def ask(url: str, token: str, *, stream: bool, folder: Path) -> subprocess.CompletedProcess[str]:
    fields = {
        "model": MODEL,
        "stream": stream,
        "max_tokens": 32,
        "stop": ["\n\n"],
        "prompt": "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return ",
        "suffix": "\n",
    }
    body = folder / "body.json"
    body.write_text(json.dumps(fields))
    headers = ["Content-Type: application/json", "Accept: application/json"]
    headers.append(f"Authorization: Bearer {token}")
    named = [part for header in headers for part in ("-H", header)]
    command = ["curl", "-L", "--no-buffer", "--silent", "--max-time", "60", *named]
    return subprocess.run(
        [*command, "-d", f"@{body}", f"{url}/v1/fim/completions"],
        capture_output=True,
        text=True,
        check=True,
    )


def test_whole_answer(served: tuple[str, str], tmp_path: Path) -> None:
    answer = json.loads(ask(*served, stream=False, folder=tmp_path).stdout)
    assert answer["choices"][0]["text"].strip()


def test_streamed_answer(served: tuple[str, str], tmp_path: Path) -> None:
    lines = ask(*served, stream=True, folder=tmp_path).stdout.splitlines()
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    parts = [json.loads(event)["choices"][0]["text"] for event in events[:-1]]
    whole = json.loads(ask(*served, stream=False, folder=tmp_path).stdout)["choices"][0]["text"]
    assert "".join(parts) == whole


def test_without_the_token(served: tuple[str, str], tmp_path: Path) -> None:
    answer = json.loads(ask(served[0], "wrong", stream=False, folder=tmp_path).stdout)
    assert "token" in answer["error"]["message"]


@pytest.mark.parametrize("nvim", ["0.12"], indirect=True)
def test_minuet_as_the_guide_sets_it_up(
    served: tuple[str, str], open_neovim: OpenNeovim, tmp_path: Path
) -> None:
    if NVIM_PLUGINS is None or not (NVIM_PLUGINS / "minuet-ai.nvim").is_dir():
        pytest.skip("DLSP_NVIM_PLUGINS names no folder with minuet-ai.nvim")
    url, token = served
    (tmp_path / "token").write_text(token)
    found = re.search(r"^```lua\n(require\('minuet'\).*?)^```", GUIDE.read_text(), re.S | re.M)
    assert found
    setup = found[1].replace("http://127.0.0.1:8012", url).replace("qwen2.5-coder-0.5b", MODEL)
    setup = setup.replace("/path/to/token", str(tmp_path / "token"))
    patient = "require('minuet').config.request_timeout = 60\n"
    init = f"vim.opt.runtimepath:append('{NVIM_PLUGINS}/minuet-ai.nvim')\n{setup}{patient}"
    neovim = open_neovim("calc.py", START, init=init)
    neovim.wait("vim.b.minuet_virtual_text_auto_trigger")
    neovim.terminal.press("Go")
    neovim.terminal.type("return ")
    neovim.terminal.until(lambda _: neovim.ghost() != "", "grey text of minuet")
    shown = neovim.line()
    neovim.terminal.press("\x1ba")  # Alt and a
    neovim.terminal.until(lambda _: neovim.ghost() == "", "all of it is accepted")
    assert neovim.save().startswith(START + shown)

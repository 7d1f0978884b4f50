"""The sources of both extensions: formatted, sound, and small as packaged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NVIM, VSCODE = ROOT / "editors" / "nvim", ROOT / "editors" / "vscode"
LUA = sorted(NVIM.rglob("*.lua"))
_FORMAT = """\
const stylua = require(process.argv[1]);
const config = stylua.Config.new();
config.column_width = 100;
config.indent_type = stylua.IndentType.Spaces;
config.indent_width = 2;
config.quote_style = stylua.QuoteStyle.AutoPreferSingle;
const code = require('fs').readFileSync(0, 'utf8');
process.stdout.write(stylua.formatCode(code, config, undefined, stylua.OutputVerification.Full));
"""


@pytest.mark.parametrize("file", LUA, ids=lambda file: file.relative_to(NVIM).as_posix())
def test_lua_is_formatted(file: Path, editors: Path) -> None:
    module = editors / "stylua" / "node_modules" / "@johnnymorganz" / "stylua"
    code = file.read_text()
    command = [shutil.which("node") or "node", "-e", _FORMAT, str(module)]
    formatted = subprocess.run(command, input=code, capture_output=True, text=True, check=True)
    assert formatted.stdout == code


@pytest.mark.parametrize("nvim", ["0.11"], indirect=True)
def test_lua_is_sound(editors: Path, nvim: Path, tmp_path: Path) -> None:
    """Luacheck finds nothing: no unused, unset or shadowed name, no global but Neovim's."""
    root = editors / "luacheck" / "usr"
    [library] = root.glob("lib/*/lua/5.1/lfs.so")
    script = tmp_path / "luacheck.lua"
    script.write_text(
        f"package.path = '{root}/share/lua/5.1/?.lua;{root}/share/lua/5.1/?/init.lua'\n"
        f"package.cpath = '{library.parent}/?.so'\n"
        "require('luacheck.main')\n"
    )
    wanted = ["--std", "luajit", "--globals", "vim", "--no-color", "--no-cache", "--no-config"]
    ran = subprocess.run(
        [nvim, "-u", "NONE", "-i", "NONE", "-l", script, NVIM, *wanted],
        env={"HOME": str(tmp_path), "LD_LIBRARY_PATH": str(library.parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"in {len(LUA)} files" in ran.stdout + ran.stderr


def test_help_tags(nvim: Path, tmp_path: Path) -> None:
    """Every link of the manual leads somewhere, and no tag stands twice."""
    shutil.copytree(NVIM / "doc", tmp_path / "doc")
    commands = ["-c", f"helptags {tmp_path}/doc", "-c", "qall"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(
        [nvim, "--headless", "-u", "NONE", "-i", "NONE", *commands], env=environment, check=True
    )
    tags = {line.split("\t")[0] for line in (tmp_path / "doc" / "tags").read_text().splitlines()}
    links = set(re.findall(r"\|(:?[Dd]lsp[\w-]*)\|", (NVIM / "doc" / "dlsp.txt").read_text()))
    assert links
    assert links <= tags


def test_the_package_is_small_and_holds_what_it_needs(vsix: Path) -> None:
    assert vsix.stat().st_size < 1_000_000
    with zipfile.ZipFile(vsix) as package:
        names = {name.removeprefix("extension/") for name in package.namelist()}
        manifest = json.loads(package.read("extension/package.json"))
    assert {"dist/extension.js", "media/icon.png", "changelog.md", "readme.md"} <= names
    assert not [name for name in names if name.startswith(("src/", "node_modules/"))]
    steps = manifest["contributes"]["walkthroughs"][0]["steps"]
    assert {step["media"]["markdown"] for step in steps} <= names


def test_no_registry_is_named() -> None:
    assert '"resolved"' not in (VSCODE / "package-lock.json").read_text()


def test_settings_are_the_servers() -> None:
    """The settings of the extension are those of the server, and two of its own."""
    from dlsp.config.settings import Settings

    manifest = json.loads((VSCODE / "package.json").read_text())
    shown = {
        name.removeprefix("dlsp.")
        for name in manifest["contributes"]["configuration"]["properties"]
    }
    fields = [
        name for name in Settings.__dataclass_fields__ if name not in ("developer", "engine_token")
    ]
    camel = {re.sub(r"_(.)", lambda found: found[1].upper(), name) for name in fields}
    assert shown == camel | {"python", "package"}

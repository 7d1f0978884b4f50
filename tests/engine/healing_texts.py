"""Files of ten languages, and real ones of this machine, made awkward: emoji, CJK, tabs, CRLF."""

from __future__ import annotations

import json.decoder
import textwrap
from pathlib import Path

from tests.engine.syntax_samples import SAMPLES

_LANGUAGES = (
    "python", "javascript", "typescript", "go", "rust",
    "c", "java", "ruby", "php", "bash",
)  # fmt: skip
#: Lines of comment as people write them; each goes into some of the files.
_REMARKS = (
    "// TODO(王): don't 跳过 空行 — see §4 ½ ①",
    "# 🎉👩‍💻 fait à la main, e\u0301te\u0301: 12345 'we've' it's",
    "/* привет,\tмир!  مرحبا بالعالم  नमस्ते दुनिया */",
    "x  =  [0x1F,\t1_000.5e-3,   '\u200b', \"\\u00e9\"];   ",
    "日本語テスト。　全角　空白、𝒜𝓁𝑔 🇩🇪❤️",
)


def _awkward(number: int, sample: str) -> str:
    lines = sample.split("\n")
    for turn, remark in enumerate(_REMARKS):
        lines.insert((number * 3 + turn * 5) % (len(lines) + 1), remark)
    if number % 3 == 1:
        lines = [line.replace("    ", "\t") for line in lines]
    return ("\r\n" if number % 2 else "\n").join(lines)


TEXTS = {name: _awkward(n, SAMPLES[name]) for n, name in enumerate(_LANGUAGES)} | {
    "json/decoder.py": Path(json.decoder.__file__).read_text(encoding="utf-8")[:1500],
    "textwrap.py": Path(textwrap.__file__).read_text(encoding="utf-8")[2000:3500],
    "deep": "".join("\t" * n + " " * (40 - n) + "x\n" + "\n" * n for n in range(0, 40, 6)),
}

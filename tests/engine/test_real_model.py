"""What only the real weights can show. Slow: run with `-m model`."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.engine import Engine
from engine.request import InfillRequest

pytestmark = pytest.mark.model

FILES = ("textwrap.py", "shlex.py", "bisect.py", "heapq.py", "fnmatch.py", "sched.py", "cmd.py")
HOLES = 40


@pytest.fixture(scope="module", params=["qwen", "smollm2"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    weights: Path = request.getfixturevalue(request.param)
    yield Engine.load(request.param, weights=weights)


@pytest.fixture(scope="module")
def qwen_engine(qwen: Path) -> Engine:
    return Engine.load("qwen2.5-coder-0.5b", weights=qwen)


def _library(name: str) -> str:
    return (Path(sysconfig.get_path("stdlib")) / name).read_text(encoding="utf-8")


def _holes(count: int) -> Iterator[InfillRequest]:
    """Cuts of the standard library: start of a line, between words, inside a token."""
    rng = random.Random(2024)
    for n in range(count):
        text = _library(FILES[n % len(FILES)])
        cut = rng.randrange(400, len(text) - 400)
        if n % 3 == 0:
            cut = text.rfind("\n", 0, cut) + 1
        elif n % 3 == 1:
            cut = max(text.rfind(" ", 0, cut), text.rfind("(", 0, cut)) + 1
        else:
            while not (text[cut - 1].isalpha() and text[cut].isalpha()):
                cut += 1
        after = text.find("\n", cut) if n % 2 else cut
        yield InfillRequest(
            prefix=text[max(0, cut - 900) : cut],
            suffix=text[after : after + 400],
            max_tokens=12,
            temperature=0.0 if n % 8 else 0.6,
            seed=n,
            syntax=False,
        )


def test_verified_equals_ar_token_for_token(engine: Engine) -> None:
    excused, tokens, forwards = 0, 0, 0
    for request in _holes(HOLES):
        ar = engine.infill(replace(request, mode="ar"))
        verified = engine.infill(replace(request, mode="verified"))
        assert ar.forwards == ar.tokens
        tokens, forwards = tokens + verified.tokens, forwards + verified.forwards
        if (ar.text, ar.finish_reason) != (verified.text, verified.finish_reason):
            assert ar.near_ties + verified.near_ties > 0, request
            excused += 1
    assert excused <= 2
    assert tokens > forwards > 0  # drafts were taken: otherwise this proved nothing


def test_int8_is_close_to_float(qwen: Path) -> None:
    text = _library("heapq.py")[4000:]
    found = {}
    for precision in ("int8", "float32"):
        engine = Engine.load("qwen2.5-coder-0.5b", weights=qwen, precision=precision)
        ids = engine.tokenizer.encode(text)[:200]
        with torch.inference_mode():
            found[precision] = engine.runner.base.logits(
                engine.runner.base.encode(ids, engine.runner.base.new_stream())
            )
        del engine
    exact, rough = found["float32"], found["int8"]
    assert float((exact.argmax(-1) == rough.argmax(-1)).float().mean()) >= 0.93
    distance = (exact.softmax(-1) - rough.softmax(-1)).abs().sum(-1) / 2
    assert float(distance.mean()) < 0.06


@pytest.mark.parametrize(
    ("prefix", "suffix", "accepted"),
    [
        (
            "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + ",
            "\n\n\nprint(fib(10))\n",
            {"fib(n - 2)", "fib(n-2)"},
        ),
        (
            "def swap(pair):\n    first, second = pair\n    return second, fir",
            "\n\n\nassert swap((1, 2)) == (2, 1)\n",
            {"st"},
        ),
        (
            "import json\n\n\ndef load(path):\n    with open(path) as file:\n        return json.",
            "(file)\n",
            {"load"},
        ),
    ],
)
def test_a_hole_with_a_known_answer(
    qwen_engine: Engine, prefix: str, suffix: str, accepted: set[str]
) -> None:
    request = InfillRequest(prefix=prefix, suffix=suffix, language="python", max_tokens=16)
    result = qwen_engine.infill(request)
    assert result.text.strip() in accepted
    assert result.syntax == "ok"

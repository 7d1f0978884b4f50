"""The function around a line is found, whole enough to be judged, whatever stands around it."""

from __future__ import annotations

import ast

import pytest

from engine.python_block import block_around

TEXT = '''\
import os

class Tree(Base):
    """A tree."""

    def one(self):
        return 1

    @property
    def two(
        self,
        deep=0,
    ):
        for leaf in self:
            if leaf:
                print(leaf)
            else:
                print(deep)
        return 2

    def three(self):
        return 3

if os.name:
    x = 1
else:
    y = 2
'''
SOURCE = TEXT.split("\n")
#: What these belong to stands below, in another block.
APART = ("    @property", "if os.name:")


@pytest.mark.parametrize(
    "line", [n for n, text in enumerate(SOURCE) if text.strip() and n and text not in APART]
)
def test_what_is_kept_of_a_file_parses_as_the_file_does(line: int) -> None:
    head, tail = block_around(SOURCE[:line], SOURCE[line + 1 :])
    ast.parse(head + SOURCE[line] + tail)


def test_only_the_function_is_kept() -> None:
    at = SOURCE.index("                print(leaf)")
    head, tail = block_around(SOURCE[:at], SOURCE[at + 1 :])
    assert head.splitlines()[:2] == ["if 1:", "    def two("]
    assert tail.splitlines()[-1] == "        return 2"


def test_nothing_is_said_of_a_function_that_begins_far_above() -> None:
    long = ["def f():", *(f"    x{n} = {n}" for n in range(900))]
    assert block_around(long, ["    return x1"]) == ("", "")
    assert block_around([], ["x = 1"]) == ("", "")

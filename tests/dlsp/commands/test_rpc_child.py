"""JSON-RPC with a child process: results, notifications, refusals, and a child that ends early."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from dlsp.commands.rpc_child import ChildLost, RpcChild

#: A child that echoes, notifies, refuses, asks back, and ends with last words.
CHILD = """
import json, sys
def say(**message):
    body = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()
    head = b"Content-Type: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
    sys.stdout.buffer.write(head + body)
    sys.stdout.buffer.flush()
def hear():
    length = 0
    while line := sys.stdin.buffer.readline().strip():
        length = int(line.split(b":")[1])
    return json.loads(sys.stdin.buffer.read(length)) if length else None
while message := hear():
    number, method = message.get("id"), message["method"]
    if method == "echo":
        sys.stderr.write("x" * 300_000)
        say(method="told", params={"about": message["params"]})
        say(method="nobody/listens", params={})
        say(id=number, result=message["params"])
    elif method == "refuse":
        say(id=number, error={"code": -32603, "message": "not today"})
    elif method == "ask":
        say(id="q", method="workspace/configuration", params={})
        answer = hear()
        say(id=number, result=[answer["id"], answer["error"]["code"]])
    elif method == "garble":
        sys.stdout.write("Content-Length: 3\\r\\n\\r\\n{{{")
        sys.stdout.flush()
    elif method == "end":
        sys.exit("\\nwarning: first\\nmy last words\\n")
"""


async def start(told: list[dict[str, Any]] | None = None) -> RpcChild:
    listeners = {} if told is None else {"told": told.append}
    return await RpcChild.start((sys.executable, "-c", CHILD), listeners)


async def test_requests_notifications_and_questions() -> None:
    told: list[dict[str, Any]] = []
    child = await start(told)
    try:
        both = await asyncio.gather(child.request("echo", "é😀"), child.request("echo", [1, None]))
        assert both == ["é😀", [1, None]]
        assert told == [{"about": "é😀"}, {"about": [1, None]}]
        assert await child.request("ask", None) == ["q", -32601]
        with pytest.raises(ChildLost, match="refused refuse: not today"):
            await child.request("refuse", None)
        assert await child.request("echo", 1) == 1
    finally:
        child.abandon()
        await child.wait()


async def test_what_waits_and_what_follows_learns_of_the_end() -> None:
    child = await start()
    try:
        with pytest.raises(ChildLost, match="ended early: my last words") as caught:
            await child.request("end", None)
        assert caught.value.exit_code == 6
        with pytest.raises(ChildLost, match="my last words"):
            await child.request("echo", 1)
        await child.wait()
    finally:
        child.abandon()


async def test_a_broken_protocol_is_an_end_too() -> None:
    child = await start()
    try:
        with pytest.raises(ChildLost, match="it said nothing"):
            await child.request("garble", None)
    finally:
        child.abandon()
        await child.wait()

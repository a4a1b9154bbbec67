"""A client with a spool and its node, both killed with -9 again and again: all that was answered is stored, once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path

import pytest

import tocsin
from tests.crash.test_network import first_line, free_port, program
from tocsin.net import serve

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]
LIVES = 3


async def test_client_and_node_killed_at_random(tmp_path: Path) -> None:
    chance, port = random.Random(39), free_port()
    url, spool = f"file:{tmp_path / 'plant.db'}", tmp_path / "spool"
    address = f"ws://127.0.0.1:{port}"
    tried: list[str] = []
    answered: dict[str, str] = {}

    def live(stack: contextlib.ExitStack, number: int, has_server: bool) -> None:
        """One life of a client. Its node, if there is one, is killed and begins anew on the way."""
        server = stack.enter_context(program("server", url, port)) if has_server else None
        if server is not None:
            assert first_line(server) == address
        client = stack.enter_context(program("spooler", f"{address} {spool}", number))
        end = chance.randrange(30, 400)
        death = chance.randrange(end)
        assert client.stdout is not None
        for lines, line in enumerate(client.stdout):
            if not line.endswith("\n"):
                break
            what, id = line.split()
            if what == "trying":
                tried.append(id)
            elif what in ("stored", "spooled"):
                answered[id] = what
            if lines == death and server is not None and number == 0:
                server.send_signal(signal.SIGKILL)
                server.wait()
                stack.enter_context(program("server", url, port))
            if lines == end:
                client.send_signal(signal.SIGKILL)

    for number in range(LIVES):
        with contextlib.ExitStack() as stack:
            await asyncio.to_thread(live, stack, number, number != 1)
    assert {"stored", "spooled"} <= set(answered.values()), "both ways were gone"
    async with tocsin.connect(url) as node, serve(node, port=port) as server:
        async with tocsin.connect(server.url, name="line-7", spool=spool) as bus:
            sub = await bus.subscribe("TRUE", past=tocsin.retained(), order="journal", auto_ack=True)
            last = await bus.publish(tocsin.Event("work", "line", id="last"))
            got = []
            async with asyncio.timeout(60):
                while not got or got[-1] != "last":
                    got.append((await sub.next()).event.id)
        assert last.offset is None or last.offset == len(got)
    assert len(got) == len(set(got)), "stored once"
    assert got[:-1] == sorted(got[:-1]), "in the order they were published"
    assert answered.keys() <= set(got), "what was answered is stored"
    assert set(got) - {"last"} <= set(tried)
    doubtful = set(tried) - answered.keys()
    assert len(doubtful) <= LIVES, "at most one of each life was not answered"

"""SIGTERM with streams, sessions and requests open: everything is told, nothing is lost, and the exit code is 0."""

from __future__ import annotations

import asyncio
import json
import time

from websockets.asyncio.client import connect as ws_connect

from tests.helpers import event, ids, soon, take, testing
from tests.http.node import node
from tests.http.support import BATCH, Listener, Wire, cloud


async def test_sigterm_drains_streams_and_sessions_and_exits_cleanly(file_url: str) -> None:
    with node(file_url) as process:
        stream = await opened(process.port, "/subscribe?consumer=ops&order=journal")
        silent = await opened(process.port, "/subscribe?consumer=silent&past=retained")
        silent.wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        idle = Wire(*await asyncio.open_connection("127.0.0.1", process.port))
        async with ws_connect(f"{process.ws}/bus", compression=None) as session:
            await session.send(json.dumps({"op": "hello", "version": 1}))
            assert json.loads(await soon(session.recv()))["op"] == "welcome"
            await publish(process.port, 3)
            assert await stream.take(3) == ["0", "1", "2"]
            begun = time.monotonic()
            code, errors = await asyncio.to_thread(process.end)
            assert (code, errors) == (0, "")
            assert time.monotonic() - begun < 10
            assert await stream.rest() == [] and stream.comments[-1] == "draining"
            frames = [json.loads(each)["op"] async for each in session]
            assert frames[-1:] == ["bye"]
        for wire in (stream.wire, silent.wire, idle):
            wire.writer.transport.abort()
            await asyncio.sleep(0)
    async with testing.node(file_url) as bus:
        assert ids(await take(bus, await bus.subscribe("TRUE", consumer="ops", order="journal"))) == []
        assert (await bus.publish(event("after"))).offset > 3


async def opened(port: int, path: str) -> Listener:
    wire = Wire(*await asyncio.open_connection("127.0.0.1", port))
    wire.send("GET", path, {})
    assert (await soon(wire.head()))[0] == 200
    return Listener(wire)


async def publish(port: int, count: int) -> None:
    wire = Wire(*await asyncio.open_connection("127.0.0.1", port))
    body = json.dumps([cloud(str(n)) for n in range(count)]).encode()
    wire.send("POST", "/events", {**BATCH, "content-length": str(len(body))}, body)
    assert (await soon(wire.answer())).status == 202
    wire.writer.close()
    await wire.writer.wait_closed()

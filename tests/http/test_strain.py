"""Strangers with bad manners, on raw sockets: each is bounded, and others notice nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.helpers import soon
from tests.http.support import STRUCTURED, Place, Wire, cloud, served, until
from tocsin.net.http import wire as wire_module


@asynccontextmanager
async def others_unaffected(place: Place) -> AsyncIterator[None]:
    """While this is open somebody publishes again and again, and never waits long."""
    loop, worst, count, done = asyncio.get_running_loop(), 0.0, 0, False

    async def publish() -> None:
        nonlocal worst, count
        while not done:
            begun = loop.time()
            assert (await place.publish(cloud(f"other-{count}"))).status == 202
            worst, count = max(worst, loop.time() - begun), count + 1

    task = asyncio.create_task(publish())
    try:
        yield
    finally:
        done = True
        await soon(task)
    assert count > 0 and worst < 5, f"somebody else waited {worst:.1f} s"


async def test_head_that_drips_is_given_up() -> None:
    async with served(hello=0.3) as place, others_unaffected(place):
        wires = [await place.open() for _ in range(50)]

        async def drip() -> None:
            for letter in b"GET /health HTTP/1.1\r\nx-slow: " + b"a" * 1000:
                for wire in wires:
                    wire.writer.write(bytes([letter]))
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        for wire in wires:
            assert await wire.is_closed()
        dripping.cancel()


async def test_connection_that_says_nothing_is_given_up() -> None:
    async with served(hello=0.2) as place, others_unaffected(place):
        wires = [await place.open() for _ in range(50)]
        for wire in wires:
            assert await wire.is_closed()


async def test_next_head_on_a_kept_connection_must_come_in_time_too() -> None:
    async with served(hello=0.2) as place:
        wire = await place.open()
        wire.send("GET", "/health", {})
        assert (await soon(wire.answer())).status == 200
        wire.writer.write(b"GET /health HTTP/1.1\r\n")
        assert await wire.is_closed()


async def test_empty_lines_keep_no_connection_open() -> None:
    async with served(hello=0.2) as place:
        for first in (True, False):
            wire = await place.open()
            if not first:
                wire.send("GET", "/health", {})
                assert (await soon(wire.answer())).status == 200

            async def drip(wire: Wire) -> None:
                while True:
                    wire.writer.write(b"\r\n")
                    await asyncio.sleep(0.02)

            dripping = asyncio.create_task(drip(wire))
            assert await wire.is_closed()
            dripping.cancel()


async def test_session_on_a_connection_that_was_used_before_has_bounds_of_its_own() -> None:
    async with served(hello=0.2) as place:
        wire = await place.open()
        wire.send("GET", "/health", {})
        assert (await soon(wire.answer())).status == 200
        key = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-version": "13"}
        wire.send("GET", "/bus", {"connection": "Upgrade", "upgrade": "websocket", **key})
        assert (await soon(wire.head()))[0] == 101
        for number, said in enumerate((b'{"op":"hello","version":1}', b'{"op":"ping","n":1}', b'{"op":"ping","n":2}')):
            wire.writer.write(b"\x81" + bytes([0x80 | len(said)]) + bytes(4) + said)
            answer = await soon(wire.reader.read(65_536))
            assert answer and (b"welcome" if number == 0 else b"pong") in answer
            await asyncio.sleep(0.15)  # longer than a head may take, all together


async def test_body_that_stops_is_told_and_given_up() -> None:
    async with served(hello=0.2) as place, others_unaffected(place):
        wire = await place.open()
        wire.send("POST", "/events", {**STRUCTURED, "content-length": "1000"}, b"{")
        answer = await soon(wire.answer())
        assert answer.error == (408, "ProtocolError")
        assert await wire.is_closed()
        assert place.server.http.bodies.held < 1000


async def test_body_that_nobody_wants_is_not_taken_for_ever() -> None:
    """The answer comes first; then what still comes is dropped for a while, and the connection with it."""
    async with served(hello=0.3) as place:
        wire = await place.open()
        wire.send("POST", "/events", {**STRUCTURED, "content-length": str(1 << 30)})
        assert (await soon(wire.answer())).error == (413, "ProtocolError")

        async def pour() -> None:
            while True:
                wire.writer.write(b"x" * 1000)
                await asyncio.sleep(0.01)

        pouring = asyncio.create_task(pour())
        assert await wire.is_closed()
        pouring.cancel()


async def test_refused_body_that_comes_whole_leaves_the_connection_usable() -> None:
    async with served(hello=5) as place:
        wire = await place.open()
        body = b"x" * 100_000
        wire.send("POST", "/alerts", {"content-length": str(len(body))}, body)
        assert (await soon(wire.answer())).status == 405
        wire.send("GET", "/health", {})
        assert (await soon(wire.answer())).status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 200_000, 431),
        (b"GET /" + b"a" * 200_000, 431),
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 300 + b"\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET  HTTP/1.1\r\n\r\n", 400),
        (b"GET \xff\xfe HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"POST /events HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /events HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
    ],
)
async def test_what_is_no_request_is_refused(head: bytes, status: int) -> None:
    async with served() as place:
        wire = await place.open()
        wire.writer.write(head)
        found = await soon(wire.answer())
        assert found.status == status and json.loads(found.body)["error"] == "ProtocolError"
        assert await wire.is_closed()


async def test_more_connections_than_there_may_be_are_refused_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "MOST", 20)
    async with served() as place:
        wires = [await place.open() for _ in range(20)]
        answer = await soon((await place.open()).answer())
        assert answer.error == (503, "OverloadError")
        for wire in wires[:5]:
            wire.writer.transport.abort()
        wires[-1].send("GET", "/health", {})
        assert (await soon(wires[-1].answer())).status == 200
        assert (await place.get("/health")).status == 200


async def test_half_open_connections_cost_little() -> None:
    """Clients that open a stream and are never heard again: the node forgets them when the socket does."""
    async with served(beat=0.05) as place, others_unaffected(place):
        wires = [await place.open() for _ in range(20)]
        for wire in wires:
            wire.send("GET", "/subscribe", {})
            await soon(wire.head())
        await until(lambda: len(place.server.http.streams) == 20)
        for wire in wires:
            wire.writer.transport.abort()
        await until(lambda: not place.server.http.streams)
        assert not place.server.node.mailboxes

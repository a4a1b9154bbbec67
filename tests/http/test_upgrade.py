"""Strangers at `WS /bus`, before it is known who they are: they hold no connection, no memory and no log."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.helpers import soon
from tests.http.support import Place, Wire, served
from tocsin.net.http.upgraded import FIRST

UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
}
TEXT, PING = 0x81, 0x89
HELLO = b'{"op":"hello","version":1}'


def frame(kind: int, data: bytes) -> bytes:
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xff" + len(data).to_bytes(8, "big")
    return bytes([kind]) + size + bytes(4) + data


async def upgraded(place: Place) -> Wire:
    wire = await place.open()
    wire.send("GET", "/bus", UPGRADE)
    assert (await soon(wire.head()))[0] == 101
    return wire


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/bus", {"x": "a" * 9_000}, b""),
        ("/bus", {f"x{number}": "a" for number in range(200)}, b""),
        ("/bus?" + "a" * 9_000, {}, b""),
        ("/bus", {"content-length": "5"}, b"hello"),
    ],
)
async def test_head_that_is_none_of_a_websocket_is_refused_at_once(
    path: str, headers: dict[str, str], body: bytes
) -> None:
    async with served() as place:
        wire = await place.open()
        wire.send("GET", path, {**UPGRADE, **headers}, body)
        assert (await soon(wire.answer())).error == (400, "ProtocolError")
        assert await wire.is_closed()


async def test_who_is_not_known_sends_little_at_a_time() -> None:
    async with served() as place:
        wire = await upgraded(place)
        wire.writer.write(frame(TEXT, b" " * (FIRST + 1))[:100])  # told from its first bytes
        said = await soon(wire.reader.read(4))
        assert said[:1] == b"\x88" and int.from_bytes(said[2:4], "big") == 1009
        assert await wire.is_closed()

        known = await upgraded(place)
        known.writer.write(frame(TEXT, HELLO))
        assert b"welcome" in await soon(known.reader.read(65_536))
        known.writer.write(frame(TEXT, b'{"op":"ping","n":7}' + b" " * (2 * FIRST)))
        assert b'"n":7' in await soon(known.reader.read(65_536))


async def test_pings_of_who_does_not_read_are_not_all_answered() -> None:
    async with served(hello=60) as place:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", place.port))
        peer.setblocking(False)
        wire = Wire(*await asyncio.open_connection(sock=peer))
        wire.send("GET", "/bus", UPGRADE)
        assert (await soon(wire.head()))[0] == 101
        many = 40_000
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(many // 1000):
            wire.writer.write(frame(PING, bytes(125)) * 1000)
            await soon(wire.writer.drain())
        wire.writer.write(frame(TEXT, HELLO))
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answers, rest = 0, b""
        while b"welcome" not in rest:
            rest = rest[-6:] + await soon(wire.reader.read(1 << 16))
            answers += rest.count(b"\x8a\x7d")  # one at a seam may count twice
        assert 0 < answers < many
        wire.writer.close()


async def test_no_stranger_fills_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as place:
        wire = await upgraded(place)
        wire.writer.write(frame(TEXT, b"\xff"))
        said = await soon(wire.reader.read(4))
        assert int.from_bytes(said[2:4], "big") == 1007
        assert await wire.is_closed()
        head = b"GET /health HTTP/1.1\r\nhost: localhost\r\nupgrade: h2c\r\nconnection: upgrade, close\r\n\r\n"
        for odd in (b"nonsense\r\n\r\n", head):
            other = await place.open()
            other.writer.write(odd)
            assert await other.is_closed()
    assert caplog.records == []

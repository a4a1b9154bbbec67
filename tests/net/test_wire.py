"""The client's socket against a server that says what it likes."""

from __future__ import annotations

import asyncio
import base64
import hashlib

import pytest
from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode

from tocsin.remote.wire import Socket

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
GOOD, AFTER = Frame(Opcode.BINARY, b"good").serialize(mask=False), Frame(Opcode.BINARY, b"after").serialize(mask=False)


async def heard_of(with_head: bytes, then: bytes) -> list[bytes]:
    """What a client takes of a server that says this with its head, and that when the client listens."""
    is_listening = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        [key] = [line.split(b": ")[1] for line in head if line.lower().startswith(b"sec-websocket-key")]
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + with_head
        )
        await is_listening.wait()
        writer.write(then)
        writer.close()

    taken: list[bytes] = []
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with connect(url, create_connection=Socket, compression=None, close_timeout=1) as socket:
            assert isinstance(socket, Socket)
            socket.take = taken.append
            is_listening.set()
            await socket.wait_closed()
    return taken


@pytest.mark.parametrize(
    "end", [b"\x83\x00", Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=False)], ids=["nonsense", "goodbye"]
)
async def test_nothing_is_taken_after_the_end(end: bytes) -> None:
    assert await heard_of(b"", GOOD + end + AFTER) == [b"good"]


async def test_a_part_of_a_frame_that_came_with_the_head_and_ends_like_one() -> None:
    message = b"ab\r\n\r\n" + b"\x82\x03abc" * 8
    whole = Frame(Opcode.BINARY, message).serialize(mask=False)
    assert whole[:8].endswith(b"\r\n\r\n")
    assert await heard_of(whole[:8], whole[8:] + GOOD) == [message, b"good"]

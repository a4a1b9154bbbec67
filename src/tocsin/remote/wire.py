"""One connection to a node: hello, frames out in order, frames in as they come, and a beat when nothing was said.

A wire ends once: when the socket closes, when the node says what means nothing, or after too much silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidURI
from websockets.typing import Subprotocol

from tocsin.errors import NetworkError, OverloadError, ProtocolError, ReplacedError, TocsinError
from tocsin.net import frames
from tocsin.net.faults import from_wire
from tocsin.net.protocol import BROKEN, MSGPACK
from tocsin.remote.credentials import Credentials

__all__ = ["Lost", "Wire", "open_socket", "replaced"]

PATH: Final = "/bus"
_log = logging.getLogger("tocsin.remote")


class Lost(Exception):
    """The connection was lost before the answer came; inside only."""


def replaced(name: str | None) -> ReplacedError:
    """The error for a session whose name another one has now."""
    return ReplacedError(f"a newer session has the name {name!r}", help="give every program its own name")


@asynccontextmanager
async def open_socket(url: str, credentials: Credentials, patience: float) -> AsyncIterator[ClientConnection]:
    """A WebSocket to a node.

    Raises:
        InvalidURI: the url is none.
        OSError, TimeoutError, InvalidHandshake: it cannot be reached.
    """
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna"), parts.port  # what is none is told by an error
    except ValueError as error:
        raise InvalidURI(url, str(error)) from None
    async with connect(
        url.rstrip("/") + PATH,
        subprotocols=[Subprotocol(MSGPACK.name)],
        compression=None,
        ping_interval=None,
        max_size=None,
        open_timeout=patience,
        close_timeout=1,
        ssl=credentials.context(url),
    ) as socket:
        yield socket


class Wire:
    """A connection on which hello was said."""

    def __init__(self, socket: ClientConnection, take: Callable[[frames.ServerFrame], None]) -> None:
        """Use a socket; `take` gets every frame."""
        self._socket, self._take = socket, take
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._said = self._heard = self._loop.time()

    async def greet(self, hello: frames.Hello) -> frames.Welcome:
        """Say hello; returns the welcome.

        Raises:
            NetworkError, OverloadError: the node does not let you in.
            Lost: not now.
        """
        await self._socket.send(MSGPACK.encode(hello))
        first = MSGPACK.from_server(await self._socket.recv())
        if isinstance(first, frames.Failed):
            refusal = from_wire(first.error)
            raise refusal if isinstance(refusal, NetworkError | OverloadError) else NetworkError(str(refusal))
        if isinstance(first, frames.Bye):
            raise replaced(hello.name) if first.reason == "replaced" else Lost
        if not isinstance(first, frames.Welcome):
            raise ProtocolError("the node does not welcome", help="is this a Tocsin node?")
        return first

    def put(self, message: bytes) -> None:
        """Send a frame after those before it."""
        self._waiting.append(message)
        self._wake.set()

    def begin(self, limits: dict[str, float]) -> list[asyncio.Task[None]]:
        """Start to work; when one of these is done, the connection is at its end. The first is done when it is."""
        return [self._loop.create_task(work) for work in (self._read(), self._write(), self._beat(limits))]

    @property
    def refusal(self) -> ProtocolError | None:
        """Why the node has closed it, if what was sent would be refused again."""
        if self._socket.close_code != BROKEN:
            return None
        return ProtocolError(f"the node has refused: {self._socket.close_reason}")

    async def close(self) -> None:
        """Send what waits, say goodbye, and end."""
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(5):
                while self._waiting:
                    await self._socket.send(self._waiting.popleft())
                await self._socket.send(MSGPACK.encode(frames.Bye("closed")))
                await self._socket.close()

    def abort(self) -> None:
        """Break off without a word, as a crash would."""
        self._socket.transport.abort()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                self._heard = self._loop.time()
                self._take(MSGPACK.from_server(message))
        except ConnectionClosed:
            pass
        except TocsinError as error:
            _log.error("the node says what means nothing: %s", error)

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._socket.send(self._waiting.popleft())
                self._said = self._loop.time()

    async def _beat(self, limits: dict[str, float]) -> None:
        while self._loop.time() - self._heard < limits["silence"]:
            await asyncio.sleep(limits["beat"] / 3)
            if self._loop.time() - self._said > limits["beat"]:
                self.put(MSGPACK.encode(frames.Ping()))

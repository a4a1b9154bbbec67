"""One connection to a node: hello, frames out in order, frames in as they come, and a beat when nothing was said.

A wire ends once: when the socket closes, when the node says what means nothing, or after too much silence.

What is said in one turn of the loop is written at once, and what is heard is handed over as it is read: a queue and a
task for every message would cost more than the message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidURI
from websockets.frames import DATA_OPCODES, Frame
from websockets.protocol import Event, State
from websockets.typing import Subprotocol

from tocsin.errors import NetworkError, OverloadError, ProtocolError, ReplacedError, TocsinError
from tocsin.net import frames
from tocsin.net.faults import from_wire
from tocsin.net.framing import Splitter, framed
from tocsin.net.protocol import BROKEN, MSGPACK
from tocsin.remote.credentials import Credentials

__all__ = ["Lost", "Socket", "Wire", "open_socket", "replaced"]

PATH: Final = "/bus"
_log = logging.getLogger("tocsin.remote")


class Lost(Exception):
    """The connection was lost before the answer came; inside only."""


def replaced(name: str | None) -> ReplacedError:
    """The error for a session whose name another one has now."""
    return ReplacedError(f"a newer session has the name {name!r}", help="give every program its own name")


class Socket(ClientConnection):
    """A WebSocket that hands messages over as they are read, and writes many at once."""

    take: Callable[[bytes], None] | None = None
    """Gets every message, once it is set."""

    _parts: tuple[bytes, ...] = ()
    _splitter: Splitter | None = None  # if it is known where frames begin

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._splitter is not None:
            self._splitter.feed(data, self._hand_over if self.take is not None else None, super().data_received, None)
            return
        is_head = self.response is None
        super().data_received(data)
        # Only if it is the head and nothing else is it known where frames begin.
        if is_head and self.response is not None and data.find(b"\r\n\r\n") == len(data) - 4:
            self._splitter = Splitter(masked=False)

    def _hand_over(self, message: bytes) -> None:
        is_over = self.protocol.close_rcvd is not None or self.protocol.parser_exc is not None
        if self.take is not None and not is_over:  # what came before this one may have been the end
            self.take(message)

    def process_event(self, event: Event) -> None:
        """See `ClientConnection`."""
        if self.take is None or not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
        elif event.fin and not self._parts:
            self.take(bytes(event.data))
        else:  # a proxy may have cut it
            self._parts += (bytes(event.data),)
            if event.fin:
                parts, self._parts = self._parts, ()
                self.take(b"".join(parts))

    def write(self, messages: Iterable[bytes]) -> None:
        """Write messages, without waiting for room."""
        if self.protocol.state is State.OPEN:
            self.transport.write(framed(messages, binary=True, masked=True))


@asynccontextmanager
async def open_socket(url: str, credentials: Credentials, patience: float) -> AsyncIterator[Socket]:
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
        create_connection=Socket,
    ) as socket:
        assert isinstance(socket, Socket)
        yield socket


class Wire:
    """A connection on which hello was said."""

    def __init__(self, socket: Socket, take: Callable[[frames.ServerFrame], None]) -> None:
        """Use a socket; `take` gets every frame after the welcome."""
        self._socket, self._take = socket, take
        self._waiting: list[bytes] = []
        self._is_flushing = False
        self._draining: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._first: asyncio.Future[frames.ServerFrame] = self._loop.create_future()
        self._over = asyncio.Event()
        self._said = self._heard = self._loop.time()
        socket.take = self._read

    async def greet(self, hello: frames.Hello, patience: float) -> frames.Welcome:
        """Say hello; returns the welcome, which must come within so many seconds.

        Raises:
            NetworkError, OverloadError: the node does not let you in.
            ProtocolError: what it says is no frame.
            Lost: not now.
        """
        self.put(MSGPACK.encode(hello))
        closing = self._loop.create_task(self._socket.wait_closed())
        try:
            either: list[asyncio.Future[Any]] = [self._first, closing]
            await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
        if not self._first.done():
            raise Lost(self._socket.close_reason or "it says nothing")
        first = self._first.result()
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
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def begin(self, limits: dict[str, float]) -> list[asyncio.Task[None]]:
        """Start to work; when one of these is done, the connection is at its end. The first is done when it is."""
        return [self._loop.create_task(work) for work in (self._closed(), self._beat(limits), self._failed())]

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
                waiting, self._waiting = self._waiting, []
                self._socket.write(waiting)
                await self._socket.send(MSGPACK.encode(frames.Bye("closed")))
                await self._socket.close()

    def abort(self) -> None:
        """Break off without a word, as a crash would."""
        self._socket.transport.abort()

    def _read(self, message: bytes) -> None:
        self._heard = self._loop.time()
        if self._over.is_set():
            return
        try:
            frame = MSGPACK.from_server(message)
            if self._first.done():
                self._take(frame)
            else:
                self._first.set_result(frame)
        except TocsinError as error:
            if not self._first.done():
                self._first.set_exception(error)
                return
            _log.error("the node says what means nothing: %s", error)
            self._over.set()
        except Exception:
            _log.exception("what the node says cannot be taken")
            self._over.set()

    def _flush(self) -> None:
        """Write what waits, unless so much was written that the socket takes no more for now."""
        self._is_flushing = False
        if self._socket.paused:
            self._is_flushing = True
            self._draining = self._loop.create_task(self._drain())
            return
        waiting, self._waiting = self._waiting, []
        self._socket.write(waiting)
        self._said = self._loop.time()

    async def _drain(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._socket.drain()
            self._flush()

    async def _closed(self) -> None:
        await self._socket.wait_closed()

    async def _failed(self) -> None:
        await self._over.wait()

    async def _beat(self, limits: dict[str, float]) -> None:
        while self._loop.time() - self._heard < limits["silence"]:
            await asyncio.sleep(limits["beat"] / 3)
            if self._loop.time() - self._said > limits["beat"]:
                self.put(MSGPACK.encode(frames.Ping()))

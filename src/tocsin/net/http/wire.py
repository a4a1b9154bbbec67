"""Connections of strangers: what is wrong before there is a request.

uvicorn waits for ever for the head of a request, and reads heads of any size. This is its protocol with bounds:

    - a head must come within `hello` seconds, however slowly its bytes drip, and have at most `HEAD` bytes;
    - a body that nobody wants any more is let in for `hello` seconds, so that the client reads the answer first;
    - there are at most so many connections as the process has files for;
    - a peer that acknowledges nothing for `stuck` seconds is lost: TCP alone would wait for a quarter of an hour.

A WebSocket has bounds of its own: see `upgraded`.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from typing import Any, Final, cast

import msgspec
from starlette.types import Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tocsin.errors import OverloadError, ProtocolError, TocsinError
from tocsin.net.protocol import Limits

__all__ = ["HEAD", "MOST", "WIRE", "Wire", "guarded", "left", "say", "wire_of"]

HEAD: Final = 64 * 1024
"""Bytes of a request before its body."""
HEADERS: Final = 256
"""Headers of a request."""
MOST: Final = 10_000
"""Connections at a time, if the process may have so many files."""
_SPARE: Final = 64  # files for other things
_UNREAD: Final = 64 * 1024  # bytes a stream may have in the kernel that nobody has taken
WIRE: Final = "tocsin.wire"
"""Where the scope of a request has its connection."""


class Wire:
    """The connection below a request."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        """Hold a connection; None: it is not known."""
        self._transport = transport

    @property
    def lost(self) -> bool:
        """Is it known to be over?"""
        return self._transport is not None and self._transport.is_closing()

    def abort(self) -> None:
        """End it at once, whatever waits to be sent."""
        if self._transport is not None:
            self._transport.abort()

    def keep_short(self) -> None:
        """Hold little for the client: what was sent is then nearly what it has."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=1, low=0)  # with 0, TLS waits for less than nothing
            with contextlib.suppress(OSError):
                peer = self._transport.get_extra_info("socket")
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD)


class _TooLong(Exception):
    """The head of a request has no end."""


class Guarded(HttpToolsProtocol):
    """uvicorn's protocol, with bounds."""

    limits: Limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._wire = Wire(transport)
        self._deadline: asyncio.TimerHandle | None = None
        self._in_head, self._head_bytes, self._is_upgraded = True, 0, False
        peer = transport.get_extra_info("socket")
        if peer is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            with contextlib.suppress(OSError):
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self.limits.stuck * 1000))
        if len(self.connections) > _most():
            self._refuse(503, OverloadError("the node has all the connections it can have", help="try again later"))
        else:
            self._expect(self.limits.hello)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_upgraded:
            return
        if self._in_head and self._head_bytes > HEAD and not self.transport.is_closing():
            self._refuse(431, ProtocolError("the head of the request is too long", help=f"up to {HEAD:,} bytes"))
        cycle: Any = self.cycle
        if self._deadline is None and cycle is not None and cycle.response_complete and not self.transport.is_closing():
            # A body that nobody wants any more, or empty lines; yet uvicorn has stopped its own clock.
            self._expect(self.limits.hello)

    def handle_websocket_upgrade(self) -> None:
        """It is a session's from now on, which has bounds of its own."""
        self._is_upgraded = True
        self._calm()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(400, ProtocolError("this is no request of HTTP", help="send HTTP/1.1"))

    # -- the parser's events

    def on_message_begin(self) -> None:
        """See `httptools`."""
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[WIRE] = self._wire
        self._in_head, self._header_bytes = True, 0
        self._expect(self.limits.hello)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See `httptools`."""
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEAD or len(self.headers) > HEADERS:
            raise _TooLong

    def on_headers_complete(self) -> None:
        """See `httptools`."""
        self._in_head, self._head_bytes = False, 0
        self._calm()
        super().on_headers_complete()

    # -- time

    def _expect(self, seconds: float) -> None:
        """Something must have come by then."""
        self._calm()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _calm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def _refuse(self, status: int, error: TocsinError) -> None:
        """Answer what is no request, and close."""
        say(self.transport, status, error)
        self._expect(self.limits.hello)  # should it not take even that


def say(transport: asyncio.Transport, status: int, error: TocsinError) -> None:
    """Answer what is no request, and close."""
    body = msgspec.json.encode(error.as_dict())
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
    transport.close()


def _most() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST, files - _SPARE) if files > 2 * _SPARE else MOST


def guarded(limits: Limits) -> type[Guarded]:
    """The protocol with these limits, for `uvicorn.Config(http=…)`."""
    return type("Guarded", (Guarded,), {"limits": limits})


def wire_of(scope: Scope) -> Wire:
    """The connection of a request; one that does nothing if this is not our listener."""
    found: Any = scope.get(WIRE)
    return found if isinstance(found, Wire) else Wire(None)


async def left(receive: Receive) -> None:
    """Wait until the client is gone; to be used when the body was read, or is not wanted."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""A WebSocket: uvicorn's protocol, with bounds, and with messages that need no queue and no task.

ASGI hands over one message at a time, through a queue, to a task that must wake up for it, and sends one at a time.
Here whoever has upgraded a connection may have messages handed to it as they are read, and write many at once; that is
half of what a small message costs. Nor does the library see those of the usual kind (see `framing`). Opening, closing
and everything unusual stay theirs.

Bounds: the head has smaller limits than a request's, who has not been let in yet sends little at a time, and who does
not read is owed no answers to its pings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tocsin.errors import ProtocolError
from tocsin.net.framing import Splitter, framed
from tocsin.net.http.wire import WIRE, Wire, say

__all__ = ["FIRST", "Upgraded", "UpgradedWire", "upgraded"]

FIRST: Final = 64 * 1024
"""Bytes of a message until it is known whose it is."""
Take = Callable[[bytes | str | None], None]


class Upgraded(WebSocketsSansIOProtocol):
    """uvicorn's protocol of a WebSocket, with bounds."""

    take: Take | None = None
    """Gets every message, if somebody has asked for them; None: there is no other."""
    drained: Callable[[], None] | None = None
    """Called when the socket takes more again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.conn.max_message_size = FIRST
        self._splitter = Splitter(masked=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        super().connection_lost(exc)
        self._end()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().resume_writing()
        if self.drained is not None:
            self.drained()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self.handshake_initiated:
            take = self._hand_over if self.take is not None else None
            self._splitter.feed(data, take, super().data_received, self.conn.max_message_size)
            return
        super().data_received(data)  # the head, and nothing else: uvicorn has read it before
        if self.conn.handshake_exc is not None and not self.transport.is_closing():
            # A head that HTTP takes and WebSocket does not; uvicorn would say nothing, and wait for ever.
            say(self.transport, 400, ProtocolError("this is no head of a WebSocket", help="see RFC 6455"))

    def handle_connect(self, event: Any) -> None:
        """See `WebSocketsSansIOProtocol`."""
        super().handle_connect(event)
        if not self.close_sent:
            cast(dict[str, Any], self.scope)[WIRE] = UpgradedWire(self)

    def handle_ping(self) -> None:
        """Answer, unless so much waits for the peer already: it need not get an answer to each."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_close(self, event: Any) -> None:
        """See `WebSocketsSansIOProtocol`."""
        super().handle_close(event)
        self._end()

    def handle_parser_exception(self) -> None:
        """See `WebSocketsSansIOProtocol`."""
        super().handle_parser_exception()
        self._end()

    def shutdown(self) -> None:
        """See `WebSocketsSansIOProtocol`."""
        super().shutdown()
        self._end()

    def _end(self) -> None:
        take, self.take = self.take, None
        if take is not None:
            take(None)

    def send_receive_event_to_app(self) -> None:
        """Hand a message over. Text that is none is refused without a word in the log, which strangers could fill."""
        if self.curr_msg_data_type == "text" and not _is_text(b"".join(self.frames)):
            self.frames = []
            self.conn.fail(1007, "this is no UTF-8")
            self.handle_parser_exception()
        elif self.take is None:
            super().send_receive_event_to_app()
        else:
            data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
            self.frames = []
            self._hand_over(data if self.curr_msg_data_type == "bytes" else data.decode())

    def _hand_over(self, message: bytes | str) -> None:
        if self.take is not None and not self.close_sent:  # else what came before this one was the end
            self.take(message)


class UpgradedWire(Wire):
    """The connection below a WebSocket."""

    def __init__(self, protocol: Upgraded) -> None:
        """Hold a connection."""
        super().__init__(protocol.transport)
        self._protocol = protocol

    def let_in(self) -> None:
        """It is known whose it is: from now on messages may be large."""
        self._protocol.conn.max_message_size = self._protocol.config.ws_max_size

    def listen(self, take: Take, drained: Callable[[], None]) -> None:
        """Have messages handed over as they are read, and be told when the socket takes more again."""
        protocol = self._protocol
        protocol.drained = drained
        early = [protocol.queue.get_nowait() for _ in range(protocol.queue.qsize())]  # it did not wait to be accepted
        protocol.take = take
        if protocol.read_paused:
            self.resume()
        for message in cast(list[dict[str, Any]], early):
            if message["type"] == "websocket.disconnect":
                protocol._end()
                return
            text = message.get("text")
            take(text if text is not None else message.get("bytes") or b"")

    def pause(self) -> None:
        """Read no more for now. uvicorn reads on when it closes, for the peer's goodbye, if it knows of this."""
        if not self.lost:
            self._protocol.read_paused = True
            self._protocol.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self.lost:
            self._protocol.read_paused = False
            self._protocol.transport.resume_reading()

    @property
    def is_writable(self) -> bool:
        """Does the socket take what is written, or does too much of it wait already?"""
        return self._protocol.writable.is_set()

    def write(self, messages: Iterable[bytes], *, binary: bool) -> None:
        """Write messages, all at once.

        Raises:
            ConnectionError: it is closed.
        """
        protocol = self._protocol
        if protocol.disconnected or protocol.close_sent or protocol.conn.state.name != "OPEN":
            raise ConnectionError("it is closed")
        protocol.transport.write(framed(messages, binary=binary, masked=False))


def upgraded(scope: Scope) -> UpgradedWire:
    """The connection of a WebSocket.

    Raises:
        ProtocolError: it is not one of our own listener's.
    """
    found = scope.get(WIRE)
    if not isinstance(found, UpgradedWire):
        raise ProtocolError("this server is not the node's own", help="use `tocsin up`, or `serve`")
    return found


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

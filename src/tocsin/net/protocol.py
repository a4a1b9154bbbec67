"""Protocol 1, without a socket: bytes to frames and back, in MessagePack or JSON, and every limit by its name.

Promised: what one side encodes the other decodes to an equal frame. Bytes from a stranger raise `ProtocolError` and
nothing else, in time that is linear in their length. Nothing is ever unpickled or evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from tocsin.errors import EventError, ProtocolError
from tocsin.journal.rowed import Rowed, WireRow, rowed
from tocsin.model import Event
from tocsin.net.events import from_cloudevent, from_packed, to_cloudevent, to_packed
from tocsin.net.frames import ClientFrame, ServerFrame

__all__ = ["BAD_HELLO", "BROKEN", "CODECS", "LIMITS", "REFUSED", "SLOW", "VERSION", "Codec", "Limits", "choose"]

VERSION: Final = 1
T = TypeVar("T")

# Close codes of the WebSocket, of the range that applications may use.
REFUSED: Final = 4401
"""Who says hello is not let in."""
BAD_HELLO: Final = 4406
"""The first frame is no hello, or of another version, or did not come in time."""
BROKEN: Final = 4400
"""Bytes that are no frame, or a limit that was broken."""
SLOW: Final = 4408
"""Nothing could be sent, or nothing was heard, for too long."""
REPLACED: Final = 4409
"""A newer session has the name."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection may cost. They are sent in `welcome`."""

    max_frame: int = 16 * 1024 * 1024
    """Bytes in a frame."""
    max_event: int = 1024 * 1024
    """Bytes in an event's payload."""
    max_open: int = 10_000
    """Commands that wait for their answer."""
    max_held: int = 32 * 1024 * 1024
    """Bytes of commands that wait for their answer before no more is read."""
    max_subscriptions: int = 1_000
    """Subscriptions and watches that are open."""
    max_credit: int = 10_000
    """Deliveries of one subscription that may be on their way or in hand."""
    max_unsent: int = 4 * 1024 * 1024
    """Bytes that wait to be sent before deliveries pause."""
    hello: float = 10.0
    """Seconds until the first frame must have come."""
    beat: float = 15.0
    """Seconds of silence after which a side says ping."""
    silence: float = 45.0
    """Seconds of silence after which the other side is gone."""
    stuck: float = 30.0
    """Seconds a frame may wait for the socket."""


LIMITS: Final = Limits()


class Codec:
    """How frames are written on one connection."""

    def __init__(self, name: str, *, binary: bool) -> None:
        """Make the codec of a subprotocol."""
        self.name, self.binary = name, binary
        kind: Any = msgspec.msgpack if binary else msgspec.json
        self._encode = kind.Encoder().encode
        self._decode = kind.decode
        self._from_client = kind.Decoder(ClientFrame).decode
        self._from_server = kind.Decoder(ServerFrame).decode
        self._event_out = to_packed if binary else to_cloudevent
        self._event_in = from_packed if binary else from_cloudevent

    def encode(self, frame: ClientFrame | ServerFrame) -> bytes:
        """A frame as bytes; of the JSON codec they are UTF-8."""
        encoded: bytes = self._encode(frame)
        return encoded

    def from_client(self, data: bytes | str) -> ClientFrame:
        """Read what a client has sent.

        Raises:
            ProtocolError: it is no frame that a client sends.
        """
        frame: ClientFrame = _read(self._from_client, data)
        return frame

    def from_server(self, data: bytes | str) -> ServerFrame:
        """Read what a server has sent.

        Raises:
            ProtocolError: it is no frame that a server sends.
        """
        frame: ServerFrame = _read(self._from_server, data)
        return frame

    def value(self, value: Any) -> Raw:
        """A value (an argument, a result) as a part of a frame.

        Raises:
            ProtocolError: it cannot be written.
        """
        try:
            return Raw(self._encode(value))
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise ProtocolError(f"this cannot be sent: {error}", help="give plain values") from None

    def read(self, part: Raw, kind: type[T] | Any) -> T:
        """The value of a part of a frame.

        Raises:
            ProtocolError: it is not of this kind.
        """
        value: T = _read(lambda data: self._decode(data, type=kind), part)
        return value

    def event(self, event: Event) -> Raw:
        """An event as a part of a frame.

        Raises:
            EventError: it holds what cannot be written.
        """
        return Raw(self._event_out(event))

    def read_event(self, part: Raw, offset: int | None = None, arrived: int | None = None) -> Event:
        """The event in a part of a frame; a place in the journal is given beside it.

        Raises:
            EventError: it is none.
        """
        return self._event_in(part, offset, arrived)

    def read_events(self, parts: Sequence[Raw]) -> list[Event]:
        """Events to be published.

        Raises:
            EventError: one of them is none; of many, `field` and message name the index.
        """
        events: list[Event] = []
        rows: list[WireRow] = []
        for index, part in enumerate(parts):
            try:
                if self.binary:
                    event, row = rowed(part)
                    events.append(event)
                    rows.append(row)
                else:
                    events.append(self._event_in(bytes(part), None, None))
            except EventError as error:
                if len(parts) == 1:
                    raise
                field = f"[{index}]" + (f".{error.field}" if error.field else "")
                raise EventError(
                    f"event {index}: {error.message}", field=field, position=error.position, help=error.help
                ) from None
        return Rowed(events, rows) if self.binary else events


def _read(decode: Any, data: Any) -> Any:
    try:
        return decode(data)
    except RecursionError:
        raise ProtocolError("this is nested too deeply", help="nest less") from None
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"this is no frame: {str(error)[:200]}", help="see docs/PROTOCOL.md") from None


MSGPACK: Final = Codec("tocsin.1.msgpack", binary=True)
JSON: Final = Codec("tocsin.1.json", binary=False)
CODECS: Final = {codec.name: codec for codec in (MSGPACK, JSON)}
"""By the name of their subprotocol."""


def choose(offered: Sequence[str]) -> tuple[Codec, str | None]:
    """The codec for a connection, and the subprotocol to confirm: the first known of those offered; else JSON."""
    for name in offered:
        if name in CODECS:
            return CODECS[name], name
    return JSON, None

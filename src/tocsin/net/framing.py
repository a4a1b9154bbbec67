"""WebSocket frames of the usual kind, read and written without ceremony.

Nearly every frame of ours is a whole binary message of less than 64 KiB. To read one, the library runs a generator that
asks for two bytes, for four and for the rest, and makes objects of what it finds: half of what it costs a node to take
a small message in. Here such messages are cut out of the bytes as they have come. All else is left to the library, byte
for byte and in order: large messages, those in pieces, text, pings, goodbyes and nonsense. So what is refused, and how,
is its business.

Sans-I/O. Not for connections with extensions; ours have none.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterable

try:
    from websockets.speedups import apply_mask
except ImportError:  # it was installed without a compiler
    from websockets.utils import apply_mask

__all__ = ["Splitter", "framed"]

_WHOLE_BINARY, _WHOLE_TEXT = 0x82, 0x81
_LAST, _MASKED = 0x80, 0x80  # bits of the first and of the second byte
_DATA = (0, 1, 2)  # kinds of frames that carry messages, or more of one
_SHORT, _LONG = struct.Struct("!H").unpack_from, struct.Struct("!Q").unpack_from


class Splitter:
    """Parts what comes on one connection, from the first frame on."""

    def __init__(self, *, masked: bool) -> None:
        """Begin; the frames of clients are `masked`."""
        self._masked = masked
        self._head = b""  # of a frame, and not all of it
        self._owed = 0  # bytes of a frame that the library has begun to read
        self._is_cut = False  # has it begun to read a message that comes in pieces?

    def feed(
        self, data: bytes, take: Callable[[bytes], object] | None, leave: Callable[[bytes], object], largest: int | None
    ) -> None:
        """Hand over what has come: messages to `take`, if anybody takes them, and all else to `leave`.

        Args:
            data: what has come.
            take: gets small binary messages.
            leave: gets frames, and parts of frames, as they are.
            largest: bytes that a message may have; a larger one is left, to be refused.
        """
        if self._head:
            data, self._head = self._head + data, b""
        size = len(data)
        start, left = min(size, self._owed), 0  # what lies between them is to be left, in one piece
        self._owed -= start
        while start < size:
            body = start + 2
            if body > size:
                break
            first, second = data[start], data[start + 1]
            is_masked, length = second & _MASKED != 0, second & 0x7F
            is_small = length < 127
            wide = 0 if length < 126 else 2 if is_small else 8
            body += wide + 4 * is_masked
            if body > size:
                break
            if wide:
                (length,) = (_SHORT if is_small else _LONG)(data, start + 2)
            end = body + length
            is_usual = first == _WHOLE_BINARY and is_masked == self._masked and is_small and end <= size
            if is_usual and take is not None and not self._is_cut and (largest is None or length <= largest):
                if left < start:
                    leave(data[left:start])
                left = end
                message = data[body:end]
                take(apply_mask(message, data[body - 4 : body]) if is_masked else message)
            elif first & 0x0F in _DATA:
                self._is_cut = not first & _LAST
            start = end
        if start > size:
            self._owed = start - size
        elif start < size:
            self._head = data[start:]
        if left < min(start, size):
            leave(data[left:start])


def framed(messages: Iterable[bytes], *, binary: bool, masked: bool) -> bytes:
    """Messages as frames, one each; those of clients are to be `masked`."""
    parts: list[bytes] = []
    first, bit = _WHOLE_BINARY if binary else _WHOLE_TEXT, _MASKED * masked
    for message in messages:
        size = len(message)
        if size < 126:
            parts.append(bytes((first, bit | size)))
        elif size < 65536:
            parts.append(struct.pack("!BBH", first, bit | 126, size))
        else:
            parts.append(struct.pack("!BBQ", first, bit | 127, size))
        if masked:
            mask = secrets.token_bytes(4)
            parts += (mask, apply_mask(message, mask))
        else:
            parts.append(message)
    return b"".join(parts)

"""Bodies of requests: bounded in size, in time, and all together.

Too large is told from Content-Length before anything is read, and while reading where there is none. Who sends slowly
is waited for only so long.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request

from tocsin.errors import OverloadError, ProtocolError
from tocsin.net.http.answers import Refused

__all__ = ["Bodies", "Gone"]

HELD: Final = 256 * 1024 * 1024
"""Bytes that all bodies may have that are being read or worked on."""
WHOLE: Final = 120.0
"""Seconds a body may take from its first byte to its last."""


class Gone(Exception):
    """The client has left: nobody waits for an answer."""


class Bodies:
    """All bodies that are being read."""

    def __init__(self, pause: float) -> None:
        """Begin with none; `pause` is the most seconds between two parts of one."""
        self._pause, self.held = pause, 0
        self.most = HELD

    async def read(self, request: Request, largest: int) -> bytes:
        """The whole body. It counts until `release` is called with its length.

        Raises:
            Refused: it is larger than `largest` (413), too slow (408), or there are too many (429).
            Gone: there is no more of it.
        """
        if not self._declared(request) <= largest:
            raise _too_large(largest)
        parts: list[bytes] = []
        size = 0
        whole = False
        try:
            async with asyncio.timeout(WHOLE):
                while True:
                    async with asyncio.timeout(self._pause):
                        message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    part = message.get("body", b"")
                    size += len(part)
                    self.held += len(part)
                    parts.append(part)
                    if size > largest:
                        raise _too_large(largest)
                    if self.held > self.most:
                        raise OverloadError("too much is being sent to this node at once", help="send it again")
                    if not message.get("more_body", False):
                        whole = True
                        return b"".join(parts)
        except TimeoutError:
            error = ProtocolError("the body did not come in time", help="send it without pauses")
            raise Refused(408, error, {"Connection": "close"}) from None
        finally:
            if not whole:
                self.held -= size

    def release(self, size: int) -> None:
        """So much is done with."""
        self.held -= size

    @staticmethod
    def _declared(request: Request) -> int:
        text = request.headers.get("content-length", "0")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 1 << 62


def _too_large(largest: int) -> Refused:
    error = ProtocolError(f"the body is larger than {largest:,} bytes", help="send less at a time")
    return Refused(413, error)

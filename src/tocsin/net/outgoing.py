"""What waits to be sent on one connection: in order, bounded, and never for long.

Answers are bounded by the commands that are open, deliveries by credit and by `max_unsent`. A socket that takes nothing
for `stuck` seconds is given up, so a reader that does not read costs nobody anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tocsin.net.frames import ServerFrame
from tocsin.net.protocol import Codec, Limits

__all__ = ["Outgoing"]


class Outgoing:
    """The way out of one connection."""

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        codec: Codec,
        limits: Limits,
        drained: Callable[[], None],
        stuck: Callable[[], None],
    ) -> None:
        """Begin to send.

        Args:
            send: gives one message to the socket, and waits while that has no room.
            codec: how frames are written.
            limits: of the connection.
            drained: called when there is room again after there was none.
            stuck: called when the socket takes nothing any more.
        """
        self._send, self._codec, self._limits = send, codec, limits
        self._drained, self._stuck = drained, stuck
        self._waiting: deque[bytes] = deque()
        self._unsent = 0
        self._wake, self._empty = asyncio.Event(), asyncio.Event()
        self._empty.set()
        self.last = asyncio.get_running_loop().time()
        """When something was sent last."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def has_room(self) -> bool:
        """May deliveries be added?"""
        return self._unsent < self._limits.max_unsent

    def put(self, frame: ServerFrame) -> None:
        """Send a frame, in its turn."""
        message = self._codec.encode(frame)
        self._waiting.append(message)
        self._unsent += len(message)
        self._empty.clear()
        self._wake.set()

    async def flushed(self) -> None:
        """Wait until everything was given to the socket, or nothing can be."""
        if not self._task.done():
            empty = asyncio.ensure_future(self._empty.wait())
            await asyncio.wait([empty, self._task], return_when=asyncio.FIRST_COMPLETED)
            empty.cancel()

    async def close(self) -> None:
        """Send nothing more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    message = self._waiting.popleft()
                    async with asyncio.timeout(self._limits.stuck):
                        await self._send(message)
                    had_room = self.has_room
                    self._unsent -= len(message)
                    self.last = loop.time()
                    if not had_room and self.has_room:
                        self._drained()
                self._empty.set()
        except Exception:  # the socket is closed, or takes nothing: either way this is the end of the connection
            self._stuck()

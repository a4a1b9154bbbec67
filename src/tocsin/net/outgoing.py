"""What waits to be sent on one connection: in order, bounded, and never for long.

Answers are bounded by the commands that are open, deliveries by credit and by `max_unsent`. A socket that takes nothing
for `stuck` seconds is given up, so a reader that does not read costs nobody anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tocsin.net.frames import ServerFrame
from tocsin.net.protocol import Codec, Limits

__all__ = ["Outgoing"]

_LOOK = 0.1  # seconds after which the time that a message may take begins anew; looking at each would cost more


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
        self._waiting: list[bytes] = []
        self._unsent = 0
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None  # there is one while something waits: most clients are idle
        self._is_over = False
        self.last = self._loop.time()
        """When something was sent last."""

    @property
    def has_room(self) -> bool:
        """May deliveries be added?"""
        return self._unsent < self._limits.max_unsent

    def put(self, frame: ServerFrame) -> None:
        """Send a frame, in its turn."""
        if self._is_over:
            return
        message = self._codec.encode(frame)
        self._waiting.append(message)
        self._unsent += len(message)
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    async def flushed(self) -> None:
        """Wait until everything was given to the socket, or nothing can be."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Send nothing more."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._limits.stuck) as limit:
                began = self._loop.time()
                while self._waiting:
                    batch, self._waiting = self._waiting, []
                    for message in batch:
                        await self._send(message)
                        had_room = self.has_room
                        self._unsent -= len(message)
                        self.last = self._loop.time()
                        if self.last - began > _LOOK:
                            began = self.last
                            limit.reschedule(began + self._limits.stuck)
                        if not had_room and self.has_room:
                            self._drained()
        except Exception:  # the socket is closed, or takes nothing: either way this is the end of the connection
            self._is_over = True
            self._stuck()
        finally:
            self._task = None

"""What waits to be sent on one connection: in order, bounded, and never for long.

What is said in one turn of the loop is written at once. Deliveries are bounded by credit and by `max_unsent`; answers,
since nothing is read from who has twice as much waiting (`is_full`). A socket that takes nothing for `stuck` seconds is
given up, so a reader that does not read costs nobody anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from tocsin.net.frames import ServerFrame
from tocsin.net.protocol import Codec, Limits

__all__ = ["Outgoing", "Outlet"]

_AT_ONCE = 256 * 1024  # bytes that are written before it is asked whether the socket takes more


class Outlet(Protocol):
    """Where messages go."""

    @property
    def is_writable(self) -> bool:
        """Does the socket take more?"""

    def write(self, messages: Iterable[bytes]) -> None:
        """Write messages. Raises OSError if it is closed."""


class Outgoing:
    """The way out of one connection. `flush` is to be called when the socket takes more again."""

    def __init__(
        self,
        outlet: Outlet,
        codec: Codec,
        limits: Limits,
        drained: Callable[[], None],
        stuck: Callable[[], None],
    ) -> None:
        """Begin to send.

        Args:
            outlet: takes the messages.
            codec: how frames are written.
            limits: of the connection.
            drained: called when there is room again after there was none.
            stuck: called when the socket takes nothing any more.
        """
        self._outlet, self._codec, self._limits = outlet, codec, limits
        self._drained, self._stuck = drained, stuck
        self._waiting: deque[bytes] = deque()
        self._unsent = 0
        self._loop = asyncio.get_running_loop()
        self._is_flushing = self._is_over = False
        self._patience: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None  # somebody waits until nothing waits
        self.last = self._loop.time()
        """When something was sent last."""

    @property
    def has_room(self) -> bool:
        """May deliveries be added?"""
        return self._unsent < self._limits.max_unsent

    @property
    def is_full(self) -> bool:
        """Does so much wait that nothing more should be asked for either? `drained` tells of the end of it."""
        return self._unsent > 2 * self._limits.max_unsent

    def put(self, frame: ServerFrame) -> None:
        """Send a frame, in its turn."""
        if self._is_over:
            return
        message = self._codec.encode(frame)
        self._waiting.append(message)
        self._unsent += len(message)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what waits, as far as the socket takes it."""
        self._is_flushing = False
        had_room, waiting, written = self.has_room, self._waiting, False
        try:
            while waiting and self._outlet.is_writable:
                size, batch = 0, []
                while waiting and size < _AT_ONCE:
                    batch.append(waiting.popleft())
                    size += len(batch[-1])
                self._outlet.write(batch)
                self._unsent -= size
                written = True
        except OSError:  # it is closed: this is the end of the connection
            self._end()
            self._stuck()
            return
        if written:
            self.last = self._loop.time()
            self._calm()
        if not waiting:
            self._tell_empty()
        elif self._patience is None:
            self._patience = self._loop.call_later(self._limits.stuck, self._give_up)
        if not had_room and self.has_room:
            self._drained()

    async def flushed(self) -> None:
        """Wait until everything was given to the socket, or nothing can be."""
        self.flush()
        if self._waiting:
            self._empty = self._loop.create_future()
            await self._empty

    def close(self) -> None:
        """Send nothing more."""
        self._end()

    def _give_up(self) -> None:
        self._end()
        self._stuck()

    def _end(self) -> None:
        self._is_over = True
        self._waiting.clear()
        self._calm()
        self._tell_empty()

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _tell_empty(self) -> None:
        if self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

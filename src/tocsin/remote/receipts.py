"""Receipts of a remote bus: they wait at the node until somebody here takes them."""

from __future__ import annotations

import asyncio
from collections import deque

from tocsin.delivery.board import Receipt
from tocsin.errors import ConnectionLostError, TocsinError
from tocsin.net import frames
from tocsin.net.protocol import MSGPACK
from tocsin.remote.link import Link

__all__ = ["RemoteReceipts"]

_AHEAD = 256


class RemoteReceipts:
    """Receipts for what a name has published: an async iterator. They wait while nobody listens."""

    def __init__(self, link: Link, sub: int) -> None:
        """Prepare; `open` asks for them."""
        self._link, self.sub = link, sub
        self._buffer: deque[Receipt] = deque()
        self._wake = asyncio.Event()
        self._error: TocsinError | None = None
        self.is_open = False
        """Has the node said that it will send them?"""

    async def open(self) -> None:
        """Ask for receipts, for as long as it takes."""
        while not self.is_open and self._error is None:
            try:
                await self._link.ask(self._watch)
                self.is_open = True
            except ConnectionLostError:
                continue
            except TocsinError as error:
                self.end(error)

    async def resume(self) -> None:
        """Ask for them on a new connection; those here come again."""
        self._buffer.clear()
        await self._link.ask_now(self._watch)

    def _watch(self, n: int) -> frames.Watch:
        return frames.Watch(n, self.sub, "receipts", MSGPACK.value(None), _AHEAD)

    def receive(self, frame: frames.Seen) -> None:
        """Some have come."""
        self._buffer.extend(MSGPACK.read(part, Receipt) for _, part in frame.items)
        self._wake.set()

    def end(self, error: TocsinError) -> None:
        """There will be no more."""
        self._error = error
        self._wake.set()

    def poll(self) -> Receipt | None:
        """The next receipt if there is one here at this moment."""
        if not self._buffer:
            return None
        self._link.tell(frames.Taken(self.sub, [0]))
        self._link.tell(frames.Credit(self.sub, 1))
        return self._buffer.popleft()

    async def next(self, timeout: float | None = None) -> Receipt:
        """Wait for the next receipt.

        Raises:
            TimeoutError: none came in time.
        """
        async with asyncio.timeout(timeout):
            while True:
                self._wake.clear()
                if (found := self.poll()) is not None:
                    return found
                if self._error is not None:
                    raise self._error
                await self._wake.wait()

    def __aiter__(self) -> RemoteReceipts:
        """Iterate over receipts."""
        return self

    async def __anext__(self) -> Receipt:
        """Wait for the next receipt."""
        return await self.next()

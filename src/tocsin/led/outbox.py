"""Events on their way to a node: put in from any thread, published in order, in batches.

What the node cannot take at the moment is tried again; the same event is stored once. What it will never take (too
large, not JSON) is dropped and logged. When much is on its way, whoever causes more must wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from tocsin.errors import TocsinError
from tocsin.model import Event
from tocsin.rules.contract import BusLike

__all__ = ["Outbox"]

_MOST: Final = 10_000
_BATCH: Final = 500
_PAUSE: Final = 1.0
_log = logging.getLogger("tocsin")


class Outbox:
    """What is to be published. `put` and `wait_for_room` may be called from any thread."""

    def __init__(self, bus: BusLike) -> None:
        """Begin empty, on this event loop."""
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._filled, self._moved = asyncio.Event(), asyncio.Event()
        self._closed = False
        self.failure: Exception | None = None
        """Why the node did not take the last batch; None: it did."""

    def put(self, events: Iterable[Event]) -> None:
        """Have them published."""
        if not self._closed and not self._loop.is_closed():
            self._events.extend(events)
            self._loop.call_soon_threadsafe(self._filled.set)

    def wait_for_room(self) -> None:
        """Wait while too much is on its way; not on the loop itself, which would stop it."""
        if len(self._events) <= _MOST or self._closed or self._loop.is_closed():
            return
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not self._loop:
            asyncio.run_coroutine_threadsafe(self.room(), self._loop).result()

    async def room(self) -> None:
        """Wait while too much is on its way."""
        while len(self._events) > _MOST and not self._closed:
            self._moved.clear()
            await self._moved.wait()

    async def flush(self) -> None:
        """Wait until all is published.

        Raises:
            TocsinError: the node does not take it; it is tried again.
        """
        while self._events and not self._closed:
            self._moved.clear()
            await self._moved.wait()
            if self.failure is not None:
                raise self.failure

    async def run(self) -> None:
        """Publish what is there, as long as this is not cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._events:
                batch = [self._events[place] for place in range(min(_BATCH, len(self._events)))]
                self.failure = await self._publish(batch)
                if self.failure is None:
                    for _ in batch:
                        self._events.popleft()
                self._moved.set()
                if self.failure is not None:
                    await asyncio.sleep(_PAUSE)

    async def _publish(self, batch: Sequence[Event]) -> Exception | None:
        """Publish events; returns why it must be tried again, if it must."""
        try:
            await self._bus.publish_many(batch)
        except Exception as error:
            if not isinstance(error, TocsinError) or error.field is None:  # nothing is wrong with the events
                _log.warning("%s cannot publish: %s", self._bus.name, error)
                return error
            if len(batch) == 1:
                _log.warning("an event %s cannot be published: %s", batch[0].type, error)
                return None
            for each in batch:
                if (failure := await self._publish([each])) is not None:
                    return failure
        return None

    def close(self) -> None:
        """Take no more, and let nobody wait."""
        self._closed = True
        self._moved.set()

"""Receipts on their way to publishers: kept in the journal's state until they are fetched, never as events.

A receipt is written in the same commit as the settling it tells of, and removed with a later one when it was fetched;
so after a crash one may be told twice, and none is lost. For one publisher at most `MOST` are kept; older ones give way
and are counted (the audit trail still has them).
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from tocsin.clock import as_datetime
from tocsin.delivery.board import Receipt
from tocsin.errors import JournalError
from tocsin.model import Event

__all__ = ["MOST", "Kept", "ReceiptBox"]

MOST = 10_000
_PREFIX = "receipt/"


class Kept(msgspec.Struct, array_like=True):
    """A receipt as it is stored."""

    to: str
    id: str
    source: str
    offset: int
    consumer: str
    at: int


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Kept).decode


class ReceiptBox:
    """Receipts of all publishers of a node."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        """Begin with what the journal's state holds."""
        self._waiting: dict[str, deque[tuple[str, Kept]]] = {}
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._gone: dict[str, None] = {}
        self._next = 0
        self._closed = False
        self.dropped = 0
        for name, value in sorted(stored.items()):
            if name.startswith(_PREFIX):
                kept = _decode(value)
                self._waiting.setdefault(kept.to, deque()).append((name, kept))
                self._next = max(self._next, int(name.rpartition("/")[2]) + 1)

    def prepare(self, to: str, event: Event, consumer: str, at: int) -> tuple[str, Kept, dict[str, bytes | None]]:
        """Make a receipt; returns its name, itself, and what must be stored before it may be told."""
        name = f"{_PREFIX}{self._next:016d}"
        self._next += 1
        kept = Kept(to, event.id, event.source, event.offset or 0, consumer, at)
        return name, kept, {name: _encode(kept)} | self.fetched()

    def add(self, receipts: list[tuple[str, Kept]]) -> None:
        """Tell publishers of receipts that are stored."""
        for name, kept in receipts:
            waiting = self._waiting.setdefault(kept.to, deque())
            waiting.append((name, kept))
            if len(waiting) > MOST:
                self._gone[waiting.popleft()[0]] = None
                self.dropped += 1
            for wake in self._wakes.get(kept.to, ()):
                wake()

    def close(self) -> None:
        """Let nobody wait any more."""
        self._closed = True
        for wakes in self._wakes.values():
            for wake in wakes:
                wake()

    def take(self, to: str) -> Receipt | None:
        """The next receipt of a publisher, if there is one."""
        waiting = self._waiting.get(to)
        if not waiting:
            return None
        name, kept = waiting.popleft()
        self._gone[name] = None
        return _receipt(kept)

    def peek(self, to: str, first: int, count: int) -> list[Receipt]:
        """Receipts of a publisher without fetching them: so many, after the first so many."""
        waiting = self._waiting.get(to, ())
        return [_receipt(kept) for _, kept in itertools.islice(waiting, first, first + count)]

    def listen(self, to: str, wake: Callable[[], None]) -> None:
        """Have `wake` called when a publisher has another receipt."""
        self._wakes.setdefault(to, []).append(wake)

    def unlisten(self, to: str, wake: Callable[[], None]) -> None:
        """Undo `listen`."""
        self._wakes[to].remove(wake)

    def fetched(self) -> dict[str, bytes | None]:
        """What was fetched since this was last asked: to be removed from the state."""
        gone, self._gone = self._gone, {}
        return dict(gone)

    async def wait(self, to: str) -> Receipt:
        """Wait for the next receipt of a publisher."""
        wake = asyncio.Event()
        self.listen(to, wake.set)
        try:
            while True:
                wake.clear()
                if (found := self.take(to)) is not None:
                    return found
                if self._closed:
                    raise JournalError("the bus is closed", help="connect again: receipts wait")
                await wake.wait()
        finally:
            self.unlisten(to, wake.set)


def _receipt(kept: Kept) -> Receipt:
    return Receipt(kept.id, kept.source, kept.offset, kept.consumer, as_datetime(kept.at))

"""Receipts on their way to publishers: kept in the journal's state until they are fetched, never as events.

A receipt is written in the same commit as the settling it tells of, and removed with a later one when it was fetched;
so after a crash one may be told twice, and none is lost. For one publisher at most `MOST` are kept; older ones give way
and are counted (the audit trail still has them).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

import msgspec

from tocsin.clock import as_datetime
from tocsin.delivery.board import Receipt
from tocsin.model import Event

__all__ = ["MOST", "ReceiptBox"]

MOST = 10_000
_PREFIX = "receipt/"


class _Kept(msgspec.Struct, array_like=True):
    to: str
    id: str
    source: str
    offset: int
    consumer: str
    at: int


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(_Kept).decode


class ReceiptBox:
    """Receipts of all publishers of a node."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        """Begin with what the journal's state holds."""
        self._waiting: dict[str, deque[tuple[str, _Kept]]] = {}
        self._wakes: dict[str, list[asyncio.Event]] = {}
        self._gone: dict[str, None] = {}
        self._next = 0
        self.dropped = 0
        for name, value in sorted(stored.items()):
            if name.startswith(_PREFIX):
                kept = _decode(value)
                self._waiting.setdefault(kept.to, deque()).append((name, kept))
                self._next = max(self._next, int(name.rpartition("/")[2]) + 1)

    def add(self, to: str, event: Event, consumer: str, at: int) -> dict[str, bytes | None]:
        """Add a receipt; returns what must be stored."""
        name = f"{_PREFIX}{self._next:016d}"
        self._next += 1
        kept = _Kept(to, event.id, event.source, event.offset or 0, consumer, at)
        waiting = self._waiting.setdefault(to, deque())
        waiting.append((name, kept))
        changes: dict[str, bytes | None] = {name: _encode(kept)}
        if len(waiting) > MOST:
            changes[waiting.popleft()[0]] = None
            self.dropped += 1
        for wake in self._wakes.get(to, ()):
            wake.set()
        return changes | self.fetched()

    def take(self, to: str) -> Receipt | None:
        """The next receipt of a publisher, if there is one."""
        waiting = self._waiting.get(to)
        if not waiting:
            return None
        name, kept = waiting.popleft()
        self._gone[name] = None
        return Receipt(kept.id, kept.source, kept.offset, kept.consumer, as_datetime(kept.at))

    def fetched(self) -> dict[str, bytes | None]:
        """What was fetched since this was last asked: to be removed from the state."""
        gone, self._gone = self._gone, {}
        return dict(gone)

    async def wait(self, to: str) -> Receipt:
        """Wait for the next receipt of a publisher."""
        wake = asyncio.Event()
        self._wakes.setdefault(to, []).append(wake)
        try:
            while True:
                wake.clear()
                if (found := self.take(to)) is not None:
                    return found
                await wake.wait()
        finally:
            self._wakes[to].remove(wake)

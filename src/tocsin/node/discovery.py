"""Discovery: advertise what will be published, and watch what others advertise and serve.

An advertisement is a system record, so everybody hears of all of them in one order, that of the journal. Watching
begins with what is there; no change is missed or told twice at the seam.

Promised: see `peers.advertisements` for what is told. Not promised: that a publisher does what it advertises, unless
it is strict (`Session.check_promised`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tocsin.errors import FilterError, OverloadError, PeerError
from tocsin.filters.filter import Filter
from tocsin.peers import records
from tocsin.peers.advertisements import Change, Resource

if TYPE_CHECKING:
    from tocsin.node.sessions import Session

__all__ = ["MAX_CHANGES", "Changes", "advertise", "resources", "unadvertise"]

MAX_CHANGES: Final = 10_000
"""Changes that wait for one who watches before it must begin anew."""


async def advertise(session: Session, text: str | Filter) -> None:
    """Say that events like this will be published; see `Bus.advertise`."""
    filter = text if isinstance(text, Filter) else Filter(text)
    peers, what = session.node.peers, Resource(str(filter))

    def apply(offset: int) -> list[Change]:
        session.promised[what.text] = filter
        return [peers.advertisements.advertise(session.id, session.name, what)]

    async with session.changing:
        session.check()
        peers.advertisements.check_room(session.id, what)
        record = records.advertised(session.id, session.name, what)
        await peers.store(session, [record], {records.resource_key(session.id, what): b""}, apply)


async def unadvertise(session: Session, text: str | Filter) -> None:
    """Withdraw it; see `Bus.unadvertise`."""
    filter = text if isinstance(text, Filter) else Filter(text)
    peers, what = session.node.peers, Resource(str(filter))

    def apply(offset: int) -> list[Change]:
        session.promised.pop(what.text, None)
        change = peers.advertisements.unadvertise(session.id, what)
        return [] if change is None else [change]

    async with session.changing:
        session.check()
        if what in peers.advertisements.of(session.id):
            record = records.unadvertised(session.id, session.name, what)
            await peers.store(session, [record], {records.resource_key(session.id, what): None}, apply)


def resources(
    session: Session, text: str | Filter | None = None, allows: Callable[[Change], bool] | None = None
) -> Changes:
    """Watch what is advertised and served; see `Bus.resources`. What `allows` says no to is not told."""
    session.check()
    filter = text if text is None or isinstance(text, Filter) else Filter(text)
    peers = session.node.peers
    changes = Changes(peers.advertisements.now(), filter, allows)
    peers.listeners.add(changes)
    return changes


class Changes:
    """Resources as they come and go: an async iterator. Dropping it is enough to stop watching."""

    def __init__(
        self, now: list[Change], filter: Filter | None, allows: Callable[[Change], bool] | None = None
    ) -> None:
        """Begin with what is there."""
        self._filter, self._allows = filter, allows
        self._waiting = deque(change for change in now if self._concerns(change))
        self._room = len(self._waiting) + MAX_CHANGES
        self._closed = self._overrun = False
        self._wake = asyncio.Event()
        self.on_wake: Callable[[], None] | None = None
        """Called when something may be there: for who does not wait in `next`."""

    @property
    def waiting(self) -> int:
        """How many changes wait to be taken."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """Will nothing more come, when what waits is taken?"""
        return self._closed

    def _woken(self) -> None:
        self._wake.set()
        if self.on_wake is not None:
            self.on_wake()

    def _concerns(self, change: Change) -> bool:
        """Is it asked for? If the filters cannot be compared, it is: better once too often than never."""
        if self._allows is not None and not self._allows(change):
            return False
        if self._filter is None:
            return True
        if change.served:
            return False
        try:
            return not Filter(change.resource).disjoint(self._filter)
        except FilterError:  # who advertises it has wider limits
            return True

    def hear(self, change: Change) -> None:
        """See `sessions.Listener`."""
        if self._closed or self._overrun or not self._concerns(change):
            return
        if len(self._waiting) >= self._room:
            self._waiting.clear()
            self._overrun = True
        else:
            self._waiting.append(change)
        self._woken()

    def close(self) -> None:
        """Stop watching; iteration ends after what waits."""
        self._closed = True
        self._woken()

    def poll(self) -> Change | None:
        """The next change if there is one at this moment.

        Raises:
            OverloadError: more than `MAX_CHANGES` have come meanwhile, and were dropped.
        """
        if self._overrun:
            raise OverloadError(
                f"more than {MAX_CHANGES:,} changes waited, and were dropped",
                help="call resources() again: it begins with what is there",
            )
        return self._waiting.popleft() if self._waiting else None

    async def next(self, timeout: float | None = None) -> Change:
        """Wait for the next change.

        Raises:
            TimeoutError: none came in time.
            PeerError: the bus, or this, is closed.
            OverloadError: as `poll`.
        """
        async with asyncio.timeout(timeout):
            while True:
                self._wake.clear()
                if (found := self.poll()) is not None:
                    return found
                if self._closed:
                    raise PeerError("nothing is watched any more: the bus, or this, is closed", help="connect again")
                await self._wake.wait()

    def __aiter__(self) -> Changes:
        """Iterate over changes."""
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change."""
        try:
            return await self.next()
        except PeerError:
            raise StopAsyncIteration from None

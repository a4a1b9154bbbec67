"""Watches of a remote bus: resources as they come and go, and who wants what.

A watch goes on over a lost connection. Of resources it tells the difference between what it knew and what is there: no
change is told twice, and what came and went meanwhile is not told. Of demand the node is told what is known here, and
answers when it is otherwise.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Raw

from tocsin.errors import JournalError, TocsinError
from tocsin.net import frames
from tocsin.net.protocol import MSGPACK
from tocsin.node.discovery import Changes
from tocsin.peers.advertisements import Change

if TYPE_CHECKING:
    from tocsin.remote.peers import RemotePeers

__all__ = ["RemoteChanges", "RemoteDemand", "Wanted"]

AHEAD: Final = 1000
"""Changes of resources that may wait here."""


class RemoteChanges(Changes):
    """Resources of a node elsewhere as they come and go. Dropping it is enough to stop watching."""

    def __init__(self, peers: RemotePeers, text: str | None) -> None:
        """Prepare; `open` asks for them."""
        super().__init__([], None)
        self._peers, self._text = peers, text
        self.sub, self.is_open = peers.number(), False
        self._error: TocsinError | None = None
        self._granted = 0
        self._known: dict[tuple[str, bool], dict[str, str]] = {}  # resource → session → name
        self._found: list[Change] | None = None  # what is there, on a new connection
        self._expected: int | None = None  # how much that is; None: the node has not said yet

    async def open(self) -> None:
        """Ask for them."""
        try:
            self._opened(await self._peers.link.ask(self._watch))
        except TocsinError as error:
            self.end(error)

    async def resume(self) -> None:
        """See `Stream`."""
        self._opened(await self._peers.link.ask_now(self._watch))

    def _opened(self, answer: Raw) -> None:
        self.is_open = True
        self._expected = MSGPACK.read(answer, dict[str, int])["now"]
        self._compare()
        self._grant()

    def _watch(self, n: int) -> frames.Watch:
        self._found, self._expected = [], None
        self._granted = max(0, AHEAD - self.waiting)
        return frames.Watch(n, self.sub, "resources", MSGPACK.value({"filter": self._text}), self._granted)

    def hear(self, frame: Any) -> None:
        """See `Stream`, and `sessions.Listener`."""
        if isinstance(frame, Change):
            super().hear(frame)
        elif isinstance(frame, frames.Seen):
            self._granted -= len(frame.items)
            changes: list[Change] = [MSGPACK.read(part, Change) for _, part in frame.items]
            if self._found is not None:
                self._found += changes
                self._compare()
            else:
                self._tell(changes)
            self._grant()

    def _tell(self, changes: list[Change]) -> None:
        for change in changes:
            known = self._known.setdefault((change.resource, change.served), {})
            if change.kind in ("found", "advertised"):
                known[change.session] = change.by
            else:
                known.pop(change.session, None)
                if not known:
                    del self._known[change.resource, change.served]
            self.hear(change)

    def _compare(self) -> None:
        """Tell the difference to what was known, when all that is there has come; then go on."""
        if self._found is None or self._expected is None or len(self._found) < self._expected:
            return
        found, later = self._found[: self._expected], self._found[self._expected :]
        self._found = None
        now: dict[tuple[str, bool], dict[str, str]] = {}
        for change in found:
            now.setdefault((change.resource, change.served), {})[change.session] = change.by
        for resource in {**self._known, **now}:
            self._tell_difference(resource, self._known.get(resource, {}), now.get(resource, {}))
        self._known = now
        self._tell(later)

    def _tell_difference(self, resource: tuple[str, bool], before: dict[str, str], now: dict[str, str]) -> None:
        """By name: a session that is another now, of the same name, is no change. Who came is told first."""
        count, text, served = len(before), *resource
        kind: Literal["found", "advertised", "unadvertised", "depleted"]
        for session, name in _beyond(now, before):
            kind = "advertised" if count else "found"
            count += 1
            self.hear(Change(kind, text, name, served, session))
        for session, name in _beyond(before, now):
            count -= 1
            kind = "unadvertised" if count else "depleted"
            self.hear(Change(kind, text, name, served, session))

    def lose(self) -> None:
        """See `Stream`."""
        self._granted, self._found = 0, None

    def end(self, error: TocsinError) -> None:
        """See `Stream`."""
        if not isinstance(error, JournalError):
            self._error = error
        super().close()

    def close(self) -> None:
        """Stop watching; iteration ends after what waits."""
        if not self.closed:
            self._peers.remove(self)
            self._peers.link.tell(frames.Close(0, self.sub))
            super().close()

    def poll(self) -> Change | None:
        """The next change if there is one here at this moment.

        Raises:
            OverloadError: too many have waited at the node, and were dropped.
        """
        found = super().poll()
        if found is None and self._error is not None:
            raise self._error
        self._grant()
        return found

    def _grant(self) -> None:
        wanted = AHEAD - self.waiting - self._granted
        if self.is_open and not self.closed and wanted >= AHEAD // 4:
            self._granted += wanted
            self._peers.link.tell(frames.Credit(self.sub, wanted))


class Wanted(msgspec.Struct):
    """What a node says of a demand."""

    consumers: tuple[str, ...]
    definitions: tuple[str, ...]


class RemoteDemand:
    """Who wants events like these, at one moment. True if anybody does."""

    def __init__(self, peers: RemotePeers, text: str, wanted: Wanted) -> None:
        """Show what a node has said."""
        self._peers, self._text = peers, text
        self.consumers, self.definitions = wanted.consumers, wanted.definitions

    def __bool__(self) -> bool:
        """Does anybody want them?"""
        return bool(self.consumers or self.definitions)

    def __repr__(self) -> str:
        """Show who does."""
        return f"Demand(consumers={self.consumers}, definitions={self.definitions})"

    async def changed(self, timeout: float | None = None) -> RemoteDemand:
        """Wait until others want them than did; returns who.

        Raises:
            TimeoutError: nothing changed in time.
            JournalError: the bus was closed.
        """
        known = {"filter": self._text, "consumers": self.consumers, "definitions": self.definitions}
        waiting = _Waiting(self._peers, MSGPACK.value(known))
        async with asyncio.timeout(timeout):
            return RemoteDemand(self._peers, self._text, await waiting.wait())


class _Waiting:
    """A wait for others to want something: the node is told what is known, so none is missed between connections."""

    def __init__(self, peers: RemotePeers, args: Raw) -> None:
        self._peers, self._args = peers, args
        self.sub, self.is_open = peers.number(), False
        self._answer: asyncio.Future[Wanted] = asyncio.get_running_loop().create_future()

    async def wait(self) -> Wanted:
        link = self._peers.link
        self._peers.add(self)
        try:
            await link.ask(self._watch)
            self.is_open = True
            return await self._answer
        finally:
            self._answer.cancel()
            self._peers.remove(self)
            link.tell(frames.Close(0, self.sub))

    def _watch(self, n: int) -> frames.Watch:
        return frames.Watch(n, self.sub, "demand", self._args, 1)

    def hear(self, frame: Any) -> None:
        if isinstance(frame, frames.Seen) and not self._answer.done():
            self._answer.set_result(MSGPACK.read(frame.items[0][1], Wanted))

    async def resume(self) -> None:
        await self._peers.link.ask_now(self._watch)

    def lose(self) -> None:
        pass

    def end(self, error: TocsinError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)


def _beyond(these: dict[str, str], those: dict[str, str]) -> list[tuple[str, str]]:
    """Sessions of these whose name occurs oftener than among those."""
    left, found = Counter(those.values()), []
    for session, name in these.items():
        if left[name]:
            left[name] -= 1
        else:
            found.append((session, name))
    return found

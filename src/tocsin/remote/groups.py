"""Membership from afar: views and messages come as frames, as many as there is room for here.

A lost connection is a member lost: others see a view without it, and another when it is back. It gets, in order and
once, what it has missed of the views it was in, then the view in which it left, then the one in which it is new; what
was said between these two was not said to it. A cast whose answer was lost is repeated under the same id: it is said
once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from tocsin.errors import GroupError, JournalError, TocsinError
from tocsin.model import new_id
from tocsin.net import frames
from tocsin.net.faults import from_wire
from tocsin.net.protocol import MSGPACK
from tocsin.node.through import seen_through
from tocsin.peers.groups import Message, View, no_member
from tocsin.peers.requests import check_name, pack
from tocsin.remote.link import Lost
from tocsin.remote.peers import RemotePeers

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["RemoteGroup"]

AHEAD: Final = 256
"""Views and messages that may wait here; what comes after them waits in the journal."""


class RemoteGroup:
    """A membership of a group at a node elsewhere, from entering to leaving: an async iterator of views and messages.

    The first item is the view in which you are new.
    """

    def __init__(self, peers: RemotePeers, name: str) -> None:
        """Say which; you are no member yet.

        Raises:
            PeerError: the name is none.
        """
        self.name = check_name(name, "group")
        self._peers = peers
        self.sub, self.is_open = peers.number(), False
        self._has_begun = False
        self._has_left = False
        self._holds: View | None = None
        self._seen: View | None = None  # the last view that came
        self._after = 0  # the offset of what came last
        self._items: deque[View | Message | TocsinError] = deque()
        self._granted = 0
        self._error: TocsinError | None = None
        self._wake = asyncio.Event()

    @property
    def view(self) -> View:
        """The view that holds now, as far as it is known here; once you have left, the last that did.

        Raises:
            GroupError: you have not joined.
        """
        if self._holds is None:
            raise self._no_member()
        return self._holds

    @property
    def is_member(self) -> bool:
        """Are you in the group?"""
        return self.is_open

    # -- coming and going

    async def __aenter__(self) -> RemoteGroup:
        """Join: you are in the view when this returns."""
        if self._has_begun:
            raise GroupError(f"group {self.name!r} was joined with this already", help="call join() again")
        self._has_begun = True
        self._peers.add(self)
        try:
            self._joined(await self._peers.link.ask(self._join))
        except BaseException:
            self._peers.remove(self)
            self._peers.link.tell(frames.Close(0, self.sub))
            self._items.clear()
            self._has_begun = False
            raise
        self.is_open = True
        self._grant()
        return self

    def _join(self, n: int) -> frames.Join:
        self._granted = max(0, AHEAD - len(self._items))
        view = self._seen.offset if self._seen is not None else 0
        return frames.Join(n, self.sub, self.name, self._granted, self._after, view)

    def _joined(self, answer: Raw) -> None:
        self._hold(MSGPACK.read(answer, frames.Viewed))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave."""
        await self.leave()

    async def leave(self) -> None:
        """Leave: others hear of it, you hear nothing more. May be repeated.

        Raises:
            GroupError: you have not joined.
        """
        if self._holds is None:
            raise self._no_member()
        self.is_open = False
        self._peers.remove(self)
        self._items.clear()
        self._wake.set()
        await seen_through(self._leave())

    async def _leave(self) -> None:
        with contextlib.suppress(Lost, JournalError):  # a lost member is none
            if not self._has_left and self._peers.link.is_up:
                await self._peers.link.ask_now(lambda n: frames.Leave(n, self.sub))
        self._has_left = True

    def _no_member(self) -> TocsinError:
        if self._error is not None:
            return self._error
        return no_member(self._peers.link.name, self.name)

    # -- peers.Stream

    def hear(self, frame: Any) -> None:
        """See `peers.Stream`."""
        if isinstance(frame, frames.Trouble):
            self._items.append(from_wire(frame.error))
        elif isinstance(frame, frames.Grouped):
            self._granted -= len(frame.items)
            for item in frame.items:
                self._after = item.offset
                if isinstance(item, frames.Viewed):
                    self._seen = self._as_view(item)
                    self._items.append(self._seen)
                elif self._seen is not None:
                    self._items.append(Message(MSGPACK.read(item.data, Any), item.sender, self._seen, item.offset))
            if frame.view is not None:
                self._hold(frame.view)
            self._grant()
        self._wake.set()

    def _as_view(self, sent: frames.Viewed) -> View:
        return View(self.name, tuple(sent.members), tuple(sent.joined), tuple(sent.left), sent.offset)

    def _hold(self, sent: frames.Viewed) -> None:
        if self._holds is None or sent.offset > self._holds.offset:
            self._holds = self._as_view(sent)

    async def resume(self) -> None:
        """See `peers.Stream`."""
        self._joined(await self._peers.link.ask_now(self._join))
        self._grant()

    def lose(self) -> None:
        """See `peers.Stream`."""
        self._granted = 0

    def end(self, error: TocsinError) -> None:
        """See `peers.Stream`."""
        if not isinstance(error, JournalError):
            self._error = error
        self.is_open = False
        self._items.clear()
        self._wake.set()

    def _grant(self) -> None:
        wanted = AHEAD - len(self._items) - self._granted
        if self.is_open and wanted >= AHEAD // 4:
            self._granted += wanted
            self._peers.link.tell(frames.Credit(self.sub, wanted))

    # -- speaking and hearing

    async def cast(self, data: Any) -> int:
        """Say something to all members, yourself included; returns its offset when it is durable.

        Raises:
            GroupError: you are no member.
            EventError: the data is no JSON value, or too large.
            OverloadError: the node has no room; nothing was stored.
        """
        body, id = Raw(pack(data)), new_id()
        if not self.is_open:
            raise self._no_member()
        raw = await self._peers.link.ask(lambda n: frames.Cast(n, self.sub, body, id))
        return MSGPACK.read(raw, int)

    def poll(self) -> View | Message | None:
        """The next view or message if there is one here at this moment.

        Raises:
            GroupError: as `next`.
        """
        if not self._has_begun:
            raise self._no_member()
        found = self._items.popleft() if self._items else None
        self._grant()
        if isinstance(found, TocsinError):
            raise found
        return found

    async def next(self, timeout: float | None = None) -> View | Message:
        """Wait for the next view or message.

        Raises:
            TimeoutError: none came in time; none is lost.
            GroupError: you have not joined, or have left, or messages were trimmed before you took them.
        """
        async with asyncio.timeout(timeout):
            while True:
                self._wake.clear()
                if (found := self.poll()) is not None:
                    return found
                if not self.is_open:
                    raise self._no_member()
                await self._wake.wait()

    def __aiter__(self) -> RemoteGroup:
        """Iterate over views and messages."""
        return self

    async def __anext__(self) -> View | Message:
        """Wait for the next view or message."""
        try:
            return await self.next()
        except GroupError:
            if self.is_open:
                raise
            raise StopAsyncIteration from None

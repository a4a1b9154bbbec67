"""Who is there, over a connection: servers, requests, groups, and watches of resources and of demand.

A server here is handed requests as frames and brings the answers later; a member is sent what it has credit for.
Nothing grows while a client does not read: requests go to other servers, what a group says waits in the journal,
changes of resources wait up to a bound, and of demand only the newest is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from tocsin.errors import GroupError, OverloadError, PeerError, TocsinError
from tocsin.net import frames
from tocsin.net.access import Caller
from tocsin.net.faults import to_wire
from tocsin.net.pumps import FULL
from tocsin.net.streams import Streams
from tocsin.node import requests
from tocsin.node.discovery import Changes
from tocsin.node.groups import Group
from tocsin.node.sessions import Session
from tocsin.peers.groups import View
from tocsin.peers.requests import Request, check_name, pack
from tocsin.peers.servers import Server

__all__ = ["PeerStreams"]

_BATCH = 1000  # items in one frame, so that none grows without end
_LONGEST_ID = 256
_NAME = 256  # bytes that a name may have, or a few more


class _About(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of a watch of resources."""

    filter: Any = None


class _Known(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of a watch of demand: for what, and what is known already."""

    filter: Any
    consumers: list[str] = []
    definitions: list[str] = []


class PeerStreams:
    """What a session asks of its peers."""

    def __init__(self, streams: Streams, caller: Caller) -> None:
        """Begin with nothing."""
        self._streams, self._caller, self._codec = streams, caller, streams.codec
        self.watches: dict[str, Callable[[frames.Watch], Coroutine[Any, Any, Raw]]] = {
            "resources": self._resources,
            "demand": self._demand,
        }
        """What can be watched; the number was checked."""

    @property
    def _session(self) -> Session:
        found: Session = self._streams.bus._session
        return found

    # -- requests

    async def serve(self, frame: frames.Serve) -> Raw:
        """Let a client answer requests for a resource."""
        self._streams.check_number(frame.sub)
        self._caller.spend_call()
        self._caller.check("serve", check_name(frame.resource))
        pump = _Server(self._session, frame.resource, frame.sub, self._streams)
        await requests.serve(self._session, pump.server)
        self._streams.add(frame.sub, pump)
        return self._codec.value(None)

    def answer(self, frame: frames.Answer | frames.Fail) -> None:
        """A client has answered. What nobody asked, or not any more, is passed over."""
        pump = self._streams.find(frame.sub, _Server)
        if pump is not None:
            pump.answer(frame)

    async def withdraw(self, frame: frames.Withdraw) -> Raw:
        """A client serves no more."""
        pump = self._streams.find(frame.sub, _Server)
        if pump is None:  # it is not served, or not yet
            return await self._streams.close(frame)
        await pump.end(drains=frame.drains)
        return self._codec.value(None)

    async def request(self, frame: frames.Request) -> Raw:
        """A client asks."""
        self._caller.check("request", check_name(frame.resource))
        data: Any = self._codec.read(frame.data, Any)
        reply = await self._streams.bus.request(frame.resource, data, timeout=frame.timeout, policy=frame.policy)
        return self._codec.value(reply)

    # -- groups

    async def join(self, frame: frames.Join) -> Raw:
        """Let a client be a member of a group."""
        self._streams.check_number(frame.sub, frame.credit)
        self._caller.spend_call()
        self._caller.check("join", check_name(frame.group, "group"))
        group = Group(self._session, frame.group, frame.after, frame.view)
        await group.__aenter__()
        pump = _Member(group, frame.sub, frame.credit, self._streams)
        self._streams.add(frame.sub, pump)
        return self._codec.value(_viewed(group.view))

    async def cast(self, frame: frames.Cast) -> Raw:
        """A member says something."""
        pump = self._streams.find(frame.sub, _Member)
        if pump is None:
            raise GroupError(f"there is no group {frame.sub}", field="sub", help="join first")
        if frame.id is not None and not 0 < len(frame.id) <= _LONGEST_ID:
            raise PeerError("the id is none", field="id", help=f"use 1 to {_LONGEST_ID} characters")
        self._caller.spend(1, len(bytes(frame.data)))
        return self._codec.value(await pump.group.cast(self._codec.read(frame.data, Any), frame.id))

    # -- watches

    async def _resources(self, frame: frames.Watch) -> Raw:
        given: _About | None = self._codec.read(frame.args, _About | None)
        filter = given.filter if given is not None else None
        pump = _Resources(self._streams.bus.resources(filter), frame.sub, frame.credit, self._streams)
        count = pump.changes.waiting
        self._streams.add(frame.sub, pump)
        return self._codec.value({"now": count})

    async def _demand(self, frame: frames.Watch) -> Raw:
        given: _Known = self._codec.read(frame.args, _Known)
        found = await self._streams.bus.demand(given.filter)
        known = (tuple(given.consumers), tuple(given.definitions))
        self._streams.add(frame.sub, _Demand(found, known, frame.sub, frame.credit, self._streams))
        return self._codec.value(None)


class _Pump:
    """What is the same for all of them; see `pumps.Pump`."""

    def __init__(self, sub: int, credit: int, streams: Streams) -> None:
        self.sub, self.credit, self.closed = sub, credit, False
        self.streams, self.outgoing, self.codec = streams, streams.outgoing, streams.codec

    @property
    def may_send(self) -> bool:
        return not self.closed and self.credit > 0 and self.outgoing.has_room

    def push(self) -> bool:
        return False

    def taken(self, numbers: Iterable[int]) -> None:
        """What was sent is gone from here."""

    def ended(self, error: TocsinError | None = None) -> None:
        self.closed = True
        self.outgoing.put(frames.Ended(self.sub, to_wire(error) if error is not None else None))


class _Server(_Pump):
    """A client that answers requests. It has at most `servers.MAX_IN_HAND` in hand."""

    def __init__(self, session: Session, resource: str, sub: int, streams: Streams) -> None:
        super().__init__(sub, 0, streams)
        self._session, self._exchange = session, session.node.peers.exchange
        self.server = Server(resource, session.id, session.name, self._ask)
        self._idle = asyncio.Event()
        self._ending: asyncio.Future[None] | None = None

    def _ask(self, request: Request) -> None:
        """Hand a request over.

        Raises:
            OverloadError: the client does not read: another may do it.
        """
        if not self.outgoing.has_room:
            raise OverloadError("the connection of the server is clogged", help="ask again later")
        item = (request.id, request.sender, request.attempt, self.codec.value(request.data))
        self.outgoing.put(frames.Asked(self.sub, [item]))

    def answer(self, frame: frames.Answer | frames.Fail) -> None:
        if isinstance(frame, frames.Fail):
            self._exchange.fail(self.server, frame.id, frame.message)
        else:
            try:
                body = pack(self.codec.read(frame.data, Any))
            except TocsinError as error:
                self._exchange.fail(self.server, frame.id, f"{type(error).__name__}: {error}")
            else:
                self._exchange.reply(self.server, frame.id, body)
        if not self.server.in_hand:
            self._idle.set()

    async def end(self, drains: bool) -> None:
        if self._ending is None:
            if not self.server.in_hand:
                self._idle.set()
            else:
                self._idle.clear()
            ending = requests.end(self._session, self.server, self._idle if drains else None)
            self._ending = asyncio.ensure_future(ending)
        elif not drains:
            self._idle.set()
        await asyncio.shield(self._ending)
        self.closed = True

    async def close(self) -> None:
        await self.end(drains=False)


class _Member(_Pump):
    """A client that is a member of a group."""

    def __init__(self, group: Group, sub: int, credit: int, streams: Streams) -> None:
        super().__init__(sub, credit, streams)
        self.group = group
        self._told: View | None = group.view
        group.listen(streams.push_soon)

    def push(self) -> bool:
        items: list[frames.Viewed | frames.Said] = []
        size = 0
        trouble: TocsinError | None = None
        while self.may_send and len(items) < _BATCH and size < FULL:
            try:
                item = self.group.poll()
            except TocsinError as error:
                trouble = error
                break
            if item is None:
                break
            self.credit -= 1
            if isinstance(item, View):
                items.append(_viewed(item))
                size += _NAME * len(item.members)
            else:
                data = self.codec.value(item.data)
                items.append(frames.Said(item.offset, item.sender, data))
                size += memoryview(data).nbytes
        if self.closed:
            return False
        holds = self.group.view
        is_news = holds != self._told and self.outgoing.has_room  # of several, the newest is told
        if items or is_news:
            self._told = holds if is_news else self._told
            self.outgoing.put(frames.Grouped(self.sub, items, _viewed(holds) if is_news else None))
        if trouble is not None:
            self.outgoing.put(frames.Trouble(self.sub, to_wire(trouble)))
        if not self.group.is_member:
            self.ended()
        more = isinstance(trouble, GroupError)  # something is missing, which is said once: then it goes on
        return more or len(items) == _BATCH or size >= FULL

    async def close(self) -> None:
        self.closed = True
        await self.group.leave()


class _Resources(_Pump):
    """A client that watches resources."""

    def __init__(self, changes: Changes, sub: int, credit: int, streams: Streams) -> None:
        super().__init__(sub, credit, streams)
        self.changes = changes
        self._next = 1
        changes.on_wake = streams.push_soon

    def push(self) -> bool:
        items: list[tuple[int, Raw]] = []
        error: TocsinError | None = None
        while self.may_send and len(items) < _BATCH and error is None:
            try:
                change = self.changes.poll()
            except OverloadError as overrun:
                error = overrun
                break
            if change is None:
                break
            items.append((self._next, self.codec.value(change)))
            self._next += 1
            self.credit -= 1
        if items:
            self.outgoing.put(frames.Seen(self.sub, items))
        if not self.closed and (error is not None or (self.changes.closed and not self.changes.waiting)):
            self.ended(error)
        return len(items) == _BATCH

    async def close(self) -> None:
        self.closed = True
        self.changes.close()


class _Demand(_Pump):
    """A client that waits for others to want something. Of several changes it is told the newest."""

    def __init__(
        self, found: Any, known: tuple[tuple[str, ...], tuple[str, ...]], sub: int, credit: int, streams: Streams
    ) -> None:
        super().__init__(sub, credit, streams)
        self._found, self._known, self._next = found, known, 1
        self._following = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        try:
            while True:
                self._found = await self._found.changed()
                self.streams.push_soon()
        except TocsinError as error:
            if not self.closed:
                self.ended(error)

    def push(self) -> bool:
        found = (self._found.consumers, self._found.definitions)
        if self.may_send and found != self._known:
            self._known = found
            self.credit -= 1
            about = {"consumers": found[0], "definitions": found[1]}
            self.outgoing.put(frames.Seen(self.sub, [(self._next, self.codec.value(about))]))
            self._next += 1
        return False

    async def close(self) -> None:
        self.closed = True
        self._following.cancel()


def _viewed(view: View) -> frames.Viewed:
    return frames.Viewed(view.offset, list(view.members), list(view.joined), list(view.left))

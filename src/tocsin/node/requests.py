"""The exchange: requests go from session to session in memory, and replies come back. Nothing of it is stored.

    request ─▶ Call (whom to ask) ─▶ Server.deliver ─▶ handler … ─▶ reply | fail ─▶ Call ─▶ result
                     ▲                                   │
                     └──────── lost: ask another ◀───────┘ the server is gone

Promised: every request ends, by its time at the latest, with a result or a typed error; never in silence. What comes
too late is dropped. A server has a request in hand until it answers, also when nobody waits any more: so its load is
what it works on.

Serving is announced in the journal, like any advertisement; only that waits for the disk.
Concurrency: the node's loop only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from tocsin.clock import SECOND, Clock
from tocsin.errors import JournalError, OverloadError, PeerError, TocsinError
from tocsin.node.through import seen_through
from tocsin.peers import records
from tocsin.peers.advertisements import Resource
from tocsin.peers.requests import Call, check_name, pack
from tocsin.peers.servers import Server, Servers

if TYPE_CHECKING:
    from tocsin.node.sessions import Session

__all__ = ["DRAIN", "MAX_CALLS", "TIMEOUT", "Exchange", "check_timeout", "end", "request", "serve", "withdraw"]

TIMEOUT: Final = 30.0
"""Seconds a request waits if nothing else is said."""
MAX_CALLS: Final = 10_000
"""Requests of one session that may be on their way at a time."""
DRAIN: Final = 5.0
"""Seconds that requests in hand have at a clean end."""
_log = logging.getLogger("tocsin")


class _Open:
    """A call, and who waits for it."""

    __slots__ = ("call", "is_closed", "session", "wake")

    def __init__(self, call: Call, session: str) -> None:
        self.call, self.session = call, session
        self.wake = asyncio.Event()
        self.is_closed = False  # the session that asks has ended


class Exchange:
    """Servers, and the requests on their way."""

    def __init__(self, clock: Clock) -> None:
        """Begin with none; `clock` tells when a request has waited long enough."""
        self.servers = Servers()
        self._clock = clock
        self._open: dict[str, _Open] = {}
        self._counts: dict[str, int] = {}  # session → its requests on their way

    # -- asking

    async def request(self, session: str, call: Call, seconds: float) -> Any:
        """See a call through.

        Raises:
            RequestError: as its subclasses say.
            OverloadError: there are too many already; nobody was asked.
        """
        count = self._counts.get(session, 0)
        if count >= MAX_CALLS:
            raise OverloadError(f"{count:,} requests of this session are on their way", help="wait for some of them")
        until = self._clock.now() + round(seconds * SECOND)
        chosen = call.start(self.servers)
        opened = self._open[call.id] = _Open(call, session)
        self._counts[session] = count + 1
        try:
            self._send(call, chosen)
            while not call.is_over and not opened.is_closed:
                if self._clock.now() >= until:
                    raise call.timed_out(seconds)
                await self._clock.wait(opened.wake, until)
                opened.wake.clear()
            if not call.is_over:
                raise JournalError("the bus was closed before the answer came", help="connect again")
            return call.result()
        finally:
            del self._open[call.id]
            self._counts[session] -= 1
            if not self._counts[session]:
                del self._counts[session]

    def _send(self, call: Call, chosen: list[Server]) -> None:
        for server in chosen:  # it may grow meanwhile
            try:
                server.deliver(call.request())
            except Exception as error:  # its connection is clogged, say: another may do it
                if not isinstance(error, TocsinError):
                    _log.exception("a request could not be handed to %r", server.name)
                server.in_hand.pop(call.id, None)
                chosen += call.lost(server, self.servers)

    # -- answering

    def reply(self, server: Server, id: str, body: bytes) -> None:
        """A server has answered a request it had in hand; `body` is packed (`peers.requests.pack`)."""
        if (opened := self._answered(server, id)) is not None:
            opened.call.replied(server, body)
            opened.wake.set()

    def fail(self, server: Server, id: str, message: str) -> None:
        """A server's handler has raised."""
        if (opened := self._answered(server, id)) is not None:
            opened.call.failed(server, message)
            opened.wake.set()

    def _answered(self, server: Server, id: str) -> _Open | None:
        if id not in server.in_hand:  # nobody asked that, or it was lost before
            return None
        del server.in_hand[id]
        return self._open.get(id)

    # -- going

    def drop(self, server: Server) -> None:
        """A server is gone: what it had in hand goes to others, or its requesters are told."""
        self.servers.remove(server)
        for id in list(server.in_hand):
            if (opened := self._open.get(id)) is not None:
                self._send(opened.call, opened.call.lost(server, self.servers))
                opened.wake.set()
        server.in_hand.clear()

    def drop_session(self, session: str) -> None:
        """A session is gone: all its servers are, and nobody waits for its own requests."""
        own = self.servers.of_session(session)
        for server in own:  # all before any is replaced: one must not take over from the other
            self.servers.remove(server)
        for server in own:
            self.drop(server)
        for opened in self._open.values():
            if opened.session == session:
                opened.is_closed = True
                opened.wake.set()

    def close(self) -> None:
        """The node is closed: nobody waits any more."""
        for opened in self._open.values():
            opened.is_closed = True
            opened.wake.set()


def check_timeout(seconds: Any) -> None:
    """Refuse a time that means nothing.

    Raises:
        PeerError: it is no number of seconds above 0.
    """
    if type(seconds) not in (int, float) or not 0 < seconds < 1e9:
        raise PeerError(f"timeout is {seconds!r:.80}", field="timeout", help="give seconds, more than 0")


async def request(
    session: Session,
    resource: str,
    data: Any,
    seconds: float = TIMEOUT,
    policy: str = "one",
) -> Any:
    """Ask who serves a resource; see `Bus.request`."""
    session.check()
    check_timeout(seconds)
    call = Call(check_name(resource), pack(data), session.name, policy)
    return await session.node.peers.exchange.request(session.id, call, seconds)


async def serve(session: Session, server: Server) -> None:
    """Let a server of a session be asked. The first request may come before this returns.

    Each is handed to `Server.deliver`, and answered by `Exchange.reply` or `fail`.

    Raises:
        PeerError: the name is none, the session serves it already, or serves too much.
    """
    peers, what = session.node.peers, Resource(check_name(server.resource), served=True)

    def apply(offset: int) -> list[Any]:
        if not session.ended:  # else its end comes next
            peers.exchange.servers.add(server)
        return [peers.advertisements.advertise(session.id, session.name, what)]

    try:
        async with session.changing:
            session.check()
            peers.exchange.servers.check(server.resource, session.id)
            peers.advertisements.check_room(session.id, what)
            record = records.advertised(session.id, session.name, what)
            await peers.store(session, [record], {records.resource_key(session.id, what): b""}, apply)
    except BaseException:
        if peers.exchange.servers.remove(server):  # who waits was cancelled, and yet it is stored
            await seen_through(withdraw(session, server))
            peers.exchange.drop(server)
        raise


async def withdraw(session: Session, server: Server) -> None:
    """Stop serving: at once nothing new comes. What is in hand may still be answered; `Exchange.drop` gives it up."""
    peers, what = session.node.peers, Resource(server.resource, served=True)
    peers.exchange.servers.leave(server)

    def apply(offset: int) -> list[Any]:
        change = peers.advertisements.unadvertise(session.id, what)
        return [] if change is None else [change]

    try:
        async with session.changing:
            if not session.ended:
                record = records.unadvertised(session.id, session.name, what)
                await peers.store(session, [record], {records.resource_key(session.id, what): None}, apply)
    finally:
        peers.exchange.servers.left(server)


async def end(session: Session, server: Server, idle: asyncio.Event | None) -> None:
    """Stop serving, for good; what cannot be stored now is said by the end of the session.

    Args:
        session: whose server.
        server: which.
        idle: set when nothing is in hand: that has `DRAIN` seconds. None: what is in hand is given up at once.
    """
    try:
        await withdraw(session, server)
    except TocsinError as error:
        if not session.node.closed:
            _log.error("it is not stored that %r is not served any more: %s", server.resource, error)
    if idle is not None and not session.ended:
        clock = session.node.clock
        await clock.wait(idle, clock.now() + round(DRAIN * SECOND))
    session.node.peers.exchange.drop(server)

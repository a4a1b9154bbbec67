"""Sessions: one for each face of a node, and what belongs to it: advertisements, servers, memberships, handles.

A session begins in silence; its first advertisement, server or membership announces it (`tocsin.session`), or
`announce` does. When it ends, cleanly or not, all it had is withdrawn, in one commit, and its subscriptions are closed:
durable consumers keep their place. Soft state: a session does not outlive its process. What one has at a moment is also
kept as state beside its records, so that whoever opens the journal after a crash withdraws it first of all.

Promised: memory and journal agree. A session changes one thing at a time, a group has one view at a time; a change
holds when its record is stored, and everybody is told in the order of the journal. An end that cannot be stored (the
disk is full) is tried again; its servers are gone at once all the same.

Concurrency: the node's loop only. Sessions change side by side, so that their records share commits. The journal
answers in its own order, and `Peers._store` lets a change hold in the same step in which it gets the answer: that keeps
memory in the journal's order, so nothing may be awaited between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tocsin.clock import SECOND
from tocsin.delivery.handles import Subscription
from tocsin.errors import JournalError, NotAdvertisedError, TocsinError
from tocsin.filters.filter import Filter
from tocsin.model import Event
from tocsin.node.requests import Exchange
from tocsin.node.through import seen_through
from tocsin.peers import records
from tocsin.peers.advertisements import Advertisements, Change
from tocsin.peers.groups import Groups

if TYPE_CHECKING:
    from tocsin.node.pipeline import Node

__all__ = ["Belonging", "Listener", "Peers", "Session"]

_RETRY: Final = 5 * SECOND
_log = logging.getLogger("tocsin")


class Belonging(Protocol):
    """Something of a session that must hear of its end: a server's handlers, a group's handle."""

    async def gone(self) -> None:
        """The session has ended."""


class Listener(Protocol):
    """Somebody who watches resources."""

    def hear(self, change: Change) -> None:
        """Something has changed."""

    def close(self) -> None:
        """Nothing will change any more."""


class Session:
    """Somebody's time at a node, from connecting to closing or being lost."""

    def __init__(self, node: Node, name: str, *, strict: bool = False) -> None:
        """Begin, in silence.

        Args:
            node: where.
            name: who; several sessions may have one name.
            strict: may it publish only what it advertises?
        """
        self.node, self.name, self.strict = node, name, strict
        self.id = secrets.token_hex(8)
        self.since = node.now()
        self.ended = False
        self.announced = False
        """Has the journal a record of it?"""
        self.changing = asyncio.Lock()
        """Held from looking at what it has until the record of a change is stored."""
        self.belongings: set[Belonging] = set()
        self.subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self.promised: dict[str, Filter] = {}
        """What it advertises to publish, by text."""

    def check(self) -> None:
        """Refuse to go on when it has ended.

        Raises:
            JournalError: it has.
        """
        if self.ended or self.node.closed:
            raise JournalError("the bus is closed", help="connect again")

    def check_promised(self, events: Sequence[Event]) -> None:
        """Refuse events outside what this session advertises, if it is strict.

        Raises:
            NotAdvertisedError: one of them is.
        """
        if not self.strict:
            return
        for event in events:
            if event.__class__ is Event and not any(each.matches(event) for each in self.promised.values()):
                raise NotAdvertisedError(
                    f"{self.name!r} has not advertised an event like this, of type {event.type!r}",
                    field="type",
                    help="advertise a filter that it matches, or connect without strict_advertise",
                )

    async def adopt(self, subscription: Subscription) -> Subscription:
        """Close a subscription with the session; returns it.

        Raises:
            JournalError: the session has ended meanwhile; the subscription is closed.
        """
        self.subscriptions.add(subscription)
        if self.ended:
            await subscription.close()
        self.check()
        return subscription

    async def announce(self) -> None:
        """Let everybody know that it is there, if they do not."""
        peers = self.node.peers
        async with self.changing:
            self.check()
            if not self.announced:
                await peers.store(self, [], {})

    async def end(self, crashed: bool = False) -> None:
        """Withdraw all it has. May be repeated. Who asked its servers is answered by others, or told.

        Args:
            crashed: it was lost, rather than closed; the record says so.
        """
        if not self.ended:
            self.ended = True
            self.node.peers.exchange.drop_session(self.id)
        await seen_through(self._end(crashed))

    async def _end(self, crashed: bool) -> None:
        for belonging in list(self.belongings):
            await belonging.gone()
        for subscription in list(self.subscriptions):
            with contextlib.suppress(TocsinError):  # it is closed; a dead letter is stored later
                await subscription.close()
        await self.node.peers.withdraw(self, crashed)


class Peers:
    """Who is there: all sessions of a node, and what they have."""

    def __init__(self, node: Node) -> None:
        """Begin with nobody; what an earlier life has left is withdrawn."""
        self._node = node
        self.advertisements = Advertisements()
        self.groups = Groups()
        self.exchange = Exchange(node.clock)
        self.sessions: dict[str, Session] = {}
        """Those that were announced and have not ended, by id."""
        self.regrouping = asyncio.Lock()
        """The same for who is in groups. Taken after the session's own."""
        self.listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self.demand = asyncio.Event()
        """Set, and replaced, when somebody wants something else than before."""
        self._retries: set[asyncio.Task[None]] = set()
        left = node.journal.state(records.PREFIX)
        if left:
            answer = node.store(events=records.withdrawals(left), state=dict.fromkeys(left))
            answer.add_done_callback(_report)

    # -- changes

    async def store(
        self,
        session: Session,
        events: Sequence[Event],
        state: Mapping[str, bytes | None],
        apply: Callable[[int], Iterable[Change]] = lambda offset: (),
    ) -> int:
        """Store a change of a session, then let it hold. The caller holds `session.changing`.

        It is seen through to its end, also if who waits is cancelled.

        Args:
            session: whose; it is announced first, if it was not.
            events: the records.
            state: what the session has now, or not any more.
            apply: changes what is known here; gets the offset of the last record, and returns what others hear.
        """
        return await seen_through(self._store(session, events, state, apply))

    async def _store(
        self,
        session: Session,
        events: Sequence[Event],
        state: Mapping[str, bytes | None],
        apply: Callable[[int], Iterable[Change]],
    ) -> int:
        if not session.announced:
            events = [records.session(session.id, session.name, "began"), *events]
            state = {records.key(session.id): session.name.encode(), **state}
        offsets = await self._node.store(events=events, state=state)
        if not session.announced:
            session.announced = True
            self.sessions[session.id] = session
        self.tell(apply(offsets[-1]))
        return offsets[-1]

    def tell(self, changes: Iterable[Change]) -> None:
        """Let everybody who watches resources hear of changes."""
        for change in changes:
            for listener in list(self.listeners):
                listener.hear(change)

    def demand_changed(self) -> None:
        """Somebody has subscribed, or does not want something any more."""
        self.demand.set()
        self.demand = asyncio.Event()

    # -- the end of a session

    async def withdraw(self, session: Session, crashed: bool) -> None:
        """Store the end of a session, and let go of all it had. What cannot be stored now is tried again."""
        try:
            async with session.changing, self.regrouping if self.groups.of(session.id) else contextlib.nullcontext():
                if session.id in self.sessions:
                    await self._withdraw(session, crashed)
        except TocsinError as error:
            if self._node.closed:
                return  # whoever opens the journal next withdraws it
            _log.error("the end of the session of %r is not stored, it will be tried again: %s", session.name, error)
            task = asyncio.get_running_loop().create_task(self._try_again(session, crashed))
            self._retries.add(task)
            task.add_done_callback(self._retries.discard)

    async def _try_again(self, session: Session, crashed: bool) -> None:
        clock = self._node.clock
        await clock.wait(asyncio.Event(), clock.now() + _RETRY)
        await self.withdraw(session, crashed)

    async def _withdraw(self, session: Session, crashed: bool) -> None:
        id, name = session.id, session.name
        resources = self.advertisements.of(id)
        plans = [self.groups.leave(group, id) for group in self.groups.of(id)]
        events = [
            *(records.unadvertised(id, name, resource) for resource in resources),
            *(records.view(plan) for plan in plans),
            records.session(id, name, "crashed" if crashed else "ended"),
        ]
        state: dict[str, bytes | None] = dict.fromkeys(records.resource_key(id, each) for each in resources)
        state |= dict.fromkeys(records.group_key(id, plan.group) for plan in plans)
        state[records.key(id)] = None

        def apply(offset: int) -> list[Change]:
            first = offset - len(plans)  # views lie side by side before the session's own record
            for place, plan in enumerate(plans):
                self.groups.install(plan, first + place)
            del self.sessions[id]
            return self.advertisements.leave(id)

        await self.store(session, events, state, apply)

    # -- the end of the node

    async def close(self) -> None:
        """End all sessions, cleanly."""
        for session in list(self.sessions.values()):
            session.subscriptions.clear()  # the node closes them, and keeps what is in hand
            await session.end()
        await self.stop()

    async def stop(self) -> None:
        """Let go of everything, without a word in the journal."""
        self.exchange.close()
        for listener in list(self.listeners):
            listener.close()
        self.demand_changed()
        tasks = list(self._retries)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for session in list(self.sessions.values()):
            session.ended = True
            for belonging in list(session.belongings):
                with contextlib.suppress(TocsinError):
                    await belonging.gone()


def _report(answer: asyncio.Future[list[int]]) -> None:
    """What an earlier life has left stays for the next one, if it could not be withdrawn."""
    if not answer.cancelled() and (error := answer.exception()) is not None:
        _log.error("what sessions before a crash have left is not withdrawn: %s", error)

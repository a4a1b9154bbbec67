"""Groups: join, cast, leave, and hear views and messages in one order.

A member reads the journal from the view in which it is new, by a subscription of its own: so a slow one holds up
nobody, and what waits for it is in the journal, not in memory. A cast is durable when it returns, and comes back to its
sender like to everybody. All that was submitted before a member is gone lies before the view that says so: nobody hears
from who is not there.

Not promised: anything over a restart. Groups end with the node, and begin anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tocsin.delivery.handles import ClosedError, Delivery, Subscription
from tocsin.errors import GroupError, TocsinError
from tocsin.journal import bounds
from tocsin.node import consumers
from tocsin.node.pipeline import MAX_EVENT_BYTES
from tocsin.node.through import seen_through
from tocsin.peers import records
from tocsin.peers.groups import Message, View, no_member
from tocsin.peers.requests import check_name

if TYPE_CHECKING:
    from types import TracebackType

    from tocsin.node.sessions import Session

__all__ = ["Group"]


class Group:
    """A session's membership of a group, from entering to leaving: an async iterator of views and messages.

    The first item is the view in which you are new.
    """

    def __init__(self, session: Session, name: str, after: int = 0, view: int = 0) -> None:
        """Say which; you are no member yet.

        Args:
            session: whose membership.
            name: of the group.
            after: the offset of what came last, if this name was a member before, on a connection that was lost: what
                it has missed of the views it was in comes first.
            view: the offset of the view that held there.

        Raises:
            PeerError: the name is none.
        """
        self._after, self._from = (after, min(view, after)) if after and view else (0, 0)
        self.name = check_name(name, "group")
        self._session, self._peers = session, session.node.peers
        self._has_begun = False
        self._subscription: Subscription | None = None
        self._is_in = False  # as the journal has it
        self._is_open = False  # may it cast?
        self._seen: View | None = None  # the view of what is taken next
        self._last: View | None = None
        self._is_short = False  # of what was missed, some is trimmed, and that is not told yet

    @property
    def view(self) -> View:
        """The view that holds now; once you have left, the last that did. What you have still to take may be older.

        Raises:
            GroupError: you have not joined.
        """
        found = self._peers.groups.view(self.name) if self._is_open else self._last
        if found is None:
            raise self._no_member()
        return found

    @property
    def is_member(self) -> bool:
        """Are you in the group?"""
        return self._is_open

    # -- coming and going

    async def __aenter__(self) -> Group:
        """Join: you are in the view when this returns."""
        if self._has_begun:
            raise GroupError(f"group {self.name!r} was joined with this already", help="call join() again")
        self._has_begun = True
        session = self._session
        try:
            offset = await self._join()
            if not session.node.journal.first <= self._from < offset:
                self._is_short = 0 < self._from < offset
                self._from = offset
            self._subscription = await consumers.subscribe(
                session.node,
                records.filter_of_group(self.name),
                None,
                bounds.since(self._from),
                {"order": "journal", "auto_ack": True},
                system=True,
            )
            session.check()
        except BaseException:
            with contextlib.suppress(TocsinError):  # then the end of the session says it
                await self._leave()
            self._has_begun = False
            raise
        return self

    async def _join(self) -> int:
        session = self._session
        async with session.changing, self._peers.regrouping:
            session.check()
            plan = self._peers.groups.join(self.name, session.id, session.name)

            def apply(offset: int) -> list[Any]:
                self._peers.groups.install(plan, offset)
                self._is_in, self._is_open = True, not session.ended
                session.belongings.add(self)
                return []

            state = {records.group_key(session.id, self.name): b""}
            return await self._peers.store(session, [records.view(plan)], state, apply)

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
        if self._subscription is None:
            raise self._no_member()
        await self._leave()

    async def _leave(self) -> None:
        await seen_through(self._withdraw())

    async def _withdraw(self) -> None:
        session = self._session
        await self.gone()
        async with session.changing, self._peers.regrouping:
            if not self._is_in or session.ended:
                return  # it is said, or the session's end says it
            plan = self._peers.groups.leave(self.name, session.id)

            def apply(offset: int) -> list[Any]:
                self._peers.groups.install(plan, offset)
                self._is_in = False
                return []

            state = {records.group_key(session.id, self.name): None}
            await self._peers.store(session, [records.view(plan)], state, apply)

    async def gone(self) -> None:
        """See `sessions.Belonging`: nothing is cast or heard any more."""
        if self._is_open:
            self._last = self._peers.groups.view(self.name)
        self._is_open = False
        self._session.belongings.discard(self)
        if self._subscription is not None:
            with contextlib.suppress(TocsinError):
                await self._subscription.close()

    def _no_member(self) -> GroupError:
        return no_member(self._session.name, self.name)

    # -- speaking and hearing

    def listen(self, wake: Callable[[], None]) -> None:
        """Have a function called when something may be there: for who does not wait in `next`."""
        assert self._subscription is not None
        self._subscription.on_wake = wake

    async def cast(self, data: Any, id: str | None = None) -> int:
        """Say something to all members, yourself included; returns its offset when it is durable.

        Args:
            data: a JSON value.
            id: repeating it with the same id changes nothing.

        Raises:
            GroupError: you are no member.
            EventError: the data is no JSON value, or too large.
            OverloadError: the node has no room; nothing was stored.
        """
        record = records.cast(self.name, self._session.name, data, id)
        node = self._session.node
        await node.room_for(1)
        if not self._is_open or self._session.ended:
            raise self._no_member()
        [offset] = await node.store(events=[record], largest=MAX_EVENT_BYTES)
        return offset

    def poll(self) -> View | Message | None:
        """The next view or message if there is one at this moment.

        Raises:
            GroupError: as `next`.
        """
        if self._subscription is None:
            raise self._no_member()
        self._tell_short()
        while (found := self._subscription.poll()) is not None:
            if (item := self._item(found)) is not None:
                return item
        return None

    async def next(self, timeout: float | None = None) -> View | Message:
        """Wait for the next view or message.

        Raises:
            TimeoutError: none came in time; none is lost.
            GroupError: you have not joined, or have left, or messages were trimmed before you took them.
        """
        if self._subscription is None:
            raise self._no_member()
        self._tell_short()
        try:
            async with asyncio.timeout(timeout):
                while (item := self._item(await self._subscription.next())) is None:
                    pass
                return item
        except ClosedError:
            raise self._no_member() from None

    def _item(self, delivery: Delivery) -> View | Message | None:
        """What a record tells a member; None: it came before, or lies in a view that this name was not in."""
        record = delivery.event
        if delivery.notice:
            raise self._trimmed()
        item: View | Message
        if record.type == records.VIEW:
            item = self._seen = View.of(record)
            concerned = (*item.members, *item.left)
        elif self._seen is None:
            return None  # who comes back has named a place that is no view
        else:
            item = Message.of(record, self._seen)
            concerned = self._seen.members
        return item if item.offset > self._after and self._session.name in concerned else None

    def _tell_short(self) -> None:
        if self._is_short:
            self._is_short = False
            raise self._trimmed()

    def _trimmed(self) -> GroupError:
        return GroupError(
            f"messages to group {self.name!r} were trimmed before {self._session.name!r} took them",
            help="leave and join again; trim less, or take sooner",
        )

    def __aiter__(self) -> Group:
        """Iterate over views and messages."""
        return self

    async def __anext__(self) -> View | Message:
        """Wait for the next view or message."""
        try:
            return await self.next()
        except GroupError:
            if self._is_open:
                raise
            raise StopAsyncIteration from None

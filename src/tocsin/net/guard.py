"""The face of the bus for somebody with a token: every verb, limited to what the token may.

A verb does here what it does on `client.Bus`, or raises `ForbiddenError`; of an event that its caller may not see it
says what it says of one that is not there. A verb that this page does not know is refused: what is new must be thought
of here first, and `tests/security/test_guard.py` compares the two.

What is asked for is narrowed (`Scope.limit`), never filtered afterwards: events outside the scope are not matched, so
they cost no delivery, no place in a window and no time that could be measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.detector import SOURCE
from tocsin.composite.expression import Definition, leaves
from tocsin.composite.language import parse
from tocsin.delivery.mailbox import Mailbox
from tocsin.errors import ConsumerError, FilterError, ForbiddenError, UnknownEventError
from tocsin.filters.filter import Filter
from tocsin.journal import history
from tocsin.journal.bounds import Past
from tocsin.journal.rowed import Rowed
from tocsin.journal.rows import to_row
from tocsin.model import Event
from tocsin.node import alerts, discovery
from tocsin.node import consumers as consumers_module
from tocsin.node.definitions import DefinitionInfo
from tocsin.node.discovery import Changes
from tocsin.node.pipeline import Batch
from tocsin.peers.advertisements import Change
from tocsin.security.scope import types_filter

if TYPE_CHECKING:
    from tocsin.net.access import GuardedCaller

__all__ = ["Guard"]


class Guard:
    """A bus that knows what its caller may do."""

    def __init__(self, bus: Any, caller: GuardedCaller) -> None:
        """Stand before a bus."""
        self._bus, self._caller = bus, caller
        self._principal = caller.principal
        self._rights, self._scope = caller.principal.rights, caller.principal.scope
        self._node, self._session, self.name = bus._node, bus._session, bus.name

    def __getattr__(self, name: str) -> Any:
        """Refuse what this page does not know."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._refused(f"there is no {name} for callers with a token", "right")

    def _refused(self, message: str, why: str, help: str = "ask who runs the node for another token") -> ForbiddenError:
        return self._caller.refused(ForbiddenError(message, help=help), why)

    def _may(self, right: str, subject: str = "") -> None:
        """Count a call, and see whether it is allowed."""
        self._caller.spend_call()
        self._caller.check(right, subject)

    def as_user(self, name: str) -> Guard:
        """Another face, under another name of one's own."""
        found: Guard = self._caller.again(name).bus
        return found

    async def close(self) -> None:
        """See `Bus.close`."""
        await self._bus.close()

    # -- publishing

    async def publish(self, event: Event) -> Any:
        """See `Bus.publish`."""
        return (await self.publish_many([event]))[0]

    async def publish_many(self, events: Iterable[Event]) -> Any:
        """See `Bus.publish_many`. All types must be allowed, or nothing is stored."""
        return await self._publish_batch(events, None)

    async def _publish_batch(self, events: Iterable[Event], batch: Batch | None) -> Any:
        """See `Bus.publish_many`; a batch that was stored before stores nothing."""
        given: list[Event] = events if isinstance(events, Rowed) else list(events)
        return await self._bus._publish_batch(given, self._allowed(given, batch))

    def _submit(self, events: list[Event], batch: Batch | None) -> Any:
        """See `Bus._submit`."""
        return self._bus._submit(events, self._allowed(events, batch))

    def _allowed(self, events: list[Event], batch: Batch | None) -> Batch | None:
        """See whether all may be published; returns the batch under a name of one's own."""
        allow, largest = self._rights.allow, self._principal.token.limits.event_size
        for event in events:
            if event.__class__ is Event:  # the node takes nothing else
                if not allow("publish", event.type):
                    self._caller.check("publish", event.type)
                if largest is not None:
                    to_row(event, largest)  # raises if it is larger
        # A number that another has given away must not be mine.
        return batch._replace(writer=f"{batch.writer}/{self._principal.name}") if batch is not None else None

    @property
    def spooled(self) -> int:
        """See `Bus.spooled`."""
        count: int = self._bus.spooled
        return count

    async def cancel(self, id: str, source: str | None = None) -> None:
        """See `Bus.cancel`. It takes the right to publish such an event, too; names of one token are one publisher."""
        self._caller.spend_call()
        event = await self._find(id, source)
        self._caller.check("publish", event.type)
        publisher = self._node.journal.publisher(event.offset or 0)
        by = publisher if self._principal.may_be(publisher) else self.name
        await alerts.cancel(self._bus._live, id, event.source, by)

    def receipts(self) -> Any:
        """See `Bus.receipts`: they are those of one's own name."""
        self._caller.spend_call()
        return self._bus.receipts()

    # -- subscribing

    async def subscribe(
        self, filter: str | Filter, consumer: str | None = None, past: Past = None, *, system: bool = False, **how: Any
    ) -> Any:
        """See `Bus.subscribe`. The filter is joined with what may be seen."""
        self._may_hear()
        if system and not self._scope.has_system:
            raise self._refused("your token has no right to the node's own records", "right", "leave out system=True")
        self._caller.check_subscriptions()
        limited = self._scope.limit(filter, system=bool(system), limits=self._caller.filter_limits)
        group = how.get("group")
        for mailbox in list(self._node.mailboxes.values()):
            is_meant = consumer == mailbox.name or consumer in list(mailbox.members)  # it may be anything
            if is_meant or (group is not None and mailbox.options.group == group):
                self._check_mine(mailbox, str(consumer if is_meant else group))
        self._principal.opening += 1
        try:
            return await self._bus.subscribe(limited, consumer, past, system=system, **how)
        finally:
            self._principal.opening -= 1

    def _may_hear(self) -> None:
        self._caller.spend_call()
        if self._scope.is_empty:
            raise self._refused("your token has no right to subscribe", "right")

    def _is_mine(self, mailbox: Mailbox) -> bool:
        """Is all that a consumer listens to within the scope?"""
        lanes = [lane for lane in mailbox.lanes.values() if not lane.record.ended]
        return all(self._scope.covers(lane.filter, system=lane.record.system) for lane in lanes)

    def _check_mine(self, mailbox: Mailbox, name: str) -> None:
        if not self._is_mine(mailbox):
            raise self._refused(
                f"consumer {name!r} listens to more than you may see",
                "scope",
                "choose another name; or have an administrator forget it",
            )

    async def unsubscribe(self, consumer: str, subscription: str) -> None:
        """See `Bus.unsubscribe`."""
        self._may_hear()
        self._check_mine(consumers_module.find(self._node, consumer), consumer)
        await self._bus.unsubscribe(consumer, subscription)

    async def forget(self, consumer: str) -> None:
        """See `Bus.forget`."""
        self._caller.spend_call()
        if not self._rights.is_admin:
            self._may_hear()
            self._check_mine(consumers_module.find(self._node, consumer), consumer)
        await self._bus.forget(consumer)

    async def consumers(self) -> Any:
        """See `Bus.consumers`: those that listen to nothing outside the scope; all of them for administrators."""
        self._caller.spend_call()
        found = await self._bus.consumers()
        if self._rights.is_admin:
            return found
        return [each for each in found if self._is_known(each.name)]

    def _is_known(self, consumer: str) -> bool:
        try:
            return not self._scope.is_empty and self._is_mine(consumers_module.find(self._node, consumer))
        except ConsumerError:
            return False

    # -- composite events

    async def define(self, name: str, text: str | Pattern, context: str = "recent", *rest: Any, **more: Any) -> Any:
        """See `Bus.define`. Of all events it is made of, the types must be within the scope."""
        self._may("define", name)
        definition = parse(name, text_of(text), context, more.get("semantics", "detection"))
        if (what := self._foreign(definition)) is not None:
            raise self._refused(
                f"[{what[:200]}] may be events that you may not subscribe to",
                "scope",
                "say which types it is made of: [type = 'machine.value' AND …]",
            )
        if more.get("replace"):
            await self._check_own(name)
        return await self._bus.define(name, text, context, *rest, **more)

    def _foreign(self, definition: Definition) -> str | None:
        """What of a definition may be events outside the scope; None: nothing."""
        types = self._scope.types
        for leaf in leaves(definition.expression):
            if leaf.definition is not None and not self._rights.allow("subscribe", leaf.definition):
                return leaf.definition
            if leaf.filter is not None:
                asked = Filter(leaf.filter, limits=self._caller.filter_limits)
                if self._scope.is_empty or (types is not None and not types.covers(asked)):
                    return leaf.filter
        return None

    async def _check_own(self, name: str) -> None:
        """Refuse to touch a definition whose text one may not see."""
        found = {each.name: each for each in await self._bus.definitions()}.get(name)
        if found is not None and not self._may_read(found):
            raise self._refused(f"definition {name!r} is made of events that you may not subscribe to", "scope")

    def _may_read(self, info: DefinitionInfo) -> bool:
        if not any(self._rights.allow(verb, info.name) for verb in ("subscribe", "define")):
            return False
        try:
            return self._foreign(parse(info.name, info.text, info.context, info.semantics)) is None
        except FilterError:  # larger than its own filters may be
            return False

    async def undefine(self, name: str) -> None:
        """See `Bus.undefine`."""
        self._may("define", name)
        await self._check_own(name)
        await self._bus.undefine(name)

    async def definitions(self) -> Any:
        """See `Bus.definitions`: those made of types within the scope whose events may be heard, or changed."""
        self._caller.spend_call()
        return [each for each in await self._bus.definitions() if self._may_read(each)]

    async def explain(self, id: str) -> Any:
        """See `Bus.explain`. All events it is made of must be within the scope."""
        self._caller.spend_call()
        await self._find(id, SOURCE)
        found = await self._bus.explain(id)
        if not all(part.event is None or self._knows(part.event) for part in found.parts):
            raise self._refused(f"event {id!r} is made of events that you may not see", "scope")
        return found

    # -- who is there

    async def advertise(self, filter: str | Filter) -> None:
        """See `Bus.advertise`. All that it can match must be allowed to be published."""
        self._check_published(filter)
        await self._bus.advertise(filter)

    async def unadvertise(self, filter: str | Filter) -> None:
        """See `Bus.unadvertise`."""
        self._caller.spend_call()
        await self._bus.unadvertise(filter)

    async def demand(self, filter: str | Filter) -> Any:
        """See `Bus.demand`. It is for who may publish such events."""
        self._check_published(filter)
        return await self._bus.demand(filter)

    def _check_published(self, text: str | Filter) -> None:
        self._caller.spend_call()
        filter = Filter(text.text if isinstance(text, Filter) else text, limits=self._caller.filter_limits)
        prefixes = self._rights.prefixes("publish")
        types = types_filter(prefixes)
        if not prefixes or (types is not None and not types.covers(filter)):
            raise self._refused(
                f"[{str(filter)[:200]}] may be events that you may not publish",
                "scope",
                "say which types they are: type = 'machine.value' AND …",
            )

    def resources(self, filter: str | Filter | None = None) -> Changes:
        """See `Bus.resources`: events that may be heard in part at least, and what may be asked for."""
        self._caller.spend_call()
        return discovery.resources(self._session, filter, self._may_know)

    def _may_know(self, change: Change) -> bool:
        if change.served:
            return self._rights.allow("request", change.resource) or self._rights.allow("serve", change.resource)
        if self._scope.is_empty:
            return False
        try:
            mine = self._scope.filter(system=False)
            return mine is None or not mine.disjoint(Filter(change.resource))
        except FilterError:  # who advertises it has wider limits: then nothing is known of it
            return False

    def serve(self, resource: str, handler: Any) -> Any:
        """See `Bus.serve`."""
        self._may("serve", resource)
        return self._bus.serve(resource, handler)

    async def request(self, resource: str, data: Any = None, **how: Any) -> Any:
        """See `Bus.request`."""
        self._may("request", resource)
        return await self._bus.request(resource, data, **how)

    def join(self, group: str) -> Any:
        """See `Bus.join`."""
        self._may("join", group)
        return self._bus.join(group)

    # -- alerts

    def _knows(self, event: Event) -> bool:
        """Is it within the scope, or one's own?"""
        if self._scope.sees(event):
            return True
        publisher = self._node.journal.publisher(event.offset or 0)
        return bool(publisher) and self._principal.may_be(publisher)

    async def _find(self, id: str, source: str | None) -> Event:
        """The event of an id, among those that its caller knows.

        Raises:
            UnknownEventError: there is none, or several sources use the id.
        """
        await self._node.store()  # what was published without waiting for the disk is in the journal after this
        found = await asyncio.to_thread(history.of_id, self._node.journal, id, source)
        newest = {event.source: event for event in found}  # an id may have come again long after
        known = [event for event in newest.values() if self._knows(event)]
        if not known:
            raise UnknownEventError(
                f"there is no event {id!r}", field="id", help="it was never published, or is trimmed"
            )
        if len(known) > 1:
            sources = sorted(event.source for event in known)
            raise UnknownEventError(
                f"several sources use the id {id!r}: {', '.join(sources[:5])}",
                field="source",
                help="say which source",
            )
        return known[0]

    async def status(self, id: str, source: str | None = None) -> Any:
        """See `Bus.status`."""
        self._caller.spend_call()
        return await self._bus.status(id, (await self._find(id, source)).source)

    async def audit(self, id: str, source: str | None = None) -> Any:
        """See `Bus.audit`."""
        self._caller.spend_call()
        return await self._bus.audit(id, (await self._find(id, source)).source)

    async def alerts(self) -> Any:
        """See `Bus.alerts`: those within the scope, and one's own."""
        return (await self._alerts()).alerts

    async def _alerts(self, limit: int | None = None) -> Any:
        """The same, or the most urgent of them, and how many there are."""
        self._caller.spend_call()
        return await self._bus._alerts(limit, self._knows)

    async def trim(self, **how: Any) -> Any:
        """See `Bus.trim`. It takes an administrator."""
        self._may("admin")
        return await self._bus.trim(**how)

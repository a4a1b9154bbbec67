"""`Bus`: every verb, for a node that lives in this process.

Several faces of one node have different names; a name is who publishes, cancels and gets receipts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import UNSET, UnsetType

from tocsin.composite.builder import Pattern
from tocsin.composite.explain import Explanation
from tocsin.delivery.board import Alert, ConsumerInfo, Receipt, Status, Step
from tocsin.delivery.handles import Subscription
from tocsin.delivery.owners import Options
from tocsin.filters.filter import Filter
from tocsin.journal.bounds import Past
from tocsin.journal.rowed import Rowed
from tocsin.model import Event
from tocsin.node import Node, Published, discovery, retention
from tocsin.node import alerts as alerts_module
from tocsin.node import consumers as consumers_module
from tocsin.node import definitions as definitions_module
from tocsin.node import demand as demand_module
from tocsin.node import requests as requests_module
from tocsin.node.definitions import DefinitionInfo
from tocsin.node.demand import Demand
from tocsin.node.discovery import Changes
from tocsin.node.groups import Group
from tocsin.node.pipeline import Batch
from tocsin.node.serving import Handler, Serving
from tocsin.node.sessions import Session

__all__ = ["Bus", "Receipts"]


class Receipts:
    """Receipts for what a name has published: an async iterator. They wait while nobody listens."""

    def __init__(self, node: Node, name: str) -> None:
        """Fetch what is there for a name."""
        self._node, self._name = node, name

    async def next(self, timeout: float | None = None) -> Receipt:
        """Wait for the next receipt.

        Raises:
            TimeoutError: none came in time.
        """
        async with asyncio.timeout(timeout):
            return await self._node.receipts.wait(self._name)

    def poll(self) -> Receipt | None:
        """The next receipt if there is one at this moment."""
        return self._node.receipts.take(self._name)

    def __aiter__(self) -> Receipts:
        """Iterate over receipts."""
        return self

    async def __anext__(self) -> Receipt:
        """Wait for the next receipt."""
        return await self.next()


class Bus:
    """One face of a node."""

    def __init__(self, node: Node, name: str, *, owns: bool = True, strict: bool = False) -> None:
        """Speak to a node under a name; one that does not own the node leaves it open."""
        self._node, self.name, self._owns = node, name, owns
        self._session = Session(node, name, strict=strict)

    @property
    def _live(self) -> Node:
        self._session.check()
        return self._node

    def as_user(self, name: str) -> Bus:
        """Another face of the same node, under another name."""
        return Bus(self._node, name, owns=False, strict=self._session.strict)

    # -- publishing

    async def publish(self, event: Event) -> Published:
        """Publish an event; returns its id and offset when it is durable.

        Raises:
            EventError: the event is not acceptable; `.field` says where. Nothing was stored.
            NotAdvertisedError: it is not what you have advertised, and `strict_advertise` was asked for.
            OverloadError: the node has no room; nothing was stored.
        """
        node = self._live
        self._session.check_promised((event,))
        return (await node.publish([event], self.name))[0]

    async def publish_many(self, events: Iterable[Event]) -> list[Published]:
        """Publish events together: all or none, one answer for all, in order."""
        return await self._publish_batch(events if isinstance(events, Rowed) else list(events), None)

    async def _publish_batch(self, events: Sequence[Event], batch: Batch | None) -> list[Published]:
        """As `publish_many`; a batch that was stored before stores nothing, and gets the same answer."""
        node = self._live
        self._session.check_promised(events)
        return await node.publish(events, self.name, batch)

    def _submit(self, events: Sequence[Event], batch: Batch | None) -> asyncio.Future[list[int]] | None:
        """As `_publish_batch`, without a task: see `Node.submit`."""
        node = self._live
        self._session.check_promised(events)
        return node.submit(events, self.name, batch)

    @property
    def spooled(self) -> int:
        """Events that wait in a spool until the node can be reached: none, it is here."""
        return 0

    # -- subscribing

    async def subscribe(
        self,
        filter: str | Filter,
        consumer: str | None = None,
        past: Past = None,
        *,
        order: str | UnsetType = UNSET,
        group: str | None = None,
        durable: bool | UnsetType = UNSET,
        ack_wait: float | UnsetType = UNSET,
        max_in_flight: int | UnsetType = UNSET,
        max_deliver: int | None | UnsetType = UNSET,
        auto_ack: bool | UnsetType = UNSET,
        fair: float | UnsetType = UNSET,
        replay: bool = False,
        system: bool = False,
        placement: str | UnsetType = UNSET,
    ) -> Subscription:
        """Say what you want to hear of; returns a subscription when its past is found and queued.

        Options from `order` to `fair`, and `placement`, belong to the consumer. What is left out is as it was, or for a
        new consumer as in brackets.

        Args:
            filter: what, as SQL: `"value > 9"`; or Alert Server destinations: `"TAG:fire;USER:ann"`.
            consumer: who; the same name resumes where it was. None: nobody in particular, nothing is remembered.
            past: how much of what has happened already: `last(10)`, `within(…)`, `since(…)`, `retained()`.
            order: ["priority"] urgent first, or "journal": as it happened.
            group: consumers of one group share the events: each goes to one of them.
            durable: [True] keep the consumer's place when it is away, and over restarts.
            ack_wait: [30] seconds to settle a delivery before it comes again.
            max_in_flight: [256] deliveries in hand at a time.
            max_deliver: [None] attempts before an event becomes a dead letter; None: no end.
            auto_ack: [False] settle each delivery when it is handed out.
            fair: [0] share of deliveries kept for lower priorities.
            replay: deliver the past again, also what was settled.
            system: show the node's own records (types that begin `tocsin.`) too.
            placement: ["node"] where what comes is matched: there, or by the pipeline of `tocsin up` ("spark"; without
                one it waits), which can hold very many. The node delivers in either case.

        Raises:
            FilterError: the filter is wrong; `.position` says where.
            BoundError: the past means nothing.
            ConsumerError: an option means nothing, or the consumer has another value for it.
        """
        options = Options.given(
            order=order,
            group=group,
            durable=durable,
            ack_wait=ack_wait,
            max_in_flight=max_in_flight,
            max_deliver=max_deliver,
            auto_ack=auto_ack,
            fair=fair,
            placement=placement,
        )
        handle = await consumers_module.subscribe(
            self._live, filter, consumer, past, options, replay=replay, system=system
        )
        return await self._session.adopt(handle)

    async def unsubscribe(self, consumer: str, subscription: str) -> None:
        """Drop one subscription of a consumer."""
        await consumers_module.unsubscribe(self._live, consumer, subscription)

    async def forget(self, consumer: str) -> None:
        """Drop a consumer with everything it has."""
        await consumers_module.forget(self._live, consumer)

    async def consumers(self) -> list[ConsumerInfo]:
        """Every consumer: what it listens to, how far behind it is."""
        return consumers_module.consumers(self._live)

    # -- composite events

    async def define(
        self,
        name: str,
        text: str | Pattern,
        context: str = "recent",
        placement: str = "auto",
        past: Past = None,
        *,
        semantics: str = "detection",
        replace: bool = False,
        max_open: int | None = None,
    ) -> DefinitionInfo:
        """Have a combination of events looked for; each time it occurs there is an event whose type is its name.

        It is durable, also half detected. The same definition again changes nothing.

        Args:
            name: the type of what is detected.
            text: what to look for, such as `SEQ([type = 'a'], [type = 'b']) WITHIN 2 MINUTES BY door`; or the same
                built in Python (`tocsin.composite`).
            context: which occurrences go together: `recent`, `chronicle`, `continuous` or `cumulative`.
            placement: where it runs: `node`, `spark` (the pipeline of `tocsin up`; without one it waits), or `auto`: on
                Spark if there is a pipeline and no `past`, else on the node.
            past: begin as if it had been there for so long; nothing is told of that time.
            semantics: `detection`, or `interval`.
            replace: a definition of this name that is different makes way for this one.
            max_open: the most openers that each of its operations keeps (a million if left out); then the oldest are
                given up, and counted.

        Raises:
            DefinitionError: it cannot be read (`.position` says where), does not fit the others, or there is a
                different one of this name.
            BoundError: the past means nothing.
        """
        return await definitions_module.define(
            self._live, name, text, context, semantics, placement, past, replace=replace, max_open=max_open
        )

    async def undefine(self, name: str) -> None:
        """Remove a definition, and what it alone has half detected.

        Raises:
            DefinitionError: there is no such definition, or others are made of it.
        """
        await definitions_module.undefine(self._live, name)

    async def definitions(self) -> list[DefinitionInfo]:
        """Every definition: what it says, what it has detected, and what is open."""
        return definitions_module.definitions(self._live)

    async def explain(self, id: str) -> Explanation:
        """Why an event that a definition made is there: its parts, the rule, what was used up, why not earlier.

        Raises:
            UnknownEventError: there is no such event.
            EventError: the definition has changed since.
        """
        return await definitions_module.explain(self._live, id)

    # -- who is there

    async def advertise(self, filter: str | Filter) -> None:
        """Say that you will publish events like this; returns when everybody may know.

        Advertising again changes nothing, but is told. What you advertise is withdrawn when the bus closes or is lost.

        Raises:
            FilterError: the filter is wrong.
            PeerError: you advertise too much.
        """
        await discovery.advertise(self._session, filter)

    async def unadvertise(self, filter: str | Filter) -> None:
        """Withdraw what you have advertised; what you have not does no harm."""
        await discovery.unadvertise(self._session, filter)

    def resources(self, filter: str | Filter | None = None) -> Changes:
        """What is advertised and served: first what is there now, then every change, in order.

        A change has `.kind`, `.resource` and `.by`. The first advertiser of a resource is `found`, later ones are
        `advertised`; the last that withdraws or is lost leaves it `depleted`, others `unadvertised`.

        Args:
            filter: only advertisements of events that it may match; what is served (`.served`) is left out then.
        """
        return discovery.resources(self._session, filter)

    async def demand(self, filter: str | Filter) -> Demand:
        """Does anybody want events like this? True or false, with names; `changed()` waits for others."""
        return demand_module.demand(self._session, filter)

    def serve(self, resource: str, handler: Handler) -> Serving:
        """Answer requests for a resource: `async with bus.serve("params/m7", handler)`.

        Args:
            resource: a name.
            handler: `handler(request)` returns the reply's data, or is a coroutine that does. A plain function runs on
                a thread. What it raises reaches who asks as `RequestFailed`.
        """
        return Serving(self._session, resource, handler)

    async def request(
        self, resource: str, data: Any = None, *, timeout: float = requests_module.TIMEOUT, policy: str = "one"
    ) -> Any:
        """Ask who serves a resource; returns the reply.

        Args:
            resource: its name.
            data: a JSON value.
            timeout: seconds.
            policy: `one`: one server, the least busy; `first`: all, and the first reply; `all`: a list of all replies.

        Raises:
            NoServer: nobody serves it.
            RequestTimeout: no answer in time.
            RequestFailed: the handler raised.
            ServerLost: the server was lost, and there was no other. It may have done the work.
            OverloadError: they have all they can take.
        """
        return await requests_module.request(self._session, resource, data, timeout, policy)

    def join(self, group: str) -> Group:
        """Be a member of a group: `async with bus.join("line-7") as group`.

        `group.view.members` are who is in it; iterating gives every `View` and `Message`, in the same order for all
        members; `await group.cast(data)` says something to all of them.
        """
        return Group(self._session, group)

    # -- alerts

    async def cancel(self, id: str, source: str | None = None) -> None:
        """Withdraw an event: who has not got it does not, who has is told.

        Raises:
            CancelError: you are not its publisher, and it may be cancelled by nobody else.
            UnknownEventError: no such event, or several sources use the id.
        """
        await alerts_module.cancel(self._live, id, source, self.name)

    async def status(self, id: str, source: str | None = None) -> Status:
        """What became of an event: live, settled, expired or cancelled, and by whom."""
        return await alerts_module.status(self._live, id, source)

    async def alerts(self) -> list[Alert]:
        """Live alerts (events with ttl or ack), and who has acknowledged them."""
        return (await self._alerts()).alerts

    async def _alerts(
        self, limit: int | None = None, knows: Callable[[Event], bool] | None = None
    ) -> alerts_module.Live:
        """The same, or the most urgent of them, and how many there are; see `node.alerts`."""
        return await alerts_module.alerts(self._live, limit, knows)

    async def audit(self, id: str, source: str | None = None) -> list[Step]:
        """Every step of an event that is tracked: published, delivered, acked, receipt, cancelled, expired, dead."""
        return await alerts_module.audit(self._live, id, source)

    async def trim(
        self,
        *,
        older_than: timedelta | None = None,
        larger_than: int | None = None,
        archived: bool = False,
        hard: bool = False,
    ) -> int:
        """Drop old events from the journal; returns the lowest offset that is kept.

        Args:
            older_than: what arrived longer ago may go.
            larger_than: the oldest go until the journal has about so many bytes.
            archived: what the lake has may go; with another limit, what both allow.
            hard: also what consumers have not settled and live alerts; who loses something gets a `tocsin.gap` notice.
        """
        return await retention.trim(self._live, older_than, larger_than, archived=archived, hard=hard)

    def receipts(self) -> Receipts:
        """Receipts for what this name has published."""
        return Receipts(self._live, self.name)

    async def close(self) -> None:
        """Withdraw what you advertise, serve and are a member of, and close your subscriptions; all places are saved.

        The bus that `connect` gave closes the node.
        """
        if self._owns:
            await self._node.close()
        else:
            await self._session.end()

"""How programs use Tocsin: `connect` gives a `Bus`, which has every verb.

This is the embedded face: the node lives in this process. Several faces of one node have different names; a name is who
publishes, cancels and gets receipts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType

from msgspec import UNSET, UnsetType

from tocsin.clock import Clock, SystemClock
from tocsin.delivery.board import Alert, ConsumerInfo, Receipt, Status, Step
from tocsin.delivery.handles import Subscription
from tocsin.errors import JournalError, TocsinError
from tocsin.filters.filter import Filter
from tocsin.journal.bounds import Past
from tocsin.journal.opening import open_journal
from tocsin.model import Event
from tocsin.node import Node, Published, retention
from tocsin.node import alerts as alerts_module
from tocsin.node import consumers as consumers_module
from tocsin.node.pipeline import HOT_BYTES, MAX_WAITING, PATIENCE

__all__ = ["Bus", "Receipts", "connect"]


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

    def __init__(self, node: Node, name: str, *, owns: bool = True) -> None:
        """Speak to a node under a name; one that does not own the node leaves it open."""
        self._node, self.name, self._owns = node, name, owns

    @property
    def _live(self) -> Node:
        if self._node.closed:
            raise JournalError("the bus is closed", help="connect again")
        return self._node

    def as_user(self, name: str) -> Bus:
        """Another face of the same node, under another name."""
        return Bus(self._node, name, owns=False)

    # -- publishing

    async def publish(self, event: Event) -> Published:
        """Publish an event; returns its id and offset when it is durable.

        Raises:
            EventError: the event is not acceptable; `.field` says where. Nothing was stored.
            OverloadError: the node has no room; nothing was stored.
        """
        return (await self._live.publish([event], self.name))[0]

    async def publish_many(self, events: Iterable[Event]) -> list[Published]:
        """Publish events together: all or none, one answer for all, in order."""
        return await self._live.publish(list(events), self.name)

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
        placement: str = "node",
    ) -> Subscription:
        """Say what you want to hear of; returns a subscription when its past is found and queued.

        Options from `order` to `fair` belong to the consumer. What is left out is as it was, or for a new consumer as
        in brackets.

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
            placement: where it is matched.

        Raises:
            FilterError: the filter is wrong; `.position` says where.
            BoundError: the past means nothing.
            ConsumerError: an option means nothing, or the consumer has another value for it.
        """
        if placement != "node":
            raise TocsinError(
                f"placement {placement!r} is not there yet", field="placement", help="use placement='node'"
            )
        given = {
            "order": order,
            "group": group,
            "durable": durable,
            "ack_wait": ack_wait,
            "max_in_flight": max_in_flight,
            "max_deliver": max_deliver,
            "auto_ack": auto_ack,
            "fair": fair,
        }
        options = {name: value for name, value in given.items() if value is not UNSET}
        return await consumers_module.subscribe(
            self._live, filter, consumer, past, options, replay=replay, system=system
        )

    async def unsubscribe(self, consumer: str, subscription: str) -> None:
        """Drop one subscription of a consumer."""
        await consumers_module.unsubscribe(self._live, consumer, subscription)

    async def forget(self, consumer: str) -> None:
        """Drop a consumer with everything it has."""
        await consumers_module.forget(self._live, consumer)

    async def consumers(self) -> list[ConsumerInfo]:
        """Every consumer: what it listens to, how far behind it is."""
        return consumers_module.consumers(self._live)

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
        return await alerts_module.alerts(self._live)

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
        """Close the node: all places are saved."""
        if self._owns:
            await self._node.close()


class connect:
    """Open a node: `async with tocsin.connect("file:plant.db") as bus`.

    Args:
        url: `memory:`, or `file:` and a path.
        name: who you are: publisher, and who may cancel. A random one if left out.
        clock: time to go by; the machine's if left out.
        lake: where the journal's archive is; if left out, where it was archived to, if it was.
        hot_bytes: memory for the newest events.
        max_waiting: events on their way to the journal before publishers must wait.
        patience: seconds a publisher waits for room before it gets `OverloadError`.

    Raises (when entered):
        JournalLockedError: another process has the journal open for writing.
        JournalError: the url or the file is not one of ours.
        LakeError: the lake is another journal's.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        clock: Clock | None = None,
        lake: str | os.PathLike[str] | None = None,
        hot_bytes: int = HOT_BYTES,
        max_waiting: int = MAX_WAITING,
        patience: float = PATIENCE,
    ) -> None:
        """Say where; nothing is opened yet."""
        self._url, self._name, self._clock, self._lake = url, name, clock, lake
        self._limits = (hot_bytes, max_waiting, patience)
        self._bus: Bus | None = None

    async def __aenter__(self) -> Bus:
        """Open it."""
        clock = self._clock if self._clock is not None else SystemClock()
        opening = asyncio.ensure_future(asyncio.to_thread(open_journal, self._url, clock=clock, lake=self._lake))
        try:
            journal = await asyncio.shield(opening)
        except asyncio.CancelledError:  # a thread cannot be called back: what it opens must not stay locked
            with contextlib.suppress(TocsinError):
                await asyncio.to_thread((await opening).close)
            raise
        self._bus = Bus(Node(journal, clock, *self._limits), self._name or "bus-" + secrets.token_hex(6))
        return self._bus

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        assert self._bus is not None
        await self._bus.close()

"""Deliver and settle: what a subscriber's handle asks of the node (`handles.Post`).

An event is handed out when somebody takes it. Settling changes the mailbox at once and returns when that is stored;
what settling publishes (acknowledgements, receipts, dead letters) is stored in the same commit, so neither is there
without the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tocsin.clock import SECOND, as_datetime
from tocsin.delivery.board import is_tracked
from tocsin.delivery.handles import Delivery, Subscription, check_delay, check_reason
from tocsin.delivery.mailbox import Item, Mailbox, Notice
from tocsin.delivery.receipts import Kept
from tocsin.errors import DeliveryError
from tocsin.journal.contract import Note
from tocsin.journal.rows import expires
from tocsin.model import Event
from tocsin.node.lanes import key_of

if TYPE_CHECKING:
    from tocsin.node.pipeline import Node

__all__ = ["PostOffice"]


class PostOffice:
    """Hands out events of one node's mailboxes and takes back what becomes of them."""

    def __init__(self, node: Node) -> None:
        """Serve a node."""
        self._node = node

    def take(self, handle: Subscription) -> Delivery | None:
        """See `handles.Post`."""
        node, mailbox, lane = self._node, handle.mailbox, handle.lane
        key = key_of(mailbox, lane.id)
        failure = node.lanes.failures.pop(key, None)
        if failure is not None:
            raise failure
        if mailbox.notices:
            node.keeper.later(mailbox)
            return Delivery(handle, _spoken(mailbox.notices.pop(0)), None)
        if mailbox.options.group is not None and not self._is_turn_of(handle):
            return None
        now = node.now()
        item = mailbox.take(lane, handle.consumer, handle.member, now, node.window.get, self.refuses, handle.lends)
        if not lane.is_live:
            node.lanes.refill_later(key)
        if item is None:
            return None
        assert item.event is not None
        if mailbox.options.group is not None:
            node.lanes.wake(key)  # somebody may have waited for this one's turn
        delivery = self._delivery(handle, item.event, item)
        node.ring_later()
        if not item.lent:
            self._delivered([delivery])
        return delivery

    def _delivery(self, handle: Subscription, event: Event, item: Item) -> Delivery:
        return Delivery(handle, event, item, item.attempt + item.lent, item.offset <= handle.lane.record.seam)

    def _delivered(self, deliveries: list[Delivery]) -> None:
        """Events are in somebody's hands: write that down, and settle them if that is all there is to do."""
        now = self._node.now()
        notes = [
            Note(each.offset, now, "delivered", each.handle.consumer) for each in deliveries if is_tracked(each.event)
        ]
        if notes:
            self._node.keeper.save(None, notes=notes)
        settled = [each for each in deliveries if each.handle.mailbox.options.auto_ack]
        if settled:
            self._settle_now(settled)

    def claim(self, deliveries: list[Delivery]) -> None:
        """What was lent (`Subscription.lends`) is in somebody's hands now: as if it were handed out at this moment.

        What was cancelled in between is told to who has it; what was recalled otherwise comes to others.
        """
        node, now, mine = self._node, self._node.now(), []
        for delivery in deliveries:
            mailbox = delivery.handle.mailbox
            if mailbox.claim(delivery.item, now):
                mine.append(delivery)
            elif delivery.offset in node.cancelled:
                about = {"offset": delivery.offset, "source": delivery.event.source}
                mailbox.tell(Notice("tocsin.cancelled", delivery.event.id, now, about))
                node.lanes.wake_all(mailbox)
        self._delivered(mine)
        node.ring_later()

    def return_lent(self, deliveries: list[Delivery]) -> None:
        """What was lent is not wanted: it waits for its turn again, as if it had not been lent."""
        for delivery in deliveries:
            mailbox, item = delivery.handle.mailbox, delivery.item
            if item.lent and mailbox.flying.get(item.offset) is item:
                mailbox.give_back(item.offset)
                self._node.lanes.wake_all(mailbox)

    def found_again(self, handle: Subscription, offset: int, attempt: int) -> Delivery | None:
        """A delivery of an earlier connection, or an earlier life of the node, whose holder wants to settle it now.

        None: it is settled, or no longer kept.

        Raises:
            DeliveryError: it went to somebody else meanwhile.
        """
        node, mailbox = self._node, handle.mailbox
        event = node.window.get(offset)
        if event is None or mailbox.has_settled(event, node.head):
            return None
        in_hand = mailbox.flying.get(offset)
        if in_hand is None or in_hand.lent:
            item = mailbox.pick(offset, event, handle.consumer, handle.member)
            if item is not None and item.attempt in (0, attempt):  # 0: attempts are not known after a restart
                item.attempt = attempt
                mailbox.extend(offset, node.now())
                return self._delivery(handle, event, item)
            if item is not None:
                mailbox.give_back(offset)
                node.lanes.wake_all(mailbox)
        raise DeliveryError(
            f"offset {offset} is not in your hands any more", help="the connection was lost; it comes again"
        )

    def _is_turn_of(self, handle: Subscription) -> bool:
        """In a group: does nobody who waits have fewer in flight?"""
        in_flight = handle.mailbox.in_flight_of
        return not any(
            other is not handle and other.waits and in_flight.get(other.consumer, 0) < in_flight.get(handle.consumer, 0)
            for other in self._node.lanes.handles_of(handle.mailbox, handle.lane)
        )

    def refuses(self, event: Event, now: int) -> str | None:
        """Why an event is not delivered; None if it is."""
        offset = event.offset or 0
        if offset in self._node.cancelled:
            return "cancelled"
        end = expires(event)
        if end is not None and end <= now:
            return "expired"
        if not event.persistent and offset <= self._node.boot_head:
            return "of an earlier life"
        return None

    # -- settling

    def _held(self, delivery: Delivery) -> Item:
        """The item of a delivery that is still in its holder's hands, or was given back and went to nobody since."""
        item: Item | None = delivery.item
        if item is None or delivery.settled is not None:
            raise DeliveryError(f"offset {delivery.offset} is settled", help="what is settled cannot be taken back")
        mailbox = delivery.handle.mailbox
        if mailbox.options.durable and self._node.mailboxes.get(mailbox.name) is not mailbox:
            raise DeliveryError(f"consumer {mailbox.title!r} was forgotten", help="what it had in hand is nobody's now")
        in_hand = mailbox.flying.get(item.offset) is item
        if item.attempt != delivery.attempt or not (in_hand or mailbox.is_free(item)):
            raise DeliveryError(
                f"offset {item.offset} is not in your hands any more",
                help="it was cancelled, or not settled in time and comes again; in_progress() asks for more time",
            )
        return item

    def _grasped(self, delivery: Delivery) -> Item:
        """As `_held`, and in its holder's hands for certain."""
        item = self._held(delivery)
        if item.offset not in delivery.handle.mailbox.flying:
            delivery.handle.mailbox.reclaim(item)
        return item

    async def settle(self, deliveries: list[Delivery]) -> None:
        """See `handles.Post`."""
        for done in self._settle_now(deliveries):
            await asyncio.shield(done)

    def _settle_now(self, deliveries: list[Delivery]) -> list[asyncio.Future[None]]:
        """Settle in memory and have it stored, each mailbox with what settling publishes. All or none."""
        by_mailbox: dict[str, list[Delivery]] = {}
        for delivery in dict.fromkeys(deliveries):
            if delivery.item is None or delivery.settled is not None or self._was_dropped(delivery):
                continue
            if delivery.offset not in self._node.cancelled:
                self._held(delivery)
            by_mailbox.setdefault(delivery.handle.mailbox.name, []).append(delivery)
        # From here on nothing is refused.
        for mine in by_mailbox.values():
            done = self._settle_mailbox(mine)
            for delivery in mine:
                delivery.settled = done
        for delivery in deliveries:
            mailbox = delivery.handle.mailbox
            if delivery.item is not None and delivery.settled is None:  # settling it means that it does not come again
                mailbox.settle_dropped(delivery.offset)
                delivery.settled = self._node.keeper.save(mailbox, whole=True)
            elif delivery.settled is not None and _has_failed(delivery.settled):
                delivery.settled = self._node.keeper.save(mailbox)  # the keeper has it all, and stores it now
        return [each.settled for each in deliveries if each.settled is not None]

    def _was_dropped(self, delivery: Delivery) -> bool:
        """Was the subscription dropped while this was in hand, and nobody else's to take it over?"""
        item, mailbox = delivery.item, delivery.handle.mailbox
        if item is None or not delivery.handle.lane.record.ended:
            return False
        if mailbox.flying.get(item.offset) is item or mailbox.is_free(item):
            return False
        return any(delivery.offset in lane.record.left for lane in mailbox.lanes.values())

    def _settle_mailbox(self, deliveries: list[Delivery]) -> asyncio.Future[None]:
        node, now = self._node, self._node.now()
        events: list[Event] = []
        notes: list[Note] = []
        state: dict[str, bytes | None] = {}
        receipts: list[tuple[str, Kept]] = []
        mailbox = deliveries[0].handle.mailbox
        for delivery in deliveries:
            offset, event, consumer = delivery.offset, delivery.event, delivery.handle.consumer
            if offset in node.cancelled:  # cancelled while in hand: nothing is left to settle
                continue
            mailbox.settle(self._grasped(delivery).offset)
            if is_tracked(event):
                notes.append(Note(offset, now, "acked", consumer))
            if event.ack != "none" and (publisher := node.journal.publisher(offset)):  # what was imported has none
                name, receipt, changes = node.receipts.prepare(publisher, event, consumer, now)
                receipts.append((name, receipt))
                state |= changes
                notes.append(Note(offset, now, "receipt", publisher))
            if event.ack == "client":
                about = {**event.attributes, "consumer": consumer, "of": offset, "of_source": event.source}
                events.append(Event("tocsin.ack", "tocsin", correlation_id=event.id, data="ACK", attributes=about))
        done = node.keeper.save(mailbox, events, notes, state, receipts)
        node.lanes.wake_all(mailbox)  # there is room in the window, which all its lanes share
        return done

    async def give_back(self, delivery: Delivery, delay: float) -> None:
        """See `handles.Post`."""
        check_delay(delay)
        if delivery.offset in self._node.cancelled:
            return  # there is nothing left to give back
        item, mailbox = self._grasped(delivery), delivery.handle.mailbox
        due = self._node.now() + round(delay * SECOND) if delay else None
        dead = mailbox.give_back(item.offset, due)
        self._node.ring_later()
        self._node.lanes.wake_all(mailbox)
        if dead is not None:
            await self.bury(mailbox, [dead], "given back after its last attempt")

    async def terminate(self, delivery: Delivery, reason: str) -> None:
        """See `handles.Post`."""
        check_reason(reason)
        if delivery.offset in self._node.cancelled:
            return
        item, mailbox = self._grasped(delivery), delivery.handle.mailbox
        mailbox.settle(item.offset)
        self._node.lanes.wake_all(mailbox)
        delivery.settled = asyncio.ensure_future(self.bury(mailbox, [item], reason))
        await asyncio.shield(delivery.settled)

    async def extend(self, delivery: Delivery) -> None:
        """See `handles.Post`."""
        delivery.handle.mailbox.extend(self._grasped(delivery).offset, self._node.now())
        self._node.ring_later()

    async def bury(self, mailbox: Mailbox, items: Sequence[Item], reason: str) -> None:
        """Say that nobody gets these events any more: dead letters, in the same commit as the consumer's place."""
        letters, notes = [], []
        for item in items:
            event = item.event or self._node.window.get(item.offset)
            about = {"reason": reason, "attempts": item.attempt, "offset": item.offset, "consumer": mailbox.title}
            correlation = event.id if event is not None else None
            letters.append(Event("tocsin.dead", "tocsin", correlation_id=correlation, data=about))
            notes.append(Note(item.offset, self._node.now(), "dead", mailbox.title))
        await self._node.keeper.save(mailbox, letters, notes)

    async def close_handle(self, handle: Subscription, *, keep: bool = False) -> None:
        """See `handles.Post`. With `keep`, what is in its hands stays there until it is settled or its time is up."""
        if handle.closed:
            return
        handle.closed = True
        node, mailbox = self._node, handle.mailbox
        node.lanes.drop_handle(handle)
        handle.wake()
        dead = mailbox.release(handle.member, keep=keep)
        if handle.consumer in mailbox.guests:
            mailbox.guests.discard(handle.consumer)
            mailbox.members.discard(handle.consumer)
        is_unheard = node.lanes.close_unheard(mailbox, handle.lane)
        if is_unheard and not mailbox.options.durable and not node.lanes.is_heard(mailbox):
            node.mailboxes.pop(mailbox.name, None)
            node.peers.demand_changed()
        node.lanes.wake_all(mailbox)
        await self.bury(mailbox, dead, "its holder left after the last attempt")

    def step_back(self, handle: Subscription) -> None:
        """See `handles.Post`."""
        self._node.lanes.wake(key_of(handle.mailbox, handle.lane.id))


def _spoken(notice: Notice) -> Event:
    """A notice as the event a consumer sees."""
    return Event(notice.kind, "tocsin", correlation_id=notice.id, data=notice.data, arrived=as_datetime(notice.at))


def _has_failed(done: asyncio.Future[None]) -> bool:
    """Was what should be stored not stored, as far as is known?"""
    return done.done() and (done.cancelled() or done.exception() is not None)

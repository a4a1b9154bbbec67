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
        found = self.take_many(handle, 1)
        return found[0] if found else None

    def take_many(self, handle: Subscription, most: int) -> list[Delivery]:
        """Hand out what comes next, up to so many; fewer, but for nothing, does not mean that there is no more."""
        node, mailbox, lane = self._node, handle.mailbox, handle.lane
        key = key_of(mailbox, lane.id)
        failure = node.lanes.failures.pop(key, None)
        if failure is not None:
            raise failure
        if mailbox.notices:
            node.keeper.later(mailbox)
            return [Delivery(handle, _spoken(mailbox.notices.take(handle.member if handle.lends else None)), None)]
        is_group = mailbox.options.group is not None
        if mailbox.handles > 1 and not self._is_turn_of(handle):
            return []
        asked = len(mailbox.asked)
        items = mailbox.take_many(
            1 if is_group else most,
            lane,
            handle.consumer,
            handle.member,
            node.now(),
            node.window.get,
            self.refuses,
            handle.lends,
        )
        if not lane.is_live:
            node.lanes.refill_later(key)
        if not items:
            if mailbox.handles > 1 and handle.is_eager:
                self._ask_back(handle)
            if len(mailbox.asked) > asked:  # only then: who waits here is woken too, and would ask for ever
                node.ring_later()
                node.lanes.wake_all(mailbox)
            return []
        if is_group or (mailbox.handles > 1 and not handle.lends):
            node.lanes.wake_all(mailbox)  # somebody may have waited for this one's turn
        deliveries = [self._delivery(handle, item.event, item) for item in items if item.event is not None]
        node.ring_by(mailbox.next_alarm())
        if len(mailbox.asked) > asked:  # and something that another has was asked for
            node.lanes.wake_all(mailbox)
        if not handle.lends:
            self._delivered(deliveries)
        return deliveries

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
        if self._node.traces is not None:
            for each in deliveries:
                self._node.traces.delivered(each.event, each.handle.consumer, each.attempt)
        settled = [each for each in deliveries if each.handle.mailbox.options.auto_ack]
        if settled:
            self.settle_now(settled)

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
                mailbox.notices.tell(Notice("tocsin.cancelled", delivery.event.id, now, about))
                node.lanes.wake_all(mailbox)
        self._delivered(mine)
        if deliveries:
            node.ring_by(deliveries[0].handle.mailbox.next_alarm())

    def return_lent(self, deliveries: list[Delivery], *, quiet: bool = True) -> None:
        """What was lent is not wanted: it waits for its turn again, as if it had not been lent.

        A handle that it was asked back for has the first turn. Unless `quiet`, its holder is told.
        """
        for delivery in deliveries:
            mailbox, item = delivery.handle.mailbox, delivery.item
            if item.lent and mailbox.flying.get(item.offset) is item:
                wanted = item.asked_for
                mailbox.give_back(item.offset, quiet=quiet)
                if not any(each.item.asked_for == wanted for each in deliveries):  # when all are there
                    self.give_turn(mailbox, wanted)
                self._node.lanes.wake_all(mailbox)

    def return_words(self, handle: Subscription, count: int) -> None:
        """Of the notices that were lent to a handle, the newest are not wanted there."""
        mailbox = handle.mailbox
        mailbox.notices.returned(handle.member, count)
        self.give_turn(mailbox, mailbox.notices.asked_for(handle.member))
        self._node.lanes.wake_all(mailbox)

    def give_turn(self, mailbox: Mailbox, wanted: str | None) -> None:
        """Let a handle take what has come back for it, before others do."""
        for lane in mailbox.lanes.values() if wanted else ():
            for handle in self._node.lanes.handles_of(mailbox, lane):
                if handle.member == wanted:
                    handle.take_turn()

    def _ask_back(self, handle: Subscription) -> None:
        """Somebody waits at this handle: ask others for what lies in their buffers and could be here.

        That is what its lane has, and what takes up the window while something waits here: half of what one has, so
        that few turns make it even.
        """
        mailbox, me = handle.mailbox, handle.member
        if mailbox.notices.ask_back(me):
            self._node.lanes.wake_all(mailbox)
        lent = [item for item in mailbox.flying.values() if item.lent and item.holder != me] if mailbox.lent else []
        if not lent or any(item.asked_for == me for item in lent):
            return
        lane = handle.lane
        if not mailbox.has_no_room(handle.consumer):
            found, sign = [item for item in lent if item.lane == lane.id], -1  # the most urgent
        elif mailbox.has_waiting(lane):
            found, sign = [item for item in lent if item.member == handle.consumer], 1  # the least
        else:
            return
        if found:
            shares: dict[str, list[Item]] = {}
            for item in found:
                shares.setdefault(item.holder, []).append(item)
            largest = max(shares.values(), key=len)
            largest.sort(key=lambda item: (sign * item.level, -sign * item.offset))
            mailbox.ask_back(largest[: (len(largest) + 1) // 2], me, self._node.now())

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
                node.ring_by(mailbox.next_alarm())
                return self._delivery(handle, event, item)
            if item is not None:
                mailbox.give_back(offset)
                node.lanes.wake_all(mailbox)
        raise DeliveryError(
            f"offset {offset} is not in your hands any more", help="the connection was lost; it comes again"
        )

    def _is_turn_of(self, handle: Subscription) -> bool:
        """In a group: does nobody who waits have fewer in flight?

        What is only taken ahead is nobody's turn while somebody waits for the next. Else what was asked back for a
        handle of this process, which takes it a moment later, would be lent again at once, and so for ever.
        """
        mailbox = handle.mailbox
        in_flight, eager = mailbox.in_flight_of, handle.is_eager
        mine = in_flight.get(handle.consumer, 0)
        for lane in mailbox.lanes.values() if not eager else ():
            if lane is not handle.lane and any(lane.queues):
                others = self._node.lanes.handles_of(mailbox, lane)
                if any(other.has_waiting and not mailbox.has_no_room(other.consumer) for other in others):
                    return False
        for other in self._node.lanes.handles_of(mailbox, handle.lane):
            if other is handle or not (other.has_waiting or (other.waits and not eager)):
                continue
            if in_flight.get(other.consumer, 0) < mine:
                return False
            if not eager and other.has_waiting and not mailbox.has_no_room(other.consumer):
                return False
        return True

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
        """The item of a delivery that its holder has in hand or buffer, or has given back and nobody got since."""
        item: Item | None = delivery.item
        if item is None or delivery.settled is not None:
            raise DeliveryError(f"offset {delivery.offset} is settled", help="what is settled cannot be taken back")
        mailbox = delivery.handle.mailbox
        if mailbox.options.durable and self._node.mailboxes.get(mailbox.name) is not mailbox:
            raise DeliveryError(f"consumer {mailbox.title!r} was forgotten", help="what it had in hand is nobody's now")
        in_hand = mailbox.flying.get(item.offset) is item
        if item.attempt + item.lent != delivery.attempt or not (in_hand or mailbox.is_free(item)):
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
        for done in dict.fromkeys(self.settle_now(deliveries)):
            await asyncio.shield(done)

    def settle_now(self, deliveries: list[Delivery]) -> list[asyncio.Future[None]]:
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
        traces = node.traces
        for delivery in deliveries:
            offset, event, consumer = delivery.offset, delivery.event, delivery.handle.consumer
            if offset in node.cancelled:  # cancelled while in hand: nothing is left to settle
                continue
            item = delivery.item  # `settle_now` has just seen that it is held
            if offset not in mailbox.flying:
                mailbox.reclaim(item)
            if item.lent:
                mailbox.claim_settled(item)
                if traces is not None:
                    traces.delivered(event, consumer, delivery.attempt)
                if is_tracked(event):
                    notes.append(Note(offset, now, "delivered", consumer))
            mailbox.settle(offset)
            if traces is not None:
                traces.settled(event, consumer, "ack")
            if is_tracked(event):
                notes.append(Note(offset, now, "acked", consumer))
            if event.ack != "none" and (publisher := node.journal.publisher(offset)):  # what was imported has none
                name, receipt, changes = node.receipts.prepare(publisher, event, consumer, now)
                receipts.append((name, receipt))
                state |= changes
                notes.append(Note(offset, now, "receipt", publisher))
            if event.ack == "client":
                about = {**event.attributes, "consumer": consumer, "of": offset, "of_source": event.source}
                word = Event("tocsin.ack", "tocsin", correlation_id=event.id, data="ACK", attributes=about)
                events.append(word.replace(classification=event.classification))  # no less secret than the event
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
        if self._node.traces is not None:
            self._node.traces.settled(delivery.event, delivery.handle.consumer, "nak")
        if mailbox.lent and mailbox.is_resting_full():  # then nothing is handed out, elsewhere neither
            mailbox.ask_back(mailbox.flying.values(), "", self._node.now())
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
        if self._node.traces is not None:
            self._node.traces.settled(delivery.event, delivery.handle.consumer, "term")
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
            letter = Event("tocsin.dead", "tocsin", data=about)
            if event is not None:
                letter = letter.replace(correlation_id=event.id, classification=event.classification)
            letters.append(letter)
            notes.append(Note(item.offset, self._node.now(), "dead", mailbox.title))
        await asyncio.shield(self._node.keeper.save(mailbox, letters, notes))  # others wait for it, too

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
            if node.mailboxes.pop(mailbox.name, None) is not None:
                node.gone.update(mailbox.counters)
            node.peers.demand_changed()
        node.lanes.wake_all(mailbox)
        await self.bury(mailbox, dead, "its holder left after the last attempt")

    def step_back(self, handle: Subscription) -> None:
        """See `handles.Post`."""
        self._node.lanes.wake_all(handle.mailbox)


def _spoken(notice: Notice) -> Event:
    """A notice as the event a consumer sees."""
    return Event(notice.kind, "tocsin", correlation_id=notice.id, data=notice.data, arrived=as_datetime(notice.at))


def _has_failed(done: asyncio.Future[None]) -> bool:
    """Was what should be stored not stored, as far as is known?"""
    return done.done() and (done.cancelled() or done.exception() is not None)

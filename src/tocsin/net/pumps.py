"""From a node's mailbox to a connection: one pump for each subscription, one for each watch.

A pump sends what there is credit for. What it sends *ahead* is only lent by the mailbox until the client says `taken`:
so a buffer in the client costs no attempt, starts no clock, settles nothing and hides no cancellation; and if the
connection is lost, what nobody had in hand waits as if it had never been sent. What somebody else waits for is asked
back; it is lent until the client has answered, so nobody gets what another has just taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from msgspec import Raw

from tocsin.clock import as_micros
from tocsin.delivery.handles import Delivery, Subscription
from tocsin.errors import DeliveryError, EventError, TocsinError
from tocsin.net.faults import to_wire
from tocsin.net.frames import Deliver, Ended, Recall, Seen, Shared, Trouble
from tocsin.net.outgoing import Outgoing
from tocsin.net.parts import Item
from tocsin.net.protocol import Codec
from tocsin.node.pipeline import Node

__all__ = ["FULL", "NOTICE", "REPLAYED", "Pump", "ReceiptsPump", "SubscriptionPump"]

REPLAYED, NOTICE = 1, 2
"""Flags of a delivery."""
_REMEMBERED = 4096
_BATCH = 256  # deliveries in one frame: the client reads it while the next is made
_AT_ONCE = 128  # and that are taken out of a mailbox at a time; fewer if events are large
FULL = 1024 * 1024
"""Bytes after which a frame of many parts is sent: what comes next has one of its own."""


class Pump(Protocol):
    """What a session asks of every pump."""

    credit: int
    closed: bool

    def push(self) -> bool:
        """Send what there is, as far as credit and room go; is there more than there was room for?"""

    def taken(self, numbers: Iterable[int]) -> None:
        """Of what was sent, these are in somebody's hands."""

    async def close(self) -> None:
        """Send nothing more; what is in no hands waits as if it had not been sent."""


class SubscriptionPump:
    """Deliveries of one subscription."""

    def __init__(
        self,
        node: Node,
        handle: Subscription,
        sub: int,
        outgoing: Outgoing,
        codec: Codec,
        *,
        credit: int,
        ahead: bool,
        wake: Callable[[], None],
    ) -> None:
        """Begin; nothing is sent before `push`."""
        self._node, self.handle, self._sub, self._outgoing, self._codec = node, handle, sub, outgoing, codec
        self.credit, self.closed = credit, False
        self._numbers: dict[int, int] = {}  # of what is lent, by offset
        self._out: dict[int, Delivery] = {}
        # Numbers that were settled of late: settling them again does no harm.
        self._settled: dict[int, None] = {}
        self._words: deque[int] = deque()  # numbers of notices that are lent
        self._is_shared = not ahead or handle.mailbox.options.group is not None  # and the client knows
        self._next = 1
        self._moment: datetime | None = None
        self._arrived = 0
        # What is lent may be returned, if it is more than can be sent; and a row can always be sent.
        self._at_once = _AT_ONCE if ahead and codec.binary else 1
        handle.lends = ahead
        handle.on_wake, handle.on_turn = wake, self._take_turn

    @property
    def has_window(self) -> bool:
        """May more be out than is already?"""
        mailbox = self.handle.mailbox
        return self.credit > 0 and mailbox.in_flight_of.get(self.handle.consumer, 0) < mailbox.options.max_in_flight

    def want(self) -> None:
        """Somebody waits there, and has nothing."""
        self.handle.hungry = True

    def _take_turn(self) -> None:
        self.push()

    def push(self) -> bool:
        """See `Pump`."""
        handle = self.handle
        self.tell_recalled()
        if not self._is_shared and handle.mailbox.handles > 1:
            self._is_shared = True
            self._outgoing.put(Shared(self._sub))
        handle.waits = int(self.credit > 0)  # in a group, who has credit is waiting
        items: list[Item] = []
        size = 0
        while self.credit > 0 and len(items) < _BATCH and size < FULL and self._outgoing.has_room and not handle.closed:
            found: list[Delivery] = []
            try:
                found = self._node.post.take_many(handle, min(self.credit, self._at_once))
                if not found:
                    break
                found.reverse()
                while found:
                    items.append(item := self._item(found.pop()))
                    self.credit -= 1
                    size += len(item[5])
            except TocsinError as error:
                self._node.post.return_lent(found)
                self._outgoing.put(Trouble(self._sub, to_wire(error)))
                break
            handle.hungry = False
            if not handle.mailbox.may_have_more(handle.lane):
                break
        if items and self._at_once > 1:
            self._at_once = max(2, min(_AT_ONCE, FULL * len(items) // (4 * size)))
        if items:
            low = 0 if handle.mailbox.options.durable else handle.mailbox.lowest_waiting(handle.lane, self._node.head)
            self._outgoing.put(Deliver(self._sub, items, self._node.now(), low))
        else:
            self._make_way()
        if handle.closed and not self.closed:
            self.closed = True
            handle.waits = 0
            self._outgoing.put(Ended(self._sub))
        return len(items) == _BATCH or size >= FULL

    def _item(self, delivery: Delivery) -> Item:
        number, self._next = self._next, self._next + 1
        event = delivery.event
        try:
            row = self._node.window.row(delivery.offset) if self._codec.binary else None
            part = Raw(row) if row is not None else self._codec.event(event)
        except EventError:
            self._node.post.return_lent([delivery] if delivery.item is not None else [])
            raise
        if delivery.item is not None and delivery.settled is None:
            self._out[number] = delivery
            if delivery.item.lent:
                self._numbers[delivery.offset] = number
            if len(self._out) > 2 * self.handle.mailbox.options.max_in_flight + 64:
                self._prune()
        if delivery.notice and self.handle.lends:
            self._words.append(number)
        flags = REPLAYED * delivery.replayed + NOTICE * delivery.notice
        if event.arrived is not self._moment:  # those of one commit share it
            self._moment = event.arrived
            self._arrived = as_micros(event.arrived) if event.arrived is not None else 0
        return number, delivery.attempt, flags, delivery.offset, self._arrived, part

    def _prune(self) -> None:
        """Forget deliveries that went to others since: their time was up."""
        mailbox = self.handle.mailbox
        for number, delivery in list(self._out.items()):
            item = delivery.item
            is_here = mailbox.flying.get(item.offset) is item or mailbox.is_free(item)
            if not is_here or item.attempt + item.lent != delivery.attempt:
                del self._out[number]

    def _make_way(self) -> None:
        """Ask back what was sent ahead for what is more urgent, if that finds no credit or no window."""
        handle = self.handle
        mailbox, lane = handle.mailbox, handle.lane
        options = mailbox.options
        if not self._numbers or options.order != "priority" or options.fair or self.has_window:
            return
        lent = [self._out[number] for number in self._numbers.values()]
        lowest = min(each.item.level for each in lent)
        waiting = [(level, len(lane.queues[level])) for level in lane.levels if level > lowest and lane.queues[level]]
        waiting += [(item.level, 1) for item in mailbox.again.values() if item.lane == lane.id and item.level > lowest]
        if not waiting:
            return
        lent.sort(key=lambda each: (each.item.level, -each.offset))
        for level, count in sorted(waiting, reverse=True):
            less = [each.item for each in lent[:count] if each.item.level < level]
            mailbox.ask_back(less, handle.member, self._node.now())
            del lent[: len(less)]
        self._node.ring_later()
        self.tell_recalled()

    def tell_recalled(self) -> None:
        """Say what must not be handed out any more, and what is asked back."""
        mailbox, member = self.handle.mailbox, self.handle.member
        if not (mailbox.recalled or mailbox.asked or mailbox.notices.has_news):  # nearly always
            return
        numbers = [self._words.popleft() for _ in range(mailbox.notices.recalled_from(member)) if self._words]
        if offsets := mailbox.recalled_from(member):
            numbers += [number for offset in offsets if (number := self._numbers.pop(offset, 0))]
            for number in numbers:
                self._out.pop(number, None)
        if numbers:
            self._outgoing.put(Recall(self._sub, numbers))
        asked = [self._numbers[offset] for offset in mailbox.asked_of(member) if offset in self._numbers]
        if mailbox.notices.asked_of(member):
            asked += self._words
        if asked:
            self._outgoing.put(Recall(self._sub, asked, ask=True))

    def taken(self, numbers: Iterable[int]) -> None:
        """See `Pump`. What is not known any more was recalled or settled meanwhile, and is passed over."""
        mine = [self._out[number] for number in numbers if number in self._out]
        self._claim(mine)
        for number in numbers if self._words else ():
            if number in self._words:
                self._words.remove(number)
                self.handle.mailbox.notices.taken(self.handle.member)
        self.forget(number for number in numbers if number in self._out and self._out[number].settled is not None)

    def _claim(self, deliveries: list[Delivery]) -> None:
        lent = [each for each in deliveries if each.item.lent]
        for delivery in lent:
            self._numbers.pop(delivery.offset, None)
        if lent:
            was_asked = any(each.item.asked_for is not None for each in lent)
            self._node.post.claim(lent)
            if was_asked:  # whoever asked for it may ask for something else
                self._node.lanes.wake_all(self.handle.mailbox)

    def returned(self, numbers: Iterable[int]) -> None:
        """Of what was sent ahead, these are not wanted."""
        mine = [self._out.pop(number) for number in numbers if number in self._out and self._out[number].item.lent]
        for delivery in mine:
            self._numbers.pop(delivery.offset, None)
        self._node.post.return_lent(mine)
        words = [number for number in numbers if number in self._words]
        for number in words:
            self._words.remove(number)
        if words:
            self._node.post.return_words(self.handle, len(words))

    def delivery(self, number: int) -> Delivery:
        """What was sent under a number, in somebody's hands from now on.

        Raises:
            DeliveryError: it is not in your hands any more.
        """
        delivery = self._out.get(number)
        if delivery is None:
            raise DeliveryError(
                f"delivery {number} is not in your hands", help="it was settled or withdrawn, or it comes again"
            )
        if delivery.item.lent and self._numbers.get(delivery.offset) != number:  # it was sent again, and not taken
            self._node.post.return_lent([delivery], quiet=False)
            self.tell_recalled()
        else:
            self._claim([delivery])
        return delivery

    def to_settle(self, numbers: list[int]) -> list[Delivery]:
        """What was sent under these numbers, to be settled: all or none. `were_settled` follows.

        Raises:
            DeliveryError: one of them is not in your hands any more.
        """
        found = [self._out[number] for number in numbers if number in self._out]
        is_mine = len(found) == len(numbers) and all(
            not each.item.lent or self._numbers.get(each.offset) == number
            for number, each in zip(numbers, found, strict=True)
        )
        return found if is_mine else [self.delivery(number) for number in numbers]

    def were_settled(self, deliveries: list[Delivery]) -> None:
        """These are in nobody's buffer any more."""
        for delivery in deliveries:
            self._numbers.pop(delivery.offset, None)

    def unsettled(self, numbers: Iterable[int]) -> list[int]:
        """Those of them that were not settled of late."""
        return [number for number in numbers if number not in self._settled]

    def forget(self, numbers: Iterable[int]) -> None:
        """These are settled."""
        for number in list(numbers):
            self._out.pop(number, None)
            self._settled[number] = None
        if len(self._settled) > 2 * _REMEMBERED:
            self._settled = dict.fromkeys(list(self._settled)[-_REMEMBERED:])

    def reclaim(self, offset: int, attempt: int) -> int | None:
        """The number of a delivery of an earlier connection that is still in hand; None: it needs no settling.

        Raises:
            DeliveryError: it went to somebody else meanwhile.
        """
        in_hand = self.handle.mailbox.flying.get(offset)
        if in_hand is not None and not in_hand.lent and in_hand.attempt == attempt:
            for number, mine in self._out.items():  # it was claimed before, and then another of the same batch was not
                if mine.item is in_hand and mine.attempt == attempt:
                    return number
        delivery = self._node.post.found_again(self.handle, offset, attempt)
        self.tell_recalled()
        if delivery is None:
            return None
        number, self._next = self._next, self._next + 1
        self._out[number] = delivery
        return number

    async def close(self, *, undo: bool = False) -> None:
        """See `Pump`. With `undo` it is as if it had not been opened."""
        self.closed = True
        self.handle.waits = 0
        if undo and self.handle.undo is not None:
            await self.handle.undo()
        await self._node.post.close_handle(self.handle)


class ReceiptsPump:
    """Receipts for one publisher. One that was sent is not fetched before the client says that it is taken."""

    def __init__(
        self, node: Node, name: str, sub: int, outgoing: Outgoing, codec: Codec, credit: int, wake: Callable[[], None]
    ) -> None:
        """Begin; nothing is sent before `push`."""
        self._box, self._name, self._sub, self._outgoing, self._codec = node.receipts, name, sub, outgoing, codec
        self.credit, self.closed = credit, False
        self._sent = 0
        self._next = 1
        self._wake = wake
        self._box.listen(name, wake)

    def push(self) -> bool:
        """See `Pump`."""
        found = self._box.peek(self._name, self._sent, min(self.credit, _BATCH))
        if found and not self.closed:
            first = self._next
            self._next += len(found)
            self._sent += len(found)
            self.credit -= len(found)
            parts = [(number, self._codec.value(each)) for number, each in enumerate(found, first)]
            self._outgoing.put(Seen(self._sub, parts))
        return len(found) == _BATCH

    def taken(self, numbers: Iterable[int]) -> None:
        """See `Pump`. They are taken in the order they were sent, whatever their numbers."""
        for _ in numbers:
            if self._sent:
                self._sent -= 1
                self._box.take(self._name)

    async def close(self) -> None:
        """See `Pump`."""
        if not self.closed:
            self.closed = True
            self._box.unlisten(self._name, self._wake)

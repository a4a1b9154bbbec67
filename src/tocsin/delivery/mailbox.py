"""A mailbox: everything one consumer (or one group) has to get, has in hand, and has settled.

Pure: time is an argument, events come from a function, nothing is stored here. `durable` writes a mailbox down; `node`
feeds it and hands out what it gives. Which of its lanes an event belongs to is in `owners`.

Rules (design.md section 5): strictly higher priority first, by offset within a level; one event once, however many
lanes match; what is not settled in time comes again with its attempt number; after `max_deliver` attempts it is dead.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from tocsin.clock import SECOND
from tocsin.delivery.lane import MOST_CEDED, Lane
from tocsin.delivery.owners import Options, Owners
from tocsin.errors import TocsinError
from tocsin.model import Event

__all__ = ["Fetch", "Item", "Mailbox", "Notice", "Verdict"]

_REMEMBERED = 4096
_MOST_NOTICES = 1000
_MOST_RESTING = 4096  # given back with a delay: they are part of a consumer's place, so there must be an end

Fetch = Callable[[int], Event | None]
"""The event at an offset; None if it is no longer kept."""
Verdict = Callable[[Event, int], str | None]
"""Why an event must not be delivered at this moment; None if it may."""


class Item:
    """An event that has been handed out, or waits to be handed out again."""

    __slots__ = ("attempt", "deadline", "event", "holder", "lane", "lent", "level", "member", "offset")

    def __init__(self, offset: int, level: int, lane: str, attempt: int = 0) -> None:
        """Make an item that was handed out `attempt` times."""
        self.offset, self.level, self.lane, self.attempt = offset, level, lane, attempt
        self.event: Event | None = None
        self.member = self.holder = ""
        self.deadline = 0
        self.lent = False
        """In flight, but in no hands yet: in a client's buffer, say. That is no attempt."""


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A word from the node to a consumer: what kind, about which event, and more for people."""

    kind: str
    id: str
    at: int
    data: dict[str, Any] = {}


class Mailbox(Owners):
    """The state of one consumer."""

    def __init__(self, name: str, options: Options) -> None:
        """Start with nothing."""
        super().__init__(options)
        self.name = name
        self.flying: dict[int, Item] = {}
        self.resting: dict[int, Item] = {}
        """Given back, to come again at their deadline."""
        self.again: dict[int, Item] = {}
        """By offset: to be handed out (again) now. An event is in one of these three at most."""
        self.counters = dict.fromkeys(("delivered", "redelivered", "settled", "dead", "withdrawn"), 0)
        self.in_flight_of: dict[str, int] = {}
        self.members: set[str] = set()
        """Consumers of a group that are known."""
        self.guests: set[str] = set()
        """Those of them that gave no name: they are not written down."""
        self.notices: list[Notice] = []
        """Words from the node that wait for a handle."""
        self.settled_by: dict[int, str] = {}
        """In a group: who has settled what, of late."""
        self._turns: dict[tuple[str, int], list[int]] = {}  # by lane and level, a heap of `again`; some have gone since
        self._alarms: list[tuple[int, int, int]] = []  # heap: deadline, offset, attempt
        self._since_fair = 0.0
        self.recalled: list[Item] = []
        """What was lent and is to be handed out no more, until its holder has heard of it."""

    # -- coming in

    def is_for(self, lane: Lane, event: Event, among: Sequence[Lane] | None = None) -> bool:
        """Does this lane, which matches the event, have to deliver it? See `owner_of` for `among`."""
        if len(self.lanes) == 1 or (lane.record.replay and (event.offset or 0) <= lane.record.seam):
            return True
        return self.owner_of(event, among) is lane and not self._has_in_hand(event.offset or 0)

    def _has_in_hand(self, offset: int) -> bool:
        return offset in self.flying or offset in self.resting or offset in self.again

    def items(self) -> Iterator[Item]:
        """Everything that has left the queues and is not settled."""
        yield from self.flying.values()
        yield from self.resting.values()
        yield from self.again.values()

    def come_again(self, item: Item) -> None:
        """Let an item that is in no hands be handed out in its turn."""
        self.again[item.offset] = item
        place = item.lane, item.level
        turns = self._turns.setdefault(place, [])
        heapq.heappush(turns, item.offset)
        if len(turns) > 2 * len(self.again) + 64:  # most of them have gone
            turns[:] = sorted(each.offset for each in self.again.values() if (each.lane, each.level) == place)

    def hand_over(self, lane: Lane, heirs: list[Lane], fetch: Fetch, since: int = 0) -> set[str]:
        """A lane is closed: what waits in it goes to others that match, of its queues what came after `since`.

        The lane remembers what it has ceded, since it may stand before events that wait for itself alone. Returns the
        lanes that got something.
        """
        woken: set[str] = set()
        if not heirs:
            return woken

        def heir_of(offset: int) -> Lane | None:
            try:
                event = fetch(offset)
            except TocsinError:  # it cannot be read just now: it stays where it is
                return None
            heir = next((each for each in heirs if event is not None and each.matches(event)), None)
            if heir is not None and not heir.is_live:
                heir.ceded.add(offset)  # it has it now, and must not find it in the journal too
            return heir

        for item in [item for item in self.items() if item.lane == lane.id]:
            if (heir := heir_of(item.offset)) is not None:
                item.lane = heir.id
                woken.add(heir.id)
                if item.offset in self.again:
                    self.come_again(item)
        queued = sorted((offset, level) for level in lane.levels for offset in lane.queues[level] if offset > since)
        for offset, level in queued[: max(0, MOST_CEDED - len(lane.ceded))]:  # in their order, since they are read so
            if (heir := heir_of(offset)) is None:
                continue
            lane.ceded.add(offset)
            if not self._has_in_hand(offset):
                self.come_again(Item(offset, level, heir.id))
                woken.add(heir.id)
        for level in lane.levels:
            lane.queues[level] = deque(offset for offset in lane.queues[level] if offset not in lane.ceded)
        return woken

    # -- going out

    def take(
        self, lane: Lane, member: str, holder: str, now: int, fetch: Fetch, refuse: Verdict, lend: bool = False
    ) -> Item | None:
        """Hand out the next event of a lane to a member; None if there is none now, or a level must be scanned first.

        What may not be delivered (expired, cancelled, trimmed) is passed over and counts as settled. With `lend` it is
        only lent: it has its place in the window, but is not delivered before `claim`.
        """
        if self.in_flight_of.get(member, 0) >= self.options.max_in_flight or len(self.resting) >= _MOST_RESTING:
            return None
        upside_down = self._is_turn_of_lowest()
        for level in reversed(lane.levels) if upside_down else lane.levels:
            while (item := self._next(lane, level)) is not None:
                if item.offset in self.flying or item.offset in self.resting:  # in hand by another way (a replay)
                    continue
                try:
                    event = fetch(item.offset)
                except BaseException:  # it cannot be read just now: it must not be lost for that
                    self.come_again(item)
                    raise
                if event is None or refuse(event, now) is not None:
                    self.counters["withdrawn"] += 1
                    continue
                self._hand_out(item, event, member, holder)
                item.lent = lend
                self._start(item, now)
                return item
            if lane.is_blind(level) and not upside_down:
                return None  # something more urgent may be there
        return None

    def _is_turn_of_lowest(self) -> bool:
        """A share of turns (`fair`) goes to the lowest level that has something."""
        self._since_fair += self.options.fair
        if self._since_fair < 1:
            return False
        self._since_fair -= 1
        return True

    def _next(self, lane: Lane, level: int) -> Item | None:
        """Remove and return what comes first at a level: the lowest offset, given back or new."""
        queue = lane.queues[level]
        if not self.again:  # nearly always
            return Item(queue.popleft(), level, lane.id) if queue else None
        turns = self._turns.get((lane.id, level), [])
        while turns and ((item := self.again.get(turns[0])) is None or item.lane != lane.id):
            heapq.heappop(turns)
        if turns and not (queue and queue[0] <= turns[0]):
            return self.again.pop(heapq.heappop(turns))
        if not queue:
            return None
        offset = queue.popleft()
        item = self.again.pop(offset, None) or Item(offset, level, lane.id)  # a replay may meet what comes again
        item.lane = lane.id
        return item

    def _hand_out(self, item: Item, event: Event, member: str, holder: str) -> None:
        item.event, item.member, item.holder = event, member, holder
        self.flying[item.offset] = item
        self.in_flight_of[member] = self.in_flight_of.get(member, 0) + 1

    def _start(self, item: Item, now: int) -> None:
        if not item.lent:
            item.attempt += 1
            self.counters["delivered"] += 1
            self.counters["redelivered"] += item.attempt > 1
        self._set_alarm(item, now + round(self.options.ack_wait * SECOND))

    def claim(self, item: Item, now: int) -> bool:
        """What was lent is in somebody's hands: its time begins. False: it was recalled before."""
        if not item.lent or self.flying.get(item.offset) is not item:
            return False
        item.lent = False
        self._start(item, now)
        return True

    def pick(self, offset: int, event: Event, member: str, holder: str) -> Item | None:
        """Put what waits to be handed out into hands that had it before (they come late to settle it); None: no."""
        lent = self.flying.get(offset)
        if lent is not None and lent.lent:
            self._recall(self._land(offset))
            item: Item | None = lent
        else:
            item = self.again.pop(offset, None) or self.resting.pop(offset, None)
        for lane in self.lanes.values():
            queue = lane.queues[self.level_of(event)]
            if item is None and not lane.record.ended and offset in queue:
                queue.remove(offset)
                item = Item(offset, self.level_of(event), lane.id)
        if item is not None:
            self._hand_out(item, event, member, holder)
        return item

    # -- settling

    def _land(self, offset: int) -> Item:
        item = self.flying.pop(offset)
        left = self.in_flight_of[item.member] - 1
        if left:
            self.in_flight_of[item.member] = left
        else:
            del self.in_flight_of[item.member]
        return item

    def _recall(self, item: Item) -> None:
        item.lent = False
        self.recalled.append(item)

    def settle(self, offset: int) -> Item:
        """Be done with an event in flight."""
        self.counters["settled"] += 1
        item = self._land(offset)
        if self.options.group is not None:
            self.settled_by[offset] = item.member
            if len(self.settled_by) > _REMEMBERED:
                del self.settled_by[next(iter(self.settled_by))]
        return item

    def give_back(self, offset: int, due: int | None = None) -> Item | None:
        """Let an event in flight come again, now or when it is `due`; returns it if it has had its last attempt."""
        item = self._land(offset)
        if item.lent:
            self._recall(item)
            self.come_again(item)
            return None
        if self.options.max_deliver is not None and item.attempt >= self.options.max_deliver:
            self.counters["dead"] += 1
            return item
        if due is None:
            self.come_again(item)
        else:
            self.rest(item, due)
        return None

    def is_free(self, item: Item) -> bool:
        """Was an item given back, and has it gone to nobody since?"""
        return self.resting.get(item.offset) is item or self.again.get(item.offset) is item

    def reclaim(self, item: Item) -> None:
        """Put an item that is free into its last holder's hands again; the caller settles it or gives it back."""
        self.resting.pop(item.offset, None)
        self.again.pop(item.offset, None)
        self.flying[item.offset] = item
        self.in_flight_of[item.member] = self.in_flight_of.get(item.member, 0) + 1

    def rest(self, item: Item, due: int) -> None:
        """Let an item that is in no hands come again when it is due."""
        self.resting[item.offset] = item
        self._set_alarm(item, due)

    def extend(self, offset: int, now: int) -> None:
        """Give an event in flight its whole time again."""
        self._set_alarm(self.flying[offset], now + round(self.options.ack_wait * SECOND))

    def release(self, holder: str, *, keep: bool = False) -> list[Item]:
        """Take back what a handle has in hand, with `keep` only what was lent to it; returns what is dead now."""
        mine = [offset for offset, item in self.flying.items() if item.holder == holder and (item.lent or not keep)]
        dead = [item for offset in mine if (item := self.give_back(offset)) is not None]
        self.recalled_from(holder)
        return dead

    def lent_to(self, member: str) -> int:
        """How much of what a member has in flight is in no hands yet."""
        return sum(item.lent and item.member == member for item in self.flying.values())

    def recalled_from(self, holder: str) -> list[int]:
        """What was lent to a handle and is to be handed out no more; it is told once."""
        if not self.recalled:
            return []
        mine = [item.offset for item in self.recalled if item.holder == holder]
        self.recalled = [item for item in self.recalled if item.holder != holder]
        return mine

    def withdraw(self, offset: int) -> None:
        """Forget an event, wherever it waits or is in hand."""
        self.resting.pop(offset, None)
        self.again.pop(offset, None)
        if offset in self.flying and (item := self._land(offset)).lent:
            self._recall(item)

    def drop(self, lane: Lane, fetch: Fetch) -> None:
        """A subscription has ended: forget what of it waits or is in hand, and remember that it was not settled."""
        for item in [item for item in self.items() if item.lane == lane.id]:
            self.withdraw(item.offset)
            lane.record.left.append(item.offset)
        others = [each for each in self.lanes.values() if each.record.ended and each is not lane]
        for offset in lane.record.left:
            try:
                event = fetch(offset) if others else None
            except TocsinError:
                continue
            for other in others:  # they have passed it by, or had handed it over, and must not take it for settled
                if event is not None and other.accepts(event) and not other.has_dropped(offset, self.level_of(event)):
                    other.record.left.append(offset)

    def settle_dropped(self, offset: int) -> None:
        """Be done with an event whose subscription was dropped while it was in hand; newer ones need not give it."""
        self.again.pop(offset, None)
        self.resting.pop(offset, None)
        for lane in self.lanes.values():
            for waiting in (lane.record.left, *lane.queues):
                if offset in waiting:
                    waiting.remove(offset)

    # -- time

    def _set_alarm(self, item: Item, deadline: int) -> None:
        item.deadline = deadline
        heapq.heappush(self._alarms, (deadline, item.offset, item.attempt))
        if len(self._alarms) > 2 * (len(self.flying) + len(self.resting)) + 64:  # most are of what is settled
            items = (*self.flying.values(), *self.resting.values())
            self._alarms = sorted((each.deadline, each.offset, each.attempt) for each in items)

    def next_alarm(self) -> int | None:
        """When something is due; None: never."""
        while self._alarms:
            deadline, offset, attempt = self._alarms[0]
            item = self.flying.get(offset) or self.resting.get(offset)
            if item is not None and item.deadline == deadline and item.attempt == attempt:
                return deadline
            heapq.heappop(self._alarms)
        return None

    def ring(self, now: int) -> list[Item]:
        """Let everything that is due come again; returns what is dead now."""
        dead = []
        while (deadline := self.next_alarm()) is not None and deadline <= now:
            _, offset, _ = heapq.heappop(self._alarms)
            if offset in self.flying:
                item = self.give_back(offset)
                if item is not None:
                    dead.append(item)
            else:
                self.come_again(self.resting.pop(offset))
        return dead

    # -- looking

    def unsettled(self) -> list[int]:
        """Offsets that have left the queues and are not settled."""
        return sorted(item.offset for item in self.items())

    def has_settled(self, event: Event, head: int) -> bool:
        """Is the consumer through with this event, also with every replay of it?"""
        offset, level = event.offset or 0, self.level_of(event)
        replayed = (
            lane.record.replay
            and not lane.record.ended
            and lane.frontier(level, head) < offset <= lane.record.seam
            and offset not in lane.ceded
            and lane.accepts(event)
            for lane in self.lanes.values()
        )
        return self._is_through_with(event, head) and not any(replayed)

    def _is_through_with(self, event: Event, head: int) -> bool:
        offset, level = event.offset or 0, self.level_of(event)
        if self._has_in_hand(offset):
            return False
        owner = self.owner_of(event)
        if owner is None or owner.record.ended:
            return owner is not None
        return offset <= owner.frontier(level, head) or offset in owner.ceded  # another lane had it, and is through

    def has_seen(self, event: Event, head: int) -> bool:
        """Has the consumer, which still asks for such events, got this one, in hand or settled?"""
        offset = event.offset or 0
        if not any(not lane.record.ended and lane.matches(event) for lane in self.lanes.values()):
            return False
        if offset in self.again:
            return self.again[offset].attempt > 0
        if offset in self.flying:
            return self.flying[offset].attempt > 0
        return offset in self.resting or self._is_through_with(event, head)

    def tell(self, notice: Notice) -> None:
        """Leave a word for the next handle that looks; of very many the oldest are dropped."""
        self.notices.append(notice)
        del self.notices[: max(0, len(self.notices) - _MOST_NOTICES)]

    def wants(self, event: Event) -> bool:
        """Is the event for this consumer? What it took over from an older subscription is, too."""
        accepted = (not lane.record.ended and lane.accepts(event) for lane in self.lanes.values())
        return self._has_in_hand(event.offset or 0) or any(accepted)

    def waiting(self) -> int:
        """Offsets in the queues of this moment, those to come again among them; more may lie in the journal."""
        queued = sum(len(queue) for lane in self.lanes.values() for queue in lane.queues)
        return queued + len(self.resting) + len(self.again)

    @property
    def title(self) -> str:
        """What people call it: the consumer, or the group."""
        return self.options.group or self.name

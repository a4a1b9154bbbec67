"""What has left the queues of a consumer and is not settled: in hand, lent, given back, or to come again now.

In hand has a time limit (`ack_wait`) after which it comes again. *Lent* is what a client's buffer holds and no
application has: it has a place in the window, is no attempt and has no time limit. It may be *asked back* for a handle
that has somebody waiting: it stays lent until its holder has answered, so that nobody gets what another has just taken;
one who does not answer within `ack_wait` is not waited for. Pure state: time is an argument.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from tocsin.clock import SECOND
from tocsin.delivery.owners import Options, Owners
from tocsin.model import Event

__all__ = ["Hands", "Item"]

_REMEMBERED = 4096
_MOST_RESTING = 4096  # given back with a delay: they are part of a consumer's place, so there must be an end


class Item:
    """An event that has been handed out, or waits to be handed out again."""

    __slots__ = ("asked_for", "attempt", "deadline", "event", "holder", "lane", "lent", "level", "member", "offset")

    def __init__(self, offset: int, level: int, lane: str, attempt: int = 0) -> None:
        """Make an item that was handed out `attempt` times."""
        self.offset, self.level, self.lane, self.attempt = offset, level, lane, attempt
        self.event: Event | None = None
        self.member = self.holder = ""
        self.deadline = 0
        """When its time is up; 0: never."""
        self.lent = False
        """In flight, but in no hands yet: in a client's buffer, say. That is no attempt."""
        self.asked_for: str | None = None
        """Lent, and asked back for this handle; empty: for none in particular."""


class Hands(Owners):
    """Items of one consumer, each in one place at most."""

    def __init__(self, options: Options) -> None:
        """Start with none."""
        super().__init__(options)
        self.flying: dict[int, Item] = {}
        self.resting: dict[int, Item] = {}
        """Given back, to come again at their deadline."""
        self.again: dict[int, Item] = {}
        """By offset: to be handed out (again) now."""
        self.counters = dict.fromkeys(("delivered", "redelivered", "settled", "dead", "withdrawn"), 0)
        self.in_flight_of: dict[str, int] = {}
        self.lent = 0
        """How many are lent."""
        self.settled_by: dict[int, str] = {}
        """In a group: who has settled what, of late."""
        self.recalled: list[tuple[str, int]] = []
        """Handle and offset of what was lent and is to be handed out no more, until its holder has heard of it."""
        self.asked: list[tuple[str, Item]] = []
        """What a handle is asked to give back, until it has heard of it."""
        self.wanted: list[str] = []
        """Handles for which was asked back what has come back because its holder did not answer: theirs is the turn."""
        self._turns: dict[tuple[str, int], list[int]] = {}  # by lane and level, a heap of `again`; some have gone since
        self._alarms: list[tuple[int, int, int]] = []  # heap: deadline, offset, attempt

    def items(self) -> Iterator[Item]:
        """Everything that has left the queues and is not settled."""
        yield from self.flying.values()
        yield from self.resting.values()
        yield from self.again.values()

    def has_in_hand(self, offset: int) -> bool:
        """Has this offset left the queues?"""
        return offset in self.flying or offset in self.resting or offset in self.again

    def come_again(self, item: Item) -> None:
        """Let an item that is in no hands be handed out in its turn."""
        self.again[item.offset] = item
        place = item.lane, item.level
        turns = self._turns.setdefault(place, [])
        heapq.heappush(turns, item.offset)
        if len(turns) > 2 * len(self.again) + 64:  # most of them have gone
            turns[:] = sorted(each.offset for each in self.again.values() if (each.lane, each.level) == place)

    def has_no_room(self, member: str) -> bool:
        """Must a member settle something first?"""
        return self.in_flight_of.get(member, 0) >= self.options.max_in_flight or self.is_resting_full()

    # -- handing out

    def hand_out(self, item: Item, event: Event, member: str, holder: str) -> None:
        """Put an item into hands; `start` or `extend` follows."""
        item.event, item.member, item.holder = event, member, holder
        self.flying[item.offset] = item
        self.in_flight_of[member] = self.in_flight_of.get(member, 0) + 1

    def start(self, item: Item, now: int, *, lend: bool) -> None:
        """Its time begins, unless it is only lent."""
        item.lent = lend
        if lend:
            self.lent += 1
            item.deadline = 0
            return
        self._deliver(item)
        self._set_alarm(item, now + round(self.options.ack_wait * SECOND))

    def _deliver(self, item: Item) -> None:
        item.attempt += 1
        self.counters["delivered"] += 1
        self.counters["redelivered"] += item.attempt > 1

    def claim(self, item: Item, now: int) -> bool:
        """What was lent is in somebody's hands: its time begins. False: it was recalled before."""
        if not item.lent or self.flying.get(item.offset) is not item:
            return False
        self._own(item)
        self.start(item, now, lend=False)
        return True

    def claim_settled(self, item: Item) -> None:
        """What was lent is in somebody's hands, who is done with it: it needs no time. `settle` follows."""
        self._own(item)
        self._deliver(item)

    def land(self, offset: int, *, quiet: bool = False) -> Item:
        """Take an item out of flight; one that was lent is recalled, unless (`quiet`) its holder has returned it."""
        item = self.flying.pop(offset)
        left = self.in_flight_of[item.member] - 1
        if left:
            self.in_flight_of[item.member] = left
        else:
            del self.in_flight_of[item.member]
        if item.lent:
            self._own(item)
            if not quiet:
                self.recalled.append((item.holder, offset))
        return item

    def _own(self, item: Item) -> None:
        item.lent, item.asked_for = False, None
        self.lent -= 1

    # -- asking back

    def ask_back(self, items: Iterable[Item], handle: str, now: int) -> bool:
        """Have what is lent asked back, for a handle or (an empty name) for none in particular; was anything?"""
        asked = [item for item in items if item.lent and item.asked_for is None]
        for item in asked:
            item.asked_for = handle
            self._set_alarm(item, now + round(self.options.ack_wait * SECOND))
        self.asked += [(item.holder, item) for item in asked]
        return bool(asked)

    def asked_of(self, holder: str) -> list[int]:
        """What a handle is asked to give back; it is told once."""
        if not self.asked:
            return []
        mine = [item.offset for each, item in self.asked if each == holder == item.holder and item.lent]
        self.asked = [each for each in self.asked if each[0] != holder]
        return mine

    def recalled_from(self, holder: str) -> list[int]:
        """What was lent to a handle and is to be handed out no more; it is told once."""
        if not self.recalled:
            return []
        mine = [offset for each, offset in self.recalled if each == holder]
        self.recalled = [each for each in self.recalled if each[0] != holder]
        return mine

    def lent_to(self, member: str) -> int:
        """How much of what a member has in flight is in no hands yet."""
        return sum(item.lent and item.member == member for item in self.flying.values()) if self.lent else 0

    # -- coming back

    def settle(self, offset: int) -> Item:
        """Be done with an event in flight."""
        self.counters["settled"] += 1
        item = self.land(offset)
        if self.options.group is not None:
            self.settled_by[offset] = item.member
            if len(self.settled_by) > _REMEMBERED:
                del self.settled_by[next(iter(self.settled_by))]
        return item

    def give_back(self, offset: int, due: int | None = None, *, quiet: bool = False) -> Item | None:
        """Let an event in flight come again, now or when it is `due`; returns it if it has had its last attempt."""
        was_lent = self.flying[offset].lent
        item = self.land(offset, quiet=quiet)
        if was_lent:
            self.come_again(item)
            return None
        if self.options.max_deliver is not None and item.attempt >= self.options.max_deliver:
            self.counters["dead"] += 1
            return item
        if due is None:
            self.come_again(item)
        else:
            self.resting[offset] = item
            self._set_alarm(item, due)
        return None

    def is_resting_full(self) -> bool:
        """Is so much given back with a delay that nothing more is handed out?"""
        return len(self.resting) >= _MOST_RESTING

    def is_free(self, item: Item) -> bool:
        """Was an item given back, and has it gone to nobody since?"""
        return self.resting.get(item.offset) is item or self.again.get(item.offset) is item

    def reclaim(self, item: Item) -> None:
        """Put an item that is free into its last holder's hands again; the caller settles it or gives it back."""
        self.resting.pop(item.offset, None)
        self.again.pop(item.offset, None)
        self.flying[item.offset] = item
        self.in_flight_of[item.member] = self.in_flight_of.get(item.member, 0) + 1

    def extend(self, offset: int, now: int) -> None:
        """Give an event in flight its whole time again."""
        self._set_alarm(self.flying[offset], now + round(self.options.ack_wait * SECOND))

    def release(self, holder: str, *, keep: bool = False) -> list[Item]:
        """Take back what a handle has in hand, with `keep` only what was lent to it; returns what is dead now."""
        mine = [offset for offset, item in self.flying.items() if item.holder == holder and (item.lent or not keep)]
        dead = [item for offset in mine if (item := self.give_back(offset)) is not None]
        self.recalled_from(holder)
        self.asked_of(holder)
        return dead

    def withdraw(self, offset: int) -> None:
        """Forget an event, wherever it waits or is in hand."""
        self.resting.pop(offset, None)
        self.again.pop(offset, None)
        if offset in self.flying:
            self.land(offset)

    # -- time

    def _set_alarm(self, item: Item, deadline: int) -> None:
        item.deadline = deadline
        heapq.heappush(self._alarms, (deadline, item.offset, item.attempt))
        if len(self._alarms) > 2 * (len(self.flying) + len(self.resting)) + 64:  # most are of what is settled
            items = (*self.flying.values(), *self.resting.values())
            self._alarms = sorted((each.deadline, each.offset, each.attempt) for each in items if each.deadline)

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
                if wanted := self.flying[offset].asked_for:
                    self.wanted.append(wanted)
                item = self.give_back(offset)
                if item is not None:
                    dead.append(item)
            else:
                self.come_again(self.resting.pop(offset))
        return dead

"""A mailbox: everything one consumer (or one group) has to get, has in hand, and has settled.

Pure: time is an argument, events come from a function, nothing is stored here. `durable` writes a mailbox down; `node`
feeds it and hands out what it gives. Which of its lanes an event belongs to is in `owners`, what becomes of what was
handed out in `hands`.

Rules (design.md section 5): strictly higher priority first, by offset within a level; one event once, however many
lanes match; what is not settled in time comes again with its attempt number; after `max_deliver` attempts it is dead.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from tocsin.delivery.hands import Hands, Item
from tocsin.delivery.lane import MOST_CEDED, Lane
from tocsin.delivery.notices import Notice, Notices
from tocsin.delivery.owners import Options
from tocsin.errors import TocsinError
from tocsin.model import Event

__all__ = ["Fetch", "Item", "Mailbox", "Notice", "Verdict"]

Fetch = Callable[[int], Event | None]
"""The event at an offset; None if it is no longer kept."""
Verdict = Callable[[Event, int], str | None]
"""Why an event must not be delivered at this moment; None if it may."""


class Mailbox(Hands):
    """The state of one consumer."""

    def __init__(self, name: str, options: Options) -> None:
        """Start with nothing."""
        super().__init__(options)
        self.name = name
        self.handles = 0
        """How many are open."""
        self.members: set[str] = set()
        """Consumers of a group that are known."""
        self.guests: set[str] = set()
        """Those of them that gave no name: they are not written down."""
        self.notices = Notices()
        """Words from the node that wait for a handle."""
        self._since_fair = 0.0

    # -- coming in

    def is_for(self, lane: Lane, event: Event, among: Sequence[Lane] | None = None) -> bool:
        """Does this lane, which matches the event, have to deliver it? See `owner_of` for `among`."""
        if len(self.lanes) == 1 or (lane.record.replay and (event.offset or 0) <= lane.record.seam):
            return True
        return self.owner_of(event, among) is lane and not self.has_in_hand(event.offset or 0)

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
            if not self.has_in_hand(offset):
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
        found = self.take_many(1, lane, member, holder, now, fetch, refuse, lend)
        return found[0] if found else None

    def take_many(
        self,
        most: int,
        lane: Lane,
        member: str,
        holder: str,
        now: int,
        fetch: Fetch,
        refuse: Verdict,
        lend: bool = False,
    ) -> list[Item]:
        """As if `take` were called so many times; of shared turns (`fair`), once."""
        found: list[Item] = []
        upside_down = self._is_turn_of_lowest() if self.options.fair and not self.has_no_room(member) else False
        for level in reversed(lane.levels) if upside_down else lane.levels:
            queue = lane.queues[level]  # mostly empty, as is what comes again: then nothing else is asked
            while (queue or self.again) and not self.has_no_room(member):
                if (item := self._next(lane, level)) is None:
                    break
                if (other := self.flying.get(item.offset)) is not None and other.lent:  # it may not be wanted there
                    queue.appendleft(item.offset)
                    self.ask_back([other], holder, now)
                    return found
                if other is not None or item.offset in self.resting:  # in hand by another way (a replay)
                    continue
                try:
                    event = fetch(item.offset)
                except BaseException:  # it cannot be read just now: it must not be lost for that
                    self.come_again(item)
                    if found:
                        return found
                    raise
                if event is None or refuse(event, now) is not None:
                    self.counters["withdrawn"] += 1
                    continue
                self.hand_out(item, event, member, holder)
                self.start(item, now, lend=lend)
                found.append(item)
                if len(found) == most or self.options.fair:
                    return found
            if not lane.is_live and lane.is_blind(level) and not upside_down:
                break  # something more urgent may be there
        return found

    def may_have_more(self, lane: Lane) -> bool:
        """Might `take_many` find something? It need not, for other reasons."""
        return bool(self.again or self.notices) or not lane.is_live or any(lane.queues)

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

    def pick(self, offset: int, event: Event, member: str, holder: str) -> Item | None:
        """Put what waits to be handed out into hands that had it before (they come late to settle it); None: no."""
        lent = self.flying.get(offset)
        if lent is not None and lent.lent:
            item: Item | None = self.land(offset)
        else:
            item = self.again.pop(offset, None) or self.resting.pop(offset, None)
        for lane in self.lanes.values():
            queue = lane.queues[self.level_of(event)]
            if item is None and not lane.record.ended and offset in queue:
                queue.remove(offset)
                item = Item(offset, self.level_of(event), lane.id)
        if item is not None:
            self.hand_out(item, event, member, holder)
        return item

    def release(self, holder: str, *, keep: bool = False) -> list[Item]:
        """Take back what a handle has in hand, with `keep` only what was lent to it; returns what is dead now."""
        self.notices.release(holder)
        return super().release(holder, keep=keep)

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
        if self.has_in_hand(offset):
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

    def wants(self, event: Event) -> bool:
        """Is the event for this consumer? What it took over from an older subscription is, too."""
        accepted = (not lane.record.ended and lane.accepts(event) for lane in self.lanes.values())
        return self.has_in_hand(event.offset or 0) or any(accepted)

    def has_waiting(self, lane: Lane) -> bool:
        """Does anything wait in a lane, or may it?"""
        if any(lane.queues) or not lane.is_live:
            return True
        return any(item.lane == lane.id for item in self.again.values())

    def lowest_waiting(self, lane: Lane, head: int) -> int:
        """The lowest offset that waits in a lane, or may; what is above the head has not come yet."""
        given_back = (item.offset for each in (self.again, self.resting) for item in each.values())
        return min(1 + min(lane.frontiers(head).values()), min(given_back, default=head + 1))

    def waiting(self) -> int:
        """Offsets in the queues of this moment, those to come again among them; more may lie in the journal."""
        queued = sum(len(queue) for lane in self.lanes.values() for queue in lane.queues)
        return queued + len(self.resting) + len(self.again)

    @property
    def title(self) -> str:
        """What people call it: the consumer, or the group."""
        return self.options.group or self.name

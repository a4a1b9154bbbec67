"""A lane: one subscription's way through the journal. Pure state, no clock, no I/O.

A lane has a queue of offsets for every priority level (one queue alone in journal order). A level is *live* while every
matching event goes straight into its queue; when the queue is full the level falls behind and remembers up to where it
has looked. What lies beyond stays in the journal and is found again by a scan (`refill`), so a lane never holds more
than `CAPACITY` offsets a level, however far its consumer is behind.

A lane that Spark matches is never live. Most stretches hold nothing for most of such lanes, and there may be very many:
those that lack nothing are *abreast*, and all share one number, up to which Spark has looked (`Reach`). What it means
for a lane is written into the lane when somebody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property

import msgspec

from tocsin.filters.filter import Filter
from tocsin.model import MAX_PRIORITY, Event

__all__ = ["ANY_LEVEL", "CAPACITY", "LEVELS", "MOST_CEDED", "Lane", "LaneRecord", "Reach"]

LEVELS = MAX_PRIORITY + 1
"""Levels by number: 1 to 10 are priorities, 0 is the one level of a consumer in journal order."""
ANY_LEVEL = 0
MOST_CEDED = 65_536
"""Offsets a closed lane may cede to others while it stands still itself."""
CAPACITY = 32_768
"""Offsets waiting in memory for one level of one lane: a burst of publishing, not a backlog.

They take 300 KB for a lane that has stopped, a tenth of what looking for them in the journal again costs in time.
"""
_FEW_LEFT = 256  # what is dropped is listed if it is so few, else only where it begins


class LaneRecord(msgspec.Struct, array_like=True):
    """What is kept of a lane: its filter and the stretch of the journal it speaks for."""

    id: str
    text: str
    start: int
    seam: int
    system: bool = False
    replay: bool = False
    ended: bool = False
    left: list[int] = []
    """What was not settled when it ended, as far as it is not above where it stood."""
    end: int = 0
    """The newest offset when it ended; 0: it has not, or the file is too old to tell."""
    number: int = 0
    """Subscriptions of a consumer are numbered as they are made; 0: the file is too old to tell."""
    last: int = 0
    """The number of the newest there was when it ended: those after it may take up what it has dropped."""


class Reach:
    """How far Spark has looked, for all lanes that it matches."""

    __slots__ = ("_head", "upto")

    def __init__(self, head: Callable[[], int]) -> None:
        """Begin with nothing; `head` tells the newest offset that counts."""
        self.upto = 0
        self._head = head

    def of(self, seam: int) -> int:
        """How far may be looked for a lane: Spark goes first, but for the past."""
        return min(self._head(), max(self.upto, seam))


class Lane:
    """The state of one subscription."""

    def __init__(self, record: LaneRecord, by_priority: bool, frontier: dict[int, int] | None = None) -> None:
        """Begin before `start`, or where `frontier` says for each level."""
        self.record = record
        self.id = record.id
        self.levels = range(LEVELS - 1, ANY_LEVEL, -1) if by_priority else range(ANY_LEVEL, ANY_LEVEL + 1)
        """Highest first."""
        known = frontier or {}
        self.queues: list[deque[int]] = [deque() for _ in range(LEVELS)]
        self.scanned: list[int | None] = [known.get(level, record.start - 1) for level in range(LEVELS)]
        """Up to which offset matches are in the queue (or were): None for a level that is live."""
        self.ceded: set[int] = set()
        """Offsets above the frontier that another lane of the consumer has taken over."""
        self.is_live = False
        """Does every new match go straight into a queue?"""
        self.reach: Reach | None = None
        """If Spark matches it: beyond this nobody has looked, and nothing counts yet; None: up to the head all does."""
        self.is_abreast = False
        """Is nothing missing up to there, at any level?"""
        self._stood: dict[int, int] | None = None  # where it stood when it ended: written with every place

    @cached_property
    def filter(self) -> Filter:
        """What it wants; read when first asked for, since a node may open with many thousands that sleep."""
        return Filter(self.record.text)

    # -- what comes in

    def accepts(self, event: Event) -> bool:
        """Is this an event for the lane, whatever has become of it?"""
        assert event.offset is not None
        return event.offset >= self.record.start and self.matches(event)

    def matches(self, event: Event) -> bool:
        """Is this an event the subscription asks for, whenever it was?"""
        return self.may_see(event) and self.filter.matches(event)

    def may_see(self, event: Event) -> bool:
        """Is it an event, or a record of the node's own that was asked for?"""
        return self.record.system or not event.type.startswith("tocsin.")

    def feed(self, offset: int, level: int) -> bool:
        """Take a new match. False if the level is behind: a scan will find it."""
        if self.scanned[level] is not None:
            return False
        queue = self.queues[level]
        if len(queue) >= CAPACITY:
            self.scanned[level] = offset - 1
            self.is_live = False
            return False
        queue.append(offset)
        return True

    def found(self, offset: int, level: int) -> None:
        """Take a match that a scan has found. Full levels stay where they are."""
        self._catch_up()
        scanned = self.scanned[level]
        if scanned is None or offset <= scanned or offset in self.ceded:
            return
        if len(self.queues[level]) < CAPACITY:  # else the next scan goes on from where this level stands
            self.queues[level].append(offset)
            self.scanned[level] = offset

    def looked_through(self, last: int, head: int, levels: Iterable[int]) -> None:
        """Note that a scan for some levels has seen all up to `last`: those with room go on from there, or are live."""
        self._catch_up()
        for level in levels:
            scanned = self.scanned[level]
            if scanned is not None and scanned < last and len(self.queues[level]) < CAPACITY:
                self.scanned[level] = last
            scanned = self.scanned[level]
            if scanned is not None and scanned >= head and self.reach is None:
                self.scanned[level] = None
        self.is_live = all(self.scanned[level] is None for level in self.levels)

    def follow(self, reach: Reach) -> None:
        """Let Spark match it."""
        self.reach, self.is_abreast = reach, False
        self.fall_in()

    def fall_in(self) -> bool:
        """Is it abreast? What comes is then nothing to it, until somebody says so; else it is behind."""
        assert self.reach is not None
        self._catch_up()
        upto = max(self.reach.upto, self.record.seam)
        self.is_abreast = all((self.scanned[level] or 0) >= upto for level in self.levels)
        return self.is_abreast

    def fall_back(self) -> None:
        """It may lack what comes next: stand where it stands."""
        self._catch_up()
        self.is_abreast = False

    def _catch_up(self) -> None:
        """Write down what has passed it by, as all who are abreast."""
        if self.is_abreast:
            assert self.reach is not None
            upto = self.reach.upto
            for level in self.levels:
                if (self.scanned[level] or 0) < upto:
                    self.scanned[level] = upto

    def pass_by(self, first: int, last: int) -> bool:
        """There is nothing for it in a stretch. False: what lies before that was not looked at, so it stays."""
        scanned = self.scanned
        if any((scanned[level] or 0) < first - 1 for level in self.levels):
            return False
        for level in self.levels:
            scanned[level] = max(scanned[level] or 0, last)
        return True

    # -- where it stands

    def wanting(self) -> list[int]:
        """Levels that are behind and have room: a scan would find more for them."""
        if self.is_live:
            return []
        return [
            level for level in self.levels if self.scanned[level] is not None and 2 * len(self.queues[level]) < CAPACITY
        ]

    def scan_from(self, levels: list[int]) -> int:
        """The offset from which a scan for these levels must look."""
        self._catch_up()
        return min(scanned for level in levels if (scanned := self.scanned[level]) is not None) + 1

    def is_blind(self, level: int) -> bool:
        """Might there be something at this level that is in no queue?"""
        scanned = self.scanned[level]
        if scanned is None or self.queues[level] or self.is_abreast:
            return False
        return self.reach is None or scanned < self.reach.of(self.record.seam)

    def unseen(self, head: int) -> int:
        """How many offsets lie between where it stands and the head, at the level that is furthest behind."""
        self._catch_up()
        return max((head - each for level in self.levels if (each := self.scanned[level]) is not None), default=0)

    def fall_asleep(self, head: int) -> None:
        """Stop being fed: what comes after `head` will be scanned."""
        self.fall_back()
        self.is_live = False
        for level in self.levels:
            if self.scanned[level] is None:
                self.scanned[level] = head

    def frontier(self, level: int, head: int) -> int:
        """Everything at or below has left the queue."""
        self._catch_up()
        if self.queues[level]:
            return self.queues[level][0] - 1
        scanned = self.scanned[level]
        return head if scanned is None else scanned

    def frontiers(self, head: int) -> dict[int, int]:
        """The frontier of each level."""
        if self._stood is not None:
            return self._stood
        if self.is_live and not any(self.queues) and not self.record.ended:  # it is abreast, and all is handed out
            return dict.fromkeys(self.levels, head)
        found = {level: self.frontier(level, head) for level in self.levels}
        if self.record.ended:
            self._stood = found
        return found

    def skip(self, before: int) -> list[int]:
        """Give up everything below an offset; returns offsets that may have been lost by it."""
        self._catch_up()
        lost: list[int] = []
        for level in self.levels:
            queue = self.queues[level]
            while queue and queue[0] < before:
                lost.append(queue.popleft())
            scanned = self.scanned[level]
            if scanned is not None and scanned < before - 1:
                lost.append(scanned + 1)
                self.scanned[level] = before - 1
        return lost

    # -- the end

    def end(self, head: int) -> Callable[[], None]:
        """The subscription is dropped: remember what it has passed, and what of that was not handed out.

        Returns what undoes it.
        """
        self.fall_asleep(head)
        scanned, queues = list(self.scanned), [deque(queue) for queue in self.queues]
        self.record.ended, self.record.end = True, head
        for level in self.levels:
            if len(self.queues[level]) <= _FEW_LEFT:
                self.record.left += self.queues[level]
            else:
                self.scanned[level] = self.queues[level][0] - 1
            self.queues[level].clear()

        def undo() -> None:
            self.scanned, self.queues, self._stood = scanned, queues, None
            self.record.ended, self.record.end, self.record.left = False, 0, []

        return undo

    def is_ragged(self) -> bool:
        """Has it ended before it had looked at everything, or handed it out?"""
        return self.record.ended and any((self.scanned[level] or 0) < self.record.end for level in self.levels)

    def was_there(self, offset: int) -> bool:
        """Was there this subscription when an offset was given out?"""
        return offset > self.record.seam and self.reaches(offset)

    def reaches(self, offset: int) -> bool:
        """Had the subscription not ended when an offset was given out?"""
        if not self.record.ended:
            return True
        return offset <= (self.record.end or max(self.scanned[level] or 0 for level in self.levels))

    def has_dropped(self, offset: int, level: int) -> bool:
        """Has the lane ended without this offset, which was its own, being settled?"""
        if not self.record.ended:
            return False
        scanned = self.scanned[level]
        has_passed = offset in self.ceded or (scanned is not None and offset <= scanned)
        return not has_passed or offset in self.record.left

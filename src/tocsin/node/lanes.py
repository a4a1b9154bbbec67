"""The open lanes of a node: which of them a new event goes to, and how they are filled again from the journal.

Promised: an open lane misses nothing and gets nothing twice; of a consumer's lanes that match, the first open one gets
the event; a lane whose queue was full is looked after in the background, and what prevents that is told to whoever
takes from it next. Not here: what a lane is (`delivery.lane`), handing out (`post`).

Lanes of consumers with placement `spark` are never live: Spark says, stretch by stretch of the journal, what matches
them (`matched`), and they go on up to there. What it has not looked at for a lane, because that was opened meanwhile,
slept or was full, is looked for in the journal as for any other, but never beyond where Spark is.

Concurrency: the node's loop only; scans of the journal run on other threads and are applied here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tocsin.delivery import refill
from tocsin.delivery.handles import Subscription
from tocsin.delivery.lane import Lane, Reach
from tocsin.delivery.mailbox import Mailbox
from tocsin.filters.index import Matcher
from tocsin.journal.contract import Journal
from tocsin.journal.window import HotWindow
from tocsin.model import Event

if TYPE_CHECKING:
    from tocsin.spans import Traces

__all__ = ["OpenLanes", "key_of"]

SPARK: Final = "spark"
NEVER: Final = 1 << 62
"""In place of the head: no lane is live there."""
_RECENT = 2048  # events in memory that a lane looks through in one go
_BATCH = 16  # events of a commit from which they are matched together


def key_of(mailbox: Mailbox, lane: str) -> str:
    """The name of a lane among those of all mailboxes."""
    return f"{mailbox.name}/{lane}"


class OpenLanes:
    """The lanes somebody listens to, by `key_of`."""

    def __init__(
        self, journal: Journal, window: HotWindow, head: Callable[[], int], traces: Traces | None = None
    ) -> None:
        """Fill lanes from a journal; `head` tells the newest offset that was matched."""
        self._traces = traces
        self.handles: dict[str, list[Subscription]] = {}
        """Open handles of each lane."""
        self.failures: dict[str, Exception] = {}
        """Why a lane could not be looked after: told to who takes from it next."""
        self._journal, self._window, self._head = journal, window, head
        self._matcher = Matcher()
        self._targets: dict[str, tuple[Mailbox, Lane]] = {}
        self._refills: dict[str, asyncio.Task[None]] = {}
        # Lanes that Spark matches, and the version of them all that had it first: the newest last.
        self._elsewhere: dict[str, int] = {}
        self._version = 0
        self._reach = Reach(head)
        self._behind: dict[str, None] = {}  # of these lanes, those that are not abreast

    def read_from(self, journal: Journal) -> None:
        """Fill lanes from another journal: the same one, which reaches further back now."""
        self._journal = journal

    # -- opening and closing

    def add_handle(self, handle: Subscription) -> None:
        """Let new events go to a handle's lane."""
        mailbox, lane = handle.mailbox, handle.lane
        key = key_of(mailbox, lane.id)
        self.handles.setdefault(key, []).append(handle)
        mailbox.handles += 1
        if mailbox.handles > 1:  # they share from now on, and may have to say so elsewhere
            self.wake_all(mailbox)
        if key not in self._targets:
            self._targets[key] = (mailbox, lane)
            mailbox.note_open(self._open_of(mailbox), self._head())
            if mailbox.options.placement == SPARK:
                self._version += 1
                self._elsewhere[key] = self._version
                lane.follow(self._reach)
                self._line_up(key, lane)
            else:
                self._matcher.add(key, lane.filter)
                lane.looked_through(0, self._head(), lane.levels)  # one that begins behind the head is live at once

    def drop_handle(self, handle: Subscription) -> None:
        """Forget a handle. Its lane stays open, though maybe unheard, until `close_unheard`."""
        handles = self.handles.get(key_of(handle.mailbox, handle.lane.id), [])
        if handle in handles:
            handles.remove(handle)
            handle.mailbox.handles -= 1

    def close_unheard(self, mailbox: Mailbox, lane: Lane, since: int = 0) -> bool:
        """Close a lane that has no handle left; tells whether it has none. See `close`."""
        key = key_of(mailbox, lane.id)
        if self.handles.get(key):
            return False
        self.handles.pop(key, None)
        self.close(mailbox, lane, since)
        return True

    def handles_of(self, mailbox: Mailbox, lane: Lane) -> list[Subscription]:
        """The open handles of one lane, as a list of its own."""
        return list(self.handles.get(key_of(mailbox, lane.id), ()))

    def close(self, mailbox: Mailbox, lane: Lane, since: int = 0) -> None:
        """Leave what comes from now on in the journal; what waits, and came after `since`, goes to open lanes."""
        key = key_of(mailbox, lane.id)
        if self._targets.pop(key, None) is not None:
            if self._elsewhere.pop(key, None) is None:
                self._matcher.remove(key)
            else:
                self._version += 1
                self._behind.pop(key, None)
            self.failures.pop(key, None)
            lane.fall_asleep(self._head())
            still_open = self._open_of(mailbox)
            mailbox.note_open(still_open, self._head())
            self.pass_on(mailbox, lane, [mailbox.lanes[each] for each in still_open], since)

    def pass_on(self, mailbox: Mailbox, lane: Lane, heirs: list[Lane], since: int = 0) -> None:
        """Give what waits in a closed lane to others that match."""
        for heir in mailbox.hand_over(lane, heirs, self._window.get, since):
            self.wake(key_of(mailbox, heir))

    def pass_on_to_any(self, mailbox: Mailbox, lane: Lane, since: int = 0) -> None:
        """A closed lane will not be opened again: what waits in it goes to others that match, open ones first."""
        others = [each for each in mailbox.lanes.values() if each is not lane and not each.record.ended]
        others.sort(key=lambda each: key_of(mailbox, each.id) not in self._targets)
        self.pass_on(mailbox, lane, others, since)

    @property
    def on_spark(self) -> int:
        """How many of them Spark matches."""
        return len(self._elsewhere)

    def is_heard(self, mailbox: Mailbox) -> bool:
        """Has any lane of a mailbox an open handle?"""
        return any(key_of(mailbox, lane) in self.handles for lane in mailbox.lanes)

    def _open_of(self, mailbox: Mailbox) -> list[str]:
        return [lane for lane in mailbox.lanes if key_of(mailbox, lane) in self._targets]

    # -- new events

    def match(self, events: list[Event]) -> list[list[Any]]:
        """Which lanes want each of these events."""
        if not self._targets:
            return [[]] * len(events)
        began = self._traces.now() if self._traces is not None else 0
        found = (
            self._matcher.match_batch(events)
            if len(events) >= _BATCH
            else [self._matcher.match(event) for event in events]
        )
        if self._traces is not None:
            self._traces.matched(events, found, began)
        return found

    def give(self, events: list[Event], found: list[list[Any]]) -> None:
        """Put committed events into the lanes that `match` found for them."""
        awake: set[str] = set()
        behind: set[str] = set()
        for event, keys in zip(events, found, strict=True):
            if keys:
                self._enqueue(event, keys, awake, behind)
        for key in behind:
            self.refill_later(key)
        for key in awake:
            self.wake(key)

    def _enqueue(self, event: Event, keys: list[Any], awake: set[str], behind: set[str]) -> None:
        offset = event.offset or 0
        if len(keys) == 1:  # nearly always, and quicker
            mailbox, lane = self._targets[keys[0]]
            if offset >= lane.record.start and lane.may_see(event):
                (awake if lane.feed(offset, mailbox.level_of(event)) else behind).add(keys[0])
            return
        firsts: dict[str, str] = {}  # of each mailbox, the first open lane that matches
        for key in keys:
            mailbox, lane = self._targets[key]
            if offset < lane.record.start or not lane.may_see(event):
                continue
            other = firsts.get(mailbox.name)
            if other is None or mailbox.comes_first(lane.id, other.rpartition("/")[2]):
                firsts[mailbox.name] = key
        for key in firsts.values():
            mailbox, lane = self._targets[key]
            (awake if lane.feed(offset, mailbox.level_of(event)) else behind).add(key)

    # -- what Spark matches

    @property
    def version(self) -> int:
        """A number for the filters that Spark must match: another when they have changed."""
        return self._version

    def elsewhere(self) -> dict[str, str]:
        """The filters that Spark must match, by the names of lanes."""
        return {key: self._targets[key][1].record.text for key in self._elsewhere}

    def matched(self, version: int, first: int, last: int, found: Mapping[str, Sequence[int]]) -> None:
        """Spark has looked at a stretch for the lanes of a version: these offsets match these lanes.

        It may say so again, and of lanes that are gone. Lanes that are abreast and have no match are not touched, but
        for those that the version did not know.
        """
        for key in reversed(self._elsewhere):
            if self._elsewhere[key] <= version:
                break
            self._fall_back(key)  # nobody has looked for it
        if first > self._reach.upto + 1:  # what lies before was looked at by nobody
            for key in self._elsewhere:
                self._fall_back(key)
        for key in found:
            if key in self._elsewhere:
                self._fall_back(key)
        self._reach.upto = max(self._reach.upto, last)
        held = cache(self._window.held)  # several lanes may want one event, and it may have to be made
        for key in list(self._behind):
            self._take_matched(key, self._elsewhere[key] <= version, first, last, found.get(key, ()), held)

    def _take_matched(
        self,
        key: str,
        is_known: bool,
        first: int,
        last: int,
        offsets: Sequence[int],
        held: Callable[[int], Event | None],
    ) -> None:
        """What a stretch has for a lane that is not abreast, or was until now."""
        mailbox, lane = self._targets[key]
        if not is_known or not lane.pass_by(first, offsets[0] - 1 if offsets else last):
            self.refill_later(key)  # it lacks more than this stretch
        elif offsets and None not in (recent := [held(offset) for offset in offsets]):
            seen = [event for event in recent if event is not None and lane.may_see(event)]
            refill.apply(mailbox, lane, refill.Found(seen, last, list(lane.levels)), NEVER)
            self.wake(key)
        elif offsets:
            self.refill_later(key)  # reading takes a while, and is done elsewhere
        self._line_up(key, lane)

    def _fall_back(self, key: str) -> None:
        if key not in self._behind:
            self._targets[key][1].fall_back()
            self._behind[key] = None

    def _line_up(self, key: str, lane: Lane) -> None:
        """Note whether a lane that Spark matches lacks something."""
        if lane.fall_in():
            self._behind.pop(key, None)
        else:
            self._behind[key] = None

    def _end_of(self, mailbox: Mailbox, lane: Lane) -> int:
        """How far may be looked for a lane."""
        return self._head() if mailbox.options.placement != SPARK else self._reach.of(lane.record.seam)

    def wake(self, key: str) -> None:
        """Tell handles that something is there: the member with the fewest in flight first."""
        handles = self.handles.get(key, ())
        if len(handles) == 1:
            handles[0].wake()
            return
        for handle in sorted(handles, key=lambda each: each.mailbox.in_flight_of.get(each.consumer, 0)):
            handle.wake()

    def wake_all(self, mailbox: Mailbox) -> None:
        """Tell the handles of every lane of a mailbox."""
        for lane in mailbox.lanes.values():
            if not lane.record.ended:
                self.wake(key_of(mailbox, lane.id))

    # -- what lies in the journal

    async def take_over(self, mailbox: Mailbox, lane: Lane) -> None:
        """A lane has opened: it gets what waits for other lanes of the consumer, closed ones, and matches it too."""
        for other in list(mailbox.lanes.values()):
            if other is not lane and not other.record.ended and key_of(mailbox, other.id) not in self._targets:
                await self.load(mailbox, other)
                self.pass_on(mailbox, other, [lane])

    async def load(self, mailbox: Mailbox, lane: Lane) -> None:
        """Look for what waits for a lane that is closed, as much as its queues hold."""
        while (levels := lane.wanting()) and (first := lane.scan_from(levels)) <= self._end_of(mailbox, lane):
            found = await asyncio.to_thread(
                refill.look, self._journal, lane, levels, first, self._end_of(mailbox, lane)
            )
            refill.apply(mailbox, lane, found, NEVER)  # it is closed

    def refill_later(self, key: str) -> None:
        """Scan for a lane that has room for more, unless that is under way."""
        if key in self._targets and key not in self._refills and self._lacks(key):
            self._refills[key] = asyncio.get_running_loop().create_task(self._refill(key))

    def _lacks(self, key: str) -> list[int]:
        """Levels of a lane for which there may be more in the journal that is theirs by now."""
        mailbox, lane = self._targets[key]
        levels = lane.wanting()
        if key in self._elsewhere and levels and lane.scan_from(levels) > self._end_of(mailbox, lane):
            return []
        return levels

    async def _refill(self, key: str) -> None:
        try:
            while (target := self._targets.get(key)) is not None and (levels := self._lacks(key)):
                mailbox, lane = target
                first, head = lane.scan_from(levels), self._end_of(mailbox, lane)
                if first > head:
                    found = refill.Found([], head, levels)
                elif (recent := self._window.following(first, min(head, first + _RECENT))) is not None:
                    await asyncio.sleep(0)  # if they leave memory meanwhile, nothing is looked through
                    found = refill.sift(lane, levels, recent)
                else:
                    found = await asyncio.to_thread(refill.look, self._journal, lane, levels, first, head)
                self._window.lend(found.matches)  # what was made for this need not be made again to be delivered
                if self._targets.get(key) != target:
                    return
                refill.apply(mailbox, lane, found, NEVER if key in self._elsewhere else self._head())
                if key in self._elsewhere:
                    self._line_up(key, lane)
                self.wake(key)
        except Exception as error:  # a damaged block, say: who takes from the lane hears of it
            self.failures[key] = error
            self.wake(key)
        finally:
            self._refills.pop(key, None)

    async def refilled(self, key: str) -> None:
        """Wait until a lane has been looked after. Raises what prevented it."""
        self.refill_later(key)
        while (task := self._refills.get(key)) is not None:
            await asyncio.wait([task])
        if key in self.failures:
            raise self.failures.pop(key)

    def stats(self) -> dict[str, Any]:
        """What the index of filters has, and what matching cost; see `Matcher.stats`."""
        return self._matcher.stats()

    def scans(self) -> list[asyncio.Task[None]]:
        """What is under way in the background."""
        return list(self._refills.values())

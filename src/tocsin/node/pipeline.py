"""THE PIPELINE. Start reading here: admit → append → match → enqueue → deliver → settle.

    publish ─▶ admit (valid, allowed, not too large) ─▶ journal.submit ─▶ [commit, another thread]
                                                                             │
    on the loop's thread again:  answer publishers ◀── match ◀── committed ◀─┘
                                      └─▶ first open lane of each mailbox ─▶ wake its handle ─▶ take ─▶ settle

Concurrency: everything here runs on one event loop, so nothing is locked. Only the journal commits and scans elsewhere;
it hands results over through `_from_journal`. `head` is the newest offset that was *matched*: a lane that begins at
head + 1 misses nothing and gets nothing twice, whatever is being committed at that moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tocsin import crashpoints
from tocsin.clock import SECOND, Clock
from tocsin.delivery import durable, refill
from tocsin.delivery.handles import Subscription
from tocsin.delivery.keeper import Keeper
from tocsin.delivery.lane import Lane
from tocsin.delivery.mailbox import Item, Mailbox
from tocsin.delivery.receipts import ReceiptBox
from tocsin.errors import EventError, OverloadError, TocsinError
from tocsin.filters.index import Matcher
from tocsin.journal.contract import Committed, Journal, Note, Request
from tocsin.journal.window import HotWindow
from tocsin.model import Event
from tocsin.node.post import PostOffice

__all__ = ["Node", "Published"]

MAX_EVENT_BYTES = 1024 * 1024
MAX_WAITING = 20_000
"""Events on their way to the journal before publishers must wait."""
PATIENCE = 30.0
"""Seconds a publisher waits for room before it is told to come again."""
HOT_BYTES = 64 * 1024 * 1024
_RETRY = 5  # seconds until what failed is tried again
_JUMP = 60.0  # seconds the wall clock may wander before that is reported
_log = logging.getLogger("tocsin")
_RECENT = 2048  # events in memory that a lane looks through in one go
_BATCH = 16  # events of a commit from which they are matched together
_IDLE_SAVE = 100_000  # offsets after which the places of idle consumers are saved anew


class Published(NamedTuple):
    """The answer to a publisher."""

    id: str
    offset: int


class Node:
    """One node over one journal: what happens to events. Handles ask its `post`; `consumers` and `alerts` use it."""

    def __init__(self, journal: Journal, clock: Clock, hot_bytes: int = HOT_BYTES) -> None:
        """Take over a journal that is open for writing; keep up to `hot_bytes` of the newest events in memory."""
        self.journal, self.clock = journal, clock
        self.head = journal.head
        self.boot_head = journal.head
        """Newest offset of earlier lives: what was not persistent is not delivered from there."""
        self.window = HotWindow(hot_bytes, journal)
        self.mailboxes: dict[str, Mailbox] = {}
        self.handles: dict[str, list[Subscription]] = {}
        """Open handles of each lane, by mailbox and lane: `name/lane`."""
        self.cancelled: set[int] = set()
        self.receipts = ReceiptBox(journal.state("receipt/"))
        self.keeper = Keeper(self.store, lambda: self.head, self.mailboxes, self.receipts.add)
        self.post = PostOffice(self)
        self.failures: dict[str, Exception] = {}
        """Why a lane could not be looked after: told to who takes from it next."""
        self.changing = asyncio.Lock()
        """Held while consumers are made, changed or dropped, and while an event is cancelled: one at a time."""
        self.closed = False
        self._matcher = Matcher()
        self._targets: dict[str, tuple[Mailbox, Lane]] = {}
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Committed | Request] = deque()
        self._is_notified = False
        self._answers: dict[int, asyncio.Future[list[int]]] = {}
        self._waiting_events = 0
        self._room = asyncio.Event()
        self._refills: dict[str, asyncio.Task[None]] = {}
        self._alarm = asyncio.Event()
        self._saved_at = self.head
        self._known_drift = 0.0
        self._ahead = 0
        self._retry: int | None = None
        self._tasks = [self._loop.create_task(self._keep_time())]
        self._restore()
        journal.listeners.append(self._hear)

    def now(self) -> int:
        """Journal time: the clock's, but never behind the newest event (a clock that was set back while we slept)."""
        return self.clock.now() + self._ahead

    def _restore(self) -> None:
        newest = next((block.arrived[1] for block in self.journal.blocks(self.journal.first, backwards=True)), 0)
        if newest > self.clock.now():
            self._ahead = newest - self.clock.now()
            if self._ahead > _JUMP * SECOND:
                _log.warning(
                    "the clock is %.0f s behind the journal; journal time goes on from there", self._ahead / SECOND
                )
        places = self.journal.state(durable.PLACE)
        for name, consumer in self.journal.state(durable.CONSUMER).items():
            name = name.removeprefix(durable.CONSUMER)
            self.mailboxes[name] = durable.restore(name, consumer, places.get(durable.PLACE + name))
        self.cancelled = {int(name.rpartition("/")[2]) for name in self.journal.state("cancelled/")}

    # -- admit and append

    async def publish(self, events: Sequence[Event], by: str) -> list[Published]:
        """Store events and match them; returns when they are durable.

        Raises:
            EventError: one of them is not acceptable; none was stored.
            OverloadError: there was no room for them in time; none was stored.
        """
        for event in events:
            if event.__class__ is not Event or event.type.startswith("tocsin."):
                raise _refused(event)
        if self._waiting_events and self._waiting_events + len(events) > MAX_WAITING:
            await self._wait_for_room(len(events))
        offsets = await self.store(events=events, by=by, durable=any(event.persistent for event in events))
        return [Published(event.id, offset) for event, offset in zip(events, offsets, strict=True)]

    async def _wait_for_room(self, count: int) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while self._waiting_events and self._waiting_events + count > MAX_WAITING:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise OverloadError(
                f"the journal is {self._waiting_events:,} events behind", help="publish again, or more slowly"
            ) from None

    def store(
        self,
        events: Sequence[Event] = (),
        state: Mapping[str, bytes | None] | None = None,
        notes: Sequence[Note] = (),
        by: str = "",
        durable: bool = True,
    ) -> asyncio.Future[list[int]]:
        """Hand something to the journal; the future has the offsets when it is stored."""
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        request = Request(
            self.now(),
            events,
            durable=durable,
            by=by,
            state=state or {},
            notes=notes,
            done=self._hear,
            largest=MAX_EVENT_BYTES,
        )
        self._answers[id(request)] = answer
        self._waiting_events += len(events)
        try:
            self.journal.submit(request)
        except TocsinError:
            del self._answers[id(request)]
            self._waiting_events -= len(events)
            raise
        return answer

    # -- back from the journal

    def _hear(self, news: Committed | Request) -> None:
        """Called on the journal's thread: pass it on to the loop, once for many."""
        self._inbox.append(news)
        if not self._is_notified:
            self._is_notified = True
            self._loop.call_soon_threadsafe(self._from_journal)

    def _from_journal(self) -> None:
        self._is_notified = False
        crashpoints.reach("before-answer")
        while self._inbox:
            news = self._inbox.popleft()
            if isinstance(news, Committed):
                self._match(news.events)
                continue
            answer = self._answers.pop(id(news), None)
            self._waiting_events -= len(news.events)
            if answer is not None and not answer.done():
                if news.error is not None:
                    answer.set_exception(news.error)
                else:
                    answer.set_result(news.offsets)
        self._room.set()

    # -- match and enqueue

    def _match(self, events: list[Event]) -> None:
        """Give committed events to the lanes that want them."""
        if not events:
            return
        self.window.put_many(events)
        awake: set[str] = set()
        if self._targets:
            found = (
                self._matcher.match_batch(events)
                if len(events) >= _BATCH
                else [self._matcher.match(event) for event in events]
            )
            for event, keys in zip(events, found, strict=True):
                if keys:
                    self._enqueue(event, keys, awake)
        self.head = events[-1].offset or 0
        for key in awake:
            self.wake(key)
        self._look_at_wall_clock()
        if self.head - self._saved_at > _IDLE_SAVE:
            self._saved_at = self.head
            for mailbox in self.mailboxes.values():
                self.keeper.later(mailbox)

    def _enqueue(self, event: Event, keys: list[Any], awake: set[str]) -> None:
        offset = event.offset or 0
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
            if lane.feed(offset, mailbox.level_of(event)):
                awake.add(key)
            else:
                self.refill_later(key)

    def wake(self, key: str) -> None:
        """Tell handles that something is there: the member with the fewest in flight first."""
        handles = self.handles.get(key, ())
        if len(handles) == 1:
            handles[0].wake()
            return
        for handle in sorted(handles, key=lambda each: each.mailbox.in_flight_of.get(each.consumer, 0)):
            handle.wake()

    # -- lanes that are open

    def open_lane(self, mailbox: Mailbox, lane: Lane) -> None:
        """Let new events go to a lane."""
        key = f"{mailbox.name}/{lane.id}"
        if key not in self._targets:
            self._targets[key] = (mailbox, lane)
            self._matcher.add(key, lane.filter)
            mailbox.note_open(self._open_lanes(mailbox), self.head)
            lane.looked_through(0, self.head, lane.levels)  # one that begins behind the head is live at once

    def close_lane(self, mailbox: Mailbox, lane: Lane) -> None:
        """Leave what comes from now on in the journal."""
        key = f"{mailbox.name}/{lane.id}"
        if self._targets.pop(key, None) is not None:
            self._matcher.remove(key)
            lane.fall_asleep(self.head)
            still_open = self._open_lanes(mailbox)
            mailbox.note_open(still_open, self.head)
            for heir in mailbox.hand_over(lane, [mailbox.lanes[each] for each in still_open], self.window.get):
                self.wake(f"{mailbox.name}/{heir}")

    def abandon_handle(self, handle: Subscription) -> None:
        """Undo the opening of a handle that could not be finished."""
        handle.closed = True
        key = f"{handle.mailbox.name}/{handle.lane.id}"
        handles = self.handles.get(key, [])
        if handle in handles:
            handles.remove(handle)
        if not handles:
            self.handles.pop(key, None)
            self.close_lane(handle.mailbox, handle.lane)

    async def take_over(self, mailbox: Mailbox, lane: Lane) -> None:
        """A lane has opened: it gets what waits for other lanes of the consumer, closed ones, and matches it too."""
        for other in list(mailbox.lanes.values()):
            if other is not lane and not other.record.ended and f"{mailbox.name}/{other.id}" not in self._targets:
                await self.load(mailbox, other)
                mailbox.hand_over(other, [lane], self.window.get)

    async def load(self, mailbox: Mailbox, lane: Lane) -> None:
        """Look for what waits for a lane that is closed, as much as its queues hold."""
        while (levels := lane.wanting()) and (first := lane.scan_from(levels)) <= self.head:
            found = await asyncio.to_thread(refill.look, self.journal, lane, levels, first, self.head)
            refill.apply(mailbox, lane, found, self.head + 1)  # never live: it is closed

    def _open_lanes(self, mailbox: Mailbox) -> list[str]:
        return [lane for lane in mailbox.lanes if f"{mailbox.name}/{lane}" in self._targets]

    def refill_later(self, key: str) -> None:
        """Scan for a lane that has room for more, unless that is under way."""
        if key in self._targets and key not in self._refills and self._targets[key][1].wanting():
            self._refills[key] = self._loop.create_task(self._refill(key))

    async def _refill(self, key: str) -> None:
        try:
            while (target := self._targets.get(key)) is not None and (levels := target[1].wanting()):
                mailbox, lane = target
                first, head = lane.scan_from(levels), self.head
                recent = self.window.recent(first, min(head, first + _RECENT)) if first <= head else []
                if recent:
                    await asyncio.sleep(0)
                    found = refill.sift(lane, levels, recent)
                elif first <= head:
                    found = await asyncio.to_thread(refill.look, self.journal, lane, levels, first, head)
                else:
                    found = refill.Found([], head, levels)
                if self._targets.get(key) != target:
                    return
                refill.apply(mailbox, lane, found, self.head)
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

    # -- time

    def ring_later(self) -> None:
        """Look anew at what is due next."""
        self._alarm.set()

    def _look_at_wall_clock(self) -> None:
        """Report a wall clock that was set: journal time does not follow it before the journal is opened again."""
        drift = self.clock.drift()
        if abs(drift - self._known_drift) > _JUMP:
            _log.warning(
                "the wall clock jumped by %+.0f s; journal time goes on, %+.0f s from it, until the next start",
                drift - self._known_drift,
                -drift,
            )
            self._known_drift = drift

    async def ring(self) -> int | None:
        """Bring back what was not settled in time; returns when something is due next."""
        now = self.now()
        if self._retry is not None and self._retry <= now:
            self._retry = None
            try:
                await self.keeper.flush()
            except TocsinError:
                self._retry = now + _RETRY * SECOND
        alarms = []
        for mailbox in list(self.mailboxes.values()):
            before = mailbox.next_alarm()
            if before is not None and before <= now:
                for item in mailbox.ring(now):
                    await self._bury(mailbox, item, now)
                for lane in mailbox.lanes:
                    self.wake(f"{mailbox.name}/{lane}")
            after = mailbox.next_alarm()
            if after is not None:
                alarms.append(after)
        if self._retry is not None:
            alarms.append(self._retry)
        return min(alarms) if alarms else None

    async def _bury(self, mailbox: Mailbox, item: Item, now: int) -> None:
        try:
            await self.post.bury(mailbox, item, "not settled in its last attempt")
        except TocsinError as error:  # the disk is full, say; the keeper has the letter, and is asked again
            _log.error("a dead letter could not be stored, it will be tried again: %s", error)
            self._retry = now + _RETRY * SECOND

    async def _keep_time(self) -> None:
        while True:
            self._alarm.clear()
            try:
                due = await self.ring()
            except Exception:  # a defect of ours: redelivery must go on
                _log.exception("the clock's work failed")
                due = self.now() + _RETRY * SECOND
            self._look_at_wall_clock()
            await self.clock.wait(self._alarm, due)

    # -- the end

    async def settled(self) -> None:
        """Wait until nothing is left to do at this moment."""
        await self.store()  # what was answered without waiting for the disk is matched after this
        for _ in range(3):
            await asyncio.sleep(0)
            await self.ring()
            while self._inbox or self._refills or self._answers:
                await asyncio.sleep(0)
                tasks = list(self._refills.values())
                if tasks:
                    await asyncio.wait(tasks)
                elif self._answers:
                    await asyncio.wait(list(self._answers.values()))
            await self.keeper.flush()

    async def close(self) -> None:
        """Save all places and close the journal."""
        if self.closed:
            return
        self.receipts.close()
        try:
            for handles in list(self.handles.values()):
                for handle in list(handles):
                    await self.post.close_handle(handle)
            for mailbox in self.mailboxes.values():
                self.keeper.later(mailbox)
            self.keeper.later(None, self.receipts.fetched())
            await self.keeper.flush()
        finally:  # whatever the disk says, let go of the file
            await self.stop()
            await asyncio.to_thread(self.journal.close)

    async def stop(self) -> None:
        """Stop working, without saving anything."""
        self.closed = True
        for task in [*self._tasks, *self._refills.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._refills.values(), return_exceptions=True)


def _refused(event: object) -> EventError:
    """The error for what cannot be published."""
    if not isinstance(event, Event):
        return EventError(f"an event is expected, not {type(event).__name__}", help="make one: Event(type, source)")
    return EventError(
        f"the type {event.type!r} is the node's own", field="type", help="choose one that does not begin with tocsin."
    )

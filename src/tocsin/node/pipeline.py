"""THE PIPELINE. Start reading here: admit → append → match → enqueue → deliver → settle.

    publish ─▶ admit (valid, allowed, not too large) ─▶ journal.submit ─▶ [commit: here if small, else another thread]
                                                                             │
    on the loop's thread again:  answer publishers ◀── match ◀── committed ◀─┘
                                      ├─▶ first open lane of each mailbox ─▶ wake its handle ─▶ take ─▶ settle
                                      └─▶ the watcher: composite events, which are published in their turn

Concurrency: everything here runs on one event loop, so nothing is locked. The journal scans elsewhere, and commits too,
but for what is small (`promptly`); it hands results over through `_from_journal`. `head` is the newest offset that was
*matched*: a lane that begins at head + 1 misses nothing and gets nothing twice, whatever is being committed just then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import NamedTuple

from tocsin import crashpoints, tracing
from tocsin.clock import SECOND, Clock
from tocsin.delivery import durable
from tocsin.delivery.keeper import Keeper
from tocsin.delivery.mailbox import Item, Mailbox
from tocsin.delivery.receipts import ReceiptBox
from tocsin.errors import OverloadError, TocsinError
from tocsin.journal.archived import ArchivedJournal
from tocsin.journal.contract import CANCELLED, Committed, Journal, Note, Request
from tocsin.journal.opening import joined
from tocsin.journal.packed import PackedEvents
from tocsin.journal.rows import from_arrow
from tocsin.journal.window import HotWindow
from tocsin.model import Event
from tocsin.node.admission import check_publishable
from tocsin.node.beside import Beside
from tocsin.node.lanes import OpenLanes
from tocsin.node.post import PostOffice
from tocsin.node.promptly import Promptly
from tocsin.node.sessions import Peers
from tocsin.node.through import Batch, seen_through
from tocsin.node.watcher import Watcher

__all__ = ["Batch", "Node", "Published", "seen_through"]

MAX_EVENT_BYTES = 1024 * 1024
MAX_WAITING = 20_000
"""Events on their way to the journal before publishers must wait."""
PATIENCE = 30.0
"""Seconds a publisher waits for room before it is told to come again."""
HOT_BYTES = 128 * 1024 * 1024
"""For the newest events: a consumer that is a second behind is still served from memory, a third of the work."""
_AT_ONCE = 1_024  # events of a large batch that are read and matched in one turn of the loop
_RETRY = 5  # seconds until what failed is tried again
_JUMP = 60.0  # seconds the wall clock may wander before that is reported
_log = logging.getLogger("tocsin")
_new = tuple.__new__
_IDLE_SAVE = 100_000  # offsets after which the places of idle consumers are saved anew


class Published(NamedTuple):
    """The answer to a publisher."""

    id: str
    offset: int | None
    """Its place in the journal; None: it waits in a client's spool, and has none yet."""


class Node:
    """One node over one journal: what happens to events. Handles ask its `post`; `consumers` and `alerts` use it."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        hot_bytes: int = HOT_BYTES,
        max_waiting: int = MAX_WAITING,
        patience: float = PATIENCE,
    ) -> None:
        """Take over a journal that is open for writing; the limits are those of `connect`."""
        self.journal, self.clock = journal, clock
        self._max_waiting, self._patience = max_waiting, patience
        self.traces = tracing.begin()
        """None: nobody is tracing. Asked once for many events, so that it costs them nothing."""
        self.head = journal.head
        self.boot_head = journal.head
        """Newest offset of earlier lives: what was not persistent is not delivered from there."""
        self.window = HotWindow(hot_bytes, journal)
        self.mailboxes: dict[str, Mailbox] = {}
        self.gone: Counter[str] = Counter()
        """What mailboxes that are gone have counted."""
        self.lanes = OpenLanes(journal, self.window, lambda: self.head, self.traces)
        self.cancelled: set[int] = set()
        self.receipts = ReceiptBox(journal.state("receipt/"))
        self.keeper = Keeper(self.store, lambda: self.head, self.mailboxes, self.receipts.add)
        self.post = PostOffice(self)
        self.changing = asyncio.Lock()
        """Held while consumers are made, changed or dropped, and while an event is cancelled: one at a time."""
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Committed | Request] = deque()
        self._promptly = Promptly(lambda: self.journal, self._from_journal)
        self._is_notified = False
        self._reading: asyncio.Task[None] | None = None
        self._thread = get_ident()
        self._answers: dict[int, asyncio.Future[list[int]]] = {}
        self._waiting_events = 0
        self._room = asyncio.Event()
        self._alarm = asyncio.Event()
        self._due: int | None = None  # when it is looked next; None: that is not known
        self._saved_at = self.head
        self._known_drift = 0.0
        self._ahead = 0
        self._retry: int | None = None
        self._restore()
        self.watcher = Watcher(self)
        self.beside = Beside(self)
        self._tasks = [self._loop.create_task(self._keep_time()), self._loop.create_task(self.watcher.run())]
        journal.listeners.append(self._hear)
        self.peers = Peers(self)

    def join_lake(self) -> ArchivedJournal | None:
        """The journal with its lake, if it has one; one that came about while the node was open is joined now.

        Raises:
            LakeError: the lake is another journal's.
        """
        self.journal = joined(self.journal)
        self.window.read_from(self.journal)
        self.lanes.read_from(self.journal)
        return self.journal if isinstance(self.journal, ArchivedJournal) else None

    def now(self) -> int:
        """Journal time: the clock's, but never behind the newest event (a clock that was set back while we slept)."""
        return self.clock.now() + self._ahead

    def _restore(self) -> None:
        newest = next((block.arrived[1] for block in self.journal.blocks(self.journal.first, backwards=True)), 0)
        if newest >= self.clock.now():
            self._ahead = newest + 1 - self.clock.now()
            if self._ahead > _JUMP * SECOND:
                _log.warning(
                    "the clock is %.0f s behind the journal; journal time goes on from there", self._ahead / SECOND
                )
        places = self.journal.state(durable.PLACE)
        for name, consumer in self.journal.state(durable.CONSUMER).items():
            name = name.removeprefix(durable.CONSUMER)
            self.mailboxes[name] = durable.restore(name, consumer, places.get(durable.PLACE + name))
        self.cancelled = {int(name.removeprefix(CANCELLED)) for name in self.journal.state(CANCELLED)}

    # -- admit and append

    async def publish(self, events: Sequence[Event], by: str, batch: Batch | None = None) -> list[Published]:
        """Store events and match them; returns when they are durable.

        Raises:
            EventError: one of them is not acceptable; none was stored.
            OverloadError: there was no room for them in time; none was stored.
            WriterError: the writer of the batch has stored a later one, and not this.
        """
        await self.room_for(len(events))
        if self.traces is None:
            offsets = await self._submit(events, by, batch)
        else:
            with self.traces.publish(events) as events:
                offsets = await self._submit(events, by, batch)
        # As `Published(…)` makes them, in half the time.
        return [_new(Published, (event.id, offset)) for event, offset in zip(events, offsets, strict=True)]

    def submit(self, events: Sequence[Event], by: str, batch: Batch | None) -> asyncio.Future[list[int]] | None:
        """As `publish`: begin to store events; the future has their offsets. None: there is no room at this moment."""
        return self._submit(events, by, batch) if self._has_room(len(events)) else None

    def _submit(self, events: Sequence[Event], by: str, batch: Batch | None) -> asyncio.Future[list[int]]:
        check_publishable(events)
        is_durable = batch is not None or any(event.persistent for event in events)
        return self.store(events=events, by=by, durable=is_durable, largest=MAX_EVENT_BYTES, batch=batch)

    def _has_room(self, count: int) -> bool:
        return not self._waiting_events or self._waiting_events + count <= self._max_waiting

    async def room_for(self, count: int) -> None:
        """Wait until so many events more may be on their way.

        Raises:
            OverloadError: that took too long.
        """
        if self._has_room(count):
            return
        try:
            async with asyncio.timeout(self._patience):
                while not self._has_room(count):
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
        largest: int = 0,
        closes: bool = False,
        batch: Batch | None = None,
    ) -> asyncio.Future[list[int]]:
        """Hand something to the journal; the future has the offsets when it is stored. See `Request`."""
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        request = Request(
            self.now(),
            events,
            batch.writer if batch is not None else None,
            batch.position if batch is not None else None,
            durable=durable,
            by=by,
            state=state or {},
            notes=notes,
            done=self._hear,
            largest=largest,
            closes=closes,
        )
        self._answers[id(request)] = answer
        self._waiting_events += _held(events)
        try:
            self._promptly.submit(request)
        except TocsinError:
            del self._answers[id(request)]
            self._waiting_events -= _held(events)
            raise
        return answer

    # -- back from the journal

    def _hear(self, news: Committed | Request) -> None:
        """Called where a commit was made: pass it on to the loop, once for many."""
        self._inbox.append(news)
        if self._promptly.is_committing and get_ident() == self._thread:
            return  # it looks by itself
        if not self._is_notified:
            self._is_notified = True
            self._loop.call_soon_threadsafe(self._from_journal)

    def _from_journal(self) -> None:
        self._is_notified = False
        crashpoints.reach("before-answer")
        while self._inbox and self._reading is None:
            news = self._inbox.popleft()
            if isinstance(news, Committed):
                self._match(news.events, news.rows)
                if news.unread is not None:
                    self._reading = self._loop.create_task(self._match_stored(*news.unread))
                continue
            answer = self._answers.pop(id(news), None)
            self._waiting_events -= _held(news.events)
            if answer is not None and not answer.done():
                if news.error is not None:
                    answer.set_exception(news.error)
                else:
                    answer.set_result(list(news.offsets))
        self._room.set()

    async def _match_stored(self, first: int, last: int) -> None:
        """Match what came packed, and may be more than memory holds: some at a time, read by another thread.

        What was committed after it waits, so that the order stays.
        """
        try:
            batches = self.journal.read(first, last)
            while (batch := await seen_through(asyncio.to_thread(next, batches, None))) is not None:
                for start in range(0, batch.num_rows, _AT_ONCE):
                    part = batch.slice(start, _AT_ONCE)
                    self._match(await seen_through(asyncio.to_thread(from_arrow, part)), {})
        except TocsinError as error:  # stored a moment ago: the disk is failing, and who waits must be answered
            _log.error("nobody hears of offsets %d to %d: %s", self.head + 1, last, error)
            self.head = last
        finally:
            self._reading = None
        self._from_journal()

    # -- match and enqueue

    def _match(self, events: list[Event], rows: Mapping[int, bytes]) -> None:
        """Give committed events to the lanes that want them."""
        if not events:
            return
        found = self.lanes.match(events)
        self.window.put_many(events, rows, found if self.watcher.detector is None else None)
        self.lanes.give(events, found)
        self.head = events[-1].offset or 0
        self.watcher.hear()
        self._look_at_wall_clock()
        if self.head - self._saved_at > _IDLE_SAVE:
            self._saved_at = self.head
            for mailbox in self.mailboxes.values():
                self.keeper.later(mailbox)

    # -- time

    def ring_later(self) -> None:
        """Look anew at what is due next."""
        self._alarm.set()

    def ring_by(self, due: int | None) -> None:
        """Look anew at what is due next, if this is due before all that is known; None: it is never due."""
        if due is not None and (self._due is None or due < self._due):
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
                dead = mailbox.ring(now)
                wanted, mailbox.wanted = mailbox.wanted, []
                for handle in wanted:
                    self.post.give_turn(mailbox, handle)
                self.lanes.wake_all(mailbox)
                if dead:
                    await self._bury(mailbox, dead, now)
            after = mailbox.next_alarm()
            if after is not None:
                alarms.append(after)
        if self._retry is not None:
            alarms.append(self._retry)
        if (clock := self.watcher.ring(now)) is not None:
            alarms.append(clock)
        if (clock := self.beside.ring(now)) is not None:
            alarms.append(clock)
        return min(alarms) if alarms else None

    async def _bury(self, mailbox: Mailbox, dead: list[Item], now: int) -> None:
        try:
            await self.post.bury(mailbox, dead, "not settled in its last attempt")
        except TocsinError as error:  # the disk is full, say; the keeper has the letter, and is asked again
            _log.error("a dead letter could not be stored, it will be tried again: %s", error)
            self._retry = now + _RETRY * SECOND

    async def _keep_time(self) -> None:
        while True:
            self._alarm.clear()
            self._due = None  # what comes while it looks may have been passed over
            try:
                due = await self.ring()
            except Exception:  # a defect of ours: redelivery must go on
                _log.exception("the clock's work failed")
                due = self.now() + _RETRY * SECOND
            self._look_at_wall_clock()
            self._due = due
            await self.clock.wait(self._alarm, due)

    # -- the end

    async def settled(self) -> None:
        """Wait until nothing is left to do at this moment."""
        await self.store()  # what was answered without waiting for the disk is matched after this
        for _ in range(3):
            await asyncio.sleep(0)
            with contextlib.suppress(Exception):  # it has halted, and says so elsewhere
                await self.watcher.catch_up()
            await self.ring()
            while self._inbox or self.lanes.scans() or self._answers:
                await asyncio.sleep(0)
                if tasks := self.lanes.scans():
                    await asyncio.wait(tasks)
                elif self._answers:
                    await asyncio.wait(list(self._answers.values()))
            await self.keeper.flush()

    async def close(self) -> None:
        """Save all places and close the journal."""
        if self.closed:
            await asyncio.to_thread(self.journal.close)  # that may be under way
            return
        self.receipts.close()
        try:
            await self.peers.close()
            for handles in list(self.lanes.handles.values()):
                for handle in list(handles):
                    await self.post.close_handle(handle, keep=True)
            with contextlib.suppress(Exception):  # then the next start looks at some events once more
                await self.watcher.checkpoint()
            for mailbox in self.mailboxes.values():
                self.keeper.later(mailbox)
            self.keeper.later(None, self.receipts.fetched())
            await self.keeper.flush()
        finally:  # whatever the disk says, let go of the file
            await self.stop()
            await seen_through(asyncio.to_thread(self.journal.close))

    async def stop(self) -> None:
        """Stop working, without saving anything."""
        self.closed = True
        await self.peers.stop()
        tasks = [*self._tasks, *self.lanes.scans(), *([self._reading] if self._reading is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _held(events: Sequence[Event]) -> int:
    """How many events wait in memory: those that are packed wait elsewhere."""
    return 0 if type(events) is PackedEvents else len(events)  # `isinstance` takes long where it is an abstract one's

"""The Spark pipeline beside a node, as the node sees it: what it must look for, and what it has found.

    pipeline ── which definitions? ──▶ `Placements.schedule`, and its version
             ── batch n ends at offset x, found: … ──▶ stored once, or: stale, ask again
             ── next timer due at t ──▶ a clock record, if nothing else tells the time

What a batch has found is stored in one commit with the number that its checkpoint gives it and how far it reaches, so
a batch that is repeated after a crash stores nothing again. Definitions that change do so at an offset: a batch that
reaches beyond it, and was made without knowing, is stale, and is made anew. What has ended is in the schedule until
the pipeline has passed it. If the pipeline has lost its checkpoint it begins again where its definitions begin, and
one that is older than what was told (a copy put back, or a machine that lost its power: Spark does not wait for the
disk) gives old numbers to other batches; what was told before, completed up to the offset that was reached or by
timers due before the instant there, is not told again, and what lies behind it is.

A batch may have found very much. Then it comes in pieces, each a commit of its own, so that others have their turn. How
many of each definition are stored is kept with each piece, and in whatever way the batch is made again, of each
definition the same come first: those are left out.

Concurrency: the node's loop only.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tocsin.clock import as_datetime, as_micros
from tocsin.composite.detector import SOURCE
from tocsin.composite.occurrence import TIMER
from tocsin.model import Event
from tocsin.node.placement import Wanted
from tocsin.node.through import seen_through
from tocsin.node.watcher import SILENCE, Stored, forget

if TYPE_CHECKING:
    from tocsin.node.pipeline import Node

__all__ = ["STATISTICS", "Beside", "Detected", "Progress", "Told", "detected", "stored_counts"]

TOLD: Final = "pipeline/told"
COUNTED: Final = "pipeline/counted"
STATISTICS: Final = "tocsin.statistics"
"""The type of the records that say how much comes from where."""
_ABSENT: Final = "no Spark pipeline runs beside this node; what comes meanwhile is looked at when one does"
_REMEMBERED: Final = 64  # changes of the definitions; a batch that was made before all of these is stale
_RETRY: Final = 5 * SILENCE


class Told(msgspec.Struct, array_like=True, frozen=True):
    """How far what the pipeline has found is in the journal."""

    writer: str = ""
    """Of one checkpoint."""
    position: int = -1
    """The number of its last batch that found something."""
    offset: int = 0
    """Where that batch ended."""
    instant: int = 0
    """See `Progress.instant`."""
    counts: dict[str, int] = {}
    """How many of each definition were found, ever."""
    safe: int = 0
    """So far Spark's own checkpoint was when this was told: a batch that is told may have to be made once more."""
    within: dict[str, int] = {}
    """Behind `offset`, so many of each definition are in the journal, too: the first ones of a batch in pieces."""
    reaching: int = 0
    """Where that batch ends."""


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """How far the pipeline has looked."""

    offset: int
    instant: int
    """What was due before this instant, in microseconds, has happened: it is journal time at the offset, or the next
    instant if a clock record is there."""
    due: int | None = None
    """When something is due that waits for time to pass; None: nothing waits."""


class Detected(NamedTuple):
    """A derived event that the pipeline has found."""

    event: Event
    completed: int | None
    """The offset of the event that completed it; None: a timer did."""


class Beside:
    """What a node knows of its pipeline."""

    def __init__(self, node: Node) -> None:
        """Take up what was told."""
        self._node = node
        found = node.journal.state(TOLD)
        self.told = msgspec.msgpack.decode(found[TOLD], type=Told) if found else Told()
        self.progress: Progress | None = None
        """None: not known, since it has not come up yet."""
        self._had: dict[str, int] = {}  # of each definition, how many of a batch were stored before it was told
        self._came: dict[str, int] = {}  # … and how many its pieces have brought so far
        self._reached = 0  # no batch that may be stored ends behind this
        self._life, self._version = secrets.token_hex(4), 0
        self._changes: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # the version each has made, and its offset
        self._clock_at = 0
        self._answer: asyncio.Future[str | None] | None = None
        self._answer_known: str | None = _ABSENT

    # -- is there one?

    def expect(self) -> None:
        """One may come: whoever asks waits for `attach` or `refuse`."""
        self._answer = asyncio.get_running_loop().create_future()

    def attach(self) -> None:
        """There is one, though it may be down at times."""
        self._settle(None)

    def refuse(self, why: str) -> None:
        """There is none."""
        self.progress = None
        self._settle(why)

    def _settle(self, why: str | None) -> None:
        self._answer_known = why
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(why)

    async def is_attached(self) -> bool:
        """Is there a pipeline, up or not?"""
        if self._answer is not None and not self._answer.done():
            await asyncio.shield(self._answer)
        return self._answer_known is None

    @property
    def halted(self) -> str | None:
        """Why definitions that run there are not looked for; None: they are, or will be."""
        return self._answer_known

    @property
    def counts(self) -> dict[str, int]:
        """How many of each definition were found."""
        return self.told.counts

    @property
    def needed(self) -> int | None:
        """The first offset that the pipeline has yet to look at; None: there is nothing for it to look for."""
        since = [each.since for each in self._schedule if each.is_told]
        if not since:
            return None
        done = self.progress.offset if self.progress is not None else self.told.safe
        return max(done, min(since)) + 1

    # -- what it must look for

    @property
    def _schedule(self) -> tuple[Wanted, ...]:
        """What has ended is left out where no pipeline is there to find out what it would have told."""
        placements = self._node.watcher.placements
        is_hoped_for = self._answer_known is None or (self._answer is not None and not self._answer.done())
        return placements.schedule if placements.on_spark or is_hoped_for else ()

    def definitions(self) -> tuple[str, tuple[Wanted, ...]]:
        """What it must look for now, and the version of that."""
        return f"{self._life}.{self._version}", self._schedule

    def changed(self, offset: int) -> None:
        """Behind an offset definitions are others."""
        self._version += 1
        self._changes.append((self._version, offset))
        if self.progress is not None:
            self._pass(self.progress.offset)

    def since(self, head: int) -> int:
        """The offset behind which a definition begins that is made now."""
        return max(head, self._reached)

    def _is_stale(self, version: str, upto: int) -> bool:
        life, _, number = version.partition(".")
        if life != self._life:
            return True
        missed = [offset for made, offset in self._changes if made > int(number)]
        return any(offset < upto for offset in missed) or len(missed) < self._version - int(number)

    def _pass(self, offset: int) -> None:
        """Forget what had ended before an offset that the pipeline has looked at."""
        watcher = self._node.watcher
        before, watcher.placements = watcher.placements, watcher.placements.passed(offset)
        gone = {each.key for each in before.ended} - {each.key for each in watcher.placements.ended}
        if gone:
            answer = self._node.store(state=dict.fromkeys(gone))
            answer.add_done_callback(forget)  # if it was not stored, it is forgotten the next time
            if not watcher.placements.schedule:
                self.changed(offset)

    # -- what it has found

    async def store(
        self,
        version: str,
        writer: str,
        position: int,
        upto: int,
        instant: int,
        events: Sequence[Detected],
        traceparent: str | None = None,
        piece: int = 0,
        is_last: bool = True,
    ) -> bool:
        """Store what a batch has found, or a piece of it; False: it is stale, and was not.

        Args:
            version: of the definitions it was made with.
            writer: of its checkpoint.
            position: its number.
            upto: the offset at which it ends.
            instant: see `Progress.instant`.
            events: in the order they were found.
            traceparent: the context of its span, if Spark is traced.
            piece: which one this is, of those into which a large batch is cut; they come in order, and one that could
                not be stored comes again.
            is_last: no other piece follows.
        """
        async with self._node.watcher.turn:  # a definition that is being made has settled already where it begins
            if self._is_stale(version, upto):
                return False
            self._reached = max(self._reached, upto)
            known, begins = set(self._node.watcher.placements.on_spark), dict[str, int]()
            for each in self._schedule:
                if each.is_told:
                    begins[each.name] = min(each.since, begins.get(each.name, each.since))
        told = self.told
        if piece == 0:
            self._came = {}
            self._had = {name: had for name, had in told.within.items() if begins.get(name, upto) < told.reaching}
        came, fresh = dict(self._came), list[Event]()
        for event, completed in events:
            if not self._was_told(event, completed):
                came[event.type] = came.get(event.type, 0) + 1
                if came[event.type] > self._had.get(event.type, 0):
                    fresh.append(event)
        if fresh or (is_last and told.within):
            counts = dict(told.counts)
            for event in fresh:
                counts[event.type] = counts.get(event.type, 0) + 1
            counts = {name: count for name, count in counts.items() if name in known}
            safe = self.progress.offset if self.progress is not None else told.safe
            if is_last:
                place = (writer, position, max(upto, told.offset), max(instant, told.instant))
                within = {name: had - came.get(name, 0) for name, had in self._had.items()}
                within = {name: had for name, had in within.items() if had > 0 and upto < told.reaching}
                told = Told(*place, counts, safe, within, told.reaching if within else 0)
            else:
                within = {name: max(came.get(name, 0), self._had.get(name, 0)) for name in {*came, *self._had}}
                reaching = max(upto, told.reaching)
                told = msgspec.structs.replace(told, counts=counts, safe=safe, within=within, reaching=reaching)
            if self._node.traces is not None:
                fresh = self._node.traces.detected(fresh, self._node.window.held, traceparent)
            await seen_through(self._tell(told, fresh))
        self._came = came
        return True

    async def _tell(self, told: Told, events: Sequence[Event]) -> None:
        await self._node.store(events=events, state={TOLD: msgspec.msgpack.encode(told)})
        self.told = told
        self._node.watcher.told(events)

    def _was_told(self, event: Event, completed: int | None) -> bool:
        """Was it found before, whichever batch it comes in now?

        A batch finds what is completed up to its last event, and by timers that are due before that one's instant.
        """
        assert event.time is not None
        place = as_micros(event.time), TIMER if completed is None else completed
        return place <= (self.told.instant, self.told.offset)

    @property
    def counted(self) -> bytes | None:
        """What statistics have to go on from, as they gave it; None: they begin."""
        return self._node.journal.state(COUNTED).get(COUNTED)

    async def store_statistics(self, counted: bytes, data: dict[str, object] | None) -> None:
        """Store how far statistics are, and with it what they tell: both or neither."""
        events = [Event(STATISTICS, "tocsin", data=data)] if data is not None else []
        await self._node.store(events=events, state={COUNTED: counted})

    # -- time

    def report(self, progress: Progress) -> None:
        """It has come so far."""
        self.progress = progress
        self._pass(progress.offset)
        self._node.ring_later()

    def ring(self, now: int) -> int | None:
        """Append a clock record if one is due; returns when to ask again, None: when something has happened."""
        progress = self.progress
        if progress is None or progress.due is None or progress.offset < self._node.head:
            return None
        due = max(progress.due, progress.instant + SILENCE)
        if due > now:
            return due
        if self._clock_at < due or now >= self._clock_at + _RETRY:
            self._clock_at = now
            self._node.watcher.append_clock()
        return self._clock_at + _RETRY


def detected(
    type: str, id: str, instant: int, data: str, classification: str, completed: int | None = None
) -> Detected:
    """An event that the pipeline has found, as it comes from there."""
    time, payload = as_datetime(instant), msgspec.json.decode(data)
    return Detected(Event(type, SOURCE, id=id, time=time, data=payload, classification=classification), completed)


def stored_counts(journal: Stored) -> dict[str, int]:
    """How many of each definition the pipeline has found, by a journal that is only read."""
    found = journal.state(TOLD)
    return msgspec.msgpack.decode(found[TOLD], type=Told).counts if found else {}

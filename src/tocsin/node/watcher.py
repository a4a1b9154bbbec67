"""The watcher: it reads the journal in order, looks for composite events, and appends what it finds.

    committed events ─▶ Detector ─▶ derived events + position, one request ─▶ journal
                            └──── now and then ─▶ snapshot, stored with its offset

Everything follows from the journal: time is that of events and of `tocsin.clock` records, never this machine's. So
recovery is the last snapshot, and the events after it once more. What they detect up to the stored position was told
before and is dropped; from there on it is told now. Nothing is lost, nothing comes twice, wherever a crash was. A
position is an offset, and an instant behind it up to which timers have fired: a long silence may end with more of them
than one batch should hold.

While timers wait and nothing happens, the watcher appends a clock record: a second after the last event, and not before
a timer is due.

Concurrency: the node's loop only. `turn` is held from taking events until what they detect is stored, and by whoever
changes definitions. What cannot be read or stored halts detection, not delivery; it is tried again. So does a defect.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from tocsin import crashpoints
from tocsin.clock import SECOND, as_micros
from tocsin.composite.detector import CLOCK, Detector
from tocsin.errors import DefinitionError, TocsinError
from tocsin.model import Event
from tocsin.node.placement import ENDED, RECORD, Moment, Placements

if TYPE_CHECKING:
    from tocsin.node.pipeline import Node

__all__ = ["SILENCE", "Stored", "Watcher", "forget", "stored_definitions"]

STATE: Final = "detection/state"
POSITION: Final = "detection/position"
SILENCE: Final = SECOND
"""So long nothing must happen before a clock record is appended."""
CHECKPOINT: Final = 20_000
"""Events after which a snapshot is stored, unless snapshots take much of the time."""
_SHARE: Final = 20  # between two snapshots lies at least so many times what one takes
_TURN: Final = 512  # events, or detections by timers, that are told together
_PIECE: Final = 32  # events between which others get the loop
_RETRY: Final = 5 * SECOND
NOTHING: Final[Mapping[str, bytes | None]] = MappingProxyType({})
_log = logging.getLogger("tocsin")


class Stored(Protocol):
    """What is asked of a journal that is only read: its small state."""

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `Journal.state`."""


class Told(NamedTuple):
    """What was detected up to here is in the journal."""

    offset: int = 0
    instant: int = -1
    """Behind this offset timers have fired up to this instant; -1: none has."""


class Watcher:
    """Detection on a node. Without definitions it does nothing."""

    def __init__(self, node: Node) -> None:
        """Take up where the journal says. What cannot be taken up halts detection, and is left as it is."""
        self._node = node
        self.turn = asyncio.Lock()
        self.detector: Detector | None = None
        """None while there is no definition that runs here."""
        self.placements = Placements({}, Detector())
        """All definitions, also those that run elsewhere."""
        self.last: dict[str, datetime] = {}
        """When each definition was detected last, wherever it runs, since the node was opened."""
        self.failure: Exception | None = None
        """Why detection has halted; None: it has not."""
        self._told = Told()
        self._saved = 0  # the offset of the stored snapshot
        self._may_save = 0.0
        self._untold: list[Event] = []
        self._reached = self._told  # how far that is which was looked at: never behind what was told
        self._clock_at = 0  # when the last clock record was appended
        self._wake = asyncio.Event()
        try:
            placements, detector = stored_definitions(node.journal)
            if detector is not None:
                self._saved = detector.position
                told = msgspec.msgpack.decode(node.journal.state(POSITION)[POSITION], type=Told)
                self._told = self._reached = max(Told(self._saved), told)
            self.placements, self.detector = placements, detector
        except Exception as error:  # of a later version, say: nobody should be without alerts for that
            _log.error("composite events are not detected: %s", error)
            self.detector, self.failure, self._is_lost = None, error, True
        else:
            self._is_lost = False

    # -- reading and telling

    @property
    def needed(self) -> int | None:
        """The first offset that recovery would read; None if there is nothing to recover."""
        if self._is_lost:
            return 1
        return None if self.detector is None else self._saved + 1

    def check(self) -> None:
        """Refuse changes to what could not be taken up.

        Raises:
            DefinitionError: why.
        """
        if self._is_lost:
            raise DefinitionError(
                f"detection has halted: {self.failure}", help="open it with the program that wrote it"
            )

    def draft(self) -> Detector:
        """The detector as it is, to be changed and given to `change`."""
        return self.detector.twin() if self.detector is not None else Detector()

    def hear(self) -> None:
        """Events were committed, or something else has changed. It costs nothing while nothing is defined."""
        if self.detector is not None:
            self._wake.set()

    async def run(self) -> None:
        """Detect for ever."""
        while not self._is_lost:
            self._wake.clear()
            try:
                await self.catch_up()
            except Exception as error:  # the disk is full, a block is damaged, or we are wrong
                if self.failure is None:
                    _log.error(
                        "detection of composite events has halted, and is tried again: %s",
                        error,
                        exc_info=None if isinstance(error, TocsinError) else error,
                    )
                self.failure = error
                await self._node.clock.wait(asyncio.Event(), self._node.now() + _RETRY)
                continue
            self.failure = None
            self._node.ring_later()  # a timer may have come or gone
            await self._wake.wait()

    async def catch_up(self) -> None:
        """Look through everything that was committed; what it detects is stored then."""
        async with self.turn:
            await self.to_head()

    async def to_head(self) -> None:
        """The same for who holds `turn`."""
        while self._untold or (self.detector is not None and self.detector.position < self._node.head):
            detector = self.detector
            assert detector is not None
            if not self._untold:
                await self._look(detector)
            is_due = detector.position - self._saved >= CHECKPOINT and time.monotonic() >= self._may_save
            if self._untold or is_due:
                await self._store(detector, self._reached, save=is_due)

    async def _look(self, detector: Detector) -> None:
        """Take the next events, and note what they detect unless that was told before."""
        first = detector.position + 1
        is_replay = first <= self._told.offset
        last = min(self._told.offset if is_replay else self._node.head, first + _TURN - 1)
        events = await self._read(first, last)
        lowest = self._node.journal.first
        if first < lowest and len(events) <= last - first:
            _log.warning("events from %d to %d were trimmed before they were looked at", first, lowest - 1)
            detector.skip(lowest - 1)
            return
        crashpoints.reach("detect-before")
        found: list[Event] = []
        is_whole = True
        if detector.is_timed and not is_replay:  # a timer may be due between any two
            for event in events:
                is_whole = self._fire(detector, event, found)
                if not is_whole:
                    break
                found += detector.feed(event)
        else:
            for place in range(0, len(events), _PIECE):
                found += detector.feed_batch(events[place : place + _PIECE])
                await asyncio.sleep(0)
        if is_whole:
            detector.skip(last)  # a block that was damaged and taken out has no events
        crashpoints.reach("detect-after")
        await asyncio.sleep(0)
        if not is_replay:
            silent = self.placements.silent
            untold = [event for event in found if event.type not in silent] if silent else found
            if untold and self._node.traces is not None:
                untold = self._node.traces.detected(untold, self._node.window.held)
            self._untold = untold
            self._reached = Told(last) if is_whole else Told(detector.position, detector.time)

    def _fire(self, detector: Detector, event: Event, found: list[Event]) -> bool:
        """Fire timers due before an event, one instant after the other; False: that is enough for one batch."""
        assert event.arrived is not None
        before = as_micros(event.arrived)
        while (timer := detector.next_timer) is not None and timer < before:
            was_told = detector.position == self._told.offset and timer <= self._told.instant
            detected = detector.advance(timer)
            if not was_told:
                found += detected
            if len(found) >= _TURN:
                return False
        return True

    async def _store(
        self, detector: Detector, told: Told, *, save: bool, more: Mapping[str, bytes | None] = NOTHING
    ) -> None:
        """Store what was detected, with the position, and if asked to a snapshot; all or nothing."""
        state: dict[str, bytes | None] = {POSITION: msgspec.msgpack.encode(told), **more}
        if save:
            begun = time.monotonic()
            state[STATE] = detector.snapshot()
            self._may_save = time.monotonic() + _SHARE * (time.monotonic() - begun)
            crashpoints.reach("detect-checkpoint")
        await self._node.store(events=self._untold, state=state)
        crashpoints.reach("detect-stored")
        self.told(self._untold)
        self._untold = []
        self._told = self._reached = told
        if save:
            self._saved = detector.position

    def told(self, events: Sequence[Event]) -> None:
        """These were detected, and are in the journal."""
        self.last.update((event.type, event.time) for event in events if event.time is not None)

    async def _read(self, first: int, last: int) -> list[Event]:
        """The events of a range, as far as the journal has them."""
        window = self._node.window
        recent = window.recent(first, last)
        if recent is not None:
            return recent
        found = await asyncio.to_thread(window.get_many, range(first, last + 1))
        return [event for event in found if event is not None]

    # -- snapshots and changes

    async def checkpoint(self) -> None:
        """Store a snapshot of now: what came before is not needed for recovery any more."""
        async with self.turn:
            if self.detector is not None:
                await self.to_head()
                if self._saved < self.detector.position:
                    await self._store(self.detector, Told(self.detector.position), save=True)

    async def change(self, detector: Detector, placements: Placements, name: str, moment: Moment) -> None:
        """Go on with another detector, and with what else is known of a definition. The caller holds `turn`."""
        record = placements.records.get(name)
        more = {RECORD + name: msgspec.msgpack.encode(record) if record is not None else None}
        more |= {
            each.key: msgspec.msgpack.encode(each) for each in placements.ended if each not in self.placements.ended
        }
        is_on_spark = any(name in each.records and each.is_on_spark(name) for each in (self.placements, placements))
        if not detector.definitions():
            await self._node.store(state={STATE: None, POSITION: None, **more})
            self._told, self._reached, self._saved = Told(), Told(), 0
            self.detector = None
        else:
            await self._store(detector, Told(detector.position), save=True, more=more)
            self.detector = detector
        self.placements = placements
        self.last.pop(name, None)
        if is_on_spark:
            self._node.beside.changed(moment.offset)
        self.hear()  # there may be timers
        self._node.peers.demand_changed()

    # -- time

    async def end_instant(self) -> None:
        """If something is due by now, let it come before anything else does. The caller holds `turn`."""
        timer = self.detector.next_timer if self.detector is not None else None
        if timer is not None and timer <= self._node.now():
            await self.append_clock()
            await self.to_head()

    def ring(self, now: int) -> int | None:
        """Append a clock record if one is due; returns when to ask again, None: when something has happened."""
        detector = self.detector
        if detector is None or detector.position < self._node.head or self._untold:
            return None
        timer = detector.next_timer
        if timer is None:
            return None
        due = max(timer, detector.time + SILENCE)
        if due > now:
            return due
        if self._clock_at < due or now >= self._clock_at + _RETRY:
            self._clock_at = now
            self.append_clock()
        return self._clock_at + _RETRY  # by then it has come, or could not be stored

    def append_clock(self) -> asyncio.Future[list[int]]:
        """Append a clock record. Nobody need wait for it: why it could not be stored is told to publishers."""
        answer = self._node.store(events=[Event(CLOCK, "tocsin")], closes=True)
        answer.add_done_callback(forget)
        return answer


def stored_definitions(journal: Stored) -> tuple[Placements, Detector | None]:
    """All definitions in a journal, and the detector of its last snapshot: None if there was none.

    Raises:
        DefinitionError: a later version of this program has written it.
    """
    found = journal.state(STATE)
    detector = Detector.restore(found[STATE]) if found else None
    return Placements.load(journal.state(RECORD), journal.state(ENDED), detector), detector


def forget(answer: asyncio.Future[list[int]]) -> None:
    """Nobody waits for this; why it could not be stored is told to publishers."""
    if not answer.cancelled():
        answer.exception()

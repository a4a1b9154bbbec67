"""The Spark pipeline beside a node, as the node sees it: what it must look for, and what it has found.

    pipeline ── which definitions? ──▶ `Placements.on_spark`, and their version
             ── batch n ends at offset x, found: … ──▶ stored once, or: stale, ask again
             ── next timer due at t ──▶ a clock record, if nothing else tells the time

A batch is stored under the number that its checkpoint gives it, in one commit with how far it reaches, so a batch that
is repeated after a crash stores nothing again. A definition made meanwhile sees every event after it: a batch that
reaches beyond its beginning, and was made without it, is stale, and is made anew. If the pipeline has lost its
checkpoint it begins again where its definitions begin; what it told before, up to the offset it had reached, it does
not tell again.

Concurrency: the node's loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tocsin.clock import as_datetime, as_micros
from tocsin.composite.detector import SOURCE
from tocsin.model import Event
from tocsin.node.placement import Wanted
from tocsin.node.through import Batch
from tocsin.node.watcher import SILENCE, Stored

if TYPE_CHECKING:
    from tocsin.node.pipeline import Node

__all__ = ["STATISTICS", "Beside", "Progress", "Told", "derived", "stored_counts"]

TOLD: Final = "pipeline/told"
STATISTICS: Final = "tocsin.statistics"
"""The type of the records that say how much comes from where."""
_ABSENT: Final = "no Spark pipeline runs beside this node; what comes meanwhile is looked at when one does"
_REMEMBERED: Final = 64  # versions of the definitions that a batch may still be made with
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
    """Journal time there, in microseconds."""
    counts: dict[str, int] = {}
    """How many of each definition were found, ever."""


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """How far the pipeline has looked."""

    offset: int
    instant: int
    """Journal time there, in microseconds."""
    due: int | None = None
    """When something is due that waits for time to pass; None: nothing waits."""


class Beside:
    """What a node knows of its pipeline."""

    def __init__(self, node: Node) -> None:
        """Take up what was told."""
        self._node = node
        found = node.journal.state(TOLD)
        self.told = msgspec.msgpack.decode(found[TOLD], type=Told) if found else Told()
        self.progress: Progress | None = None
        """None: not known, since it has not come up yet."""
        self._reached = 0  # no batch that may be stored ends behind this
        self._versions: deque[tuple[str, frozenset[tuple[str, int]]]] = deque(maxlen=_REMEMBERED)
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
        wanted = self._node.watcher.placements.on_spark
        if not wanted:
            return None
        done = self.progress.offset if self.progress is not None else self.told.offset
        return max(done, min(each.since for each in wanted)) + 1

    # -- what it must look for

    def definitions(self) -> tuple[str, tuple[Wanted, ...]]:
        """What it must look for now, and the version of that."""
        placements = self._node.watcher.placements
        known = frozenset((each.name, each.since) for each in placements.on_spark)
        if all(version != placements.version for version, _ in self._versions):
            self._versions.append((placements.version, known))
        return placements.version, placements.on_spark

    def since(self, head: int) -> int:
        """The offset behind which a definition begins that is made now."""
        return max(head, self._reached)

    def _is_stale(self, version: str, upto: int) -> bool:
        known = next((known for name, known in self._versions if name == version), None)
        wanted = self._node.watcher.placements.on_spark
        return known is None or any(each.since < upto and (each.name, each.since) not in known for each in wanted)

    # -- what it has found

    async def store(
        self, version: str, writer: str, position: int, upto: int, instant: int, events: Sequence[Event]
    ) -> bool:
        """Store what a batch has found; False: it is stale, and was not.

        Args:
            version: of the definitions it was made with.
            writer: of its checkpoint.
            position: its number.
            upto: the offset at which it ends.
            instant: journal time there.
            events: in the order they were found.
        """
        if self._is_stale(version, upto):
            return False
        self._reached = max(self._reached, upto)
        known = {each.name for each in self._node.watcher.placements.on_spark if each.is_told}
        fresh = [event for event in events if event.type in known and not self._was_told(writer, upto, event)]
        is_new = writer != self.told.writer or position > self.told.position
        if fresh and is_new:
            counts = dict(self.told.counts)
            for event in fresh:
                counts[event.type] = counts.get(event.type, 0) + 1
            counts = {name: count for name, count in counts.items() if name in known}
            told = Told(writer, position, max(upto, self.told.offset), max(instant, self.told.instant), counts)
            await self._append(writer, position, fresh, {TOLD: msgspec.msgpack.encode(told)})
            self.told = told
        return True

    def _was_told(self, writer: str, upto: int, event: Event) -> bool:
        """Was it found before, under a checkpoint that is lost? A timer's tick of that very instant was not."""
        if writer == self.told.writer:
            return False
        assert event.time is not None
        instant, last = as_micros(event.time), event.data["parts"][-1]
        if upto <= self.told.offset or instant < self.told.instant:
            return True
        return instant == self.told.instant and last.get("offset", upto) <= self.told.offset

    async def store_statistics(self, writer: str, position: int, data: dict[str, object]) -> None:
        """Store a record of statistics, once."""
        await self._append(writer, position, [Event(STATISTICS, "tocsin", data=data)], {})

    async def _append(self, writer: str, position: int, events: Sequence[Event], state: dict[str, bytes]) -> None:
        await self._node.store(events=events, state=state, batch=Batch(writer, position))

    # -- time

    def report(self, progress: Progress) -> None:
        """It has come so far."""
        self.progress = progress
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


def derived(type: str, id: str, instant: int, data: str, classification: str) -> Event:
    """An event that the pipeline has found, as it comes from there."""
    return Event(
        type, SOURCE, id=id, time=as_datetime(instant), data=msgspec.json.decode(data), classification=classification
    )


def stored_counts(journal: Stored) -> dict[str, int]:
    """How many of each definition the pipeline has found, by a journal that is only read."""
    found = journal.state(TOLD)
    return msgspec.msgpack.decode(found[TOLD], type=Told).counts if found else {}

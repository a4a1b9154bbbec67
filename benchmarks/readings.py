"""Events for the journal and for delivery, and quick ways to fill a journal with them.

`Readings` is a plant at work: each event has five fields (one of 10,000 machines, one of 5 sites, two numbers, a count)
and a text of 200 bytes. The text is noise, base64 of random bytes, unless `words` is asked for: noise is the worst case
for whatever compresses. Everything is drawn from the seed; ids are like those `Event` makes.
"""

from __future__ import annotations

import base64
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tocsin.client import Bus
from tocsin.clock import SECOND, SystemClock
from tocsin.cloudevents import encode_json
from tocsin.journal.contract import Request
from tocsin.journal.draft import Draft
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event
from tocsin.node import Node

__all__ = [
    "MACHINES",
    "Readings",
    "bus_on",
    "fill",
    "journal_of",
    "payload_bytes",
    "without_flushing",
]

MACHINES = 10_000
SITES = ("zagreb", "graz", "brno", "gdansk", "porto")
TEXT_BYTES = 200
RATE = 1_000
"""Events per second of journal time in a journal that `fill` has filled."""


class Readings:
    """Events, endless and reproducible.

    Args:
        seed: another seed, other events of the same kind, with other ids.
        words: whether the text is made of words.
    """

    def __init__(self, seed: int = 1, *, words: bool = False) -> None:
        self._draw = random.Random(f"{seed} readings")
        self._prefix = f"{self._draw.getrandbits(80):020x}"
        self._count = 0
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        vocabulary = random.Random("words")
        self._words = [
            "".join(vocabulary.choices(letters, range(26, 0, -1), k=vocabulary.randint(2, 10))) for _ in range(2000)
        ]
        self._text = self._of_words if words else self._of_noise

    def event(self, type: str = "machine.value", priority: int = 5, **more: Any) -> Event:
        """Draw the next event; `more` comes on top of its fields."""
        draw = self._draw
        self._count += 1
        site = SITES[int(draw.random() * len(SITES))]
        data = {
            "machine": f"m{int(draw.random() * MACHINES)}",
            "site": site,
            "value": round(draw.random() * 1000, 3),
            "temp": round(20 + draw.random() * 80, 1),
            "count": self._count,
            "text": self._text(),
            **more,
        }
        return Event(type, f"plant/{site}", f"{self._prefix}-{self._count:x}", data=data, priority=priority)

    def events(self, count: int) -> list[Event]:
        """Draw several."""
        return [self.event() for _ in range(count)]

    def batches(self, count: int, size: int) -> list[list[Event]]:
        """Draw `count` events in lists of `size`."""
        return [self.events(min(size, count - start)) for start in range(0, count, size)]

    def _of_noise(self) -> str:
        return base64.b64encode(self._draw.randbytes(TEXT_BYTES * 3 // 4)).decode()

    def _of_words(self) -> str:
        return " ".join(self._draw.choices(self._words, k=TEXT_BYTES // 3))[:TEXT_BYTES]


def payload_bytes(events: list[Event]) -> int:
    """Bytes of the payloads as JSON: what a publisher hands over, without the envelope."""
    return sum(len(encode_json(event.data, "data")) for event in events)


def fill(
    journal: SqliteJournal,
    readings: Readings,
    count: int,
    *,
    make: Callable[[], Event] | None = None,
    rate: int = RATE,
    request: int = 8_192,
) -> None:
    """Store `count` events by large requests, a few of which are on their way at once.

    Args:
        journal: where they go.
        readings: what is stored.
        count: how many.
        make: makes an event, instead of `readings.event`.
        rate: events per second of journal time, the last of them now.
        request: how many share a request.
    """
    make = make if make is not None else readings.event
    room = threading.Semaphore(4)
    failures: list[Exception] = []

    def done(request: Request) -> None:
        if request.error is not None:
            failures.append(request.error)
        room.release()

    start = SystemClock().now() - count * SECOND // rate
    for first in range(0, count, request):
        events = [make() for _ in range(min(request, count - first))]
        room.acquire()
        journal.submit(Request(start + first * SECOND // rate, events, done=done))
    for _ in range(4):
        room.acquire()
    if failures:
        raise failures[0]


@contextmanager
def without_flushing(journal: SqliteJournal) -> Iterator[None]:
    """Fill a journal quicker: the same bytes in the same places, only not flushed. Never while something is timed."""

    def flush(how: str) -> None:
        journal._committer.run(lambda: journal._store.db.execute(f"PRAGMA synchronous = {how}").fetchall())

    flush("OFF")
    try:
        yield
    finally:
        flush("FULL")


@asynccontextmanager
async def bus_on(path: Path, *, merge: bool = True) -> AsyncIterator[Bus]:
    """What `tocsin.connect` gives, with a choice: whether blocks are merged meanwhile."""
    clock = SystemClock()
    bus = Bus(Node(SqliteJournal(path, clock=clock, merge=merge), clock), "bench")
    try:
        yield bus
    finally:
        await bus.close()


def journal_of(bus: Bus) -> SqliteJournal:
    """The journal under a bus."""
    journal = bus._node.journal
    assert isinstance(journal, SqliteJournal)
    return journal


def watch_commits(bus: Bus) -> list[tuple[float, float, int]]:
    """Begin, end and head of every commit from now on."""
    store, commits = journal_of(bus)._store, list[tuple[float, float, int]]()
    write = store.write

    def timed(draft: Draft) -> None:
        begin = time.perf_counter()
        write(draft)
        commits.append((begin, time.perf_counter(), draft.head))

    store.write = timed  # type: ignore[method-assign]
    return commits


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

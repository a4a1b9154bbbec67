"""Events for the journal and for delivery, and quick ways to fill a journal with them.

`Readings` is a plant at work: each event has five fields (one of 10,000 machines, one of 5 sites, two numbers, a count)
and a text of 200 bytes. The text is noise, base64 of random bytes, unless `words` is asked for: noise is the worst case
for whatever compresses. Everything is drawn from the seed; ids are like those `Event` makes.
"""

from __future__ import annotations

import base64
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tocsin.clock import SECOND, SystemClock
from tocsin.cloudevents import encode_json
from tocsin.journal.contract import Request
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event

__all__ = ["MACHINES", "Readings", "fill", "flush_seconds", "payload_bytes", "without_flushing"]

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
    make: Callable[[int], Event] | None = None,
    request: int = 8_192,
) -> None:
    """Store `count` events by large requests, `RATE` a second of journal time up to now; a few are on their way at once.

    Args:
        journal: where they go.
        readings: what is stored.
        count: how many.
        make: makes the event of a number from 0 on, instead of `readings.event()`.
        request: how many share a request.
    """
    room = threading.Semaphore(4)
    failures: list[Exception] = []

    def done(request: Request) -> None:
        if request.error is not None:
            failures.append(request.error)
        room.release()

    start = SystemClock().now() - count * SECOND // RATE
    for first in range(0, count, request):
        numbers = range(first, min(first + request, count))
        events = [make(number) for number in numbers] if make is not None else readings.events(len(numbers))
        room.acquire()
        journal.submit(Request(start + first * SECOND // RATE, events, done=done))
    for _ in range(4):
        room.acquire()
    if failures:
        raise failures[0]


def without_flushing(journal: SqliteJournal) -> None:
    """Fill a journal quicker: the same bytes in the same places, only not flushed. Never while something is timed."""
    journal._committer.run(lambda: journal._store.db.execute("PRAGMA synchronous = OFF").fetchall())


def flush_seconds(directory: str | os.PathLike[str] | None) -> float:
    """How long the disk takes to flush 4 KiB, in the median: every durable figure contains it."""
    seconds = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def size_of(path: Path) -> int:
    """Bytes of a journal's files."""
    return sum(each.stat().st_size for each in (path, Path(f"{path}-wal")) if each.exists())

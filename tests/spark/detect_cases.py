"""What the tests of `ts.detect` have in common: journals with random events, random definitions, and streams.

Definitions come from `tests.composite.test_oracle`, so engine and oracle agree on them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from tests.composite.test_oracle import some_definition
from tocsin import Detector, Event
from tocsin import spark as ts
from tocsin.clock import ManualClock
from tocsin.composite.expression import CONTEXTS, OPERATORS
from tocsin.composite.language import parse
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import CLASSIFICATION

__all__ = ["Definitions", "Run", "append", "events_in", "expected", "plant", "some_definitions"]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLOCK = Event("tocsin.clock", "tocsin")
Definitions = dict[str, tuple[str, str, str]]


def some_definitions(draw: random.Random, events: Sequence[Event]) -> Definitions:
    """Every operator in every context, each of which detects something; some go BY machine, name others, wait for time.

    Of those BY machine some go BY machine and value instead, in either order, and some BY value: what others are made
    of goes BY machine and value, so that they may go BY machine. None detects very much: a P with a short period would
    be nearly all there is to compare.
    """
    found: Definitions = {}
    known: list[tuple[str, bool]] = []
    for context, operator in product(CONTEXTS, OPERATORS):
        for _ in range(200):
            name = f"d{len(found)}"
            (_, text, _, semantics), keyed = some_definition(draw, name, known[-4:], operator)
            if keyed and not any(other in text for other, _ in known):
                by = draw.choice(("machine", "machine, value", "value, machine", "value"))
                text, keyed = text.replace("BY machine", f"BY {by}"), "machine" in by
            detector = Detector.of(
                [parse(each, *said) for each, said in {**found, name: (text, context, semantics)}.items()]
            )
            detector = Detector.of(detector.family(name))
            if 1 <= sum(event.type == name for event in detector.feed_batch(events)) <= 60:
                found[name] = text, context, semantics
                known.append((name, keyed))
                break
    assert len(found) == len(CONTEXTS) * len(OPERATORS)
    return found


def append(journal: SqliteJournal, clock: ManualClock, draw: random.Random, count: int) -> None:
    """Append events in commits of several, at instants that are sometimes the same; clock records now and then."""
    machines: list[Any] = ["m1", "m1", "m2", "m3", 7, 7.0, 2.5, True, "ü"]
    for _ in range(count):
        data = {"machine": draw.choice(machines), "value": draw.randint(0, 5)}
        for name in ("machine", "value"):
            if draw.random() < 0.05:
                del data[name]
        attributes = {"machine": draw.choice(machines[:4])} if draw.random() < 0.2 else {}
        level = draw.choice(CLASSIFICATION) if draw.random() < 0.1 else CLASSIFICATION[0]
        kind = draw.choice("aaabbbcccde")
        journal.append([Event(kind, "/test", data=data, attributes=attributes, classification=level)])
        if draw.random() < 0.05:
            journal.append([draw.choice((CLOCK, Event("tocsin.note", "tocsin"), Event("old", "tocsin:definitions")))])
        clock.advance(draw.choice((0, 0, 0.5, 1, 1, 2, 3)))


def plant(path: Path, seed: int, count: int) -> Path:
    """A journal; its last record is a clock's, half a minute after the last event."""
    clock = ManualClock(NOON)
    with SqliteJournal(path, clock=clock, merge=False) as journal:
        append(journal, clock, random.Random(seed), count)
        clock.advance(30)
        journal.append([CLOCK])
    return path


def events_in(path: Path) -> list[Event]:
    with open_reader(path) as reader:
        return [event for block in reader.blocks() for event in block.events()]


def expected(definitions: Mapping[str, Any], events: Sequence[Event]) -> dict[str, Event]:
    """What a node detects, by id."""
    detector = Detector()
    for name, given in definitions.items():
        detector.define(name, *([given] if isinstance(given, str) else given))
    found = detector.feed_batch(events)
    assert len({event.id for event in found}) == len(found)
    return {event.id: event for event in found}


class Run:
    """A streaming query with detection; its rows by batch, so that a batch that is done again counts once."""

    def __init__(
        self, spark: Any, journal: Path, checkpoint: Path, definitions: Mapping[str, Any], most: int = 1_000_000
    ) -> None:
        options = {"url": f"file:{journal}", "system": "true", "maxEventsPerTrigger": most}
        events = spark.readStream.format("tocsin").options(**options).load()
        self.batches: dict[int, list[Any]] = {}
        self.after: Callable[[int], object] = lambda number: None
        self.frame = ts.detect(events, definitions)
        self._checkpoint = str(checkpoint)

    def _keep(self, frame: Any, number: int) -> None:
        self.batches[number] = frame.collect()
        self.after(number)

    def start(self) -> Any:
        writer = self.frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", self._checkpoint)
        return writer.trigger(availableNow=True).start()

    def drain(self) -> Run:
        query = self.start()
        try:
            assert query.awaitTermination(120), query.status
        finally:
            query.stop()
        return self

    @property
    def rows(self) -> dict[str, Any]:
        """All rows by id; none comes twice."""
        found = [row for rows in self.batches.values() for row in rows]
        assert len({row.id for row in found}) == len(found)
        return {row.id: row for row in found}

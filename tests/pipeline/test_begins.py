"""Definitions that come, change, move and go while batches run: engines against a detector that is changed, too."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.composite.test_oracle import some_definition
from tests.spark.detect_cases import NOON
from tests.spark.test_detect_engines import Store, chunks_of, cut, some_stream
from tocsin import DefinitionError, Detector, Event
from tocsin.clock import as_micros
from tocsin.node.placement import NODE, SPARK, Moment, Placements, Record, Wanted
from tocsin.spark.chunks import Chunk
from tocsin.spark.detected import PROGRESS
from tocsin.spark.detecting import Plan, scheduled


def run(store: Store, made: Plan, batch: list[Event], draw: random.Random) -> list[Any]:
    """The rows that a batch gives."""
    numbers = {division.number for division in made.divisions}
    for key in [key for key in store.states if key[0] not in numbers]:
        del store.states[key]
    rows: dict[tuple[int, int], list[Chunk]] = {}
    for part in cut(draw, batch):
        for key, chunk in chunks_of(made, part):
            rows.setdefault(key, []).append(chunk)
    found: list[Any] = []
    for key, chunks in rows.items():
        draw.shuffle(chunks)
        for each in store.work(made, key, chunks).detected:
            with pa.ipc.open_stream(each) as reader:
                found += [row for rows in reader for row in rows.to_pylist()]
    return found


class Changes:
    """A node's definitions while events come, and what they detect: `Placements`, and one detector that has them all.

    Every change is as `node/definitions.py` makes it.
    """

    def __init__(self) -> None:
        self.detector, self.placements = Detector(), Placements({}, Detector())
        self.moment = Moment(0, 0)
        self.history: list[tuple[int, Placements]] = []  # what there was behind which offset
        self.told: list[Event] = []

    def define(self, name: str, text: str, *said: str, place: str = SPARK) -> None:
        """Add, replace or move one."""
        whole = self.placements.whole.blank()
        wanted = whole.define(name, text, *said, replace=True)
        offset, time = self.moment
        facts = (wanted.text, wanted.context, wanted.semantics, None)
        self.placements = self.placements.added(name, Record(place, offset, 0, time, facts, time=time), whole)
        self.detector.define(name, text, *said, replace=True, now=time)
        self.history.append((offset, self.placements))

    def undefine(self, name: str) -> None:
        self.placements = self.placements.without(name, self.moment)
        self.detector.undefine(name)
        self.history.append((self.moment.offset, self.placements))

    def feed(self, event: Event) -> None:
        assert event.arrived is not None
        found = self.detector.feed(event)
        self.told += [each for each in found if self.placements.records[each.type].placement == SPARK]
        self.moment = Moment(event.offset or 0, as_micros(event.arrived))

    def schedule(self, count: int, passed: int) -> tuple[Wanted, ...]:
        """What the pipeline gets after so many changes, when it has passed an offset."""
        if not count:
            return ()
        placements = self.history[count - 1][1].passed(passed)
        return placements.schedule if any(each.is_told for each in placements.schedule) else ()


def looked_at(changes: Changes, batches: Iterable[list[Event]], draw: random.Random, store: Store) -> Iterator[Any]:
    """What the pipeline finds: it hears of changes when it must, or earlier, and forgets what it has passed."""
    passed = 0
    for batch in batches:
        last = batch[-1].offset or 0
        known = sum(offset < last for offset, _ in changes.history)
        known = draw.randint(known, len(changes.history)) if draw.random() < 0.5 else known
        schedule = changes.schedule(known, draw.randint(0, passed) if draw.random() < 0.3 else passed)
        if schedule:
            made = scheduled(schedule, 3)
            rows = run(store, made, batch, draw)
            progress = [row for row in rows if row["type"] == PROGRESS]
            assert len(progress) == sum(made.buckets_of(each) for each in made.divisions)
            yield from (row for row in rows if row["type"] != PROGRESS)
        else:
            store.states.clear()  # the checkpoint goes
        passed = last


def some_change(changes: Changes, draw: random.Random) -> str:
    """Do something at random, unless it is refused; returns what."""
    there = changes.placements.records
    name = f"d{draw.randrange(8)}"
    place = draw.choice((NODE, SPARK, SPARK))
    if name in there and draw.random() < 0.3:
        changes.undefine(name)
        return "undefine"
    if name in there and draw.random() < 0.3:
        each = next(each for each in changes.placements.whole.definitions() if each.name == name)
        if there[name].placement == place:
            return "nothing"
        changes.define(name, each.text, each.context, each.semantics, place=place)
        return "move"
    known = [(each.name, "machine" in each.by) for each in changes.placements.whole.definitions() if each.name != name]
    (_, text, context, semantics), keyed = some_definition(draw, name, known[-5:], None)
    if keyed and draw.random() < 0.4:
        text = text.replace("BY machine", f"BY {draw.choice(('machine, value', 'value, machine', 'value'))}")
    said = "replace" if name in there else "define"
    changes.define(name, text, context, semantics, place=place)
    return said


@pytest.mark.parametrize("seed", range(8))
def test_changes_while_spark_is_behind_give_what_a_node_detects(seed: int) -> None:
    draw = random.Random(seed)
    events, changes, done = some_stream(draw, 300), Changes(), dict[str, int]()
    for event in events:
        while draw.random() < (0.5 if len(changes.placements.records) < 4 else 0.12):
            try:
                what = some_change(changes, draw)
            except DefinitionError:  # others are made of it, or the fields of BY do not fit: a node refuses it as well
                what = "refused"
            done[what] = done.get(what, 0) + 1
        changes.feed(event)
    found = [row["id"] for row in looked_at(changes, cut(draw, events), draw, Store(draw))]
    assert sorted(found) == sorted(each.id for each in changes.told)
    assert len(set(found)) == len(found) > 50
    assert {"define", "replace", "undefine", "move"} <= done.keys()


# -- what was wrong


def stream(kinds: str) -> list[Event]:
    return [
        Event(kind, "/test", f"e{n}", data={"k": 1}, offset=n, arrived=NOON + timedelta(seconds=n))
        for n, kind in enumerate(kinds, 1)
    ]


def both(kinds: str, steps: dict[int, list[tuple[str, ...]]], ends: tuple[int, ...]) -> tuple[list[str], list[str]]:
    """What a detector finds, and what engines find whose batches end at these offsets.

    Args:
        kinds: of events.
        steps: behind which offset there is what change: a name alone is undefined.
        ends: of batches.
    """
    events, changes, draw = stream(kinds), Changes(), random.Random(1)
    for event in [None, *events]:
        if event is not None:
            changes.feed(event)
        for name, *said in steps.get(changes.moment.offset, ()):
            if said:
                changes.define(name, said[0], place=(said[1:] or [SPARK])[0])
            else:
                changes.undefine(name)
    batches = [events[first:last] for first, last in zip((0, *ends), (*ends, len(events)), strict=True)]
    found = list(looked_at(changes, [each for each in batches if each], draw, Store(draw)))
    assert sorted(row["id"] for row in found) == sorted(each.id for each in changes.told)
    return [each.type for each in changes.told], sorted(row["type"] for row in found)


A, B, C, D = (f"[type = '{kind}']" for kind in "abcd")
CUTS = ((), (1,), (2,), (3,), (1, 2), (2, 3, 4))


@pytest.mark.parametrize("ends", CUTS)
def test_one_that_is_replaced_saw_everything_up_to_there(ends: tuple[int, ...]) -> None:
    steps = {0: [("x", f"NOT({A}, {B}, {C})")], 3: [("x", f"SEQ({A}, {C})")]}
    assert both("abczz", steps, ends)[1] == []  # b came between
    steps = {0: [("x", f"SEQ({A}, {B})")], 2: [("x", f"SEQ({C}, {D})")]}
    assert both("abcdz", steps, ends)[1] == ["x", "x"]
    steps = {0: [("x", f"SEQ({A}, {B}) BY k")], 2: [("x", f"SEQ({C}, {D})")]}  # and goes BY others
    assert both("abcdz", steps, ends)[1] == ["x", "x"]


@pytest.mark.parametrize("ends", CUTS)
def test_one_that_has_gone_or_moved_saw_everything_up_to_there_and_nothing_after(ends: tuple[int, ...]) -> None:
    pair = f"SEQ({A}, {B})"
    assert both("ababz", {0: [("x", pair)], 2: [("x",)], 4: [("x", f"{pair} WITHIN 9 SECONDS")]}, ends)[1] == ["x"]
    assert both("ababz", {0: [("x", pair)], 2: [("x",)]}, ends)[1] == ["x"]
    assert both("abbaz", {0: [("x", pair)], 2: [("x", pair, NODE)], 4: [("x", pair)]}, ends)[1] == ["x"]


@pytest.mark.parametrize("ends", CUTS)
def test_changes_that_a_node_bears_one_by_one_stop_nobody(ends: tuple[int, ...]) -> None:
    steps = {
        0: [("nn", f"SEQ({A}, {B})"), ("dep", f"SEQ(nn, {C})")],
        1: [("dep", f"SEQ({A}, {C})")],
        2: [("nn", f"SEQ(dep, {D})")],
        3: [("dep", f"SEQ({A}, {B})")],
    }
    assert both("azzabd", steps, ends)[1] == ["dep", "nn"]
    at_once = {0: steps[0], 2: [*steps[1], *steps[2], *steps[3]]}
    assert both("azzabd", at_once, ends)[1] == ["dep", "nn"]


@pytest.mark.parametrize("ends", CUTS)
def test_one_sees_of_what_it_is_made_of_what_begins_after_it_wherever_batches_end(ends: tuple[int, ...]) -> None:
    steps = {0: [("x", f"SEQ({A}, {B}) BY k")], 2: [("y", f"SEQ(x, {C})")]}
    assert both("azbcabc", steps, ends)[1] == ["x", "x", "y"]


@pytest.mark.parametrize("ends", CUTS)
def test_what_has_gone_with_one_that_was_made_of_it_waits_for_nothing(ends: tuple[int, ...]) -> None:
    ticks = f"P({A}, 1 SECOND, {B})"
    steps = {0: [("x", ticks), ("y", f"SEQ(x, {C})")], 2: [("y", f"SEQ({D}, {C})"), ("x",)], 5: [("x", ticks)]}
    assert both("azzzzzzz", steps, ends)[1] == []
    assert both("zazzzzzz", {**steps, 2: [], 4: steps[2]}, ends)[1] == ["x"]


def test_without_what_was_forgotten_one_begins_where_all_it_is_made_of_does() -> None:
    """The checkpoint is lost: what `x` was before is not known any more."""
    changes, draw = Changes(), random.Random(1)
    changes.define("x", f"SEQ({A}, {D})")
    changes.define("y", f"SEQ(x, {C})")
    events = stream("ababcz")
    for event in events:
        if event.offset == 3:
            changes.define("x", f"SEQ({A}, {B})")
        changes.feed(event)
    made = scheduled(changes.schedule(3, 5), 3)
    assert [each.name for each in made.divisions[0].schedule] == ["x", "y"]
    assert [row["type"] for row in run(Store(draw), made, events, draw) if row["type"] in "xy"] == ["x", "y"]


def test_one_that_was_removed_and_made_again_has_nothing_half_detected() -> None:
    pair = f"SEQ({A}, {B})"
    assert both("abb", {0: [("pair", pair)]}, (1, 2))[1] == ["pair", "pair"]  # recent: an opener serves again
    assert both("abb", {0: [("pair", pair)], 1: [("pair",), ("pair", pair)]}, (1, 2))[1] == []

"""Checkpoints lost or put back while batches are told: engines and a node, against one detector, to the microsecond."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import msgspec
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.helpers import node_of, testing
from tests.pipeline.test_begins import run
from tests.spark.detect_cases import NOON
from tests.spark.test_detect_engines import Store
from tocsin import Detector, Event
from tocsin.composite.leaves import CLOCK, SOURCE
from tocsin.node.beside import Beside, detected
from tocsin.spark.detecting import scheduled
from tocsin.spark.pipeline.detection import read

DEFINED = {
    "pair": "SEQ([type = 'a'], [type = 'b']) BY k",
    "stop": "PLUS([type = 'a'], 1 SECOND) BY k",
    "beat": "P([type = 'a'], 1 SECOND, [type = 'c']) BY k",
    "both": "OR(PLUS([type = 'a'], 1 SECOND), [type = 'b'])",
    "times": "SEQ([type = 'a'], OR(AT '12:00:02', AT '12:00:05'))",
}


def some_stream(draw: random.Random, count: int) -> list[Event]:
    """Many events of one instant, and clock records, behind which it is later."""
    found, time = list[Event](), NOON
    for offset in range(1, count + 1):
        kind = CLOCK if draw.random() < 0.15 else draw.choice("aaabbc")
        source = "tocsin" if kind == CLOCK else "/test"
        found.append(Event(kind, source, f"e{offset}", data={"k": draw.choice("xy")}, offset=offset, arrived=time))
        time += timedelta(seconds=draw.choice((0, 0, 0, 0, 0.5, 1)), microseconds=kind == CLOCK)
    return found


class Life:
    """A checkpoint, and what its batches tell a node."""

    def __init__(self, beside: Beside, draw: random.Random, writer: str) -> None:
        self._beside, self._draw, self._writer = beside, draw, writer
        self._store, self._number, self.offset = Store(draw), 0, 0
        self._copy = self._number, self.offset, dict(self._store.states)

    async def batch(self, events: list[Event]) -> bool:
        """Do the next batch, and tell it in pieces; False: it ended between two of them, and Spark knows nothing."""
        draw, (version, wanted) = self._draw, self._beside.definitions()
        last = min(len(events), self.offset + draw.randint(1, 25))
        before = dict(self._store.states)
        rows = run(self._store, scheduled(wanted, 2), events[self.offset : last], draw)
        found, progress = read(rows, wanted)
        assert progress is not None and progress.offset == last
        place = (version, self._writer, self._number, progress.offset, progress.instant)
        size = draw.choice((2, 10, 1000))
        for piece, start in enumerate(range(0, max(1, len(found)), size)):
            told = [detected(*msgspec.structs.astuple(each)) for each in found[start : start + size]]
            assert await self._beside.store(*place, told, None, piece, start + size >= len(found))
            if draw.random() < 0.05:
                self._store.states = before
                return False
        self._number, self.offset = self._number + 1, last
        return True

    def save(self) -> None:
        """Make a copy of the checkpoint."""
        self._copy = self._number, self.offset, dict(self._store.states)

    def put_back(self) -> None:
        """Put the copy back."""
        self._number, self.offset, states = self._copy
        self._store.states = dict(states)


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_becomes_of_checkpoints_each_is_told_once(seed: int) -> None:
    draw = random.Random(seed)
    events = some_stream(draw, 120)
    whole = Detector()
    async with testing.node(clock=testing.ManualClock(NOON - timedelta(seconds=1))) as bus:
        for name, text in DEFINED.items():
            whole.define(name, text)
            await bus.define(name, text, placement="spark")
        node = node_of(bus)
        lives = [Life(node.beside, draw, "w0")]
        while lives[-1].offset < len(events):
            await lives[-1].batch(events)
            what = draw.random()
            if what < 0.05:
                lives.append(Life(node.beside, draw, f"w{len(lives)}"))
            elif what < 0.15:
                lives[-1].save()
            elif what < 0.25:
                lives[-1].put_back()
        stored = [each for block in node.journal.blocks(1, node.head) for each in block.events()]
        told = [each.id for each in stored if each.source == SOURCE]
        counts = node.beside.counts
    wanted = whole.feed_batch(events)
    assert told == [each.id for each in wanted]
    assert counts == Counter(each.type for each in wanted) and set(counts) == set(DEFINED)

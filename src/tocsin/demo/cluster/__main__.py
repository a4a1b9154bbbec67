"""`make cluster`: a master and two workers on this machine, and Tocsin on them as on any cluster.

A journal of a plant is matched by a stream whose shards split by load, each shard a task of one of two
executors, and composite events are detected in it. What is found is compared with what one process finds, row for row.
With --kill, Pythons of the executors are killed while batches of either run: Spark repeats their tasks, and nothing is
missing or there twice.
Everything ends with the program; the exit code is 0 if the answers agree.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.client import connect
from tocsin.composite.detector import Detector
from tocsin.demo.cluster.totals import OneProcess, Totals, totals
from tocsin.demo.cluster.workload import events, subscriptions
from tocsin.errors import TocsinError
from tocsin.journal.reader import open_reader
from tocsin.model import Event
from tocsin.spark import Elastic, FilterSet, detect, match, session
from tocsin.spark.balancing import settle
from tocsin.spark.elastic import status
from tocsin.spark.standalone import standalone

__all__ = ["main"]

_FILTERS = 4_000
_DEFINITIONS = {
    "hot_then_high": "SEQ([temp > 78] AS hot, [value > 11] AS high) WITHIN 1 MINUTE BY machine",
    "no_badge": "NOT([type = 'alarm'] AS a, [badge IS NOT NULL] AS b, [type = 'door.opened'] AS d) BY site",
}
# Quick to split: a plant of this size is no load for anybody.
_DELAY = 0.2
"""Seconds from the beginning of a batch to the death of a Python."""
_POLICY = Elastic(split=0.002, merge=0.0005, window=2)


class Answer(NamedTuple):
    """What was found."""

    pairs: Totals
    detected: Counter[str]
    """How often each derived id was told: once."""


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tocsin.demo.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=20_000, help="how many the plant publishes (20000)")
    parser.add_argument("--workers", type=int, default=2, help="how many workers (2)")
    parser.add_argument("--kill", action="store_true", help="kill Pythons of the executors on the way")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="tocsin-plant-") as directory:
            return _run(Path(directory), options.events, options.workers, options.kill)
    except TocsinError as error:
        print(error, file=sys.stderr)
        return 1


def _run(directory: Path, count: int, workers: int, kill: bool) -> int:
    draw = random.Random(7)
    filters = dict(subscriptions(draw, _FILTERS))
    asyncio.run(_publish(f"file:{directory / 'plant.db'}", list(islice(events(draw), count))))
    here = _here(directory, filters)
    begun = time.monotonic()
    with standalone(workers) as cluster:
        print(f"a master at {cluster.master} and {workers} workers, in {time.monotonic() - begun:.1f} s", flush=True)
        spark = session(
            cluster.master,
            app="tocsin cluster",
            memory="512m",
            conf={"spark.sql.shuffle.partitions": str(workers), "spark.default.parallelism": str(workers)},
        )
        try:
            there = _there(spark, directory, filters, workers, kill)
        finally:
            spark.stop()
    agree = here == there and here.pairs.pairs > 0 and len(here.detected) > 0
    notices, composites = there.pairs.pairs, there.detected.total()
    print(f"{count:,} events, {_FILTERS:,} filters: {notices:,} notices, {composites:,} composite events")
    print("The cluster and one process agree." if agree else "They differ: the cluster has lost or doubled something.")
    return 0 if agree else 1


async def _publish(url: str, made: list[Event]) -> None:
    async with connect(url, name="plant") as bus:
        for first in range(0, len(made), 1000):
            await bus.publish_many(made[first : first + 1000])


def _here(directory: Path, filters: dict[str, str]) -> Answer:
    """What this process finds."""
    here = OneProcess(filters)
    detector = Detector()
    for name, text in _DEFINITIONS.items():
        detector.define(name, text)
    found: Counter[str] = Counter()
    with open_reader(directory / "plant.db") as reader:
        for block in reader.blocks():
            stored = block.events()
            here.ask(stored)
            found.update(event.id for event in detector.feed_batch(stored))
    return Answer(here.totals, found)


def _there(spark: Any, directory: Path, filters: dict[str, str], workers: int, kill: bool) -> Answer:
    """What the cluster finds."""
    live = FilterSet(directory / "filters")
    live.change(put=filters)
    source = spark.readStream.format("tocsin").option("url", f"file:{directory / 'plant.db'}")
    source = source.option("startingOffset", "earliest").option("maxEventsPerTrigger", 2_000)
    answers: dict[int, Totals] = {}
    detected: dict[int, Counter[str]] = {}

    def add_up(found: Any, batch: int) -> None:
        with _killing(spark, workers, kill and batch % 3 == 1):
            answers[batch] = totals(found)

    def collect(found: Any, batch: int) -> None:
        with _killing(spark, workers, kill and batch % 3 == 1):
            detected[batch] = Counter(row["id"] for row in found.select("id").collect())

    matched = match(source.option("filters", live.path).load(), live, shards=_POLICY)
    for frame, each, name in ((matched, add_up, "match"), (detect(source.load(), _DEFINITIONS), collect, "detect")):
        begun = time.monotonic()
        query = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(directory / name))
        query.trigger(availableNow=True).start().awaitTermination()
        print(f"{name}: {time.monotonic() - begun:.1f} s, on {_executors(spark)} executors", flush=True)
    settle(live)
    now = status(live)
    for change in now.changes:
        print(f"from version {change.version} of the filter set on: {change.what}")
    for shard in now.shards:
        print(f"shard {shard.name}: {shard.filters} filters, busy for {sum(shard.seconds):.3f} s in the last batches")
    found = Totals(*map(sum, zip(*answers.values(), strict=True)))
    return Answer(found, sum(detected.values(), Counter()))


def _executors(spark: Any) -> int:
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


@contextlib.contextmanager
def _killing(spark: Any, workers: int, kill: bool) -> Iterator[None]:
    """End a Python of an executor while the block runs, as a crash would."""
    if not kill:
        yield
        return
    victim = _pythons(spark, workers)[0]
    timer = threading.Timer(_DELAY, _end, [victim])
    timer.start()
    try:
        yield
    finally:
        timer.join()


def _end(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        print(f"killed a Python, {process}", flush=True)


def _pythons(spark: Any, workers: int) -> list[int]:
    """Those that run tasks."""

    def who(batches: Any) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:  # a Python that leaves something unread ends by itself
            pass
        yield pa.record_batch({"python": [os.getpid()]})

    rows = spark.range(workers).repartition(workers).mapInArrow(who, "python LONG").collect()
    return [row["python"] for row in rows]


if __name__ == "__main__":
    sys.exit(main())

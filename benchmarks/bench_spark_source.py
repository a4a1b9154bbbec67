"""How good are source, sink and archive on Spark? `python -m benchmarks.bench_spark_source [--quick] [--only source]`

    source    a journal read by Spark: all columns; the envelope and the payload; the envelope only
    archive   a journal into a lake
    sink      rows of a DataFrame into a journal, durable
    loop      source → match → sink at a steady 1,000 events/s from another process: how long from an event's arrival in
              one journal to the arrival of its match in another

local[2], warm, seeded events of 5 fields and 200 bytes (`readings.py`), a merged journal. Goals: 500,000 events/s with
the payload, 1,000,000 without; archive 200,000; sink 50,000; loop p50 0.8 s, p99 2 s. Everything that is read must
reach the JVM: rows are counted and their lengths summed there.
"""

from __future__ import annotations

import asyncio
import functools
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import functions as F

from benchmarks.common import Spent, options_for, rates, run_parts, table
from benchmarks.process_tree import tree_stopwatch
from benchmarks.readings import Readings, bus_on, fill, without_flushing
from tocsin import spark as ts
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal

Row = dict[str, Any]

PER_SECOND = 1_000
ENVELOPE = "offset BIGINT, arrived TIMESTAMP, id STRING, source STRING, type STRING, priority INT"
FILTERS = 1_000


class Sizes(NamedTuple):
    """How much of everything."""

    repeat: int = 5
    source: int = 2_000_000
    archive: int = 1_000_000
    sink: int = 200_000
    loop_seconds: int = 60
    loop_warm: int = 15


QUICK = Sizes(2, 20_000, 20_000, 5_000, 5, 5)


def main() -> None:
    """Run, print a table, keep the results."""
    parser = options_for(__doc__, PARTS, child=2)
    options = parser.parse_args()
    if options.child:
        asyncio.run(_publish(Path(options.child[0]), float(options.child[1])))
        return
    sizes = QUICK if options.quick else Sizes()
    ts.session("local[2]", app="bench_spark_source")
    parts = {part: functools.partial(PARTS[part], sizes) for part in options.only}
    rows = run_parts("spark_source", parts, directory=options.dir, keep=not options.quick)
    print()
    print(summary(rows))


def _filled(path: Path, count: int) -> None:
    journal = SqliteJournal(path)
    with without_flushing(journal):
        fill(journal, Readings(), count)
    journal.merge_now()
    journal.close()


def source(sizes: Sizes, scratch: Path) -> list[Row]:
    """Read a journal, with and without the payload."""
    spark = ts.session("local[2]")
    path = scratch / "source.db"
    _filled(path, sizes.source)
    reader = spark.read.format("tocsin").option("url", f"file:{path}")
    frames = {
        "all_columns": (reader.load(), "data"),
        "payload": (reader.schema(f"{ENVELOPE}, data STRING").load(), "data"),
        "envelope": (reader.schema(ENVELOPE).load(), "id"),
    }
    row: Row = {"events": sizes.source}
    for name, (frame, column) in frames.items():
        spent: list[Spent] = []
        for turn in range(sizes.repeat + 1):
            with tree_stopwatch() as each:
                # A new query each time: collecting the same one again would answer from its first shuffle.
                found = frame.agg(F.count("*"), F.sum(F.length(column))).collect()[0]
            assert found[0] == sizes.source and found[1] > 0
            if turn:
                spent.append(each)
        row[name] = rates(spent, sizes.source)
    return [row]


def archive(sizes: Sizes, scratch: Path) -> list[Row]:
    """Bring a journal into a lake, each time into a new one."""
    path = scratch / "archive.db"
    _filled(path, sizes.archive)
    spent: list[Spent] = []
    for turn in range(sizes.repeat + 1):
        lake = scratch / f"lake-{turn}"
        with tree_stopwatch() as each:
            ts.archive(f"file:{path}", str(lake), spark=ts.session("local[2]"))
        if turn:
            spent.append(each)
        size = sum(file.stat().st_size for file in lake.rglob("*.parquet"))
        shutil.rmtree(lake)
    return [{"events": sizes.archive, "bytes_per_event": round(size / sizes.archive, 1), **rates(spent, sizes.archive)}]


def sink(sizes: Sizes, scratch: Path) -> list[Row]:
    """Write a DataFrame into a journal."""
    spark = ts.session("local[2]")
    path = scratch / "rows.db"
    _filled(path, sizes.sink)
    wanted = "id STRING, source STRING, type STRING, priority INT, data STRING"
    rows = spark.read.format("tocsin").option("url", f"file:{path}").schema(wanted).load()
    rows.write.parquet(str(scratch / "rows"))
    rows = spark.read.parquet(str(scratch / "rows"))
    spent: list[Spent] = []
    for turn in range(sizes.repeat + 1):
        into = scratch / f"into-{turn}.db"
        with tree_stopwatch() as each:
            rows.write.format("tocsin").mode("append").option("url", f"file:{into}").save()
        with open_reader(into) as reader:
            assert reader.head == sizes.sink
        if turn:
            spent.append(each)
        into.unlink()
    return [{"events": sizes.sink, **rates(spent, sizes.sink)}]


def loop(sizes: Sizes, scratch: Path) -> list[Row]:
    """A steady stream through source, match and sink."""
    spark = ts.session("local[2]")
    path, into = scratch / "in.db", scratch / "out.db"
    SqliteJournal(path).close()
    SqliteJournal(into).close()
    filters = {f"f{number}": f"value >= {number} AND value < {number + 1}" for number in range(FILTERS)}  # one each
    events = spark.readStream.format("tocsin").option("url", f"file:{path}").load()
    matches = ts.match(events, filters).select(
        F.lit("match").alias("type"),
        F.lit("bench").alias("source"),
        F.to_json(F.struct("offset", "key")).alias("data"),
    )
    seconds = sizes.loop_warm + sizes.loop_seconds
    command = [sys.executable, "-m", "benchmarks.bench_spark_source", "--child", str(path), str(seconds)]
    query = (
        matches.writeStream.format("tocsin")
        .option("url", f"file:{into}")
        .option("writer", "loop")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .start()
    )
    try:
        with tree_stopwatch() as spent:
            subprocess.run(command, check=True)
            query.processAllAvailable()
        batches = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress[2:]]
    finally:
        query.stop()
    arrived, delays = _arrivals(path), []
    started = arrived[1] + sizes.loop_warm * 1_000_000
    with open_reader(into) as reader:
        for block in reader.blocks():
            for event in block.events():
                first = arrived[event.data["offset"]]
                if first >= started:
                    assert event.arrived is not None
                    delays.append(event.arrived.timestamp() - first / 1e6)
    assert len(delays) > sizes.loop_seconds * PER_SECOND * 0.9, f"only {len(delays)} events came through"
    cuts = statistics.quantiles(delays, n=100)
    return [
        {
            "events": len(delays),
            "p50_s": round(statistics.median(delays), 3),
            "p99_s": round(cuts[98], 3),
            "max_s": round(max(delays), 3),
            "batch_ms": round(statistics.median(batches)) if batches else None,
            "cpu_per_s": round(spent.cpu / spent.wall, 2),
        }
    ]


def _arrivals(path: Path) -> dict[int, int]:
    with open_reader(path) as reader:
        return {
            offset: at
            for batch in reader.read()
            for offset, at in zip(
                batch.column("offset").to_pylist(), batch.column("arrived").cast("int64").to_pylist(), strict=True
            )
        }


async def _publish(path: Path, seconds: float) -> None:
    """In a process of its own: a steady stream, ten events at a time."""
    readings = Readings()
    async with bus_on(path) as bus:
        begun = time.monotonic()
        for number in range(int(seconds * PER_SECOND / 10)):
            await asyncio.sleep(max(0.0, begun + number * 10 / PER_SECOND - time.monotonic()))
            await bus.publish_many(readings.events(10))


PARTS: dict[str, Callable[[Sizes, Path], list[Row]]] = {
    "source": source,
    "archive": archive,
    "sink": sink,
    "loop": loop,
}


def _rate(row: Row) -> tuple[str, str]:
    slow, quick = (1e6 / row["wall_us"][end] for end in ("high", "low"))
    return f"{row['per_s']:,} events/s", f"{slow:,.0f} to {quick:,.0f}; {row['per_cpu_s']:,} per CPU second"


def summary(rows: list[Row]) -> str:
    """The table people read; goals in brackets."""
    lines: list[tuple[str, str, str]] = []
    for row in rows:
        if row["part"] == "source":
            for name, goal in (("all_columns", "500,000"), ("payload", "500,000"), ("envelope", "1,000,000")):
                measured, more = _rate(row[name])
                lines.append((f"source, {name}", f"{measured} ({goal})", more))
        elif row["part"] == "loop":
            lines.append(
                (
                    f"loop, {PER_SECOND:,} events/s",
                    f"p50 {row['p50_s']} s (0.8), p99 {row['p99_s']} s (2)",
                    f"slowest {row['max_s']} s; batches of {row['batch_ms']} ms; {row['cpu_per_s']} cores busy",
                )
            )
        else:
            measured, more = _rate(row)
            goal = {"archive": "200,000", "sink": "50,000"}[row["part"]]
            lines.append((row["part"], f"{measured} ({goal})", more))
    return table(("what", "measured (goal)", "more"), lines)


if __name__ == "__main__":
    main()

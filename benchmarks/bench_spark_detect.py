"""How good is detection on Spark? `python -m benchmarks.bench_spark_detect [--quick] [--only 20000 open ten]`

`SEQ([type = 't0'], [type = 't1']) WITHIN 10 SECONDS BY k` in chronicle, over two million events in four micro-batches,
local[2], state in RocksDB, all in one session. Types are uniform over ten, so a fifth of the events matters; each key
has one event a second on average, whatever the number of keys. Rates are those of the batches after the first, as Spark
measures them (reading, shuffling and committing included); CPU seconds are the whole process tree's, keepers included.

    tocsin   ts.detect
    per_key  what one writes by hand: transformWithStateInPandas for each key, types filtered before the shuffle; it
             tells pairs of offsets, and must find the same number

    1000, 20000   keys
    open          20,000 keys, without WITHIN: a batch of a million openers comes first, so every closer of the events
                  after it finds an opener, and a million stay open; the first batch does not count
    ten           ten definitions over all types, 20,000 keys (ten times as much to do); `ten_same`: over two types
    journal       20,000 keys, but read from a journal, and told with all columns, `parts` included

Goals: 200,000 events/s at 1,000 and at 20,000 keys; 8 times per_key at 20,000; 100,000 with a million open; ten
definitions at least 0.4 of one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.common import loop_ns, record, table
from benchmarks.process_tree import tree_stopwatch
from tocsin import Event
from tocsin import spark as ts
from tocsin.clock import ManualClock, as_datetime, as_micros
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal

Row = dict[str, Any]

ONE = {"pair": "SEQ([type = 't0'], [type = 't1']) WITHIN 10 SECONDS BY k"}
OPEN = {"pair": "SEQ([type = 't0'], [type = 't1']) BY k"}
TEN = {f"pair{n}": f"SEQ([type = 't{n}'], [type = 't{(n + 1) % 10}']) WITHIN 10 SECONDS BY k" for n in range(10)}
TEN_SAME = {f"pair{n}": f"SEQ([type = 't0'], [type = 't1']) WITHIN {n + 1} SECONDS BY k" for n in range(10)}
PARTS: dict[str, tuple[int, Mapping[str, str]]] = {
    "1000": (1_000, ONE),
    "20000": (20_000, ONE),
    "open": (20_000, OPEN),
    "ten": (20_000, TEN),
    "ten_same": (20_000, TEN_SAME),
    "journal": (20_000, ONE),
}
"""Keys, definitions."""
BATCHES, TYPES = 4, 10


def main() -> None:
    """Run, print a table, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--quick", action="store_true", help="few events; nothing is kept")
    parser.add_argument("--alone", action="store_true", help="without per_key")
    options = parser.parse_args()
    count = 40_000 if options.quick else options.events
    spark = ts.session("local[2]", app="bench_spark_detect")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as scratch:
        for part in options.only:
            row = measured(spark, Path(scratch), part, count, with_per_key=not options.alone)
            rows.append(row)
            print(json.dumps(row), flush=True)
    if not options.quick:
        record("spark_detect", rows)
    print()
    print(summary(rows))
    spark.stop()


def measured(spark: SparkSession, scratch: Path, part: str, count: int, *, with_per_key: bool) -> Row:
    """One part, after a run that counts for nothing."""
    keys, definitions = PARTS[part]
    openers = count // 2 if part == "open" else 0
    path = scratch / f"{keys}-{openers}"
    if not path.exists():
        write_events(path, count, keys, openers)
    if part == "journal":
        path = write_journal(scratch / "plant.db", path)
    row: Row = {"part": part, "keys": keys, "events": count, "definitions": len(definitions), "loop_ns": loop_ns()}
    run(spark, path, scratch, "tocsin", definitions)
    row["tocsin"] = run(spark, path, scratch, "tocsin", definitions)
    if definitions is ONE and part != "journal" and with_per_key:
        row["per_key"] = run(spark, path, scratch, "per_key", definitions)
        assert row["per_key"]["found"] == row["tocsin"]["found"] > 0, row
        row["vs_per_key"] = round(row["tocsin"]["per_s"] / row["per_key"]["per_s"], 2)
    if openers:
        row["open"] = openers
        assert row["tocsin"]["found"] == closed(path) > 0, row
    return row


def write_journal(path: Path, events: Path) -> Path:
    """The same events in a journal, at the same instants."""
    clock = ManualClock(as_datetime(0))
    with SqliteJournal(path, clock=clock, merge=False) as journal:
        for number in range(BATCHES):
            rows = pq.read_table(events / f"{number}.parquet").select(["arrived", "id", "source", "type", "data"])
            for piece in rows.to_batches(max_chunksize=1000):
                columns = [column.to_pylist() for column in piece.columns[1:]]
                clock.advance((as_micros(piece.column(0)[0].as_py()) - clock.now()) / 1e6)
                journal.append(
                    [
                        Event(kind, source, name, data=json.loads(data))
                        for name, source, kind, data in zip(*columns, strict=True)
                    ]
                )
    return path


def write_events(path: Path, count: int, keys: int, openers: int) -> None:
    """A file for each batch, with the columns of the source that matter; if openers are wanted, they come first."""
    path.mkdir()
    draw = np.random.default_rng(7)
    each = count // BATCHES
    batches = [(openers, 1)] * bool(openers) + [(each, TYPES)] * BATCHES
    first = 1
    for number, (rows, types) in enumerate(batches):
        offsets = np.arange(first, first + rows)
        pq.write_table(_batch(draw, offsets, keys, types), path / f"{number}.parquet", row_group_size=rows // 2)
        first += rows


def _batch(draw: np.random.Generator, offsets: np.ndarray[Any, Any], keys: int, types: int) -> pa.Table:
    count = len(offsets)
    begin = 1_767_268_800_000_000  # noon, 1 January 2026
    texts = [f'{{"k":"k{key}","value":{value}}}' for key, value in zip(*_drawn(draw, count, keys), strict=True)]
    kinds = pa.DictionaryArray.from_arrays(
        pa.array(draw.integers(0, types, count, np.int8)), [f"t{n}" for n in range(types)]
    )
    columns = {
        "offset": pa.array(offsets),
        "arrived": pa.array(begin + offsets * 1_000_000 // keys, pa.timestamp("us", "UTC")),
        "id": pa.array([f"{offset:032x}" for offset in offsets.tolist()]),
        "source": pa.array(["line/7"] * count),
        "type": kinds.dictionary_decode(),
        "data": pa.array(texts),
    }
    return pa.table(columns)


def closed(path: Path) -> int:
    """How many closers have an opener of their key before them that no other closer took: counted by hand."""
    waiting, found = Counter[str](), 0
    for file in sorted(path.glob("*.parquet")):
        rows = pq.read_table(file, columns=["type", "data"], filters=[("type", "in", ["t0", "t1"])])
        for kind, data in zip(rows["type"].to_pylist(), rows["data"].to_pylist(), strict=True):
            key = data[: data.index(",")]
            if kind == "t0":
                waiting[key] += 1
            elif waiting[key]:
                waiting[key] -= 1
                found += 1
    return found


def _drawn(draw: np.random.Generator, count: int, keys: int) -> tuple[list[int], list[int]]:
    return draw.integers(0, keys, count).tolist(), draw.integers(0, 100, count).tolist()


def run(spark: SparkSession, path: Path, scratch: Path, who: str, definitions: Mapping[str, str]) -> Row:
    """One query over all events."""
    if path.is_dir():
        schema = "offset BIGINT, arrived TIMESTAMP, id STRING, source STRING, type STRING, data STRING"
        events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(path))
    else:
        with open_reader(path) as reader:
            most = -(-reader.head // BATCHES)
        events = spark.readStream.format("tocsin").options(url=f"file:{path}", maxEventsPerTrigger=most).load()
    if who == "tocsin":
        found = ts.detect(events, definitions, context="chronicle")
        found = found.withColumn("found", F.col("id") if path.is_dir() else F.to_json(F.struct("*")))
    else:
        found = per_key(events)
    counts: list[int] = []

    def keep(frame: DataFrame, number: int) -> None:
        counts.append(int(frame.agg(F.count("found")).collect()[0][0]))

    checkpoint = scratch / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    with tree_stopwatch() as spent:
        writer = found.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    if query.exception() is not None:
        raise query.exception()  # type: ignore[misc]
    batches = [(each.numInputRows, each.durationMs["triggerExecution"] / 1000) for each in query.recentProgress]
    batches = [each for each in batches if each[0]]
    each_s = [rows / seconds for rows, seconds in batches[1:]]
    count = sum(rows for rows, _ in batches)
    state = query.recentProgress[-1].stateOperators[0]
    return {
        "found": sum(counts),
        "per_s": round(statistics.median(each_s)),
        "per_s_low": round(min(each_s)),
        "per_s_high": round(max(each_s)),
        "whole_per_s": round(count / spent.wall),
        "per_cpu_s": round(count / spent.cpu) if spent.cpu > 0 else None,
        "state_bytes": state.customMetrics.get("rocksdbSstFileSize"),
    }


# -- by hand


def per_key(events: DataFrame) -> DataFrame:
    """The oldest opener of a key that is not too old goes with its closer."""
    rows = events.where("type IN ('t0', 't1')").select(
        F.get_json_object("data", "$.k").alias("k"),
        "offset",
        F.unix_micros("arrived").alias("at"),
        (F.col("type") == "t0").alias("opens"),
    )
    return rows.groupBy("k").transformWithStateInPandas(_PerKey(), "found BIGINT, opener BIGINT", "Append", "None")


class _PerKey(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._open = handle.getValueState("open", "open BINARY")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import msgspec
        import pandas as pd  # type: ignore[import-untyped]

        stored = self._open.get()
        waiting = deque(msgspec.msgpack.decode(bytes(stored[0]))) if stored is not None else deque()
        frame = pd.concat(list(rows)).sort_values("offset")
        found, openers = [], []
        for offset, at, opens in zip(
            frame["offset"].tolist(), frame["at"].tolist(), frame["opens"].tolist(), strict=True
        ):
            while waiting and at - waiting[0][1] > 10_000_000:
                waiting.popleft()
            if opens:
                waiting.append((offset, at))
            elif waiting:
                openers.append(waiting.popleft()[0])
                found.append(offset)
        self._open.update((msgspec.msgpack.encode(list(waiting)),))
        if found:
            yield pd.DataFrame({"found": found, "opener": openers})


def summary(rows: list[Row]) -> str:
    """The table people read."""
    lines = []
    goals = {"1000": "200,000", "20000": "200,000", "open": "100,000"}
    by_part = {row["part"]: row for row in rows}
    for row in rows:
        for who in ("tocsin", "per_key"):
            if who in row:
                found = row[who]
                goal = goals.get(row["part"], "none") if who == "tocsin" else "none"
                more = f"{found['per_s_low']:,} to {found['per_s_high']:,}; {found['per_cpu_s']:,} per CPU second; "
                more += f"{found['found']:,} found"
                lines.append((f"{row['part']}, {who}", f"{found['per_s']:,} events/s ({goal})", more))
        if "vs_per_key" in row:
            lines.append((f"{row['part']}, tocsin", f"{row['vs_per_key']} × per_key", "8 at 20,000 keys"))
    for part in ("ten", "ten_same"):
        if part in by_part and "20000" in by_part:
            share = by_part[part]["tocsin"]["per_s"] / by_part["20000"]["tocsin"]["per_s"]
            lines.append((f"{part} definitions", f"{share:.2f} of one", "0.4"))
    return table(("what", "measured (goal)", "more"), lines)


if __name__ == "__main__":
    main()

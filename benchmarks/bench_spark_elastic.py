"""Is it of use to split a filter set? `python -m benchmarks.bench_spark_elastic [--quick] [--only indexed scanned]`

The same events and filters, matched on local[2], warm, in one session; every way must find the same number of pairs.

    plain     `shards=None`: one index, which every task has; tasks divide the events
    1, 2, 4   `Elastic`, with so many shards: a task for each, and every event goes to each

    indexed   10,000 filters that the index finds: a range and an equality each
    scanned   2,000 filters that it cannot find, and must ask one by one: LIKE '%…%'

Goals: none. It says what docs/SPARK.md says of splitting.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.common import loop_ns, rates, record, table
from benchmarks.process_tree import tree_stopwatch
from tocsin import spark as ts
from tocsin.spark.shards import even

Row = dict[str, Any]

SHARDS = (None, 1, 2, 4)
STILL = ts.Elastic(split=1e6, merge=0, most=4)
"""Measures, and changes nothing."""


class Part(NamedTuple):
    """A kind of filters."""

    filters: dict[str, str]
    events: int


PARTS = {
    "indexed": Part({f"k{n}": f"line = {n % 1000} AND value > {n % 97}" for n in range(10_000)}, 200_000),
    "scanned": Part({f"k{n}": f"note LIKE '%{n:04d}%x%'" for n in range(2_000)}, 400),
}


def main() -> None:
    """Run, print a table, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=3, help="timed runs of each")
    parser.add_argument("--quick", action="store_true", help="few events, one repetition; nothing is kept")
    options = parser.parse_args()
    spark = ts.session("local[2]", app="bench_spark_elastic")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as scratch:
        for name in options.only:
            count = 400 if options.quick else PARTS[name].events
            rows += measured(spark, Path(scratch), name, count, 1 if options.quick else options.repeat)
    spark.stop()
    for row in rows:
        print(json.dumps(row))
    if not options.quick:
        record("spark_elastic", rows)
    print()
    print(summary(rows))


def measured(spark: SparkSession, scratch: Path, name: str, count: int, repeat: int) -> list[Row]:
    """All ways for one kind of filters."""
    path = scratch / name
    write_events(path, count)
    events = spark.read.parquet(str(path))
    rows: list[Row] = []
    for shards in SHARDS:
        found = _matched(events, scratch / f"{name}-{shards}", PARTS[name].filters, shards)
        pairs = found.count()  # warm
        spent = []
        for _ in range(repeat):
            with tree_stopwatch() as each:
                assert found.count() == pairs > 0
            spent.append(each)
        rows.append({"part": name, "way": shards or "plain", "events": count, "pairs": pairs} | rates(spent, count))
    assert len({row["pairs"] for row in rows}) == 1, rows
    return [row | {"loop_ns": loop_ns()} for row in rows]


def _matched(events: DataFrame, place: Path, filters: dict[str, str], shards: int | None) -> DataFrame:
    live = ts.FilterSet(place)
    live.change(put=filters)
    if shards is None:
        return ts.match(events, live)
    if shards > 1:
        live.lay_out(even(shards), instead=live.layout())
    return ts.match(events, live, shards=STILL)


def write_events(path: Path, count: int) -> None:
    """Four files, so that tasks can divide them."""
    path.mkdir()
    draw = np.random.default_rng(7)
    each = count // 4
    for number in range(4):
        columns = {
            "offset": pa.array(np.arange(number * each + 1, (number + 1) * each + 1)),
            "line": pa.array(draw.integers(0, 1_000, each)),
            "value": pa.array(draw.integers(0, 100, each).astype(float)),
            "note": pa.array([f"reading {place:04d} of box" for place in draw.integers(0, 2_000, each).tolist()]),
        }
        pq.write_table(pa.table(columns), path / f"{number}.parquet")


def summary(rows: list[Row]) -> str:
    """The table people read."""
    lines = []
    for row in rows:
        times = (
            f"{row['per_s']:,} events/s",
            f"{row['cpu_us']['median']:.1f} µs of CPU each",
            f"{row['pairs']:,} pairs",
        )
        lines.append((f"{row['part']}, {row['way']}", *times))
    return table(("what", "measured", "", ""), lines)


if __name__ == "__main__":
    main()

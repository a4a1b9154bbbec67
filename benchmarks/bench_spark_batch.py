"""How good is detection over history? `python -m benchmarks.bench_spark_batch [--quick] [--only windows_typed engines]`

`ts.detect` of a batch: millions of events in Parquet files, local[2], warm, all in one session. Types are uniform over
ten (`dense`: over two), so a fifth of the events matters; each key has one event a second on average, of 20,000 keys.
The time is that of a query that makes every column of every detection, `parts` included, and throws them away (Spark's
`noop`); `counted` is the same query, asked only how many there are. CPU seconds are the whole process tree's.

    windows_typed   SEQ BY k WITHIN 10 SECONDS in recent, k a column: window functions
    windows_json    the same, k in the payload
    windows_dense   the same, k a column, every event matters
    windows_contexts  four contexts (chronicle without WITHIN), k a column: four plans
    windows_ten     ten definitions over all types, k a column: one plan, ten times as much to do
    engines         the same SEQ in chronicle, which windows cannot tell: engines; k in the payload
    engines_where   SEQ of three with WHERE
    engines_and     AND in continuous

Goals: 1,000,000 events/s by windows; 300,000 by engines.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.common import loop_ns, rates, record, table
from benchmarks.process_tree import tree_stopwatch
from tocsin import spark as ts
from tocsin.composite.expression import CONTEXTS

Row = dict[str, Any]

PAIR = "SEQ([type = 't0'], [type = 't1']) WITHIN 10 SECONDS BY k"
KEYS = 20_000
"""Fewer where there are few events: each key has a hundred."""
FILES = 4


class Part(NamedTuple):
    """A workload."""

    definitions: Mapping[str, Any]
    types: int = 10
    has_payload: bool = False
    goal: int = 1_000_000


PARTS = {
    "windows_typed": Part({"pair": PAIR}),
    "windows_json": Part({"pair": PAIR}, has_payload=True),
    "windows_dense": Part({"pair": PAIR}, types=2),
    "windows_contexts": Part(
        {name: (PAIR if name != "chronicle" else PAIR.replace("WITHIN 10 SECONDS ", ""), name) for name in CONTEXTS}
    ),
    "windows_ten": Part({f"pair{n}": PAIR.replace("t0", f"t{n}").replace("t1", f"t{(n + 1) % 10}") for n in range(10)}),
    "engines": Part({"pair": (PAIR, "chronicle")}, has_payload=True, goal=300_000),
    "engines_where": Part(
        {
            "rise": "SEQ([type = 't0'] AS a, [type = 't1'] AS b, [type = 't2'] AS c) WITHIN 20 SECONDS BY k "
            "WHERE b.value > a.value AND c.value > b.value"
        },
        has_payload=True,
        goal=300_000,
    ),
    "engines_and": Part(
        {"both": ("AND([type = 't0'], [type = 't1']) WITHIN 10 SECONDS BY k", "continuous")},
        has_payload=True,
        goal=300_000,
    ),
}


def main() -> None:
    """Run, print a table, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="timed runs of each")
    parser.add_argument("--quick", action="store_true", help="few events; nothing is kept")
    options = parser.parse_args()
    count = 40_000 if options.quick else options.events
    spark = ts.session("local[2]", app="bench_spark_batch")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as scratch:
        for name in options.only:
            rows.append(measured(spark, Path(scratch), name, count, options.repeat))
            print(json.dumps(rows[-1]), flush=True)
            if not options.quick:  # at once: the others take long, and may be stopped
                record("spark_batch", rows[-1:])
    spark.stop()
    print()
    print(summary(rows))


def measured(spark: SparkSession, scratch: Path, name: str, count: int, repeat: int) -> Row:
    """One workload."""
    part = PARTS[name]
    path = scratch / f"{part.types}-{part.has_payload}"
    if not path.exists():
        write_events(path, count, part)
    found = ts.detect(spark.read.parquet(str(path)), part.definitions)
    way = "windows" if "Window" in found._jdf.queryExecution().toString() else "engines"
    detections = found.count()
    assert way == name.partition("_")[0] and detections > 0, (name, way, detections)
    found.write.format("noop").mode("overwrite").save()  # warm
    made, counted = [], []
    for _ in range(repeat):
        with tree_stopwatch() as spent:
            found.write.format("noop").mode("overwrite").save()
        made.append(spent)
        with tree_stopwatch() as spent:
            assert found.count() == detections
        counted.append(spent)
    row = {"part": name, "events": count, "definitions": len(part.definitions), "found": detections}
    return row | rates(made, count) | {"counted": rates(counted, count), "loop_ns": loop_ns()}


def write_events(path: Path, count: int, part: Part) -> None:
    """Files in the order of offsets: columns of the source, and `k` and `value` beside them or in the payload."""
    path.mkdir()
    draw = np.random.default_rng(7)
    each = count // FILES
    begin = 1_767_268_800_000_000  # noon, 1 January 2026
    keys = np.array([f"k{number}" for number in range(min(KEYS, count // 100))])
    kinds = np.array([f"t{number}" for number in range(part.types)])
    for number in range(FILES):
        offsets = np.arange(number * each + 1, (number + 1) * each + 1)
        own, values = keys[draw.integers(0, len(keys), each)], draw.integers(0, 100, each)
        columns = {
            "offset": pa.array(offsets),
            "arrived": pa.array(begin + offsets * 1_000_000 // len(keys), pa.timestamp("us", "UTC")),
            "id": pa.array([f"{offset:032x}" for offset in offsets.tolist()]),
            "source": pa.array(["line/7"] * each),
            "type": pa.array(kinds[draw.integers(0, part.types, each)]),
        }
        if part.has_payload:
            texts = zip(own.tolist(), values.tolist(), strict=True)
            columns["data"] = pa.array([f'{{"k":"{key}","value":{value}}}' for key, value in texts])
        else:
            columns |= {"k": pa.array(own), "value": pa.array(values.astype(float))}
        pq.write_table(pa.table(columns), path / f"{number}.parquet", row_group_size=max(1, each // 2))


def summary(rows: list[Row]) -> str:
    """The table people read."""
    lines = []
    for row in rows:
        lines.append(
            (
                row["part"],
                f"{row['per_s']:,} events/s ({PARTS[row['part']].goal:,})",
                f"{row['per_cpu_s']:,} per CPU second",
                f"counted: {row['counted']['per_s']:,}",
                f"{row['found']:,} found",
            )
        )
    return table(("what", "measured (goal)", "", "", ""), lines)


if __name__ == "__main__":
    main()

"""A pipeline on two executors that are processes of their own: `python -m tests.spark.cluster_program DIR`.

Journal → source → match → sink → journal, batch and streaming, with a live filter set and an archive, on Spark's
`local-cluster`: a master and two workers, each executor a JVM with its own Python workers. Prints what a test compares,
as JSON: executors, the process numbers of the Pythons that matched and of this driver, and the pairs found.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

EVENTS, FILTERS = 4_000, 300


def filters() -> dict[str, str]:
    """What is matched."""
    return {f"f{number}": f"n % {number + 2} = 1 AND type = 'reading'" for number in range(FILTERS)}


def main(directory: Path) -> None:
    """See the module."""
    from pyspark.sql import functions as F

    from tocsin import spark as ts

    spark = ts.session("local-cluster[2,1,1024]", app="cluster test", memory="512m")
    journal, found = f"file:{directory}/in.db", f"file:{directory}/found.db"
    events = spark.read.format("tocsin").option("url", journal).load()
    pairs = ts.match(events, filters())

    def who(batches: Any) -> Any:
        import pyarrow as pa

        for _ in batches:
            yield pa.record_batch([pa.array([os.getpid()]), pa.array([os.getppid()])], ["worker", "daemon"])

    places = events.repartition(8).mapInArrow(who, "worker LONG, daemon LONG").distinct().collect()
    batch = sorted((row["offset"], row["key"]) for row in pairs.collect())

    live = ts.FilterSet(directory / "set")
    live.change(put=filters())
    stream = spark.readStream.format("tocsin").option("url", journal).option("filters", live.path)
    matched = ts.match(stream.option("maxEventsPerTrigger", 1_000).load(), live)
    rows = matched.select(
        F.lit("match").alias("type"), F.lit("/cluster").alias("source"), F.struct("offset", "key").alias("data")
    )
    written = rows.writeStream.format("tocsin").option("url", found).option("writer", "cluster")
    query = written.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    ts.archive(journal, str(directory / "lake"), spark=spark)
    print(
        json.dumps(
            {
                "executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,  # type: ignore[union-attr]
                "driver": os.getpid(),
                "workers": sorted({row["worker"] for row in places}),
                "daemons": sorted({row["daemon"] for row in places}),
                "pairs": batch,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

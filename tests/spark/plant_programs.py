"""Programs that the crash tests start as processes of their own, and kill: `python -m tests.spark.plant_programs VERB`.

    publish DIR COUNT    store events 1 to COUNT in DIR/in.db, in order, each once, going on where it stopped
    pipeline DIR COUNT   DIR/in.db → match → DIR/out.db as a streaming query, and the archive DIR/lake beside it; ends
                         when all of COUNT events went through

Both may be killed at any moment and started again. `expected` says what must be in DIR/out.db then, by the filters
alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tocsin
from tocsin.filters.filter import Filter
from tocsin.model import Event

FILTERS = {f"above-{limit}": f"type = 'machine.value' AND value > {limit}" for limit in range(0, 100, 7)} | {
    "doors": "type LIKE 'door.%' AND badge IS NULL",
    "line": "line IN ('a', 'c') AND value < 20",
}
PER_REQUEST = 20
PAUSE = 0.15  # seconds: 4,000 events take 30 s, so that there is something left when the query has begun


def event(number: int) -> Event:
    """Event `number` of the plant: the same every time."""
    if number % 5 == 0:
        data: dict[str, object] = {"door": number % 7}
        if number % 10:
            data["badge"] = number
        return Event("door.open", "gate", f"e{number}", data=data)
    return Event(
        "machine.value",
        "plant",
        f"e{number}",
        data={"value": number * 37 % 101},
        attributes={"line": "abcd"[number % 4]},
    )


def expected(count: int) -> list[tuple[str, str]]:
    """Pairs (event id, key), by the filters themselves."""
    filters = {key: Filter(text) for key, text in FILTERS.items()}
    return sorted(
        (each.id, key)
        for each in map(event, range(1, count + 1))
        for key, filter in filters.items()
        if filter.matches(each)
    )


def publish(directory: Path, count: int) -> None:
    """See the module."""

    async def run() -> None:
        async with tocsin.connect(f"file:{directory / 'in.db'}") as bus:
            done = bus._node.head  # one event after the other: the head is the last number
            for first in range(done + 1, count + 1, PER_REQUEST):
                await bus.publish_many([event(n) for n in range(first, min(first + PER_REQUEST, count + 1))])
                await asyncio.sleep(PAUSE)

    asyncio.run(run())


def pipeline(directory: Path, count: int) -> None:
    """See the module."""
    from pyspark.sql import functions as F

    from tocsin import spark as ts
    from tocsin.journal.reader import open_reader

    spark = ts.session("local[2]")
    (directory / "ready").write_text(str(os.getpid()))
    url = f"file:{directory / 'in.db'}"
    while not (directory / "in.db").exists():
        time.sleep(0.05)
    events = spark.readStream.format("tocsin").option("url", url).option("maxEventsPerTrigger", 400).load()
    rows = ts.match(events, FILTERS).select(
        F.lit("match").alias("type"), F.lit("spark").alias("source"), F.struct("offset", "key").alias("data")
    )
    query = (
        rows.writeStream.format("tocsin")
        .option("url", f"file:{directory / 'out.db'}")
        .option("writer", "crash-test")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    (directory / "started").write_text(str(os.getpid()))
    with open_reader(directory / "in.db") as reader:
        while True:
            ts.archive(url, str(directory / "lake"), spark=spark, chunk=500)
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
            if reader.head >= count:
                break
            time.sleep(0.2)
    ts.archive(url, str(directory / "lake"), spark=spark, chunk=500)
    query.processAllAvailable()
    query.stop()
    spark.stop()


def found(directory: Path) -> Iterator[tuple[str, str]]:
    """Pairs (event id, key) as DIR/out.db has them."""
    from tocsin.journal.reader import open_reader

    with open_reader(directory / "out.db") as reader:
        for block in reader.blocks():
            for each in block.events():
                if not each.type.startswith("tocsin."):
                    yield event(each.data["offset"]).id, each.data["key"]


if __name__ == "__main__":
    verb, place, number = sys.argv[1:]
    {"publish": publish, "pipeline": pipeline}[verb](Path(place), int(number))

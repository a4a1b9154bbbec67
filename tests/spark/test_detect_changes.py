"""`ts.detect` on one checkpoint while definitions come and go; where its buckets work; and what it leaves out."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.spark.detect_cases import NOON, Run, events_in, expected
from tocsin import DefinitionError, Event
from tocsin import spark as ts
from tocsin.clock import ManualClock
from tocsin.journal.sqlite import SqliteJournal
from tocsin.spark import stateful
from tocsin.spark.given import comes_in_order
from tocsin.spark.slots import SPREAD, partition_of, slots

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

LOW = "SEQ([type = 'a'], [type = 'b']) BY machine"


class Plant:
    """A journal, and queries over it on one checkpoint."""

    def __init__(self, spark: Any, path: Path) -> None:
        self._spark, self._path, self._clock = spark, path, ManualClock(NOON)
        self.journal = path / "plant.db"

    def sees(self, definitions: Mapping[str, Any], *kinds: str) -> dict[str, Any]:
        """A query with these definitions, and events `type:machine` that come while it is there; returns its rows."""
        with SqliteJournal(self.journal, clock=self._clock, merge=False) as journal:
            for word in kinds:
                kind, _, machine = word.partition(":")
                journal.append([Event(kind, "/test", data={"machine": machine or "m1", "door": 1})])
                self._clock.advance(1)
        self.query = Run(self._spark, self.journal, self._path / "checkpoint", definitions)
        return self.query.drain().rows


# -- definitions come and go


def test_one_that_stays_goes_on_when_another_is_made_of_it(spark: Any, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path)
    assert not plant.sees({"low": LOW}, "a")
    more = {"low": LOW, "top": "SEQ(low, [type = 'z'])"}
    found = plant.sees(more, "b", "z", "a:m2")
    assert [row.type for row in found.values()] == ["low"]  # of what `low` is made of, `top` knows what came after it
    assert found.keys() == expected({"low": LOW}, events_in(plant.journal)).keys()
    assert {row.type for row in plant.sees(more, "b:m2", "z").values()} == {"low", "top"}
    assert not plant.sees({"low": LOW}, "a:m2")  # and when it goes again
    assert [row.type for row in plant.sees({"low": LOW}, "b:m2").values()] == ["low"]


def test_what_was_half_detected_does_not_come_back_after_a_run_without_it(spark: Any, tmp_path: Path) -> None:
    """In the run between nothing may count for the others: they must learn of it all the same."""
    watched = {"not_b": "NOT([type = 'a'], [type = 'b'], [type = 'c']) BY machine"}
    others: list[dict[str, Any]] = [
        {"other": "SEQ([type = 'x'], [type = 'y']) BY machine"},
        {"other": "SEQ([type = 'x'], [type = 'y'])"},
    ]
    for number, other in enumerate(others):
        (tmp_path / str(number)).mkdir()
        plant = Plant(spark, tmp_path / str(number))
        assert not plant.sees(watched, "a")
        assert not plant.sees(other, "b")
        assert not plant.sees(watched, "c")  # b came between, whoever has seen it


# -- where buckets work


def test_slots_are_where_spark_puts_them(spark: Any) -> None:
    count = SPREAD + 40
    found = slots(count)
    assert len(set(found)) == count and found[:8] == slots(8)
    assert slots(4) == (1830, 1025, 77, 85)  # for ever: state is kept under them
    for partitions in (2, 3, 4, 8, 12, 48):
        rows = spark.createDataFrame([(slot,) for slot in found], "slot INT")
        places = [row[0] for row in rows.select(F.expr(f"pmod(hash(slot), {partitions})")).collect()]
        assert places == [bucket % partitions for bucket in range(count)]
        assert places[:50] == [partition_of(slot, partitions) for slot in found[:50]]


@pytest.mark.parametrize("field", ["key", "machine"])
def test_all_tasks_work_whatever_the_field_of_by_is_called(spark: Any, tmp_path: Path, field: str) -> None:
    path = tmp_path / "plant.db"
    with SqliteJournal(path, clock=ManualClock(NOON), merge=False) as journal:
        journal.append([Event(kind, "/test", data={field: f"m{n}"}) for kind in "ab" for n in range(40)])
    events = spark.readStream.format("tocsin").option("url", f"file:{path}").load()
    found = ts.detect(events, {"pair": f"SEQ([type = 'a'], [type = 'b']) BY {field}"}, buckets=2)
    places: list[int] = []

    def keep(frame: Any, number: int) -> None:
        places.extend(row[0] for row in frame.select(F.spark_partition_id()).collect())

    writer = found.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert len(places) == 40 and set(places) == {0, 1}


# -- what is left out, and what is refused


def test_what_is_left_out_is_counted_where_one_can_see_it(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "plant.db"
    with SqliteJournal(path, clock=ManualClock(NOON), merge=False) as journal:
        journal.append([Event("a", "/test", data={"machine": "m1"}), *(Event("b", "/test") for _ in range(3))])
        journal.append([Event("b", "/test", data={"machine": "m1"})])
    events = spark.readStream.format("tocsin").option("url", f"file:{path}").load()
    twice = events.unionAll(events.where("type = 'b'"))
    writer = ts.detect(twice, {"low": LOW}).writeStream.format("memory").queryName("counted")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    told = [
        metrics
        for each in query.recentProgress
        for name, metrics in each.observedMetrics.items()
        if name.startswith(f"{stateful.METRICS}.low")
    ]
    assert (sum(row.keyless for row in told), sum(row.repeated for row in told)) == (6, 1)
    assert spark.table("counted").count() == 1


def test_in_a_stream_of_your_own_what_comes_from_below_is_late(spark: Any, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    for number, came in enumerate([[(1, "a"), (2, "x")], [(9, "x")], [(5, "b"), (9, "b")], [(10, "b"), (11, "x")]]):
        told = [{"offset": offset, "type": kind, "machine": "m1", "id": f"e{offset}"} for offset, kind in came]
        path = rows / f"{number}.json"
        path.write_text("\n".join(json.dumps(each) for each in told))
        os.utime(path, (number, number))  # Spark takes the oldest first
    given = spark.readStream.schema("offset BIGINT, type STRING, machine STRING, id STRING")
    events = given.option("maxFilesPerTrigger", 1).json(str(rows))
    events = events.selectExpr("*", "'/test' AS source", "timestamp_seconds(offset) AS arrived")
    writer = ts.detect(events, {"low": LOW}, buckets=2).writeStream.format("memory").queryName("late")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert [[part.offset for part in row.parts] for row in spark.table("late").collect()] == [[1, 10]]
    told = [row for each in query.recentProgress for row in each.observedMetrics.values()]
    assert sum(row.repeated for row in told) == 2


def test_which_streams_may_bring_rows_late(spark: Any, tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "plant.db", merge=False) as journal:
        journal.append([Event("a", "/test")])
    events = spark.readStream.format("tocsin").option("url", f"file:{tmp_path / 'plant.db'}").load()
    events.createOrReplaceTempView("plain")
    chosen = spark.table("plain").where("offset > 1").withColumn("k", F.col("offset") % 2).alias("chosen")
    assert comes_in_order(events) and comes_in_order(chosen.drop("data"))
    others = spark.readStream.schema("offset BIGINT").json(str(tmp_path))
    for each in (events.unionAll(chosen.drop("k")), events.dropDuplicates(["id"]), others):
        assert not comes_in_order(each)


def test_a_query_may_detect_the_same_in_two_ways(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "plant.db"
    with SqliteJournal(path, clock=ManualClock(NOON), merge=False) as journal:
        journal.append([Event(kind, "/test", data={"machine": "m1"}) for kind in "aab"])
    events = spark.readStream.format("tocsin").option("url", f"file:{path}").load()
    found = [ts.detect(events, {"low": LOW}, context=context) for context in ("recent", "continuous")]
    found.append(ts.detect(events.where("type != 'a' OR offset > 1"), {"low": LOW}, context="continuous"))
    writer = reduce(DataFrame.unionAll, found).writeStream.format("memory").queryName("both")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert len(query.lastProgress.observedMetrics) == 3
    assert spark.table("both").count() == 1 + 2 + 1


def test_offsets_begin_at_one(spark: Any) -> None:
    schema = "offset BIGINT, arrived TIMESTAMP, type STRING, source STRING, id STRING, extra STRING"
    rows = [(offset, NOON, kind, "/test", f"e{offset}", "x") for offset, kind in ((0, "a"), (1, "b"))]
    found = ts.detect(
        spark.createDataFrame(rows, schema), {"pair": ("A([type='a'], [type='b'], [type='c'])", "recent")}
    )
    with pytest.raises(PySparkException, match="offset of an event is 0"):
        found.collect()


def test_state_of_another_version_or_number_of_buckets_is_refused() -> None:
    kept = stateful._Kept(stateful._VERSION, 8)
    assert stateful.read_kept(msgspec.msgpack.encode(kept), 8) == kept
    with pytest.raises(DefinitionError, match="has 8 buckets of keys, and the query 4"):
        stateful.read_kept(msgspec.msgpack.encode(kept), 4)
    kept.version += 1
    with pytest.raises(DefinitionError, match="has version 2, and this program knows 1"):
        stateful.read_kept(msgspec.msgpack.encode(kept), 8)


def test_a_definition_without_by_says_that_one_task_looks_for_it(spark: Any, tmp_path: Path, caplog: Any) -> None:
    rows = spark.createDataFrame(
        [(1, NOON, "a", "/test", "e1")], "offset BIGINT, arrived TIMESTAMP, type STRING, source STRING, id STRING"
    )
    with caplog.at_level(logging.WARNING):
        ts.detect(rows, {"pair": "SEQ([type = 'a'], [type = 'b'])", "low": LOW})
    assert [record.getMessage() for record in caplog.records] == ["without BY, one task looks for pair"]

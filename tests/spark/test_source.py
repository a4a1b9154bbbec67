"""The source `tocsin` on a real Spark: what a DataFrame shows is what the journal holds, batch or stream."""

from __future__ import annotations

import base64
import json
import math
import random
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.spark.places import url_of
from tests.spark.test_sql_meaning import draw, without_nan
from tests.strategies import events as random_events
from tocsin.clock import ManualClock, as_micros
from tocsin.filters.filter import Filter
from tocsin.journal.archiver import archive
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import ENVELOPE, Event

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    # PySpark's own habits on shutdown and with pandas; nothing of ours.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAIN = "offset BIGINT, id STRING, type STRING"


# -- journals


def fill(journal: SqliteJournal, clock: ManualClock, events: list[Event], seed: int = 0) -> None:
    """Append events in commits of all sizes, seconds apart; the first half is merged now and then."""
    choose = random.Random(seed)
    half = len(events) // 2
    while events:
        size = choose.choice((1, 1, 2, 9, 60))
        journal.append(events[:size])
        events = events[size:]
        clock.advance(1)
        if len(events) > half and choose.random() < 0.1:
            journal.merge_now()


def simple(count: int, first: int = 0) -> list[Event]:
    kinds = ("machine.value", "machine.stop", "door.open", "tocsin.note")
    return [
        Event(
            kinds[number % 9 % 4],
            f"line/{number % 5}",
            f"e{number}",
            subject=None if number % 3 else f"m{number % 10}",
            priority=1 + number % 10,
            ttl=None if number % 4 else (number + 1) / 2,
            persistent=number % 6 != 0,
            correlation_id=None if number % 8 else "c",
            time=None if number % 5 else NOON + timedelta(minutes=number),
            data={"machine": f"m{number % 10}", "value": number / 2},
            attributes={"region": "eu" if number % 2 else "us", "n": number},
        )
        for number in range(first, first + count)
    ]


def make_rich(path: Path) -> Path:
    """A journal with every shape of event."""
    odd = [
        Event("t", "s", "nan", attributes={"x": math.nan, "y": -math.inf, "z": 2**63 - 1, "s": "😀", "b": True}),
        Event("t", "s", "text", data='say "é"\n', datacontenttype="text/plain; charset=utf-8"),
        Event("t", "s", "bytes", data=b"\x00\xff", datacontenttype="image/png"),
        Event("t", "s", "old", time=datetime(1969, 7, 20, 20, 17, 40, 5, tzinfo=UTC)),
        Event("t", "s", "large", data={"text": "x" * 200_000}),
        Event("tocsin.note", "s", "system", data={"a": None}),
    ]
    strange = [
        event.replace(id=f"r{number}", data=without_nan(event.data), offset=None, arrived=None)
        for number, event in enumerate(draw(random_events(), 150))
    ]
    clock = ManualClock(NOON)
    with SqliteJournal(path, clock=clock, merge=False) as journal:
        fill(journal, clock, [*odd, *strange, *simple(600)])
    return path


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nobody writes to it."""
    return make_rich(tmp_path_factory.mktemp("rich") / "plant.db")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[SqliteJournal, ManualClock, Path]]:
    """A journal of its own for a test that writes."""
    clock = ManualClock(NOON)
    with SqliteJournal(tmp_path / "live.db", clock=clock, merge=False) as journal:
        yield journal, clock, tmp_path / "live.db"


def events_in(path: Path) -> list[Event]:
    with open_reader(path) as reader:
        return [event for block in reader.blocks() for event in block.events()]


def batch(spark: Any, path: Path | str, schema: str | None = None, **options: Any) -> Any:
    reader = spark.read.format("tocsin").option("url", url_of(path)).options(**options)
    return (reader.schema(schema) if schema else reader).load()


# -- streams


class Stream:
    """A streaming query whose batches are kept, and can be waited for."""

    def __init__(self, spark: Any, path: Path, checkpoint: Path, schema: str = PLAIN, **options: Any) -> None:
        self.batches: list[list[tuple[Any, ...]]] = []
        frame = spark.readStream.format("tocsin").schema(schema).option("url", url_of(path)).options(**options).load()
        self._writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(checkpoint))

    def _keep(self, frame: Any, number: int) -> None:
        self.batches.append([tuple(row) for row in frame.collect()])

    def drain(self) -> Stream:
        """Read everything there is now and end."""
        query = self._writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
            self.progress = [each for each in query.recentProgress if each.sources]
        finally:
            query.stop()
        return self

    def follow(self) -> Any:
        """Go on until the query is stopped."""
        return self._writer.trigger(processingTime="100 milliseconds").start()

    @property
    def offsets(self) -> list[int]:
        return [row[0] for rows in self.batches for row in rows]

    @property
    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.progress[-1].sources[0].endOffset)
        return found


def until(condition: Callable[[], bool], query: Any) -> None:
    end = time.monotonic() + 120
    while not condition():
        if query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < end, query.status
        time.sleep(0.02)


def failure(call: Callable[[], Any]) -> str:
    """What the user sees when it fails."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        call()
    return str(caught.value)


# -- batch


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, float) and isinstance(expected, float) and math.isnan(found):
        return math.isnan(expected)
    return type(found) is type(expected) and bool(found == expected)


def test_a_batch_shows_what_the_journal_holds(spark: Any, rich: Path) -> None:
    events = events_in(rich)
    assert len(events) > 700
    frame = batch(spark, rich, system="true", eventsPerPartition=100)
    times = {name: f"unix_micros({name}) AS {name}" for name in ("arrived", "time")}
    rows = frame.selectExpr(*(times.get(name, name) for name in frame.columns)).collect()
    assert frame.columns == [*ENVELOPE, "attributes", "data"]
    assert [row.offset for row in sorted(rows)] == [event.offset for event in events]
    for row, event in zip(sorted(rows), events, strict=True):
        for name in ENVELOPE:
            expected = getattr(event, name)
            if isinstance(expected, datetime):
                expected = as_micros(expected)
            elif name == "ttl" and expected is not None:
                expected = float(expected)
            assert same(row[name], expected), (name, row, event)
        attributes = None if row.attributes is None else {k: v.toPython() for k, v in row.attributes.items()}
        assert (attributes is None) == (not event.attributes)
        assert attributes is None or attributes.keys() == event.attributes.keys()
        assert attributes is None or all(same(attributes[k], v) for k, v in event.attributes.items()), event
        assert (row.data is None) == (event.data is None)
        if isinstance(event.data, bytes):
            assert row.data == "data:;base64," + base64.b64encode(event.data).decode()
        else:
            assert row.data is None or same(json.loads(row.data), event.data), event


def test_system_records_come_on_request(spark: Any, rich: Path) -> None:
    events = events_in(rich)
    plain = [event.offset for event in events if not event.type.startswith("tocsin.")]
    assert 0 < len(plain) < len(events)
    assert [row.offset for row in batch(spark, rich, "offset BIGINT").sort("offset").collect()] == plain


def test_the_columns_are_the_users_choice(spark: Any, rich: Path) -> None:
    schema = "type STRING, data STRUCT<machine: STRING, value: DOUBLE>, attributes MAP<STRING, STRING>, offset BIGINT"
    frame = batch(spark, rich, schema, filter="source LIKE 'line/%' AND machine = 'm7'")
    rows = frame.sort("offset").collect()
    events = [event for event in events_in(rich) if event.offset in {row.offset for row in rows}]
    wanted = Filter("source LIKE 'line/%' AND machine = 'm7'")
    assert (
        len(rows) == sum(wanted.matches(each) and not each.type.startswith("tocsin.") for each in events_in(rich)) > 40
    )
    for row, event in zip(rows, events, strict=True):
        assert row.data.asDict() == event.data
        assert row.attributes == {"region": event.attributes["region"], "n": str(event.attributes["n"])}
    total = batch(spark, rich, "data VARIANT", filter="machine = 'm7'").selectExpr(
        "sum(try_variant_get(data, '$.value', 'double'))"
    )
    assert total.first()[0] == sum(
        event.data["value"]
        for event in events_in(rich)
        if wanted.matches(event) and not event.type.startswith("tocsin.")
    )


def test_a_range_is_read_by_as_many_tasks_as_asked(spark: Any, rich: Path) -> None:
    everything = batch(spark, rich, PLAIN, eventsPerPartition=1)
    with open_reader(rich) as reader:
        assert everything.rdd.getNumPartitions() == len(list(reader.blocks())) > 20
    assert batch(spark, rich, PLAIN).rdd.getNumPartitions() == 1


RANGES: list[tuple[dict[str, Any], Any]] = [
    ({"startingOffset": "700"}, lambda each: each.offset >= 700),
    ({"startingOffset": "earliest", "endingOffset": 20}, lambda each: each.offset <= 20),
    ({"startingOffset": "100", "endingOffset": 100}, lambda each: each.offset == 100),
    ({"startingTime": "2026-01-01T12:00:30+00:00"}, lambda each: each.arrived >= NOON + timedelta(seconds=30)),
    ({"endingTime": "2026-01-01T13:00:30+01:00"}, lambda each: each.arrived <= NOON + timedelta(seconds=30)),
    ({"startingOffset": "50", "endingOffset": 10}, lambda each: False),
]


@pytest.mark.parametrize(("options", "chosen"), RANGES)
def test_where_a_batch_begins_and_ends(spark: Any, rich: Path, options: dict[str, Any], chosen: Any) -> None:
    expected = [each.offset for each in events_in(rich) if chosen(each)]
    found = batch(spark, rich, "offset BIGINT", system="true", **options).sort("offset").collect()
    assert [row.offset for row in found] == expected
    assert len(expected) < len(events_in(rich))


def test_an_empty_journal_is_an_empty_frame(spark: Any, live: Any) -> None:
    _, _, path = live
    assert batch(spark, path).collect() == []


# -- conditions pushed down

CONDITIONS = [
    "offset > 100 AND offset <= 400",
    "offset IN (3, 500, 700) AND type IS NOT NULL",
    "offset = 77 OR id = 'e5'",
    "type = 'machine.stop'",
    "type IN ('door.open', 'machine.value', NULL) AND priority >= 7",
    "NOT type = 'machine.stop' AND source > 'line/2'",
    "type LIKE 'machine.%' AND id LIKE '%7'",
    "id LIKE '%33%' AND NOT startswith(type, 'door')",
    "subject IS NULL AND ttl > 20",
    "subject <=> 'm3'",
    "NOT (subject <=> 'm3') AND offset < 300",
    "ttl = double('NaN') OR ttl <= 100.5",
    "ttl < 100.5D AND ttl >= 0",
    "NOT persistent",
    "persistent AND ack = 'none' AND classification <> 'secret'",
    "arrived >= '2026-01-01 17:45:20' AND arrived < '2026-01-01 17:46:00'",
    "arrived > timestamp'2026-01-01 12:00:20Z' AND date(arrived) = '2026-01-01'",
    "time BETWEEN '2026-01-01 18:00:00' AND '2026-01-01 21:00:00'",
    "time IS NOT NULL AND time <> timestamp'2026-01-01 12:00:00Z'",
    "correlation_id IS NOT NULL",
    "priority NOT IN (1, 2, 3) AND offset % 3 = 0",
    "data LIKE '%m7%' AND priority = 8",
]


def test_pushing_conditions_down_changes_no_result(spark: Any, rich: Path) -> None:
    """Spark's own verdict on a copy, against ours; the session is in a zone where local times are odd."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        copy = batch(spark, rich, system="true").localCheckpoint()
        expected = pushed = None
        for number, condition in enumerate(CONDITIONS):
            said = copy.where(condition).selectExpr(f"{number} AS number", "offset")
            # Each has a load() of its own: see the next test.
            ours = batch(spark, rich, system="true", pushdown="true").where(condition)
            ours = ours.selectExpr(f"{number} AS number", "offset")
            expected = said if expected is None else expected.union(said)
            pushed = ours if pushed is None else pushed.union(ours)
        assert expected is not None and pushed is not None
        found, right = sorted(map(tuple, pushed.collect())), sorted(map(tuple, expected.collect()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found == right
    for number, condition in enumerate(CONDITIONS):
        assert 0 < sum(row[0] == number for row in found) < len(events_in(rich)), condition


def test_without_being_told_a_frame_may_be_used_with_any_condition(spark: Any, rich: Path) -> None:
    """Spark 4.3 keeps what was pushed for one use of a frame in force for the others."""
    frame = batch(spark, rich, PLAIN, system="true")
    types = [event.type for event in events_in(rich)]
    values, opens = types.count("machine.value"), types.count("door.open")
    assert len(types) > values + opens > values > opens > 0
    assert frame.where("type = 'machine.value'").count() == values
    assert frame.count() == len(types)
    both = frame.where("type = 'machine.value'").union(frame.where("type = 'door.open'"))
    assert both.count() == values + opens


def test_blocks_that_a_condition_rules_out_are_not_read(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "spoilt.db"
    with SqliteJournal(path, clock=ManualClock(NOON), merge=False) as journal:
        for kind in range(4):
            journal.append([Event(f"kind.{kind}", "s", f"{kind} {number}") for number in range(4_200)])
            journal.merge_now()
    whole = tmp_path / "whole.db"
    shutil.copy(path, whole)
    with sqlite3.connect(path) as db:  # the events of all blocks but one are gone, what is known of them is not
        db.execute("UPDATE blocks SET data = zeroblob(length(data)) WHERE first <> 8401")
    db.close()
    for condition in ("type = 'kind.2'", "offset BETWEEN 8401 AND 12600", "type LIKE 'kind.2%' AND id LIKE '2 %'"):
        pushed = batch(spark, path, PLAIN, pushdown="true", eventsPerPartition=100).where(condition)
        assert sorted(pushed.collect()) == sorted(batch(spark, whole, PLAIN).where(condition).collect())
        assert pushed.count() == 4_200
        assert pushed.rdd.getNumPartitions() == 1
    assert batch(spark, path, PLAIN, filter="type = 'kind.2'").count() == 4_200
    shown = failure(lambda: batch(spark, path, PLAIN).where("type = 'kind.2'").count())
    assert "JournalDamagedError: the block of offsets 1 to 4200 is damaged" in shown
    assert "tocsin journal check" in shown


# -- streams


def test_a_stream_in_any_batches_equals_the_batch(spark: Any, rich: Path, tmp_path: Path) -> None:
    choose = random.Random(11)
    expected = sorted(map(tuple, batch(spark, rich, PLAIN).collect()))
    assert len(expected) > 600
    for number, size in enumerate((None, choose.randrange(90, 200))):
        options = {} if size is None else {"maxEventsPerTrigger": size, "eventsPerPartition": 40}
        stream = Stream(spark, rich, tmp_path / str(number), **options).drain()
        assert sorted(row for rows in stream.batches for row in rows) == expected
        head = len(events_in(rich))
        assert len(stream.batches) == (1 if size is None else -(-head // size))
        assert all(size is None or len(rows) <= size for rows in stream.batches)
        assert stream.end == {"offset": head}


def test_a_stream_goes_on_from_its_checkpoint_while_the_journal_lives(spark: Any, live: Any, tmp_path: Path) -> None:
    journal, clock, path = live
    choose = random.Random(5)
    seen: list[int] = []
    total = 0
    for round in range(3):
        fill(journal, clock, simple(120, total), seed=round)
        total += 120
        stream = Stream(
            spark, path, tmp_path / "checkpoint", system="true", maxEventsPerTrigger=choose.randrange(40, 90)
        )
        stream.drain()
        seen += stream.offsets
        journal.trim(seen[-1] - 20)  # behind the query: none of its business
        journal.merge_now()
    assert seen == list(range(1, total + 1))
    assert journal.first > 200


def test_a_running_stream_sees_what_comes(spark: Any, live: Any, tmp_path: Path) -> None:
    journal, clock, path = live
    fill(journal, clock, simple(50))
    stream = Stream(spark, path, tmp_path / "checkpoint", system="true", startingOffset="21")
    query = stream.follow()
    try:
        until(lambda: len(stream.offsets) == 30, query)
        for number in range(4):
            fill(journal, clock, simple(30, 50 + 30 * number), seed=number)
            journal.merge_now()
            journal.trim(40)
        until(lambda: len(stream.offsets) >= 150, query)
        assert stream.offsets == list(range(21, 171))
        # Nothing comes, so no batch is made.
        batches = len(stream.batches)
        until(lambda: query.status["message"].startswith("Waiting for"), query)
        assert len(stream.batches) == batches
        assert json.loads(query.lastProgress.sources[0].latestOffset) == {"offset": 170}
    finally:
        query.stop()


def test_a_stream_filters_and_starts_where_it_is_told(spark: Any, live: Any, tmp_path: Path) -> None:
    journal, clock, path = live
    fill(journal, clock, simple(100))
    events = events_in(path)
    wanted = Filter("region = 'eu' AND value > 10")
    moment = events[60].arrived
    assert moment is not None
    found = Stream(spark, path, tmp_path / "a", filter=wanted.text, startingTime=moment.isoformat()).drain().offsets
    assert found == [
        event.offset
        for event in events
        if wanted.matches(event) and event.arrived >= moment and not event.type.startswith("tocsin.")  # type: ignore[operator]
    ]
    assert found
    latest = Stream(spark, path, tmp_path / "b", startingOffset="latest", system="true")
    query = latest.follow()
    try:
        until(lambda: query.status["message"].startswith("Waiting for"), query)
        journal.append(simple(5, 100))
        until(lambda: len(latest.offsets) >= 5, query)
    finally:
        query.stop()
    assert latest.offsets == [101, 102, 103, 104, 105]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_life_of_a_stream(spark: Any, live: Any, tmp_path: Path, seed: int) -> None:
    """Stopped anywhere and started again with other limits, while the journal grows, is merged and trimmed."""
    journal, clock, path = live
    choose = random.Random(seed)
    batches: dict[int, list[int]] = {}

    def keep(frame: Any, number: int) -> None:
        found = sorted(row.offset for row in frame.collect())
        # A batch may come again, after a stop in the middle of it; then it is the same.
        assert batches.setdefault(number, found) == found

    total = 0
    for _ in range(8):
        count = choose.randrange(1, 400)
        fill(journal, clock, simple(count, total), seed=choose.randrange(1_000))
        total += count
        options = {
            "maxEventsPerTrigger": choose.randrange(5, 200),
            "eventsPerPartition": choose.choice((1, 30, 10_000)),
        }
        frame = spark.readStream.format("tocsin").schema(PLAIN).option("url", url_of(path))
        frame = frame.options(system="true", **options).load()
        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        wanted = len(batches) + choose.randrange(1, 6)
        try:
            until(lambda: len(batches) >= wanted or sum(map(len, batches.values())) == total, query)  # noqa: B023
            journal.trim(min(batches[max(batches)], default=1))
            if choose.random() < 0.5:
                journal.merge_now()
        finally:
            query.stop()
    rest = spark.readStream.format("tocsin").schema(PLAIN).option("url", url_of(path)).option("system", "true").load()
    query = rest.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert [offset for number in sorted(batches) for offset in batches[number]] == list(range(1, total + 1))
    assert journal.first > 1


# -- gaps


def test_a_gap_in_a_stream_is_an_error_or_counted(spark: Any, live: Any, tmp_path: Path) -> None:
    journal, clock, path = live
    for number in range(10):
        journal.append(simple(10, 10 * number))
    strict = Stream(spark, path, tmp_path / "strict", maxEventsPerTrigger=20, system="true").drain()
    assert strict.offsets == list(range(1, 101))
    lenient = Stream(spark, path, tmp_path / "lenient", allowGaps="true", system="true").drain()
    assert lenient.end == {"offset": 100, "skipped": 0}
    for number in range(10, 14):
        journal.append(simple(10, 10 * number))
    journal.trim(121)
    shown = failure(lambda: Stream(spark, path, tmp_path / "strict").drain())
    assert "TrimmedError: offset 101 is no longer kept; 121 is the first that is; use allowGaps=true" in shown
    lenient.drain()
    assert lenient.offsets == [*range(1, 101), *range(121, 141)]
    assert lenient.end == {"offset": 140, "skipped": 20}
    # Whoever decides later to live with the gap may go on with the same checkpoint.
    assert Stream(spark, path, tmp_path / "strict", allowGaps="true", system="true").drain().offsets == list(
        range(121, 141)
    )


def test_a_gap_in_a_batch_is_an_error_or_a_warning(spark: Any, live: Any, caplog: pytest.LogCaptureFixture) -> None:
    journal, _, path = live
    for number in range(5):
        journal.append(simple(10, 10 * number))
    journal.trim(21)
    assert batch(spark, path, PLAIN, system="true").count() == 30
    shown = failure(lambda: batch(spark, path, PLAIN, startingOffset=11).count())
    assert "TrimmedError: offset 11 is no longer kept; 21 is the first that is; use allowGaps=true" in shown
    shown = failure(lambda: batch(spark, path, PLAIN, startingTime="2026-01-01T11:00:00Z").count())
    assert "TrimmedError: events that arrived from 2026-01-01T11:00:00Z on may no longer be kept" in shown
    assert batch(spark, path, PLAIN, startingOffset=11, allowGaps="true", system="true").count() == 30
    # The warning comes from the process in which Spark plans, which is not this one; so it is asked for here too.
    from pyspark.sql.types import LongType, StructType

    from tocsin.spark.source import TocsinSource

    options = {"url": url_of(path), "startingOffset": "11", "allowGaps": "true"}
    TocsinSource(options).reader(StructType().add("offset", LongType())).partitions()
    assert "offsets 11 to 20 are no longer kept: 10 events skipped" in caplog.text


def test_what_was_trimmed_comes_from_the_lake(spark: Any, live: Any, tmp_path: Path) -> None:
    journal, clock, path = live
    fill(journal, clock, simple(200))
    archive(journal, str(tmp_path / "lake"), chunk=50)
    fill(journal, clock, simple(50, 200))
    journal.merge_now()
    whole = sorted(map(tuple, batch(spark, path, PLAIN).collect()))
    journal.append(simple(1, 250))
    journal.trim(240)
    lake = {"lake": str(tmp_path / "lake"), "endingOffset": 250}
    if journal.first > 1:
        assert "lake=" in failure(lambda: batch(spark, path, PLAIN, startingOffset=1).count())
    assert sorted(map(tuple, batch(spark, path, PLAIN, **lake).collect())) == whole
    assert len(whole) > 150


# -- filter sets


def test_rows_carry_the_version_of_the_filter_set(spark: Any, live: Any, tmp_path: Path) -> None:
    filterset = pytest.importorskip("tocsin.spark.filterset")
    journal, _, path = live
    filters = filterset.FilterSet(tmp_path / "filters")
    first = filters.change(put={"a": "priority > 3"})
    journal.append(simple(10))
    schema = "offset BIGINT, filters BIGINT"
    options = {"filters": str(tmp_path / "filters"), "system": "true"}
    assert batch(spark, path, **options).columns[-1] == "filters"
    assert {row.filters for row in batch(spark, path, **options).collect()} == {first}
    stream = Stream(spark, path, tmp_path / "checkpoint", schema, **options)
    query = stream.follow()
    try:
        until(lambda: len(stream.offsets) == 10, query)
        second = filters.change(put={"b": "priority > 5"})
        until(lambda: query.status["message"].startswith("Waiting for"), query)
        journal.append(simple(10, 10))
        until(lambda: len(stream.offsets) == 20 and query.lastProgress.batchId == 1, query)
    finally:
        query.stop()
    assert second > first
    assert stream.batches == [
        [(offset, first) for offset in range(1, 11)],
        [(offset, second) for offset in range(11, 21)],
    ]
    # As if the second batch had not been finished: it is repeated, with the filters it had.
    for left in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        left.unlink()
    third = filters.change(remove=["a"])
    journal.append(simple(5, 20))
    again = Stream(spark, path, tmp_path / "checkpoint", schema, **options).drain()
    assert again.batches == [
        [(offset, second) for offset in range(11, 21)],
        [(offset, third) for offset in range(21, 26)],
    ]
    assert again.end == {"offset": 25, "filters": third}
    assert "without the option filters" not in failure(
        lambda: Stream(spark, path, tmp_path / "new", schema, filters=str(tmp_path / "no such set")).drain()
    )


# -- errors, as the user sees them


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, 'OptionError: the option url is missing; say which journal: .option("url", "file:plant.db")'),
        ({"url": "file:{tmp}/no.db"}, "JournalError: there is no journal at {tmp}/no.db; check the url"),
        ({"url": "file:{tmp}"}, "JournalError: {tmp} is a directory, and no lake; name the journal in it"),
        ({"url": "http://localhost:1", "patience": 0}, "NetworkError: no node answers at http://localhost:1: "),
        ({"url": "http://localhost/plant"}, "OptionError: 'http://localhost/plant' is no address of a node"),
        (
            {"url": "ws://localhost:8420"},
            "OptionError: Spark speaks HTTP, not 'ws://localhost:8420'; write http://loca",
        ),
        ({"url": "plant.db"}, "JournalError: 'plant.db' is not the url of a journal; write file:plant.db"),
        ({"url": "file:x", "startOffset": 1}, "there is no option startoffset; did you mean startingOffset?"),
        ({"url": "file:x", "filter": "type == "}, "OptionError: the option filter is no filter"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_load_says_what_is_wrong(
    spark: Any, tmp_path: Path, options: dict[str, Any], words: str, streaming: bool
) -> None:
    reader = (spark.readStream if streaming else spark.read).format("tocsin")
    reader = reader.options(**{name: str(value).format(tmp=tmp_path) for name, value in options.items()})
    assert words.format(tmp=tmp_path) in failure(reader.load)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("ofset BIGINT", "SchemaError: there is no column ofset; did you mean offset?"),
        ("machine STRING", "SchemaError: there is no column machine; there are offset, arrived, time"),
        ("filters BIGINT", "SchemaError: there is no column filters; it comes with the option filters"),
        ("offset INT", "SchemaError: the column offset cannot be INT; it is BIGINT"),
        ("type STRING COLLATE UTF8_LCASE", "SchemaError: the column type cannot be STRING COLLATE UTF8_LCASE"),
        ("subject STRING NOT NULL", "SchemaError: subject can be NULL"),
        ("data DATE", "SchemaError: "),
        ("attributes STRING", "SchemaError: "),
    ],
)
def test_a_schema_that_cannot_be_is_explained(spark: Any, rich: Path, tmp_path: Path, schema: str, words: str) -> None:
    assert words in failure(batch(spark, rich, schema).count)
    if schema.startswith(("ofset", "offset")):
        assert words in failure(Stream(spark, rich, tmp_path / "checkpoint", schema).drain)


def test_what_only_a_batch_or_a_stream_may_have(spark: Any, rich: Path, tmp_path: Path) -> None:
    shown = failure(Stream(spark, rich, tmp_path / "a", endingOffset=5).drain)
    assert "OptionError: endingOffset has no meaning for a stream" in shown
    assert "UnboundLocalError" not in shown
    assert "maxEventsPerTrigger is for streams only" in failure(batch(spark, rich, PLAIN, maxEventsPerTrigger=5).count)


def test_another_journal_behind_a_checkpoint_is_noticed(spark: Any, live: Any, tmp_path: Path) -> None:
    journal, clock, path = live
    fill(journal, clock, simple(30))
    assert len(Stream(spark, path, tmp_path / "checkpoint", system="true").drain().offsets) == 30
    with SqliteJournal(tmp_path / "other.db", clock=clock, merge=False) as other:
        other.append(simple(10))
        shown = failure(Stream(spark, tmp_path / "other.db", tmp_path / "checkpoint").drain)
    assert re.search(
        r"JournalError: the query has read up to offset 30, which lies beyond .*10; the journal was", shown
    )
    assert "beyond the end of the journal" in failure(batch(spark, path, PLAIN, startingOffset=32).count)
    assert batch(spark, path, PLAIN, startingOffset=31).count() == 0


def test_a_checkpoint_of_another_source_is_noticed(spark: Any, rich: Path, tmp_path: Path) -> None:
    offsets = tmp_path / "checkpoint" / "offsets"
    Stream(spark, rich, tmp_path / "checkpoint", maxEventsPerTrigger=700).drain()
    last = max(offsets.glob("[0-9]*"), key=lambda each: int(each.name))
    last.write_text(last.read_text().replace('{"offset"', '{"index"'))
    for left in offsets.glob(f".{last.name}.crc"):
        left.unlink()
    shown = failure(Stream(spark, rich, tmp_path / "checkpoint").drain)
    assert "JournalError: the checkpoint holds {'index'" in shown
    assert "checkpointLocation of its own" in shown

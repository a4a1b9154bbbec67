"""DataFrames into a journal: every column and payload, once and only once, all of a batch or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.processes import below
from tests.spark import sink_program
from tests.spark.http_node import Phoenix, phoenix
from tests.spark.places import opened, url_of
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event
from tocsin.spark.sink import StreamSink
from tocsin.spark.source import TocsinSource
from tocsin.spark.staging import Stage, stream_name

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


def stored(path: Path) -> list[Event]:
    with open_reader(path) as reader:
        return [event for block in reader.blocks() for event in block.events() if not event.type.startswith("tocsin.")]


def write(frame: Any, path: Path, **options: object) -> None:
    writer = frame.write.format("tocsin").mode("append").option("url", url_of(path))
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def stream(frame: Any, path: Path, writer: str, checkpoint: Path | None) -> Any:
    written = frame.writeStream.format("tocsin").option("url", url_of(path)).option("writer", writer)
    if checkpoint is not None:
        written = written.option("checkpointLocation", str(checkpoint))
    return written.trigger(availableNow=True).start()


def refusal(run: Callable[[], object]) -> str:
    """What a user is told."""
    with pytest.raises(Exception) as caught:
        run()
    return str(caught.value)


def nothing_staged(path: Path) -> bool:
    left = list(path.with_name(f"{path.name}.batches").glob("*/*"))  # at a node
    return not path.with_name(f"{path.name}.staging").exists() and not left


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


@pytest.fixture
def numbers(spark: Any, tmp_path: Path) -> Any:
    """A stream of numbers, one file to the batch; `add` adds some."""
    inside = tmp_path / "numbers"
    inside.mkdir()

    def add(*found: int) -> None:
        name = f"{len(list(inside.iterdir())):03}"
        # Under another name first: Spark must not see half a file.
        (tmp_path / name).write_text("\n".join(json.dumps({"n": n}) for n in found))
        (tmp_path / name).rename(inside / f"{name}.json")

    frame = spark.readStream.schema("n LONG").option("maxFilesPerTrigger", 1).json(str(inside))
    frame.add = add
    return frame


def events_of(frame: Any) -> Any:
    return frame.selectExpr("'number' AS type", "'test' AS source", "named_struct('n', n) AS data")


def counted(path: Path) -> Counter[int]:
    return Counter(event.data["n"] for event in stored(path))


# Columns and payloads.


def test_a_journal_copied_by_spark_is_the_same(spark: Any, tmp_path: Path, journal: Path) -> None:
    """Every column, through source and sink."""
    time = datetime(1969, 7, 20, 20, 17, 40, 5, UTC)
    rich = [
        Event("a", "s", "1", data={"a": [1, 2.5, None, "é"], "n": 2**60}, attributes={"x": 1, "y": 0.5, "b": True}),
        Event("b", "s", "2", data="<a/>", datacontenttype="application/xml", subject="pump", correlation_id="c"),
        Event("c", "s", "3", data=b"\0\xff", datacontenttype="image/png", priority=10, ttl=1.5, persistent=False),
        Event("d", "s", "4", ack="receipt", cancel="any", classification="secret", attributes={"x": float("inf")}),
        Event("e", "s", "5", data="text", time=time, attributes={"s": "t", "long": "é" * 100, "i": -(2**63)}),
    ]
    with SqliteJournal(tmp_path / "in.db") as source:
        source.append(rich)
    write(spark.read.format("tocsin").option("url", f"file:{tmp_path / 'in.db'}").load(), journal)
    copied, given = stored(journal), stored(tmp_path / "in.db")
    assert len(given) == 5 and [each.offset for each in copied] == [1, 2, 3, 4, 5]
    assert [each.replace(arrived=None) for each in copied] == [each.replace(arrived=None) for each in given]
    write(spark.read.format("tocsin").option("url", f"file:{tmp_path / 'in.db'}").load(), journal)
    assert len(stored(journal)) == 5  # their ids are known


def test_payload_columns_are_what_to_json_writes(spark: Any, tmp_path: Path, journal: Path) -> None:
    """STRUCT, MAP, ARRAY and VARIANT, with Spark's own `to_json` for the truth."""
    columns = {
        "struct": "named_struct('n', id, 'none', CAST(NULL AS INT), 't', 'é\"', 'deep', named_struct('x', id / 4))",
        "odd": "named_struct('raw', CAST('ab' AS BINARY), 'day', DATE'2026-01-02', 'sum', CAST(id AS DECIMAL(9, 2)))",
        "map": "map('a', id, 'b', CAST(NULL AS BIGINT))",
        "maps": "map('k', array(named_struct('x', id, 'y', CAST(NULL AS STRING)), NULL))",
        "array": "array(id, NULL, 7)",
        "flags": "array(true, false)",
        "any": 'parse_json(concat(\'{"a": [\', id, \', {"b": null, "c": 1.5}], "t": "é"}\'))',
        "scalar": "parse_json(CAST(id AS STRING))",
    }
    frame = spark.range(3).repartition(1)
    for name, column in columns.items():
        rows = frame.selectExpr(f"'{name}' AS type", "'s' AS source", f"{column} AS data")
        write(rows, journal)
        expected = [json.loads(row[0]) for row in rows.selectExpr("to_json(data)").collect()]
        found = [each.data for each in stored(journal) if each.type == name]
        assert found == expected and len(found) == 3, name


def test_attributes_and_other_columns(spark: Any, journal: Path) -> None:
    rows = spark.range(2).selectExpr(
        "'t' AS type",
        "'s' AS source",
        "map('v', parse_json(concat('\"', id, '\"')), 'n', parse_json('5'), 'f', parse_json('2.5')) AS attributes",
        "id AS number",
        "TIMESTAMP'2026-01-02 03:04:05Z' AS at",
        "CAST(NULL AS STRING) AS none",
    )
    assert "there is no column number" in (told := refusal(lambda: write(rows, journal))) and "extraColumns" in told
    write(rows, journal, extraColumns="attributes")
    assert sorted((each.attributes for each in stored(journal)), key=lambda each: each["number"]) == [
        {"v": str(n), "n": 5, "f": 2.5, "number": n, "at": "2026-01-02T03:04:05Z"} for n in range(2)
    ]


# Batch writes.


def test_ids_are_the_same_in_every_attempt(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(0, 20, 1, 2).selectExpr("'t' AS type", "'s' AS source", "named_struct('n', id) AS data")
    for name in ("a", "b"):
        write(rows, tmp_path / f"{name}.db", writer="load", batch=7)
    first, second = ([(each.id, each.data) for each in stored(tmp_path / f"{name}.db")] for name in ("a", "b"))
    assert first == second and len(dict(first)) == 20
    assert {id.partition("-")[2] for id, _ in first} == {f"7-{part}-{row}" for part in range(2) for row in range(10)}


def test_a_numbered_write_may_be_repeated_and_others_are_stored_anew(spark: Any, journal: Path) -> None:
    rows = spark.range(5).selectExpr("'t' AS type", "'s' AS source")
    for batch in (0, 0, 1, 1, 0):
        write(rows, journal, writer="load", batch=batch)
    assert len(stored(journal)) == 10
    write(rows, journal)
    write(rows, journal)
    assert len(stored(journal)) == len({each.id for each in stored(journal)}) == 20
    assert nothing_staged(journal)


@pytest.mark.parametrize(
    ("mode", "options", "words"),
    [
        ("overwrite", {}, "a journal cannot be overwritten"),
        ("append", {"writer": "w"}, "batch says nothing alone|writer says nothing alone"),
        ("append", {"batch": "x", "writer": "w"}, "batch is 'x'; write a whole number"),
        ("append", {"wirter": "w"}, "did you mean writer"),
        ("append", {"url": "http://localhost:1", "patience": "0"}, "no node answers at http://localhost:1"),
        ("append", {"url": "http://localhost:1", "staging": "/tmp"}, "rows wait at the node"),
        ("append", {"url": "memory:"}, "cannot be seen by Spark's processes"),
    ],
)
def test_options_are_checked(spark: Any, journal: Path, mode: str, options: dict[str, str], words: str) -> None:
    rows = spark.range(1).selectExpr("'t' AS type", "'s' AS source")
    writer = rows.write.format("tocsin").mode(mode).options(**{"url": f"file:{journal}", **options})
    told = refusal(writer.save)
    assert any(each in told for each in words.split("|")), told
    assert not journal.exists()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("IF(id = 13, NULL, 't') AS type",), ("type is None", "give text", "row 4 of partition 1")),
        (("'t' AS type", "IF(id = 3, 11, 5) AS priority"), ("priority is 11", "from 1 to 10", "row 4 of partition 0")),
        (("'t' AS type", "IF(id = 13, '{', '1') AS data"), ("data is '{'", "to_json")),
        (("'t' AS type", "named_struct('x', DOUBLE('NaN')) AS data"), ("data.x is nan", "row 1 of partition")),
        (("'t' AS type", "repeat('x', 2000000) AS subject"), ("subject has 2000000 characters",)),
        (("'t' AS type", "array(repeat('x', 2000000)) AS data"), ("data has 2,000,004 bytes",)),
        (("'t' AS type", "'high' AS priority"), ("priority is string", "CAST it AS INT")),
        (("'t' AS type", "id AS machine"), ("no column machine",)),
        (("'t' AS typ",), ("no column type",)),
    ],
)
def test_bad_rows_fail_the_write_in_words_and_store_nothing(
    spark: Any, journal: Path, columns: tuple[str, ...], words: tuple[str, ...]
) -> None:
    rows = spark.range(0, 20, 1, 2).selectExpr("'s' AS source", *columns)
    told = refusal(lambda: write(rows, journal))
    for each in words:
        assert each in told
    assert not journal.exists() and nothing_staged(journal)


def test_a_journal_that_is_held_is_told(spark: Any, journal: Path) -> None:
    rows = spark.range(1).selectExpr("'t' AS type", "'s' AS source")
    with SqliteJournal(journal):
        told = refusal(lambda: write(rows, journal))
        assert f"process {os.getpid()}" in told and "close it while this query runs" in told
    assert nothing_staged(journal)
    write(rows, journal)
    assert len(stored(journal)) == 1


# Streams.


def test_a_stream_stores_each_row_once_through_restarts(numbers: Any, tmp_path: Path, journal: Path) -> None:
    everything: list[int] = []
    for life in range(3):
        for _ in range(2):
            more = list(range(len(everything), len(everything) + 10))
            everything += more
            numbers.add(*more)
        query = stream(events_of(numbers), journal, "w", tmp_path / "checkpoint")
        query.awaitTermination()
        assert counted(journal) == Counter(everything), life
    assert len({each.id for each in stored(journal)}) == 60 and nothing_staged(journal)
    with opened(journal) as held:
        about = json.loads((tmp_path / "checkpoint" / "metadata").read_text())
        assert held.state("sink/") == {"sink/w": about["id"].encode()}


def test_a_batch_that_spark_forgot_is_not_stored_twice(numbers: Any, tmp_path: Path, journal: Path) -> None:
    """Its commit log is what is missing after a crash between the two commits."""
    for first in (0, 10):
        numbers.add(*range(first, first + 10))
    stream(events_of(numbers), journal, "w", tmp_path / "checkpoint").awaitTermination()
    before = stored(journal)
    for name in ("commits/1", "commits/.1.crc"):
        (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
    with opened(journal) as held:
        held.append([Event("other", "s", f"o{n}") for n in range(50)])
    other = events_of(numbers.selectExpr("n + 1000 AS n"))  # its rows come out differently
    stream(other, journal, "w", tmp_path / "checkpoint").awaitTermination()
    assert [each for each in stored(journal) if each.type == "number"] == before and len(before) == 20
    numbers.add(7)
    stream(other, journal, "w", tmp_path / "checkpoint").awaitTermination()
    assert stored(journal)[-1].data == {"n": 1007} and len(stored(journal)) == 71


def test_a_commit_whose_process_dies_is_not_stored_twice(
    spark: Any, numbers: Any, tmp_path: Path, journal: Path
) -> None:
    """It has appended, and Spark hears of a failure."""
    died = tmp_path / "died"

    class Dying(StreamSink):
        def commit(self, messages: Any, batchId: int) -> None:
            super().commit(messages, batchId)
            if batchId == 1 and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    class DyingSource(TocsinSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            sink = super().streamWriter(schema, overwrite)
            sink.__class__ = Dying
            return sink

    for number in range(3):
        numbers.add(number)
    spark.dataSource.register(DyingSource)
    try:
        told = refusal(stream(events_of(numbers), journal, "w", tmp_path / "checkpoint").awaitTermination)
    finally:
        spark.dataSource.register(TocsinSource)
    assert died.exists() and "Python worker exited" in told and counted(journal).total() == 2
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists()
    stream(events_of(numbers), journal, "w", tmp_path / "checkpoint").awaitTermination()
    assert counted(journal) == Counter([0, 1, 2]) and nothing_staged(journal)


def test_a_new_checkpoint_under_an_old_name_is_refused(numbers: Any, tmp_path: Path, journal: Path) -> None:
    numbers.add(1, 2)
    stream(events_of(numbers), journal, "w", tmp_path / "checkpoint").awaitTermination()
    query = stream(events_of(numbers), journal, "w", tmp_path / "another")
    told = refusal(query.awaitTermination)
    assert "the writer 'w' belongs to the query" in told and "give this query a writer of its own" in told
    assert counted(journal) == Counter([1, 2]) and nothing_staged(journal)
    stream(events_of(numbers), journal, "v", tmp_path / "another").awaitTermination()
    assert counted(journal) == Counter([1, 2, 1, 2])


def test_the_checkpoint_may_come_from_the_session(spark: Any, numbers: Any, tmp_path: Path, journal: Path) -> None:
    numbers.add(1, 2)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        stream(events_of(numbers), journal, "w", None).awaitTermination()
        told = refusal(
            stream(events_of(numbers), journal, "w", None).awaitTermination
        )  # Spark makes a new one each time
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert "belongs to the query" in told and counted(journal) == Counter([1, 2])


def test_a_stream_needs_a_writer_and_good_rows(numbers: Any, tmp_path: Path, journal: Path) -> None:
    numbers.add(1, 2)
    rows = numbers.selectExpr("'t' AS type", "'s' AS source", "CAST(n + 9 AS INT) AS priority")
    nameless = rows.writeStream.format("tocsin").option("url", f"file:{journal}")
    told = refusal(lambda: nameless.option("checkpointLocation", str(tmp_path / "c")).start().processAllAvailable())
    assert "option writer is missing" in told
    told = refusal(stream(rows, journal, "w", tmp_path / "checkpoint").awaitTermination)
    assert "priority is 11" in told and "row 2 of partition 0" in told
    assert not journal.exists() and nothing_staged(journal)
    mended = rows.withColumn("priority", rows.priority - 1)
    stream(mended, journal, "w", tmp_path / "checkpoint").awaitTermination()
    assert [each.priority for each in stored(journal)] == [9, 10]


def test_two_queries_write_to_one_journal(numbers: Any, tmp_path: Path, journal: Path) -> None:
    for number in range(5):
        numbers.add(number)
    queries = [stream(events_of(numbers), journal, name, tmp_path / name) for name in ("one", "two")]
    for query in queries:
        query.awaitTermination()
    assert counted(journal) == Counter({number: 2 for number in range(5)}) and nothing_staged(journal)
    with opened(journal) as held:
        assert [held.publisher(offset) for offset in range(1, 11)].count("one") == 5
        assert len(held.state("sink/")) == 2


def test_foreach_batch_may_number_its_writes(spark: Any, numbers: Any, tmp_path: Path, journal: Path) -> None:
    def publish(frame: Any, batch: int) -> None:
        for _ in range(2):  # as a repeated batch would
            write(events_of(frame), journal, writer="each", batch=batch)

    def run(checkpoint: str) -> None:
        query = numbers.writeStream.foreachBatch(publish).option("checkpointLocation", str(tmp_path / checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    for number in range(3):
        numbers.add(number)
    run("one")
    assert counted(journal) == Counter(range(3))
    assert "belongs to the query" in refusal(lambda: run("two"))
    assert counted(journal) == Counter(range(3))


# A driver that dies.


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("through_node", [False, True], ids=["file", "node"])
def test_a_driver_killed_between_the_two_commits(spark: Any, tmp_path: Path, through_node: bool) -> None:
    """Real processes: attempts fail and are killed, then the driver is, after the append and before Spark's own log."""
    with contextlib.ExitStack() as stack:
        if through_node:
            node = stack.enter_context(phoenix(tmp_path / "out.db"))
            (tmp_path / "url").write_text(node.url)
            stack.callback(lambda: pytest.fail("the node was not killed") if not node.deaths else None)
        kill_driver(spark, tmp_path, node if through_node else None)


def kill_driver(spark: Any, tmp_path: Path, node: Phoenix | None) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text(sink_program.numbers(number))
        os.utime(tmp_path / "in" / f"{number}.json", (number, number))  # their order for Spark
    journal, batch = tmp_path / "out.db", sink_program.PER_FILE
    log = (tmp_path / "log").open("wb")
    command = [sys.executable, "-m", "tests.spark.sink_program", str(tmp_path)]
    driver = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        until = time.monotonic() + 240
        while not (tmp_path / "appended").exists():
            assert driver.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.05)
    finally:
        for process in (driver.pid, *below(driver.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        driver.wait()
        log.close()
    for partition in ("0", "1"):
        assert f"{partition}-" in (tmp_path / f"trouble-{partition}").read_text()  # a file was there when it came
    assert counted(journal) == Counter(range(2 * batch)) and nothing_staged(journal)
    commits = {path.name for path in (tmp_path / "checkpoint" / "commits").iterdir()}
    assert "0" in commits and "1" not in commits

    # What it would have left had it died while staging, and input that reads differently the second time.
    if node is not None:
        node.kill()
    left = [
        Stage(f"{journal}.staging", whose).place
        for whose in (stream_name(f"file:{journal}", "program"), f"job-{driver.pid}-ab-{socket.gethostname()}")
    ]
    for place in left if node is None else ():
        place.mkdir(parents=True)
        (place / "0-ab.rows").write_bytes(b"some rows")
    before = stored(journal)
    (tmp_path / "in" / "1.json").write_text(sink_program.numbers(7))
    os.utime(tmp_path / "in" / "1.json", (1, 1))
    (tmp_path / "in" / "2.json").write_text(sink_program.numbers(2))
    query = sink_program.start(sink_program.rows(spark, tmp_path), tmp_path, "tocsin")
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert stored(journal)[: len(before)] == before
    assert counted(journal) == Counter(range(3 * batch))
    assert nothing_staged(journal)

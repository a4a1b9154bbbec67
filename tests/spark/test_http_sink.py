"""The sink through a running node: what the file's own tests ask, and what a network, tokens and a live node add."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import test_sink as by_file
from tests.spark.http_node import phoenix
from tests.spark.places import Served, as_with_a_file, at_node
from tests.spark.test_sink import counted, events_of, nothing_staged, refusal, stored, write
from tests.spark.test_source import Stream, until
from tocsin.security.tokens import TokenStore
from tocsin.spark.sink import StreamSink
from tocsin.spark.source import TocsinSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

numbers = by_file.numbers
SHARED = [
    by_file.test_a_journal_copied_by_spark_is_the_same,
    by_file.test_a_numbered_write_may_be_repeated_and_others_are_stored_anew,
    by_file.test_a_stream_stores_each_row_once_through_restarts,
    by_file.test_a_batch_that_spark_forgot_is_not_stored_twice,
    by_file.test_a_commit_whose_process_dies_is_not_stored_twice,
    by_file.test_a_new_checkpoint_under_an_old_name_is_refused,
]
SLOW = [by_file.test_two_queries_write_to_one_journal, by_file.test_foreach_batch_may_number_its_writes]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Served]:
    with at_node(tmp_path / "out.db") as found:
        yield found


@pytest.fixture
def journal(tmp_path: Path, node: Served) -> Path:
    return tmp_path / "out.db"


test_as_with_a_file = as_with_a_file(SHARED, SLOW)


def test_bad_rows_fail_the_write_and_store_nothing(spark: Any, node: Served, journal: Path) -> None:
    for columns, words in (
        (("IF(id = 13, NULL, 't') AS type",), ("type is None", "row 4 of partition 1")),
        (("IF(id = 13, 'tocsin.own', 't') AS type",), ("type is 'tocsin.own', which is the node's own",)),
        (("'t' AS type", "array(repeat('x', 2000000)) AS data"), ("data has 2,000,004 bytes",)),
    ):
        rows = spark.range(0, 20, 1, 2).selectExpr("'s' AS source", *columns)
        told = refusal(lambda rows=rows: write(rows, journal))
        for each in words:
            assert each in told
        assert stored(journal) == [] and nothing_staged(journal)


def test_a_token_publishes_what_it_may(spark: Any, tmp_path: Path) -> None:
    tokens = TokenStore(tmp_path / "tokens.json")
    token = tokens.add("line", ["publish:machine."])[0]
    path = tmp_path / "guarded.db"
    with at_node(path, tokens=tokens) as node:
        rows = spark.range(0, 20, 1, 2).selectExpr("'s' AS source", "IF(id < 15, 'machine.x', 'door.open') AS type")
        told = refusal(lambda: write(rows, path, token=token))
        assert "ForbiddenError" in told and "your token has no right to publish:door.open" in told and token not in told
        told = refusal(lambda: write(rows, path))
        assert "UnauthorizedError" in told and "a token is needed here; give the option token" in told
        assert stored(path) == [] and nothing_staged(path)
        write(rows.where("type = 'machine.x'"), path, token=token)
        assert len(stored(path)) == 15 and node.journal.publisher(node.journal.head) == "line"


def test_a_large_batch_is_one_and_subscribers_hear_of_it(spark: Any, node: Served, journal: Path) -> None:
    """Many parts from several tasks, all in one commit of the journal; executors send them, not the driver."""
    sub = node.run(node.place.bus.subscribe("n % 10000 = 0", order="journal"))
    rows = spark.range(0, 40_000, 1, 4).selectExpr("'t' AS type", "'s' AS source", "named_struct('n', id) AS data")
    commits = node.journal.stats()["commits"]
    write(rows, journal, writer="load", batch=0)
    assert node.count("PUT", "/batches/{name}/{id}") >= 12 and node.count("POST", "/batches/{name}") == 1
    assert node.journal.stats()["commits"] - commits <= 2, "the batch is one; the other saves a consumer"
    found = [node.run(sub.next(timeout=30)).event for _ in range(4)]
    assert [(each.offset, each.data["n"]) for each in found] == [(n + 1, n) for n in range(0, 40_000, 10_000)]
    assert [each.data["n"] for each in stored(journal)] == list(range(40_000))


# Kill -9.


def test_a_node_killed_at_every_stage_stores_each_batch_once(spark: Any, numbers: Any, tmp_path: Path) -> None:
    """Before a batch is committed, after it, before it is answered, and between staging and storing."""
    path = tmp_path / "out.db"
    for first in range(0, 50, 10):
        numbers.add(*range(first, first + 10))
    lives = (("before-commit", 1), ("after-commit", 1), ("before-answer", 1))
    killed = tmp_path / "killed"

    class Killing(StreamSink):
        def commit(self, messages: Any, batchId: int) -> None:
            if batchId == 4 and not killed.exists():
                killed.touch()  # the test sees it, kills the node, and says so
                end = time.monotonic() + 60
                while killed.exists():
                    assert time.monotonic() < end
                    time.sleep(0.02)
            super().commit(messages, batchId)

    class KillingSource(TocsinSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            sink = super().streamWriter(schema, overwrite)
            sink.__class__ = Killing
            return sink

    spark.dataSource.register(KillingSource)
    try:
        with phoenix(path, *lives) as node:
            written = events_of(numbers).writeStream.format("tocsin").option("url", node.url).option("writer", "w")
            query = (
                written.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            )
            until(lambda: killed.exists() or not query.isActive, query)
            assert len(list((tmp_path / "out.db.batches").glob("*/*/*"))) >= 1, "it is staged"
            deaths = node.deaths
            node.kill()
            until(lambda: node.deaths > deaths, query)
            killed.rename(tmp_path / "done")
            assert query.awaitTermination(120)
            assert node.deaths == 4
    finally:
        spark.dataSource.register(TocsinSource)
    assert counted(path) == Counter(range(50)) and nothing_staged(path)
    assert len({each.id for each in stored(path)}) == 50


def test_a_node_killed_under_a_running_stream_is_read_on(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "plant.db"
    rows = spark.range(0, 300, 1, 1).selectExpr("'t' AS type", "'s' AS source", "named_struct('n', id) AS data")

    def publish(batch: int) -> None:
        written = rows.write.format("tocsin").mode("append").option("url", node.url)
        written.option("writer", "w").option("batch", batch).save()

    with phoenix(path) as node:
        publish(0)
        seen = Stream(
            spark, path, tmp_path / "checkpoint", url=node.url, eventsPerPartition=50, maxEventsPerTrigger=100
        )
        query = seen.follow()
        try:
            for batch in (1, 2):
                until(lambda batch=batch: len(seen.offsets) >= 300 * batch - 150, query)
                node.kill()
                publish(batch)
            until(lambda: len(seen.offsets) >= 900, query)
        finally:
            query.stop()
        assert seen.offsets == list(range(1, 901)) and node.deaths == 2

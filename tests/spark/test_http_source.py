"""The source at a node's address: what the file's own tests ask of a file, and what a network adds to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import test_source as by_file
from tests.spark.places import as_with_a_file, at_node
from tests.spark.test_source import PLAIN, RANGES, Stream, batch, events_in, failure, simple
from tocsin.clock import ManualClock
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event
from tocsin.security.tokens import TokenStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SHARED = [
    by_file.test_a_batch_shows_what_the_journal_holds,
    by_file.test_system_records_come_on_request,
    by_file.test_the_columns_are_the_users_choice,
    by_file.test_an_empty_journal_is_an_empty_frame,
    by_file.test_a_stream_in_any_batches_equals_the_batch,
    by_file.test_a_running_stream_sees_what_comes,
    by_file.test_a_stream_filters_and_starts_where_it_is_told,
    by_file.test_a_gap_in_a_stream_is_an_error_or_counted,
    by_file.test_a_gap_in_a_batch_is_an_error_or_a_warning,
    by_file.test_what_was_trimmed_comes_from_the_lake,
]
SLOW = [
    by_file.test_a_stream_goes_on_from_its_checkpoint_while_the_journal_lives,
    by_file.test_another_journal_behind_a_checkpoint_is_noticed,
    by_file.test_pushing_conditions_down_changes_no_result,
    by_file.test_rows_carry_the_version_of_the_filter_set,
]


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = by_file.make_rich(tmp_path_factory.mktemp("rich") / "plant.db")
    with at_node(path):
        yield path


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[SqliteJournal, ManualClock, Path]]:
    with at_node(tmp_path / "live.db") as node:
        yield node.journal, ManualClock(), tmp_path / "live.db"  # the clock is nobody's: the node's goes by itself


test_as_with_a_file = as_with_a_file(SHARED, SLOW)


def test_ranges_are_those_of_a_file(spark: Any, rich: Path) -> None:
    for options, chosen in RANGES:
        expected = [each.offset for each in events_in(rich) if chosen(each)]
        found = batch(spark, rich, "offset BIGINT", system="true", **options).collect()
        assert sorted(row.offset for row in found) == expected, options


def test_tasks_share_the_reading(spark: Any, tmp_path: Path) -> None:
    """Each asks the node for its own part; the driver asks for none."""
    with at_node(tmp_path / "plant.db") as node:
        node.journal.append([Event("t", "s", str(n), data={"text": "x" * 1_000}) for n in range(5_000)])
        frame = batch(spark, tmp_path / "plant.db", "offset BIGINT, data STRING", eventsPerPartition=1_000)
        assert frame.rdd.getNumPartitions() == 5
        before = node.count("GET", "/events")
        conf = spark.sparkContext._jsc.sc().conf()
        conf.set("spark.driver.maxResultSize", "64k")  # were the rows on the driver, they would be too many
        try:
            found = frame.selectExpr("spark_partition_id() AS task", "offset", "length(data) AS size")
            counts = found.groupBy("task").agg({"offset": "count", "size": "min"}).collect()
        finally:
            conf.remove("spark.driver.maxResultSize")
        assert sorted((row["task"], row["count(offset)"]) for row in counts) == [(n, 1_000) for n in range(5)]
        assert min(row["min(size)"] for row in counts) > 1_000
        assert node.count("GET", "/events") - before >= 5


def test_the_filter_is_asked_at_the_node(spark: Any, tmp_path: Path) -> None:
    """Blocks that it rules out are not even read there: here they could not be."""
    path = tmp_path / "spoilt.db"
    with SqliteJournal(path, merge=False) as journal:
        for kind in range(3):
            journal.append([Event(f"kind.{kind}", "s", f"{kind} {number}") for number in range(4_200)])
            journal.merge_now()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE blocks SET data = zeroblob(length(data)) WHERE first <> 4201")
    db.close()
    with at_node(path):
        assert batch(spark, path, PLAIN, filter="type = 'kind.1'").count() == 4_200
        pushed = batch(spark, path, PLAIN, pushdown="true", eventsPerPartition=1_000)
        assert pushed.where("type = 'kind.1' AND id LIKE '1 %'").count() == 4_200
        long = " OR ".join(f"id = '1 {number:09}'" for number in range(900))  # too long for a url: asked here
        within = batch(
            spark, path, PLAIN, filter=f"({long}) AND type = 'kind.1'", startingOffset=4201, endingOffset=8400
        )
        assert within.count() == 0
        shown = failure(lambda: batch(spark, path, PLAIN).count())
        assert "JournalDamagedError: the block of offsets 1 to 4200 is damaged" in shown


def test_a_token_bounds_what_is_read(spark: Any, tmp_path: Path) -> None:
    tokens = TokenStore(tmp_path / "tokens.json")
    some = tokens.add("some", ["subscribe:machine."])[0]
    cleared = tokens.add("cleared", ["subscribe:machine."], clearance="secret")[0]
    admin = tokens.add("admin", ["admin"], clearance="secret")[0]
    blind = tokens.add("blind", ["publish:*"])[0]
    path = tmp_path / "plant.db"
    with at_node(path, tokens=tokens) as node:
        events = [
            each.replace(classification="secret" if n % 7 == 0 else "unclassified")
            for n, each in enumerate(simple(200))
        ]
        node.journal.append(events)
        mine = [(n, each) for n, each in enumerate(events, 1) if each.type.startswith("machine.")]
        seen = [n for n, each in mine if each.classification == "unclassified"]
        assert 0 < len(seen) < len(mine) < 200

        def read(token: str, **options: Any) -> list[int]:
            rows = batch(spark, path, "offset BIGINT", token=token, eventsPerPartition=50, **options).collect()
            return sorted(row.offset for row in rows)

        assert read(some, system="true") == seen
        assert read(cleared) == [n for n, _ in mine]
        assert len(read(admin, system="true")) >= 200
        assert Stream(spark, path, tmp_path / "stream", token=some, maxEventsPerTrigger=70).drain().offsets == seen
        for token, words in ((blind, "ForbiddenError"), ("toc_x_y", "UnauthorizedError")):
            shown = failure(lambda token=token: batch(spark, path, token=token))
            assert f"{words}: {node.url}: " in shown, shown
        shown = failure(lambda: batch(spark, path))
        assert "UnauthorizedError" in shown and "a token is needed here; give the option token" in shown
        assert some not in shown


def test_a_node_that_is_away_is_waited_for_and_then_named(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "plant.db"
    with at_node(path) as node:
        node.journal.append(simple(10))
        url = node.url
        frame = batch(spark, path, PLAIN, patience=1)
    shown = failure(frame.count)
    assert f"NetworkError: no node answers at {url}: " in shown
    assert "start it (tocsin up), or check the url" in shown and "patience" in shown

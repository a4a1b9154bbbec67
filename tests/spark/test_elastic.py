"""Elastic matchers on a real Spark: shards that split and merge while a query runs, and a matcher that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.test_match import plain_frame, plain_pairs, plain_rows
from tocsin import Event, Filter, Matcher, MatcherError
from tocsin import spark as ts
from tocsin.spark import balancing, elastic, filterset
from tocsin.spark.filterset import FilterSet
from tocsin.spark.shards import Layout, Shard, even

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Pair = tuple[int, str]
GROW = ts.Elastic(split=1e-9, merge=0, window=2, most=4)
SHRINK = ts.Elastic(split=1000, merge=500, window=2, most=4)


class Plant:
    """A journal, a live filter set, a query that may be started again, and what should be found."""

    def __init__(self, spark: Any, directory: Path) -> None:
        from tocsin.journal.sqlite import SqliteJournal

        self._spark, self._directory = spark, directory
        self.journal = SqliteJournal(str(directory / "plant.db"))
        self.filters = FilterSet(directory / "filters")
        self.filters.change(put={f"k{n}": f"value % {n + 2} = {n % 2} AND NOT line = {n % 5}" for n in range(40)})
        self.batches: dict[int, list[tuple[int, str, int]]] = {}
        self.wanted: Counter[Pair] = Counter()
        self.query: Any = None
        self._parsed: dict[str, Filter] = {}

    def start(self, policy: ts.Elastic) -> None:
        from pyspark.sql import functions as F

        def keep(found: Any, batch: int) -> None:  # a batch that is repeated takes the place of what it was
            rows = found.select("offset", "key", F.spark_partition_id().alias("place")).collect()
            self.batches[batch] = [tuple(row) for row in rows]

        source = self._spark.readStream.format("tocsin").option("url", f"file:{self._directory / 'plant.db'}")
        events = source.option("filters", self.filters.path).option("startingOffset", "earliest").load()
        matched = ts.match(events, self.filters, shards=policy).writeStream.foreachBatch(keep)
        self.query = matched.option("checkpointLocation", str(self._directory / "checkpoint")).start()

    def publish(self, draw: random.Random, count: int = 40) -> None:
        """More events; what they should find is what the filters say at this moment."""
        events = [
            Event("reading", "/line", data={"value": draw.randrange(1000), "line": draw.randrange(5)})
            for _ in range(count)
        ]
        texts = self.filters.filters()
        known = {str(key): self._parsed.setdefault(text, Filter(text)) for key, text in texts.items()}
        for event, offset in zip(events, self.journal.append(events), strict=True):
            self.wanted.update((offset, key) for key, each in known.items() if each.matches(event))

    @property
    def found(self) -> Counter[Pair]:
        return Counter((offset, key) for rows in self.batches.values() for offset, key, _ in rows)

    def version_of(self, batch: int) -> int:
        """With which version of the set a batch was planned."""
        written = (self._directory / "checkpoint" / "offsets" / str(batch)).read_text()
        return int(json.loads(written.splitlines()[2])["filters"])

    def close(self) -> None:
        if self.query is not None:
            self.query.stop()
        self.journal.close()


@pytest.fixture
def plant(spark: Any, tmp_path: Path) -> Iterator[Plant]:
    made = Plant(spark, tmp_path)
    yield made
    made.close()


def test_shards_split_and_merge_by_what_tasks_measure(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """One, two, four, and back; each event meets each filter once, and the driver matches nothing."""
    draw = random.Random(1)
    monkeypatch.setattr(elastic, "HELPED", 1e9)  # forty filters are no work, so dividing them is no help
    for name in ("match_pairs", "match_batch", "match"):
        monkeypatch.setattr(Matcher, name, lambda *_: pytest.fail("the driver was asked to match"))
    sizes = []
    for policy in (GROW, SHRINK):
        plant.start(policy)
        for _ in range(5):
            plant.publish(draw)
            plant.query.processAllAvailable()
            balancing.settle(plant.filters)  # else the next batch would
            sizes.append(len(plant.filters.layout()))
        plant.query.stop()
    assert sizes == [1, 2, 2, 4, 4, 4, 2, 2, 1, 1]
    assert plant.found == plant.wanted
    assert len(plant.wanted) > 1000
    for batch, rows in plant.batches.items():  # a shard is a task, by the layout of the batch's version
        layout = plant.filters.layout(plant.version_of(batch))
        assert {place for _, _, place in rows} == set(range(len(layout)))
        assert all(layout.shard_of(key) == place for _, key, place in rows)
    said = elastic.status(plant.filters.path)
    assert (said.splits, said.merges, len(said.shards), said.policy) == (0, 3, 1, SHRINK)
    (shard,) = said.shards
    assert (shard.name, shard.filters, shard.events) == ("0 of 1", 40, 40)
    assert all(0 < seconds < 60 for seconds in shard.seconds)


@pytest.mark.crash
def test_random_splits_and_merges_and_killed_matchers(spark: Any, plant: Plant) -> None:
    """Scenario 47: what a dead matcher held is in the set. Filters and shards change, Pythons die at any moment."""
    draw = random.Random(4)
    still = ts.Elastic(split=1e6, merge=0, most=4)
    done: Counter[str] = Counter()
    plant.start(still)
    for turn in range(14):
        layout = plant.filters.layout()
        wholes = [w for each in layout.shards if (w := each.whole) and {*(w.halves or ())} <= {*layout.shards}]
        what = "split" if turn < 2 else draw.choice(["split", "merge", "change"])
        if what == "split" and len(layout) < 6:  # more than there are tasks, sometimes
            plant.filters.lay_out(layout.split(draw.choice(layout.shards)), instead=layout)
        elif what == "merge" and wholes:
            plant.filters.lay_out(layout.merge(draw.choice(wholes)), instead=layout)
        else:
            what = "change"
            plant.filters.change(put={f"k{draw.randrange(60)}": f"value < {draw.randrange(500)}"}, remove=[f"k{turn}"])
        done[what] += 1
        victims = matchers(spark, plant.filters) if turn % 3 == 2 else []
        if victims:
            timer = threading.Timer(draw.uniform(0, 0.3), kill, [draw.choice(victims), done])
            timer.start()
        plant.publish(draw)
        try:
            plant.query.processAllAvailable()
        except Exception as error:  # on this machine a task has one try; a cluster repeats it
            assert "Python worker" in str(error) or "Connection reset" in str(error), error
            done["begun again"] += 1
            plant.query.stop()
            plant.start(still)
            plant.query.processAllAvailable()
        if victims:
            timer.join()
    assert plant.found == plant.wanted
    assert len(plant.wanted) > 1000
    assert done["killed"] >= 2
    assert min(done["split"], done["merge"], done["change"]) >= 2


def matchers(spark: Any, filters: FilterSet) -> list[int]:
    """The processes that hold filters of this set."""
    path = filters.path

    def look(batches: Any) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # a Python that leaves something unread is not used again
            pass
        if any(place == path for place, _ in filterset._held):
            yield pa.record_batch({"pid": [os.getpid()]})

    return [row["pid"] for row in spark.range(4).repartition(4).mapInArrow(look, "pid BIGINT").distinct().collect()]


def kill(process: int, done: Counter[str]) -> None:
    with contextlib.suppress(ProcessLookupError):  # Spark may have ended it before us
        os.kill(process, signal.SIGKILL)
        done["killed"] += 1


def test_a_batch_follows_the_layout_of_its_version(spark: Any, tmp_path: Path) -> None:
    """Rows of several versions in one DataFrame, each with its own shards; and a DataFrame without versions."""
    filters = FilterSet(tmp_path / "filters")
    filters.change(put={f"k{n}": f"a0 = {n} OR a1 > {n + 20}" for n in range(25)})
    filters.lay_out(even(3), instead=Layout())
    filters.change(put={"s": "s = 'v1'"}, remove=["k3"])
    filters.lay_out(even(3).split(Shard(3, 2)), instead=even(3))
    rows = plain_rows(200)
    frame = plain_frame(spark, rows).selectExpr("*", "CAST(offset % 4 + 1 AS INT) AS filters").repartition(2)
    texts: list[dict[Any, str]] = [filters.filters(version) for version in range(1, 5)]
    report = ts.MatchReport()
    found = ts.match(frame, filters, shards=GROW, report=report).collect()
    wanted = set()
    for version, state in enumerate(texts):
        wanted |= plain_pairs([row for row in rows if row[0] % 4 == version], state)
    assert Counter(tuple(row) for row in found) == Counter(wanted)
    assert len(wanted) > 500
    assert report.shards == 4
    newest = ts.match(frame.drop("filters"), filters, shards=GROW).collect()
    assert Counter(tuple(row) for row in newest) == Counter(plain_pairs(rows, texts[3]))
    with pytest.raises(Exception, match="column filters is NULL"):
        ts.match(
            frame.selectExpr("*", "CAST(NULL AS INT) AS none").drop("filters").withColumnRenamed("none", "filters"),
            filters,
            shards=GROW,
        ).collect()
    with pytest.raises(MatcherError, match="elastic shards are those of a FilterSet"):
        ts.match(frame, {"a": "a0 > 1"}, shards=GROW)


def test_a_live_set_in_foreach_batch_is_measured_as_one_query(
    spark: Any, plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There `ts.match` is called for each batch; its windows go on from batch to batch."""
    draw = random.Random(2)
    monkeypatch.setattr(elastic, "HELPED", 1e9)
    source = spark.readStream.format("tocsin").option("url", f"file:{tmp_path / 'plant.db'}")
    events = source.option("filters", plant.filters.path).option("startingOffset", "earliest").load()
    found: dict[int, list[Pair]] = {}

    def each(frame: Any, batch: int) -> None:
        found[batch] = [tuple(row) for row in ts.match(frame, plant.filters, shards=GROW).collect()]

    plant.query = (
        events.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )
    for _ in range(4):
        plant.publish(draw, 10)
        plant.query.processAllAvailable()
        balancing.settle(plant.filters)
    assert len(plant.filters.layout()) == 4
    assert Counter(pair for pairs in found.values() for pair in pairs) == plant.wanted


def test_a_heavy_shard_splits_and_a_light_one_stays(spark: Any, tmp_path: Path) -> None:
    """By what they really cost: filters that no index can find, all in one of two shards."""
    heavy, light = Shard(2, 0), Shard(2, 1)
    keys = [f"k{n}" for n in range(6_000)]
    hard = {key: f"value % {n % 500 + 2} = 1 AND NOT line = {n % 7}" for n, key in enumerate(keys) if heavy.holds(key)}
    easy = {key: f"value = {n}" for n, key in enumerate(keys) if light.holds(key)}
    filters = FilterSet(tmp_path / "filters")
    filters.change(put=hard | easy)
    filters.lay_out(even(2), instead=Layout())
    policy = ts.Elastic(split=0.05, merge=0, window=2, most=3)
    wanted, found = Counter[Pair](), Counter[Pair]()
    draw = random.Random(3)
    matcher = Matcher((hard | easy).items())
    for batch in range(4):
        rows = [(batch * 60 + n + 1, draw.randrange(7), draw.randrange(6_000)) for n in range(60)]
        frame = spark.createDataFrame(rows, "offset BIGINT, line BIGINT, value BIGINT")
        for offset, line, value in rows:
            event = Event("-", "-", data={"line": line, "value": value})
            wanted.update((offset, str(key)) for key in matcher.match(event))
        found.update(tuple(row) for row in ts.match(frame, filters, shards=policy).collect())
        balancing.settle(filters)
    assert found == wanted and len(wanted) > 400
    said = elastic.status(filters)
    assert {each.name for each in said.shards} == {"0 of 4", "2 of 4", "1 of 2"}, said
    assert (said.splits, said.merges) == (1, 0)
    busy = {each.name: min(each.seconds) for each in said.shards}
    assert busy["1 of 2"] < policy.split < min(busy["0 of 4"], busy["2 of 4"])


def test_two_policies_do_not_fight_over_one_set(plant: Plant) -> None:
    plant.start(GROW)
    plant.publish(random.Random(5))
    plant.query.processAllAvailable()
    with pytest.raises(MatcherError, match="a running query balances") as refused:
        plant.start(SHRINK)
    assert refused.value.field == "shards" and "same Elastic" in str(refused.value)
    plant.query.stop()
    plant.start(SHRINK)
    plant.query.processAllAvailable()


def test_shards_are_shown_with_the_pipeline(tmp_path: Path) -> None:
    """`tocsin pipeline status --filters`."""
    from tocsin.cli.pipeline import _divided, _shards

    filters = FilterSet(tmp_path / "filters")
    filters.change(put={"a": "value > 1"})
    filters.lay_out(even(2), instead=Layout())
    found = _divided(tmp_path / "filters")
    assert [each["name"] for each in found["shards"]] == ["0 of 2", "1 of 2"]
    lines = list(_shards("filters, ", found))
    assert lines == ["filters, version 2: 2 shards", "    0 of 2: not measured", "    1 of 2: not measured"]

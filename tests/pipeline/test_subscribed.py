"""The filters of subscriptions on Spark, without a Spark: what the node calls a version, and how few files stay."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tocsin.errors import FilterSetError, JournalError
from tocsin.node.channel import Subscriptions
from tocsin.node.divided import Divided, ShardStatus
from tocsin.spark import Elastic, filterset
from tocsin.spark.pipeline import subscribed as module
from tocsin.spark.pipeline.checkpoint import Checkpoint
from tocsin.spark.pipeline.subscribed import UNKNOWN, Subscribed
from tocsin.spark.shards import Layout, Shard, even

RETAINED = 10


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    filterset._held.clear()
    filterset._known_files.clear()
    yield


class Query:
    """What Spark leaves of its batches: the ends of the last ones."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._offsets, self._batches = checkpoint.spark / "offsets", 0
        self._offsets.mkdir(parents=True)

    def plan(self, **end: int) -> None:
        (self._offsets / str(self._batches)).write_text(
            f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps({"offset": self._batches, **end})}'
        )
        (self._offsets / str(self._batches - RETAINED)).unlink(missing_ok=True)
        self._batches += 1


def made(folder: Path, policy: Elastic | None = None) -> tuple[Subscribed, Checkpoint]:
    checkpoint = Checkpoint(folder, "match")
    return Subscribed(folder / "filters", checkpoint, policy), checkpoint


def wants(version: int, *numbers: int) -> Subscriptions:
    return Subscriptions(version, {f"lane {number}": f"value > {number}" for number in numbers})


def test_a_layout_in_between_is_no_other_version_for_the_node(tmp_path: Path) -> None:
    subscribed, _ = made(tmp_path, Elastic())
    filters = subscribed.filters
    subscribed.change(wants(3, 1))
    first = filters.version
    assert [subscribed.called(version) for version in (first - 1, first, first + 1)] == [UNKNOWN, 3, 3]
    split = filters.lay_out(even(2), instead=Layout())
    subscribed.change(wants(4, 1, 2))
    subscribed.change(wants(6, 2, 1))  # one has gone and come again: nothing changes here
    merged = filters.lay_out(Layout(), instead=even(2))
    assert (split, filters.version, merged) == (first + 1, first + 3, first + 3)
    assert [subscribed.called(version) for version in range(first, first + 4)] == [3, 3, 6, 6]
    again, _ = made(tmp_path, Elastic())  # another life
    again.change(wants(1, 2, 1))
    assert filters.version == first + 3
    assert [again.called(version) for version in range(first, first + 5)] == [UNKNOWN] * 3 + [1, 1]


def test_how_it_is_divided_is_told(tmp_path: Path) -> None:
    subscribed, _ = made(tmp_path, Elastic())
    assert subscribed.divided() is None and subscribed.prune() == 0
    subscribed.change(wants(1, 1, 2, 3))
    subscribed.filters.lay_out(even(2), instead=Layout())
    found = subscribed.divided()
    assert found is not None and found.version == subscribed.filters.version
    assert found.shards == (ShardStatus("0 of 2"), ShardStatus("1 of 2"))  # nobody has measured
    here, _ = made(tmp_path)  # on this machine, from now on
    here.change(wants(1, 1, 2, 3))
    assert here.filters.layout() == Layout()
    assert here.divided() == Divided(here.filters.version, (ShardStatus("0 of 1", 3),))
    assert here.called(here.filters.version) == 1


@pytest.mark.parametrize("events", [1, 8])
def test_hundreds_of_subscriptions_leave_few_files(
    tmp_path: Path, events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come and go, shards split and merge, a batch comes now and then: what Spark may repeat is always there."""
    monkeypatch.setattr(module, "SPARE", 10)
    draw = random.Random(5)
    subscribed, checkpoint = made(tmp_path, Elastic())
    filters, query = subscribed.filters, Query(checkpoint)
    there: set[int] = set()
    states: dict[int, dict[str, str]] = {}
    called: dict[int, int] = {}
    most = 0
    for number in range(1, 301):
        there ^= {draw.randrange(30)}
        wanted = wants(number, *there)
        subscribed.change(wanted)
        if number % 25 == 0:
            layout = filters.layout()
            filters.lay_out(layout.split(Shard()) if len(layout) == 1 else Layout(), instead=layout)
        states[filters.version] = wanted.filters
        called[filters.version] = number
        if number % events == 0:
            query.plan(filters=filters.version)
        if number % 7 == 0:
            subscribed.prune()
        needed = checkpoint.least("filters")
        for version in {needed, filters.version} - {None} if number % 5 == 0 else ():
            assert filters.filters(version) == states[version or 0]
            assert subscribed.called(version or 0) == called[version or 0]
        most = max(most, len(list(Path(filters.path).iterdir())))
    # So many versions may be needed, and so many are spare; each is one file, and few have a base and an index too.
    assert most < RETAINED * (events + 1) + 2 * 10 + 15
    assert filters.version > 300 and len(subscribed._made) < most


def test_what_a_query_may_yet_name_is_not_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPARE", 1)
    subscribed, checkpoint = made(tmp_path)
    filters = subscribed.filters

    def change(count: int) -> None:
        for _ in range(count):
            subscribed.change(wants(filters.version + 1 if subscribed._made else 1, filters.version % 7))

    filters.change()
    change(5)
    checkpoint.begin("journal-1", 1, 1)
    assert subscribed.prune() == 0  # its first batch may be on its way, with any version since it began
    query = Query(checkpoint)
    query.plan()  # nothing had come
    change(3)
    assert subscribed.prune() == 0 and checkpoint.least("filters") is None
    query.plan(filters=7)
    change(3)
    assert subscribed.prune() == 6
    with pytest.raises(FilterSetError, match="version 6 of .* was pruned"):
        filters.filters(6)
    checkpoint.remove()  # nobody subscribes to anything
    assert subscribed.prune() == filters.version - 7 and filters.oldest == filters.version


def test_batches_that_spark_removes_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, checkpoint = made(tmp_path)
    query = Query(checkpoint)
    for version in (4, 5, 6):
        query.plan(filters=version)
    plain = Checkpoint.end_of

    def removed(self: Checkpoint, batch: int) -> dict[str, int]:
        if batch == 0:
            (self.spark / "offsets" / "0").unlink(missing_ok=True)
        return plain(self, batch)

    monkeypatch.setattr(Checkpoint, "end_of", removed)
    assert checkpoint.least("filters") == 5
    (checkpoint.spark / "offsets" / "2").write_text("v1\n{")
    with pytest.raises(JournalError, match="is damaged"):
        checkpoint.least("filters")

"""`ts.detect` of a batch, by engines: what a detector finds that is fed all of it, however it lies in partitions."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.spark.detect_cases import NOON, events_in, expected, plant, some_definitions
from tocsin import Detector
from tocsin import spark as ts
from tocsin.composite.expression import CONTEXTS, OPERATORS
from tocsin.errors import DefinitionError
from tocsin.spark import replaying

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("replaying") / "plant.db", 5, 140)


def read(spark: Any, journal: Path, **options: Any) -> Any:
    return spark.read.format("tocsin").options(url=f"file:{journal}", system="true", **options).load()


@pytest.mark.parametrize(("seed", "lie"), [(1, "in order, in many partitions"), (2, "anyhow")])
def test_random_definitions_find_what_a_node_finds(
    spark: Any, journal: Path, monkeypatch: pytest.MonkeyPatch, seed: int, lie: str
) -> None:
    events = events_in(journal)
    definitions = some_definitions(random.Random(seed), events)
    wanted = expected(definitions, events)
    monkeypatch.setattr(replaying, "feed", lambda *_: pytest.fail("the driver has detected something"))
    frame = read(spark, journal, eventsPerPartition=50 if lie.startswith("in order") else 1_000_000)
    if lie == "anyhow":
        frame = frame.repartition(5)
    rows = ts.detect(frame, definitions).collect()
    assert len({row.id for row in rows}) == len(rows)
    assert {row.id: (row.type, row.data is not None) for row in rows} == {
        id: (event.type, True) for id, event in wanted.items()
    }
    counts = Counter(event.type for event in wanted.values())
    assert len(wanted) > 300 and len(counts) == len(OPERATORS) * len(CONTEXTS)


def test_time_goes_on_to_until(spark: Any, journal: Path) -> None:
    late = {
        "soon": "PLUS([type = 'a'], 3 SECONDS)",
        "late": "PLUS([type = 'a'], 1 HOUR) BY machine",
        "at": "AT '13:00'",
    }
    events = events_in(journal)
    until = NOON + timedelta(hours=2)
    detector = Detector()
    for name, text in late.items():
        detector.define(name, text)
    before = {event.id for event in detector.feed_batch(events)}
    after = before | {event.id for event in detector.advance(until)}
    assert 0 < len(before) < len(after)
    frame = read(spark, journal)
    assert {row.id for row in ts.detect(frame, late).collect()} == before
    assert {row.id for row in ts.detect(frame, late, until=until).collect()} == after
    with pytest.raises(DefinitionError, match="until"):
        ts.detect(frame, late, until="soon")


def test_rows_that_come_twice_count_once(spark: Any, journal: Path) -> None:
    text = "SEQ([type = 'a'], [type = 'b'], [type = 'c']) BY machine"
    frame = read(spark, journal)
    rows = ts.detect(frame.union(frame.where("offset % 2 = 0")), {"three": (text, "chronicle")}).collect()
    wanted = expected({"three": (text, "chronicle")}, events_in(journal))
    assert {row.id for row in rows} == wanted.keys() and len(rows) == len(wanted) > 2


def test_nothing_comes_of_nothing(spark: Any, journal: Path) -> None:
    frame = read(spark, journal).where("offset < 0")
    assert ts.detect(frame, {"late": "PLUS([type = 'a'], 1 MINUTE)"}, until=NOON).collect() == []

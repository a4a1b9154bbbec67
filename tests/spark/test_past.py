"""`past` gives what a node gives: the same events for every bound, over journal and lake."""

from __future__ import annotations

import asyncio
import importlib
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import START, take, testing
from tocsin.clock import as_datetime
from tocsin.errors import BoundError, FilterError, JournalError, LakeError
from tocsin.journal import archiver
from tocsin.journal.lake import remember_lake
from tocsin.journal.reader import open_reader
from tocsin.model import Event
from tocsin.spark.schema import SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BOUNDS = [
    tocsin.last(1),
    tocsin.last(25),
    tocsin.last(100_000),
    tocsin.last(10, within=timedelta(minutes=45)),
    tocsin.within(timedelta(minutes=90)),
    tocsin.since(1),
    tocsin.since(310),
    tocsin.since(START + timedelta(minutes=100)),
    tocsin.retained(),
]
FILTERS = ["TRUE", "line = 'b' AND n > 40 OR type = 'door.open'"]


@pytest.fixture
def ts() -> Any:
    from tocsin import spark

    return spark


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, dict[str, list[int]]]:
    """A journal whose first half is in a lake alone; its clock; and what a node gives for every bound and filter."""
    place = tmp_path_factory.mktemp("plant")
    clock = testing.ManualClock()
    return place, clock, asyncio.run(history(place, clock))


async def history(place: Path, clock: Any) -> dict[str, list[int]]:
    chance = random.Random(4)
    url, lake = f"file:{place / 'plant.db'}", place / "lake"
    async with testing.node(url=url, clock=clock) as bus:
        for n in range(1, 401):
            await bus.publish(
                Event(
                    chance.choice(["door.open", "machine.value"]),
                    "plant",
                    f"e{n}",
                    data={"n": n} if n % 7 else None,
                    attributes={"line": chance.choice("abc")},
                    ttl=chance.choice([None, None, 0.5, 60.25, 4000, 1e9]),
                    persistent=chance.random() < 0.9,
                )
            )
            clock.advance(30)
            if n % 11 == 0:
                await bus.cancel(f"e{chance.randint(1, n)}")
    with open_reader(place / "plant.db") as reader:
        archiver.archive(reader, str(lake), chunk=64, upto=300)
    remember_lake(str(place / "plant.db"), str(lake))
    expected = {}
    async with testing.node(url=url, clock=clock) as bus:
        assert 200 < await bus.trim(archived=True, hard=True) <= 301
        for number, bound in enumerate(BOUNDS):
            for filter in FILTERS:
                for system in (False, True):
                    name = f"c{number}-{FILTERS.index(filter)}-{system}"
                    sub = await bus.subscribe(
                        filter,
                        consumer=name,
                        past=bound,
                        order="journal",
                        system=system,
                        durable=False,
                        max_in_flight=1000,
                    )
                    expected[f"{bound} {filter} {system}"] = [d.offset for d in await take(bus, sub)]
                    await sub.close()
    return expected


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_past_is_the_nodes(spark: Any, ts: Any, plant: tuple[Path, Any, dict[str, list[int]]], bound: Any) -> None:
    place, clock, expected = plant
    url, now = f"file:{place / 'plant.db'}", as_datetime(clock.now())
    for filter, system in ((FILTERS[0], False), (FILTERS[1], False), (FILTERS[0], True)):
        frame = ts.past(spark, url, filter, bound, system=system, now=now)
        found = [row[0] for row in frame.select("offset").orderBy("offset").collect()]
        assert found == expected[f"{bound} {filter} {system}"] and found


def test_expected_past_is_worth_comparing(plant: tuple[Path, Any, dict[str, list[int]]]) -> None:
    _, _, expected = plant
    everything = expected["retained TRUE False"]
    assert min(everything) < 100 and max(everything) > 400  # cancellations take offsets too
    assert len(expected["retained TRUE True"]) > len(everything) > 150
    assert len(expected["retained " + FILTERS[1] + " False"]) < len(everything)


def test_all_columns_come(spark: Any, ts: Any, plant: tuple[Path, Any, dict[str, list[int]]]) -> None:
    place, clock, expected = plant
    frame = ts.past(spark, f"file:{place / 'plant.db'}", "TRUE", 5, now=as_datetime(clock.now()))
    assert [f"{name} {kind}" for name, kind in frame.dtypes] == [each.lower() for each in columns(SCHEMA)]
    assert [row["offset"] for row in frame.orderBy("offset").collect()] == expected["retained TRUE False"][-5:]


def columns(schema: str) -> list[str]:
    """Columns of a DDL text; the one comma inside a type is no end."""
    return schema.replace("STRING, VARIANT", "STRING,VARIANT").split(", ")


def test_many_cancelled_events_are_left_out(spark: Any, ts: Any, tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'plant.db'}"
    with tocsin.sync.connect(url) as bus:
        bus.publish_many([Event("t", "s", str(n)) for n in range(1, 501)])
        bus._runner.run(mark(bus, range(1, 401)))
    found = [row[0] for row in ts.past(spark, url, "TRUE", tocsin.retained()).select("id").collect()]
    assert sorted(found, key=int) == [str(n) for n in range(401, 501)]
    assert ts.past(spark, url, "TRUE", tocsin.last(1000)).count() == 100


async def mark(bus: Any, offsets: Any) -> None:
    await bus._inner._node.store(state={f"cancelled/{offset}": b"" for offset in offsets})


def test_last_looks_no_farther_than_it_must(
    spark: Any, ts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("tocsin.spark.past")
    url = f"file:{tmp_path / 'plant.db'}"
    with tocsin.sync.connect(url) as bus:
        for first in range(1, 4001, 1000):
            bus.publish_many(
                [Event("rare" if n % 1500 == 0 else "usual", "s", str(n)) for n in range(first, first + 1000)]
            )
    looked: list[tuple[int, int]] = []
    alive = module._Quest.alive

    def spy(self: Any, first: int, last: int, schema: str | None = None) -> Any:
        looked.append((first, last))
        return alive(self, first, last, schema)

    monkeypatch.setattr(module._Quest, "alive", spy)
    monkeypatch.setattr(module, "_FIRST_STRETCH", 200)
    frame = ts.past(spark, url, "type = 'rare'", tocsin.last(1))
    assert [row[0] for row in frame.select("id").collect()] == ["3000"]
    assert looked == [(3801, 4000), (3001, 3800), (1, 3000), (3000, 4000)] or looked[-1] == (3000, 4000)
    assert looked[0] == (3801, 4000)


def test_past_of_nothing(spark: Any, ts: Any, tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'plant.db'}"
    with tocsin.sync.connect(url) as bus:
        for bound in (3, timedelta(minutes=1), tocsin.retained(), tocsin.since(7)):
            assert ts.past(spark, url, "TRUE", bound).collect() == []
        bus.publish(Event("t", "s", "1"))
    assert ts.past(spark, url, "TRUE", tocsin.since(2)).collect() == []
    assert [row["id"] for row in ts.past(spark, url, "TRUE", 3).collect()] == ["1"]


def test_what_means_nothing_is_refused(spark: Any, ts: Any, tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'plant.db'}"
    with tocsin.sync.connect(url) as bus:
        bus.publish(Event("t", "s"))
    with pytest.raises(BoundError):
        ts.past(spark, url, "TRUE", None)
    with pytest.raises(BoundError):
        ts.past(spark, url, "TRUE", 0)
    with pytest.raises(FilterError):
        ts.past(spark, url, "> >", 1)
    with pytest.raises(JournalError):
        ts.past(spark, f"file:{tmp_path / 'none.db'}", "TRUE", 1)
    with pytest.raises(LakeError):
        ts.past(spark, url, "TRUE", 1, lake=tmp_path / "none")

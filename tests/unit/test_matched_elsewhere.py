"""Consumers with placement `spark`: whoever matches, says so late, twice or not at all, each event comes once."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import event, heard, ids, life, node_of, numbered, take, testing
from tocsin.errors import ConsumerError
from tocsin.filters.filter import Filter
from tocsin.net.supervisor import Supervisor
from tocsin.node.channel import Settings, Wants
from tocsin.node.lanes import OpenLanes


def settings(folder: Path) -> Settings:
    return Settings(str(folder / "journal.db"), "http://127.0.0.1:1", None, "local[2]", str(folder / "spark"), None)


def lanes(bus: Any) -> OpenLanes:
    found: OpenLanes = node_of(bus).lanes
    return found


def matched(bus: Any, first: int, last: int, version: int | None = None) -> None:
    """What a pipeline without a fault says of a stretch."""
    newest, filters = lanes(bus).version, lanes(bus).elsewhere()
    events = [each for each in node_of(bus).window.get_many(range(first, last + 1)) if each is not None]
    found = {key: [each.offset or 0 for each in events if Filter(text).matches(each)] for key, text in filters.items()}
    lanes(bus).matched(newest if version is None else version, first, last, found)


async def test_what_spark_has_matched_is_delivered_and_nothing_before(bus: Any) -> None:
    sub = await bus.subscribe("n > 5", consumer="far", placement="spark")
    near = await bus.subscribe("n > 5", consumer="near")
    await bus.publish_many(numbered(10))
    assert ids(await take(bus, sub)) == [] and len(await take(bus, near)) == 5
    matched(bus, 1, 7)
    assert await heard(bus, sub) == ["6", "7"]
    matched(bus, 1, 7)  # said again
    matched(bus, 8, 10)
    assert await heard(bus, sub) == ["8", "9", "10"]


async def test_the_past_needs_no_spark_and_the_seam_has_no_gap(bus: Any) -> None:
    await bus.publish_many(numbered(5))
    sub = await bus.subscribe("n > 0", consumer="far", placement="spark", past=tocsin.retained())
    assert await heard(bus, sub) == ["1", "2", "3", "4", "5"]
    await bus.publish_many(numbered(5, 6))
    assert await heard(bus, sub) == []
    matched(bus, 9, 10)  # it began to look late: what lies between is looked for here
    assert await heard(bus, sub) == ["6", "7", "8", "9", "10"]


async def test_one_that_a_batch_did_not_know_misses_nothing(bus: Any) -> None:
    first = await bus.subscribe("n > 0", consumer="first", placement="spark")
    version = lanes(bus).version
    await bus.publish_many(numbered(2))
    second = await bus.subscribe("n > 1", consumer="second", placement="spark")
    await bus.publish_many(numbered(2, 3))
    newest, filters = lanes(bus).version, lanes(bus).elsewhere()
    assert newest > version and sorted(filters.values()) == ["n > 0", "n > 1"]
    lanes(bus).matched(version, 1, 4, {key: [1, 2, 3, 4] for key, text in filters.items() if text == "n > 0"})
    assert await heard(bus, first) == ["1", "2", "3", "4"]
    assert await heard(bus, second) == ["3", "4"]


async def test_where_spark_stands_when_it_comes_back_is_enough(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        await bus.subscribe("n > 0", consumer="far", placement="spark")
        await bus.publish_many(numbered(3))
        matched(bus, 1, 3)
    async with life(file_url, clock) as bus:  # nobody had saved how far the consumer was, and nothing more comes
        sub = await bus.subscribe("n > 0", consumer="far")
        assert await heard(bus, sub) == []
        lanes(bus).matched(-1, 4, 3, {})
        assert await heard(bus, sub) == ["1", "2", "3"]


def work(what: Callable[[], object]) -> int:
    """How many steps of Python something takes."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        what()
    finally:
        sys.settrace(before)
    return count


async def test_a_batch_costs_the_lanes_that_match_and_not_all_there_are(tmp_path: Path) -> None:
    found: dict[int, list[int]] = {}
    for count in (20, 200):
        async with testing.node() as bus:
            subs = [await bus.subscribe(f"n = {n}", consumer=f"c{n}", placement="spark") for n in range(count)]
            supervisor = Supervisor(node_of(bus), settings(tmp_path))
            version, filters = lanes(bus).version, lanes(bus).elsewhere()
            key = next(key for key, text in filters.items() if text == "n = 3")

            def ask(supervisor: Supervisor = supervisor, version: int = version) -> None:
                with pytest.raises(StopIteration) as answer:  # it waits for nothing
                    supervisor._reply(Wants(version)).send(None)
                assert answer.value.value is None

            await bus.publish_many(numbered(2))
            matched(bus, 1, 2)
            await bus.publish_many(numbered(8, 3))
            one = partial(lanes(bus).matched, version, 3, 4, {key: [3]})
            none = partial(lanes(bus).matched, version, 5, 10, {})
            found[count] = [work(each) for each in (one, none, ask)]
            assert await heard(bus, subs[3]) == ["3"] and await heard(bus, subs[4]) == []
            assert sorted(each.name for each in await bus.consumers() if each.lag) == ["c1", "c2"]
    assert found[20] == found[200] and min(found[20]) > 0


async def test_placement_belongs_to_the_consumer(bus: Any) -> None:
    await bus.subscribe("n > 0", consumer="far", placement="spark")
    await bus.subscribe("n > 1", consumer="far")  # as it was
    with pytest.raises(ConsumerError, match="placement='spark'") as caught:
        await bus.subscribe("n > 2", consumer="far", placement="node")
    assert caught.value.field == "placement"
    with pytest.raises(ConsumerError, match="placement is 'moon'"):
        await bus.subscribe("n > 2", consumer="other", placement="moon")


async def test_who_waits_for_a_spark_that_is_not_there_can_see_it(bus: Any) -> None:
    await bus.publish_many(numbered(2))
    sub = await bus.subscribe("n > 0", consumer="far", placement="spark", past=tocsin.retained())
    await bus.subscribe("n > 0", consumer="near")
    await bus.publish_many(numbered(2, 3))
    assert await heard(bus, sub) == ["1", "2"]  # the past needs no Spark
    far, near = await bus.consumers()
    assert (far.placement, near.placement, near.halted) == ("spark", "node", None)
    assert "no Spark pipeline" in str(far.halted) and far.lag == 2
    node_of(bus).beside.attach()
    assert [each.halted for each in await bus.consumers()] == [None, None]
    node_of(bus).beside.refuse("Java is missing")
    assert [each.halted for each in await bus.consumers()] == ["Java is missing", None]


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_each_comes_once(file_url: str, clock: Any, seed: int) -> None:
    draw = random.Random(seed)
    got: list[str] = []
    stood, count = 0, 0
    for _ in range(4):  # lives
        async with life(file_url, clock, draw.choice(["close", "crash"])) as bus:
            options = {"order": "journal", "placement": "spark"}
            subs = [await bus.subscribe(f"n % {n} = 0", consumer="far", **options) for n in (2, 3)]
            for _ in range(12):
                what = draw.random()
                if what < 0.4:
                    size = draw.randint(1, 30)
                    await bus.publish_many(numbered(size, count + 1))
                    count += size
                elif what < 0.8:
                    first = draw.randint(max(0, stood - 5), stood) if draw.random() < 0.3 else stood
                    stood = max(stood, draw.randint(first, node_of(bus).head))
                    matched(bus, first + 1, stood, draw.choice([None, None, 0]))
                elif what < 0.9:
                    number = draw.randrange(2)
                    await subs[number].close()
                    subs[number] = await bus.subscribe(f"n % {number + 2} = 0", consumer="far", **options)
                for sub in subs:
                    got += await heard(bus, sub)
    async with testing.node(url=file_url, clock=clock) as bus:
        subs = [await bus.subscribe(f"n % {n} = 0", consumer="far") for n in (2, 3)]
        matched(bus, 1, node_of(bus).head)
        for sub in subs:
            got += await heard(bus, sub)
    assert sorted(map(int, got)) == [n for n in range(1, count + 1) if n % 2 == 0 or n % 3 == 0] and count > 50


async def test_records_of_the_node_come_to_who_asks_for_them(bus: Any) -> None:
    plain = await bus.subscribe("type LIKE '%'", consumer="plain", placement="spark")
    whole = await bus.subscribe("type LIKE '%'", consumer="whole", placement="spark", system=True)
    await bus.define("stop", "PLUS([type = 'alarm'], 1 SECOND)", placement="node")
    await bus.publish(event("1"))
    await node_of(bus).watcher.append_clock()
    await testing.settled(bus)
    matched(bus, 1, node_of(bus).head)
    assert await heard(bus, plain) == ["1"] and len(await heard(bus, whole)) >= 2

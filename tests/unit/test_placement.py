"""Where definitions run: a node with and without a pipeline beside it, and what the pipeline may store there."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import tocsin
from tests.helpers import event, heard, life, node_of, soon, take, testing
from tocsin.clock import as_micros
from tocsin.composite.detector import Detector
from tocsin.errors import DefinitionError, TocsinError
from tocsin.node.beside import Beside, Progress

PAIR = "SEQ([type = 'a'] AS a, [type = 'b'] AS b) BY k"
WRITER = "tocsin/pipeline/1"


def made(type: str, id: str, k: str = "x") -> tocsin.Event:
    return event(id, type=type, data={"k": k})


def beside(bus: Any) -> Beside:
    found: Beside = node_of(bus).beside
    return found


async def placements(bus: Any) -> dict[str, str]:
    return {each.name: each.placement for each in await bus.definitions()}


def looked_at(bus: Any) -> list[tocsin.Event]:
    """What a pipeline without a fault finds in all that there is: its engine is that of the node."""
    detector, node = Detector(), node_of(bus)
    _, wanted = beside(bus).definitions()
    events = [event for event in node.window.get_many(range(1, node.head + 1)) if event is not None]
    found = []
    for each in events:
        for definition in wanted:
            known = {known.name for known in detector.definitions()}
            if definition.since < (each.offset or 0) and definition.name not in known:
                detector.define(definition.name, definition.text, definition.context)
        found += detector.feed(each)
    return found


async def store(
    bus: Any, position: int, *, writer: str = WRITER, events: Any = None, version: str | None = None
) -> bool:
    node = node_of(bus)
    newest = node.window.get(node.head)
    place = (version or beside(bus).definitions()[0], writer, position, node.head, as_micros(newest.arrived))
    return await beside(bus).store(*place, looked_at(bus) if events is None else events)


async def test_without_a_pipeline_auto_is_the_node_and_spark_waits(bus: Any) -> None:
    await bus.define("here", PAIR)
    info = await bus.define("there", PAIR, placement="spark")
    sub = await bus.subscribe("type IN ('here', 'there')", consumer="ops")
    await bus.publish_many([made("a", "a1"), made("b", "b1")])
    assert [d.event.type for d in await take(bus, sub)] == ["here"]
    assert info.placement == "spark" and await placements(bus) == {"here": "node", "there": "spark"}
    halted = {each.name: each.halted for each in await bus.definitions()}
    assert halted["here"] is None and "no Spark pipeline" in str(halted["there"])


async def test_auto_is_spark_if_there_is_a_pipeline_up_or_not(bus: Any) -> None:
    beside(bus).expect()
    making = asyncio.ensure_future(bus.define("pair", PAIR))  # nobody knows yet whether there is one
    await asyncio.sleep(0)
    assert not making.done()
    beside(bus).attach()
    assert (await soon(making)).placement == "spark"
    assert (await bus.define("pair", PAIR)).placement == "spark"  # the same again
    assert (await bus.define("mine", PAIR, placement="node")).placement == "node"
    with pytest.raises(DefinitionError, match="on Spark"):
        await bus.define("pair", PAIR, placement="node")
    assert (await bus.define("pair", PAIR, placement="node", replace=True)).placement == "node"
    beside(bus).refuse("there is no Java")
    assert (await bus.define("other", PAIR)).placement == "node"


async def test_a_past_keeps_it_on_the_node(bus: Any) -> None:
    beside(bus).attach()
    await bus.publish(made("a", "a1"))
    assert (await bus.define("pair", PAIR, past=timedelta(hours=1))).placement == "node"
    with pytest.raises(TocsinError, match="knows no past") as caught:
        await bus.define("other", PAIR, placement="spark", past=timedelta(hours=1))
    assert caught.value.field == "past" and caught.value.help


async def test_families_run_silently_where_they_are_needed(bus: Any) -> None:
    await bus.define("there", PAIR, placement="spark")
    await bus.define("here", "SEQ(there, [type = 'c']) BY k", placement="node")
    await bus.define("far", "SEQ(here, [type = 'd']) BY k", placement="spark")
    sub = await bus.subscribe("type IN ('here', 'there', 'far')", consumer="ops")
    await bus.publish_many([made("a", "1"), made("b", "2"), made("c", "3"), made("d", "4")])
    assert [d.event.type for d in await take(bus, sub)] == ["here"]
    wanted = {each.name: each.is_told for each in beside(bus).definitions()[1]}
    assert wanted == {"there": True, "here": False, "far": True}
    with pytest.raises(DefinitionError, match="made of"):
        await bus.undefine("there")
    for name in ("far", "here", "there"):
        await bus.undefine(name)
    assert await placements(bus) == {} and beside(bus).definitions()[1] == ()


async def test_a_change_that_others_do_not_bear_is_refused(bus: Any) -> None:
    await bus.define("inner", PAIR, placement="spark")
    await bus.define("outer", "SEQ(inner, [type = 'c']) BY k", placement="node")
    with pytest.raises(DefinitionError) as caught:
        await bus.define("inner", "SEQ([type = 'a'], [type = 'b']) BY other", placement="spark", replace=True)
    assert caught.value.help
    with pytest.raises(DefinitionError):
        await bus.define("inner", "SEQ(outer, [type = 'b']) BY k", placement="spark", replace=True)
    assert await placements(bus) == {"inner": "spark", "outer": "node"}
    sub = await bus.subscribe("type = 'outer'", consumer="ops")
    await bus.publish_many([made("a", "1"), made("b", "2"), made("c", "3")])
    assert len(await take(bus, sub)) == 1


@pytest.mark.parametrize("end", ["close", "crash"])
async def test_they_belong_to_their_place_over_restarts(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.define("first", PAIR, placement="spark")
        await bus.define("second", PAIR)
        await bus.publish(made("a", "a1"))
    async with life(file_url, clock, end) as bus:
        assert await placements(bus) == {"first": "spark", "second": "node"}
        await bus.publish(made("b", "b1"))
        assert await store(bus, 0)
        sub = await bus.subscribe("type IN ('first', 'second')", consumer="ops", past=tocsin.retained())
        assert sorted(d.event.type for d in await take(bus, sub)) == ["first", "second"]
        await bus.undefine("second")
    async with life(file_url, clock, end) as bus:
        [info] = await bus.definitions()
        assert (info.name, info.detected) == ("first", 1)


async def test_what_a_batch_has_found_is_stored_once_and_can_be_explained(bus: Any) -> None:
    await bus.define("pair", PAIR, placement="spark")
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish_many([made("a", "a1"), made("b", "b1")])
    before = looked_at(bus)
    assert await store(bus, 7, events=before) and await store(bus, 7, events=before)
    [found] = await take(bus, sub)
    assert found.event.id == before[0].id and found.event.data == before[0].data
    assert (await bus.definitions())[0].detected == 1
    assert "no closer for SEQ" in str(await bus.explain(found.event.id))
    with pytest.raises(TocsinError, match="the node's own"):  # nobody else may
        await bus.publish(before[0])


async def test_a_batch_that_did_not_know_a_definition_is_stale(bus: Any) -> None:
    await bus.define("pair", PAIR, placement="spark")
    version = beside(bus).definitions()[0]
    await bus.publish(made("a", "a1"))
    assert await store(bus, 0, version=version)
    await bus.define("late", PAIR, placement="spark")
    assert await store(bus, 1, version=version)  # it ends where the other begins
    await bus.publish(made("a", "a2"))
    assert not await store(bus, 2, version=version)
    assert not await store(bus, 2, version="another life's")
    assert await store(bus, 2)
    assert (await bus.definitions())[1].since >= 1


async def test_a_lost_checkpoint_tells_nothing_twice(bus: Any, clock: Any) -> None:
    await bus.define("pair", PAIR, placement="spark")
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish_many([made("a", "a1"), made("b", "b1")])
    assert await store(bus, 5)
    clock.advance(60)
    await bus.publish_many([made("a", "a2"), made("b", "b2")])
    again = looked_at(bus)
    assert len(again) == 2 and await store(bus, 0, writer="tocsin/pipeline/2", events=again)
    assert len(await heard(bus, sub)) == 2
    assert (await bus.definitions())[0].detected == 2


async def test_what_waits_for_time_there_gets_a_clock_record(bus: Any, clock: Any) -> None:
    await bus.define("stop", "PLUS([type = 'a'], 30 SECONDS) BY k", placement="spark")
    clocks = await bus.subscribe("type = 'tocsin.clock'", consumer="clocks", system=True)
    stored = await bus.publish(made("a", "a1"))
    node = node_of(bus)
    instant = as_micros(node.window.get(stored.offset).arrived)
    beside(bus).report(Progress(node.head, instant, instant + 30_000_000))
    clock.advance(29)
    assert await heard(bus, clocks) == []
    clock.advance(1)
    assert len(await heard(bus, clocks)) == 1
    clock.advance(3600)  # nothing more before the pipeline has looked at it
    assert await heard(bus, clocks) == []


async def test_trimming_leaves_what_the_pipeline_has_not_looked_at(file_url: str, clock: Any) -> None:
    async with testing.node(url=file_url, clock=clock) as bus:
        await bus.publish_many([made("a", f"{n}") for n in range(10)])
        await bus.define("pair", PAIR, placement="spark")
        await bus.publish_many([made("a", f"later {n}") for n in range(10)])
        clock.advance(3600)
        assert beside(bus).needed == 11
        assert await bus.trim(older_than=timedelta(minutes=1)) <= 11
        beside(bus).report(Progress(node_of(bus).head, 0))
        assert beside(bus).needed == node_of(bus).head + 1


async def test_statistics_are_records_of_the_node(bus: Any) -> None:
    sub = await bus.subscribe("type = 'tocsin.statistics'", consumer="ops", system=True)
    plain = await bus.subscribe("rate >= 0 OR events >= 0", consumer="others")
    for _ in range(2):
        await beside(bus).store_statistics("statistics", 3, {"events": 1})
    assert len(await take(bus, sub)) == 1 and await take(bus, plain) == []

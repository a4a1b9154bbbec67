"""Where definitions run: a node with and without a pipeline beside it, and what the pipeline may store there."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import tocsin
from tests.helpers import event, heard, life, node_of, soon, take, testing
from tocsin.clock import as_micros
from tocsin.composite.detector import CLOCK, Detector
from tocsin.errors import DefinitionError, TocsinError
from tocsin.node.beside import Beside, Detected, Progress
from tocsin.node.placement import Placements

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
        offset, known = each.offset or 0, {known.name for known in detector.definitions()}
        there = {one.name: one for one in wanted if one.since < offset <= (one.until or offset)}
        for name in known - there.keys():
            detector.undefine(name)
        for name in [name for name in there if name not in known]:
            detector.define(name, there[name].text, there[name].context)
        found += detector.feed(each)
    return found


def as_found(bus: Any, events: list[tocsin.Event]) -> list[Detected]:
    """Derived events as the pipeline tells them: the last part completed it if it came then, else a timer did."""
    found = []
    for each in events:
        offset = each.data["parts"][-1]["offset"]
        found.append(Detected(each, offset if node_of(bus).window.get(offset).arrived == each.time else None))
    return found


async def store(
    bus: Any,
    position: int,
    *,
    writer: str = WRITER,
    events: Any = None,
    version: str | None = None,
    upto: int | None = None,
) -> bool:
    """Store what a batch has found that ends at the head, or elsewhere."""
    node = node_of(bus)
    newest = node.window.get(node.head if upto is None else upto)
    instant = as_micros(newest.arrived) + (newest.type == CLOCK)
    place = (version or beside(bus).definitions()[0], writer, position, newest.offset, instant)
    return await beside(bus).store(*place, as_found(bus, looked_at(bus) if events is None else events))


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


async def test_one_may_be_replaced_by_one_that_is_made_of_less(bus: Any) -> None:
    await bus.define("there", PAIR, placement="spark")
    await bus.define("here", "SEQ(there, [type = 'c']) BY k", placement="node")
    await bus.define("here", "SEQ([type = 'a'], [type = 'c']) BY k", placement="node", replace=True)
    sub = await bus.subscribe("type IN ('here', 'there')", consumer="ops")
    await bus.publish_many([made("a", "1"), made("c", "2")])
    assert [d.event.type for d in await take(bus, sub)] == ["here"]
    assert [each.name for each in node_of(bus).watcher.detector.definitions()] == ["here"]
    await bus.undefine("there")


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


STOP = "PLUS([type = 'a'], 1 SECOND) BY k"


async def test_a_timer_due_at_the_very_instant_where_a_lost_checkpoint_stood_is_told(bus: Any, clock: Any) -> None:
    for name, text in (("pair", PAIR), ("stop", STOP)):
        await bus.define(name, text, placement="spark")
    sub = await bus.subscribe("type IN ('pair', 'stop')", consumer="ops")
    await bus.publish(made("a", "a1"))
    clock.advance(1)
    await bus.publish(made("b", "b1"))  # the timer is due now, behind this event and all others of the instant
    assert [each.type for each in looked_at(bus)] == ["pair"] and await store(bus, 5)
    clock.advance(1)
    await bus.publish(made("b", "b2"))
    again = looked_at(bus)
    assert [each.type for each in again] == ["pair", "stop", "pair"]
    assert await store(bus, 0, writer="tocsin/pipeline/2", events=again)
    assert await heard(bus, sub) == [each.id for each in again]
    assert {each.name: each.detected for each in await bus.definitions()} == {"pair": 2, "stop": 1}


async def test_a_timer_that_a_clock_record_has_rung_is_not_told_again(bus: Any, clock: Any) -> None:
    await bus.define("stop", STOP, placement="spark")
    sub = await bus.subscribe("type = 'stop'", consumer="ops")
    await bus.publish(made("a", "a1"))
    clock.advance(1)
    await node_of(bus).watcher.append_clock()
    await testing.settled(bus)
    assert len(looked_at(bus)) == 1 and await store(bus, 5)
    clock.advance(1)
    await bus.publish(made("b", "b1"))
    assert await store(bus, 0, writer="tocsin/pipeline/2")
    assert len(await heard(bus, sub)) == 1 and beside(bus).counts == {"stop": 1}


async def test_an_older_checkpoint_whose_batches_end_within_an_instant_tells_nothing_twice(bus: Any) -> None:
    await bus.define("pair", PAIR, placement="spark")
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish_many([made(kind, f"{kind}{n}") for n in range(3) for kind in "ab"])  # all at one instant
    found = looked_at(bus)
    assert await store(bus, 0, events=found[:1], upto=2) and await store(bus, 1, events=found[1:], upto=6)
    await bus.publish(made("b", "b3"))  # at that instant, too
    found = looked_at(bus)
    assert await store(bus, 1, events=found[1:2], upto=4)  # it is back at the first, and the second is another
    assert await store(bus, 2, events=found[2:])
    assert await heard(bus, sub) == [each.id for each in found] and beside(bus).counts == {"pair": 4}


async def test_a_checkpoint_older_than_what_was_told_loses_nothing_and_tells_nothing_twice(
    bus: Any, clock: Any
) -> None:
    await bus.define("pair", PAIR, placement="spark")
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    for position in range(8):
        await bus.publish_many([made("a", f"a{position}"), made("b", f"b{position}")])
        assert await store(bus, position, events=looked_at(bus)[position:])
        clock.advance(1)
    reached = node_of(bus).head
    newest = as_micros(node_of(bus).window.get(reached).arrived)
    again = looked_at(bus)
    await bus.publish_many([made("a", "a8"), made("b", "b8")])
    version, all_of_them = beside(bus).definitions()[0], looked_at(bus)
    # Spark is back at its third batch, which reaches further than all that were told …
    assert await beside(bus).store(version, WRITER, 2, reached, newest, as_found(bus, again[2:]))
    assert await store(bus, 3, events=all_of_them[2:])
    clock.advance(1)
    await bus.publish_many([made("a", "a9"), made("b", "b9")])
    assert await store(bus, 4, events=looked_at(bus)[9:])  # … and goes on from there
    assert [d.event.id for d in await take(bus, sub)] == [each.id for each in looked_at(bus)]
    assert (await bus.definitions())[0].detected == 10


@pytest.mark.parametrize("seed", range(6))
async def test_a_batch_in_pieces_is_stored_once_whoever_dies_in_between(file_url: str, clock: Any, seed: int) -> None:
    draw = random.Random(seed)
    async with life(file_url, clock) as bus:
        for name in ("pair", "same", "gone"):
            await bus.define(name, PAIR, placement="spark")
    stored = ended = 0
    while stored < 60:
        async with life(file_url, clock, draw.choice(["close", "crash"])) as bus:
            for _ in range(draw.randint(0, 8)):
                await bus.publish_many([made("a", f"a{stored}"), made("b", f"b{stored}")])
                stored += 1
                clock.advance(draw.choice([0, 1]))
            if stored > 30 and "gone" in await placements(bus):
                await bus.undefine("gone")  # batches that are made again have it up to here
                ended = stored
            found, (version, _), node = looked_at(bus), beside(bus).definitions(), node_of(bus)
            begin, position = beside(bus).told.offset, beside(bus).told.position + 1
            if draw.random() < 0.3:  # an older checkpoint has lower numbers, and more to find
                begin, position = draw.randint(0, begin), draw.randint(0, max(0, position - 1))
            found = [each for each in found if each.data["parts"][-1]["offset"] > begin]
            place = (version, WRITER, position, node.head, as_micros(node.window.get(node.head).arrived))
            size = draw.randint(1, 6)
            pieces = [found[start : start + size] for start in range(0, max(1, len(found)), size)]
            for number, piece in enumerate(pieces):
                is_last = number == len(pieces) - 1
                assert await beside(bus).store(*place, as_found(bus, piece), None, number, is_last)
                if draw.random() < 0.15:
                    break
    async with life(file_url, clock) as bus:
        done = beside(bus).told
        rest = [each for each in looked_at(bus) if each.data["parts"][-1]["offset"] > done.offset]
        assert await store(bus, done.position + 1, events=rest)
        told = [each.id for each in node_of(bus).window.get_many(range(1, node_of(bus).head + 1)) if each is not None]
        wanted = [each.id for each in looked_at(bus)]
        assert len(wanted) == 2 * stored + ended and len(told) == len(set(told)) and set(wanted) <= set(told)
        counts = {each.name: each.detected for each in await bus.definitions()}
        assert counts == {"pair": stored, "same": stored} and not beside(bus).told.within


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


async def test_statistics_are_records_of_the_node_stored_with_how_far_they_are(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        assert beside(bus).counted is None
        sub = await bus.subscribe("type = 'tocsin.statistics'", consumer="ops", system=True)
        plain = await bus.subscribe("rate >= 0 OR events >= 0", consumer="others")
        await beside(bus).store_statistics(b"so far", {"events": 1})
        assert len(await take(bus, sub)) == 1 and await take(bus, plain) == []
    async with life(file_url, clock) as bus:
        assert beside(bus).counted == b"so far"


async def test_one_that_was_replaced_at_once_is_another(bus: Any) -> None:
    await bus.define("pair", PAIR, placement="spark")
    old = beside(bus).definitions()[0]
    await bus.define("pair", "SEQ([type = 'a'], [type = 'c']) BY k", placement="spark", replace=True)
    first, second = (each.since for each in [*beside(bus).definitions()[1]] * 2)
    assert first == second  # nothing came between the two
    await bus.publish_many([made("a", "a1"), made("b", "b1")])
    assert not await store(bus, 0, version=old, events=[])
    assert await store(bus, 0, events=[])


async def test_a_definition_being_made_holds_up_what_it_should_know(bus: Any) -> None:
    await bus.define("pair", PAIR, placement="spark")
    old, node = beside(bus).definitions()[0], node_of(bus)
    await bus.publish(made("a", "a1"))
    upto = node.head + 5
    async with node.watcher.turn:  # as somebody has who is making a definition, and knows already where it begins
        storing = asyncio.ensure_future(beside(bus).store(old, WRITER, 0, upto, 0, []))
        defining = asyncio.ensure_future(bus.define("late", PAIR, placement="spark"))
        await bus.publish(made("a", "a2"))
        assert not storing.done()
    stored, info = await soon(storing), await soon(defining)
    assert stored is (info.since >= upto)


async def test_what_has_ended_is_kept_until_the_pipeline_has_passed_it(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        await bus.define("member", PAIR, placement="node")
        await bus.define("one", "SEQ(member, [type = 'c']) BY k", placement="spark")
        await bus.define("two", PAIR, placement="spark")
        await bus.publish(made("a", "a1"))
        await bus.define("member", "SEQ([type = 'a'], [type = 'x']) BY k", placement="node", replace=True)
        await bus.define("two", PAIR, placement="node", replace=True)  # it moves
        await bus.publish(made("a", "a2"))
        await bus.undefine("one")
        await bus.define("two", PAIR, placement="spark", replace=True)
        await bus.define("two", "SEQ([type = 'a'], [type = 'x']) BY k", placement="spark", replace=True)
        await bus.publish(made("a", "a3"))
        before = beside(bus).definitions()[1]
    wanted = [(each.name, each.since, each.until, each.is_told) for each in before]
    assert sorted(wanted, key=str) == [
        ("member", 0, 1, False),
        ("member", 1, None, False),
        ("one", 0, 2, True),
        ("two", 0, 1, True),
        ("two", 1, 2, False),
        ("two", 2, None, True),  # what was there for no event at all is none
    ]
    assert all((each.time > 0) is (each.since > 0) for each in before)
    async with life(file_url, clock, "crash") as bus:
        assert set(beside(bus).definitions()[1]) == set(before) and beside(bus).needed == 1
        version = beside(bus).definitions()[0]
        beside(bus).report(Progress(1, 0))
        assert len(beside(bus).definitions()[1]) == 6  # engines may stand where something ends, and have it still
        beside(bus).report(Progress(2, 0))
        assert {(each.name, each.until) for each in beside(bus).definitions()[1] if each.until == 1} == set()
        beside(bus).report(Progress(3, 0))
        [left] = beside(bus).definitions()[1]
        assert (left.name, left.since, left.until) == ("two", 2, None)
        assert beside(bus).definitions()[0] == version, "what is forgotten is no reason to begin anew"
        await node_of(bus).store()
    async with life(file_url, clock) as bus:
        assert beside(bus).definitions()[1] == (left,)


async def test_when_all_has_ended_and_is_passed_there_is_nothing_to_look_for(bus: Any) -> None:
    beside(bus).attach()
    await bus.define("pair", PAIR)
    await bus.publish(made("a", "a1"))
    version = beside(bus).definitions()[0]
    await bus.undefine("pair")
    assert [each.until for each in beside(bus).definitions()[1]] == [1] and beside(bus).needed == 1
    beside(bus).report(Progress(1, 0))
    assert beside(bus).definitions()[1] == () and beside(bus).definitions()[0] != version
    assert beside(bus).needed is None


async def test_without_a_pipeline_one_that_has_gone_keeps_nobody_waiting(bus: Any) -> None:
    await bus.define("pair", PAIR, placement="spark")
    await bus.publish(made("a", "a1"))
    assert beside(bus).needed == 1
    await bus.define("pair", PAIR, placement="node", replace=True)
    assert beside(bus).needed is None and beside(bus).definitions()[1] == ()


async def test_a_batch_that_did_not_know_of_an_end_is_stale(bus: Any) -> None:
    await bus.define("pair", PAIR, placement="spark")
    await bus.define("other", PAIR, placement="spark")
    await bus.publish_many([made("a", "a1"), made("b", "b1")])
    old, found = beside(bus).definitions()[0], looked_at(bus)
    await bus.undefine("pair")
    assert await store(bus, 0, version=old, events=found)  # it ends where that ends, and tells of it
    await bus.publish_many([made("a", "a2"), made("b", "b2")])
    assert not await store(bus, 1, version=old, events=[])
    sub = await bus.subscribe("type IN ('pair', 'other')", consumer="ops", past=tocsin.retained())
    assert sorted(d.event.type for d in await take(bus, sub)) == ["other", "pair"]


async def test_one_that_others_are_made_of_begins_anew_for_them_when_it_moves(bus: Any) -> None:
    """On the node as on Spark: see tests/pipeline/test_begins.py."""
    await bus.define("low", PAIR, placement="node")
    await bus.define("top", "SEQ(low, [type = 'c']) BY k", placement="node")
    sub = await bus.subscribe("type = 'top'", consumer="ops")
    await bus.publish(made("a", "a1"))
    await bus.define("low", PAIR, placement="spark", replace=True)
    await bus.publish_many([made("b", "b1"), made("c", "c1")])
    assert await heard(bus, sub) == []
    await bus.publish_many([made("a", "a2"), made("b", "b2"), made("c", "c2")])
    assert len(await take(bus, sub)) == 1


async def test_batches_leave_nothing_behind_but_the_last_ones_number(file_url: str, clock: Any) -> None:
    async with testing.node(url=file_url, clock=clock) as bus:
        await bus.define("pair", PAIR, placement="spark")
        told = 0
        for number in range(20):
            await bus.publish_many([made("a", f"a{number}"), made("b", f"b{number}")])
            found = looked_at(bus)
            assert await store(bus, number, events=found[told:])
            told = len(found)
        assert beside(bus).told.position == 19 and beside(bus).counts == {"pair": told}
        path = file_url.removeprefix("file:")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM writers").fetchone() == (0,)


async def test_while_the_pipeline_is_down_what_it_may_do_again_is_kept(file_url: str, clock: Any) -> None:
    async with testing.node(url=file_url, clock=clock) as bus:
        await bus.define("pair", PAIR, placement="spark")
        await bus.publish_many([made("a", "a1"), made("b", "b1")])
        beside(bus).report(Progress(1, 0))
        assert await store(bus, 1)  # told, and Spark may have died before it has noted that
        beside(bus).progress = None
        assert beside(bus).told.offset == 2 and beside(bus).needed == 2


def test_what_an_early_version_kept_of_definitions_is_read() -> None:
    """It kept, as the sixth, what a definition on Spark was made of."""
    kept = ["spark", 7, 1, 9, [PAIR, "recent", "detection", None], {"other": [3, 4]}]
    found = Placements.load({"definition/pair": msgspec.msgpack.encode(kept)}, {}, None)
    assert found.on_spark == ("pair",) and [each.since for each in found.schedule] == [7]

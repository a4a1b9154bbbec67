"""Composite events on a node: defined once, detected in order, told once, also over restarts and on an idle stream."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta
from typing import Any

import pytest

import tocsin
from tests.helpers import START, event, heard, life, take, testing
from tocsin import composite
from tocsin.journal import contract
from tocsin.journal.contract import Request
from tocsin.journal.sqlite import SqliteJournal
from tocsin.node import watcher

either = pytest.mark.parametrize("end", ["close", "crash"])
PAIR = "SEQ([type = 'a'] AS a, [type = 'b'] AS b) BY k"


def parts(found: Any) -> list[str]:
    return [part.get("id", part["name"]) for part in found.event.data["parts"]]


def made(type: str, id: str, k: str = "x") -> tocsin.Event:
    return event(id, type=type, data={"k": k})


async def test_a_definition_emits_events_whose_type_is_its_name(bus: Any) -> None:
    await bus.define("pair", PAIR, context="chronicle")
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish(made("a", "a1"))
    await bus.publish(made("b", "b1", k="y"))
    closer = await bus.publish(made("b", "b2"))
    [d] = await take(bus, sub)
    assert parts(d) == ["a1", "b2"] and d.event.data["key"] == {"k": "x"}
    assert d.event.source == "tocsin:definitions" and d.offset > closer.offset
    [info] = await bus.definitions()
    assert (info.name, info.context, info.placement, info.detected) == ("pair", "chronicle", "node", 1)


async def test_derived_events_are_events_like_others(bus: Any) -> None:
    await bus.define("pair", PAIR)
    await bus.publish_many([made("a", "a1"), made("b", "b1")])
    await testing.settled(bus)
    sub = await bus.subscribe("type = 'pair' AND key.k = 'x'", consumer="late", past=tocsin.last(10))
    [d] = await take(bus, sub)
    assert parts(d) == ["a1", "b1"]


async def test_events_before_a_definition_take_no_part(bus: Any) -> None:
    await bus.publish(made("a", "a1"))
    await bus.define("pair", PAIR)
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish_many([made("b", "b1"), made("a", "a2"), made("b", "b2")])
    assert [parts(d) for d in await take(bus, sub)] == [["a2", "b2"]]


async def test_definitions_share_nothing_that_is_half_detected(bus: Any) -> None:
    sub = await bus.subscribe("type IN ('old', 'new')", consumer="ops", order="journal")
    await bus.define("old", PAIR, context="chronicle")
    await bus.publish(made("a", "a1"))
    await bus.define("new", PAIR, context="chronicle")
    await bus.publish_many([made("a", "a2"), made("b", "b1"), made("b", "b2")])
    found = [(d.event.type, *parts(d)) for d in await take(bus, sub)]
    assert found == [("old", "a1", "b1"), ("new", "a2", "b1"), ("old", "a2", "b2")]


async def test_seeded_from_the_past_it_starts_as_if_it_had_been_there(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("type IN ('pair', 'other')", consumer="ops", order="journal")
    await bus.publish(made("a", "a1"))
    clock.advance(7200)
    await bus.publish_many([made("a", "a2"), made("b", "b1"), made("a", "a3")])
    await bus.define("other", PAIR, context="chronicle")
    await bus.define("pair", PAIR, context="chronicle", past=tocsin.within(timedelta(hours=1)))
    assert await take(bus, sub) == []
    await bus.publish_many([made("b", "b2"), made("b", "b3")])
    found = [(d.event.type, *parts(d)) for d in await take(bus, sub)]
    assert found == [("pair", "a3", "b2")]


@pytest.mark.parametrize(
    ("past", "opener"),
    [(tocsin.last(1), "a3"), (tocsin.retained(), "a1"), (tocsin.since(2), "a2"), (2, "a2"), (None, None)],
)
async def test_every_bound_on_the_past(bus: Any, past: Any, opener: str | None) -> None:
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish_many([made("a", "a1"), made("a", "a2"), made("a", "a3"), made("x", "x1")])
    await bus.define("pair", PAIR, context="chronicle", past=past)
    await bus.publish(made("b", "b1"))
    assert [parts(d) for d in await take(bus, sub)] == ([[opener, "b1"]] if opener else [])


async def test_a_past_does_not_reach_those_who_say_the_same(bus: Any) -> None:
    sub = await bus.subscribe("type IN ('one', 'two')", consumer="ops", order="journal")
    await bus.publish(made("a", "a1"))
    await bus.define("one", PAIR, context="chronicle")
    await bus.define("two", PAIR, context="chronicle", past=10)
    await bus.publish(made("b", "b1"))
    assert [(d.event.type, *parts(d)) for d in await take(bus, sub)] == [("two", "a1", "b1")]


async def test_definitions_over_definitions(bus: Any) -> None:
    await bus.define("pair", PAIR)
    await bus.define("twice", "SEQ(pair AS p, [type = 'c'] AS c)", context="chronicle")
    await bus.define("thrice", "SEQ(twice AS t, [type = 'd'] AS d)", context="chronicle")
    sub = await bus.subscribe("type = 'thrice'", consumer="ops")
    await bus.publish_many([made("a", "a1"), made("b", "b1"), made("c", "c1"), made("d", "d1")])
    [d] = await take(bus, sub)
    assert parts(d) == ["a1", "b1", "c1", "d1"]
    with pytest.raises(tocsin.DefinitionError, match="made of pair"):
        await bus.undefine("pair")


async def test_leaves_see_no_derived_events(bus: Any) -> None:
    await bus.define("pair", PAIR)
    await bus.define("echo", "[type = 'pair']")
    await bus.publish_many([made("a", "a1"), made("b", "b1")])
    await testing.settled(bus)
    assert {info.name: info.detected for info in await bus.definitions()} == {"pair": 1, "echo": 0}


async def test_nobody_can_publish_in_the_name_of_definitions(bus: Any) -> None:
    with pytest.raises(tocsin.EventError) as error:
        await bus.publish(event("a", source="tocsin:definitions"))
    assert error.value.field == "source"


async def test_the_same_again_changes_nothing_and_another_is_refused(bus: Any) -> None:
    await bus.define("pair", PAIR)
    await bus.publish(made("a", "a1"))
    await bus.define("pair", " SEQ( [type='a'] AS a, [type='b'] AS b ) by k ")
    with pytest.raises(tocsin.DefinitionError, match="defined already") as error:
        await bus.define("pair", PAIR, context="chronicle")
    assert "replace" in (error.value.help or "")
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish(made("b", "b1"))
    assert [parts(d) for d in await take(bus, sub)] == [["a1", "b1"]]


async def test_changing_one_does_not_disturb_others(bus: Any) -> None:
    await bus.define("pair", PAIR, context="chronicle")
    await bus.define("same", PAIR, context="chronicle")
    await bus.publish(made("a", "a1"))
    await bus.define("pair", PAIR, replace=True)
    sub = await bus.subscribe("type IN ('pair', 'same')", consumer="ops")
    await bus.publish(made("b", "b1"))
    assert [(d.event.type, *parts(d)) for d in await take(bus, sub)] == [("same", "a1", "b1")]
    await bus.undefine("pair")
    await bus.publish_many([made("a", "a2"), made("b", "b2")])
    assert [(d.event.type, *parts(d)) for d in await take(bus, sub)] == [("same", "a2", "b2")]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bad", "SEQ([type = 'a'], nowhere)", "nowhere"),
        ("bad", "SQE([type = 'a'], [type = 'b'])", "SEQ"),
        ("bad", "bad", "itself|not defined"),
        ("bad", "PLUS([type = 'a'], -5 SECONDS)", "duration|number"),
        ("tocsin.bad", "[type = 'a']", "tocsin"),
    ],
)
async def test_bad_definitions_are_refused_and_nothing_has_changed(bus: Any, name: str, text: str, words: str) -> None:
    await bus.define("pair", PAIR)
    await bus.publish(made("a", "a1"))
    with pytest.raises(tocsin.DefinitionError) as error:
        await bus.define(name, text)
    assert re.search(words, f"{error.value} {error.value.help}")
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish(made("b", "b1"))
    assert len(await take(bus, sub)) == 1
    assert [info.name for info in await bus.definitions()] == ["pair"]


async def test_placements(bus: Any) -> None:
    await bus.define("pair", PAIR, placement="node")
    with pytest.raises(tocsin.TocsinError) as error:
        await bus.define("other", PAIR, placement="moon")
    assert error.value.field == "placement"


async def test_explained_with_its_constituents(bus: Any) -> None:
    a, b = composite.event("type = 'a'", as_="a"), composite.event("type = 'b'", as_="b")
    await bus.define("pair", (a >> b).by("k"), context="chronicle")
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    await bus.publish_many([made("a", "a1"), made("x", "x1"), made("b", "b1")])
    [d] = await take(bus, sub)
    found = await bus.explain(d.event.id)
    assert [(part.name, part.role, part.fate, part.event.id) for part in found.parts] == [
        ("a", "opener", "used", "a1"),
        ("b", "closer", "used", "b1"),
    ]
    assert found.completed_by.id == "b1" and "pair occurred" in str(found)
    for id in ("nope", "a1"):
        with pytest.raises(tocsin.UnknownEventError):
            await bus.explain(id)


@pytest.mark.parametrize("key", [2**70, -(2**70), 1e300, 2.0**63, 2**63, 10**400], ids=repr)
@pytest.mark.parametrize(
    "text", [PAIR, "SEQ([type = 'a'] AS a, [type = 'b'] AS b) WHERE a.k = b.k"], ids=["by", "where"]
)
async def test_numbers_beyond_64_bits_stop_nobody(bus: Any, key: Any, text: str) -> None:
    await bus.define("pair", text)
    await bus.define("other", "[type = 'z']")
    for type in "abz":
        await bus.publish(made(type, type, k=key))
    await testing.settled(bus)
    found = {info.name: (info.detected, info.halted) for info in await bus.definitions()}
    assert found["other"] == (1, None) and found["pair"] == (int(key != 10**400), None)
    await bus.define("third", "[type = 'y']")  # a snapshot can be taken


@pytest.mark.parametrize(
    ("key", "told"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")], ids=repr
)
async def test_numbers_that_json_does_not_have_are_keys_and_stop_nobody(bus: Any, key: float, told: str) -> None:
    await bus.define("pair", PAIR)
    sub = await bus.subscribe("type = 'pair'", consumer="ops")
    for type in "ab":
        await bus.publish(tocsin.Event(type, "plant", id=type, attributes={"k": key}))
        await bus.publish(made(type, f"{type}1"))
    assert [(parts(d), d.event.data["key"]) for d in await take(bus, sub)] == [
        (["a", "b"], {"k": told}),
        (["a1", "b1"], {"k": "x"}),
    ]


async def test_a_new_definition_that_names_one_does_not_see_what_that_has_open(bus: Any) -> None:
    sub = await bus.subscribe("type = 'x'", consumer="ops")
    await bus.define("pair", "SEQ([type = 'a'], [type = 'b'])", context="chronicle")
    await bus.publish(made("a", "a1"))
    text = "OR(SEQ(pair AS p, [type = 'zzz']), SEQ(SEQ([type = 'a'], [type = 'b']), [type = 'c']))"
    await bus.define("x", text, context="chronicle")
    await bus.publish_many([made("b", "b1"), made("c", "c1")])
    assert await take(bus, sub) == []
    await bus.define("x", text + " WITHIN 1 DAY", context="chronicle", past=10, replace=True)
    assert [parts(d) for d in await take(bus, sub)] == []
    await bus.publish_many([made("a", "a2"), made("b", "b2"), made("c", "c2")])
    assert [parts(d) for d in await take(bus, sub)] == [["a2", "b2", "c2"]]


async def test_replacing_one_keeps_what_is_made_of_it(bus: Any) -> None:
    await bus.define("pair", PAIR, context="chronicle")
    await bus.define("twice", "SEQ(pair AS p, [type = 'c'] AS c)", context="chronicle")
    await bus.publish_many([made("a", "a1"), made("b", "b1")])
    await bus.define("pair", PAIR.replace(" BY", " WITHIN 1 HOUR BY"), context="chronicle", replace=True)
    assert [(info.name, info.detected) for info in await bus.definitions()] == [("pair", 0), ("twice", 0)]
    sub = await bus.subscribe("type = 'twice'", consumer="ops")
    await bus.publish(made("c", "c1"))
    assert [parts(d) for d in await take(bus, sub)] == [["a1", "b1", "c1"]]
    with pytest.raises(tocsin.DefinitionError, match="made of itself"):
        await bus.define("pair", "SEQ(twice, [type = 'z'])", replace=True)


async def test_definitions_can_be_looked_at_while_others_are_made(bus: Any) -> None:
    async def look() -> int:
        seen = 0
        while seen < 20:
            seen = len(await bus.definitions())
            await asyncio.sleep(0)
        return seen

    looking = asyncio.ensure_future(look())
    for number in range(20):
        await bus.define(f"d{number}", PAIR)
    assert await looking == 20


async def test_a_limit_of_one_definition_is_counted_and_seen(bus: Any) -> None:
    await bus.define("few", PAIR, context="chronicle", max_open=3)
    await bus.define("many", PAIR, context="chronicle")
    await bus.publish_many([made("a", f"a{n}", k=str(n)) for n in range(10)])
    await testing.settled(bus)
    found = {info.name: (info.open, info.dropped) for info in await bus.definitions()}
    assert found == {"few": (3, 7), "many": (10, 0)}
    with pytest.raises(tocsin.DefinitionError) as error:
        await bus.define("bad", PAIR, max_open=0)
    assert error.value.field == "max_open"


# -- time


async def test_clock_records_end_waits_on_an_idle_stream(bus: Any, clock: Any) -> None:
    await bus.define("stop", "PLUS([type = 'value'] AS v, 30 SECONDS) BY k")
    sub = await bus.subscribe("type = 'stop'", consumer="ops")
    clocks = await bus.subscribe("type = 'tocsin.clock'", consumer="clocks", system=True)
    await bus.publish(made("value", "v1"))
    clock.advance(29)
    assert await take(bus, sub) == []
    clock.advance(1)
    [d] = await take(bus, sub)
    assert parts(d)[0] == "v1" and d.event.time is not None
    assert len(await heard(bus, clocks)) == 1
    clock.advance(3600)  # nothing waits any more
    assert await heard(bus, clocks) == []


async def test_no_clock_record_before_a_second_of_silence(bus: Any, clock: Any) -> None:
    await bus.define("stop", "PLUS([type = 'value'] AS v, 30 SECONDS)")
    sub = await bus.subscribe("type = 'stop'", consumer="ops")
    clocks = await bus.subscribe("type = 'tocsin.clock'", consumer="clocks", system=True)
    await bus.publish(made("value", "v1"))
    clock.advance(29.5)
    await bus.publish(made("x", "x1"))
    clock.advance(0.9)
    assert await take(bus, sub) == [] and await take(bus, clocks) == []
    await bus.publish(made("x", "x2"))  # later than the timer: it fires before this
    [d] = await take(bus, sub)
    assert await take(bus, clocks) == [] and d.offset > 3


async def test_events_after_a_clock_record_are_later(bus: Any, clock: Any) -> None:
    await bus.define("stop", "PLUS([type = 'value'] AS v, 30 SECONDS)")
    await bus.publish(made("value", "v1"))
    everything = await bus.subscribe("TRUE", consumer="all", order="journal", system=True)
    clock.advance(30)
    await testing.settled(bus)
    await bus.publish(made("x", "x1"))
    stamps = {d.event.type: d.event.arrived for d in await take(bus, everything)}
    assert stamps["x"] > stamps["tocsin.clock"] and stamps["stop"] >= stamps["tocsin.clock"]


@either
async def test_timers_across_restarts(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.define("stop", "PLUS([type = 'value'] AS v, 30 SECONDS) BY k")
        await bus.publish(made("value", "v1"))
        clock.advance(10)
        await bus.publish(made("value", "v2", k="y"))
        await testing.settled(bus)
    clock.advance(25)
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("type = 'stop'", consumer="ops", past=tocsin.retained())
        await testing.settled(bus)
        assert [parts(d)[0] for d in await take(bus, sub)] == ["v1"]
        clock.advance(5)
        assert [parts(d)[0] for d in await take(bus, sub)] == ["v2"]


async def test_absolute_times_on_an_idle_stream_and_not_before(bus: Any, clock: Any) -> None:
    clock.advance(9 * 3600)  # the test's day begins at midnight
    await bus.define("morning", "AT '08:00' AS m")
    await bus.define("left_on", "NOT([type = 'on'] AS o, [type = 'off'], AT '20:00') BY k", context="chronicle")
    sub = await bus.subscribe("type IN ('morning', 'left_on')", consumer="ops", order="journal", auto_ack=True)
    await bus.publish_many([made("on", "on1", k="x"), made("on", "on2", k="y"), made("off", "off1", k="x")])
    assert await take(bus, sub) == []
    clock.advance(11 * 3600)
    assert [(d.event.type, parts(d)[0]) for d in await take(bus, sub)] == [("left_on", "on2")]
    clock.advance(12 * 3600)
    assert [(d.event.type, d.event.time) for d in await take(bus, sub, 1)] == [("morning", START + timedelta(hours=32))]


async def test_what_was_due_before_a_definition_was_made_does_not_come(bus: Any, clock: Any) -> None:
    await bus.define("old", "AT '08:00'")
    await bus.define("stop", "PLUS([type = 'v'] AS v, 8 HOURS)")
    await bus.publish(made("v", "v1"))
    clock.advance(8 * 3600 + 0.4)  # due, and no clock record yet
    await bus.define("new", "AT '08:00'")
    await bus.define("over", "SEQ(stop, [type = 'w'])")
    await bus.publish(made("w", "w1"))
    await testing.settled(bus)
    found = {info.name: info.detected for info in await bus.definitions()}
    assert found == {"old": 1, "stop": 1, "new": 0, "over": 0}


@pytest.mark.parametrize("past", [tocsin.within(timedelta(hours=1)), tocsin.since(START), tocsin.retained()])
async def test_absolute_times_of_the_past(bus: Any, clock: Any, past: Any) -> None:
    await bus.publish(made("x", "x1"))
    clock.advance(8 * 3600 + 600)
    await bus.publish(made("a", "a1"))
    clock.advance(600)
    await bus.define("since_eight", "A*(AT '08:00' AS t, [type = 'a'], [type = 'stop'])", "chronicle", past=past)
    sub = await bus.subscribe("type = 'since_eight'", consumer="ops")
    await bus.publish(made("stop", "s1"))
    assert [parts(d) for d in await take(bus, sub)] == [["t", "a1", "s1"]]
    await bus.define("eight", "AT '08:00'", past=past)
    await testing.settled(bus)
    assert {info.name: info.detected for info in await bus.definitions()} == {"since_eight": 1, "eight": 0}


@either
async def test_many_timers_after_a_long_silence_come_once(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.define("tick", "P([type = 'a'] AS a, 10 MILLISECONDS, [type = 'end'])")
        await bus.publish(made("a", "a1"))
        await testing.settled(bus)
    clock.advance(30.005)  # three thousand ticks, in several batches
    async with life(file_url, clock, end) as bus:
        await bus.publish(made("end", "e1"))
        for _ in range(2):
            await bus._node.store()
            await asyncio.sleep(0)  # somewhere on the way
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("type = 'tick'", consumer="ops", past=tocsin.retained(), max_in_flight=10_000)
        found = [d.event for d in await take(bus, sub)]
        assert len({each.id for each in found}) == len(found) == 3_000
        assert [each.time for each in found] == sorted(each.time for each in found)


# -- restarts


@either
async def test_a27_half_detected_before_a_crash_whole_after_it(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.define("pair", PAIR, context="chronicle")
        await bus.publish_many([made("a", "a1"), made("a", "a2"), made("b", "b1")])
        await testing.settled(bus)
    async with life(file_url, clock, end) as bus:
        sub = await bus.subscribe("type = 'pair'", consumer="ops", past=tocsin.retained())
        await bus.publish(made("b", "b2"))
        assert [parts(d) for d in await take(bus, sub)] == [["a1", "b1"], ["a2", "b2"]]
    async with life(file_url, clock) as bus:
        [info] = await bus.definitions()
        assert (info.name, info.context) == ("pair", "chronicle")
        sub = await bus.subscribe("type = 'pair'", consumer="later", past=tocsin.retained())
        assert [parts(d) for d in await take(bus, sub)] == [["a1", "b1"], ["a2", "b2"]]


@either
async def test_undefined_stays_undefined(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.define("pair", PAIR)
        await bus.publish(made("a", "a1"))
        await bus.undefine("pair")
    async with life(file_url, clock) as bus:
        assert await bus.definitions() == []
        await bus.define("pair", PAIR)
        await bus.publish(made("b", "b1"))
        sub = await bus.subscribe("type = 'pair'", consumer="ops", past=tocsin.retained())
        assert await take(bus, sub) == []


async def test_trimming_keeps_what_recovery_reads(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        await bus.define("pair", PAIR, context="chronicle")
        await bus.publish(made("a", "a1"))
        for n in range(50):
            await bus.publish(made("x", f"x{n}"))
        await bus.trim(older_than=timedelta(0))
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("type = 'pair'", consumer="ops")
        await bus.publish(made("b", "b1"))
        assert [parts(d) for d in await take(bus, sub)] == [["a1", "b1"]]


async def test_what_cannot_be_taken_up_halts_detection_and_nothing_else(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        await bus.define("pair", PAIR)
        await bus.publish(made("a", "a1"))
    with SqliteJournal(file_url.removeprefix("file:"), clock=clock) as journal:
        done = threading.Event()
        journal.submit(Request(clock.now(), state={"detection/state": b"of a later time"}, done=lambda _: done.set()))
        assert done.wait(30)
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("type = 'b'", consumer="ops")
        await bus.publish(made("b", "b1"))
        assert await heard(bus, sub) == ["b1"]
        with pytest.raises(tocsin.DefinitionError, match="halted"):
            await bus.define("other", PAIR)
        await bus.trim(older_than=timedelta(0))
    with SqliteJournal(file_url.removeprefix("file:"), clock=clock) as journal:
        assert journal.state("detection/state") == {"detection/state": b"of a later time"} and journal.first == 1


async def test_a_snapshot_taken_while_catching_up_does_not_tell_again(
    file_url: str, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "DEDUP_LEAST", 1)  # nobody recognises what is told again
    monkeypatch.setattr(watcher, "CHECKPOINT", 10**9)
    async with life(file_url, clock, "crash") as bus:
        await bus.define("pair", PAIR, context="chronicle")
        await bus.publish_many([made("ab"[n % 2], str(n)) for n in range(2_000)])
        await testing.settled(bus)
    clock.advance(3600)
    monkeypatch.setattr(watcher, "CHECKPOINT", 100)
    async with life(file_url, clock, "crash") as bus:
        await testing.settled(bus)
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("type = 'pair'", consumer="ops", past=tocsin.retained(), max_in_flight=5_000)
        found = await heard(bus, sub)
        assert len(found) == len(set(found)) == 1_000


async def test_a_long_stream_is_detected_from_the_journal(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        await bus.define("pair", PAIR, context="chronicle")
        for first in range(0, 30_000, 5_000):
            await bus.publish_many(
                [made("a" if n % 2 == 0 else "b", str(n), k=str(n // 2 % 97)) for n in range(first, first + 5_000)]
            )
        await testing.settled(bus)
        assert (await bus.definitions())[0].detected == 15_000
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("type = 'pair'", consumer="ops", past=tocsin.retained(), max_in_flight=20_000)
        found = await heard(bus, sub)
        assert len(found) == len(set(found)) == 15_000

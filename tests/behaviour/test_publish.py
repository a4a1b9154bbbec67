"""Publishing: what the answer means, stored once, limits, and publishers that are faster than the journal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tocsin
from tests.helpers import START, event, head, heard, ids, numbered, take, testing

MIB = 2**20


async def test_answer_names_the_event_and_its_place(bus: Any) -> None:
    first = await bus.publish(event("a"))
    second = await bus.publish(event("b"))
    assert (first.id, second.id) == ("a", "b")
    assert isinstance(first.offset, int) and first.offset >= 1
    assert second.offset == first.offset + 1


async def test_event_arrives_as_it_was_published(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    clock.advance(5)
    data = {"deep": {"x": [1, None, "é"]}}
    sent = event("a", subject="press", data=data, attributes={"line": 7}, priority=8, ttl=60.5)
    published = await bus.publish(sent)
    [d] = await take(bus, sub)
    assert (d.event.offset, d.offset) == (published.offset, published.offset)
    assert (d.event.arrived - START).total_seconds() == 5
    assert d.event.replace(offset=None, arrived=None, time=None) == sent


async def test_producers_time_is_kept_and_a_missing_one_is_stamped(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", time="2020-02-02T02:02:02Z"))
    clock.advance(3)
    await bus.publish(event("b"))
    a, b = await take(bus, sub)
    assert a.event.time.year == 2020 and a.event.arrived == START
    assert b.event.time == b.event.arrived != START


async def test_binary_and_text_payloads_survive(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    await bus.publish(event("b", data=b"\x00\xff", datacontenttype="application/octet-stream"))
    await bus.publish(event("t", data="plain", datacontenttype="text/plain"))
    assert [d.event.data for d in await take(bus, sub)] == [b"\x00\xff", "plain"]


async def test_same_source_and_id_are_stored_once(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    first = await bus.publish(event("a", data={"n": 1}))
    again = await bus.publish(event("a", data={"n": 2}))
    assert again.offset == first.offset
    [d] = await take(bus, sub)
    assert d.event.data == {"n": 1}
    assert await head(bus) == first.offset + 1


async def test_same_id_of_another_source_is_another_event(bus: Any) -> None:
    first = await bus.publish(event("a", source="line/1"))
    other = await bus.publish(event("a", source="line/2"))
    assert other.offset == first.offset + 1


async def test_few_ids_are_remembered_beyond_ten_minutes(bus: Any, clock: Any) -> None:
    first = await bus.publish(event("a"))
    clock.advance(3600)
    assert (await bus.publish(event("a"))).offset == first.offset


async def test_publishing_together_the_same_event_stores_it_once(bus: Any) -> None:
    answers = await asyncio.gather(*(bus.publish(event("a")) for _ in range(20)))
    assert len({p.offset for p in answers}) == 1


async def test_publish_many_answers_in_order(bus: Any) -> None:
    before = await head(bus)
    answers = await bus.publish_many(numbered(1000))
    assert [p.id for p in answers] == [str(n) for n in range(1, 1001)]
    assert [p.offset for p in answers] == list(range(before + 1, before + 1001))


async def test_publish_many_of_nothing(bus: Any) -> None:
    before = await head(bus)
    assert await bus.publish_many([]) == []
    assert await head(bus) == before + 1


async def test_publish_many_answers_repeated_events_with_their_first_place(bus: Any) -> None:
    old = await bus.publish(event("old"))
    a, again, b = await bus.publish_many([event("a"), event("old"), event("b")])
    assert again.offset == old.offset
    assert (a.offset, b.offset) == (old.offset + 1, old.offset + 2)
    twice, same = await bus.publish_many([event("c"), event("c")])
    assert twice.offset == same.offset


async def test_one_publisher_keeps_its_order_among_many(bus: Any) -> None:
    async def publisher(name: str) -> list[int]:
        return [(await bus.publish(event(str(n), source=name))).offset for n in range(50)]

    places = await asyncio.gather(*(publisher(f"line/{n}") for n in range(10)))
    assert all(each == sorted(each) for each in places)
    assert len({offset for each in places for offset in each}) == 500


async def test_event_that_is_not_persistent_is_delivered_like_any_other(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    before = await head(bus)
    answer = await bus.publish(event("a", persistent=False))
    assert answer.offset == before + 1
    assert "a" in await heard(bus, sub)


async def test_event_that_is_not_persistent_can_be_asked_after_and_cancelled(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", persistent=False))
    assert set((await bus.status("a")).matched) == {"ops"}
    await bus.cancel("a")
    assert ids(await take(bus, sub)) == []


async def test_settled_waits_also_for_events_that_are_not_persistent(bus: Any) -> None:
    """Answered before it is stored; but then there is something left to do, and `settled` waits for it."""
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    for n in range(40):
        await bus.publish(event(str(n), persistent=False))
        assert await heard(bus, sub) == [str(n)]


async def test_events_that_are_not_persistent_keep_the_order_of_calls(bus: Any) -> None:
    """Answered before a subscription is made: not for it. Answered before `settled` is asked: delivered by then."""
    early = await bus.subscribe("TRUE", consumer="early", order="journal")
    for n in range(40):
        await bus.publish(event(str(n), persistent=False))
        late = await bus.subscribe("TRUE", consumer=f"late-{n}")
        assert (await heard(bus, early), await heard(bus, late)) == ([str(n)], [])
        await bus.forget(f"late-{n}")


async def test_received_event_can_be_published_elsewhere(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="bridge")
    await bus.publish_many(numbered(3))
    got = await take(bus, sub)
    async with testing.node(url="memory:") as other:
        there = await other.publish(got[2].event)
        assert there.id == "3" and there.offset < got[2].offset


@pytest.mark.parametrize("size", [MIB + 1, 100 * MIB])
async def test_event_that_is_too_large_is_refused_by_name(bus: Any, size: int) -> None:
    before = await head(bus)
    with pytest.raises(tocsin.EventError) as refused:
        await bus.publish(event("big", data={"text": "x" * size}))
    assert refused.value.field == "data"
    assert len(str(refused.value)) < 1000
    assert await head(bus) == before + 1


async def test_event_just_under_the_limit_is_taken(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("large", data={"text": "x" * (MIB - 4096)}))
    [d] = await take(bus, sub)
    assert len(d.event.data["text"]) == MIB - 4096


async def test_one_bad_event_refuses_the_whole_batch(bus: Any) -> None:
    before = await head(bus)
    with pytest.raises(tocsin.EventError):
        await bus.publish_many([event("good"), event("big", data="x" * (MIB + 1))])
    assert await head(bus) == before + 1


async def test_publishers_faster_than_the_journal_wait_their_turn(bus: Any) -> None:
    answers = await asyncio.gather(*(bus.publish(each) for each in numbered(20_000)))
    assert len({p.offset for p in answers}) == 20_000


async def test_publisher_that_finds_no_room_in_time_is_told(url: str, clock: testing.ManualClock) -> None:
    async with testing.node(url, clock, max_waiting=10, patience=0) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=1000)
        done = await asyncio.gather(*(bus.publish(each) for each in numbered(200)), return_exceptions=True)
        refused = [p for p in done if isinstance(p, BaseException)]
        assert refused and all(isinstance(p, tocsin.OverloadError) and p.help for p in refused)
        assert sorted(await heard(bus, sub)) == sorted(p.id for p in done if not isinstance(p, BaseException))


async def test_publish_answers_while_a_consumer_never_takes_anything(bus: Any) -> None:
    await bus.subscribe("TRUE", consumer="stuck", max_in_flight=1)
    for chunk in range(10):
        await bus.publish_many(numbered(1000, first=1 + 1000 * chunk))
    assert await head(bus) > 10_000


async def test_journal_order_is_offset_order_for_interleaved_publishers(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal", max_in_flight=10_000)
    await asyncio.gather(*(bus.publish(each) for each in numbered(300)))
    got = await take(bus, sub)
    assert [d.offset for d in got] == sorted(d.offset for d in got)
    assert sorted(ids(got)) == sorted(str(n) for n in range(1, 301))


async def test_a_jump_of_the_wall_clock_is_reported_once(bus: Any, clock: Any, caplog: Any) -> None:
    first = await bus.publish(event("a"))
    clock.jump(-3600)
    await bus.publish_many([event("b"), event("c")])
    await bus.publish(event("d"))
    assert [record.levelname for record in caplog.records if "wall clock" in record.message] == ["WARNING"]
    sub = await bus.subscribe("TRUE", consumer="ops", past=tocsin.since(first.offset), order="journal")
    arrivals = [d.event.arrived for d in await take(bus, sub)]
    assert arrivals == sorted(arrivals) and len(arrivals) == 4

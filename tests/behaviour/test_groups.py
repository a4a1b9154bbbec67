"""Groups (point-to-point): settlement belongs to the group, and each event goes to exactly one member."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tocsin
from tests.helpers import ack_all, event, heard, ids, life, numbered, soon, take, testing


async def join(bus: Any, *names: str, **options: Any) -> list[Any]:
    return [await bus.subscribe("TRUE", consumer=name, group="crew", **options) for name in names]


async def test_each_event_goes_to_exactly_one_member(bus: Any) -> None:
    members = await join(bus, "a", "b", "c", max_in_flight=4)
    await bus.publish_many(numbered(100))
    got: list[str] = []
    while batch := [d for member in members for d in await take(bus, member)]:
        got += ids(batch)
        await ack_all(batch)
    assert sorted(got) == sorted(str(n) for n in range(1, 101))


async def test_group_and_plain_consumer_both_get_it(bus: Any) -> None:
    [member] = await join(bus, "a")
    alone = await bus.subscribe("TRUE", consumer="alone")
    await bus.publish(event("x"))
    assert await heard(bus, member) == await heard(bus, alone) == ["x"]


async def test_two_groups_get_one_copy_each(bus: Any) -> None:
    first = await bus.subscribe("TRUE", consumer="a", group="g")
    second = await bus.subscribe("TRUE", consumer="b", group="h")
    await bus.publish(event("x"))
    assert await heard(bus, first) == await heard(bus, second) == ["x"]


async def test_member_with_fewest_in_flight_is_first(bus: Any) -> None:
    [busy] = await join(bus, "busy")
    await bus.publish_many(numbered(3))
    assert len(await take(bus, busy)) == 3
    [idle] = await join(bus, "idle")
    waits = [asyncio.ensure_future(busy.next()), asyncio.ensure_future(idle.next())]
    await testing.settled(bus)
    for id in "xyz":
        await bus.publish(event(id))
        d = await soon(waits[1])
        assert d.event.id == id
        waits[1] = asyncio.ensure_future(idle.next())
        await testing.settled(bus)
    assert not waits[0].done()
    for each in waits:
        each.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


async def test_load_is_shared_when_all_wait(bus: Any) -> None:
    members = await join(bus, "a", "b", "c", "d")
    await bus.publish_many(numbered(40))
    await testing.settled(bus)
    counts = [0, 0, 0, 0]
    while any(polled := [member.poll() for member in members]):
        counts = [count + (d is not None) for count, d in zip(counts, polled, strict=True)]
    assert counts == [10, 10, 10, 10]


async def test_closing_member_hands_over_what_it_had(bus: Any) -> None:
    [leaving] = await join(bus, "leaving")
    await bus.publish_many(numbered(3))
    first, *_ = await take(bus, leaving)
    await first.ack()
    [staying] = await join(bus, "staying")
    assert await take(bus, staying) == []
    await leaving.close()
    got = await take(bus, staying)
    assert ids(got) == ["2", "3"]
    assert {d.attempt for d in got} == {2}


async def test_what_waited_for_a_closing_member_goes_to_another(bus: Any) -> None:
    one, two = await join(bus, "one", "two")
    await bus.publish_many(numbered(10))
    await testing.settled(bus)
    await one.close()
    assert sorted(await heard(bus, two), key=int) == [str(n) for n in range(1, 11)]


async def test_silent_member_loses_it_after_ack_wait(bus: Any, clock: Any) -> None:
    [silent] = await join(bus, "silent", ack_wait=10)
    await bus.publish_many(numbered(2))
    assert len(await take(bus, silent)) == 2
    [other] = await join(bus, "other", ack_wait=10)
    clock.advance(11)
    got = await take(bus, other) + await take(bus, silent)
    assert sorted(ids(got)) == ["1", "2"]
    assert {d.attempt for d in got} == {2}


async def test_forgotten_member_hands_over_too(bus: Any) -> None:
    [gone] = await join(bus, "gone")
    await bus.publish(event("x"))
    assert len(await take(bus, gone)) == 1
    [kept] = await join(bus, "kept")
    await bus.forget("gone")
    assert await heard(bus, kept) == ["x"]


async def test_new_member_does_not_get_what_the_group_has_settled(bus: Any) -> None:
    [old] = await join(bus, "old")
    await bus.publish_many(numbered(3))
    assert len(await heard(bus, old)) == 3
    new = await bus.subscribe("TRUE", consumer="new", group="crew", past=tocsin.retained())
    assert await heard(bus, new) == []


async def test_group_whose_members_are_all_away_keeps_everything(bus: Any) -> None:
    [member] = await join(bus, "a")
    await member.close()
    await bus.publish_many(numbered(3))
    [back] = await join(bus, "a")
    assert await heard(bus, back) == ["1", "2", "3"]


async def test_priority_holds_across_the_group(bus: Any) -> None:
    members = await join(bus, "a", "b", max_in_flight=1)
    await bus.publish_many([event(f"low-{n}", priority=1) for n in range(6)])
    held = [d for member in members for d in await take(bus, member)]
    await bus.publish_many([event("hot-1", priority=9), event("hot-2", priority=9)])
    await ack_all(held)
    assert sorted(ids([d for member in members for d in await take(bus, member)])) == ["hot-1", "hot-2"]


@pytest.mark.parametrize("end", ["close", "crash"])
async def test_member_without_a_name_is_one_until_its_handle_closes(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        subs = [await bus.subscribe("TRUE", group="crew") for _ in range(3)]
        assert len(await bus.consumers()) == 3
        await subs[0].close()
        assert len(await bus.consumers()) == 2
        await bus.publish(event("x"))
    async with life(file_url, clock) as bus:
        assert await bus.consumers() == []
        assert await heard(bus, (await join(bus, "a"))[0]) == ["x"]


async def test_consumer_may_be_called_anonymous(bus: Any) -> None:
    await (await bus.subscribe("TRUE", consumer="anonymous-7")).close()
    assert [each.name for each in await bus.consumers()] == ["anonymous-7"]


async def test_settlement_of_the_group_survives_a_restart(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, end="crash") as bus:
        one, _two = await join(bus, "one", "two", max_in_flight=1)
        await bus.publish_many(numbered(4))
        [d] = await take(bus, one)
        await d.ack()
    async with life(file_url, clock) as bus:
        _one, two = await join(bus, "one", "two", max_in_flight=1)
        await _one.close()
        assert sorted(await heard(bus, two)) == sorted({"1", "2", "3", "4"} - {d.event.id})


async def test_status_counts_the_group_once(bus: Any) -> None:
    one, two = await join(bus, "one", "two")
    await bus.publish(event("x"))
    got = await take(bus, one) + await take(bus, two)
    await ack_all(got)
    status = await bus.status("x")
    assert status.state == "settled"
    assert len(status.acked) == 1 and not status.pending

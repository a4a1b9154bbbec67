"""The past: five bounds, the seam to the present, and seeing settled events again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import tocsin
from tests.helpers import START, event, heard, ids, life, numbered, soon, take, testing

MINUTE = 60


async def read(bus: Any, past: Any, filter: str = "TRUE", consumer: str = "reader") -> list[str]:
    """What a new consumer in journal order is given of the past."""
    return await heard(bus, await bus.subscribe(filter, consumer=consumer, past=past, order="journal"))


async def once_a_minute(bus: Any, clock: Any, count: int) -> None:
    """Events 1 … count, the last of them now."""
    for n in range(1, count + 1):
        await bus.publish(event(str(n), data={"n": n}))
        clock.advance(MINUTE if n < count else 0)


async def test_without_a_bound_there_is_no_past(bus: Any) -> None:
    await bus.publish_many(numbered(5))
    assert await read(bus, None) == []


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        (tocsin.last(3), ["8", "9", "10"]),
        (3, ["8", "9", "10"]),
        (tocsin.last(100), [str(n) for n in range(1, 11)]),
        (tocsin.within(timedelta(minutes=3.5)), ["7", "8", "9", "10"]),
        (timedelta(minutes=3.5), ["7", "8", "9", "10"]),
        (tocsin.last(2, within=timedelta(minutes=3.5)), ["9", "10"]),
        (tocsin.last(9, within=timedelta(minutes=3.5)), ["7", "8", "9", "10"]),
        (tocsin.since(START + timedelta(minutes=8)), ["9", "10"]),
        (tocsin.since((START + timedelta(minutes=8)).isoformat()), ["9", "10"]),
        (tocsin.retained(), [str(n) for n in range(1, 11)]),
    ],
    ids=str,
)
async def test_bounds(bus: Any, clock: Any, past: Any, expected: list[str]) -> None:
    await once_a_minute(bus, clock, 10)
    assert await read(bus, past) == expected


async def test_since_an_offset_includes_it(bus: Any) -> None:
    places = await bus.publish_many(numbered(10))
    assert await read(bus, tocsin.since(places[6].offset)) == ["7", "8", "9", "10"]


async def test_since_an_offset_that_is_still_to_come(bus: Any) -> None:
    places = await bus.publish_many(numbered(3))
    sub = await bus.subscribe("TRUE", consumer="reader", past=tocsin.since(places[-1].offset + 1))
    await bus.publish(event("next"))
    assert await heard(bus, sub) == ["next"]


async def test_last_counts_events_that_match_this_filter(bus: Any) -> None:
    await bus.publish_many(numbered(100))
    assert await read(bus, 2, filter="n % 30 = 0") == ["60", "90"]


async def test_filter_nobody_had_before_finds_its_whole_past(bus: Any) -> None:
    for chunk in range(20):
        await bus.publish_many(numbered(500, first=1 + 500 * chunk))
    assert await read(bus, tocsin.retained(), filter="n IN (1, 777, 9999)") == ["1", "777", "9999"]
    assert await read(bus, 1, filter="n < 3", consumer="other") == ["2"]


async def test_empty_past_and_a_filter_that_matches_nothing(bus: Any) -> None:
    assert await read(bus, tocsin.last(5)) == []
    await bus.publish_many(numbered(10))
    assert await read(bus, tocsin.last(5), filter="n > 1000", consumer="other") == []


async def test_past_is_found_and_queued_when_subscribe_returns(bus: Any) -> None:
    await bus.publish_many(numbered(50))
    sub = await bus.subscribe("TRUE", consumer="reader", past=tocsin.last(10), order="journal")
    assert ids(iter(sub.poll, None)) == [str(n) for n in range(41, 51)]


async def test_past_is_marked_and_the_event_is_the_same(bus: Any) -> None:
    early = await bus.subscribe("TRUE", consumer="early", order="journal")
    await bus.publish(event("old"))
    late = await bus.subscribe("TRUE", consumer="late", past=1, order="journal")
    await bus.publish(event("new"))
    was_live, was_past = await take(bus, early), await take(bus, late)
    assert [d.event for d in was_live] == [d.event for d in was_past]
    assert [d.replayed for d in was_live] == [False, False]
    assert [d.replayed for d in was_past] == [True, False]


async def test_journal_order_oldest_first_then_live(bus: Any) -> None:
    await bus.publish_many([event("a", priority=1), event("b", priority=9)])
    sub = await bus.subscribe("TRUE", consumer="reader", past=tocsin.last(2), order="journal")
    await bus.publish(event("c", priority=10))
    assert await heard(bus, sub) == ["a", "b", "c"]


async def test_priority_order_past_and_live_share_one_queue(bus: Any) -> None:
    await bus.publish_many([event("a", priority=1), event("b", priority=9)])
    sub = await bus.subscribe("TRUE", consumer="reader", past=tocsin.last(2))
    await bus.publish_many([event("c", priority=5), event("d", priority=10)])
    assert await heard(bus, sub) == ["d", "b", "c", "a"]


async def test_system_records_are_no_part_of_the_past(bus: Any) -> None:
    ops = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(3, ack="client"))
    assert len(await heard(bus, ops)) == 3
    assert await read(bus, 2) == ["2", "3"]


async def test_bounds_of_another_filter_add_to_what_waits(bus: Any) -> None:
    await bus.publish_many(numbered(20))
    first = await bus.subscribe("n % 2 = 0", consumer="ops", past=2, order="journal")
    second = await bus.subscribe("n % 3 = 0", consumer="ops", past=2, order="journal")
    assert sorted(await heard(bus, first) + await heard(bus, second)) == ["15", "18", "20"]


async def test_replay_brings_settled_events_again(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    await bus.publish_many(numbered(5))
    assert len(await heard(bus, sub)) == 5
    await sub.close()
    plain = await bus.subscribe("TRUE", consumer="ops", past=3, order="journal")
    assert await heard(bus, plain) == []
    await plain.close()
    again = await bus.subscribe("TRUE", consumer="ops", past=3, order="journal", replay=True)
    got = await take(bus, again)
    assert ids(got) == ["3", "4", "5"]
    assert all(d.replayed for d in got)


async def test_replay_is_for_this_time_only(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(3))
    await heard(bus, sub)
    await sub.close()
    again = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained(), replay=True)
    assert len(await heard(bus, again)) == 3
    await again.close()
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == []


@pytest.mark.parametrize("order", ["journal", "priority"])
async def test_no_gap_and_no_duplicate_while_events_pour_in(bus: Any, order: str) -> None:
    async def pour() -> list[int]:
        return [(await bus.publish(event(str(n), priority=1 + n % 10))).offset for n in range(400)]

    async def join(number: int) -> tuple[int, Any]:
        while len(seen) < 20 * number:
            seen.append((await soon(watch.next())).offset)
        name = f"late-{number}"
        return number, await bus.subscribe("TRUE", consumer=name, past=tocsin.since(1), order=order)

    watch = await bus.subscribe("TRUE", consumer="watch", order="journal", auto_ack=True)
    seen: list[int] = []
    pouring = asyncio.ensure_future(pour())
    subs = [await join(number) for number in range(1, 16)]
    places = await soon(pouring)
    for _, sub in subs:
        got: list[int] = []
        while batch := await take(bus, sub):
            got += [d.offset for d in batch]
            await asyncio.gather(*(d.ack() for d in batch))
        assert (got if order == "journal" else sorted(got)) == places


async def test_last_n_at_the_seam_is_a_whole_tail(bus: Any) -> None:
    async def pour() -> list[int]:
        return [(await bus.publish(event(str(n)))).offset for n in range(300)]

    watch = await bus.subscribe("TRUE", consumer="watch", order="journal", auto_ack=True)
    pouring = asyncio.ensure_future(pour())
    for _ in range(100):
        await soon(watch.next())
    sub = await bus.subscribe("TRUE", consumer="late", past=tocsin.last(10), order="journal", max_in_flight=1000)
    places = await soon(pouring)
    got = await take(bus, sub)
    assert [d.offset for d in got] == places[-len(got) :]
    assert sum(d.replayed for d in got) == 10
    assert [d.replayed for d in got] == sorted((d.replayed for d in got), reverse=True)


async def test_searching_the_past_delays_nobody(bus: Any) -> None:
    for chunk in range(20):
        await bus.publish_many(numbered(1000, first=1 + 1000 * chunk))
    live = await bus.subscribe("n < 0", consumer="live")
    search = asyncio.ensure_future(bus.subscribe("n = 1", consumer="deep", past=1))
    await soon(bus.publish(event("now", data={"n": -1})))
    assert (await soon(live.next())).event.id == "now"
    assert await heard(bus, await soon(search)) == ["1"]


async def test_past_after_a_restart(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, end="crash") as bus:
        await once_a_minute(bus, clock, 10)
    async with life(file_url, clock) as bus:
        assert await read(bus, tocsin.last(2, within=timedelta(minutes=3)), consumer="a") == ["9", "10"]
        assert await read(bus, tocsin.within(timedelta(seconds=150)), consumer="b") == ["8", "9", "10"]
        await testing.settled(bus)


@pytest.mark.parametrize(
    "bound",
    [
        lambda: tocsin.last(0),
        lambda: tocsin.last(-1),
        lambda: tocsin.last(2.5),
        lambda: tocsin.last("ten"),
        lambda: tocsin.within(timedelta(0)),
        lambda: tocsin.within(timedelta(seconds=-1)),
        lambda: tocsin.last(3, within=timedelta(0)),
        lambda: tocsin.since("yesterday"),
        lambda: tocsin.since(START.replace(tzinfo=None)),
        lambda: tocsin.since(-5),
    ],
)
def test_bounds_that_mean_nothing_are_refused(bound: Any) -> None:
    with pytest.raises(tocsin.BoundError) as refused:
        bound()
    assert refused.value.help

"""Acceptance scenarios S10 to S16, S18, S20 and S44 of "Looking into the Past".

S17, S19, S21 and S22 describe a cache per filter. Tocsin has none: the journal remembers. In their place stands the
test that a filter nobody had before finds its whole past. S16 reads: the event is the same, `d.replayed` tells.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocsin
from tests.helpers import ack_all, event, heard, ids, numbered, soon, take, testing

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def quote(bus: Any, *values: float) -> None:
    await bus.publish_many([event(str(value), type="rate", data={"value": value}) for value in values])


async def join(bus: Any, name: str, past: Any = None, filter: str = "TRUE") -> Any:
    return await bus.subscribe(filter, consumer=name, past=past, order="journal", max_in_flight=10_000)


async def test_s10_plain_subscribe_replays_nothing(bus: Any) -> None:
    await quote(bus, 1.30, 1.31)
    sub = await bus.subscribe("TRUE", consumer="client")
    await quote(bus, 1.32)
    [d] = await take(bus, sub)
    assert (d.event.id, d.replayed) == ("1.32", False)


async def test_s11_currency_client_sees_the_present_value_first(bus: Any) -> None:
    await quote(bus, 1.30, 1.31, 1.32)
    sub = await join(bus, "client", past=1)
    await quote(bus, 1.33, 1.34)
    assert await heard(bus, sub) == ["1.32", "1.33", "1.34"]


async def test_s12_each_client_has_its_own_bound(bus: Any) -> None:
    await bus.publish_many(numbered(15))
    ten, twenty = await join(bus, "ten", past=10), await join(bus, "twenty", past=20)
    assert await heard(bus, ten) == [str(n) for n in range(6, 16)]
    assert await heard(bus, twenty) == [str(n) for n in range(1, 16)]


async def test_s13_age_bound() -> None:
    clock = testing.ManualClock(NOON - timedelta(minutes=6))
    async with testing.node(clock=clock) as bus:
        for id, pause in [("11:54", 2), ("11:56", 3), ("11:59", 1)]:
            await bus.publish(event(id))
            clock.advance(60 * pause)
        assert await heard(bus, await join(bus, "client", past=timedelta(minutes=5))) == ["11:56", "11:59"]


@pytest.mark.parametrize(("in_window", "expected"), [(30, 10), (4, 4)])
async def test_s14_mixture(bus: Any, clock: Any, in_window: int, expected: int) -> None:
    await bus.publish_many(numbered(20, first=1000))
    clock.advance(600)
    await bus.publish_many(numbered(in_window))
    sub = await join(bus, "client", past=tocsin.last(10, within=timedelta(minutes=5)))
    assert await heard(bus, sub) == [str(n) for n in range(in_window - expected + 1, in_window + 1)]


async def test_s15_nothing_stored_then_live_at_once(bus: Any) -> None:
    sub = await join(bus, "client", past=10)
    assert sub.poll() is None
    await bus.publish(event("live"))
    d = await soon(sub.next())
    assert (d.event.id, d.replayed) == ("live", False)


async def test_s16_replayed_event_is_the_same_event(bus: Any) -> None:
    early = await join(bus, "early")
    await bus.publish(event("a", data={"x": 1}, attributes={"k": "v"}, priority=7, ttl=60))
    late = await join(bus, "late", past=1)
    [live], [replayed] = await take(bus, early), await take(bus, late)
    assert live.event == replayed.event
    assert (live.offset, live.replayed) == (replayed.offset, False)
    assert replayed.replayed


async def test_s18_rare_events_are_found_behind_frequent_ones(bus: Any) -> None:
    await bus.publish_many([event(f"rare-{n}", type="rare") for n in range(3)])
    await bus.publish_many(numbered(1000, type="frequent"))
    assert await heard(bus, await join(bus, "client", past=3, filter="type = 'rare'")) == ["rare-0", "rare-1", "rare-2"]


async def test_s20_new_filter_covered_by_others_finds_its_own(bus: Any) -> None:
    """F is covered by G and H: it gets each match once, in order, and nothing that only G or H want."""
    for name, filter in [("G", "n < 60"), ("H", "n > 40")]:
        await join(bus, name, filter=filter)
    await bus.publish_many(numbered(100))
    sub = await join(bus, "F", past=tocsin.retained(), filter="n BETWEEN 45 AND 55")
    assert await heard(bus, sub) == [str(n) for n in range(45, 56)]


async def test_filter_nobody_had_before_finds_its_whole_past(bus: Any) -> None:
    for chunk in range(10):
        await bus.publish_many(numbered(500, first=1 + 500 * chunk))
    sub = await join(bus, "first ever", past=tocsin.last(5000), filter="n % 500 = 1")
    assert await heard(bus, sub) == [str(n) for n in range(1, 5000, 500)]


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int, int]:
    """Events as (producer, n), how many come before the late subscriber, and its bound."""
    events = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=60))
    return events, draw(st.integers(0, len(events))), draw(st.integers(1, 30))


FILTERS = ["TRUE", "n > 4", "n IN (1, 7)", "source = 'p1' OR n = 0", "n < 0"]


@settings(max_examples=80)
@given(runs(), st.sampled_from(FILTERS), st.booleans())
def test_s44_late_subscriber_sees_the_tail_of_what_an_early_one_saw(
    run: tuple[list[tuple[int, int]], int, int], filter: str, together: bool
) -> None:
    """Differential oracle: last n of the early subscriber's past, then the same live stream."""
    events, before, bound = run

    async def play() -> None:
        async with testing.node() as bus:
            made = [event(str(i), source=f"p{p}", data={"n": n}) for i, (p, n) in enumerate(events)]
            early = await join(bus, "early", filter=filter)
            await bus.publish_many(made[:before])
            past = ids(await take(bus, early))
            if together:
                late, _ = await asyncio.gather(join(bus, "late", bound, filter), bus.publish_many(made[before:]))
            else:
                late = await join(bus, "late", bound, filter)
                await bus.publish_many(made[before:])
            live = ids(await take(bus, early))
            got = await take(bus, late)
            split = sum(d.replayed for d in got)
            if not together:
                assert split == min(bound, len(past))
            assert ids(got) == (past + live)[len(past) + len(live) - len(got) :]
            assert len(got) - split <= len(live) and len(got) >= min(bound, len(past + live))
            assert split <= bound
            await ack_all(got)

    asyncio.run(play())

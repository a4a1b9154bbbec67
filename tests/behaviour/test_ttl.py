"""Time to live: counted from arrival, checked when matched and again at the moment of sending."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import tocsin
from tests.helpers import event, heard, ids, life, numbered, take


async def test_lives_until_its_time_and_not_longer(bus: Any, clock: Any) -> None:
    await bus.publish(event("a", ttl=10))
    clock.advance(9.999)
    early = await bus.subscribe("TRUE", consumer="early", past=tocsin.retained())
    assert await heard(bus, early) == ["a"]
    clock.advance(0.002)
    late = await bus.subscribe("TRUE", consumer="late", past=tocsin.retained())
    assert await heard(bus, late) == []


async def test_checked_again_when_sent(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("short", ttl=10), event("long", ttl=100), event("forever")])
    clock.advance(11)
    assert await heard(bus, sub) == ["long", "forever"]


@pytest.mark.embedded("turns the clock inside the node, of which a client hears with the next frame")
async def test_checked_when_sent_without_a_moment_to_tidy_up(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ttl=10))
    await take(bus, sub, 0)
    clock.advance(11)
    assert sub.poll() is None


async def test_expired_event_is_not_delivered_again(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=5)
    await bus.publish(event("a", ttl=8))
    assert ids(await take(bus, sub)) == ["a"]
    clock.advance(9)
    assert await take(bus, sub) == []


async def test_expired_delivery_may_still_be_settled(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=60)
    await bus.publish(event("a", ttl=8))
    [d] = await take(bus, sub)
    clock.advance(9)
    await d.ack()
    assert "ops" in (await bus.status("a")).acked


async def test_expired_events_do_not_count_as_lag(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(50, ttl=10))
    clock.advance(11)
    assert await take(bus, sub) == []
    [ops] = await bus.consumers()
    assert ops.lag == 0


async def test_fraction_of_a_second(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("a", ttl=0.25), event("b", ttl=0.75)])
    clock.advance(0.5)
    assert await heard(bus, sub) == ["b"]


async def test_counted_from_arrival_not_from_the_producers_time(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ttl=10, time="2001-01-01T00:00:00Z"))
    clock.advance(5)
    assert await heard(bus, sub) == ["a"]


async def test_expired_events_are_no_part_of_the_past(bus: Any, clock: Any) -> None:
    await bus.publish_many([event("a"), event("b", ttl=10), event("c")])
    clock.advance(11)
    for name, bound in [("n", tocsin.last(10)), ("t", tocsin.within(timedelta(minutes=1))), ("s", tocsin.since(1))]:
        sub = await bus.subscribe("TRUE", consumer=name, past=bound, order="journal")
        assert await heard(bus, sub) == ["a", "c"]


async def test_not_restarted_by_a_restart(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        await bus.publish_many([event("short", ttl=10), event("long", ttl=100)])
    clock.advance(11)
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
        assert await heard(bus, sub) == ["long"]

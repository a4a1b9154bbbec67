"""What a client's buffer must not change: see docs/PROTOCOL.md, "Ahead"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.helpers import event, heard, numbered, soon, take, testing


@asynccontextmanager
async def remote(clock: Any) -> AsyncIterator[Any]:
    async with testing.node("ws:", clock) as bus:
        yield bus


async def test_idle_member_of_a_group_does_not_keep_what_it_never_took(clock: Any) -> None:
    async with remote(clock) as bus:
        idle = await bus.subscribe("TRUE", consumer="idle", group="crew")
        busy = await bus.subscribe("TRUE", consumer="busy", group="crew")
        await bus.publish_many(numbered(2))
        [one] = await take(bus, busy)
        await one.ack()
        clock.advance(31)
        [two] = await take(bus, busy)
        assert two.attempt == 1
        await two.ack()
        await bus.publish(event("3"))
        assert await heard(bus, busy) == ["3"]
        waiting = asyncio.ensure_future(idle.next())  # it asks again, so it gets its share
        await testing.settled(bus)
        await bus.publish_many(numbered(2, first=4))
        await testing.settled(bus)
        assert (await soon(waiting)).event.id in ("4", "5")


async def test_what_waits_too_long_in_a_buffer_costs_no_attempt(clock: Any) -> None:
    async with remote(clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10, max_deliver=1)
        await bus.publish_many(numbered(3))
        for _ in range(3):
            await testing.settled(bus)
            clock.advance(11)
        got = await take(bus, sub)
        assert [(d.event.id, d.attempt) for d in got] == [("1", 1), ("2", 1), ("3", 1)]
        assert [(each.in_flight, each.dead) for each in await bus.consumers()] == [(3, 0)]


async def test_urgent_event_overtakes_a_full_buffer_and_a_full_window(clock: Any) -> None:
    async with remote(clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=2)
        await bus.publish_many(numbered(5, priority=1))
        await testing.settled(bus)
        await bus.publish(event("urgent", priority=9))
        [first] = await take(bus, sub, 1)
        assert first.event.id == "urgent"
        await first.ack()
        assert await heard(bus, sub) == ["1", "2", "3", "4", "5"]


async def test_late_ack_counts_though_it_was_sent_again(clock: Any) -> None:
    async with remote(clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
        await bus.publish_many(numbered(1))
        [late] = await take(bus, sub)
        clock.advance(11)
        await testing.settled(bus)  # it is in the buffer again
        await late.ack()
        assert await take(bus, sub) == []
        assert (await bus.status("1")).state == "settled"

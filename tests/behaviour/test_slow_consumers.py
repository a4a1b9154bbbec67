"""Slow consumers never slow others and never grow memory: the rest stays in the journal, and lag is visible."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

from tests.helpers import ack_all, event, heard, ids, numbered, soon, take, testing


async def lag(bus: Any, name: str) -> int:
    return next(int(each.lag) for each in await bus.consumers() if each.name == name)


async def test_others_get_theirs_while_one_stands_still(bus: Any) -> None:
    await bus.subscribe("TRUE", consumer="stuck", max_in_flight=1)
    quick = await bus.subscribe("TRUE", consumer="quick", order="journal")
    for chunk in range(5):
        await bus.publish_many(numbered(1000, first=1 + 1000 * chunk))
    assert await heard(bus, quick) == [str(n) for n in range(1, 5001)]
    assert (await lag(bus, "stuck"), await lag(bus, "quick")) == (5000, 0)


async def test_it_gets_everything_when_it_wakes(bus: Any) -> None:
    slow = await bus.subscribe("TRUE", consumer="slow", order="journal")
    for chunk in range(12):
        await bus.publish_many(numbered(1000, first=1 + 1000 * chunk))
    assert await heard(bus, slow) == [str(n) for n in range(1, 12_001)]
    assert await lag(bus, "slow") == 0


async def test_everything_in_priority_order_when_it_wakes(bus: Any) -> None:
    slow = await bus.subscribe("TRUE", consumer="slow")
    for chunk in range(4):
        await bus.publish_many(numbered(1000, first=1 + 1000 * chunk, priority=1 + chunk))
    await bus.publish(event("low", priority=1))
    expected = [str(n) for chunk in (3, 2, 1, 0) for n in range(1 + 1000 * chunk, 1001 + 1000 * chunk)]
    assert await heard(bus, slow) == [*expected, "low"]


async def test_hung_delivery_holds_up_nobody(bus: Any) -> None:
    hung = await bus.subscribe("TRUE", consumer="hung")
    other = await bus.subscribe("TRUE", consumer="other")
    await bus.publish(event("a"))
    assert ids(await take(bus, hung)) == ["a"]  # and never settles it
    await bus.publish(event("b"))
    assert await heard(bus, other) == ["a", "b"]
    assert ids(await take(bus, hung)) == ["b"]


async def test_starving_low_event_does_not_hold_back_the_settled_ones(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=100)
    await bus.publish(event("low", priority=1))
    for chunk in range(30):
        await bus.publish_many(numbered(100, first=1 + 100 * chunk, priority=5))
        await ack_all(await take(bus, sub, 100))
    assert await lag(bus, "ops") == 1
    assert await heard(bus, sub) == ["low"]


async def test_memory_does_not_follow_the_backlog(file_url: str, clock: Any) -> None:
    """A stopped consumer falls far behind; what the node holds grows far less than what it is owed."""
    async with testing.node(url=file_url, clock=clock, hot_bytes=4 << 20) as bus:
        await bus.subscribe("TRUE", consumer="stopped", max_in_flight=1)
        text = "x" * 1000

        async def fill(first: int) -> None:
            for start in range(first, first + 20_000, 2000):
                await bus.publish_many(numbered(2000, first=start, attributes={"text": text}))
            await testing.settled(bus)

        tracemalloc.start()  # before the window is full: what leaves it must count as freed
        try:
            await fill(1)
            before, _ = tracemalloc.get_traced_memory()
            await fill(20_001)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 20_000 * 1000 / 4
        assert await lag(bus, "stopped") == 40_000


@pytest.mark.embedded("looks into the node")
async def test_memory_does_not_follow_what_is_settled(bus: Any) -> None:
    """One delivery is held for ever; of the many that are settled meanwhile nothing may stay."""
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10**8)
    await bus.publish(event("held", priority=10))
    assert ids(await take(bus, sub)) == ["held"]
    for chunk in range(10):
        await bus.publish_many(numbered(250, first=1 + 250 * chunk))
        await ack_all(await take(bus, sub))
    assert len(bus._node.mailboxes["ops"]._alarms) < 1000


async def test_waiting_consumers_do_not_keep_the_node_busy(bus: Any) -> None:
    subs = [await bus.subscribe(f"n = {n}", consumer=f"c{n}") for n in range(200)]
    waits = [asyncio.ensure_future(sub.next()) for sub in subs]
    await bus.publish_many(numbered(199))
    got = await soon(asyncio.gather(*waits[1:]))
    assert [d.event.data["n"] for d in got] == list(range(1, 200))
    waits[0].cancel()
    await asyncio.gather(*waits, return_exceptions=True)

"""Order: urgent first, also past a full outbox; journal order on request; a share for the low ones on request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import ack_all, event, heard, ids, numbered, take


async def test_higher_priority_first_then_by_offset(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    for id, priority in [("a", 3), ("b", 10), ("c", 5), ("d", 10), ("e", 3)]:
        await bus.publish(event(id, priority=priority))
    assert await heard(bus, sub) == ["b", "d", "c", "a", "e"]


async def test_journal_order_ignores_priority(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    for id, priority in [("a", 3), ("b", 10), ("c", 5)]:
        await bus.publish(event(id, priority=priority))
    assert await heard(bus, sub) == ["a", "b", "c"]


async def test_urgent_overtakes_what_waits(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=1)
    await bus.publish_many(numbered(5, priority=2))
    [first] = await take(bus, sub)
    await bus.publish(event("urgent", priority=10))
    await first.ack()
    assert await heard(bus, sub) == ["urgent", "2", "3", "4", "5"]


@pytest.mark.parametrize("order", ["priority", "journal"])
async def test_overtaking_also_past_a_full_outbox(bus: Any, order: str) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order=order)
    for chunk in range(5):
        await bus.publish_many(numbered(4000, first=1 + 4000 * chunk, priority=1))
    assert ids(await take(bus, sub, 1)) == ["1"]
    await bus.publish(event("urgent", priority=10))
    assert ids(await take(bus, sub, 1)) == (["urgent"] if order == "priority" else ["2"])


async def test_levels_stay_in_order_while_a_long_queue_drains(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    for chunk in range(3):
        await bus.publish_many([event(f"{chunk}-{n}", priority=1 + n % 10) for n in range(1000)])
    got: list[Any] = []
    while batch := await take(bus, sub):
        await ack_all(batch)
        got += batch
    assert len(got) == 3000
    assert got == sorted(got, key=lambda d: (-d.event.priority, d.offset))


async def test_low_event_starves_behind_urgent_ones_by_default(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(100, priority=9))
    await bus.publish(event("low", priority=1))
    assert (await heard(bus, sub))[-1] == "low"


async def test_fair_keeps_a_share_for_lower_levels(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", fair=0.1)
    await bus.publish_many(numbered(200, priority=9))
    await bus.publish_many(numbered(50, first=201, priority=1))
    sent = [d.event.priority for d in await take(bus, sub, 100)]
    assert 9 <= sent.count(1) <= 11
    assert sent[0] == 9


async def test_fair_serves_each_level_by_offset(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", fair=0.5)
    await bus.publish_many(numbered(20, priority=9))
    await bus.publish_many(numbered(20, first=21, priority=1))
    got = await take(bus, sub)
    for level in (9, 1):
        places = [d.offset for d in got if d.event.priority == level]
        assert places == sorted(places) and len(places) == 20


@pytest.mark.parametrize("order", ["priority", "journal"])
async def test_refused_event_returns_to_its_place(bus: Any, order: str) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order=order)
    await bus.publish_many(numbered(3))
    [first] = await take(bus, sub, 1)
    await first.nak()
    assert await heard(bus, sub) == ["1", "2", "3"]


async def test_consumers_in_journal_order_agree_on_common_events(bus: Any) -> None:
    by_two = await bus.subscribe("n % 2 = 0", consumer="two", order="journal")
    by_three = await bus.subscribe("n % 3 = 0", consumer="three", order="journal", max_in_flight=2)
    await bus.publish_many([each.replace(priority=1 + index % 10) for index, each in enumerate(numbered(60))])
    two, three = await heard(bus, by_two), await heard(bus, by_three)
    assert [id for id in two if id in three] == [id for id in three if id in two]
    assert len(set(two) & set(three)) == 10

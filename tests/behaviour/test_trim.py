"""Trimming: nothing that is still somebody's goes, unless a hard limit says so, and then they are told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import tocsin
from tests.helpers import ack_all, event, heard, ids, notices, numbered, take

HOUR = timedelta(hours=1)


async def fill(bus: Any, clock: Any, count: int = 6) -> None:
    """One block for each event, an hour apart."""
    for each in numbered(count):
        await bus.publish(each)
        clock.advance(3600)


async def test_what_is_old_and_nobodys_goes(bus: Any, clock: Any) -> None:
    await fill(bus, clock)
    assert await bus.trim(older_than=2.5 * HOUR) == 5
    late = await bus.subscribe("TRUE", consumer="late", past=tocsin.since(0))
    assert await heard(bus, late) == ["5", "6"]


async def test_what_a_durable_consumer_has_not_settled_stays(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("n <> 2", consumer="ops")
    await fill(bus, clock)
    got = await take(bus, sub, 4)
    await ack_all(got[:2])  # 1 and 3; 4 and 5 are in hand
    await sub.close()
    assert await bus.trim(older_than=timedelta(0)) == 4
    assert await heard(bus, await bus.subscribe("n <> 2", consumer="ops")) == ["4", "5", "6"]
    assert await bus.trim(older_than=timedelta(0)) == 7


async def test_a_sleeping_consumer_keeps_only_what_it_wants(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("n = 5", consumer="ops")
    await sub.close()
    await fill(bus, clock)
    assert await bus.trim(older_than=timedelta(0)) == 5
    assert await heard(bus, await bus.subscribe("n = 5", consumer="ops")) == ["5"]


async def test_a_live_alert_stays_until_it_ends(bus: Any, clock: Any) -> None:
    await bus.publish(event("alert", ttl=7200))
    clock.advance(3600)
    await fill(bus, clock, 2)
    assert await bus.trim(older_than=timedelta(0)) in (1, 4)
    assert await bus.trim(older_than=timedelta(0)) == 4


async def test_a_hard_limit_takes_it_and_says_so(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=2)
    await fill(bus, clock)
    assert len(await take(bus, sub)) == 2
    assert await bus.trim(older_than=2.5 * HOUR, hard=True) == 5
    got = await take(bus, sub)
    assert notices(got)[0][0] == "tocsin.gap"
    assert (got[0].event.data["first"], got[0].event.data["last"]) == (1, 4)
    assert ids(got) == ["5", "6"]


async def test_by_size(file_url: str, clock: Any) -> None:
    async with tocsin.testing.node(url=file_url, clock=clock) as bus:
        for start in range(1, 2001, 100):
            await bus.publish_many(numbered(100, first=start, attributes={"text": "x" * 500}))
        before = bus._node.journal.stats()["bytes"]
        first = await bus.trim(larger_than=before // 2)
        assert 500 < first < 1500
        assert bus._node.journal.stats()["bytes"] < before * 0.7


@pytest.mark.parametrize("limits", [{}, {"older_than": 5}, {"older_than": -HOUR}, {"larger_than": -1}])
async def test_limits_that_mean_nothing(bus: Any, limits: dict[str, Any]) -> None:
    with pytest.raises(tocsin.JournalError):
        await bus.trim(**limits)

"""Trimming: what nobody needs goes; what is not settled, and live alerts, stay, unless a hard limit takes them."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import ack_all, event, head, heard, ids, life, notices, numbered, soon, take, testing
from tocsin.delivery import refill

MINUTE = timedelta(minutes=1)


async def publish_each(bus: Any, count: int, **fields: Any) -> None:
    """One commit each, so that trimming can cut anywhere."""
    for each in numbered(count, **fields):
        await bus.publish(each)


async def kept(bus: Any, name: str = "reader") -> list[str]:
    sub = await bus.subscribe("TRUE", consumer=name, past=tocsin.retained(), order="journal", durable=False)
    got = ids(await take(bus, sub))
    await sub.close()
    return got


async def test_old_settled_events_go_and_the_rest_keeps_its_place(bus: Any, clock: Any) -> None:
    await publish_each(bus, 10)
    clock.advance(120)
    [new] = await bus.publish_many([event("new")])
    first = await bus.trim(older_than=MINUTE)
    assert 1 < first <= new.offset
    assert (await kept(bus))[-1] == "new"
    assert len(await kept(bus)) == new.offset - first + 1


async def test_nothing_is_trimmed_that_a_durable_consumer_has_not_settled(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("n >= 5", consumer="ops", order="journal")
    await publish_each(bus, 10)
    got = await take(bus, sub)
    await ack_all(got[1:])
    await sub.close()
    clock.advance(3600)
    await bus.trim(older_than=MINUTE)
    assert await kept(bus) == [str(n) for n in range(5, 11)]
    again = await bus.subscribe("n >= 5", consumer="ops", order="journal")
    assert await heard(bus, again) == ["5"]


async def test_live_alert_is_kept_until_it_ends(bus: Any, clock: Any) -> None:
    await bus.publish(event("alert", ack="client"))
    await publish_each(bus, 5)
    clock.advance(3600)
    await bus.trim(older_than=MINUTE)
    assert "alert" in await kept(bus)
    await bus.cancel("alert")
    await bus.trim(older_than=timedelta(0))
    assert await kept(bus) == []


async def test_hard_limit_takes_and_tells_whom_it_concerns(bus: Any, clock: Any) -> None:
    slow = await bus.subscribe("TRUE", consumer="slow", order="journal")
    other = await bus.subscribe("n < 0", consumer="other")
    await publish_each(bus, 10)
    clock.advance(3600)
    await bus.publish(event("new"))
    await bus.trim(older_than=MINUTE, hard=True)
    got = await take(bus, slow)
    assert ids(got)[-1] == "new" and len(ids(got)) < 11
    assert [kind for kind, _ in notices(got)] == ["tocsin.gap"]
    assert await take(bus, other) == []
    await ack_all(got)
    assert all(each.lag == 0 for each in await bus.consumers())


async def test_offsets_go_on_when_everything_is_gone(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        await publish_each(bus, 5)
        last = await head(bus)
        clock.advance(60)
        await bus.trim(older_than=timedelta(0))
        assert await kept(bus) == []
    async with life(file_url, clock, end="crash") as bus:
        assert await head(bus) == last + 1
    async with life(file_url, clock) as bus:
        assert await head(bus) == last + 2


async def test_space_returns_to_the_disk(file_url: str, clock: Any, tmp_path: Path) -> None:
    def size() -> int:
        return sum(entry.stat().st_size for entry in os.scandir(tmp_path))

    async with life(file_url, clock) as bus:
        for n in range(100):
            await bus.publish(event(str(n), data=os.urandom(50_000)))
    full = size()
    assert full > 5_000_000
    clock.advance(60)
    async with life(file_url, clock) as bus:
        await bus.trim(older_than=timedelta(0))
        await testing.settled(bus)
    assert size() < full / 4


async def test_journal_can_be_held_to_a_size(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        for n in range(60):
            await bus.publish(event(str(n), data=os.urandom(50_000)))
        await bus.trim(larger_than=1_000_000)
        left = await kept(bus)
        assert 5 <= len(left) <= 40
        assert left == [str(n) for n in range(60 - len(left), 60)]


async def test_a_sleeping_consumer_keeps_only_what_it_wants(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("n = 5", consumer="ops")
    await sub.close()
    await publish_each(bus, 6)
    clock.advance(3600)
    assert await bus.trim(older_than=timedelta(0)) == 5
    assert await heard(bus, await bus.subscribe("n = 5", consumer="ops")) == ["5"]


@pytest.mark.parametrize("happens", ["taken", "asked for"])
async def test_nothing_is_trimmed_that_becomes_somebodys_meanwhile(
    bus: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    """Trimming looks at one subscription after the other, and others go on while it looks."""
    await (await bus.subscribe("n < 0", consumer="ops")).close()
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
    await publish_each(bus, 3)
    if happens == "asked for":
        await heard(bus, sub)
    clock.advance(1)
    look, looking, go_on = refill.look, threading.Event(), threading.Event()

    def slowly(*words: Any) -> Any:
        looking.set()
        go_on.wait(20)
        return look(*words)

    with monkeypatch.context() as patch:
        patch.setattr(refill, "look", slowly)
        trimming = asyncio.ensure_future(bus.trim(older_than=timedelta(0)))
        await soon(asyncio.to_thread(looking.wait))
    if happens == "taken":
        assert [d.event.id for d in (sub.poll(), sub.poll(), sub.poll())] == ["1", "2", "3"]
        go_on.set()
        await soon(trimming)
        clock.advance(11)
        assert await heard(bus, sub) == ["1", "2", "3"]
    else:
        asking = asyncio.ensure_future(bus.subscribe("TRUE", consumer="new", past=tocsin.retained()))
        await asyncio.wait([asking], timeout=0.1)
        early = asking.done()
        go_on.set()
        first = await soon(trimming)
        assert len(await heard(bus, await soon(asking))) == (3 if early else 4 - first)


@pytest.mark.parametrize("limits", [{}, {"older_than": 5}, {"older_than": timedelta(hours=-1)}, {"larger_than": -1}])
async def test_limits_that_mean_nothing(bus: Any, limits: dict[str, Any]) -> None:
    with pytest.raises(tocsin.JournalError):
        await bus.trim(**limits)

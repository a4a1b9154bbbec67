"""Acceptance scenarios A14 to A32 of the recoverable Global Event Detector, read for a journal.

The thesis's words become ours: ESN → offset, notification log → journal, BUFF_MAX → window (`max_in_flight`),
dispatched (dESN) → settled, pending → lag, TIMEOUT → `max_deliver`, PERSIST off → `memory:`, RESUME → opening the file
again, compression → merging blocks in the background. Each test says how its scenario reads here. Not here: A25's kills
of real processes (tests/crash), A27 (composite events), A29 and A30 (a client's spool, with the network).
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import ack_all, event, heard, ids, life, notices, numbered, soon, take, testing


async def reader(bus: Any, name: str = "reader", **options: Any) -> Any:
    return await bus.subscribe("TRUE", consumer=name, order="journal", **options)


async def whole_journal(bus: Any) -> list[tocsin.Event]:
    """Every event stored, by somebody who leaves no trace."""
    sub = await reader(bus, "auditor", past=tocsin.since(1), durable=False, auto_ack=True)
    got = [d.event for d in await take(bus, sub)]
    await sub.close()
    return got


# Log and buffer


async def test_a14_on_disk_before_any_consumer_sees_it(file_url: str, clock: Any) -> None:
    """The node dies in the very moment in which a consumer first sees the event: the event is there afterwards."""
    async with life(file_url, clock, end="crash") as bus:
        sub = await reader(bus)
        publishing = asyncio.ensure_future(bus.publish(event("a", data={"x": 1})))
        d = await soon(sub.next())
    await asyncio.gather(publishing, return_exceptions=True)
    async with life(file_url, clock) as bus:
        assert [(e.id, e.offset) for e in await whole_journal(bus)] == [("a", d.offset)]


async def test_a15_any_event_is_read_back_identical_by_its_place(bus: Any) -> None:
    chance = random.Random(15)
    sent = [event(str(n), data={"n": n, "text": "x" * chance.choice([0, 1, 100, 10_000, 200_000])}) for n in range(40)]
    for each in sent:
        await bus.publish(each)
    stored = await whole_journal(bus)
    assert [e.data for e in stored] == [e.data for e in sent]
    for wanted in chance.sample(stored, 10):
        sub = await reader(bus, f"at {wanted.offset}", past=tocsin.since(wanted.offset), max_in_flight=1)
        [d] = await take(bus, sub)
        assert d.event == wanted


async def test_a16_bounded_buffer_loses_nothing_and_keeps_order(bus: Any) -> None:
    """Window 4, 6 arrivals → 4 in flight, 2 wait; settle one → the fifth comes; drain → all in order."""
    sub = await reader(bus, max_in_flight=4)
    await bus.publish_many(numbered(6))
    held = await take(bus, sub)
    assert ids(held) == ["1", "2", "3", "4"]
    await held[0].ack()
    held = [*held[1:], *await take(bus, sub)]
    assert ids(held) == ["2", "3", "4", "5"]
    await ack_all(held)
    assert await heard(bus, sub) == ["6"]
    await bus.publish_many(numbered(40, first=7))
    assert await heard(bus, sub) == [str(n) for n in range(7, 47)]


async def test_a17_new_arrival_does_not_jump_into_a_free_slot(bus: Any) -> None:
    sub = await reader(bus, max_in_flight=2)
    await bus.publish_many(numbered(4))
    held = await take(bus, sub)
    await held[0].ack()
    await bus.publish(event("new", priority=10))
    assert ids(await take(bus, sub)) == ["3"]


async def test_a18_without_persistence_no_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    async with life("memory:", clock) as bus:
        await bus.publish_many(numbered(1000))
    assert os.listdir(tmp_path) == []


async def test_a19_merging_changes_nothing_a_reader_sees(file_url: str, clock: Any) -> None:
    """Many commits of one event each, merged whenever the node likes, across a restart and while others publish."""
    async with life(file_url, clock) as bus:
        for each in numbered(600):
            await bus.publish(each)
        before = await whole_journal(bus)
        await testing.settled(bus)
        more = asyncio.ensure_future(bus.publish_many(numbered(50, first=601)))
        assert (await whole_journal(bus))[:600] == before
        await more
    async with life(file_url, clock) as bus:
        after = await whole_journal(bus)
        assert after[:600] == before
        assert [e.id for e in after] == [str(n) for n in range(1, 651)]


async def test_a20_places_are_never_used_again(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        sub = await reader(bus)
        places = await bus.publish_many(numbered(5))
        assert len(await heard(bus, sub)) == 5
    async with life(file_url, clock) as bus:
        assert (await bus.publish(event("next"))).offset > places[-1].offset


async def test_a21_full_disk_is_an_error_and_not_a_loss(file_url: str, clock: Any, tmp_path: Path) -> None:
    """The file may not grow beyond what it has: publishers hear of it, and go on when there is room again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with life(file_url, clock) as bus:
        answered = [(await bus.publish(event("before"))).id]
        largest = max(entry.stat().st_size for entry in os.scandir(tmp_path))
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 200_000, hard))
        try:
            with pytest.raises(tocsin.JournalError):
                for n in range(100):
                    answered.append((await bus.publish(event(f"big-{n}", data="x" * 50_000))).id)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        answered.append((await bus.publish(event("after"))).id)
        assert [e.id for e in await whole_journal(bus)] == answered
    async with life(file_url, clock) as bus:
        assert [e.id for e in await whole_journal(bus)] == answered


# Slow consumers


async def test_a22_backlog_and_the_new_one_come_together_in_order(bus: Any) -> None:
    """Three events while it was away; with the fourth it returns, and one batch holds all four."""
    sub = await reader(bus)
    await sub.close()
    await bus.publish_many(numbered(3))
    await bus.publish(event("4"))
    back = await reader(bus)
    await testing.settled(bus)
    async for batch in back.batches(10):
        assert ids(batch) == ["1", "2", "3", "4"]
        await batch.ack()
        break
    assert await take(bus, back) == []


@pytest.mark.parametrize(("failures", "delivered"), [(5, True), (6, False)])
async def test_a23_limit_of_failures(bus: Any, failures: int, delivered: bool) -> None:
    """`max_deliver=6`: five failures, then success; six, and it is a dead letter. Others do not notice."""
    dead = await bus.subscribe("type = 'tocsin.dead'", consumer="undertaker", system=True)
    sub, other = await reader(bus, max_deliver=6), await reader(bus, "other")
    await bus.publish(event("a"))
    for attempt in range(1, failures + 1):
        [d] = await take(bus, sub)
        assert d.attempt == attempt
        await d.nak()
    assert await heard(bus, sub) == (["a"] if delivered else [])
    assert len(await take(bus, dead)) == (0 if delivered else 1)
    assert await heard(bus, other) == ["a"]


async def test_a24_backlog_dead_letters_and_forgotten_ones_after_a_crash(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, end="crash") as bus:
        slow, weak = await reader(bus, "slow"), await reader(bus, "weak", max_deliver=1)
        await reader(bus, "gone")
        await bus.publish_many(numbered(3))
        assert len(await take(bus, slow)) == 3
        for d in await take(bus, weak):
            await d.nak()
        await testing.settled(bus)
        await bus.forget("gone")
    async with life(file_url, clock) as bus:
        assert await heard(bus, await reader(bus, "slow")) == ["1", "2", "3"]
        assert await heard(bus, await reader(bus, "weak", max_deliver=1)) == []
        assert sorted(each.name for each in await bus.consumers()) == ["slow", "weak"]
        assert await heard(bus, await reader(bus, "gone", past=tocsin.retained())) == ["1", "2", "3"]


# Recovery


@pytest.mark.parametrize("moment", ["published", "taken", "half settled", "cancelled", "refused", "settled"])
async def test_a25_crash_at_every_step(file_url: str, clock: Any, moment: str) -> None:
    """Scripted moments in one process; real kills at random and inside the commit are in tests/crash."""
    settled: set[str] = set()
    async with life(file_url, clock, end="crash") as bus:
        sub = await reader(bus)
        await bus.publish_many(numbered(6))
        if moment != "published":
            got = await take(bus, sub)
            if moment in ("half settled", "settled"):
                done = got if moment == "settled" else got[::2]
                await ack_all(done)
                settled = set(ids(done))
            if moment == "refused":
                await got[0].nak(delay=60)
            if moment == "cancelled":
                await bus.cancel("3")
                settled = {"3"}
    clock.advance(61)
    async with life(file_url, clock) as bus:
        sub = await reader(bus)
        assert await heard(bus, sub) == [str(n) for n in range(1, 7) if str(n) not in settled]


async def test_a26_in_flight_and_pending_are_restored(file_url: str, clock: Any) -> None:
    """10 settled, 11 to 14 in flight, 15 and 16 waiting; afterwards 11 to 14 come first, then 15 and 16."""
    async with life(file_url, clock, end="crash") as bus:
        sub = await reader(bus, max_in_flight=4)
        places = await bus.publish_many(numbered(16))
        for _ in range(10):
            [d] = await take(bus, sub, 1)
            await d.ack()
        assert ids(await take(bus, sub)) == ["11", "12", "13", "14"]
    async with life(file_url, clock) as bus:
        sub = await reader(bus, max_in_flight=4)
        [each] = await bus.consumers()
        assert (each.lag, each.in_flight) == (6, 0)
        got = await take(bus, sub)
        assert ids(got) == ["11", "12", "13", "14"]
        await ack_all(got)
        assert await heard(bus, sub) == ["15", "16"]
        assert (await bus.publish(event("17"))).offset > places[-1].offset


@pytest.mark.parametrize("end", ["close", "crash"])
async def test_a28_registrations_are_replayed(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.subscribe("n > 1", consumer="a")
        b = await bus.subscribe("n > 2", consumer="b")
        await bus.forget("a")
        c = await bus.subscribe("n > 3", consumer="c")
    async with life(file_url, clock) as bus:
        assert sorted(each.name for each in await bus.consumers()) == ["b", "c"]
        again = [await bus.subscribe("n > 2", consumer="b"), await bus.subscribe("n > 3", consumer="c")]
        assert [each.id for each in again] == [b.id, c.id]
        await bus.publish_many(numbered(4))
        assert [await heard(bus, each) for each in again] == [["3", "4"], ["4"]]


async def test_a31_new_file_is_a_fresh_start(tmp_path: Path, clock: Any) -> None:
    for name in ("one", "two"):
        async with life(f"file:{tmp_path / name}.db", clock) as bus:
            assert await whole_journal(bus) == [] and await bus.consumers() == []
            await bus.publish(event("a"))


@pytest.mark.parametrize("content", [b"not a journal at all" * 500, b"SQLite format 3\x00" + b"\x07" * 5000])
async def test_a31_file_that_is_no_journal_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plant.db"
    path.write_bytes(content)
    with pytest.raises(tocsin.JournalError) as refused:
        async with tocsin.connect(f"file:{path}"):
            raise AssertionError("opened")
    assert str(path) in str(refused.value)
    assert path.read_bytes() == content


async def test_a32_opening_again_and_again_changes_nothing(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, end="crash") as bus:
        sub = await reader(bus, "ops")
        await bus.subscribe("n > 3", consumer="late starter")
        await bus.publish_many(numbered(6, ack="client", ttl=100))
        await ack_all((await take(bus, sub))[:2])
        await bus.cancel("6")
    seen = []
    for end in ("crash", "crash", "close", "close"):
        async with life(file_url, clock, end) as bus:
            consumers = {c.name: (c.lag, c.in_flight, len(c.subscriptions)) for c in await bus.consumers()}
            alerts = {each.event.id: (set(each.acked), set(each.pending)) for each in await bus.alerts()}
            states = [(await bus.status(str(n))).state for n in range(1, 7)]
            seen.append((consumers, alerts, states))
    assert all(each == seen[0] for each in seen)
    assert seen[0][2][5] == "cancelled" and seen[0][1]["1"][0] == {"ops"}
    async with life(file_url, clock) as bus:
        got = await take(bus, await reader(bus, "ops"))
        assert ids(got) == ["3", "4", "5"]
        assert notices(got) == [("tocsin.cancelled", "6")]

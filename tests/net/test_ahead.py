"""What a client's buffer must not change: see docs/PROTOCOL.md, "Ahead"."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tocsin
from tests.helpers import ack_all, event, heard, ids, node_of, notices, numbered, soon, take, testing
from tests.proxy import proxy
from tocsin.delivery.handles import Batch
from tocsin.embedded import Bus
from tocsin.errors import DeliveryError
from tocsin.net import frames


@asynccontextmanager
async def remote(clock: Any) -> AsyncIterator[Any]:
    async with testing.node("ws:", clock) as bus:
        yield bus


async def test_idle_member_of_a_group_does_not_keep_what_it_never_took(clock: Any) -> None:
    async with remote(clock) as bus:
        idle = await bus.subscribe("TRUE", consumer="idle", group="crew")
        busy = await bus.subscribe("TRUE", consumer="busy", group="crew")
        await bus.publish_many(numbered(20))
        await testing.settled(bus)  # ten lie in the buffer of each
        got = await take(bus, busy)
        assert sorted(ids(got), key=int) == [str(n) for n in range(1, 21)]
        assert {d.attempt for d in got} == {1}
        await ack_all(got)
        waiting = asyncio.ensure_future(idle.next())  # it asks, and the other only takes ahead
        await testing.settled(bus)
        await bus.publish_many(numbered(1, first=21))
        assert (await soon(waiting)).event.id == "21"


async def test_who_waits_gets_it_from_a_buffer_on_another_connection(clock: Any) -> None:
    async with remote(clock) as bus:
        other = bus.as_user("other")
        idle = await bus.subscribe("TRUE", consumer="idle", group="crew")
        await bus.publish_many(numbered(8))
        await testing.settled(bus)
        busy = await other.subscribe("TRUE", consumer="busy", group="crew")
        got = [await soon(busy.next()) for _ in range(8)]
        assert sorted(ids(got)) == [str(n) for n in range(1, 9)]
        assert idle.poll() is None


async def test_what_was_taken_is_not_given_to_who_asks_for_it(clock: Any) -> None:
    """The node asks for what the application has taken at this moment: it is the application's, and can be settled."""
    async with remote(clock) as bus:
        first = await bus.subscribe("TRUE", consumer="first", group="crew")
        await bus.publish_many(numbered(6))
        await testing.settled(bus)
        second = await bus.as_user("other").subscribe("TRUE", consumer="second", group="crew")
        waiting = asyncio.ensure_future(second.next())
        taken = [first.poll() for _ in range(5)]
        got = [await soon(waiting), *await take(bus, second)]
        assert sorted(ids(taken + got)) == [str(n) for n in range(1, 7)]
        await ack_all(taken + got)
        assert {each.lag for each in await bus.consumers()} == {0}


async def test_notices_of_a_lost_connection_come_again(clock: Any) -> None:
    async with remote(clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many(numbered(2))
        await heard(bus, sub)
        await bus.cancel("1")
        await testing.settled(bus)  # the notice is in the buffer
        bus._link._wire.abort()
        await testing.settled(bus)
        assert notices(await take(bus, sub)) == [("tocsin.cancelled", "1")]


async def test_unsent_event_of_a_consumer_that_is_not_durable_outlives_a_connection(clock: Any) -> None:
    async with remote(clock) as bus:
        sub = await bus.subscribe("TRUE", max_in_flight=2)
        await bus.publish_many(numbered(3, priority=1))
        await bus.publish_many(numbered(3, first=4, priority=9))
        got = await take(bus, sub, 2)
        assert ids(got) == ["4", "5"]  # the highest offsets, and the lowest were never sent
        bus._link._wire.abort()
        await testing.settled(bus)
        assert await heard(bus, sub) == ["6", "1", "2", "3"]


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


async def test_who_waits_in_the_nodes_own_process_gets_it_from_a_buffer_elsewhere(clock: Any) -> None:
    """And the node goes on: such a wait neither spins nor sends what it asks for back and forth."""
    async with remote(clock) as bus:
        near = Bus(testing._node_of(bus), "near")
        far = await bus.subscribe("TRUE", consumer="ops", max_in_flight=6)
        await bus.publish_many(numbered(4))
        await testing.settled(bus)  # all lie in the far one's buffer
        here = await near.subscribe("TRUE", consumer="ops")
        got = [await soon(here.next()) for _ in range(4)]
        assert [d.attempt for d in got] == [1] * 4
        other = await near.subscribe("data.n > 4", consumer="ops")  # what it waits for needs room in the same window
        await bus.publish_many(numbered(4, first=5))
        await testing.settled(bus)
        rest = [await soon(each.next()) for each in (far, here)]
        await ack_all(got + rest)
        assert sorted([*ids(got + rest), *await heard(bus, far)], key=int) == [str(n) for n in range(1, 9)]
        await other.close()
        await near.close()


async def test_what_was_claimed_again_in_vain_can_be_settled_by_itself(clock: Any) -> None:
    async with remote(clock) as bus, proxy(bus._url) as way, tocsin.connect(way.url, name="line") as line:
        near = Bus(testing._node_of(bus), "near")
        sub = await line.subscribe("TRUE", consumer="ops")
        await bus.publish_many(numbered(3))
        mine = [await soon(sub.next()) for _ in range(3)]
        here = await near.subscribe("TRUE", consumer="ops")
        waiting = asyncio.ensure_future(here.next())
        await asyncio.sleep(0)
        way.snap()
        lost = (await soon(waiting)).offset
        with pytest.raises(DeliveryError):
            await soon(Batch(sorted(mine, key=lambda each: each.offset == lost)).ack())
        for each in mine:
            if each.offset != lost:
                await soon(each.ack())
        await near.close()


async def test_what_was_claimed_again_and_not_settled_comes_again_in_time(clock: Any) -> None:
    async with testing.node("ws:", clock) as bus:
        sub = await bus.subscribe("type = 'alarm'", consumer="ops", ack_wait=10)
        await bus.publish_many(numbered(1))
        [delivery] = await take(bus, sub)
        await testing.settled(bus)
        bus._link._wire.abort()
        await testing.settled(bus)
        clock.advance(11)
        await testing.settled(bus)
        await bus._link.ask(lambda n: frames.Reclaim(n, sub.sub, [(delivery.offset, delivery.attempt)]))
        await asyncio.to_thread(lambda: None)  # the node has its turn; `settled` would make it look by itself
        due = node_of(bus)._due
        assert due is not None and due <= node_of(bus).mailboxes["ops"].flying[delivery.offset].deadline


async def test_acks_of_many_workers_count_though_the_connection_is_lost_now_and_then(clock: Any) -> None:
    async with testing.node("ws:", clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many(numbered(400))
        await testing.settled(bus)
        seen: list[str] = []

        async def work() -> None:
            while True:
                delivery = await sub.next()
                seen.append(delivery.event.id)
                if len(seen) in (50, 130, 220, 300):
                    bus._link._wire.abort()
                await asyncio.sleep(0)
                await delivery.ack()
                if len(seen) >= 400:
                    return

        workers = [asyncio.ensure_future(work()) for _ in range(32)]
        done, rest = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        for worker in rest:
            worker.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for worker in done:
            worker.result()
        assert sorted(map(int, seen)) == list(range(1, 401)), "none twice"


async def test_an_ack_that_was_cancelled_is_no_trouble_later(clock: Any) -> None:
    troubles: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: troubles.append(context))
    async with remote(clock) as bus, proxy(bus._url) as way:
        async with tocsin.connect(way.url, name="line") as line:
            sub = await line.subscribe("TRUE", consumer="ops")
            await bus.publish_many(numbered(2))
            mine = [await soon(sub.next()) for _ in range(2)]
            way.cut()
            while line._link.is_up:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
            for work in (mine[0].ack(), mine[1].term("why")):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(work, 0.01)
            await line._link.close()
        del sub, mine, line, work
        gc.collect()
        assert troubles == []


async def test_closing_while_something_is_opened_says_so(clock: Any) -> None:
    async with remote(clock) as bus, proxy(bus._url) as way, tocsin.connect(way.url, name="line") as line:
        way.cut()
        while line._link.is_up:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        opening = asyncio.ensure_future(line.subscribe("TRUE", consumer="ops"))
        receipts = line.receipts()
        await asyncio.sleep(0)
        way.mend()
        assert (await soon(opening)).consumer == "ops"
        await line.publish(event("a", ack="receipt"))
        way.stall()
        opening = asyncio.ensure_future(line.subscribe("TRUE", consumer="more"))
        await asyncio.sleep(0)
        assert line._opening.exception() is None and receipts.poll() is None
        await line.close()
        with pytest.raises(tocsin.JournalError):
            await opening
        way.flow()


@pytest.mark.parametrize("group", [None, "crew"])
async def test_of_two_that_look_in_turn_one_finds_it(clock: Any, group: str | None) -> None:
    async with remote(clock) as bus:
        far = bus.as_user("far")
        one = await bus.subscribe("TRUE", consumer="ops", group=group)
        two = await far.subscribe("TRUE", consumer="more" if group else "ops", group=group)
        await bus.publish(event("a"))
        await testing.settled(bus)
        turns = (two, one) if len(one.buffer) else (one, two)  # the first to look is the one that has nothing
        found = []
        for _ in range(5):
            for each in turns:
                found += [each.poll()]
                await testing.settled(bus)
        [got] = [each for each in found if each is not None]
        await got.ack()
        await bus.publish(event("b"))  # and who does not look again does not keep it
        assert (await soon(two.next())).event.id == "b"

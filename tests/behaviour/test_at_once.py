"""Things that happen at once: waits and requests that are cut off, or in each other's way."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

import tocsin
from tests.behaviour.test_full_disk import slow_disk
from tests.helpers import event, heard, ids, life, numbered, soon, take, testing
from tocsin.delivery.mailbox import Mailbox
from tocsin.model import Event


async def cut_off(bus: Any, ticks: int, text: str, **options: Any) -> Any:
    """Subscribe, and cancel that after so many turns of the loop; the handle if it was there by then."""
    subscribing = asyncio.ensure_future(bus.subscribe(text, **options))
    for _ in range(ticks):
        await asyncio.sleep(0)
    subscribing.cancel()
    with suppress(asyncio.CancelledError):
        return await subscribing


@pytest.mark.parametrize("consumer", [None, "ops"])
async def test_cancelled_subscribe_leaves_nothing(bus: Any, consumer: str | None) -> None:
    await bus.publish_many(numbered(3))
    for ticks in range(40):  # at every stage
        handle = await cut_off(bus, ticks, "TRUE", consumer=consumer, past=tocsin.retained())
        if handle is not None:
            await bus.forget(handle.consumer)
        await testing.settled(bus)
        assert await bus.consumers() == []


async def test_cancelled_subscribe_leaves_a_consumer_as_it_was(bus: Any) -> None:
    await bus.subscribe("n < 3", consumer="ops")
    await bus.publish_many(numbered(3))
    for ticks in range(40):
        handle = await cut_off(bus, ticks, "TRUE", consumer="ops", past=tocsin.retained())
        if handle is not None:
            await bus.unsubscribe("ops", handle.id)
        await testing.settled(bus)
        [ops] = await bus.consumers()
        assert [text for _, text in ops.subscriptions] == ["n < 3"]


@pytest.mark.parametrize("replay", [False, True])
async def test_cancelled_subscribe_loses_nothing_that_waits(bus: Any, replay: bool) -> None:
    """What waits for a closed subscription is on its way to the new one when that is cut off."""
    for ticks in range(40):
        await (await bus.subscribe("n > 0", consumer="ops")).close()
        await bus.publish_many(numbered(3, source=str(ticks)))
        handle = await cut_off(bus, ticks, "n > 0" if replay else "TRUE", consumer="ops", replay=replay)
        if handle is not None:
            await handle.close()
        await testing.settled(bus)
        assert await heard(bus, await bus.subscribe("n > 0", consumer="ops")) == ["1", "2", "3"]
        await bus.forget("ops")


async def test_cancelled_subscribe_gives_its_past_to_nobody(bus: Any) -> None:
    await bus.publish_many(numbered(3))
    sub = await bus.subscribe("n > 0", consumer="ops")
    for ticks in range(40):
        handle = await cut_off(bus, ticks, "TRUE", consumer="ops", past=tocsin.retained())
        if handle is not None:
            break
        assert await take(bus, sub) == []


async def test_alerts_while_consumers_come_and_go(bus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mailboxes belong to the loop's thread; looked at from another they change under one's eyes, now and then."""
    wants, threads = Mailbox.wants, set()

    def watched(mailbox: Mailbox, each: Event) -> bool:
        threads.add(threading.current_thread())
        return wants(mailbox, each)

    monkeypatch.setattr(Mailbox, "wants", watched)
    await bus.publish_many(numbered(100, ttl=1000))
    base = [await bus.subscribe("TRUE", consumer=f"c{n}", past=tocsin.retained()) for n in range(10)]

    async def come_and_go() -> None:
        for n in range(1000):
            await bus.subscribe(f"n > {n}", consumer=f"c{n % 10}")
            base[n % 10].poll()
            await bus.subscribe("TRUE", consumer=f"new{n}")

    churn = asyncio.ensure_future(come_and_go())
    for _ in range(5):
        assert [alert.event.id for alert in await bus.alerts()] == [str(n) for n in range(1, 101)]
    assert threads == {threading.current_thread()}
    churn.cancel()
    with suppress(asyncio.CancelledError):
        await churn


async def test_wait_for_a_receipt_ends_when_the_bus_closes(url: str) -> None:
    async with testing.node(url) as bus:
        waiting = asyncio.ensure_future(bus.receipts().next())
        await testing.settled(bus)
        assert not waiting.done()
    with pytest.raises(tocsin.JournalError):
        await soon(waiting)


@pytest.mark.parametrize("ticks", range(6))
async def test_who_asks_while_another_member_is_being_woken_gets_its_share(ticks: int) -> None:
    """The one that waits has less in flight, so it comes first; what it leaves must not lie there unnoticed.

    In memory, so that each turn of the loop is the same every time.
    """
    async with testing.node() as bus:
        first, second = [await bus.subscribe("TRUE", consumer=name, group="crew") for name in ("first", "second")]
        await bus.publish(event("held"))
        assert len(await take(bus, second)) == 1
        waits = [asyncio.ensure_future(first.next())]
        await asyncio.sleep(0)
        publishing = asyncio.ensure_future(bus.publish_many([event("a"), event("b")]))
        for _ in range(ticks):
            await asyncio.sleep(0)
        waits.append(asyncio.ensure_future(second.next()))
        await publishing
        await testing.settled(bus)
        assert [wait.done() for wait in waits] == [True, True]
        assert sorted(ids(wait.result() for wait in waits)) == ["a", "b"]


async def test_cut_off_wait_of_a_member_leaves_nothing_unnoticed() -> None:
    """The one with more in flight has stepped back for the one whose wait is cancelled, and must be asked again."""
    for ticks in range(8):
        async with testing.node() as bus:
            first, second = [await bus.subscribe("TRUE", consumer=name, group="crew") for name in ("first", "second")]
            await bus.publish(event("held"))
            assert len(await take(bus, first)) == 1
            given_up = asyncio.ensure_future(second.next())
            await asyncio.sleep(0)
            publishing = asyncio.ensure_future(bus.publish(event("a")))
            for _ in range(ticks):
                await asyncio.sleep(0)
            waiting = asyncio.ensure_future(first.next())
            await asyncio.sleep(0)
            given_up.cancel()
            await publishing
            await asyncio.wait([given_up])
            await testing.settled(bus)
            got = [wait.result() for wait in (given_up, waiting) if wait.done() and not wait.cancelled()]
            assert ids(got) == ["a"], ticks
            waiting.cancel()


async def test_settling_that_is_cut_off_is_done_all_the_same(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many(numbered(2))
        for d, verb in zip(await take(bus, sub), ("ack", "term"), strict=True):
            with slow_disk(bus) as begun:
                settling = asyncio.ensure_future(getattr(d, verb)())
                await soon(begun.wait())
                settling.cancel()
                await asyncio.wait([settling])
            await d.ack()  # repeating it is no harm, and waits for the disk
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == []


async def test_last_attempt_given_back_makes_room_also_if_that_is_cut_off(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_deliver=1, max_in_flight=1)
    await bus.publish_many(numbered(2))
    [d] = await take(bus, sub)
    waiting = asyncio.ensure_future(sub.next())
    await testing.settled(bus)
    giving_back = asyncio.ensure_future(d.nak())
    await asyncio.sleep(0)
    giving_back.cancel()
    assert (await soon(waiting)).event.id == "2"


async def test_cancel_that_is_cut_off_is_done_or_not_but_not_half(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(event("a"))
        await testing.settled(bus)
        with slow_disk(bus) as begun:
            cancelling = asyncio.ensure_future(bus.cancel("a"))
            await soon(begun.wait())
            cancelling.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([cancelling])
        assert (await bus.status("a")).state == "cancelled"
        assert await take(bus, sub) == []
    async with life(file_url, clock) as bus:
        assert (await bus.status("a")).state == "cancelled"


async def test_file_is_free_after_an_opening_or_closing_that_was_cut_off(file_url: str) -> None:
    async def briefly() -> None:
        async with tocsin.connect(file_url):
            pass

    for ticks in range(12):
        task = asyncio.ensure_future(briefly())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await briefly()

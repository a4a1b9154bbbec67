"""Things that happen at once: waits and requests that are cut off, or in each other's way."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

import tocsin
from tests.helpers import event, ids, numbered, soon, take, testing
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

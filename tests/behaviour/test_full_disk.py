"""A disk that is full, or damaged: what could not be stored is said, nothing is half done, and repeating it helps."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import tocsin
from tests.helpers import event, heard, ids, life, numbered, soon, take, testing

ACKS = "type = 'tocsin.ack'"
DEAD = "type = 'tocsin.dead'"


@contextmanager
def full_disk(bus: Any) -> Iterator[asyncio.Event]:
    """No commit succeeds inside; the event is set when one has been refused."""
    loop, refused = asyncio.get_running_loop(), asyncio.Event()

    def write(_: Any) -> None:
        loop.call_soon_threadsafe(refused.set)
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    store = bus._node.journal._store
    store.write = write  # hides the method of its class
    try:
        yield refused
    finally:
        del store.write


@contextmanager
def slow_disk(bus: Any) -> Iterator[asyncio.Event]:
    """Commits begin inside, and end after; the event is set when one has begun."""
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    store = bus._node.journal._store
    bus._node._promptly._not_before = float("inf")  # what takes long is another thread's
    real = store.write

    def write(draft: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(20)
        real(draft)

    store.write = write
    try:
        yield begun
    finally:
        del store.write
        bus._node._promptly._not_before = 0.0
        go_on.set()


@pytest.fixture
def bus(file_url: str, clock: Any) -> Any:
    """As in conftest, but always on a file: memory is never full."""
    return testing.node(file_url, clock)


async def test_journal_that_cannot_grow_goes_on_when_it_can(file_url: str, clock: Any) -> None:
    """SQLite itself refuses here, by its limit of pages."""

    def limit(pages: int) -> None:
        journal = bus._node.journal
        journal._committer.run(lambda: journal._store.db.execute(f"PRAGMA max_page_count = {pages}").fetchone())

    large = event("large", data=random.Random(1).randbytes(500_000))
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(event("before"))
        [d] = await take(bus, sub)
        limit(1)  # less than it has: not one page more
        with pytest.raises(tocsin.JournalFullError):
            await bus.publish(large)
        limit(1_000_000)
        await d.ack()
        await bus.publish(large)
        assert await heard(bus, sub) == ["large"]
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == []


async def test_failed_ack_can_be_repeated_with_all_it_publishes(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        acks = await bus.subscribe(ACKS, consumer="acks", system=True)
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(event("a", ack="client"))
        [d] = await take(bus, sub)
        with full_disk(bus):
            with pytest.raises(tocsin.JournalFullError):
                await d.ack()
            with pytest.raises(tocsin.JournalFullError):
                await d.ack()
            assert bus.receipts().poll() is None
            assert acks.poll() is None
        await d.ack()
        [ack] = await take(bus, acks)
        assert ack.event.correlation_id == "a"
        assert [step.step for step in await bus.audit("a")] == ["published", "delivered", "acked", "receipt"]
        receipt = bus.receipts().poll()
        assert receipt is not None
        assert (receipt.id, receipt.consumer) == ("a", "ops")
        assert bus.receipts().poll() is None
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == []
        assert (await bus.status("a")).acked == ["ops"]


async def test_failed_ack_that_nobody_repeats_is_stored_with_the_next(file_url: str, clock: Any) -> None:
    """While the node lives the event does not come again; so its settling must not be forgotten either."""
    async with life(file_url, clock, "crash") as bus:
        acks = await bus.subscribe(ACKS, consumer="acks", system=True)
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many([event("a", ack="client"), event("b")])
        [a, b] = await take(bus, sub)
        with full_disk(bus), pytest.raises(tocsin.JournalFullError):
            await a.ack()
        await b.ack()
        assert [d.event.correlation_id for d in await take(bus, acks)] == ["a"]
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == []


async def test_receipt_of_a_failed_ack_that_nobody_repeats_is_told(bus: Any) -> None:
    """It is stored with the next commit, like all that the ack has to say; so it is told then, not after a restart."""
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("a", ack="receipt"), event("b")])
    [a, b] = await take(bus, sub)
    with full_disk(bus), pytest.raises(tocsin.JournalFullError):
        await a.ack()
    await b.ack()
    receipt = bus.receipts().poll()
    assert receipt is not None
    assert receipt.id == "a"


async def test_receipt_is_told_after_the_commit_not_before(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ack="receipt"))
    [d] = await take(bus, sub)
    await testing.settled(bus)
    with slow_disk(bus) as begun:
        acking = asyncio.ensure_future(d.ack())
        await soon(begun.wait())
        assert bus.receipts().poll() is None
        assert not acking.done()
    await soon(acking)
    assert (await soon(bus.receipts().next())).id == "a"


async def test_failed_cancel_can_be_repeated(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(event("a"))
        [d] = await take(bus, sub)
        with full_disk(bus), pytest.raises(tocsin.JournalFullError):
            await bus.cancel("a")
        assert (await bus.status("a")).state == "live"
        assert sub.poll() is None
        await bus.cancel("a")
        [notice] = await take(bus, sub)
        assert (notice.notice, notice.event.correlation_id) == (True, "a")
        await d.ack()
    async with life(file_url, clock) as bus:
        assert (await bus.status("a")).state == "cancelled"


async def test_second_cancel_returns_when_the_first_is_stored(bus: Any) -> None:
    await bus.publish(event("a"))
    with slow_disk(bus) as begun:
        cancels = [asyncio.ensure_future(bus.cancel("a")) for _ in range(2)]
        await soon(begun.wait())
        assert not any(each.done() for each in cancels)
    await soon(asyncio.gather(*cancels))
    assert [step.step for step in await bus.audit("a")] == ["published", "cancelled"]


async def test_subscribe_cancelled_while_it_is_stored_leaves_nothing(file_url: str, clock: Any) -> None:
    """Neither now nor after a restart: a consumer nobody knows of would keep the journal from being trimmed."""
    async with life(file_url, clock) as bus:
        with slow_disk(bus) as begun:
            subscribing = asyncio.ensure_future(bus.subscribe("TRUE", consumer="ops"))
            await soon(begun.wait())
            subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(subscribing)
        await testing.settled(bus)
        assert await bus.consumers() == []
    async with life(file_url, clock) as bus:
        assert await bus.consumers() == []


async def test_failed_subscribe_leaves_nothing(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        with full_disk(bus), pytest.raises(tocsin.JournalFullError):
            await bus.subscribe("TRUE", consumer="ops")
        assert await bus.consumers() == []
        await bus.subscribe("n < 3", consumer="ops")
        with full_disk(bus), pytest.raises(tocsin.JournalFullError):
            await bus.subscribe("TRUE", consumer="ops")
        [ops] = await bus.consumers()
        assert [text for _, text in ops.subscriptions] == ["n < 3"]


async def test_failed_subscribe_leaves_options_and_groups_as_they_were(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    with full_disk(bus), pytest.raises(tocsin.JournalFullError):
        await bus.subscribe("n < 3", consumer="ops", max_deliver=1)
    with full_disk(bus), pytest.raises(tocsin.JournalFullError):
        await bus.subscribe("TRUE", consumer="a", group="crew", order="journal")
    await bus.subscribe("TRUE", consumer="a", group="crew", order="priority")
    await bus.publish(event("a"))
    for attempt in (1, 2):
        [d] = await take(bus, sub)
        assert d.attempt == attempt
        await d.nak()


async def test_failed_replay_leaves_the_old_subscription_with_all_that_waits(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
        await bus.publish_many(numbered(3))
        await (await take(bus, sub, 1))[0].ack()
        await sub.close()
        with full_disk(bus), pytest.raises(tocsin.JournalFullError):
            await bus.subscribe("TRUE", consumer="ops", replay=True, past=tocsin.retained())
        again = await bus.subscribe("TRUE", consumer="ops")
        assert again.id == sub.id
        assert [d.event.id for d in await take(bus, again)] == ["2", "3"]
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == ["2", "3"]


@pytest.mark.parametrize("verb", ["forget", "unsubscribe"])
async def test_failed_leaving_can_be_repeated(file_url: str, clock: Any, verb: str) -> None:
    async with life(file_url, clock, "crash") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await sub.close()
        words = ["ops"] if verb == "forget" else ["ops", sub.id]
        with full_disk(bus), pytest.raises(tocsin.JournalFullError):
            await getattr(bus, verb)(*words)
        await getattr(bus, verb)(*words)
    async with life(file_url, clock) as bus:
        assert [each.subscriptions for each in await bus.consumers()] == ([] if verb == "forget" else [[]])


async def test_failed_ack_of_what_was_unsubscribed_can_be_repeated(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(event("a"))
        [d] = await take(bus, sub)
        await bus.unsubscribe("ops", sub.id)
        with full_disk(bus), pytest.raises(tocsin.JournalFullError):
            await d.ack()
        await d.ack()
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())) == []


async def test_handle_that_fails_to_close_is_closed(bus: Any) -> None:
    """What comes then is not put aside for it."""
    first = await bus.subscribe("TRUE", consumer="ops", max_deliver=1)
    second = await bus.subscribe("n > 1", consumer="ops")
    await bus.publish_many(numbered(1))
    assert len(await take(bus, first)) == 1
    with full_disk(bus), pytest.raises(tocsin.JournalFullError):
        await first.close()
    await bus.publish_many(numbered(1, first=2))
    assert await heard(bus, second) == ["2"]


async def test_dead_letters_of_one_moment_are_stored_together(file_url: str, clock: Any) -> None:
    """With the place, as each of them must be: a crash between two commits would lose what has no letter yet."""
    async with life(file_url, clock, "crash") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=5, max_deliver=1)
        await bus.publish_many(numbered(3))
        assert len(await take(bus, sub)) == 3
        store = bus._node.journal._store
        written, loop, one = store.write, asyncio.get_running_loop(), asyncio.Event()

        def write(draft: Any) -> None:
            if one.is_set():
                raise sqlite3.OperationalError("the power is gone")
            written(draft)
            loop.call_soon_threadsafe(one.set)

        store.write = write
        clock.advance(6)
        await soon(one.wait())
    async with life(file_url, clock) as bus:
        dead = await bus.subscribe(DEAD, consumer="undertaker", system=True, past=tocsin.retained())
        letters = [d.event.correlation_id for d in await take(bus, dead)]
        left = await heard(bus, await bus.subscribe("TRUE", consumer="ops"))
        assert sorted([*letters, *left]) == ["1", "2", "3"]


async def test_redelivery_goes_on_after_a_dead_letter_that_failed(bus: Any, clock: Any) -> None:
    """Nothing here asks the node to look at its clock: it must still do so by itself."""
    weak = await bus.subscribe("TRUE", consumer="a-weak", ack_wait=5, max_deliver=1)
    strong = await bus.subscribe("TRUE", consumer="strong", ack_wait=60)
    await bus.publish(event("a"))
    assert ids([*await take(bus, weak), *await take(bus, strong)]) == ["a", "a"]
    with full_disk(bus) as refused:
        clock.advance(6)
        await soon(refused.wait())
    clock.advance(60)
    again = await soon(strong.next())
    assert (again.event.id, again.attempt) == ("a", 2)
    await again.ack()


async def test_dead_letter_that_failed_is_written_later_and_once(bus: Any, clock: Any) -> None:
    dead = await bus.subscribe(DEAD, consumer="undertaker", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=5, max_deliver=1)
    await bus.publish(event("a"))
    assert len(await take(bus, sub)) == 1
    with full_disk(bus) as refused:
        clock.advance(6)
        await soon(refused.wait())
    letters, extra = [], []
    for _ in range(5):
        extra += await take(bus, sub)
        letters += await take(bus, dead)
        clock.advance(6)
    assert [letter.event.correlation_id for letter in letters] == ["a"]
    assert extra == [], "it had its last attempt"


async def test_close_on_a_full_disk_lets_go_of_the_file(file_url: str, clock: Any) -> None:
    """The disk stays full for the node that closes, so nothing but its first close can have freed the file."""
    with ExitStack() as disk:
        with pytest.raises(tocsin.JournalFullError):
            async with life(file_url, clock) as closed:
                sub = await closed.subscribe("TRUE", consumer="ops")
                await closed.publish_many([event("a"), event("b")])
                [a, _] = await take(closed, sub)
                await a.ack()
                disk.enter_context(full_disk(closed))
        async with life(file_url, clock) as bus:
            assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == ["b"]
        await soon(closed.close())  # repeating it does no harm


# Damage


def damage(file_url: str, offset: int) -> None:
    """Change the stored bytes of the block that begins at an offset."""
    db = sqlite3.connect(file_url.removeprefix("file:"))
    with db:
        changed = db.execute("UPDATE blocks SET data = zeroblob(length(data)) WHERE first = ?", (offset,))
        assert changed.rowcount == 1
    db.close()


async def test_damaged_block_is_told_to_who_subscribes(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        for made in numbered(5):
            await bus.publish(made)
    damage(file_url, 2)
    async with life(file_url, clock) as bus:
        with pytest.raises(tocsin.JournalDamagedError) as told:
            await bus.subscribe("TRUE", consumer="ops", past=tocsin.since(1))
        assert (told.value.first, told.value.last) == (2, 2)
        assert await bus.consumers() == []
        sub = await bus.subscribe("TRUE", consumer="ops", past=tocsin.since(3))
        assert await heard(bus, sub) == ["3", "4", "5"]


async def test_damaged_block_is_told_to_who_has_subscribed(
    file_url: str, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block lies in the backlog: a subscriber that waits must hear of it rather than wait for ever."""
    for module in ("lane", "refill"):
        monkeypatch.setattr(f"tocsin.delivery.{module}.CAPACITY", 2)
    async with testing.node(file_url, clock, hot_bytes=0) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        for made in numbered(8):
            await bus.publish(made)
        damage(file_url, 6)
        got: list[str] = []
        with pytest.raises(tocsin.JournalDamagedError):
            while True:
                d = await soon(sub.next())
                await d.ack()
                got.append(d.event.id)
        assert got == [str(n) for n in range(1, len(got) + 1)]

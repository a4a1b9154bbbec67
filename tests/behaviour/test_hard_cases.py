"""Hard cases of delivery that were wrong once: long backlogs, several subscriptions of one consumer, leaving.

What happens at once is in `test_at_once.py`, what a full or damaged disk does in `test_full_disk.py`; random lives of
short queues are in `tests/properties/test_lanes_random.py`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tocsin
from tests.helpers import ack_all, event, heard, life, numbered, soon, take, testing

either = pytest.mark.parametrize("end", ["close", "crash"])
CAPACITY = 4


@pytest.fixture
def short_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few events make a backlog: what the queues have no room for is left to the journal."""
    for module in ("lane", "refill"):
        monkeypatch.setattr(f"tocsin.delivery.{module}.CAPACITY", CAPACITY)


async def names(bus: Any) -> list[str]:
    return [consumer.name for consumer in await bus.consumers()]


async def in_flight(bus: Any) -> int:
    return sum(consumer.in_flight for consumer in await bus.consumers())


# Backlogs that are longer than the queues


async def test_refill_of_several_levels_loses_nothing(bus: Any, short_queues: None) -> None:
    """Levels fall behind at different places; a scan for one must not count as a scan for the others."""
    sub = await bus.subscribe("TRUE", consumer="ops")
    got: list[Any] = []

    async def publish(priority: int, count: int) -> None:
        await bus.publish_many([event(f"{priority}-{n}-{len(got)}", priority=priority) for n in range(count)])

    async def take_slowly(count: int) -> None:
        for _ in range(count):  # without waiting for the node: it refills while we take
            got.extend(d for d in [sub.poll()] if d is not None)
            await asyncio.sleep(0)

    await publish(5, CAPACITY + 3)
    await take_slowly(2)
    await publish(9, CAPACITY + 2)
    await publish(5, 1)
    await take_slowly(CAPACITY)
    await publish(1, 2 * CAPACITY)
    await take_slowly(2)
    await publish(9, CAPACITY + 1)
    got += await take(bus, sub)
    assert sorted(d.offset for d in got) == list(range(1, 5 * CAPACITY + 8))


async def test_soft_trim_keeps_what_a_level_has_yet_to_hand_out(bus: Any, clock: Any, short_queues: None) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    for made in numbered(10, priority=9):
        await bus.publish(made)
    await bus.publish(event("low", priority=5))
    in_hand = [sub.poll() for _ in range(CAPACITY)]
    await asyncio.gather(*(d.ack() for d in in_hand), sub.close())
    clock.advance(1000)
    assert await bus.trim(older_than=timedelta(0)) == CAPACITY + 1
    sub = await bus.subscribe("TRUE", consumer="ops")
    assert await heard(bus, sub) == ["5", "6", "7", "8", "9", "10", "low"]


@pytest.mark.embedded("looks into the node")
async def test_read_error_in_poll_loses_nothing(url: str, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with testing.node(url, clock, hot_bytes=0) as bus:  # every event is read from the journal
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many([event("a"), event("b")])

        def unreadable(*_: Any, **__: Any) -> Any:
            raise tocsin.JournalError("the disk has a hiccup")

        with monkeypatch.context() as patch:
            patch.setattr(bus._node.journal, "blocks", unreadable)
            with pytest.raises(tocsin.JournalError):
                sub.poll()
        assert await heard(bus, sub) == ["a", "b"]


# Several subscriptions of one consumer


@either
async def test_what_one_subscription_settled_is_settled_for_the_other_after_a_restart(
    file_url: str, clock: Any, end: str
) -> None:
    async with life(file_url, clock, end) as bus:
        everything = await bus.subscribe("TRUE", consumer="ops")
        small = await bus.subscribe("n < 3", consumer="ops")
        await everything.close()
        await bus.publish_many(numbered(1))
        assert await heard(bus, small) == ["1"]
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == []
        assert await heard(bus, await bus.subscribe("n < 3", consumer="ops")) == []


@either
async def test_what_waits_is_there_after_a_restart_whichever_subscription_opens(
    file_url: str, clock: Any, end: str
) -> None:
    async with life(file_url, clock, end) as bus:
        everything = await bus.subscribe("TRUE", consumer="ops")
        await bus.subscribe("n < 3", consumer="ops")
        await everything.close()
        await bus.publish_many(numbered(4))
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("n < 3", consumer="ops")) == ["1", "2"]
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == ["3", "4"]


async def test_many_openings_and_closings_neither_lose_nor_repeat(file_url: str, clock: Any) -> None:
    """Each life opens the subscriptions in another way; an event belongs to one of them, whenever it is asked for."""
    filters = ["TRUE", "n < 20", "n % 2 = 0"]
    got: list[str] = []
    for turn in range(8):
        async with life(file_url, clock, ["close", "crash"][turn % 2]) as bus:
            subs = [await bus.subscribe(text, consumer="ops") for text in filters[turn % 3 :]]
            await bus.publish_many(numbered(3, first=1 + 6 * turn))
            if turn % 2:
                got += await heard(bus, subs[0])
            await subs[0].close()
            await bus.publish_many(numbered(3, first=4 + 6 * turn))
            for sub in subs[1:]:
                got += await heard(bus, sub)
    async with life(file_url, clock) as bus:
        for sub in [await bus.subscribe(text, consumer="ops") for text in filters]:
            got += await heard(bus, sub)
    assert sorted(map(int, got)) == list(range(1, 49))


async def test_open_handle_gets_what_waits_for_a_closed_one(bus: Any) -> None:
    everything = await bus.subscribe("TRUE", consumer="ops")
    small = await bus.subscribe("n < 3", consumer="ops")
    await bus.publish_many(numbered(4))
    await everything.close()
    assert await heard(bus, small) == ["1", "2"]
    await bus.publish_many(numbered(2, first=1, source="other"))
    await small.close()
    everything = await bus.subscribe("TRUE", consumer="ops")
    assert await heard(bus, everything) == ["3", "4", "1", "2"]


async def test_concurrent_subscribes_with_one_filter_make_one_subscription(bus: Any) -> None:
    await bus.publish_many(numbered(3))
    one, two = await asyncio.gather(*(bus.subscribe("TRUE", consumer="ops", past=1) for _ in range(2)))
    assert one.id == two.id
    await one.close()
    await bus.publish(event("x"))
    await two.close()
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == ["3", "x"]
    assert (await bus.status("x")).state == "settled"


async def test_given_back_out_of_order_comes_in_order_to_each_handle(bus: Any) -> None:
    low = await bus.subscribe("n < 10", consumer="ops")
    high = await bus.subscribe("n >= 10", consumer="ops")
    for n in (11, 1, 2):
        await bus.publish(event(str(n), data={"n": n}))
    [eleven], [one, two] = await take(bus, high), await take(bus, low)
    for d in (eleven, two, one):
        await d.nak()
    assert await heard(bus, low) == ["1", "2"]
    assert await heard(bus, high) == ["11"]


@pytest.mark.parametrize("verb", ["ack", "nak", "term", "close"])
async def test_room_in_the_window_is_told_to_every_subscription(bus: Any, verb: str) -> None:
    """The window is the consumer's: what one handle lets go of lets another go on."""
    low = await bus.subscribe("n < 10", consumer="ops", max_in_flight=1)
    high = await bus.subscribe("n >= 10", consumer="ops")
    await bus.publish_many([event("1", data={"n": 1}), event("11", data={"n": 11})])
    [d] = await take(bus, low)
    waiting = asyncio.ensure_future(high.next())
    await testing.settled(bus)
    assert not waiting.done()
    await (low.close() if verb == "close" else getattr(d, verb)())
    assert (await soon(waiting)).event.id == "11"


async def test_what_is_given_back_with_a_delay_goes_over_too(bus: Any, clock: Any) -> None:
    first = await bus.subscribe("TRUE", consumer="ops")
    second = await bus.subscribe("n > 0", consumer="ops")
    await bus.publish_many(numbered(1))
    [d] = await take(bus, first)
    await d.nak(delay=5)
    await first.close()
    clock.advance(6)
    [again] = await take(bus, second)
    assert (again.event.id, again.attempt) == ("1", 2)


async def test_unsubscribe_gives_back_what_waited_for_a_closed_subscription(bus: Any) -> None:
    await (await bus.subscribe("TRUE", consumer="ops")).close()
    await bus.publish_many(numbered(1))
    second = await bus.subscribe("n > 0", consumer="ops")  # gets what waits for the first
    await bus.unsubscribe("ops", second.id)
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == ["1"]


async def test_what_was_settled_elsewhere_does_not_rise_when_its_subscription_is_dropped(bus: Any) -> None:
    first = await bus.subscribe("TRUE", consumer="ops")
    await first.close()
    await bus.publish_many(numbered(2))
    assert await heard(bus, await bus.subscribe("n > 1", consumer="ops")) == ["2"]
    await bus.unsubscribe("ops", first.id)
    assert await heard(bus, await bus.subscribe("n > 0", consumer="ops", past=tocsin.retained())) == ["1"]


async def test_what_unsubscribe_dropped_is_found_by_a_new_past_beyond_the_queues_too(
    bus: Any, short_queues: None
) -> None:
    first = await bus.subscribe("n > 0", consumer="ops")
    second = await bus.subscribe("n > -1", consumer="ops")
    await bus.publish_many(numbered(5 * CAPACITY))
    await bus.unsubscribe("ops", first.id)
    got = await heard(bus, second)
    assert got, "what the queue held goes to the other"
    got += await heard(bus, await bus.subscribe("n > -2", consumer="ops", past=tocsin.retained()))
    assert sorted(map(int, got)) == list(range(1, 5 * CAPACITY + 1))


async def test_unsubscribe_takes_nothing_out_of_hands(bus: Any, clock: Any) -> None:
    """Neither to bury it, though it was its last attempt, nor to give it to another subscription at once."""
    dead = await bus.subscribe("type = 'tocsin.dead'", consumer="undertaker", system=True)
    first = await bus.subscribe("TRUE", consumer="ops", max_deliver=1)
    second = await bus.subscribe("n > 1", consumer="ops")
    await bus.publish_many(numbered(2))
    got = await take(bus, first)
    await bus.unsubscribe("ops", first.id)
    assert await take(bus, second) + await take(bus, dead) == []
    await ack_all(got)
    clock.advance(100)
    assert await take(bus, second) + await take(bus, dead) == []


async def test_replay_of_what_waits_brings_it_once(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(3))
    assert len(await take(bus, sub, 1)) == 1
    again = await bus.subscribe("TRUE", consumer="ops", replay=True, past=tocsin.retained())
    got = []
    while batch := await take(bus, again, 1):  # one after the other: what is settled must not wait a second time
        await ack_all(batch)
        got += batch
    assert [d.event.id for d in got] == ["1", "2", "3"]


async def test_replay_that_waits_is_pending(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(1))
    assert await heard(bus, sub) == ["1"]
    again = await bus.subscribe("n > 0", consumer="ops", replay=True, past=tocsin.retained())
    assert (await bus.status("1")).pending == ["ops"]
    assert await heard(bus, again) == ["1"]
    assert (await bus.status("1")).pending == []


async def test_replay_leaves_alone_what_is_in_hand(bus: Any) -> None:
    sub = await bus.subscribe("n < 5", consumer="ops")
    await bus.publish_many(numbered(2))
    [one] = await take(bus, sub, 1)
    again = await bus.subscribe("n < 6", consumer="ops", replay=True, past=tocsin.retained())
    assert await heard(bus, again) == ["2"]
    await one.ack()
    assert await heard(bus, again) == []
    assert await in_flight(bus) == 0


async def test_replay_of_what_was_given_back_can_be_given_back_too(bus: Any) -> None:
    """There is one event, however many subscriptions could give it: whoever has it now has it alone."""
    sub = await bus.subscribe("n < 5", consumer="ops")
    await bus.publish_many(numbered(1))
    [one] = await take(bus, sub)
    await one.nak()
    again = await bus.subscribe("n < 6", consumer="ops", replay=True, past=tocsin.retained())
    [second] = await take(bus, again)
    assert await take(bus, sub) == []
    await second.nak()
    [third] = await take(bus, sub) + await take(bus, again)
    assert (third.event.id, third.attempt) == ("1", 3)
    await third.ack()
    assert await heard(bus, again) + await heard(bus, sub) == []
    assert await in_flight(bus) == 0


# Leaving, and settling what is left


async def test_refused_batch_leaves_the_others_to_come_again(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
    await bus.publish_many([event("low", priority=1), event("high", priority=9)])
    await testing.settled(bus)
    batch = await anext(sub.batches(2))
    await testing.settled(bus)
    clock.advance(11)
    [high] = await take(bus, sub, 1)
    assert (high.event.id, high.attempt) == ("high", 2)
    batch.reverse()  # what is still ours first: it must not be in hand when the other is refused
    with pytest.raises(tocsin.DeliveryError):
        await batch.ack()
    await high.ack()
    clock.advance(1000)
    assert await heard(bus, sub) == ["low"]
    assert await in_flight(bus) == 0


async def test_forgetting_nobody_is_refused(bus: Any) -> None:
    """Consumers outside of groups have None as their group: that must not make it a name for one of them."""
    await bus.subscribe("TRUE", consumer="ops")
    with pytest.raises(tocsin.ConsumerError) as refused:
        await bus.forget(None)
    assert refused.value.field == "consumer"
    assert await names(bus) == ["ops"]


async def test_old_ack_of_a_forgotten_consumer_is_refused_and_changes_nothing(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(event("old"))
        [old] = await take(bus, sub)
        await bus.forget("ops")
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many([event("new"), event("waiting")])
        [new] = await take(bus, sub, 1)
        await new.ack()
        with pytest.raises(tocsin.DeliveryError):
            await old.ack()
        await testing.settled(bus)
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == ["waiting"]


async def test_ack_after_unsubscribe_is_durable(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, "crash") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many([event("acked"), event("left")])
        [acked, _] = await take(bus, sub)
        await bus.unsubscribe("ops", sub.id)
        await acked.ack()
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
        assert await heard(bus, sub) == ["left"]


async def test_refused_term_spoils_no_other_settling(bus: Any) -> None:
    """Settlings share a commit: a dead letter that could not be stored would take its neighbours with it."""
    subs = [await bus.subscribe("TRUE", consumer=name) for name in ("one", "two")]
    await bus.publish(event("a", ack="client"))
    [good], [bad] = [await take(bus, sub) for sub in subs]
    refused, done = await asyncio.gather(bad.term("why " * 500_000), good.ack(), return_exceptions=True)
    assert isinstance(refused, tocsin.DeliveryError)
    assert done is None
    status = await bus.status("a")
    assert (status.acked, status.pending) == (["one"], ["two"])
    await bad.ack()


# Ids and clocks


async def test_cancel_of_a_reused_id_hits_the_newest(bus: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.journal.contract.DEDUP_LEAST", 1)
    await bus.publish(event("x", ttl=5))
    await bus.publish_many([event("y"), event("z")])
    clock.advance(700)  # long enough for the id to be free again
    newest = await bus.publish(event("x", ttl=5000))
    assert newest.offset == 4
    await bus.cancel("x")
    status = await bus.status("x")
    assert (status.offset, status.state) == (newest.offset, "cancelled")
    assert await heard(bus, await bus.subscribe("id = 'x'", consumer="ops", past=tocsin.retained())) == []


async def test_clock_set_back_between_runs_does_not_stretch_time_to_live(file_url: str) -> None:
    async with life(file_url, testing.ManualClock(datetime(2026, 1, 2, tzinfo=UTC))) as bus:
        await bus.publish(event("a"))
    clock = testing.ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
        await bus.publish(event("short", ttl=5))
        await bus.publish(event("long", ttl=1000))
        assert [d.attempt for d in await take(bus, sub)] == [1, 1]
        clock.advance(11)
        [again] = await take(bus, sub)
        assert (again.event.id, again.attempt) == ("long", 2)
        assert (await bus.status("short")).state == "expired"
        await ack_all([again])

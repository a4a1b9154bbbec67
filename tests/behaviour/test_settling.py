"""Settling: ack, nak, term, in_progress; windows, redelivery, dead letters, batches, and waits that are cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import tocsin
from tests.helpers import ack_all, event, heard, ids, numbered, soon, take, testing

DEAD = "type = 'tocsin.dead'"


async def test_settled_event_never_comes_again(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    [d] = await take(bus, sub)
    await d.ack()
    clock.advance(1000)
    assert await take(bus, sub) == []
    await sub.close()
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == []


async def test_repeating_an_ack_changes_nothing(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ack="client"))
    acks = await bus.subscribe("type = 'tocsin.ack'", consumer="acks", system=True)
    [d] = await take(bus, sub)
    await d.ack()
    await d.ack()
    await asyncio.gather(d.ack(), d.ack())
    assert len(await take(bus, acks)) == 1


async def test_settling_out_of_order_leaves_the_rest(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
    await bus.publish_many(numbered(5))
    got = await take(bus, sub)
    await ack_all([got[3], got[1]])
    [ops] = await bus.consumers()
    assert ops.lag == 3
    clock.advance(11)
    assert await heard(bus, sub) == ["1", "3", "5"]


async def test_nak_brings_it_back_at_once_with_the_next_attempt(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    for attempt in (1, 2, 3):
        [d] = await take(bus, sub)
        assert (d.event.id, d.attempt) == ("a", attempt)
        await d.nak()


async def test_nak_with_a_delay_waits_for_it(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("a"), event("b")])
    [a] = await take(bus, sub, 1)
    await a.nak(delay=2)
    assert ids(await take(bus, sub)) == ["b"]
    clock.advance(1.5)
    assert await take(bus, sub) == []
    clock.advance(1)
    [again] = await take(bus, sub)
    assert (again.event.id, again.attempt) == ("a", 2)


async def test_waiting_next_wakes_when_a_delay_is_over(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    [d] = await take(bus, sub)
    await d.nak(delay=60)
    waiting = asyncio.ensure_future(sub.next())
    await testing.settled(bus)
    assert not waiting.done()
    clock.advance(61)
    assert (await soon(waiting)).attempt == 2


async def test_unsettled_event_returns_after_ack_wait(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
    await bus.publish(event("a"))
    assert ids(await take(bus, sub)) == ["a"]
    clock.advance(9.5)
    assert await take(bus, sub) == []
    clock.advance(1)
    [d] = await take(bus, sub)
    assert (d.event.id, d.attempt) == ("a", 2)
    [ops] = await bus.consumers()
    assert (ops.redelivered, ops.in_flight) == (1, 1)


async def test_in_progress_begins_ack_wait_anew(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
    await bus.publish(event("a"))
    [d] = await take(bus, sub)
    for _ in range(5):
        clock.advance(8)
        await d.in_progress()
    assert await take(bus, sub) == []
    await d.ack()
    clock.advance(100)
    assert await take(bus, sub) == []


async def test_term_settles_for_good_and_says_why(bus: Any, clock: Any) -> None:
    dead = await bus.subscribe(DEAD, consumer="undertaker", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops")
    published = await bus.publish(event("a"))
    [d] = await take(bus, sub)
    await d.term("no such machine")
    clock.advance(1000)
    assert await take(bus, sub) == []
    [letter] = await take(bus, dead)
    assert letter.event.correlation_id == "a"
    assert letter.event.data["reason"] == "no such machine"
    assert letter.event.data["offset"] == published.offset


async def test_too_many_attempts_make_a_dead_letter(bus: Any, clock: Any) -> None:
    dead = await bus.subscribe(DEAD, consumer="undertaker", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops", max_deliver=3, ack_wait=10)
    published = await bus.publish(event("a"))
    [first] = await take(bus, sub)
    await first.nak()
    [second] = await take(bus, sub)
    await second.nak()
    assert len(await take(bus, sub)) == 1
    assert await take(bus, dead) == []
    clock.advance(11)
    assert await take(bus, sub) == []
    [letter] = await take(bus, dead)
    assert letter.event.correlation_id == "a"
    assert letter.event.data["attempts"] == 3
    assert letter.event.data["consumer"] == "ops"
    assert letter.event.data["offset"] == published.offset
    assert letter.event.data["reason"]


async def test_nak_of_the_last_attempt_makes_a_dead_letter_too(bus: Any) -> None:
    dead = await bus.subscribe(DEAD, consumer="undertaker", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops", max_deliver=1)
    await bus.publish_many([event("a"), event("b")])
    [a] = await take(bus, sub, 1)
    await a.nak()
    assert ids(await take(bus, sub)) == ["b"]
    assert [letter.event.correlation_id for letter in await take(bus, dead)] == ["a"]


async def test_dead_letters_are_per_consumer(bus: Any) -> None:
    weak = await bus.subscribe("TRUE", consumer="weak", max_deliver=1)
    strong = await bus.subscribe("TRUE", consumer="strong")
    await bus.publish(event("a"))
    [d] = await take(bus, weak)
    await d.nak()
    assert await heard(bus, weak) == []
    assert await heard(bus, strong) == ["a"]


async def test_window_limits_what_is_in_flight(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=2)
    await bus.publish_many(numbered(5))
    got = await take(bus, sub)
    assert ids(got) == ["1", "2"]
    await got[1].ack()
    assert ids(await take(bus, sub)) == ["3"]


async def test_window_belongs_to_the_consumer_not_to_a_handle(bus: Any) -> None:
    low = await bus.subscribe("n < 10", consumer="ops", max_in_flight=2)
    high = await bus.subscribe("n >= 10", consumer="ops", max_in_flight=2)
    await bus.publish_many(numbered(20))
    assert len(await take(bus, low)) + len(await take(bus, high)) == 2


async def test_urgent_event_does_not_break_the_window(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=1)
    await bus.publish(event("low", priority=1))
    [low] = await take(bus, sub)
    await bus.publish(event("urgent", priority=10))
    assert await take(bus, sub) == []
    await low.nak()
    assert ids(await take(bus, sub)) == ["urgent"]


async def test_default_window_is_256(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(300))
    assert len(await take(bus, sub)) == 256


async def test_auto_ack_settles_by_handing_over(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", auto_ack=True, max_in_flight=1)
    await bus.publish_many(numbered(5))
    assert ids(await take(bus, sub)) == ["1", "2", "3", "4", "5"]
    clock.advance(100)
    assert await take(bus, sub) == []
    [ops] = await bus.consumers()
    assert (ops.lag, ops.in_flight) == (0, 0)


async def test_batches_come_as_large_as_they_can_and_settle_together(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    await bus.publish_many(numbered(25))
    await testing.settled(bus)
    sizes, got = [], []
    async for batch in sub.batches(10):
        sizes.append(len(batch))
        got += ids(batch)
        await batch.ack()
        if len(got) == 25:
            break
    assert got == [str(n) for n in range(1, 26)]
    assert max(sizes) <= 10
    clock.advance(100)
    assert await take(bus, sub) == []


async def test_part_of_a_batch_can_be_settled_alone(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
    await bus.publish_many(numbered(4))
    await testing.settled(bus)
    async for batch in sub.batches(4):
        await list(batch)[1].ack()
        break
    clock.advance(11)
    assert await heard(bus, sub) == ["1", "3", "4"]


async def test_cancelled_wait_loses_nothing(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    got: list[str] = []
    for n in range(1, 61):
        waiting = asyncio.ensure_future(sub.next())
        publishing = asyncio.ensure_future(bus.publish(event(str(n))))
        for _ in range(n % 12):  # cancel at every stage of the hand-over
            await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            got.append((await waiting).event.id)
        await publishing
        got += ids(await take(bus, sub))
    assert got == [str(n) for n in range(1, 61)]


async def test_wait_for_loses_nothing(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sub.next(), 0)
    await bus.publish(event("a"))
    assert (await asyncio.wait_for(sub.next(), 20)).event.id == "a"


async def test_breaking_out_of_the_loop_loses_nothing(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    await bus.publish_many(numbered(6))
    got: list[str] = []
    while len(got) < 6:
        async for d in sub:
            got.append(d.event.id)
            await d.ack()
            if len(got) % 2 == 0:
                break
    assert got == ["1", "2", "3", "4", "5", "6"]


async def test_late_ack_by_a_member_that_lost_it_is_refused(bus: Any, clock: Any) -> None:
    slow = await bus.subscribe("TRUE", consumer="slow", group="g", ack_wait=10)
    await bus.publish(event("a"))
    [lost] = await take(bus, slow)
    quick = await bus.subscribe("TRUE", consumer="quick", group="g", ack_wait=10)
    await slow.close()
    [mine] = await take(bus, quick)
    with pytest.raises(tocsin.DeliveryError):
        await lost.ack()
    await mine.ack()
    assert set((await bus.status("a")).acked) == {"quick"}


@pytest.mark.parametrize("verb", ["nak", "in_progress", "term"])
async def test_settled_delivery_cannot_be_taken_back(bus: Any, clock: Any, verb: str) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    [d] = await take(bus, sub)
    await d.ack()
    with pytest.raises(tocsin.DeliveryError):
        await (d.term("why") if verb == "term" else getattr(d, verb)())
    clock.advance(100)
    assert await take(bus, sub) == []


async def test_settled_delivery_is_counted_in_status(bus: Any) -> None:
    one = await bus.subscribe("TRUE", consumer="one")
    await bus.subscribe("TRUE", consumer="two")
    await bus.publish(event("a"))
    await heard(bus, one)
    status = await bus.status("a")
    assert (set(status.acked), set(status.pending)) == ({"one"}, {"two"})

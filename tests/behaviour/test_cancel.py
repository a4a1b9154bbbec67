"""Cancelling: the node decides who may; waiting copies are withdrawn; who already has it is told."""

from __future__ import annotations

from typing import Any

import pytest

import tocsin
from tests.helpers import event, head, heard, ids, notices, take

CANCELLED = "tocsin.cancelled"


async def test_waiting_copies_are_withdrawn(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("a"), event("b")])
    await bus.cancel("a")
    assert ids(got := await take(bus, sub)) == ["b"]
    assert notices(got) == []


async def test_cancelled_event_is_no_part_of_the_past(bus: Any) -> None:
    await bus.publish_many([event("a"), event("b")])
    await bus.cancel("a")
    for name, bound in [("r", tocsin.retained()), ("n", tocsin.last(5)), ("s", tocsin.since(1))]:
        assert await heard(bus, await bus.subscribe("TRUE", consumer=name, past=bound)) == ["b"]


@pytest.mark.parametrize("settled", [True, False])
async def test_who_already_has_it_gets_a_notice(bus: Any, settled: bool) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    other = await bus.subscribe("n > 1", consumer="other")
    await bus.publish(event("a", data={"n": 1}))
    [d] = await take(bus, sub)
    if settled:
        await d.ack()
    await bus.cancel("a")
    got = await take(bus, sub)
    assert notices(got) == [(CANCELLED, "a")]
    assert ids(got) == []
    assert await take(bus, other) == []


async def test_notice_needs_no_ack_and_comes_once(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=1)
    await bus.publish(event("a"))
    [d] = await take(bus, sub)
    await bus.cancel("a")
    assert len(await take(bus, sub)) == 1
    clock.advance(100)
    await bus.publish(event("b"))
    assert await heard(bus, sub) == ["b"]
    await sub.close()
    assert await take(bus, await bus.subscribe("TRUE", consumer="ops")) == []
    assert d.event.id == "a"


async def test_notice_comes_also_with_a_full_window(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_in_flight=1)
    await bus.publish_many([event("a"), event("b")])
    assert ids(await take(bus, sub)) == ["a"]
    await bus.cancel("a")
    assert (CANCELLED, "a") in notices(await take(bus, sub))


async def test_notice_waits_for_a_consumer_that_is_away(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    assert await heard(bus, sub) == ["a"]
    await sub.close()
    await bus.cancel("a")
    back = await bus.subscribe("TRUE", consumer="ops")
    assert notices(await take(bus, back)) == [(CANCELLED, "a")]


async def test_withdrawn_copy_was_neither_delivered_nor_acknowledged(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    await bus.cancel("a")
    assert await take(bus, sub) == []
    s = await bus.status("a")
    assert (s.state, s.delivered, s.acked, s.pending) == ("cancelled", [], [], [])


async def test_no_notice_of_what_only_waited_for_another_handle(bus: Any) -> None:
    first = await bus.subscribe("TRUE", consumer="ops")
    second = await bus.subscribe("n > 0", consumer="ops")
    await bus.publish(event("a", data={"n": 1}))
    await take(bus, first, 0)
    await first.close()
    await bus.cancel("a")
    assert await take(bus, second) == []


async def test_cancelled_delivery_is_not_repeated(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
    await bus.publish(event("a"))
    assert ids(await take(bus, sub)) == ["a"]
    await bus.cancel("a")
    clock.advance(11)
    assert ids(await take(bus, sub)) == []


async def test_refused_delivery_of_a_cancelled_event_is_not_repeated(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    [d] = await take(bus, sub)
    await d.nak(delay=5)
    await bus.cancel("a")
    clock.advance(6)
    assert ids(await take(bus, sub)) == []


async def test_only_the_originator_may_by_default(bus: Any) -> None:
    alice, mallory = bus.as_user("alice"), bus.as_user("mallory")
    sub = await bus.subscribe("TRUE", consumer="ops")
    await alice.publish(event("a"))
    with pytest.raises(tocsin.CancelError):
        await mallory.cancel("a")
    assert (await bus.status("a")).state == "live"
    assert ids(await take(bus, sub)) == ["a"]
    await alice.cancel("a")
    assert (await bus.status("a")).state == "cancelled"


async def test_refused_cancel_stores_nothing(bus: Any) -> None:
    await bus.as_user("alice").publish(event("a"))
    before = await head(bus)
    with pytest.raises(tocsin.CancelError):
        await bus.as_user("mallory").cancel("a")
    assert await head(bus) == before + 1


async def test_anybody_may_if_the_publisher_says_so(bus: Any) -> None:
    await bus.as_user("alice").publish(event("a", cancel="any"))
    await bus.as_user("bob").cancel("a")
    assert (await bus.status("a")).state == "cancelled"


async def test_publishing_the_same_event_again_gives_no_right_to_cancel(bus: Any) -> None:
    await bus.as_user("alice").publish(event("a"))
    mallory = bus.as_user("mallory")
    await mallory.publish(event("a"))
    with pytest.raises(tocsin.CancelError):
        await mallory.cancel("a")


async def test_naming_the_source_in_an_event_gives_no_right_to_cancel(bus: Any) -> None:
    await bus.as_user("alice").publish(event("a", source="alice"))
    with pytest.raises(tocsin.CancelError):
        await bus.as_user("mallory").cancel("a", source="alice")


async def test_ambiguous_id_needs_its_source(bus: Any) -> None:
    await bus.publish_many([event("a", source="line/1"), event("a", source="line/2")])
    for verb in (bus.cancel, bus.status):
        with pytest.raises(tocsin.UnknownEventError):
            await verb("a")
    await bus.cancel("a", source="line/2")
    assert (await bus.status("a", source="line/1")).state == "live"
    assert (await bus.status("a", source="line/2")).state == "cancelled"


async def test_cancelled_event_is_not_published_again(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    first = await bus.publish(event("a"))
    await bus.cancel("a")
    assert (await bus.publish(event("a"))).offset == first.offset
    assert ids(await take(bus, sub)) == []


async def test_notice_of_what_an_older_subscription_brought(bus: Any) -> None:
    """It lies before the beginning of the one there is now, which matches it all the same."""
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    await bus.publish_many([event("settled"), event("in hand"), event("waiting")])
    [settled] = await take(bus, sub, 1)
    await settled.ack()
    sub = await bus.subscribe("TRUE", consumer="ops", replay=True)
    assert ids(await take(bus, sub, 1)) == ["in hand"]
    for id in ("settled", "in hand", "waiting"):
        await bus.cancel(id)
    assert notices(await take(bus, sub)) == [(CANCELLED, "settled"), (CANCELLED, "in hand")]


async def test_cancelling_twice_tells_once(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    assert await heard(bus, sub) == ["a"]
    await bus.cancel("a")
    await bus.cancel("a")
    assert notices(await take(bus, sub)) == [(CANCELLED, "a")]

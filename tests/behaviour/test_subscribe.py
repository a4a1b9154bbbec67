"""Subscribing: a consumer is its name. The same filter resumes, another adds, and each event comes once."""

from __future__ import annotations

from typing import Any

import pytest

import tocsin
from tests.helpers import event, heard, ids, soon, take


async def names(bus: Any) -> list[str]:
    return sorted(each.name for each in await bus.consumers())


async def test_only_what_matches_comes(bus: Any) -> None:
    sub = await bus.subscribe("type = 'machine.value' AND value > 9", consumer="ops")
    await bus.publish(event("a", type="machine.value", data={"value": 9.012}))
    await bus.publish(event("b", type="machine.value", data={"value": 8}))
    await bus.publish(event("c", data={"value": 10}))
    assert await heard(bus, sub) == ["a"]


async def test_every_consumer_gets_its_own_copy(bus: Any) -> None:
    one = await bus.subscribe("TRUE", consumer="one")
    two = await bus.subscribe("TRUE", consumer="two")
    await bus.publish(event("a"))
    assert await heard(bus, one) == await heard(bus, two) == ["a"]


async def test_waiting_for_the_next_and_iterating(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("a"), event("b")])
    first = await soon(sub.next())
    await first.ack()
    async for d in sub:
        assert (first.event.id, d.event.id, d.attempt, d.replayed) == ("a", "b", 1, False)
        break


async def test_poll_does_not_wait(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    assert sub.poll() is None


async def test_same_filter_resumes_where_it_stood(bus: Any) -> None:
    sub = await bus.subscribe("n > 0", consumer="ops")
    await bus.publish(event("a", data={"n": 1}))
    assert await heard(bus, sub) == ["a"]
    await sub.close()
    await bus.publish(event("b", data={"n": 1}))
    again = await bus.subscribe("n  >  0", consumer="ops")
    assert again.id == sub.id
    assert await heard(bus, again) == ["b"]


async def test_another_filter_adds_and_overlap_still_comes_once(bus: Any) -> None:
    small = await bus.subscribe("n < 10", consumer="ops")
    odd = await bus.subscribe("n % 2 = 1", consumer="ops")
    assert small.id != odd.id
    for n in (3, 4, 13, 14):
        await bus.publish(event(str(n), data={"n": n}))
    assert sorted(await heard(bus, small) + await heard(bus, odd)) == ["13", "3", "4"]
    [ops] = [each for each in await bus.consumers() if each.name == "ops"]
    assert len(ops.subscriptions) == 2


async def test_event_goes_to_the_first_open_handle_whose_filter_matches(bus: Any) -> None:
    first = await bus.subscribe("n > 0", consumer="ops")
    second = await bus.subscribe("n > 1", consumer="ops")
    await bus.publish(event("both", data={"n": 2}))
    assert ids(await take(bus, second)) == []
    assert await heard(bus, first) == ["both"]


async def test_when_the_first_handle_closes_the_next_one_gets_it(bus: Any) -> None:
    first = await bus.subscribe("n > 0", consumer="ops")
    second = await bus.subscribe("n > 1", consumer="ops")
    await bus.publish_many([event("both", data={"n": 2}), event("only", data={"n": 1})])
    await first.close()
    assert await heard(bus, second) == ["both"]
    again = await bus.subscribe("n > 0", consumer="ops")
    assert await heard(bus, again) == ["only"]


async def test_two_handles_of_one_subscription_share_and_do_not_repeat(bus: Any) -> None:
    one = await bus.subscribe("TRUE", consumer="ops")
    two = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("a"), event("b")])
    assert sorted(await heard(bus, one) + await heard(bus, two)) == ["a", "b"]


async def test_destinations_are_accepted_as_filters(bus: Any) -> None:
    sub = await bus.subscribe("TAG:fire, smoke;USER:kim", consumer="ops")
    await bus.publish(event("a", destination="TAG:big-fire-3"))
    await bus.publish(event("b", destination="USER:kimberley"))
    await bus.publish(event("c", destination="USER:kim"))
    assert await heard(bus, sub) == ["a", "c"]


async def test_filter_object_is_accepted_like_its_text(bus: Any) -> None:
    sub = await bus.subscribe(tocsin.Filter("n > 1"), consumer="ops")
    await bus.publish(event("a", data={"n": 2}))
    assert await heard(bus, sub) == ["a"]


async def test_system_records_are_hidden_unless_asked_for(bus: Any) -> None:
    plain = await bus.subscribe("TRUE", consumer="plain")
    full = await bus.subscribe("TRUE", consumer="full", system=True)
    published = await bus.publish(event("a", ack="client"))
    assert await heard(bus, plain) == ["a"]  # settling it makes a tocsin.ack
    types = [d.event.type for d in await take(bus, full)]
    assert "tocsin.ack" in types and "alarm" in types
    assert await heard(bus, plain) == []
    assert published.id == "a"


@pytest.mark.parametrize(
    ("first", "then", "named"),
    [
        ({"order": "journal"}, {"order": "priority"}, "order"),
        ({"max_in_flight": 8}, {"max_in_flight": 9}, "max_in_flight"),
        ({"group": "g"}, {"group": "h"}, "group"),
    ],
)
async def test_options_of_the_consumer_cannot_change(bus: Any, first: Any, then: Any, named: str) -> None:
    await bus.subscribe("TRUE", consumer="ops", **first)
    with pytest.raises(tocsin.ConsumerError) as refused:
        await bus.subscribe("n > 1", consumer="ops", **then)
    assert refused.value.field == named
    [ops] = await bus.consumers()
    assert len(ops.subscriptions) == 1


async def test_close_stops_receiving_and_keeps_the_place(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await sub.close()
    await bus.publish(event("a"))
    assert await names(bus) == ["ops"]
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == ["a"]


async def test_close_ends_the_iteration(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await sub.close()
    assert [d async for d in sub] == []


async def test_unsettled_deliveries_of_a_closed_handle_come_again(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    assert ids(await take(bus, sub)) == ["a"]
    await sub.close()
    clock.advance(31)
    again = await bus.subscribe("TRUE", consumer="ops")
    [d] = await take(bus, again)
    assert (d.event.id, d.attempt) == ("a", 2)


async def test_consumer_that_is_not_durable_ends_with_its_handle(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="passing", durable=False)
    assert await names(bus) == ["passing"]
    await sub.close()
    assert await names(bus) == []


async def test_unsubscribe_stops_one_filter_only(bus: Any) -> None:
    low = await bus.subscribe("n < 5", consumer="ops")
    high = await bus.subscribe("n >= 5", consumer="ops")
    await bus.unsubscribe("ops", low.id)
    await bus.publish_many([event("1", data={"n": 1}), event("9", data={"n": 9})])
    assert await heard(bus, high) == ["9"]
    assert low.poll() is None


async def test_unsubscribe_withdraws_what_was_waiting(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    await bus.unsubscribe("ops", sub.id)
    assert await take(bus, sub) == []


async def test_delivery_in_hand_can_be_settled_after_unsubscribe(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("a"), event("b")])
    [a] = await take(bus, sub, 1)
    await bus.unsubscribe("ops", sub.id)
    await a.ack()
    again = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
    assert await heard(bus, again) == ["b"]


async def test_settled_events_do_not_return_after_unsubscribe_and_subscribe(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    assert await heard(bus, sub) == ["a"]
    await bus.unsubscribe("ops", sub.id)
    await bus.publish(event("b"))
    again = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
    assert await heard(bus, again) == ["b"]


async def test_forget_drops_the_consumer_and_its_memory(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    assert await heard(bus, sub) == ["a"]
    await bus.forget("ops")
    assert await names(bus) == []
    assert sub.poll() is None
    stranger = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
    assert await heard(bus, stranger) == ["a"]


async def test_forgetting_one_leaves_the_others(bus: Any) -> None:
    await bus.subscribe("TRUE", consumer="gone")
    kept = await bus.subscribe("TRUE", consumer="kept")
    await bus.publish(event("a"))
    await bus.forget("gone")
    assert await heard(bus, kept) == ["a"]


async def test_consumers_tells_who_listens_and_how_far_behind(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    await bus.publish_many([event("a"), event("b"), event("c")])
    [first] = await take(bus, sub, 1)
    [ops] = await bus.consumers()
    assert (ops.name, ops.order, ops.group, ops.lag, ops.in_flight) == ("ops", "journal", None, 3, 1)
    await first.ack()
    [ops] = await bus.consumers()
    assert (ops.lag, ops.in_flight, ops.redelivered) == (2, 0, 0)


async def test_past_of_another_filter_brings_what_waits_for_a_closed_handle(bus: Any) -> None:
    first = await bus.subscribe("TRUE", consumer="ops")
    await first.close()
    await bus.publish(event("a", data={"n": 1}))
    second = await bus.subscribe("n > 0", consumer="ops", past=tocsin.retained())
    assert await heard(bus, second) == ["a"]
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == []


async def test_waiting_event_goes_to_any_open_handle_whose_filter_matches(bus: Any) -> None:
    first = await bus.subscribe("TRUE", consumer="ops")
    await first.close()
    await bus.publish_many([event("a", data={"n": 1}), event("b", data={"n": 0})])
    second = await bus.subscribe("n > 0", consumer="ops")
    assert await heard(bus, second) == ["a"]

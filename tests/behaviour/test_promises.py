"""Sentences of docs/DELIVERY.md that no other test holds to, in the order of that page."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tocsin
from tests.behaviour.test_full_disk import slow_disk
from tests.helpers import ack_all, event, head, heard, ids, life, notices, numbered, soon, take, testing

MIB = 2**20
either = pytest.mark.parametrize("end", ["close", "crash"])


# The journal


async def test_trimmed_events_are_forgotten(bus: Any, clock: Any) -> None:
    first = await bus.publish(event("a"))
    clock.advance(1)
    await bus.trim(older_than=timedelta(0))
    assert (await bus.publish(event("a"))).offset > first.offset


async def test_clock_set_back_between_runs_is_reported(file_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with life(file_url, testing.ManualClock(datetime(2026, 1, 1, 1, tzinfo=UTC))) as bus:
        await bus.publish(event("a"))
    for seconds, warned in ((59, False), (61, True)):
        caplog.clear()
        start = datetime(2026, 1, 1, 1, tzinfo=UTC) - timedelta(seconds=seconds)
        async with life(file_url, testing.ManualClock(start)):
            assert [(each.name, each.levelno) for each in caplog.records] == [("tocsin", logging.WARNING)] * warned


async def test_gap_names_the_offsets_concerned(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("n > 2", consumer="slow", order="journal")
    for made in numbered(5):
        await bus.publish(made)
    clock.advance(60)
    first = await bus.trim(older_than=timedelta(0), hard=True)
    [gap] = await take(bus, sub)
    assert (gap.notice, gap.event.data) == (True, {"first": 3, "last": first - 1})


async def test_consumers_that_are_not_durable_hold_nothing_back(bus: Any, clock: Any) -> None:
    await bus.subscribe("TRUE", consumer="passing", durable=False)
    for made in numbered(3):
        await bus.publish(made)
    clock.advance(1)
    assert await bus.trim(older_than=timedelta(0)) == 4


# Publishing


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"data": {"x": float("nan")}}, "data.x"),
        ({"data": {"x": [1, float("inf")]}}, "data.x"),
        ({"attributes": {"text": "x" * (MIB + 1)}}, "attributes"),
    ],
    ids=["NaN", "infinity", "attributes"],
)
async def test_refused_contents_are_named(bus: Any, fields: dict[str, Any], named: str) -> None:
    before = await head(bus)
    with pytest.raises(tocsin.EventError) as refused:
        await bus.publish_many([event("good"), event("bad", **fields)])
    assert str(refused.value.field).startswith(named)
    assert await head(bus) == before + 1


async def test_nan_is_fine_as_an_attribute(bus: Any) -> None:
    sub = await bus.subscribe("x > 1e300", consumer="ops")  # NaN is greater than every number
    await bus.publish(event("a", attributes={"x": float("nan")}))
    assert await heard(bus, sub) == ["a"]


async def test_call_larger_than_the_queue_is_taken_when_nothing_else_is_on_its_way(url: str, clock: Any) -> None:
    async with testing.node(url, clock, max_waiting=10, patience=20) as bus:
        small, large = await asyncio.gather(bus.publish(event("small")), bus.publish_many(numbered(50)))
        assert {place.offset for place in large} == set(range(1, 52)) - {small.offset}


async def test_nobody_sees_an_event_before_it_is_stored(file_url: str, clock: Any) -> None:
    async with testing.node(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        with slow_disk(bus) as begun:
            publishing = asyncio.ensure_future(bus.publish(event("a")))
            await soon(begun.wait())
            await asyncio.sleep(0.01)
            assert (publishing.done(), sub.poll()) == (False, None)
        await soon(publishing)
        assert await heard(bus, sub) == ["a"]


@pytest.mark.parametrize("persistent", [True, False])
async def test_publish_many_waits_for_the_disk_if_any_of_its_events_is_persistent(
    file_url: str, clock: Any, persistent: bool
) -> None:
    made = [event("a", persistent=False), event("b", persistent=persistent)]
    async with testing.node(file_url, clock) as bus:
        with slow_disk(bus) as begun:
            publishing = asyncio.ensure_future(bus.publish_many(made))
            await soon(begun.wait())
            await asyncio.sleep(0.01)
            assert publishing.done() is not persistent
        await soon(publishing)


@either
async def test_alerts_that_are_not_persistent_are_not_listed_after_a_restart(
    file_url: str, clock: Any, end: str
) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.publish_many([event("a", ack="client"), event("passing", ack="client", persistent=False)])
        assert len(await bus.alerts()) == 2
    async with life(file_url, clock) as bus:
        assert [alert.event.id for alert in await bus.alerts()] == ["a"]
        assert (await bus.status("passing")).state == "expired"


# Consumers


@pytest.mark.parametrize("name", ["a/b", "x" * 257, "line\nfeed", "\ud800", 7])
async def test_names_that_are_none(bus: Any, name: Any) -> None:
    with pytest.raises(tocsin.ConsumerError) as refused:
        await bus.subscribe("TRUE", consumer=name)
    assert refused.value.field == "consumer"


@pytest.mark.parametrize(
    ("first", "then", "named"),
    [({"durable": True}, {"durable": False}, "durable"), ({"group": "g"}, {}, "group"), ({}, {"group": "g"}, "group")],
    ids=["durable", "group left out", "group given"],
)
async def test_other_options_that_cannot_change(bus: Any, first: Any, then: Any, named: str) -> None:
    await bus.subscribe("TRUE", consumer="ops", **first)
    with pytest.raises(tocsin.ConsumerError) as refused:
        await bus.subscribe("TRUE", consumer="ops", **then)
    assert refused.value.field == named


async def test_options_that_can_change_do_and_stay(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("n < 100", consumer="ops", ack_wait=10)
    await bus.publish_many(numbered(4))
    await take(bus, sub, 1)
    await bus.subscribe("n > 100", consumer="ops", ack_wait=60, max_deliver=2)
    await take(bus, sub, 1)
    clock.advance(11)  # the first was given 10 seconds, the second 60
    [again] = await take(bus, sub, 1)
    assert (again.event.id, again.attempt) == ("1", 2)
    await again.nak()
    assert ids(await take(bus, sub, 1)) == ["3"], "the first had its last attempt"
    await bus.subscribe("n > 100", consumer="ops", auto_ack=True)
    assert ids(await take(bus, sub)) == ["4"]
    clock.advance(1000)
    assert sorted(await heard(bus, sub)) == ["2", "3"]


async def test_past_is_ignored_by_a_subscription_that_resumes(bus: Any) -> None:
    await bus.publish(event("before"))
    sub = await bus.subscribe("TRUE", consumer="ops")
    await sub.close()
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())) == []


async def test_anonymous_consumer_is_not_durable_whatever_is_said(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", durable=True)
    [nobody] = await bus.consumers()
    assert nobody.durable is False
    await sub.close()
    assert await bus.consumers() == []


async def test_oldest_of_very_many_ended_subscriptions_is_forgotten(bus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.node.consumers._KEPT_LANES", 2)
    await bus.publish_many(numbered(3))
    for n in (1, 2, 3):
        sub = await bus.subscribe(f"n = {n}", consumer="ops", past=tocsin.retained())
        assert await heard(bus, sub) == [str(n)]
        await bus.unsubscribe("ops", sub.id)
    sub = await bus.subscribe("n > 0", consumer="ops", past=tocsin.retained())
    assert await heard(bus, sub) == ["1"], "what the two newest settled is remembered"


async def test_forgetting_a_group_drops_it_and_forgetting_members_does_not(bus: Any) -> None:
    member = await bus.subscribe("TRUE", consumer="a", group="crew")
    await bus.publish(event("x"))
    assert await heard(bus, member) == ["x"]
    await bus.forget("a")
    await bus.publish(event("y"))
    member = await bus.subscribe("TRUE", consumer="b", group="crew", past=tocsin.retained())
    assert await heard(bus, member) == ["y"]
    await bus.forget("crew")
    assert member.closed
    member = await bus.subscribe("TRUE", consumer="c", group="crew", past=tocsin.retained(), order="journal")
    assert await heard(bus, member) == ["x", "y"]


async def test_window_counts_for_each_member_and_another_filter_is_another_subscription(bus: Any) -> None:
    one = await bus.subscribe("TRUE", consumer="one", group="crew", max_in_flight=2)
    two = await bus.subscribe("n > 0", consumer="two", group="crew", max_in_flight=2)
    await bus.publish_many(numbered(5))
    assert (len(await take(bus, two)), len(await take(bus, one))) == (0, 2), "the one made first gets everything"
    more = await bus.subscribe("TRUE", consumer="two", group="crew")
    assert len(await take(bus, more)) == 2


# Settling


async def test_late_delivery_is_its_holders_as_long_as_nobody_has_got_it(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", ack_wait=10)
    await bus.publish_many(numbered(3))
    acked, returned, extended = await take(bus, sub)
    clock.advance(11)
    await testing.settled(bus)
    await acked.ack()
    await returned.nak(delay=5)
    await extended.in_progress()
    assert await take(bus, sub) == []
    clock.advance(6)
    [again] = await take(bus, sub)
    assert (again.event.id, again.attempt) == ("2", 2)
    clock.advance(5)
    [other] = await take(bus, sub)
    assert (other.event.id, other.attempt) == ("3", 2)
    for late in (extended.ack, extended.nak, extended.in_progress, extended.term):
        with pytest.raises(tocsin.DeliveryError):
            await late()


@either
async def test_attempts_begin_anew_after_a_restart(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", max_deliver=3)
        await bus.publish_many(numbered(2))
        for attempt in (1, 2, 3):
            got = await take(bus, sub)
            assert [d.attempt for d in got] == [attempt, attempt]
            if attempt < 3:
                await got[0].nak()
                await got[1].nak(delay=10)
                clock.advance(11)
    async with life(file_url, clock) as bus:
        got = await take(bus, await bus.subscribe("TRUE", consumer="ops"))
        assert [(d.event.id, d.attempt) for d in got] == [("1", 1), ("2", 1)]


async def test_so_many_given_back_with_a_delay_and_no_more(
    bus: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.delivery.hands._MOST_RESTING", 3)
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    await bus.publish_many(numbered(6))
    for _ in range(3):
        [d] = await take(bus, sub, 1)
        await d.nak(delay=10)
    waiting = asyncio.ensure_future(sub.next())
    await testing.settled(bus)
    assert not waiting.done()
    clock.advance(11)
    assert (await soon(waiting)).event.id == "1"


async def test_ack_of_what_was_cancelled_or_dropped_is_not_counted(bus: Any) -> None:
    acks = await bus.subscribe("type = 'tocsin.ack'", consumer="acks", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("cancelled", ack="client"), event("dropped", ack="client")])
    got = await take(bus, sub)
    await bus.cancel("cancelled")
    await bus.unsubscribe("ops", sub.id)
    await ack_all(got)
    assert await take(bus, acks) == []
    assert bus.receipts().poll() is None
    assert [(await bus.status(id)).acked for id in ("cancelled", "dropped")] == [[], []]


# Time to live


async def test_what_is_expired_or_cancelled_does_not_count_for_last(bus: Any, clock: Any) -> None:
    await bus.publish_many([event("a"), event("short", ttl=5), event("b"), event("gone")])
    clock.advance(6)
    await bus.cancel("gone")
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops", past=tocsin.last(2))) == ["a", "b"]


# Cancelling


async def test_notice_says_what_and_who(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("first"))
    published = await bus.publish(event("a", cancel="any"))
    await heard(bus, sub)
    await bus.as_user("bob").cancel("a")
    [notice] = await take(bus, sub)
    assert notice.event.data == {"offset": published.offset, "source": "plant", "by": "bob"}


async def test_notice_comes_before_everything_else(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    await heard(bus, sub)
    await bus.publish(event("urgent", priority=10))
    await bus.cancel("a")
    assert [d.notice for d in await take(bus, sub)] == [True, False]


async def test_what_was_in_hand_before_a_restart_counts_as_not_seen(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many([event("settled"), event("in hand")])
        await (await take(bus, sub))[0].ack()
    async with life(file_url, clock) as bus:
        await bus.cancel("settled")
        await bus.cancel("in hand")
        assert notices(await take(bus, await bus.subscribe("TRUE", consumer="ops"))) == [
            ("tocsin.cancelled", "settled")
        ]


async def test_cancelling_what_is_expired_does_nothing(bus: Any, clock: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ttl=5))
    await heard(bus, sub)
    clock.advance(6)
    before = await head(bus)
    await bus.cancel("a")
    assert await head(bus) == before + 1
    assert notices(await take(bus, sub)) == []
    assert (await bus.status("a")).state == "expired"


async def test_only_so_many_notices_wait(bus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.delivery.notices._MOST_NOTICES", 2)
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(3))
    await heard(bus, sub)
    for n in (1, 2, 3):
        await bus.cancel(str(n))
    assert [id for _, id in notices(await take(bus, sub))] == ["2", "3"]


async def test_one_notice_for_a_group(bus: Any) -> None:
    one, two = [await bus.subscribe("TRUE", consumer=name, group="crew") for name in ("one", "two")]
    await bus.publish(event("a"))
    assert await heard(bus, one) == ["a"]
    await bus.cancel("a")
    assert (len(await take(bus, two)), len(await take(bus, one))) == (1, 0)


# Acknowledgements and receipts


async def test_ack_record_says_what_was_settled_by_whom(bus: Any) -> None:
    acks = await bus.subscribe("line = 7 AND consumer = 'ops'", consumer="acks", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops")
    published = await bus.publish(event("a", ack="client", attributes={"line": 7}))
    await heard(bus, sub)
    [d] = await take(bus, acks)
    about = {"line": 7, "consumer": "ops", "of": published.offset, "of_source": "plant"}
    assert (d.event.source, d.event.correlation_id, d.event.data, d.event.attributes) == ("tocsin", "a", "ACK", about)


@either
async def test_receipts_wait_over_a_restart_until_they_are_fetched(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        published = await bus.publish(event("a", ack="receipt"))
        await heard(bus, sub)
    async with life(file_url, clock) as bus:
        receipt = bus.receipts().poll()
        assert receipt is not None
        assert (receipt.id, receipt.source, receipt.offset, receipt.consumer) == ("a", "plant", published.offset, "ops")
    async with life(file_url, clock) as bus:
        assert bus.receipts().poll() is None


async def test_each_receipt_goes_to_one_reader(bus: Any) -> None:
    waits = [asyncio.ensure_future(bus.receipts().next()) for _ in range(2)]
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(2, ack="receipt"))
    await heard(bus, sub)
    assert sorted(receipt.id for receipt in await soon(asyncio.gather(*waits))) == ["1", "2"]
    assert bus.receipts().poll() is None


async def test_only_so_many_receipts_wait_and_the_trail_has_them_all(bus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.delivery.receipts.MOST", 2)
    sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
    await bus.publish_many(numbered(3, ack="receipt"))
    for _ in range(3):
        await (await take(bus, sub, 1))[0].ack()
    receipts = bus.receipts()
    await testing.settled(bus)
    assert [receipt.id for receipt in iter(receipts.poll, None)] == ["2", "3"]
    assert "receipt" in [step.step for step in await bus.audit("1")]


# Status, alerts, audit trail


async def test_new_consumer_that_asks_for_the_past_turns_settled_into_live(bus: Any) -> None:
    await bus.publish(event("a"))
    assert (await bus.status("a")).state == "live", "nobody ever wanted it"
    await heard(bus, await bus.subscribe("TRUE", consumer="one", past=1))
    assert (await bus.status("a")).state == "settled"
    await bus.subscribe("TRUE", consumer="two", past=1)
    status = await bus.status("a")
    assert (status.state, status.pending) == ("live", ["two"])


async def test_dead_letter_is_no_ack_in_status(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("plain"), event("tracked", ack="client")])
    for d in await take(bus, sub):
        await d.term("no")
    for id in ("plain", "tracked"):
        status = await bus.status(id)
        assert (status.state, status.delivered, status.acked, status.pending) == ("settled", ["ops"], [], [])


async def test_group_is_pending_as_a_whole_and_members_ack(bus: Any) -> None:
    one, _ = [await bus.subscribe("TRUE", consumer=name, group="crew") for name in ("one", "two")]
    await bus.publish_many([event("plain"), event("tracked", ack="client")])
    got = await take(bus, one)
    for id in ("plain", "tracked"):
        status = await bus.status(id)
        assert (status.delivered, status.acked, status.pending) == (["one"], [], ["crew"])
    await ack_all(got)
    for id in ("plain", "tracked"):
        status = await bus.status(id)
        assert (status.delivered, status.acked, status.pending) == (["one"], ["one"], [])


async def test_alerts_are_oldest_first_and_stay_when_all_have_settled_them(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("low", priority=1, ttl=60), event("high", priority=9, ack="client")])
    await heard(bus, sub)
    assert [(each.event.id, each.acked, each.pending) for each in await bus.alerts()] == [
        ("low", ["ops"], []),
        ("high", ["ops"], []),
    ]


async def test_trail_of_a_plain_event_is_short(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("settled"), event("dead"), event("cancelled")])
    settled, dead, cancelled = await take(bus, sub)
    await settled.ack()
    await dead.term("no")
    await cancelled.ack()
    await bus.cancel("cancelled")
    trails = {id: [step.step for step in await bus.audit(id)] for id in ("settled", "dead", "cancelled")}
    assert trails["settled"] == ["published"]
    assert trails["dead"] == ["published", "dead"]
    assert trails["cancelled"] == ["published", "cancelled", "delivered", "acked"]


# The past


async def test_both_ends_of_within_are_included(bus: Any, clock: Any) -> None:
    for id in ("too old", "old", "new"):
        await bus.publish(event(id))
        clock.advance(0 if id == "new" else 10)
    past = tocsin.within(timedelta(seconds=10))
    assert await heard(bus, await bus.subscribe("TRUE", consumer="ops", past=past)) == ["old", "new"]


async def test_settled_events_count_for_last_but_do_not_come_again(bus: Any) -> None:
    sub = await bus.subscribe("n = 3", consumer="ops")
    await bus.publish_many(numbered(3))
    assert await heard(bus, sub) == ["3"]
    assert await heard(bus, await bus.subscribe("n > 0", consumer="ops", past=tocsin.last(2))) == ["2"]


async def test_bound_below_what_was_trimmed_begins_at_what_is_kept(bus: Any, clock: Any) -> None:
    for made in numbered(4):
        await bus.publish(made)
        clock.advance(10)
    assert await bus.trim(older_than=timedelta(seconds=25)) == 3
    for name, past in [("o", tocsin.since(1)), ("t", tocsin.within(timedelta(hours=1))), ("r", tocsin.retained())]:
        assert await heard(bus, await bus.subscribe("TRUE", consumer=name, past=past)) == ["3", "4"]


async def test_replay_closes_old_handles_and_brings_what_still_waited(bus: Any) -> None:
    old = await bus.subscribe("TRUE", consumer="ops", order="journal", past=None)
    await bus.publish_many(numbered(4))
    [first] = await take(bus, old, 1)
    await first.ack()
    new = await bus.subscribe("TRUE", consumer="ops", past=tocsin.last(1), replay=True)
    assert old.closed and not new.closed
    assert await heard(bus, new) == ["2", "3", "4"]

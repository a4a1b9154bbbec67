"""After a restart, clean or not, everything is as it was: journal, consumers, settling, alerts, audit."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import tocsin
from tests.helpers import START, ack_all, event, heard, ids, life, notices, numbered, take, testing

either = pytest.mark.parametrize("end", ["close", "crash"])


@either
async def test_stored_events_keep_place_time_and_content(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        published = await bus.publish(event("a", data={"x": [1, 2]}, attributes={"line": 7}, priority=7))
    clock.advance(60)
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
        [d] = await take(bus, sub)
        assert (d.offset, d.event.arrived, d.event.data) == (published.offset, START, {"x": [1, 2]})
        assert (d.event.priority, d.event.attributes) == (7, {"line": 7})


@either
async def test_offsets_go_on(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        first = await bus.publish(event("a"))
    async with life(file_url, clock) as bus:
        assert (await bus.publish(event("b"))).offset > first.offset


@either
async def test_repeated_publish_is_still_recognised(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        places = await bus.publish_many(numbered(10))
    async with life(file_url, clock) as bus:
        again = await bus.publish_many(numbered(10))
        assert [p.offset for p in again] == [p.offset for p in places]


@either
async def test_durable_consumer_gets_what_it_missed_and_nothing_twice(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        sub = await bus.subscribe("n > 0", consumer="ops", order="journal")
        await bus.publish_many(numbered(6))
        got = await take(bus, sub)
        await ack_all([got[0], got[3]])
    async with life(file_url, clock) as bus:
        await bus.publish_many(numbered(2, first=7))
        sub = await bus.subscribe("n > 0", consumer="ops", order="journal")
        assert await heard(bus, sub) == ["2", "3", "5", "6", "7", "8"]


@either
async def test_subscriptions_work_before_anybody_reopens_them(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.subscribe("n > 0", consumer="ops")
    async with life(file_url, clock) as bus:
        await bus.publish(event("a", data={"n": 1}))
        await testing.settled(bus)
        assert set((await bus.status("a")).pending) == {"ops"}


@either
async def test_consumers_come_back_with_their_options(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.subscribe("n > 0", consumer="ops", order="journal", group="g", max_in_flight=7)
        await bus.subscribe("n > 1", consumer="ops", order="journal", group="g", max_in_flight=7)
        await bus.subscribe("TRUE", consumer="passing", durable=False)
    async with life(file_url, clock) as bus:
        [ops] = await bus.consumers()
        assert (ops.name, ops.order, ops.group, len(ops.subscriptions)) == ("ops", "journal", "g", 2)
        with pytest.raises(tocsin.ConsumerError):
            await bus.subscribe("n > 0", consumer="ops", order="priority", group="g", max_in_flight=7)


@either
async def test_unsubscribed_and_forgotten_stay_so(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        low = await bus.subscribe("n < 5", consumer="ops")
        await bus.subscribe("n >= 5", consumer="ops")
        await bus.subscribe("TRUE", consumer="gone")
        await bus.unsubscribe("ops", low.id)
        await bus.forget("gone")
    async with life(file_url, clock) as bus:
        await bus.publish_many(numbered(9))
        sub = await bus.subscribe("n >= 5", consumer="ops")
        assert await heard(bus, sub) == ["5", "6", "7", "8", "9"]
        assert [each.name for each in await bus.consumers()] == ["ops"]


@either
async def test_events_that_are_not_persistent_do_not_come_back(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.subscribe("TRUE", consumer="ops", order="journal")
        await bus.publish_many([event("a"), event("passing", persistent=False), event("b")])
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
        assert await heard(bus, sub) == ["a", "b"]
        late = await bus.subscribe("TRUE", consumer="late", past=tocsin.retained(), order="journal")
        assert await heard(bus, late) == ["a", "b"]


@either
async def test_cancelled_stays_cancelled(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many([event("a"), event("b")])
        await bus.cancel("a")
    async with life(file_url, clock) as bus:
        assert (await bus.status("a")).state == "cancelled"
        assert ids(await take(bus, await bus.subscribe("TRUE", consumer="ops"))) == ["b"]


@either
async def test_notice_is_given_after_the_restart(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(event("a"))
        assert await heard(bus, sub) == ["a"]
        await bus.cancel("a")
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        assert notices(await take(bus, sub)) == [("tocsin.cancelled", "a")]


@either
async def test_right_to_cancel_survives(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await bus.as_user("alice").publish(event("a"))
    async with life(file_url, clock) as bus:
        with pytest.raises(tocsin.CancelError):
            await bus.as_user("mallory").cancel("a")
        await bus.as_user("alice").cancel("a")


@either
async def test_status_and_alerts_survive(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        one = await bus.subscribe("TRUE", consumer="one")
        await bus.subscribe("TRUE", consumer="two")
        await bus.publish(event("a", ack="client"))
        await heard(bus, one)
    async with life(file_url, clock) as bus:
        s = await bus.status("a")
        assert (s.state, set(s.matched), set(s.acked), set(s.pending)) == ("live", {"one", "two"}, {"one"}, {"two"})
        [alert] = await bus.alerts()
        assert (alert.event.id, set(alert.acked), set(alert.pending)) == ("a", {"one"}, {"two"})


@either
async def test_audit_trail_survives(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.as_user("alice").publish(event("a", ack="client", ttl=100))
        await heard(bus, sub)
        before = [(line.step, line.who, line.at) for line in await bus.audit("a")]
    clock.advance(5)
    async with life(file_url, clock) as bus:
        after = [(line.step, line.who, line.at) for line in await bus.audit("a")]
        assert after == before
        assert [step for step, _, _ in after][:3] == ["published", "delivered", "acked"]


@either
async def test_dead_letters_do_not_rise(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", max_deliver=1)
        await bus.publish_many([event("a"), event("b")])
        for d in await take(bus, sub):
            await (d.term("no") if d.event.id == "a" else d.nak())
        await testing.settled(bus)
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", max_deliver=1)
        assert await take(bus, sub) == []


@either
async def test_restart_ends_no_attempt(file_url: str, clock: Any, end: str) -> None:
    """What was in flight comes back as not delivered yet, also if it was the last attempt it had."""
    async with life(file_url, clock, end) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", max_deliver=1)
        await bus.publish(event("a"))
        assert len(await take(bus, sub)) == 1
    async with life(file_url, clock) as bus:
        assert await heard(bus, await bus.subscribe("TRUE", consumer="ops")) == ["a"]


@either
async def test_replay_that_was_not_finished_goes_on(file_url: str, clock: Any, end: str) -> None:
    """`last(3)` was found and queued when subscribe returned: a restart does not lose it, nor the live ones."""
    async with life(file_url, clock, end) as bus:
        await bus.publish_many(numbered(10))
        sub = await bus.subscribe("TRUE", consumer="ops", past=3, order="journal")
        [d] = await take(bus, sub, 1)
        await d.ack()
        await bus.publish(event("11"))
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", order="journal")
        assert await heard(bus, sub) == ["9", "10", "11"]


async def test_three_lives_in_a_row(file_url: str, clock: Any) -> None:
    got: list[str] = []
    for number in range(3):
        async with life(file_url, clock, "crash") as bus:
            sub = await bus.subscribe("TRUE", consumer="ops", order="journal", max_in_flight=4)
            await bus.publish_many(numbered(6, first=1 + 6 * number))
            batch = await take(bus, sub)
            await ack_all(batch)
            got += ids(batch)
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", order="journal", max_in_flight=4)
        got += await heard(bus, sub)
    assert got == [str(n) for n in range(1, 19)]


async def test_second_opening_names_the_holder(file_url: str, clock: Any) -> None:
    async with testing.node(url=file_url, clock=clock):
        with pytest.raises(tocsin.JournalLockedError) as refused:
            async with tocsin.connect(file_url):
                raise AssertionError("opened twice")
    assert refused.value.holder and refused.value.path
    async with tocsin.connect(file_url) as bus:
        await bus.publish(event("a"))


async def test_memory_journal_is_gone_when_closed(clock: Any) -> None:
    async with life("memory:", clock) as bus:
        await bus.publish(event("a"))
    async with life("memory:", clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
        assert await take(bus, sub) == []


async def test_close_finishes_what_was_being_published(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        answers = [asyncio.ensure_future(bus.publish(each)) for each in numbered(50)]
        await asyncio.sleep(0)
    done = await asyncio.gather(*answers, return_exceptions=True)
    answered = {p.id for p in done if not isinstance(p, BaseException)}
    assert all(isinstance(p, tocsin.TocsinError) for p in done if isinstance(p, BaseException))
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
        assert answered <= set(await heard(bus, sub))


async def test_subscriptions_of_older_files_go_on(file_url: str, clock: Any) -> None:
    """Their records are shorter: nothing tells when a subscription ended, nor which was made after another."""
    async with life(file_url, clock) as bus:
        old = await bus.subscribe("n < 3", consumer="ops")
        await bus.subscribe("n > 1", consumer="ops")
        await bus.publish_many(numbered(4))
        [one, _] = await take(bus, old)
        await one.ack()
        await bus.unsubscribe("ops", old.id)
        await testing.settled(bus)
        [(name, stored)] = bus._node.journal.state("consumer/").items()
        who = msgspec.msgpack.decode(stored)
        who[2] = [lane[:8] for lane in who[2]]
        await bus._node.store(state={name: msgspec.msgpack.encode(who)})
        await testing.crash(bus)
    async with life(file_url, clock) as bus:
        sub = await bus.subscribe("n > 1", consumer="ops")
        assert await heard(bus, sub) == ["2", "3", "4"]
        everything = await bus.subscribe("TRUE", consumer="ops", past=tocsin.retained())
        assert await heard(bus, everything) == []
        await bus.unsubscribe("ops", sub.id)
        await bus.publish_many(numbered(1, first=5))
        assert await heard(bus, everything) == ["5"]

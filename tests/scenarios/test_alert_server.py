"""Acceptance scenarios A to F and X of the Alert Server, and the redelivery rows of its Table 4.1 as D1 to D6.

Readings. A consumer is a name and "registering" is `subscribe(past=retained())`, so that retained alerts reach late
subscribers. A "sweep" is what the node does by itself; a second one is asking again. The thesis's A, D and AL are its
own bookkeeping, so D1 to D6 assert receivers only. B3 reads as B5 (the 10 comes next), duration 0 is `ttl=None`, F2 is
"only persistent ones return". Lower-case prefixes (A5) are accepted: the filter language settled that.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocsin
from tests.helpers import (
    START,
    event,
    head,
    heard,
    ids,
    life,
    notices,
    numbered,
    soon,
    take,
    testing,
)

ACKS = "type = 'tocsin.ack'"


def alert(id: str, destination: str = "TAG:fire", **fields: Any) -> tocsin.Event:
    return event(id, destination=destination, **fields)


async def register(bus: Any, name: str, topics: str = "TAG:.*", **options: Any) -> Any:
    return await bus.subscribe(topics, consumer=name, **{"past": tocsin.retained(), **options})


async def receivers(bus: Any, subs: dict[str, Any], id: str) -> set[str]:
    """Who gets this alert now; all of them settle it."""
    return {name for name, sub in subs.items() if id in await heard(bus, sub)}


async def who_gets(bus: Any, subs: dict[str, Any], destination: str) -> set[str]:
    id = f"to {destination}"
    await bus.publish(alert(id, destination))
    return await receivers(bus, subs, id)


# Matching


async def test_a1_tag_is_found_anywhere(bus: Any) -> None:
    subs = {"abc": await register(bus, "abc", "TAG:ABC")}
    assert await who_gets(bus, subs, "TAG:xABCy") == {"abc"}
    assert await who_gets(bus, subs, "TAG:AB") == set()


async def test_a2_anchors(bus: Any) -> None:
    subs = {"begins": await register(bus, "begins", "TAG:^A.*"), "ends": await register(bus, "ends", "TAG:.*X$")}
    assert await who_gets(bus, subs, "TAG:AX") == {"begins", "ends"}
    assert await who_gets(bus, subs, "TAG:BA") == set()
    assert await who_gets(bus, subs, "TAG:AB") == {"begins"}


@pytest.mark.parametrize("kind", ["USER", "PROFILE"])
async def test_a3_user_and_profile_are_compared_whole(bus: Any, kind: str) -> None:
    subs = {"a": await register(bus, "a", f"{kind}:A"), "dot": await register(bus, "dot", f"{kind}:.*")}
    assert await who_gets(bus, subs, f"{kind}:AB") == set()
    assert await who_gets(bus, subs, "TAG:A") == set()
    assert await who_gets(bus, subs, f"{kind}:A") == {"a"}
    assert await who_gets(bus, subs, f"{kind}:.*") == {"dot"}


async def test_a4_one_request_with_four_topics(bus: Any) -> None:
    """Four alternatives of one subscription; dropping it drops all four."""
    sub = await register(bus, "four", "TAG:a, b;USER:a, b")
    topics = ["TAG:a", "TAG:b", "USER:a", "USER:b"]
    for topic in topics:
        assert await who_gets(bus, {"four": sub}, topic) == {"four"}
    assert await who_gets(bus, {"four": sub}, "PROFILE:a") == set()
    await bus.unsubscribe("four", sub.id)
    for topic in topics:
        await bus.publish(alert(f"after {topic}", topic))
    assert await take(bus, sub) == []
    assert all(len(each.subscriptions) == 0 for each in await bus.consumers())


async def test_a5_unknown_prefix_reaches_nothing(bus: Any) -> None:
    before = await head(bus)
    for topics in ("TAG:a;GROUP:b", "TAG:", "TAG:a;b"):
        with pytest.raises(tocsin.FilterError):
            await bus.subscribe(topics, consumer="new")
    for destination in ("GROUP:a", "TAG:", "TAG:a, b", "fire"):
        with pytest.raises(tocsin.EventError) as refused:
            await bus.publish(alert("x", destination))
        assert refused.value.field == "destination"
    assert await head(bus) == before + 1
    assert await bus.consumers() == []


async def test_a6_two_matching_filters_one_copy(bus: Any) -> None:
    narrow, wide = await register(bus, "one", "TAG:A"), await register(bus, "one", "TAG:.*")
    await bus.publish(alert("x", "TAG:A1"))
    assert await heard(bus, narrow) + await heard(bus, wide) == ["x"]


# Priority and order


async def test_b1_highest_level_first(bus: Any) -> None:
    sub = await register(bus, "ops")
    for priority in (3, 10, 5):
        await bus.publish(alert(str(priority), priority=priority))
    assert await heard(bus, sub) == ["10", "5", "3"]


async def test_b2_arrival_order_within_a_level(bus: Any) -> None:
    sub = await register(bus, "ops")
    for id in "abc":
        await bus.publish(alert(id, priority=5))
    assert await heard(bus, sub) == ["a", "b", "c"]


async def test_b3_ten_comes_next_in_the_middle_of_a_level(bus: Any) -> None:
    sub = await register(bus, "ops")
    await bus.publish_many([alert(id, priority=2) for id in "abcd"] + [alert("low", priority=1)])
    assert ids(await take(bus, sub, 2)) == ["a", "b"]
    await bus.publish(alert("ten", priority=10))
    assert await heard(bus, sub) == ["ten", "c", "d", "low"]


async def test_b4_late_subscriber_gets_nine_before_one(bus: Any) -> None:
    await bus.publish_many([alert("one", priority=1), alert("nine", priority=9)])
    assert await heard(bus, await register(bus, "late")) == ["nine", "one"]


async def test_b5_ten_overtakes_a_full_output_path(bus: Any) -> None:
    sub = await register(bus, "ops", max_in_flight=10)
    for chunk in range(5):
        await bus.publish_many([alert(f"{chunk}-{n}", priority=1) for n in range(1000)])
    held = await take(bus, sub)
    assert len(held) == 10
    await bus.publish(alert("ten", priority=10))
    await held[0].ack()
    assert ids(await take(bus, sub)) == ["ten"]


# Retention, expiry, cancel


async def test_c1_duration_ends(bus: Any, clock: Any) -> None:
    await bus.publish(alert("x", ttl=1000))
    clock.advance(999)
    assert await heard(bus, await register(bus, "early")) == ["x"]
    clock.advance(2)
    assert await heard(bus, await register(bus, "late")) == []
    assert await bus.alerts() == []


async def test_c2_without_duration_until_cancelled(bus: Any, clock: Any) -> None:
    await bus.publish(alert("x", ttl=None))
    clock.advance(10 * 365 * 86_400)
    assert await heard(bus, await register(bus, "late")) == ["x"]
    await bus.cancel("x")
    assert await heard(bus, await register(bus, "later")) == []


async def test_c3_expired_alert_is_gone_after_a_restart(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        await bus.publish_many([alert("x", ttl=10), alert("y", ttl=100)])
        clock.advance(11)
        assert (await bus.status("x")).state == "expired"
    async with life(file_url, clock) as bus:
        assert [each.event.id for each in await bus.alerts()] == ["y"]
        assert await heard(bus, await register(bus, "late")) == ["y"]


async def test_c4_originator_and_any(bus: Any) -> None:
    alice, bob = bus.as_user("alice"), bus.as_user("bob")
    await alice.publish_many([alert("hers"), alert("anyones", cancel="any")])
    with pytest.raises(tocsin.CancelError):
        await bob.cancel("hers")
    await bob.cancel("anyones")
    assert await heard(bus, await register(bus, "late")) == ["hers"]


async def test_c5_cancelled_alert_is_not_reloaded(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        await bus.publish_many([alert("x"), alert("y")])
        await bus.cancel("x")
    async with life(file_url, clock) as bus:
        assert await heard(bus, await register(bus, "late")) == ["y"]


@pytest.mark.parametrize("how", ["cancelled", "unsubscribed"])
async def test_c6_waiting_delivery_is_withdrawn(bus: Any, how: str) -> None:
    sub = await register(bus, "ops", max_in_flight=1)
    await bus.publish_many([alert("x"), alert("y")])
    [x] = await take(bus, sub)
    await (bus.cancel("y") if how == "cancelled" else bus.unsubscribe("ops", sub.id))
    if how == "cancelled":
        await x.ack()
    assert await take(bus, sub) == []


# No duplicates


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param("+C3", {"C3"}, id="D1"),
        pytest.param("-C1", set(), id="D2"),
        pytest.param("+C3 +C4 -C4", {"C3"}, id="D3"),
        pytest.param("+C3 +C4 -C3 -C4", set(), id="D4"),
        pytest.param("+C3 -C2", {"C3"}, id="D5"),
        pytest.param("+C3 +C4 -C4 -C2", {"C3"}, id="D6"),
    ],
)
async def test_d1_to_d6_only_the_new_ones_that_stayed_receive(bus: Any, changes: str, expected: set[str]) -> None:
    subs = {name: await register(bus, name) for name in ("C1", "C2")}
    await bus.publish(alert("x"))
    assert await receivers(bus, subs, "x") == {"C1", "C2"}
    for change in changes.split():
        name = change[1:]
        if change[0] == "+":
            subs[name] = await register(bus, name)
        else:
            await bus.unsubscribe(name, subs[name].id)
    assert await receivers(bus, subs, "x") == expected
    assert await receivers(bus, subs, "x") == set()


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("ABCD")),
    st.tuples(st.just("remove"), st.sampled_from("ABCD")),
    st.tuples(st.just("publish"), st.integers(1, 10)),
    st.tuples(st.just("sweep"), st.sampled_from("ABCD")),
)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_d7_random_sequences_against_sets(steps: list[tuple[str, Any]]) -> None:
    async def play() -> None:
        async with testing.node() as bus:
            subs: dict[str, Any] = {}
            everything: set[str] = set()
            got: dict[str, list[str]] = {name: [] for name in "ABCD"}
            for number, (verb, arg) in enumerate([*steps, *(("sweep", name) for name in "ABCD")]):
                if verb == "publish":
                    await bus.publish(alert(str(number), priority=arg))
                    everything.add(str(number))
                elif verb == "add" and arg not in subs:
                    subs[arg] = await register(bus, arg)
                elif verb == "remove" and arg in subs:
                    await bus.unsubscribe(arg, subs.pop(arg).id)
                elif verb == "sweep" and arg in subs:
                    fresh = await heard(bus, subs[arg])
                    assert set(fresh) == everything - set(got[arg])
                    got[arg] += fresh
            assert all(len(each) == len(set(each)) for each in got.values())

    asyncio.run(play())


async def test_d8_register_then_publish_before_anything_runs(bus: Any) -> None:
    await bus.publish_many([alert("one", priority=1), alert("nine", priority=9)])
    sub, _ = await asyncio.gather(register(bus, "Y"), bus.publish(alert("five", priority=5)))
    assert await heard(bus, sub) == ["nine", "five", "one"]


async def test_d9_second_registration_during_the_first_ones_run(bus: Any) -> None:
    await bus.publish_many([alert("ten", priority=10), alert("two", priority=2)])
    first = await register(bus, "Y")
    assert ids(await take(bus, first, 1)) == ["ten"]
    second = await register(bus, "Z")
    assert await heard(bus, second) == ["ten", "two"]
    assert await heard(bus, first) == ["two"]


async def test_d10_unsubscribed_gets_nothing_more_and_others_all(bus: Any) -> None:
    subs = {name: await register(bus, name) for name in ("stays", "goes", "also stays")}
    await bus.publish_many([alert(str(n)) for n in range(10)])
    assert len(await take(bus, subs["goes"], 3)) == 3
    await bus.unsubscribe("goes", subs["goes"].id)
    await bus.publish(alert("new"))
    assert await take(bus, subs["goes"]) == []
    for name in ("stays", "also stays"):
        assert await heard(bus, subs[name]) == [*map(str, range(10)), "new"]


# Acks and receipts


async def test_e1_ack_reaches_who_subscribed_to_acks(bus: Any) -> None:
    b = await register(bus, "B")
    c = await bus.subscribe(f"{ACKS} AND tag = 'fire'", consumer="C", system=True)
    await bus.as_user("A").publish(alert("x", ack="client"))
    assert await take(bus, c) == []
    assert await heard(bus, b) == ["x"]
    [ack] = await take(bus, c)
    assert (ack.event.type, ack.event.correlation_id) == ("tocsin.ack", "x")
    assert ack.event.attributes["tag"] == "fire"
    assert ack.event.id != "x"


@pytest.mark.parametrize("policy", ["none", "receipt"])
async def test_e2_ack_nobody_asked_for_is_not_stored(bus: Any, policy: str) -> None:
    c = await bus.subscribe(ACKS, consumer="C", system=True)
    b = await register(bus, "B")
    await bus.publish(alert("x", ack=policy))
    before = await head(bus)
    await heard(bus, b)
    with pytest.raises(tocsin.EventError):
        await bus.publish(event("forged", type="tocsin.ack", correlation_id="x"))
    assert await head(bus) == before + 1
    assert await take(bus, c) == []


async def test_e3_one_receipt_per_completed_delivery(bus: Any) -> None:
    receipts = bus.receipts()
    c = await bus.subscribe(ACKS, consumer="C", system=True)
    subs = [await register(bus, name) for name in ("one", "two", "three")]
    await bus.publish(alert("x", ack="receipt"))
    before = await head(bus)
    got: list[str] = []
    for number, sub in enumerate(subs):
        assert len(got) == number and receipts.poll() is None
        await heard(bus, sub)
        await testing.settled(bus)
        got.append(receipts.poll().consumer)
    assert got == ["one", "two", "three"]
    assert await head(bus) == before + 1
    assert await take(bus, c) == []


async def test_e4_undelivered_ack_survives_a_crash(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, end="crash") as bus:
        await bus.subscribe(ACKS, consumer="C", system=True)
        b = await register(bus, "B")
        await bus.publish(alert("x", ack="client"))
        assert await heard(bus, b) == ["x"]
    async with life(file_url, clock) as bus:
        c = await bus.subscribe(ACKS, consumer="C", system=True)
        assert [d.event.correlation_id for d in await take(bus, c)] == ["x"]


# Persistence and recovery


async def test_f1_clean_restart_returns_exactly_the_live_persistent_ones(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        places = {}
        for id, fields in {
            "kept": {"priority": 3, "ttl": 100},
            "passing": {"persistent": False},
            "cancelled": {},
            "expired": {"ttl": 5},
            "urgent": {"priority": 9},
        }.items():
            places[id] = (await bus.publish(alert(id, **fields))).offset
        await bus.cancel("cancelled")
    clock.advance(60)
    async with life(file_url, clock) as bus:
        got = await take(bus, await register(bus, "late"))
        assert ids(got) == ["urgent", "kept"]
        assert [d.offset for d in got] == [places["urgent"], places["kept"]]
        assert [d.event.priority for d in got] == [9, 3]
        assert {d.event.arrived for d in got} == {START}
        clock.advance(41)  # 101 s after arrival, though only 41 after the restart
        assert await heard(bus, await register(bus, "later")) == ["urgent"]


async def test_f2_crash_returns_only_persistent_ones(file_url: str, clock: Any) -> None:
    async with life(file_url, clock, end="crash") as bus:
        sub = await register(bus, "ops", order="journal")
        await bus.publish_many([alert(str(n), persistent=n % 2 == 1) for n in range(5, 10)])
        for d in await take(bus, sub, 2):
            await d.ack()
    async with life(file_url, clock) as bus:
        assert await heard(bus, await register(bus, "ops", order="journal")) == ["7", "9"]
        assert await heard(bus, await register(bus, "late", order="journal")) == ["5", "7", "9"]


@pytest.mark.parametrize("end", ["close", "crash"])
async def test_f4_recovered_alerts_go_before_new_ones(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        await register(bus, "ops")
        await bus.publish_many([alert("old-1"), alert("old-2")])
    async with life(file_url, clock) as bus:
        await bus.publish_many([alert("new"), alert("urgent", priority=9)])
        assert await heard(bus, await register(bus, "ops")) == ["urgent", "old-1", "old-2", "new"]


@pytest.mark.parametrize("end", ["close", "crash"])
async def test_f6_served_before_the_restart_is_not_served_again(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end) as bus:
        sub = await register(bus, "ops")
        await bus.publish(alert("k"))
        assert await heard(bus, sub) == ["k"]
        await sub.close()
        await bus.publish(alert("missed"))
    async with life(file_url, clock) as bus:
        await bus.publish(alert("later"))
        assert await heard(bus, await register(bus, "ops")) == ["missed", "later"]


# Concurrency and isolation


async def test_x1_calls_return_without_waiting_for_a_delivery(bus: Any) -> None:
    hung = await register(bus, "hung", max_in_flight=1)
    await bus.publish(alert("x"))
    assert len(await take(bus, hung)) == 1  # and never settled
    await soon(bus.publish(alert("y")))
    other = await soon(register(bus, "other"))
    await soon(bus.cancel("y"))
    await soon(bus.unsubscribe("other", other.id))
    await soon(bus.forget("hung"))


async def test_x2_hung_consumer_delays_nobody(bus: Any) -> None:
    hung = [await register(bus, f"hung-{n}", max_in_flight=1) for n in range(20)]
    await bus.publish(alert("first"))
    assert all([len(await take(bus, sub)) == 1 for sub in hung])
    well = await register(bus, "well")
    for id in ("a", "b", "c"):
        await bus.publish(alert(id))
        d = await soon(well.next()) if id != "a" else (await take(bus, well))[-1]
        assert d.event.id == id


async def test_x3_stress_loses_and_repeats_nothing(bus: Any) -> None:
    """Publishers, consumers, cancellers and comers and goers at once; then everything is counted."""
    chance = random.Random(3)
    steady = {name: await register(bus, name, order="journal", max_in_flight=50) for name in ("one", "two", "three")}
    got: dict[str, list[str]] = {name: [] for name in steady}
    told: dict[str, set[str | None]] = {name: set() for name in steady}
    cancelled: set[str] = set()
    total = 300

    async def publisher(name: str) -> None:
        for n in range(total // 3):
            id = f"{name}-{n}"
            await bus.publish(alert(id, priority=chance.randint(1, 10), cancel="any"))
            if chance.random() < 0.2:
                await bus.cancel(id)
                cancelled.add(id)

    async def consumer(name: str) -> None:
        async for d in steady[name]:
            if d.notice:
                told[name].add(d.event.correlation_id)
                continue
            got[name].append(d.event.id)
            await d.ack()

    async def comer_and_goer(name: str) -> None:
        for _ in range(20):
            sub = await register(bus, name)
            for d in await take(bus, sub, 5):
                if not d.notice:  # a word that something was cancelled cannot be given back
                    await d.nak()
            await bus.unsubscribe(name, sub.id)

    readers = [asyncio.ensure_future(consumer(name)) for name in steady]
    await asyncio.gather(*(publisher(f"p{n}") for n in range(3)), *(comer_and_goer(f"c{n}") for n in range(3)))
    while any(each.lag for each in await bus.consumers() if each.name in steady):
        await testing.settled(bus)
    for sub in steady.values():
        await sub.close()
    await soon(asyncio.gather(*readers))
    everything = {f"p{p}-{n}" for p in range(3) for n in range(total // 3)}
    for name, received in got.items():
        assert len(received) == len(set(received))
        assert everything - set(received) <= cancelled
        assert told[name] <= cancelled & set(received)


def test_x3_many_lives_in_one_process() -> None:
    """No lock, task or thread is left behind that would stop the next node."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(10):

            async def play(number: int = number) -> None:
                async with tocsin.connect(f"file:{folder}/plant.db") as bus:
                    await bus.publish(alert(str(number)))

            asyncio.run(play())


async def test_notices_are_not_alerts(bus: Any) -> None:
    """What a consumer is told about a cancelled alert is no alert itself: nobody who comes later is told."""
    sub = await register(bus, "ops")
    await bus.publish_many(numbered(2, destination="TAG:fire", ttl=60))
    await heard(bus, sub)
    await bus.cancel("1")
    assert notices(await take(bus, sub)) == [("tocsin.cancelled", "1")]
    assert [each.event.id for each in await bus.alerts()] == ["2"]
    assert notices(await take(bus, await register(bus, "late"))) == []

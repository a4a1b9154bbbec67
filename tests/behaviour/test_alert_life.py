"""The life of an alert: acknowledgements as events, receipts, status, the list of live alerts, the audit trail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tocsin
from tests.helpers import ack_all, event, heard, numbered, soon, take, testing

ACKS = "type = 'tocsin.ack'"


def steps(trail: list[Any]) -> list[str]:
    return [line.step for line in trail]


async def test_settling_a_client_alert_publishes_an_ack(bus: Any) -> None:
    acks = await bus.subscribe(f"{ACKS} AND correlation_id = 'a'", consumer="acks", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many([event("a", ack="client"), event("b", ack="client")])
    assert await take(bus, acks) == []
    assert await heard(bus, sub) == ["a", "b"]
    [d] = await take(bus, acks)
    assert (d.event.type, d.event.correlation_id) == ("tocsin.ack", "a")
    assert d.event.id != "a" and d.offset > 2


async def test_every_consumer_acknowledges_for_itself(bus: Any) -> None:
    acks = await bus.subscribe(ACKS, consumer="acks", system=True)
    subs = [await bus.subscribe("TRUE", consumer=name) for name in ("one", "two")]
    await bus.publish(event("a", ack="client"))
    for sub in subs:
        await heard(bus, sub)
    assert len(await take(bus, acks)) == 2


async def test_batch_acknowledges_each_alert(bus: Any) -> None:
    acks = await bus.subscribe(ACKS, consumer="acks", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish_many(numbered(5, ack="client"))
    await testing.settled(bus)
    async for batch in sub.batches(5):
        await batch.ack()
        break
    assert sorted(d.event.correlation_id for d in await take(bus, acks)) == ["1", "2", "3", "4", "5"]


async def test_largest_event_can_be_acknowledged(bus: Any) -> None:
    """The record carries its attributes and more: it must be stored, or no settling of this node would be again."""
    sub = await bus.subscribe("TRUE", consumer="x" * 256)
    await bus.publish(event("a", source="s" * 2048, ack="client", attributes={"text": "x" * 2**20}))
    acks = await bus.subscribe(ACKS, consumer="acks", system=True)
    assert await heard(bus, sub) == ["a"]
    [ack] = await take(bus, acks)
    assert len(ack.event.attributes["text"]) == 2**20


@pytest.mark.parametrize("policy", ["none", "receipt"])
async def test_other_policies_publish_no_ack(bus: Any, policy: str) -> None:
    acks = await bus.subscribe(ACKS, consumer="acks", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ack=policy))
    assert await heard(bus, sub) == ["a"]
    assert await take(bus, acks) == []


async def test_refusing_is_not_acknowledging(bus: Any) -> None:
    acks = await bus.subscribe(ACKS, consumer="acks", system=True)
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ack="client"))
    [d] = await take(bus, sub)
    await d.nak(delay=60)
    assert await take(bus, acks) == []


@pytest.mark.parametrize("policy", ["receipt", "client"])
async def test_publisher_gets_a_receipt_per_settled_delivery(bus: Any, clock: Any, policy: str) -> None:
    alice = bus.as_user("alice")
    receipts = alice.receipts()
    subs = [await bus.subscribe("TRUE", consumer=name) for name in ("one", "two", "three")]
    published = await alice.publish(event("a", ack=policy))
    held = [d for sub in subs for d in await take(bus, sub)]
    assert receipts.poll() is None
    clock.advance(7)
    await ack_all(held[:2])
    await testing.settled(bus)
    got = [receipts.poll(), receipts.poll()]
    assert {r.consumer for r in got} == {"one", "two"}
    assert {(r.id, r.offset) for r in got} == {("a", published.offset)}
    assert all(r.at.second == 7 for r in got)
    assert receipts.poll() is None


async def test_receipts_can_be_awaited(bus: Any) -> None:
    receipts = bus.receipts()
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ack="receipt"))
    await heard(bus, sub)
    assert (await soon(receipts.next())).id == "a"


async def test_receipts_go_to_the_publisher_alone(bus: Any) -> None:
    bob = bus.as_user("bob").receipts()
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.as_user("alice").publish(event("a", ack="receipt"))
    await heard(bus, sub)
    await testing.settled(bus)
    assert bob.poll() is None


@pytest.mark.embedded("looks into the node")
async def test_no_receipt_for_nobody(bus: Any) -> None:
    """What was imported has no publisher: a receipt would wait for ever."""
    sub = await bus.subscribe("TRUE", consumer="ops")
    await asyncio.to_thread(bus._node.journal.append, [event("a", ack="client")])
    assert await heard(bus, sub) == ["a"]
    assert bus._node.journal.state("receipt/") == {}
    assert steps(await bus.audit("a")) == ["published", "delivered", "acked"]


async def test_no_receipt_unless_asked_for(bus: Any) -> None:
    receipts = bus.receipts()
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    await heard(bus, sub)
    await testing.settled(bus)
    assert receipts.poll() is None


async def test_status_follows_a_delivery(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.subscribe("n > 1", consumer="other")
    await bus.publish(event("a", data={"n": 1}, ack="client"))
    await testing.settled(bus)
    s = await bus.status("a")
    assert (s.state, set(s.matched), set(s.delivered), set(s.acked), set(s.pending)) == (
        "live",
        {"ops"},
        set(),
        set(),
        {"ops"},
    )
    [d] = await take(bus, sub)
    s = await bus.status("a")
    assert (s.state, set(s.delivered), set(s.acked), set(s.pending)) == ("live", {"ops"}, set(), {"ops"})
    await d.ack()
    s = await bus.status("a")
    assert (s.state, set(s.matched), set(s.delivered), set(s.acked), set(s.pending)) == (
        "settled",
        {"ops"},
        {"ops"},
        {"ops"},
        set(),
    )


async def test_status_of_a_plain_event_names_who_has_it(bus: Any) -> None:
    one = await bus.subscribe("TRUE", consumer="one")
    await bus.subscribe("TRUE", consumer="two")
    await bus.publish(event("a"))
    await heard(bus, one)
    s = await bus.status("a")
    assert (set(s.matched), set(s.acked), set(s.pending)) == ({"one", "two"}, {"one"}, {"two"})


async def test_status_knows_who_settled_what_another_subscription_brought(bus: Any) -> None:
    """Its past waits for a closed handle; another handle of the same consumer takes one of the two and settles it."""
    await bus.publish_many([event("a", data={"n": 5}), event("b", data={"n": 2})])
    await (await bus.subscribe("TRUE", consumer="ops", past=2)).close()
    sub = await bus.subscribe("n < 3", consumer="ops", past=2)
    assert await heard(bus, sub) == ["b"]
    s = await bus.status("b")
    assert (s.state, set(s.delivered), set(s.acked), set(s.pending)) == ("settled", {"ops"}, {"ops"}, set())


async def test_status_of_an_expired_event(bus: Any, clock: Any) -> None:
    await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a", ttl=10))
    clock.advance(11)
    s = await bus.status("a")
    assert s.state == "expired"
    assert not s.pending


async def test_status_of_a_cancelled_event(bus: Any) -> None:
    await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    await bus.cancel("a")
    s = await bus.status("a")
    assert s.state == "cancelled"
    assert not s.pending


async def test_alerts_are_live_events_with_ttl_or_ack(bus: Any, clock: Any) -> None:
    await bus.publish_many([event("plain"), event("ttl", ttl=10), event("ack", ack="client"), event("gone", ttl=60)])
    await bus.publish(event("receipt", ack="receipt"))
    await bus.cancel("gone")
    assert {alert.event.id for alert in await bus.alerts()} == {"ttl", "ack", "receipt"}
    clock.advance(11)
    assert {alert.event.id for alert in await bus.alerts()} == {"ack", "receipt"}


async def test_alerts_tell_who_has_acknowledged(bus: Any) -> None:
    one = await bus.subscribe("TRUE", consumer="one")
    await bus.subscribe("TRUE", consumer="two")
    await bus.publish(event("a", ack="client"))
    await heard(bus, one)
    [alert] = await bus.alerts()
    assert (alert.event.id, set(alert.acked), set(alert.pending)) == ("a", {"one"}, {"two"})


async def test_audit_trail_tells_the_whole_life(bus: Any, clock: Any) -> None:
    alice = bus.as_user("alice")
    sub = await bus.subscribe("TRUE", consumer="ops")
    await alice.publish(event("a", ack="receipt", ttl=60))
    clock.advance(1)
    [d] = await take(bus, sub)
    clock.advance(1)
    await d.ack()
    await testing.settled(bus)
    trail = await bus.audit("a")
    assert steps(trail) == ["published", "delivered", "acked", "receipt"]
    assert [line.who for line in trail[:3]] == ["alice", "ops", "ops"]
    assert [line.at.second for line in trail[:3]] == [0, 1, 2]


async def test_audit_trail_of_a_cancelled_alert(bus: Any) -> None:
    alice = bus.as_user("alice")
    await alice.publish(event("a", ttl=60))
    await alice.cancel("a")
    trail = await bus.audit("a")
    assert steps(trail) == ["published", "cancelled"]
    assert trail[1].who == "alice"


async def test_audit_trail_of_an_expired_alert(bus: Any, clock: Any) -> None:
    await bus.publish(event("a", ttl=10))
    clock.advance(11)
    await testing.settled(bus)
    assert steps(await bus.audit("a")) == ["published", "expired"]


async def test_audit_trail_of_a_dead_letter_shows_every_attempt(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops", max_deliver=2)
    await bus.publish(event("a", ack="client"))
    for _ in range(2):
        [d] = await take(bus, sub)
        await d.nak()
    await testing.settled(bus)
    assert steps(await bus.audit("a")) == ["published", "delivered", "delivered", "dead"]


@pytest.mark.parametrize("verb", ["cancel", "status", "audit"])
async def test_unknown_event_is_an_error(bus: Any, verb: str) -> None:
    with pytest.raises(tocsin.UnknownEventError):
        await getattr(bus, verb)("nobody-published-this")

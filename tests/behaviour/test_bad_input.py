"""Bad input: a typed error that names the field, nothing stored, nothing lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tocsin
from tests.helpers import event, head, heard, ids, take, testing

Verb = Callable[[Any], Awaitable[Any]]
SYSTEM = event("x", type="tocsin.ack")


def subscribing(consumer: str = "new", **options: Any) -> Verb:
    return lambda bus: bus.subscribe("n > 1", consumer=consumer, **options)


REFUSED: list[tuple[str, type[tocsin.TocsinError], str | None, Verb]] = [
    ("ttl zero", tocsin.EventError, "ttl", lambda bus: bus.publish(event("x", ttl=0))),
    ("ttl below zero", tocsin.EventError, "ttl", lambda bus: bus.publish(event("x", ttl=-1))),
    ("priority 11", tocsin.EventError, "priority", lambda bus: bus.publish(event("x", priority=11))),
    ("priority 0", tocsin.EventError, "priority", lambda bus: bus.publish(event("x", priority=0))),
    ("ack perhaps", tocsin.EventError, "ack", lambda bus: bus.publish(event("x", ack="perhaps"))),
    ("cancel nobody", tocsin.EventError, "cancel", lambda bus: bus.publish(event("x", cancel="nobody"))),
    ("large payload", tocsin.EventError, "data", lambda bus: bus.publish(event("x", data="x" * 2_000_000))),
    ("large binary", tocsin.EventError, "data", lambda bus: bus.publish(event("x", data=b"x" * 2_000_000))),
    ("system type", tocsin.EventError, "type", lambda bus: bus.publish(SYSTEM)),
    ("bad in a batch", tocsin.EventError, "type", lambda bus: bus.publish_many([event("y"), SYSTEM])),
    ("bad filter", tocsin.FilterError, None, lambda bus: bus.subscribe("n > > 3", consumer="new")),
    ("unknown destination", tocsin.FilterError, None, lambda bus: bus.subscribe("TAG:a;GROUP:b", consumer="new")),
    ("unknown bound", tocsin.BoundError, "past", subscribing(past="some")),
    ("bound of zero", tocsin.BoundError, None, subscribing(past=0)),
    ("bound below zero", tocsin.BoundError, None, subscribing(past=-3)),
    ("truth as a bound", tocsin.BoundError, None, subscribing(past=True)),
    ("unknown order", tocsin.ConsumerError, "order", subscribing(order="random")),
    ("no window", tocsin.ConsumerError, "max_in_flight", subscribing(max_in_flight=0)),
    ("no ack_wait", tocsin.ConsumerError, "ack_wait", subscribing(ack_wait=0)),
    ("no attempts", tocsin.ConsumerError, "max_deliver", subscribing(max_deliver=0)),
    ("unfair", tocsin.ConsumerError, "fair", subscribing(fair=1.5)),
    ("unprintable group", tocsin.ConsumerError, "group", subscribing(group="\ud800")),
    ("empty name", tocsin.ConsumerError, "consumer", lambda bus: bus.subscribe("TRUE", consumer="")),
    ("other options", tocsin.ConsumerError, "order", subscribing("ops", order="journal")),
    ("unknown consumer", tocsin.ConsumerError, "consumer", lambda bus: bus.forget("nobody")),
    ("unknown subscriber", tocsin.ConsumerError, "consumer", lambda bus: bus.unsubscribe("nobody", "x")),
    ("unknown subscription", tocsin.ConsumerError, None, lambda bus: bus.unsubscribe("ops", "no-such-id")),
    ("unknown event", tocsin.UnknownEventError, "id", lambda bus: bus.cancel("nothing")),
    ("no right", tocsin.CancelError, None, lambda bus: bus.as_user("mallory").cancel("mine")),
]


@pytest.mark.parametrize(("error", "field", "verb"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_refused_by_name_and_nothing_stored(
    bus: Any, error: type[tocsin.TocsinError], field: str | None, verb: Verb
) -> None:
    sub = await bus.subscribe("type <> 'probe'", consumer="ops")
    await bus.publish(event("mine"))
    before = await head(bus)
    with pytest.raises(error) as refused:
        await verb(bus)
    assert field is None or refused.value.field == field
    assert refused.value.message and len(str(refused.value)) < 2000
    assert await head(bus) == before + 1
    assert [each.name for each in await bus.consumers()] == ["ops"]
    assert await heard(bus, sub) == ["mine"]


async def test_url_of_an_unknown_kind_says_what_is_known() -> None:
    with pytest.raises(tocsin.TocsinError, match="file:"):
        async with tocsin.connect("carrier-pigeon:coop"):
            raise AssertionError("connected")


@pytest.mark.parametrize("verb", ["publish", "subscribe", "status"])
async def test_closed_bus_says_so(url: str, verb: str) -> None:
    async with testing.node(url) as bus:
        pass
    calls = {
        "publish": lambda: bus.publish(event("a")),
        "subscribe": lambda: bus.subscribe("TRUE", consumer="ops"),
        "status": lambda: bus.status("a"),
    }
    with pytest.raises(tocsin.TocsinError, match="closed"):
        await calls[verb]()


async def test_bad_delay_is_refused_and_the_delivery_stays_open(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", consumer="ops")
    await bus.publish(event("a"))
    [d] = await take(bus, sub)
    with pytest.raises(tocsin.DeliveryError) as refused:
        await d.nak(delay=-1)
    assert refused.value.field == "delay"
    await d.ack()
    assert ids(await take(bus, sub)) == []

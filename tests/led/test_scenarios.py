"""Scenarios A1 to A13 of the Global Event Detector (shared/seeds/ged.md, section 8), each test named after one."""

from __future__ import annotations

from typing import Any

import pytest

import tocsin
from tests.led.applications import Application, journal_of, quiet, until
from tocsin import Event, led
from tocsin.errors import RuleError
from tocsin.led import Agent, Occurrence

CONTEXTS = ("recent", "chronicle", "continuous", "cumulative")


@pytest.fixture
def agent(clock: Any) -> Agent:
    return Agent("test", clock=clock)


# -- the local event detector


def test_a1_one_default_agent_and_named_ones_that_do_not_hear_each_other() -> None:
    try:
        assert led.agent() is led.agent()
        left, right = led.agent("left"), led.agent("right")
        assert led.agent("left") is left
        assert left is not right
        heard: list[str] = []
        left.rule(on="e", name="l")(lambda _: heard.append("left"))
        right.rule(on="e", name="r")(lambda _: heard.append("right"))
        led.rule(on="e", name="d")(lambda _: heard.append("default"))
        left.raise_("e")
        led.raise_("e")
        assert heard == ["left", "default"]
    finally:
        for name in ("default", "left", "right"):
            led.drop(name)


def test_a2_begin_and_end_of_a_method(agent: Agent) -> None:
    story: list[Any] = []

    class Stock:
        @agent.event("stock.set_price", when="begin")
        @agent.event("stock.price_set", when="end")
        def set_price(self, price: float, currency: str = "EUR") -> str:
            story.append("body")
            return f"{price} {currency}"

    @agent.rule(on="stock.set_price", when="price > 9 AND currency = 'EUR'")
    def before(happened: Occurrence) -> None:
        story.append(("before", dict(happened.params), happened.instance))

    @agent.rule(on="stock.price_set", when=lambda happened: happened["price"] > 9)
    def after(happened: Occurrence) -> None:
        story.append(("after", happened["result"]))

    ibm = Stock()
    assert ibm.set_price(10) == "10 EUR"
    assert story == [("before", {"price": 10, "currency": "EUR"}, ibm), "body", ("after", "10 EUR")]
    story.clear()
    ibm.set_price(5)
    assert story == ["body"]


def test_a3_a_false_condition_stops_the_action_and_not_the_parents(agent: Agent) -> None:
    story: list[str] = []
    agent.define("pair", "SEQ(e, f)")
    agent.rule(on="e", when="n > 5", name="picky")(lambda _: story.append("picky"))
    agent.rule(on="pair", name="parent")(lambda _: story.append("parent"))
    agent.raise_("e", n=1)
    agent.raise_("f")
    assert story == ["parent"]


def test_a4_off_in_order_of_definition_on_by_priority_deferred_at_commit(agent: Agent) -> None:
    story: list[str] = []
    agent.rule(on="e", name="r1", priority=1)(lambda _: story.append("r1"))
    agent.rule(on="e", name="r2", priority=9)(lambda _: story.append("r2"))
    agent.rule(on="e", name="r3", priority=10, coupling="deferred")(lambda _: story.append("r3"))
    agent.raise_("e")
    assert story == ["r1", "r2"]
    agent.scheduler = True
    agent.raise_("e")
    assert story == ["r1", "r2", "r2", "r1"]
    assert agent.commit() == 2
    assert story[4:] == ["r3", "r3"]


def test_a5_a_rule_about_an_object_and_none_on_a_composite(agent: Agent) -> None:
    class Door:
        @agent.event("door.open")
        def open(self) -> None: ...

    x, y, heard = Door(), Door(), []
    agent.rule(on="door.open", instance=x, name="only_x")(lambda happened: heard.append(happened.instance))
    y.open()
    assert heard == []
    x.open()
    assert heard == [x]
    agent.define("twice", "SEQ(door.open, door.open)")
    for on in ("twice", "SEQ(door.open, door.open)"):
        with pytest.raises(RuleError) as caught:
            agent.rule(on=on, instance=x, name="no")(print)
        assert caught.value.field == "instance"
    with pytest.raises(RuleError):  # nor the other way round
        agent.rule(on="later", instance=x, name="early")(print)
        agent.define("later", "SEQ(door.open, door.open)")


S1 = "a1 a2 b1 b2 a3 b3"
VECTORS = {
    "SEQ(a, b)": {
        "recent": "a2b1 a2b2 a3b3",
        "chronicle": "a1b1 a2b2 a3b3",
        "continuous": "a1b1 a2b1 a3b3",
        "cumulative": "a1a2b1 a3b3",
    },
    "AND(a, b)": {
        "recent": "a2b1 a2b2 b2a3 a3b3",
        "chronicle": "a1b1 a2b2 a3b3",
        "continuous": "a1b1 a2b1 b2a3",
        "cumulative": "a1a2b1 b2a3",
    },
}


def test_a6_every_context_at_once_on_one_node_gives_the_vectors(agent: Agent, clock: Any) -> None:
    """Section 9's stream S1; one definition, four rules in four contexts."""
    found: dict[tuple[str, str], list[str]] = {}
    for number, text in enumerate(VECTORS):
        agent.define(f"d{number}", text)
        for context in CONTEXTS:
            told = found.setdefault((text, context), [])

            @agent.rule(on=f"d{number}", context=context, name=f"r{number}.{context}")
            def note(happened: Occurrence, told: list[str] = told) -> None:
                told.append("".join(part.of["label"] for part in happened.parts if part.of is not None))

    for label in S1.split():
        clock.advance(1)
        agent.raise_(label[0], label=label)
    for (text, context), told in found.items():
        assert " ".join(told) == VECTORS[text][context], (text, context)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a6_nested_composites_propagate_as_a_detector_does(agent: Agent, clock: Any, context: str) -> None:
    """AND(e1, SEQ(e2, e3)): the same as a plain detector finds in the same stream."""
    ids: list[list[Any]] = []
    agent.rule(on="AND(e1, SEQ(e2, e3))", context=context, name="r")(
        lambda happened: ids.append([part.of["n"] for part in happened.parts if part.of is not None])
    )
    plain = tocsin.Detector()
    plain.define("d", "AND([type = 'e1'], SEQ([type = 'e2'], [type = 'e3']))", context)
    expected = []
    for n, name in enumerate(["e2", "e1", "e3", "e2", "e2", "e1", "e1", "e3", "e3", "e1", "e2", "e3", "e1"], 1):
        clock.advance(1)
        agent.raise_(name, n=n)
        for event in plain.feed(Event(name, "s", time=f"2026-11-16T08:00:{n:02}Z")):
            expected.append([part["offset"] for part in event.data["parts"]])
    assert expected
    assert ids == expected


# -- global events


async def test_a7_a_rule_on_a_remote_event_runs_once_with_the_producers_parameters(bus: Any, clock: Any) -> None:
    producer, consumer = Application("P", clock), Application("C", clock)
    consumer.note(consumer.remote("price", "P"), when="value > 9")
    await producer.join(bus)
    await consumer.join(bus)
    await quiet(bus, producer, consumer)
    producer.agent.raise_("price", value=10, who=object())
    producer.agent.raise_("price", value=5)
    producer.agent.raise_("price", value=11)
    await consumer.reach(2)
    await quiet(bus, producer, consumer)
    assert [dict(each.params) for each in consumer.heard] == [{"value": 10}, {"value": 11}]
    assert consumer.heard[0].name == "P.price"
    assert consumer.heard[0].event.attributes == {"application": "P", "host": "h"}
    for each in (producer, consumer):
        await each.agent.leave()


async def test_a8_nothing_leaves_a_producer_that_nobody_asked(bus: Any, clock: Any) -> None:
    producer = Application("P", clock)
    await producer.join(bus)
    before = (await bus.publish(Event("mark", "s"))).offset
    for n in range(1000):
        producer.agent.raise_("e", n=n)
    await quiet(bus, producer)
    assert (await bus.publish(Event("mark", "s"))).offset == before + 1
    assert await bus.definitions() == []
    await producer.agent.leave()


async def test_a9_a_request_waits_for_its_producer_and_for_its_event(bus: Any, clock: Any) -> None:
    consumer, producer = Application("C", clock), Application("P", clock)
    consumer.note(consumer.remote("late", "P"))
    await consumer.join(bus)
    await producer.join(bus)
    assert producer.asked == {("late", "recent"): 1}  # and there is no such event yet

    @producer.agent.event("late")
    def work(n: int) -> None: ...

    work(7)
    await consumer.reach(1)
    assert consumer.heard[0]["n"] == 7
    for each in (producer, consumer):
        await each.agent.leave()


async def test_a9_a_composite_of_the_producer_that_is_defined_later(bus: Any, clock: Any) -> None:
    consumer, producer = Application("C", clock), Application("P", clock)
    consumer.note(consumer.remote("both", "P"))
    await consumer.join(bus)
    await producer.join(bus)
    producer.agent.define("both", "AND(a, b)")
    producer.agent.raise_("a", n=1)
    producer.agent.raise_("b", n=2)
    await consumer.reach(1)
    parts = consumer.heard[0].params["parts"]
    assert [part["data"] for part in parts] == [{"n": 1}, {"n": 2}]
    for each in (producer, consumer):
        await each.agent.leave()


async def test_a10_all_parts_global_are_detected_on_the_node(bus: Any, clock: Any) -> None:
    p, q, consumer = Application("P", clock), Application("Q", clock), Application("C", clock)
    consumer.agent.define("pair", f"SEQ({consumer.remote('e', 'P')}, {consumer.remote('f', 'Q')})", context="chronicle")
    consumer.note("pair")
    for each in (p, q, consumer):
        await each.join(bus)
    await quiet(bus, p, q, consumer)
    p.agent.raise_("e", n=1)
    p.agent.raise_("e", n=2)
    await quiet(bus, p, q, consumer)
    q.agent.raise_("f", n=3)
    await consumer.reach(1)
    await quiet(bus, p, q, consumer)
    assert [each.name for each in consumer.heard] == ["pair"]
    assert len(consumer.heard[0].parts) == 2
    assert len(await bus.definitions()) == 1
    assert consumer.agent.stats()["detected"] == {}  # not here
    [info] = [each for each in await bus.consumers() if each.name == "led.C@h"]
    assert info.delivered == 1  # none for e alone
    for each in (consumer, p, q):
        await each.agent.leave()


async def test_a10_one_local_part_and_the_consumers_agent_detects(bus: Any, clock: Any) -> None:
    p, consumer = Application("P", clock), Application("C", clock)
    consumer.agent.define("pair", f"SEQ({consumer.remote('e', 'P')}, g)")
    consumer.note("pair")
    for each in (p, consumer):
        await each.join(bus)
    await quiet(bus, p, consumer)
    p.agent.raise_("e", n=1)
    await until(lambda: consumer.agent.stats()["events"] == 1)
    await consumer.agent.raise_async("g", n=2)
    assert [each["n"] for each in (consumer.heard[0]["P.e"], consumer.heard[0]["g"])] == [1, 2]
    assert await bus.definitions() == []
    assert consumer.agent.stats()["detected"] == {"pair": 1}
    for each in (consumer, p):
        await each.agent.leave()


async def test_a11_two_consumers_of_one_expression_share_all_but_the_delivery(bus: Any, clock: Any) -> None:
    p, q = Application("P", clock), Application("Q", clock)
    consumers = [Application(name, clock) for name in ("C", "D")]
    for each in consumers:  # names of their own, the same expression
        e = each.agent.remote("e", application="P", host="h", as_=f"{each.name}_e")
        f = each.agent.remote("f", application="Q", host="h", as_=f"{each.name}_f")
        each.note(f"SEQ({e}, {f})", context="chronicle")
    for each in (p, *consumers, q):
        await each.join(bus)
    await quiet(bus, p, q, *consumers)
    assert len(await bus.definitions()) == 1
    assert p.asked == {("e", "chronicle"): 1}
    assert q.asked == {("f", "chronicle"): 1}
    p.agent.raise_("e")
    await quiet(bus, p)
    q.agent.raise_("f")
    for each in consumers:
        await each.reach(1)
    assert (await journal_of(bus)).count("led.request") == 2
    await consumers[0].agent.leave()
    await quiet(bus, p, q, consumers[1])
    assert len(await bus.definitions()) == 1  # the other one wants it still
    assert p.asked == {("e", "chronicle"): 1}
    await consumers[1].agent.leave()
    await quiet(bus, p, q)
    assert await bus.definitions() == []
    assert (p.asked, q.asked) == ({}, {})
    for each in (p, q):
        await each.agent.leave()


@pytest.mark.parametrize("who_knows", ["consumer", "producer"])
async def test_a12_an_application_that_has_moved_is_found_under_its_old_name(
    bus: Any, clock: Any, who_knows: str
) -> None:
    moved = {("P", "h"): ("P", "elsewhere")}
    consumer, producer = Application("C", clock), Application("P", clock, host="elsewhere")
    consumer.note(consumer.remote("e", "P"))
    await consumer.join(bus, moved=moved if who_knows == "consumer" else None)
    await producer.join(bus, moved=moved if who_knows == "producer" else None)
    producer.agent.raise_("e", n=1)
    await consumer.reach(1)
    assert consumer.heard[0]["n"] == 1
    for each in (producer, consumer):
        await each.agent.leave()


class Counting:
    """A bus, and how many messages went over it: calls that publish, and deliveries."""

    def __init__(self, bus: Any) -> None:
        self._bus, self.name, self.calls, self.taken = bus, bus.name, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish_many(self, events: Any) -> Any:
        self.calls += 1
        return await self._bus.publish_many(events)

    async def subscribe(self, *given: Any, **options: Any) -> Any:
        inner, outer = await self._bus.subscribe(*given, **options), self

        class Counted:
            id = inner.id
            close = inner.close

            def poll(self) -> Any:
                found = inner.poll()
                outer.taken += found is not None
                return found

            async def next(self) -> Any:
                found = await inner.next()
                outer.taken += 1
                return found

        return Counted()


@pytest.mark.parametrize("y", [2, 3])
@pytest.mark.parametrize("x", [1, 2, 5])
async def test_a13_a_round_of_requests_and_a_detection_cost_two_messages_each(
    bus: Any, clock: Any, x: int, y: int
) -> None:
    counting = Counting(bus)
    producers = [Application(f"P{n}", clock) for n in range(y)]
    consumers = [Application(f"C{n}", clock) for n in range(x)]
    for each in producers:
        await each.join(counting)
    for each in consumers:
        parts = [each.remote("e", producer.name) for producer in producers]
        each.note(f"SEQ({', '.join(parts)})")
        await each.join(counting)
    everybody = (*producers, *consumers)
    await quiet(bus, *everybody)
    for each in producers:
        each.agent.raise_("e")
        await quiet(bus, each)
    for each in consumers:
        await each.reach(1)
    assert counting.calls + counting.taken <= 2 * (x + y)
    assert sum(len(each.heard) for each in consumers) == x
    for each in everybody:
        await each.agent.leave()

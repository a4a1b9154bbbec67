"""Agents that have joined a node: what is asked for, withdrawn, kept and shared."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import tocsin
from tests.led.applications import Application, journal_of, quiet, until
from tocsin import DefinitionError, Event, JournalError, OverloadError, testing
from tocsin.errors import RuleError
from tocsin.led import Agent


async def test_withdrawing_stops_the_producer(bus: Any, clock: Any) -> None:
    producer, consumer = Application("P", clock), Application("C", clock)
    rule = consumer.note(consumer.remote("e", "P"))
    await producer.join(bus)
    await consumer.join(bus)
    await quiet(bus, producer, consumer)
    producer.agent.raise_("e", n=1)
    await consumer.reach(1)
    consumer.agent.remove(rule)
    await quiet(bus, consumer, producer)
    assert producer.asked == {}
    producer.agent.raise_("e", n=2)
    await quiet(bus, producer)
    assert (await journal_of(bus)).count("e") == 1
    assert await bus.alerts() == []
    consumer.note("P.e")  # and again
    await quiet(bus, consumer, producer)
    producer.agent.raise_("e", n=3)
    await consumer.reach(2)
    assert [each["n"] for each in consumer.heard] == [1, 3]
    for each in (consumer, producer):
        await each.agent.leave()
    assert await bus.consumers() == []
    assert await bus.alerts() == []


async def test_contexts_are_asked_for_apart_and_an_event_is_published_once(bus: Any, clock: Any) -> None:
    producer, consumer = Application("P", clock), Application("C", clock)
    e = consumer.remote("e", "P")
    consumer.agent.define("pair", f"SEQ({e}, local)")
    consumer.note("pair")
    consumer.note("pair", context="chronicle")
    await producer.join(bus)
    await consumer.join(bus)
    await quiet(bus, producer, consumer)
    assert producer.asked == {("e", "recent"): 1, ("e", "chronicle"): 1}
    producer.agent.raise_("e")
    await until(lambda: consumer.agent.stats()["events"] == 1)
    assert (await journal_of(bus)).count("e") == 1
    consumer.agent.raise_("local")
    assert [each.context for each in consumer.heard] == ["recent", "chronicle"]
    for each in (consumer, producer):
        await each.agent.leave()


async def test_what_happens_while_a_consumer_is_away_waits_for_it(bus: Any, clock: Any) -> None:
    producer = Application("P", clock)
    await producer.join(bus)
    first = Application("C", clock)
    first.note(first.remote("e", "P"))
    await first.join(bus)
    await quiet(bus, first, producer)
    await first.agent.leave(keep=True)
    for n in range(3):
        producer.agent.raise_("e", n=n)
    await quiet(bus, producer)
    again = Application("C", clock)
    again.note(again.remote("e", "P"))
    again.note(again.remote("f", "P"))  # it wants more than before
    await again.join(bus)
    await again.reach(3)
    assert [each["n"] for each in again.heard] == [0, 1, 2]
    assert producer.asked == {("e", "recent"): 1, ("f", "recent"): 1}
    for each in (again, producer):
        await each.agent.leave()


async def test_an_application_that_changed_leaves_nothing_of_its_earlier_life(bus: Any, clock: Any) -> None:
    for operator in ("SEQ", "AND"):
        consumer = Application("C", clock)
        parts = [consumer.remote(event, "P") for event in (("e", "f") if operator == "SEQ" else ("f", "g"))]
        consumer.note(f"{operator}({', '.join(parts)})")
        await consumer.join(bus)
        [definition] = await bus.definitions()
        assert definition.text.startswith(operator)
        await consumer.agent.leave(keep=True)
    producer = Application("P", clock)
    await producer.join(bus)
    assert producer.asked == {("f", "recent"): 1, ("g", "recent"): 1}
    await producer.agent.leave()


async def test_what_a_producer_is_asked_for_survives_its_restart(bus: Any, clock: Any) -> None:
    consumer, producer = Application("C", clock), Application("P", clock)
    consumer.note(consumer.remote("e", "P"))
    await consumer.join(bus)
    for n in range(2):
        producer = Application("P", clock)
        await producer.join(bus)
        assert producer.asked == {("e", "recent"): 1}
        producer.agent.raise_("e", n=n)
        await producer.agent.leave()
    await consumer.reach(2)
    await consumer.agent.leave()


async def test_requests_and_waiting_events_survive_the_node(file_url: str, clock: Any) -> None:
    async with testing.node(file_url, clock) as bus:
        consumer, producer = Application("C", clock), Application("P", clock)
        consumer.agent.define("pair", f"SEQ({consumer.remote('e', 'P')}, {consumer.remote('f', 'P')})")
        consumer.note("pair")
        await consumer.join(bus)
        await producer.join(bus)
        producer.agent.raise_("e")
        await producer.agent.leave()
        await testing.crash(bus)
    async with testing.node(file_url, clock) as bus:
        again, producer = Application("C", clock), Application("P", clock)
        again.agent.define("pair", f"SEQ({again.remote('e', 'P')}, {again.remote('f', 'P')})")
        again.note("pair")
        await producer.join(bus)
        producer.agent.raise_("f")
        await again.join(bus)
        await again.reach(1)  # its first half was before the crash
        for each in (again, producer):
            await each.agent.leave()
        assert await bus.alerts() == []


async def test_names_do_not_run_together(bus: Any, clock: Any) -> None:
    """Fault G16: (ab, c) is not (a, bc)."""
    producers = [Application("ab", clock, "c"), Application("a", clock, "bc"), Application("a/b", clock, "c@d e")]
    consumer = Application("C", clock)
    for each in producers:
        name = consumer.agent.remote("e", application=each.name, host=each.host, as_=f"e{producers.index(each)}")
        consumer.note(name)
        await each.join(bus)
    await consumer.join(bus)
    await quiet(bus, consumer, *producers)
    for number, each in enumerate(producers):
        each.agent.raise_("e", n=number)
        await consumer.reach(number + 1)
    assert [(each.name, each["n"]) for each in consumer.heard] == [("e0", 0), ("e1", 1), ("e2", 2)]
    for each in (*producers, consumer):
        await each.agent.leave()


async def test_composites_of_node_composites_stay_on_the_node_and_mixed_ones_do_not(bus: Any, clock: Any) -> None:
    producer, consumer = Application("P", clock), Application("C", clock)
    names = [consumer.remote(event, "P") for event in ("e", "f", "g")]
    consumer.agent.define("pair", f"SEQ({names[0]}, {names[1]})")
    consumer.agent.define("triple", f"SEQ(pair, {names[2]})")
    consumer.agent.define("mixed", "SEQ(pair, local)")
    consumer.note("triple")
    consumer.note("mixed")
    await producer.join(bus)
    await consumer.join(bus)
    await quiet(bus, producer, consumer)
    assert len(await bus.definitions()) == 2
    for event in ("e", "f"):
        producer.agent.raise_(event)
    await quiet(bus, producer)
    await until(lambda: consumer.agent.stats()["events"] == 1)  # the pair, and neither e nor f
    await consumer.agent.raise_async("local")
    producer.agent.raise_("g")
    await consumer.reach(2)
    assert [each.name for each in consumer.heard] == ["mixed", "triple"]
    assert len(consumer.heard[1].parts) == 3
    for each in (consumer, producer):
        await each.agent.leave()
    assert await bus.definitions() == []


async def test_a_composite_of_the_producer_made_of_others_events(bus: Any, clock: Any) -> None:
    """Q's composite has a part of P; C wants it of Q, and so Q wants it of P."""
    p, q, c = Application("P", clock), Application("Q", clock), Application("C", clock)
    q.agent.define("both", f"SEQ({q.remote('e', 'P')}, mine)")
    c.note(c.remote("both", "Q"))
    for each in (p, q):
        await each.join(bus)
    assert p.asked == {}
    await c.join(bus)
    await quiet(bus, c, q, p)
    assert p.asked == {("e", "recent"): 1}
    p.agent.raise_("e", n=1)
    await until(lambda: q.agent.stats()["events"] == 1)
    q.agent.raise_("mine", n=2)
    await c.reach(1)
    await c.agent.leave()
    await quiet(bus, q, p)
    assert (q.asked, p.asked) == ({}, {})
    for each in (p, q):
        await each.agent.leave()


async def test_producers_may_cause_events_in_any_thread(bus: Any, clock: Any) -> None:
    producer, consumer = Application("P", clock), Application("C", clock)
    consumer.note(consumer.remote("e", "P"))
    await producer.join(bus)
    await consumer.join(bus)
    await quiet(bus, producer, consumer)

    def work(who: int) -> None:
        for n in range(200):
            producer.agent.raise_("e", who=who, n=n)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    await consumer.reach(800)
    for thread in threads:
        thread.join()
    for who in range(4):  # in order, as far as there is one
        assert [each["n"] for each in consumer.heard if each["who"] == who] == list(range(200))
    for each in (consumer, producer):
        await each.agent.leave()


async def test_who_causes_too_much_waits_for_the_node(bus: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.led.outbox._MOST", 10)
    producer, consumer = Application("P", clock), Application("C", clock)
    consumer.note(consumer.remote("e", "P"))
    await producer.join(bus)
    await consumer.join(bus)
    await quiet(bus, producer, consumer)
    assert producer.agent._link is not None
    waiting, most = producer.agent._link.outbox._events, [0]

    def work() -> None:
        for n in range(500):
            producer.agent.raise_("e", n=n)
            most[0] = max(most[0], len(waiting))

    await asyncio.to_thread(work)
    assert most[0] <= 11
    for n in range(500):
        await producer.agent.raise_async("e", n=n)
        assert len(waiting) <= 11
    await consumer.reach(1000)
    for each in (consumer, producer):
        await each.agent.leave()


async def test_plain_functions_do_not_hold_up_the_node(bus: Any, clock: Any) -> None:
    producer, consumer, go = Application("P", clock), Application("C", clock), threading.Event()

    @consumer.agent.rule(on=consumer.remote("e", "P"))
    def waits(happened: Any) -> None:
        assert go.wait(20)
        consumer.heard.append(happened)

    await producer.join(bus)
    await consumer.join(bus)
    await quiet(bus, producer, consumer)
    producer.agent.raise_("e")
    await producer.agent.flush()
    await bus.publish(Event("the node is alive", "s"))
    go.set()
    await until(lambda: len(consumer.heard) == 1)
    for each in (consumer, producer):
        await each.agent.leave()


async def test_an_event_the_node_refuses_does_not_stop_the_others(
    bus: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    producer, consumer = Application("P", clock), Application("C", clock)
    consumer.note(consumer.remote("e", "P"))
    await producer.join(bus)
    await consumer.join(bus)
    await quiet(bus, producer, consumer)
    for value in (1, float("nan"), "x" * 2_000_000, 2):
        producer.agent.raise_("e", value=value)
    await consumer.reach(2)
    assert [each["value"] for each in consumer.heard] == [1, 2]
    assert caplog.text.count("cannot be published") == 2
    for each in (consumer, producer):
        await each.agent.leave()


async def test_a_composite_the_node_cannot_define_does_not_stop_the_others(bus: Any, clock: Any) -> None:
    producer, consumer = Application("P", clock), Application("C", clock)
    e, f = consumer.remote("e", "P"), consumer.remote("f", "P")
    consumer.note(e)
    await producer.join(bus)
    await consumer.join(bus)
    consumer.agent.define("keyed", f"SEQ({e}, {f}) BY machine")
    consumer.agent.define("wrong", "SEQ(keyed, keyed) BY other")  # a node goes only by what its parts go by
    consumer.note("wrong")
    with pytest.raises(DefinitionError):
        await consumer.agent.flush()
    consumer.agent.remove("note1")
    await consumer.agent.flush()
    producer.agent.raise_("e")
    await consumer.reach(1)
    for each in (consumer, producer):
        await each.agent.leave()


async def test_what_was_restored_is_not_fed_again(bus: Any, clock: Any) -> None:
    producer = Application("P", clock)
    await producer.join(bus)
    first, second = Application("C", clock), Application("C", clock)
    for each in (first, second):
        each.note(f"SEQ({each.remote('e', 'P')}, {each.remote('e', 'P')}, local)")
    await first.join(bus)
    await quiet(bus, producer, first)
    producer.agent.raise_("e")
    await until(lambda: first.agent.stats()["events"] == 1)
    await quiet(bus, first)
    stored = first.agent.snapshot()
    [info] = [each for each in await bus.consumers() if each.name == "led.C@h"]
    await first.agent.leave(keep=True)
    # as if it had died between hearing and acknowledging
    await bus.forget("led.C@h")
    await bus.subscribe(info.subscriptions[0][1], "led.C@h", past=tocsin.retained(), order="journal")
    second.agent.restore(stored)
    await second.join(bus)
    await quiet(bus, second)
    assert second.agent.stats()["events"] == 1
    for each in (second, producer):
        await each.agent.leave()


async def test_joining_and_leaving(bus: Any, clock: Any) -> None:
    agent = Agent("once", clock=clock)
    await agent.leave()
    await agent.flush()
    await agent.join(bus, application="A", host="h")
    with pytest.raises(RuleError, match="joined a node already"):
        await agent.join(bus, application="B", host="h")
    await agent.leave()
    for wrong in ({"application": ""}, {"application": "A", "host": "\n"}, {"application": "A", "moved": {"x": "y"}}):
        with pytest.raises(RuleError):
            await agent.join(bus, **wrong)  # type: ignore[arg-type]
    await agent.join(bus, application="A")  # on this machine
    await agent.leave()


async def test_remote_names_are_taken_once(clock: Any) -> None:
    agent = Agent("names", clock=clock)
    assert agent.remote("e", application="P", host="h") == "e"
    assert agent.remote("e", application="P", host="h") == "e"
    with pytest.raises(RuleError, match="another event e"):
        agent.remote("e", application="Q", host="h")
    agent.define("pair", "SEQ(x, y)")
    for taken in ("pair", "x"):
        with pytest.raises(RuleError, match="another event"):
            agent.remote("e", application="Q", host="h", as_=taken)
    with pytest.raises(RuleError, match="is not raised here"):
        agent.raise_("e")
    with pytest.raises(RuleError, match="another event e"):
        agent.declare("e", when="begin")


class Busy:
    """A bus whose node takes nothing for a while."""

    def __init__(self, bus: Any, times: int) -> None:
        self._bus, self.name, self.times = bus, bus.name, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish_many(self, events: Any) -> Any:
        if self.times:
            self.times -= 1
            raise OverloadError("the node has no room")
        return await self._bus.publish_many(events)


async def test_what_the_node_cannot_take_is_sent_later(
    bus: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tocsin.led.outbox._PAUSE", 0.01)
    producer, consumer, busy = Application("P", clock), Application("C", clock), Busy(bus, 3)
    consumer.note(consumer.remote("e", "P"))
    await consumer.join(bus)
    await producer.join(busy)
    for n in range(3):
        producer.agent.raise_("e", n=n)
    with pytest.raises(OverloadError):
        await producer.agent.flush()
    await consumer.reach(3)
    await producer.agent.flush()
    assert [each["n"] for each in consumer.heard] == [0, 1, 2]
    assert "cannot publish" in caplog.text
    for each in (consumer, producer):
        await each.agent.leave()


async def test_what_is_wanted_is_said_later_if_the_node_cannot_hear_it(
    bus: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.led.link._PAUSE", 0.01)
    producer, consumer, busy = Application("P", clock), Application("C", clock), Busy(bus, 0)
    await producer.join(bus)
    await consumer.join(busy)
    busy.times = 2
    consumer.note(consumer.remote("e", "P"))
    with pytest.raises(OverloadError):
        await consumer.agent.flush()
    await until(lambda: producer.asked == {("e", "recent"): 1})
    producer.agent.raise_("e")
    await consumer.reach(1)
    for each in (consumer, producer):
        await each.agent.leave()


async def test_a_node_may_go_before_its_agents(clock: Any) -> None:
    application = Application("A", clock)
    application.note(application.remote("e", "P"))
    async with testing.node(clock=clock) as bus:
        await application.join(bus)
    with pytest.raises(JournalError):
        await application.agent.leave()
    async with testing.node(clock=clock) as bus:  # it has left all the same
        await application.join(bus)
        await application.agent.leave()


async def test_a_node_that_is_gone_is_said(clock: Any) -> None:
    agent = Agent("late", clock=clock)
    agent.rule(on=agent.remote("e", application="P", host="h"), name="r")(print)
    async with testing.node(clock=clock) as bus:
        pass
    with pytest.raises(JournalError):
        await agent.join(bus, application="A", host="h")
    async with testing.node(clock=clock) as bus:  # another one is fine
        await agent.join(bus, application="A", host="h")
        await agent.leave()


async def test_who_leaves_with_an_error_has_withdrawn_all_the_same(bus: Any, clock: Any, monkeypatch: Any) -> None:
    consumer = Application("C", clock)
    consumer.note(consumer.remote("e", "P"))
    await consumer.join(bus)

    async def refused() -> None:
        raise DefinitionError("the node does not take it")

    monkeypatch.setattr(consumer.agent._link, "flush", refused)
    with pytest.raises(DefinitionError):
        await consumer.agent.leave()
    assert (await bus.alerts(), await bus.consumers()) == ([], [])


async def test_a_composite_somebody_else_has_made_up_stops_nothing(bus: Any, clock: Any) -> None:
    consumer = Application("C", clock)
    consumer.agent.define("both", f"AND({consumer.remote('e', 'P')}, {consumer.remote('f', 'P')})")
    consumer.note("both")
    await consumer.join(bus)
    [made] = await bus.definitions()
    await bus.publish(Event(made.name, "somebody", data={"parts": [5]}))
    await bus.publish(Event(made.name, "somebody", data={"parts": None}))
    await consumer.reach(2)
    assert [each.parts for each in consumer.heard] == [(), ()]
    await consumer.agent.leave()

"""Requests under change: whatever applications come, go and change their minds, producers know what is wanted."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.led.applications import Application, quiet, until
from tocsin import testing

EVENTS = ("e", "f", "g")
PRODUCERS = ("P", "Q")


class Consumer(Application):
    """One that changes its mind."""

    def __init__(self, name: str, clock: Any) -> None:
        super().__init__(name, clock)
        self.names = [self.remote(event, producer) for producer in PRODUCERS for event in EVENTS]
        self.wants: dict[str, set[str]] = {}

    def change(self, chance: random.Random) -> None:
        if self.wants and chance.random() < 0.5:
            rule = chance.choice(sorted(self.wants))
            self.agent.remove(rule)
            del self.wants[rule]
            return
        parts = chance.sample(self.names, 2)
        text = chance.choice([parts[0], f"SEQ({parts[0]}, {parts[1]})", f"AND({parts[0]}, mine)"])
        context = chance.choice(["recent", "chronicle"])
        rule = f"r{chance.random()}".replace(".", "_")
        self.agent.rule(on=text, context=context, name=rule)(print)
        self.wants[rule] = {part for part in parts if part in text}

    @property
    def wanted(self) -> set[str]:
        return {part for parts in self.wants.values() for part in parts}


@pytest.mark.parametrize("seed", range(6))
async def test_producers_are_asked_for_what_is_wanted_and_nothing_else(seed: int, clock: Any) -> None:
    chance = random.Random(seed)
    async with testing.node(clock=clock) as bus:
        producers = {name: Application(name, clock) for name in PRODUCERS}
        consumers = [Consumer(name, clock) for name in ("A", "B", "C")]
        for each in producers.values():
            await each.join(bus)
        joined: set[Consumer] = set()
        for _ in range(40):
            who = chance.choice(consumers)
            step = chance.random()
            if step < 0.6:
                who.change(chance)
            elif who in joined:
                await who.agent.leave()
                joined.discard(who)
            else:
                await who.join(bus)
                joined.add(who)
            await quiet(bus, *joined, *producers.values())
            wanted = {part for each in joined for part in each.wanted}
            asked = {f"{name}.{event}" for name, each in producers.items() for event, _ in each.asked}
            assert asked == wanted
        for each in (*joined, *producers.values()):
            await each.agent.leave()
        assert await bus.alerts() == []
        assert await bus.consumers() == []
        assert await bus.definitions() == []


@pytest.mark.parametrize("kind", ["{0}", "SEQ({0}, {1})", "SEQ({0}, mine)"])
async def test_one_leaves_at_the_moment_another_comes(bus: Any, clock: Any, kind: str) -> None:
    producer = Application("P", clock)
    await producer.join(bus)
    chance = random.Random(7)
    there = Consumer("A", clock)
    there.note(kind.format(*there.names))
    await there.join(bus)
    for number in range(15):
        comes = Consumer(f"B{number}", clock)
        comes.note(kind.format(*comes.names))

        async def late(work: Any, steps: int) -> None:
            for _ in range(steps):
                await asyncio.sleep(0)
            await work

        await asyncio.gather(late(there.agent.leave(), chance.randrange(8)), late(comes.join(bus), chance.randrange(8)))
        await quiet(bus, comes, producer)
        assert {event for event, _ in producer.asked} >= {"e"}
        assert len(await bus.definitions()) == (kind == "SEQ({0}, {1})")
        there = comes
    producer.agent.raise_("e")
    producer.agent.raise_("f")
    if kind == "SEQ({0}, mine)":
        await until(lambda: there.agent.stats()["events"] == 1)
        await there.agent.raise_async("mine")
    await there.reach(1)
    for each in (there, producer):
        await each.agent.leave()
    assert await bus.alerts() == []

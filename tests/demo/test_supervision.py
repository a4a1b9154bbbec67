"""DS3's supervision, as the demo has it: definitions on a node whose time only the test moves, and their overview."""

from __future__ import annotations

from typing import Any

from tests.helpers import take
from tocsin.demo.definitions import define
from tocsin.demo.supervision import FILTER, LIMIT, Change, Supervision
from tocsin.model import Event


class Machines:
    """Machines, an overview, and a clock."""

    def __init__(self, bus: Any, clock: Any, sub: Any) -> None:
        self.bus, self.clock, self.sub = bus, clock, sub
        self.overview = Supervision()

    async def say(self, type: str, *machines: str) -> None:
        for machine in machines:
            await self.bus.publish(Event(f"machine.{type}", f"line/{machine}", data={"machine": machine, "value": 9.0}))

    async def look(self) -> list[Change]:
        changes = [self.overview.hear(delivery.event) for delivery in await take(self.bus, self.sub)]
        return [change for change in changes if change is not None]


async def begin(bus: Any, clock: Any) -> Machines:
    await define(bus, spark=False)
    return Machines(bus, clock, await bus.subscribe(FILTER, consumer="overview", order="journal"))


async def test_silence_is_a_possible_stop_and_the_next_value_ends_it(bus: Any, clock: Any) -> None:
    plant = await begin(bus, clock)
    await plant.say("start", "m1", "m2")
    await plant.say("value", "m1", "m2")
    assert await plant.look() == [Change("m1", None, "normal"), Change("m2", None, "normal")]
    for _ in range(LIMIT):
        clock.advance(0.9)
        await plant.say("value", "m1")
    assert await plant.look() == []  # not yet
    clock.advance(1)
    await plant.say("value", "m1")
    assert await plant.look() == [Change("m2", "normal", "possible stop")]
    await plant.say("value", "m2")
    assert await plant.look() == [Change("m2", "possible stop", "normal")]
    assert plant.overview.states == {"m1": "normal", "m2": "normal"}


async def test_the_end_is_no_stop_however_long_it_lasts(bus: Any, clock: Any) -> None:
    plant = await begin(bus, clock)
    await plant.say("start", "m1")
    await plant.say("value", "m1")
    await plant.say("end", "m1")
    clock.advance(10 * LIMIT)
    await plant.say("value", "m2")
    assert await plant.look() == [
        Change("m1", None, "normal"),
        Change("m1", "normal", "inactive"),
        Change("m2", None, "normal"),
    ]
    await plant.say("start", "m1")
    assert await plant.look() == [Change("m1", "inactive", "normal")]
    clock.advance(LIMIT + 1)  # and one that starts and never sends a value has stopped, too
    await plant.say("value", "m2")
    assert Change("m1", "normal", "possible stop") in await plant.look()


async def test_a_value_that_came_while_the_stop_was_being_told_counts(bus: Any, clock: Any) -> None:
    """The value that ends a wait too late has a lower offset than the stop it comes after."""
    plant = await begin(bus, clock)
    await plant.say("value", "m1")
    clock.advance(LIMIT + 1)
    await plant.say("value", "m1")  # nothing else has moved the stream
    told = await take(bus, plant.sub)
    assert [delivery.event.type for delivery in told] == ["machine.value", "machine.value", "possible_stop"]
    assert [plant.overview.hear(delivery.event) for delivery in told] == [Change("m1", None, "normal"), None, None]


async def test_back_to_normal_is_told_once_and_not_after_an_end(bus: Any, clock: Any) -> None:
    plant = await begin(bus, clock)
    back = await bus.subscribe("type = 'back_to_normal'", consumer="foreman")
    await plant.say("value", "m1", "m2")
    clock.advance(LIMIT + 1)
    await plant.say("end", "m2")
    await plant.say("value", "m1", "m1", "m2")
    found = await take(bus, back)
    assert [delivery.event.data["key"] for delivery in found] == [{"machine": "m1"}]

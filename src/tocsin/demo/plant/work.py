"""The plant at work: every second each machine and each hall takes a step, and what they say is published.

What they say is spread over the second, as it would come from a real plant.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from tocsin.demo.plant.machines import machines
from tocsin.demo.plant.sensors import halls
from tocsin.demo.stage import Stage
from tocsin.model import Event

__all__ = ["work"]

_SECOND: Final = 1.0


async def work(stage: Stage, seed: int) -> None:
    """Publish until it is cancelled."""
    lines, network, chance = machines(seed), halls(seed), random.Random(seed)
    loop = asyncio.get_running_loop()
    due = loop.time()
    bus = stage.bus.as_user("plant")
    for kind in ("machine.value", "sensor.reading"):  # others see what comes from here: Peers on the page
        await bus.advertise(f"type = '{kind}'")
    while True:
        said: list[Event] = [event for machine in lines if (event := machine.step()) is not None]
        said += [event for hall in network for event in hall.step()]
        chance.shuffle(said)
        for event in said:
            await bus.publish(event)
            due += _SECOND / len(said)
            await asyncio.sleep(max(0.0, due - loop.time()))
        due = max(due, loop.time() - _SECOND)  # a machine that was stopped for a while does not catch up

"""Door, badge, motion: an alarm for what did not happen, and the answer to "why this alarm?".

A door was opened, nobody showed a badge, then something moved, within two minutes, at the same door. No sensor knows
all of that; the definition below does. Run it: python examples/door_badge_motion.py
"""

import asyncio
import tempfile

import tocsin
from tocsin import Event, testing

BREAK_IN = """
    NOT([type = 'door.open'] AS opened,
        [type = 'badge'] AS badge,
        [type = 'motion'] AS motion) WITHIN 2 MINUTES BY door
"""
NIGHT = [  # seconds to wait before it, what, at which door
    (0, "door.open", "north"),
    (5, "door.open", "south"),
    (4, "badge", "south"),  # south is in order: a badge between the two
    (20, "motion", "south"),
    (15, "motion", "north"),  # north is not
    (60, "door.open", "west"),
    (121, "motion", "west"),  # too late: two minutes have passed
]


async def main(directory: str) -> None:
    """A night in a house with three doors, played at once."""
    clock = testing.ManualClock()
    async with tocsin.connect(f"file:{directory}/house.db", clock=clock) as bus:
        # chronicle: each opened door has its own answer, the oldest first, and is used up by it.
        await bus.define("break_in", BREAK_IN, context="chronicle")
        guard = await bus.subscribe("type = 'break_in'", consumer="guard")

        for seconds, type, door in NIGHT:
            clock.advance(seconds)
            await bus.publish(Event(type, f"house/{door}", data={"door": door}))
            print(f"{type} at the {door} door")

        await testing.settled(bus)
        while (delivery := guard.poll()) is not None:
            alarm = delivery.event
            print(f"\nALARM: {alarm.type} at the {alarm.data['key']['door']} door. Why?\n")
            print(await bus.explain(alarm.id))
            await delivery.ack()

        [definition] = await bus.definitions()
        print(f"\n{definition.name} was detected {definition.detected} time, in a night of {len(NIGHT)} events.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(directory))

"""Supervision of a plant: machines that fall silent, come back, or end; and drift that nobody corrects.

Every machine sends a value each ten seconds. Silence is an event too, if one says after how long. This is the case that
DS3 was built for: "possible stop" when values stay out, normal again with the next one, and "inactive", which is no
reason for alarm, when measuring was ended. Run it: python examples/plant_supervision.py
"""

import asyncio
import tempfile

import tocsin
from tocsin import Event, testing

DEFINITIONS = {
    # 20 seconds after the newest of these, machine by machine, unless that was the end of measuring.
    "possible_stop": """PLUS([type IN ('machine.value', 'machine.end')] AS last, 20 SECONDS)
                        BY machine WHERE last.type = 'machine.value'""",
    # Made of the definition above: it stands for its occurrences.
    "back_to_normal": "SEQ(possible_stop AS stop, [type = 'machine.value'] AS value) BY machine",
    # Too high, and still too high within a minute, and no operator has done anything in between.
    "drifting": """NOT([type = 'machine.value' AND value > 9.1] AS first,
                       [type = 'operator.adjusted'] AS adjusted,
                       [type = 'machine.value' AND value > 9.1] AS again) WITHIN 1 MINUTE BY machine""",
}
STATES = {
    "machine.start": "normal",
    "possible_stop": "possible stop",
    "back_to_normal": "normal",
    "machine.end": "inactive",
}


async def main(directory: str) -> None:
    """Ninety seconds of a plant, played at once."""
    clock = testing.ManualClock()  # turned by hand; without it, this runs for ninety seconds and shows the same
    async with tocsin.connect(f"file:{directory}/plant.db", clock=clock) as bus:
        for name, text in DEFINITIONS.items():
            await bus.define(name, text, context="recent" if name == "possible_stop" else "chronicle")
        board = await bus.subscribe("type <> 'machine.value'", consumer="board", order="journal")
        machines: dict[str, str] = {}

        async def tell(type: str, machine: str, value: float | None = None) -> None:
            await bus.publish(Event(type, f"line/{machine}", data={"machine": machine, "value": value}))

        async def show(second: int, remark: str) -> None:
            """Let the node finish, then print what the board has heard of."""
            await testing.settled(bus)
            print(f"{second:>3} s  {remark}")
            while (delivery := board.poll()) is not None:
                event = delivery.event
                machine = event.data["key"]["machine"] if "key" in event.data else event.data["machine"]
                if event.type in STATES:
                    machines[machine] = STATES[event.type]
                print(f"         {event.type} {machine}")
                await delivery.ack()
            print("         " + ", ".join(f"{name}: {state}" for name, state in sorted(machines.items())))

        for machine in ("m1", "m2", "m3"):
            await tell("machine.start", machine)
            await tell("machine.value", machine, 9.0)
        await show(0, "Three machines start.")

        clock.advance(10)
        await tell("machine.value", "m1", 9.2)  # too high
        await tell("machine.end", "m3")
        await show(10, "m1 is too high; m3 ends its work; m2 says nothing.")

        clock.advance(11)
        await tell("machine.value", "m1", 9.3)  # too high again, and nobody has touched it
        await show(21, "m1 is still too high. m2 has been silent for 21 s, m3 too, but m3 had said so.")

        clock.advance(9)
        await tell("operator.adjusted", "m1")
        await tell("machine.value", "m1", 9.0)
        await tell("machine.value", "m2", 9.0)
        await show(30, "An operator adjusts m1; m2 is back.")

        clock.advance(60)
        await show(90, "Nothing for a minute: both that should be working are missed.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(directory))

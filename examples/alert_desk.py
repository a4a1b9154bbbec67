"""An alert desk: urgent first, stale never, and at any moment it is known who has answered.

A desk publishes alerts; the halls of a plant hear of those that concern them. Run it: python examples/alert_desk.py
"""

import asyncio
import tempfile

import tocsin
from tocsin import Event, testing


async def main(directory: str) -> None:
    """One evening at the desk."""
    clock = testing.ManualClock()  # turned by hand below, so that nobody waits for a time to live
    async with tocsin.connect(f"file:{directory}/alerts.db", name="desk", clock=clock) as desk:
        # Two consumers with names, each with a filter of its own. A name keeps its place, also over a restart.
        hall_1 = await desk.subscribe("hall = 1 OR priority = 10", consumer="hall-1")
        hall_2 = await desk.subscribe("hall = 2 OR priority = 10", consumer="hall-2")

        print("The desk publishes four alerts, the urgent one last.")
        await desk.publish(Event("lamp.broken", "desk", id="lamp", data={"hall": 1}, priority=2, ttl=3600))
        await desk.publish(Event("door.open", "desk", id="door", data={"hall": 1}, priority=6, ttl=60))
        await desk.publish(Event("lift.stuck", "desk", id="lift", data={"hall": 2}, priority=7, ack="client"))
        # ack="client": whoever gets it is asked to answer, and the desk hears who did.
        await desk.publish(Event("fire", "desk", id="fire", data={"hall": 2}, priority=10, ttl=600, ack="client"))

        clock.advance(61)
        print("\nA minute later hall 1 looks. The fire overtook the lamp; the open door is not news any more.")
        while (delivery := hall_1.poll()) is not None:
            print(f"  hall-1 got {delivery.event.type}, priority {delivery.event.priority}")
            await delivery.ack()  # stored when this returns: hall 1 does not get it again

        status = await desk.status("fire")
        print(f"\nThe fire is {status.state}: answered by {status.acked}, not yet by {status.pending}.")

        print("\nThe lift runs again. The desk cancels that alert before hall 2 has looked.")
        await desk.cancel("lift")
        while (delivery := hall_2.poll()) is not None:
            print(f"  hall-2 got {delivery.event.type}")
            await delivery.ack()

        print("\nWhoever asked for answers gets a receipt for each, also after having been away:")
        receipts = desk.receipts()
        for _ in range(2):
            receipt = await receipts.next(timeout=5)
            print(f"  {receipt.id} was acknowledged by {receipt.consumer}")

        print("\nWhat became of them:")
        for id in ("lamp", "door", "lift", "fire"):
            status = await desk.status(id)
            print(f"  {id}: {status.state}, answered by {status.acked}")

        print("\nThe audit trail of the fire:")
        for step in await desk.audit("fire"):
            print(f"  {step.at:%H:%M:%S} {step.step} {step.who}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(directory))

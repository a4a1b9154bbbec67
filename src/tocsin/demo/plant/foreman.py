"""The foreman, a program: raises an alert when a machine may have stopped, and withdraws it when the machine is back.

Who answered the alert comes back to it as a receipt.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.demo.stage import Stage
from tocsin.model import Event

__all__ = ["lead"]

_TTL: Final = 30.0


async def lead(stage: Stage) -> None:
    """Do its work until it is cancelled."""
    bus = stage.bus.as_user("foreman")
    sub = await bus.subscribe("type IN ('possible_stop', 'back_to_normal')", consumer="foreman", order="journal")
    raised: dict[str, str] = {}  # the alert of each machine
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_receipts(stage, raised))
        async for delivery in sub:
            if not delivery.notice:
                machine = str(delivery.event.data["key"]["machine"])
                if delivery.event.type == "possible_stop":
                    alert = Event(
                        "alert.stop",
                        "foreman",
                        data={"machine": machine, "text": f"look after {machine}"},
                        priority=9,
                        ttl=_TTL,
                        ack="client",
                        correlation_id=delivery.event.id,
                    )
                    raised[machine] = (await bus.publish(alert)).id
                    stage.story.tell(
                        f"the foreman raises an alert on {machine} for ana and ben: priority 9, lives for {_TTL:.0f} s",
                        "They asked for priority >= 8, whatever it is about. It is delivered to each of them until "
                        "they answer, it expires, or the foreman withdraws it.",
                        tone="alert",
                        topic="raised",
                    )
                elif (known := raised.pop(machine, None)) is not None:
                    await bus.cancel(known)
                    had = " and ".join((await bus.status(known)).delivered) or "nobody"
                    stage.story.tell(
                        f"the foreman withdraws the alert on {machine}; {had}, who had it, will hear so",
                        "cancel: whoever has not got it yet never will, whoever has is told. Only its publisher may.",
                        topic="cancel",
                    )
            await delivery.ack()


async def _receipts(stage: Stage, raised: dict[str, str]) -> None:
    async for receipt in stage.bus.as_user("foreman").receipts():
        machine = next((machine for machine, id in raised.items() if id == receipt.id), None)
        stage.promises.saw("answered")
        stage.story.tell(
            f"{receipt.consumer} answers the alert{f' on {machine}' if machine else ''}; the foreman has the receipt",
            "Settling an event that asked for it tells its publisher who has dealt with it. It stays on the board of "
            "alerts until it expires or is withdrawn.",
            tone="good",
            topic="answered",
        )

"""Operators: people who hear of what is urgent, think, and answer. Ana is quick; Ben walks round and is slow."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, Final

from tocsin.demo.stage import Stage
from tocsin.errors import DeliveryError

__all__ = ["OPERATORS", "operate"]

OPERATORS: Final = {"ana": (0.8, 1.6), "ben": (5.0, 9.0)}
"""Seconds that each thinks, from and to."""


async def operate(stage: Stage, name: str, seed: int) -> None:
    """Hear of what is urgent, and answer, until it is cancelled."""
    chance = random.Random(f"{seed}/{name}")
    sub = await stage.bus.as_user(name).subscribe("priority >= 8", consumer=name)
    async with asyncio.TaskGroup() as thoughts:
        async for delivery in sub:
            if not delivery.notice:
                thoughts.create_task(_answer(delivery, chance.uniform(*OPERATORS[name])))
            elif delivery.event.type == "tocsin.cancelled":
                stage.promises.saw("cancelled")


async def _answer(delivery: Any, seconds: float) -> None:
    await asyncio.sleep(seconds)
    with contextlib.suppress(DeliveryError):  # it was withdrawn while they thought
        await delivery.ack()

"""The program that `crash` kills: takes work orders, says which (offset, attempt), and settles them or only holds."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from tocsin.client import connect

__all__ = ["CONSUMER", "FILTER"]

CONSUMER: Final = "workshop"
FILTER: Final = "type = 'work.order'"


async def _work(url: str, settles: bool, orders: int) -> None:
    async with connect(url, name=CONSUMER) as bus, await bus.subscribe(FILTER, consumer=CONSUMER) as sub:
        for _ in range(orders):
            delivery = await sub.next()
            print(delivery.offset, delivery.attempt, flush=True)
            if settles:
                await delivery.ack()
        if not settles:
            await asyncio.Event().wait()  # at work, until somebody kills it


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], sys.argv[2] == "settle", int(sys.argv[3])))

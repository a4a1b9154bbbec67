"""Programs that are killed: run as `python -m tests.scenarios.ds3_programs node|caster …`."""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

import tocsin
from tocsin.net import run


async def node(url: str, port: str) -> None:
    """A node on a port; it says its address."""

    def ready(server: Any) -> None:
        print(server.url, flush=True)

    await run(tocsin.connect(url), port=int(port), ready=ready)


async def caster(url: str) -> None:
    """A member that casts, many at a time, until it dies."""
    async with tocsin.connect(url, name="caster") as bus, bus.join("g") as group:
        print("joined", flush=True)
        for block in itertools.count():
            await asyncio.gather(*(group.cast({"n": block * 10 + n, "text": "x" * 1000}) for n in range(10)))


if __name__ == "__main__":
    play, *words = sys.argv[1:]
    asyncio.run({"node": node, "caster": caster}[play](*words))

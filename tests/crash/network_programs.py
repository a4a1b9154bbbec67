"""Programs for `test_network.py`: a server, and a client that publishes, takes and settles until it is killed.

Run as `python -m tests.crash.network_programs server URL PORT` or `… client URL NUMBER`.
"""

from __future__ import annotations

import asyncio
import sys

import tocsin
from tocsin.net import Server, run


def say(*words: object) -> None:
    print(*words, flush=True)


async def server(url: str, port: int) -> None:
    def ready(server: Server) -> None:
        say(server.url)

    await run(tocsin.connect(url), port=port, ready=ready)


async def client(url: str, number: int) -> None:
    """Says `published ID` and `settled ID` when that is answered, `got ID` when it is taken."""
    async with tocsin.connect(url, name="worker") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")

        async def publish() -> None:
            for place in range(1_000_000):
                id = f"{number}-{place}"
                await bus.publish(tocsin.Event("work", "client", id=id))
                say("published", id)

        publishing = asyncio.create_task(publish())
        async for delivery in sub:
            say("got", delivery.event.id)
            await delivery.ack()
            say("settled", delivery.event.id)
        await publishing


if __name__ == "__main__":
    play, url, number = sys.argv[1:]
    asyncio.run({"server": server, "client": client}[play](url, int(number)))

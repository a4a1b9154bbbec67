"""Programs for `test_network.py`: a server, and a client that publishes, takes and settles until it is killed.

Run as `python -m tests.crash.network_programs server URL PORT`, `… client URL NUMBER`, `… member URL NUMBER` or
`… spooler URL NUMBER`.
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


async def member(url: str, number: int) -> None:
    """One of a group that publishes with priorities, and now and then subscribes to the past again. As `client`."""
    async with tocsin.connect(url, name=f"member-{number}") as bus:
        sub = await bus.subscribe("kind = 'work'", consumer=f"member-{number}", group="crew", max_in_flight=8)
        again = await bus.subscribe("TRUE", consumer=f"reader-{number}", past=tocsin.retained(), replay=True)

        async def publish() -> None:
            for place in range(1_000_000):
                id = f"{number}-{place}"
                await bus.publish(tocsin.Event("work", "client", id=id, priority=1 + place % 10, data={"kind": "work"}))
                say("published", id)

        async def read() -> None:
            async for delivery in again:
                await delivery.ack()
                say("read", delivery.event.id)

        others = asyncio.gather(publish(), read())
        async for delivery in sub:
            say("got", delivery.event.id)
            await delivery.ack()
            say("settled", delivery.event.id)
        await others


async def spooler(url: str, number: int) -> None:
    """Publishes one after the other through a spool, for the node at `ADDRESS SPOOL`; says what was answered."""
    address, _, spool = url.partition(" ")
    async with tocsin.connect(address, name="line-7", spool=spool) as bus:
        say("begun", bus.spooled)
        for place in range(1_000_000):
            id = f"{number:03d}-{place:06d}"
            say("trying", id)
            published = await bus.publish(tocsin.Event("work", "line", id=id))
            say("spooled" if published.offset is None else "stored", id)


if __name__ == "__main__":
    play, url, number = sys.argv[1:]
    asyncio.run({"server": server, "client": client, "member": member, "spooler": spooler}[play](url, int(number)))

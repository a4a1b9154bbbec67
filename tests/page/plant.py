"""A plant, as a program: publishes, serves, advertises, consumes, so that every panel has something to show.

python -m tests.page.plant URL RATE      events a second, until it is ended; prints `ready` when all is there
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sys

import tocsin
from tocsin import Event

ALERTS = (
    Event("valve.stuck", "line/3", id="valve", data={"valve": "v3"}, priority=10, ttl=900, ack="client", cancel="any"),
    Event("press.hot", "line/7", id="press", data={"press": "p2"}, priority=8, ttl=600, ack="receipt"),
    Event("shift.note", "office", id="note", data="Filter of line 7", priority=3, ack="client", cancel="any"),
)
DEFINITION = "SEQ([type = 'machine.start'] AS s, [type = 'machine.end'] AS e) WITHIN 1 MINUTE BY machine"


def events(seed: int = 7) -> itertools.chain[Event]:
    """Values of machines, now and then a start and an end; the same again for the same seed."""
    chance = random.Random(seed)

    def one(number: int) -> Event:
        kind = "machine.value" if number % 10 else ("machine.start", "machine.end")[number // 10 % 2]
        data = {"machine": f"m{number // 20 % 7}", "value": round(chance.gauss(7, 1.5), 2)}
        return Event(kind, f"line/{number % 9}", data=data, priority=chance.choice((3, 5, 5, 5, 6, 7)))

    return itertools.chain.from_iterable([one(number)] for number in itertools.count())


async def slow(bus: tocsin.Bus) -> None:
    """A consumer that is behind: takes one event, and thinks."""
    sub = await bus.subscribe("value > 9", consumer="ops", past=tocsin.last(50))
    await sub.next()
    await asyncio.Event().wait()


async def main(url: str, rate: float) -> None:
    """Be the plant."""
    stream = events()
    async with tocsin.connect(url, name="plant") as bus, tocsin.connect(url, name="m7") as m7:
        await bus.define("machine.cycle", DEFINITION, context="chronicle", placement="node", replace=True)
        await bus.advertise("type = 'machine.value'")
        await bus.publish_many(ALERTS)
        await bus.publish_many([next(stream) for _ in range(400)])

        async def parameters(request: object) -> dict[str, float]:
            return {"limit": 9.5}

        async with m7.serve("params/m7", parameters), bus.join("line-7"), asyncio.TaskGroup() as group:
            group.create_task(slow(bus))
            print("ready", flush=True)
            began, sent = asyncio.get_running_loop().time(), 0
            while True:  # twenty times a second, as many as are due by then
                await asyncio.sleep(0.05)
                due = int((asyncio.get_running_loop().time() - began) * rate) - sent
                if due:
                    with contextlib.suppress(tocsin.NetworkError):  # a node that starts again
                        await bus.publish_many([next(stream) for _ in range(min(due, 500))])
                sent += due


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))

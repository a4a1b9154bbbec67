"""The programs of `bench_wire` that speak to a node: the node itself, publishers, consumers, a crowd, idle clients.

Each is a process of its own: `python -m benchmarks.wire_programs publish ws://… 100000 500 1000`. An event begins as a
dict, as an application has it: making an `Event` of it is timed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import pyarrow as pa

import tocsin
from benchmarks.processes import say, wait_for_go
from benchmarks.readings import Readings
from tocsin import Event
from tocsin.filters.index import engine
from tocsin.net import server
from tocsin.net.process import as_process

ANY = "type = 'machine.value'"
Payload = dict[str, Any]


def payloads(count: int, seed: int) -> list[Payload]:
    """What events are about: five fields and 200 bytes."""
    return [event.data for event in Readings(seed).events(count)]


def slice_of(number: int, count: int) -> str:
    """A filter for one of `count` equal shares of events."""
    return f"{ANY} AND value >= {number * 1000 / count} AND value < {(number + 1) * 1000 / count}"


def _event(data: Payload, type: str = "machine.value") -> Event:
    return Event(type, "plant/" + data["site"], data=data)


def spent() -> float:
    """CPU seconds of this process."""
    return time.process_time()


async def serve(path: str) -> None:
    """A node on a port. Arrow looks for pandas when it is first used: half a second, which is not to be timed."""
    pa.array(["a"])
    await server.run(tocsin.connect(f"file:{path}"), port=0, ready=lambda it: say(url=it.url))


async def publish(url: str, count: str, batch: str, window: str, seed: str) -> None:
    """Publish in batches, so many events on their way at a time."""
    events, size = payloads(int(count), int(seed)), int(batch)
    parts = [events[start : start + size] for start in range(0, len(events), size)]
    async with tocsin.connect(url, name="publisher") as bus:
        await bus.publish_many([_event(data, "warm.up") for data in payloads(1000, -1)])
        turn = iter(parts)

        async def one() -> None:
            for part in turn:
                await bus.publish_many(map(_event, part))

        started, cpu = wait_for_go(), spent()
        await asyncio.gather(*(one() for _ in range(max(1, int(window) // size))))
        say(cpu=spent() - cpu, wall=time.perf_counter() - started, ended=time.perf_counter())


async def consume(url: str, count: str, batch: str) -> None:
    """Take and settle in batches, until all are settled."""
    total, seen = int(count), set[int]()
    async with tocsin.connect(url, name="consumer") as bus:
        subscription = await bus.subscribe(ANY, consumer="ops", max_in_flight=1000)
        started, cpu = wait_for_go(), spent()
        async for found in subscription.batches(int(batch)):
            await found.ack()
            seen.update(each.offset for each in found)
            if len(seen) >= total:
                break
        say(cpu=spent() - cpu, wall=time.perf_counter() - started, ended=time.perf_counter())


async def steady_publish(url: str, rate: str, seconds: str) -> None:
    """Publish one by one on a schedule; each event says when the call was made."""
    events = payloads(int(rate) * int(seconds), 1)
    async with tocsin.connect(url, name="publisher") as bus:
        await bus.publish(_event({**events[0], "at": 0.0}))
        answered: list[float] = []

        async def one(data: Payload) -> None:
            at = time.perf_counter()
            await bus.publish(_event({**data, "at": at}))
            answered.append(time.perf_counter() - at)

        started, cpu, tasks = wait_for_go() + 0.05, spent(), []
        for number, data in enumerate(events):
            if (wait := started + number / int(rate) - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(one(data)))
        await asyncio.gather(*tasks)
        say(cpu=spent() - cpu, answered=answered)


async def steady_consume(url: str, count: str) -> None:
    """Take and settle one by one; tell how long each has been on its way."""
    latencies: list[float] = []
    settling: set[asyncio.Task[None]] = set()
    async with tocsin.connect(url, name="consumer") as bus:
        subscription = await bus.subscribe(ANY, consumer="ops", max_in_flight=1000)
        wait_for_go()
        cpu = spent()
        async for delivery in subscription:
            at = delivery.event.data["at"]
            if at:
                latencies.append(time.perf_counter() - at)
            task = asyncio.create_task(delivery.ack())
            settling.add(task)
            task.add_done_callback(settling.discard)
            if len(latencies) == int(count):
                break
        await asyncio.gather(*settling)
        say(cpu=spent() - cpu, latencies=latencies)


async def crowd(url: str, consumers: str, count: str) -> None:
    """Many consumers, a connection each, that want a share each; what one did not ask for ends the run."""
    many, total, over, got = int(consumers), int(count), asyncio.Event(), 0

    async def one(number: int) -> None:
        nonlocal got
        low, high = number * 1000 / many, (number + 1) * 1000 / many
        async with tocsin.connect(url, name=f"c{number}") as bus:
            subscription = await bus.subscribe(slice_of(number, many), consumer=f"c{number}", max_in_flight=1000)
            ready.release()
            async for found in subscription.batches(500):
                for each in found:
                    assert low <= each.event.data["value"] < high, "not what was asked for"
                await found.ack()
                got += len(found)
                if got >= total:
                    over.set()

    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(one(number)) for number in range(many)]
    for _ in tasks:
        await ready.acquire()
    wait_for_go()
    cpu = spent()
    await over.wait()
    say(cpu=spent() - cpu, got=got)
    os._exit(0)  # all at once: how the node takes that is seen elsewhere


async def answer(url: str) -> None:
    """Answer requests, until it is ended."""

    async def double(request: Any) -> Any:
        return 2 * request.data

    async with tocsin.connect(url, name="answerer") as bus, bus.serve("double", double):
        say(ready=True)
        await asyncio.Event().wait()


async def ask(url: str, rate: str, seconds: str) -> None:
    """Ask on a schedule; tell how long each answer took."""
    latencies: list[float] = []
    async with tocsin.connect(url, name="asker") as bus:
        assert await bus.request("double", 21) == 42

        async def one(number: int) -> None:
            at = time.perf_counter()
            assert await bus.request("double", number) == 2 * number
            latencies.append(time.perf_counter() - at)

        started, cpu, tasks = wait_for_go() + 0.05, spent(), []
        for number in range(int(rate) * int(seconds)):
            if (wait := started + number / int(rate) - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(one(number)))
        await asyncio.gather(*tasks)
        say(cpu=spent() - cpu, latencies=latencies)


async def idle(url: str, count: str) -> None:
    """Connect many clients that then do nothing; tell how long that took."""
    started, cpu = wait_for_go(), spent()
    names = iter(range(int(count)))
    buses: list[Any] = []

    async def some() -> None:
        for name in names:
            bus = tocsin.connect(url, name=f"idle-{name}")
            await bus.__aenter__()
            buses.append(bus)

    await asyncio.gather(*(some() for _ in range(10)))
    say(wall=time.perf_counter() - started, cpu=spent() - cpu)
    await asyncio.to_thread(sys.stdin.readline)
    os._exit(0)


PROGRAMS = {
    each.__name__: each for each in (serve, publish, consume, steady_publish, steady_consume, crowd, answer, ask, idle)
}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        engine.wait()
        as_process(serve(*sys.argv[2:]))
    else:
        asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))

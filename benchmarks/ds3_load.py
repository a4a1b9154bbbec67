"""The load of DS3's tests: instances that publish at a rate and all hear everything, over one node.

An instance is a connection that is a publisher and a subscriber, as there. Each publishes on a schedule, one event at a
time; one that is not answered yet keeps the next waiting beyond `WINDOW`, so that a node that has no room slows its
publishers down. What an instance hears it settles. Every event is looked for at every instance: what is lost or comes
twice is counted, and makes the run fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from typing import NamedTuple

import tocsin
from tocsin import Event

__all__ = ["Load", "Outcome", "run"]

WINDOW = 100
"""Events of one instance that may wait for their answer."""
GRACE = 0.5
"""Seconds after the last was published until what was heard is counted: a little delay is no fault."""
PATIENCE = 300.0


class Load(NamedTuple):
    """How much."""

    instances: int
    rate: float
    """Events per second of one instance."""
    seconds: float
    size: int = 1000
    """Bytes of a payload."""


class Outcome(NamedTuple):
    """What came of it."""

    published: int
    per_s: float
    """Published per second, by all."""
    heard_per_s: float
    """Heard per second, by one."""
    quotient: float
    """Of what was published, the share that an instance had heard in time: the mean over instances."""
    deviation: float
    recovery: float
    """Seconds from the last publishing until everybody had heard everything."""
    lost: int
    twice: int


async def run(url: str, load: Load, name: str = "ds3", grace: float = GRACE) -> Outcome:
    """Let instances publish and hear; returns when everybody has heard everything."""

    async def all_heard(seconds: float) -> None:
        with contextlib.suppress(TimeoutError):  # what is lost is told
            async with asyncio.timeout(seconds):
                while any(len(each) < len(published) for each in heard):
                    progress.clear()
                    await progress.wait()

    heard: list[dict[str, int]] = [{} for _ in range(load.instances)]
    published: set[str] = set()
    text = "x" * load.size
    ready, begin, progress = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()
    began = 0.0

    async def hear(bus: tocsin.Bus, mine: dict[str, int], number: int) -> None:
        wanted = f"type = '{name}'"
        async with await bus.subscribe(wanted, consumer=f"{name}-{number}", max_in_flight=1000) as subscription:
            ready.release()
            async for batch in subscription.batches(500):
                for delivery in batch:
                    mine[delivery.event.id] = mine.get(delivery.event.id, 0) + 1
                progress.set()
                await batch.ack()

    async def publish(bus: tocsin.Bus, number: int) -> None:
        waiting: set[asyncio.Task[None]] = set()

        async def one() -> None:
            published.add((await bus.publish(Event(name, f"instance/{number}", data=text))).id)

        for count in range(round(load.rate * load.seconds)):
            due = began + (count + number / load.instances) / load.rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            if time.perf_counter() - began > load.seconds:
                break
            while len(waiting) >= WINDOW:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(one())
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)

    async def instance(number: int) -> None:
        async with tocsin.connect(url, name=f"{name}-{number}") as bus:
            hearing = asyncio.create_task(hear(bus, heard[number], number))
            await begin.wait()
            await publish(bus, number)
            finished.release()
            await over.wait()
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    finished, over = asyncio.Semaphore(0), asyncio.Event()
    async with asyncio.TaskGroup() as group:  # if one fails, all end
        for number in range(load.instances):
            group.create_task(instance(number))
        for _ in range(load.instances):
            await ready.acquire()
        began = time.perf_counter()
        begin.set()
        for _ in range(load.instances):
            await finished.acquire()
        took = time.perf_counter() - began
        await all_heard(grace)
        total, counts = len(published), [len(each) for each in heard]
        await all_heard(PATIENCE)
        recovery = time.perf_counter() - began - took
        over.set()
    quotients = [count / max(1, total) for count in counts]
    return Outcome(
        total,
        total / took,
        statistics.mean(counts) / took,
        statistics.mean(quotients),
        statistics.pstdev(quotients),
        recovery,
        sum(len(published - each.keys()) for each in heard),
        sum(count > 1 for each in heard for count in each.values()),
    )

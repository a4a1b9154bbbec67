"""Detection in a node: how long from the call of `publish` to the delivery of what it completes.

On the way lie two commits: that of the event, and that of the derived event. `beyond` is what is left without the time
those two took.
"""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_left
from pathlib import Path
from typing import Any

from benchmarks.common import spread
from benchmarks.readings import bus_on, percentile, watch_commits
from tocsin import Event

__all__ = ["node"]

RATE = 100
"""Pairs a second."""
DEFINITIONS = 10


def node(repeat: int, pairs: int, scratch: Path) -> dict[str, Any]:
    """Pairs at a steady rate, ten definitions, one of which they complete."""
    runs = [asyncio.run(_steadily(scratch / f"{turn}.db", pairs)) for turn in range(repeat + 1)][1:]
    row: dict[str, Any] = {"pairs": pairs, "rate": RATE}
    for name in ("latency", "commits", "beyond"):
        for percent in (50, 99):
            figures = spread(percentile(each[name], percent) * 1e3 for each in runs)
            row[f"{name}_p{percent}_ms"] = figures.row()
    return row


async def _steadily(path: Path, pairs: int) -> dict[str, list[float]]:
    draw = random.Random(pairs)
    called, delivered, derived, offsets = ([0.0] * pairs for _ in range(4))

    async def consume() -> None:
        for _ in range(pairs):
            delivery = await subscription.next(60)
            number = int(delivery.event.data["parts"][1]["id"][1:])
            delivered[number], derived[number] = time.perf_counter(), delivery.offset
            await delivery.ack()

    async with bus_on(path) as bus:
        for number in range(DEFINITIONS):
            await bus.define(f"pair{number}", f"SEQ([type='a{number}'], [type='b{number}']) BY k", "chronicle")
        subscription = await bus.subscribe("type = 'pair0'", consumer="ops")
        commits = watch_commits(bus)
        consumer = asyncio.ensure_future(consume())
        start = time.perf_counter()
        for number in range(pairs):
            if (wait := start + number / RATE - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            data = {"k": draw.randrange(1000), "number": number}
            await bus.publish(Event("a0", "/bench", f"a{number}", data=data))
            called[number] = time.perf_counter()
            offsets[number] = (await bus.publish(Event("b0", "/bench", f"b{number}", data=data))).offset or 0
        await consumer
    heads = [head for _, _, head in commits]
    found: dict[str, list[float]] = {"latency": [], "commits": [], "beyond": []}
    for number in range(pairs):
        both = {bisect_left(heads, offsets[number]), bisect_left(heads, derived[number])}
        spent = sum(commits[place][1] - commits[place][0] for place in both)
        latency = delivered[number] - called[number]
        found["latency"].append(latency)
        found["commits"].append(spent)
        found["beyond"].append(latency - spent)
    return found

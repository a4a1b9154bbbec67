"""What a child does until it is killed: publish, take, settle, cancel and trim, and say each step before and after.

Everything is drawn from the life's seed. What an event looks like follows from its id alone, so that a later life can
repeat a publish that was never answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import tocsin
from tocsin import testing
from tocsin.journal import merge
from tocsin.model import Event

CONSUMERS: dict[str, dict[str, Any]] = {
    "log": {"filter": "TRUE", "order": "journal"},
    "urgent": {"filter": "priority >= 5", "order": "priority"},
    "crew-1": {"filter": "n % 2 = 0", "group": "crew"},
    "crew-2": {"filter": "n % 2 = 0", "group": "crew"},
}
"""Name → how it subscribes; the two of the crew share what they settle."""
STEPS = 400
"""Steps of each publisher: far more than a life is meant to last."""
MERGED, WAITING = 16, 64
"""Blocks that are worth a merge, and commits that may wait for one: so few that merging is often under way."""

Say = Callable[..., None]


def line(*words: Any) -> bytes:
    return json.dumps(words).encode() + b"\n"


def make(id: str) -> Event:
    """The event of this id: `publisher:number`, everything else is drawn from it."""
    publisher, _, number = id.rpartition(":")
    chance = random.Random(zlib.crc32(id.encode()))
    return Event(
        type="step",
        source="crash",
        id=id,
        data={"publisher": publisher, "n": int(number), "text": "x" * chance.choice([0, 10, 200, 3000])},
        priority=chance.randint(1, 10),
        persistent=not publisher.startswith("passing"),
        ack="client" if chance.random() < 0.1 else "none",
        cancel="any",
    )


async def subscribe(bus: Any, name: str) -> Any:
    options = dict(CONSUMERS[name])
    return await bus.subscribe(options.pop("filter"), consumer=name, max_in_flight=100_000, **options)


def run(life: dict[str, Any], pipe: int) -> None:
    """Live this life; whatever is said is in the pipe before the next thing is done."""
    merge.ENOUGH_ROWS, merge.MOST_COMMITS = MERGED, WAITING
    asyncio.run(_live(life, lambda *words: os.write(pipe, line(*words)) and None))


async def _live(life: dict[str, Any], say: Say) -> None:
    chance = random.Random(life["seed"])
    async with tocsin.connect(life["url"], name="child") as bus:
        subs = {name: await subscribe(bus, name) for name in CONSUMERS}
        say("open")
        for ids in life["retry"]:
            await _publish(bus, ids, say)
        sizes = {"one": 1, "other": 1, "many": 20, "passing": 1}
        tasks = [_publisher(bus, f"{name}-{life['number']}", chance, say, life, most) for name, most in sizes.items()]
        readers = [asyncio.ensure_future(_consumer(name, sub, chance, say)) for name, sub in subs.items()]
        await asyncio.gather(*tasks)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    say("closed")


async def _publish(bus: Any, ids: list[str], say: Say) -> None:
    say("publish", ids)
    answers = [await bus.publish(make(ids[0]))] if len(ids) == 1 else await bus.publish_many([make(id) for id in ids])
    say("published", [[answer.id, answer.offset] for answer in answers])


async def _publisher(bus: Any, name: str, chance: random.Random, say: Say, life: dict[str, Any], most: int) -> None:
    number = 0
    for step in range(STEPS):
        if life["point"] and step == life["arm"]:
            testing.crash_at(life["point"])
        count = chance.randint(2, most) if most > 1 else 1
        ids = [f"{name}:{number + each}" for each in range(count)]
        number += count
        await _publish(bus, ids, say)
        if chance.random() < 0.1 and not name.startswith("passing"):
            say("cancel", ids[0])
            await bus.cancel(ids[0])
            say("cancelled", ids[0])
        if step % 40 == 39 and name.startswith("one"):
            say("trim")
            await bus.trim(older_than=timedelta(0))


async def _consumer(name: str, sub: Any, chance: random.Random, say: Say) -> None:
    async for batch in sub.batches(5):
        got = [d for d in batch if not d.notice]
        for d in got:
            say("delivered", name, d.event.id, d.offset)
        if not got or chance.random() < 0.1:
            for d in got:
                await d.nak()
            continue
        say("ack", name, [d.event.id for d in got])
        await (batch.ack() if chance.random() < 0.5 else asyncio.gather(*(d.ack() for d in got)))
        say("acked", name, [d.event.id for d in got])

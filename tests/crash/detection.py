"""What a child does until it is killed: define the same things again, and publish what they are made of.

Snapshots are stored every few events, so that a crash is as likely before one as after it.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import tocsin
from tests.crash.workload import line
from tocsin import testing
from tocsin.model import Event
from tocsin.node import watcher

DEFINITIONS = {
    "pair": ("SEQ([type = 'a'] AS a, [type = 'b'] AS b) BY k", "chronicle"),
    "pause": ("PLUS([type = 'c'] AS c, 5 MILLISECONDS) BY k", "continuous"),
    "missing": ("NOT([type = 'a'], [type = 'b'], [type = 'c']) WITHIN 1 SECOND BY k", "recent"),
    "after": ("A*(pair AS p, [type = 'c'] AS c, [type = 'd'] AS d)", "cumulative"),
}
EVENTS = 3_000
"""Far more than a life is meant to last."""


def run(life: dict[str, Any], pipe: int) -> None:
    watcher.CHECKPOINT = 20  # type: ignore[misc]
    asyncio.run(_live(life, pipe))


async def _live(life: dict[str, Any], pipe: int) -> None:
    chance = random.Random(life["seed"])
    async with tocsin.connect(life["url"], name="child") as bus:
        for name, (text, context) in DEFINITIONS.items():
            await bus.define(name, text, context)
        os.write(pipe, line("open"))
        if life["point"]:
            testing.crash_at(life["point"], life["arm"])
        number = 0
        while number < EVENTS:
            batch = [_event(f"{life['number']}:{number + n}", chance) for n in range(chance.choice([1, 1, 2, 30]))]
            number += len(batch)
            await bus.publish_many(batch)
            os.write(pipe, line("published", [each.id for each in batch]))
            await asyncio.sleep(chance.choice([0, 0, 0.001]))


def _event(id: str, chance: random.Random) -> Event:
    return Event(chance.choice("aabbccd"), "crash", id, data={"k": chance.randrange(4)}, persistent=True)

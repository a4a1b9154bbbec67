"""Many handles that share, with buffers and small windows, used at random: all comes once, and nobody starves."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import tocsin
from tests.helpers import numbered
from tests.proxy import proxy
from tocsin.net import serve

EVENTS = 150


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["group", "siblings", "same"])
async def test_everything_is_settled_once(kind: str, seed: int) -> None:
    """In a group; by subscriptions of one consumer that take turns in one window; by handles of one subscription."""
    chance = random.Random(f"{kind}{seed}")
    settled: list[str] = []
    cuts = seed % 2 == 1
    done = asyncio.Event()

    async def use(sub: Any) -> None:
        while True:
            try:
                delivery = await sub.next(chance.choice([None, None, 0.01]))
            except TimeoutError:
                continue
            assert delivery.event.id not in settled, "nothing settled is handed out"
            if chance.random() < 0.2:
                await asyncio.sleep(chance.random() / 100)
            try:
                if chance.random() < 0.15:
                    await delivery.nak(chance.choice([0, 0, 0.01]))
                else:
                    await delivery.ack()
                    settled.append(delivery.event.id)
            except tocsin.DeliveryError:
                assert cuts, "only a lost connection takes a delivery out of one's hands"
            if len(set(settled)) == EVENTS:
                done.set()

    async with tocsin.connect("memory:") as node, serve(node) as server, proxy(server.url) as way:
        buses = [await tocsin.connect(way.url, name=f"bus-{n}").__aenter__() for n in range(2)]
        window = chance.choice([1, 2, 5, 256])
        subs = []
        for n in range(4):
            group = {"consumer": f"member-{n}", "group": "crew"}
            options: dict[str, Any] = group if kind == "group" else {"consumer": "ops"}
            text = f"n % 4 = {n}" if kind == "siblings" else "TRUE"
            place = (*buses, node)[n % 3]  # one of them is in the node's own process
            subs.append(await place.subscribe(text, max_in_flight=window, **options))
        tasks = [asyncio.create_task(use(sub)) for sub in subs]
        for first in range(1, EVENTS, 30):
            batch = [each.replace(priority=chance.randint(1, 10)) for each in numbered(30, first=first)]
            await node.publish_many(batch)
            if cuts:
                way.snap()
            await asyncio.sleep(0.005)
        async with asyncio.timeout(15):
            await done.wait()
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [each for each in ends if not isinstance(each, asyncio.CancelledError)]
        for bus in buses:
            await bus.close()
        assert {each.lag for each in await node.consumers()} == {0}
    # Who was cut off with a delivery in hand is told that it is settled also if somebody else has done it since: whose
    # answer was lost nobody knows any more.
    assert cuts or len(settled) == EVENTS, "each once"

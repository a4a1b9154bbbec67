"""Random lives of three consumers whose queues are so short that every backlog is read from the journal again.

`test_delivery_model.py` has more verbs; here the backlogs are long, levels fall behind and catch up one by one, blocks
are merged and trimmed, a group shares one place, and the window of newest events holds all, some or nothing. The model
is made of sets: a consumer wants some offsets, has settled some, holds some. Whatever is polled must be the most
urgent, then oldest, of the rest, and in the end nothing may be left.

Each seed is a test, so that one can be run alone: `-k "file and 17"`.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tocsin
from tests.helpers import event, testing

FILTERS = {"TRUE": lambda n: True, "n < 3": lambda n: n < 3, "n % 2 = 0": lambda n: n % 2 == 0}
WINDOW, ACK_WAIT, LAST = 5, 100, 3


class Sent(NamedTuple):
    """An event, as published."""

    id: str
    n: int
    priority: int


@dataclass
class Consumer:
    """What the model knows of a consumer, or of a group with up to `most` members."""

    name: str
    order: str
    filter: str
    group: str | None = None
    most: int = 1
    made: bool = False
    """Has it ever subscribed?"""
    wanted: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    held: dict[int, Any] = field(default_factory=dict)
    handles: list[Any] = field(default_factory=list)

    def wants(self, sent: Sent) -> bool:
        return FILTERS[self.filter](sent.n)


class Episode:
    """A node and its model side by side, driven by one seed."""

    def __init__(self, seed: int, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.url, self.clock = url, testing.ManualClock()
        self.capacity = self.random.choice([1, 2, 3, 5, 8])
        for module in ("lane", "refill"):
            monkeypatch.setattr(f"tocsin.delivery.{module}.CAPACITY", self.capacity)
        monkeypatch.setattr("tocsin.node.lanes._RECENT", self.random.choice([1, 3, 2048]))
        monkeypatch.setattr("tocsin.node.lanes._BATCH", self.random.choice([1, 16]))
        self.hot_bytes = self.random.choice([0, 3000, 10**7])
        self.sent: dict[int, Sent] = {}
        self.first = 1
        self.log: list[Any] = [f"seed {seed}"]
        self.consumers = [
            Consumer("urgent", "priority", "TRUE"),
            Consumer("orderly", "journal", "n < 3"),
            Consumer("crew", "priority", self.random.choice(list(FILTERS)), group="g", most=2),
        ]

    async def play(self) -> None:
        verbs = {self.publish: 35, self.open: 12, self.take: 28, self.ack: 5, self.close: 6, self.wait: 4, self.trim: 3}
        if self.url != "memory:":
            verbs |= {self.merge: 2, self.restart: 5}
        await self.start()
        try:
            for _ in range(self.random.randint(10, 40)):
                [verb] = self.random.choices(list(verbs), list(verbs.values()))
                await verb()
            for consumer in self.consumers:
                if consumer.made:
                    await self.finish(consumer)
        finally:
            await self.node.__aexit__(None, None, None)

    def note(self, *words: Any) -> None:
        self.log.append(words)

    # Publishers

    async def publish(self) -> None:
        made = [
            event(f"{len(self.sent)}-{place}", data={"n": self.random.randint(0, 5)}, priority=priority)
            for place, priority in enumerate(
                self.random.choices([1, 5, 9], k=self.random.randint(1, 2 * self.capacity))
            )
        ]
        if self.random.random() < 0.5:
            answers = await self.bus.publish_many(made)
        else:
            answers = await asyncio.gather(*map(self.bus.publish, made))
        for each, answer in zip(made, answers, strict=True):
            sent = self.sent[answer.offset] = Sent(each.id, each.data["n"], each.priority)
            for consumer in self.consumers:
                if consumer.made and consumer.wants(sent):
                    consumer.wanted.add(answer.offset)
        self.note("publish", [answer.offset for answer in answers])

    # Consumers

    async def open(self, consumer: Consumer | None = None) -> None:
        consumer = consumer or self.random.choice(self.consumers)
        if len(consumer.handles) >= consumer.most:
            return
        past = None if consumer.made else self.random.choice([None, "all", "last"])
        handle = await self.bus.subscribe(
            consumer.filter,
            consumer=f"{consumer.name}-{len(consumer.handles)}",
            past={None: None, "all": tocsin.retained(), "last": tocsin.last(LAST)}[past],
            order=consumer.order,
            group=consumer.group,
            max_in_flight=WINDOW,
            ack_wait=ACK_WAIT,
        )
        consumer.handles.append(handle)
        if past is not None:
            match = [offset for offset, sent in self.sent.items() if offset >= self.first and consumer.wants(sent)]
            consumer.wanted = set(match if past == "all" else sorted(match)[-LAST:])
        consumer.made = True
        self.note("open", consumer.name, past)

    async def take_one(self, consumer: Consumer) -> Any:
        """Poll any handle: it must give exactly what the model says."""
        handle = self.random.choice(consumer.handles)
        await testing.settled(self.bus)
        got = handle.poll()
        expected = self.expected(consumer, handle)
        assert (got and got.offset) == expected, (consumer.name, self.log)
        if got is not None:
            assert got.event.id == self.sent[got.offset].id
            consumer.held[got.offset] = got
        return got

    def expected(self, consumer: Consumer, handle: Any) -> int | None:
        """The most urgent, then oldest, offset that waits; None if there is none or the member's window is full."""
        in_hand = [d for d in consumer.held.values() if d.handle.consumer == handle.consumer]
        waiting = consumer.wanted - consumer.settled - consumer.held.keys()
        if len(in_hand) >= WINDOW or not waiting:
            return None
        if consumer.order == "journal":
            return min(waiting)
        return min(waiting, key=lambda offset: (-self.sent[offset].priority, offset))

    async def take(self) -> None:
        consumer = self.random.choice(self.consumers)
        if not consumer.handles:
            return
        self.note("take", consumer.name)
        for _ in range(self.random.randint(1, 6)):
            got = await self.take_one(consumer)
            if got is None:
                break
            match self.random.choices(["ack", "nak", "hold"], [60, 15, 25]):
                case ["ack"]:
                    await self.ack_one(consumer, got.offset)
                case ["nak"]:
                    await consumer.held.pop(got.offset).nak()

    async def ack_one(self, consumer: Consumer, offset: int) -> None:
        await consumer.held.pop(offset).ack()
        consumer.settled.add(offset)

    async def ack(self) -> None:
        consumer = self.random.choice(self.consumers)
        if consumer.held:
            await self.ack_one(consumer, self.random.choice(list(consumer.held)))

    async def close(self) -> None:
        consumer = self.random.choice(self.consumers)
        if not consumer.handles:
            return
        handle = consumer.handles.pop(self.random.randrange(len(consumer.handles)))
        consumer.held = {offset: d for offset, d in consumer.held.items() if d.handle is not handle}
        await handle.close()
        self.note("close", consumer.name)

    async def finish(self, consumer: Consumer) -> None:
        """Take all that is left: what is wanted and what was settled are the same then."""
        for offset in list(consumer.held):
            await self.ack_one(consumer, offset)
        if not consumer.handles:
            await self.open(consumer)
        while (got := await self.take_one(consumer)) is not None:
            await self.ack_one(consumer, got.offset)
        assert consumer.settled == consumer.wanted, (consumer.name, self.log)
        infos = [info for info in await self.bus.consumers() if info.name.startswith(consumer.name)]
        assert [info.in_flight for info in infos] == [0] * len(infos), (consumer.name, self.log)

    # The world

    async def wait(self) -> None:
        """All that is in hand goes back."""
        self.clock.advance(ACK_WAIT + 1)
        for consumer in self.consumers:
            consumer.held.clear()
        self.note("wait")

    async def trim(self) -> None:
        """As much as may go; nothing that somebody has yet to settle."""
        self.clock.advance(0.5)
        self.first = await self.bus.trim(older_than=timedelta(0))
        self.note("trim", self.first)
        for consumer in self.consumers:
            left = consumer.wanted - consumer.settled
            assert min(left, default=self.first) >= self.first, (consumer.name, self.log)

    async def merge(self) -> None:
        await asyncio.to_thread(self.bus._node.journal.merge_now)
        self.note("merge")

    async def start(self) -> None:
        self.node = testing.node(self.url, self.clock, hot_bytes=self.hot_bytes)
        self.bus = await self.node.__aenter__()

    async def restart(self) -> None:
        end = self.random.choice(["close", "crash"])
        if end == "crash":
            await testing.crash(self.bus)
        await self.node.__aexit__(None, None, None)
        await self.start()
        for consumer in self.consumers:
            consumer.handles.clear()
            consumer.held.clear()
        self.note(end)


@pytest.mark.parametrize("seed", range(150))
async def test_on_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    await Episode(seed, "memory:", monkeypatch).play()


@pytest.mark.parametrize("seed", range(25))
async def test_on_file(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    await Episode(seed, f"file:{tmp_path / 'plant.db'}", monkeypatch).play()

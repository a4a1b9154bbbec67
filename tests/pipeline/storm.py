"""A plant that never rests, while everything is killed that can be: who publishes, who listens, who kills."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import tocsin
from tests.helpers import heard
from tests.pipeline.plant import PAIR, Plant, until, up
from tests.processes import below
from tocsin import Detector
from tocsin.composite.detector import SOURCE
from tocsin.errors import TocsinError
from tocsin.journal.lake import Lake
from tocsin.journal.reader import open_reader
from tocsin.node.beside import stored_counts

DEFINED = {
    "pair": PAIR,
    "trio": "SEQ([type = 'a'], [type = 'b'], [type = 'a']) BY k",
    "stop": "PLUS([type = 'a'], 1 SECOND) BY k",
}
FILTER = f"type IN ({', '.join(repr(name) for name in DEFINED)})"


class Storm:
    """A node with its pipeline, publishers and a durable consumer, through as many lives as it takes."""

    def __init__(self, data: Path, seed: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.data, self.draw = data, random.Random(seed)
        self._words = ("--port", str(port))
        self.url = f"ws://127.0.0.1:{port}"
        self._stack = ExitStack()
        self.plant: Plant = self._stack.enter_context(up(data, *self._words))
        self._calm = threading.Event()
        self.published = 0
        self.delivered: Counter[str] = Counter()
        """How often each derived event was settled."""
        self.unsure: set[str] = set()
        """What nobody has answered whether it was settled."""
        self.since: dict[str, int] = {}
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in (self._publish, self._listen)]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Any) -> None:
        while not self._calm.is_set():
            with suppress(TocsinError, OSError):  # the node is gone; the next one comes
                asyncio.run(work())

    async def _publish(self) -> None:
        async with tocsin.connect(self.url, name="publisher") as bus:
            while not self._calm.is_set():
                batch = self._batch(self.published)
                await bus.publish_many(batch)  # if nobody answers, the next life gets these very events
                self.published += len(batch)
                await asyncio.sleep(0.02)

    @staticmethod
    def _batch(first: int) -> list[tocsin.Event]:
        draw = random.Random(first)
        return [
            tocsin.Event(draw.choice("ab"), "storm", id=f"{number}", data={"k": draw.choice("uvwxyz")})
            for number in range(first, first + 10)
        ]

    async def _listen(self) -> None:
        async with tocsin.connect(self.url, name="listener") as bus:
            hearing = asyncio.ensure_future(self._hear(await bus.subscribe(FILTER, consumer="ops")))
            while not self._calm.is_set() and not hearing.done():
                await asyncio.wait([hearing], timeout=0.1)
            hearing.cancel()
            with suppress(asyncio.CancelledError):
                await hearing

    async def _hear(self, sub: Any) -> None:
        async for delivery in sub:
            self.unsure.add(delivery.event.id)
            await delivery.ack()
            self.unsure.discard(delivery.event.id)
            self.delivered[delivery.event.id] += 1

    # -- what is done to it

    def define(self, name: str) -> None:
        self.since[name] = self.plant.tocsin("define", name, DEFINED[name])["since"]

    def kill(self, what: str) -> None:
        """Kill something, at no particular moment."""
        time.sleep(self.draw.uniform(0, 2))
        if what == "node":
            self.plant.process.process.kill()
            self._stack.close()
            self.plant = self._stack.enter_context(up(self.data, *self._words))
            return
        until(lambda: self.plant.status()["state"] == "up", "there is something to kill")
        jvm = self.plant.jvm()
        victims = {"jvm": [jvm], "driver": [self.plant.status()["pid"]], "worker": sorted(below(jvm)) or [jvm]}[what]
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.draw.choice(victims), signal.SIGKILL)

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more derived events were heard of."""
        heard = sum(self.delivered.values())
        until(lambda: sum(self.delivered.values()) >= heard + count, "derived events come")

    def end(self) -> None:
        """Let everything come to rest, and end it."""
        try:
            self._calm.set()
            for thread in self._threads:
                thread.join(60)
            until(self._is_done, "all is looked at and archived")
            assert self.plant.process.end(signal.SIGTERM)[0] == 0
        finally:
            self._stack.close()

    def _is_done(self) -> bool:
        status = self.plant.status()
        archived = (status["archived"] or {"last": 0})["last"]
        with open_reader(self.data / "journal.db") as reader:
            newest = max(each.last for each in reader.blocks())
        return bool(status["state"] == "up" and status["lag"] == 0 and archived >= newest - 20)

    # -- what has come of it

    def check(self) -> None:
        """Everything was derived once, told once, delivered once, archived once."""
        with open_reader(self.data / "journal.db") as reader:
            events = [event for block in reader.blocks() for event in block.events()]
            told = stored_counts(reader)
        published = Counter(event.id for event in events if event.source == "storm")
        assert len(published) >= self.published > 0 and set(published.values()) == {1}
        derived = [event for event in events if event.source == SOURCE and event.type in self.since]
        ids = Counter(event.id for event in derived)
        assert set(ids) == self._expected(events) and set(ids.values()) == {1}
        # The journal itself drops what comes twice; so this tells whether the pipeline has.
        assert told == Counter(event.type for event in derived)
        assert set(told) == set(self.since) and min(told.values()) > 0
        late = self._rest()
        assert set(self.delivered) | late | self.unsure == set(ids) and not set(self.delivered) & late
        assert set(self.delivered.values()) == {1}
        lake = Lake(str(self.data / "lake"))
        archived = [event for block in lake.blocks(1, lake.last) for event in block.events()]
        assert archived == events[: len(archived)] and len(archived) >= len(published)

    def _expected(self, events: list[Any]) -> set[str]:
        """What one detector derives, each definition from its offset on."""
        detector, found = Detector(), set[str]()
        for event in events:
            for name, begin in self.since.items():
                if begin < (event.offset or 0) and all(each.name != name for each in detector.definitions()):
                    detector.define(name, DEFINED[name])
            found |= {each.id for each in detector.feed(event)}
        return found

    def _rest(self) -> set[str]:
        """What the consumer has yet to get."""

        async def take_all() -> set[str]:
            async with tocsin.connect(f"file:{self.data / 'journal.db'}") as bus:
                return set(await heard(bus, await bus.subscribe(FILTER, consumer="ops")))

        return asyncio.run(take_all())

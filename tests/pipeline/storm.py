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
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import heard, node_of
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
    "whole": "SEQ([type = 'a' AND k = 'u'], [type = 'b' AND k = 'v'])",
    "times": "SEQ([type = 'a'], OR({}))",  # so many absolute times that some are due while nobody is up
    "once": "SEQ([type = 'a'], {}) BY k",
}
"""Definitions; in place of {} come absolute times that are near when it is made."""
DERIVED = f"type IN ({', '.join(repr(name) for name in DEFINED)})"
MATCHED = "k = 'w' OR type = 'whole'"
HARD = 0.02
PACES = [0.1, pytest.param(HARD, marks=pytest.mark.slow)]
"""Seconds between two batches. At the second pace node, publisher and listeners take most of two cores from Spark."""


class Listener:
    """A durable consumer through many lives, and what it got."""

    def __init__(self, consumer: str, filter: str, **options: Any) -> None:
        self.consumer, self.filter, self.options = consumer, filter, options
        self.delivered: Counter[str] = Counter()
        """How often each event was settled."""
        self.unsure: set[str] = set()
        """What nobody has answered whether it was settled."""

    async def hear(self, bus: Any) -> None:
        async for delivery in await self.subscribe(bus):
            self.unsure.add(delivery.event.id)
            await delivery.ack()
            self.unsure.discard(delivery.event.id)
            self.delivered[delivery.event.id] += 1

    async def subscribe(self, bus: Any) -> Any:
        return await bus.subscribe(self.filter, consumer=self.consumer, past=tocsin.retained(), **self.options)

    def check(self, wanted: set[str], late: set[str]) -> None:
        """It got everything once; `late` is what it has yet to get."""
        assert set(self.delivered) | late | self.unsure == wanted and not set(self.delivered) & late
        assert set(self.delivered.values()) == {1}


class Storm:
    """A node with its pipeline, publishers and durable consumers, through as many lives as it takes."""

    def __init__(self, data: Path, seed: int, pause: float = HARD) -> None:
        """Begin.

        Args:
            data: where the node keeps everything.
            seed: of what is drawn.
            pause: seconds between two batches of ten events; see `PACES`.
        """
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.data, self.draw, self._pause = data, random.Random(seed), pause
        self._words = ("--port", str(port))
        self.url = f"ws://127.0.0.1:{port}"
        self._stack = ExitStack()
        self.plant: Plant = self._stack.enter_context(up(data, *self._words))
        self._calm, self._still = threading.Event(), threading.Event()
        self.published = 0
        self.near = Listener("ops", DERIVED)
        self.far = Listener("far", MATCHED, placement="spark")
        """Its events are matched on Spark."""
        self.since: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.passed = 0
        """Up to this offset Spark has looked at everything."""
        self._publishing = threading.Thread(target=self._run, args=(self._publish, self._calm))
        self._listening = [
            threading.Thread(target=self._run, args=(partial(self._listen, each), self._still))
            for each in (self.near, self.far)
        ]
        for thread in (self._publishing, *self._listening):
            thread.start()

    @staticmethod
    def _run(work: Callable[[], Coroutine[Any, Any, None]], end: threading.Event) -> None:
        while not end.is_set():
            with suppress(TocsinError, OSError):  # the node is gone; the next one comes
                asyncio.run(work())

    async def _publish(self) -> None:
        async with tocsin.connect(self.url, name="publisher") as bus:
            while not self._calm.is_set():
                batch = self._batch(self.published)
                await bus.publish_many(batch)  # if nobody answers, the next life gets these very events
                self.published += len(batch)
                await asyncio.sleep(self._pause)

    @staticmethod
    def _batch(first: int) -> list[tocsin.Event]:
        draw = random.Random(first)
        return [
            tocsin.Event(draw.choice("ab"), "storm", id=f"{number}", data={"k": draw.choice("uvwxyz")})
            for number in range(first, first + 10)
        ]

    async def _listen(self, listener: Listener) -> None:
        async with tocsin.connect(self.url, name=listener.consumer) as bus:
            hearing = asyncio.ensure_future(listener.hear(bus))
            while not self._still.is_set() and not hearing.done():
                await asyncio.wait([hearing], timeout=0.1)
            hearing.cancel()
            with suppress(asyncio.CancelledError):
                await hearing

    # -- what is done to it

    def define(self, *names: str) -> None:
        async def define_all() -> None:
            async with tocsin.connect(self.url, name="definer") as bus:
                for name in names:
                    self.texts[name] = DEFINED[name].format(_near_times(12 if name == "times" else 1))
                    info = await bus.define(name, self.texts[name])
                    assert info.placement == "spark"
                    self.since[name] = info.since

        asyncio.run(define_all())

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
        """Wait until each consumer has got so many more."""
        for each in (self.near, self.far):
            before = each.delivered.total()
            until(lambda got=each.delivered, least=before + count: got.total() >= least, "events come")  # type: ignore[misc]

    def end(self) -> None:
        """Let everything come to rest, and end it."""
        try:
            self._calm.set()
            self._publishing.join(60)
            until(self._is_done, "all is looked at and archived")
            wanted = _matching(self._events(self.passed))
            until(lambda: wanted <= self.far.delivered.keys() | self.far.unsure, "Spark has matched everything")
            self._still.set()
            for thread in self._listening:
                thread.join(60)
            assert self.plant.process.end(signal.SIGTERM)[0] == 0
        finally:
            self._calm.set()
            self._still.set()
            self._stack.close()

    def _is_done(self) -> bool:
        with open_reader(self.data / "journal.db") as reader:
            self.passed = reader.head  # if it has passed what was there before it is asked
        status = self.plant.status()
        archived = (status["archived"] or {"last": 0})["last"]
        return bool(status["state"] == "up" and status["lag"] == 0 and archived >= self.passed - 20)

    def _events(self, upto: int) -> list[tocsin.Event]:
        with open_reader(self.data / "journal.db") as reader:
            return [
                event for block in reader.blocks(1, upto) for event in block.events() if (event.offset or 0) <= upto
            ]

    # -- what has come of it

    def check(self) -> None:
        """Everything was derived once, told once, delivered once, archived once."""
        with open_reader(self.data / "journal.db") as reader:
            told, head = stored_counts(reader), reader.head
        events = self._events(head)
        published = Counter(event.id for event in events if event.source == "storm")
        assert len(published) >= self.published > 0 and set(published.values()) == {1}
        derived = [event for event in events if event.source == SOURCE and event.type in self.since]
        ids = Counter(event.id for event in derived)
        assert self._expected(self._events(self.passed)) <= set(ids) <= self._expected(events)
        assert set(ids.values()) == {1}
        # The journal itself drops what comes twice; so this tells whether the pipeline has.
        assert told == Counter(event.type for event in derived)
        assert set(told) == set(self.since) and min(told.values()) > 0
        self.near.check(set(ids), self._rest(self.near))
        self.far.check(_matching(events), self._rest(self.far))
        lake = Lake(str(self.data / "lake"))
        archived = [event for block in lake.blocks(1, lake.last) for event in block.events()]
        assert archived == events[: len(archived)] and len(archived) >= len(published)

    def _expected(self, events: list[tocsin.Event]) -> set[str]:
        """What one detector derives, each definition from its offset on."""
        detector, found, yet = Detector(), set[str](), dict(self.since)
        for event in events:
            for name in [name for name, begin in yet.items() if begin < (event.offset or 0)]:
                detector.define(name, self.texts[name])
                del yet[name]
            found |= {each.id for each in detector.feed(event)}
        return found

    def _rest(self, listener: Listener) -> set[str]:
        """What a consumer has yet to get; nothing is left that only Spark could find."""

        async def take_all() -> set[str]:
            async with tocsin.connect(f"file:{self.data / 'journal.db'}") as bus:
                sub, lanes = await listener.subscribe(bus), node_of(bus).lanes
                lanes.matched(-1, node_of(bus).head + 1, node_of(bus).head, {})
                return set(await heard(bus, sub))

        return asyncio.run(take_all())


def _near_times(count: int) -> str:
    """So many absolute times, a few seconds from now and from each other, as a definition has them."""
    now = datetime.now(UTC)
    return ", ".join(f"AT '{now + timedelta(seconds=6 + 4 * n):%H:%M:%S}'" for n in range(count))


def _matching(events: list[tocsin.Event]) -> set[str]:
    """What the consumer on Spark should get of these."""
    wanted = tocsin.Filter(MATCHED)
    return {event.id for event in events if wanted.matches(event)}

"""Random lives of a consumer, or group, with several subscriptions that overlap: nothing is lost, nothing comes twice.

They open and close, are dropped and made again, replayed and cut off half-way; what waits goes from one to the other.
Which of them gives an event is left open. The model is made of sets: what is owed, what is settled, what is in hand,
and, where DELIVERY.md leaves it open, what may come: more than a queue holds is dropped with a subscription (`small`),
and what a replay found while it waited elsewhere may come once more.

Each seed is a test, so that one can be run alone: `-k "memory and 17"`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.behaviour.test_full_disk import full_disk
from tests.helpers import event, testing

FILTERS = {
    "TRUE": lambda n: True,
    "n < 3": lambda n: n < 3,
    "n % 2 = 0": lambda n: n % 2 == 0,
    "n > 1": lambda n: n > 1,
}
ACK_WAIT, DELAY, LAST = 100, 5, 2
BOUNDS = {None: None, "all": tocsin.retained(), "last": tocsin.last(LAST)}


class Episode:
    """A node and its model side by side, driven by one seed."""

    def __init__(self, seed: int, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.url, self.clock = url, testing.ManualClock()
        self.small = self.random.random() < 0.5
        if self.small:
            capacity = self.random.choice([1, 2, 3, 5, 8])
            for module in ("lane", "refill"):
                monkeypatch.setattr(f"tocsin.delivery.{module}.CAPACITY", capacity)
        monkeypatch.setattr("tocsin.delivery.lane._FEW_LEFT", self.random.choice([0, 1, 256]))
        monkeypatch.setattr("tocsin.node.lanes._RECENT", self.random.choice([1, 3, 2048]))
        self.hot_bytes = self.random.choice([0, 3000, 10**7])
        self.options = {
            "consumer": "ops",
            "order": self.random.choice(["priority", "journal"]),
            "group": self.random.choice([None, None, "crew"]),
            "ack_wait": ACK_WAIT,
            "max_in_flight": self.random.choice([1, 3, 100]),
        }
        self.sent: dict[int, tuple[str, int]] = {}
        self.cancelled: set[int] = set()
        self.lanes: dict[str, str] = {}
        """Subscriptions: filter → id."""
        self.handles: list[tuple[str, Any]] = []
        self.owed: set[int] = set()
        self.settled: set[int] = set()
        self.may_come: set[int] = set()
        self.once_more: Counter[int] = Counter()
        self.was_settled: set[int] = set()
        self.held: dict[int, Any] = {}
        self.loose: dict[int, Any] = {}
        """In hand, of a subscription that was dropped: may still be acked."""
        self.log: list[Any] = [f"seed {seed}", self.options, self.small]

    async def play(self) -> None:
        verbs = {
            self.publish: 30, self.open: 18, self.close: 10, self.drop: 5, self.replay: 4, self.cut_off: 6,
            self.take: 30, self.ack: 8, self.wait: 4, self.cancel: 3, self.trim: 2, self.ask: 5,
        }  # fmt: skip
        if self.url != "memory:":
            verbs |= {self.restart: 8, self.fill_disk: 4}
        await self.start()
        try:
            for _ in range(self.random.randint(10, 60)):
                [verb] = self.random.choices(list(verbs), list(verbs.values()))
                await verb()
            await self.finish()
        finally:
            await self.node.__aexit__(None, None, None)

    async def start(self) -> None:
        self.node = testing.node(self.url, self.clock, hot_bytes=self.hot_bytes)
        self.bus = await self.node.__aenter__()

    def check(self, holds: bool, *words: Any) -> None:
        assert holds, (words, self.log)

    # What the model knows

    def matches(self, text: str, offset: int) -> bool:
        return FILTERS[text](self.sent[offset][1])

    def kept(self) -> list[int]:
        return sorted(each for each in self.sent.keys() - self.cancelled if each >= self.bus._node.journal.first)

    def past_of(self, text: str, past: str | None) -> set[int]:
        found = [each for each in self.kept() if self.matches(text, each)]
        return set() if past is None else set(found if past == "all" else found[-LAST:])

    def note_opened(self, text: str, past: str | None, replay: bool, handle: Any) -> None:
        found = self.past_of(text, past)
        if replay:
            self.once_more.update(found)
            self.was_settled |= found & self.settled
            self.settled -= found
            self.may_come |= found & self.held.keys()  # what is in hand is not replayed
            if self.small and text in self.lanes:
                self.leave_open({each for each in self.owed - found if self.matches(text, each)})
            self.owed |= found - self.held.keys()
        elif text not in self.lanes:
            found -= self.settled
            self.may_come |= (found & self.was_settled) - self.owed  # a replay of it was dropped
            self.owed |= found - self.was_settled
        self.lanes[text] = handle.id
        self.handles = [pair for pair in self.handles if not pair[1].closed] + [(text, handle)]

    def leave_open(self, offsets: set[int]) -> None:
        self.owed -= offsets
        self.may_come |= offsets

    def go_back(self, handles: list[Any]) -> None:
        self.held = {offset: d for offset, d in self.held.items() if d.handle not in handles}

    # Publishers

    async def publish(self) -> None:
        made = [
            event(
                f"{len(self.sent)}-{place}",
                data={"n": self.random.randint(0, 5)},
                priority=self.random.choice([1, 5, 9]),
            )
            for place in range(self.random.randint(1, 6))
        ]
        for each, answer in zip(made, await self.bus.publish_many(made), strict=True):
            self.sent[answer.offset] = (each.id, each.data["n"])
            if any(self.matches(text, answer.offset) for text in self.lanes):
                self.owed.add(answer.offset)
            self.log.append(("publish", answer.offset, each.data["n"], each.priority))

    async def cancel(self) -> None:
        if kept := self.kept():
            offset = self.random.choice(kept)
            self.log.append(("cancel", offset))
            await self.bus.cancel(self.sent[offset][0])
            self.cancelled.add(offset)
            for known in (self.owed, self.may_come):
                known.discard(offset)
            for held in (self.held, self.loose):
                held.pop(offset, None)

    # Subscriptions

    async def open(self) -> None:
        text, past = self.random.choice(list(FILTERS)), self.random.choice([None, *BOUNDS])
        self.log.append(("open", text, past))
        handle = await self.bus.subscribe(text, past=BOUNDS[past], **self.options)
        self.note_opened(text, past, False, handle)

    async def replay(self) -> None:
        text, past = self.random.choice(list(FILTERS)), self.random.choice([None, *BOUNDS])
        self.log.append(("replay", text, past))
        old = [handle for other, handle in self.handles if other == text]
        handle = await self.bus.subscribe(text, past=BOUNDS[past], replay=True, **self.options)
        self.go_back(old)
        self.note_opened(text, past, True, handle)

    async def cut_off(self) -> None:
        """Subscribe, and change one's mind: it is done, or everything is as it was but that old handles are closed."""
        text, past = self.random.choice(list(FILTERS)), self.random.choice([None, *BOUNDS])
        replay, ticks = self.random.random() < 0.3, self.random.randint(0, 30)
        if replay and any(d.handle.lane.record.text == text for d in self.held.values()):
            return
        task = asyncio.ensure_future(self.bus.subscribe(text, past=BOUNDS[past], replay=replay, **self.options))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        self.log.append(("cut off", text, past, replay, ticks, task.cancelled()))
        if not task.cancelled():
            self.note_opened(text, past, replay, task.result())
        await self.expect_subscriptions()

    async def fill_disk(self) -> None:
        text, replay = self.random.choice(list(FILTERS)), self.random.random() < 0.3
        if replay and any(d.handle.lane.record.text == text for d in self.held.values()):
            return
        self.log.append(("full disk", text, replay))
        await testing.settled(self.bus)
        with full_disk(self.bus), suppress(tocsin.JournalFullError):
            await self.bus.subscribe(text, past=tocsin.retained(), replay=replay, **self.options)
            self.check(False, "subscribed on a full disk")
        await self.expect_subscriptions()

    async def expect_subscriptions(self) -> None:
        self.handles = [pair for pair in self.handles if not pair[1].closed]
        known = [text for info in await self.bus.consumers() for _, text in info.subscriptions]
        self.check(sorted(known) == sorted(self.lanes), known)

    async def close(self) -> None:
        if self.handles:
            text, handle = self.handles.pop(self.random.randrange(len(self.handles)))
            self.log.append(("close", text))
            await handle.close()
            self.go_back([handle])

    async def drop(self) -> None:
        if not self.lanes:
            return
        text = self.random.choice(list(self.lanes))
        self.log.append(("drop", text))
        await self.bus.unsubscribe("ops", self.lanes.pop(text))
        self.handles = [pair for pair in self.handles if pair[0] != text]
        mine = {each for each in (self.owed | self.may_come | self.held.keys()) - self.settled}
        mine = {each for each in mine if self.matches(text, each)}
        gone = {each for each in mine if not any(self.matches(other, each) for other in self.lanes)}
        self.owed -= gone
        self.may_come -= gone
        self.loose |= {each: self.held.pop(each) for each in gone & self.held.keys()}
        if self.small:
            self.leave_open(mine & self.owed)

    # Deliveries

    async def take(self) -> None:
        if not self.handles:
            return
        text, handle = self.random.choice(self.handles)
        for _ in range(self.random.randint(1, 5)):
            await testing.settled(self.bus)
            d = handle.poll()
            if d is None:
                break
            if d.notice:
                continue
            self.got(text, d)
            verb = self.random.choices(["ack", "nak", "later", "term", "hold"], [50, 10, 8, 4, 25])[0]
            self.log.append((verb, text, d.offset))
            await self.settle(d, verb)

    def got(self, text: str, d: Any) -> None:
        offset = d.offset
        if offset in self.settled and self.once_more[offset] > 0:
            self.once_more[offset] -= 1
            self.settled.remove(offset)
        self.check(self.matches(text, offset), "does not match", offset)
        self.check(offset not in self.settled, "was settled", offset)
        self.check(offset not in self.held, "is in hand", offset)
        self.check(offset in self.owed or offset in self.may_come, "was not asked for", offset)
        self.check(offset not in self.cancelled, "was cancelled", offset)
        self.held[offset] = d

    async def settle(self, d: Any, verb: str) -> None:
        if verb == "hold":
            return
        del self.held[d.offset]
        await (d.nak(delay=DELAY) if verb == "later" else getattr(d, verb)())
        if verb in ("ack", "term"):
            self.settled.add(d.offset)

    async def ack(self) -> None:
        if self.loose and self.random.random() < 0.5:
            offset = self.random.choice(list(self.loose))
            self.log.append(("ack of what was dropped", offset))
            await self.loose.pop(offset).ack()
            if offset not in self.held:
                self.settled.add(offset)
        elif self.held:
            offset = self.random.choice(list(self.held))
            self.log.append(("ack", offset))
            await self.settle(self.held[offset], "ack")

    async def ask(self) -> None:
        """Status knows what is still to be settled."""
        sure = [each for each in self.kept() if each not in self.may_come and not self.once_more[each]]
        for offset in self.random.sample(sure, min(3, len(sure))):
            status = await self.bus.status(self.sent[offset][0])
            self.check(bool(status.pending) == (offset in self.owed - self.settled), "status", offset, status)

    # The world

    async def wait(self) -> None:
        seconds = self.random.choice([DELAY + 1, ACK_WAIT + 1])
        self.log.append(("wait", seconds))
        self.clock.advance(seconds)
        if seconds > ACK_WAIT:
            self.held.clear()
        await testing.settled(self.bus)

    async def trim(self) -> None:
        self.clock.advance(0.5)
        first = await self.bus.trim(older_than=timedelta(0))
        self.log.append(("trim", first))
        self.check(min(self.owed - self.settled, default=first) >= first, "trimmed")

    async def restart(self) -> None:
        end = self.random.choice(["close", "crash"])
        self.log.append(end)
        if end == "crash":
            await testing.crash(self.bus)
        await self.node.__aexit__(None, None, None)
        await self.start()
        self.handles.clear()
        self.held.clear()
        self.loose.clear()

    async def finish(self) -> None:
        """Open what is closed and take all that is left."""
        for offset in list(self.held):
            await self.settle(self.held[offset], "ack")
        self.clock.advance(2 * ACK_WAIT)
        for text in self.lanes:
            if text not in [other for other, _ in self.handles]:
                self.handles.append((text, await self.bus.subscribe(text, **self.options)))
        idle = 0
        while idle < 12:  # a handle may pass over what is cancelled, and have to read on, before it gives something
            idle += 1
            for text, handle in self.handles:
                await testing.settled(self.bus)
                while (d := handle.poll()) is not None:
                    idle = 0
                    if not d.notice:
                        self.got(text, d)
                        await self.settle(d, "ack")
                    await testing.settled(self.bus)
        self.check(self.owed <= self.settled, "lost", self.owed - self.settled)
        for info in await self.bus.consumers():
            self.check((info.in_flight, info.lag) == (0, 0), info)


@pytest.mark.parametrize("seed", range(200))
async def test_on_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    await Episode(seed, "memory:", monkeypatch).play()


@pytest.mark.parametrize("seed", range(40))
async def test_on_file(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    await Episode(seed, f"file:{tmp_path / 'plant.db'}", monkeypatch).play()

"""Random publish, subscribe, take, settle, cancel, wait, close and crash against a model made of sets.

The model is naive on purpose: a consumer wants a set of events, has settled a set, holds some; what it gets next is the
most urgent, then oldest, of the rest. Every poll must give that. Times carry fractions that never add up to an
integer number of seconds, so that no test depends on what happens at the very instant of a deadline.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import tocsin
from tests.helpers import event, testing

FILTERS = {"TRUE": lambda n: True, "n < 3": lambda n: n < 3, "n % 2 = 0": lambda n: n % 2 == 0}
ACK_WAIT, DELAY, TTL, WINDOW = 30.5, 5.25, 12.125, 3


@dataclass
class Sent:
    """An event, as published."""

    id: str
    offset: int
    n: int
    priority: int
    persistent: bool
    expires: float | None
    cancelled: bool = False


@dataclass
class Held:
    """A delivery that was taken and not settled."""

    delivery: Any
    deadline: float


@dataclass
class Consumer:
    """What the model knows of a consumer. `handles` are open, by filter."""

    order: str
    filters: set[str] = field(default_factory=set)
    wanted: set[str] = field(default_factory=set)
    """Events that came while a filter was there that matches them, and those that a past brought."""
    settled: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    held: dict[str, Held] = field(default_factory=dict)
    delayed: dict[str, float] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    """Taken before a restart: whether attempts are counted on is not promised."""
    had: set[str] = field(default_factory=set)
    to_tell: set[str] = field(default_factory=set)
    handles: dict[str, Any] = field(default_factory=dict)


ORDERS = {"priority": lambda sent: (-sent.priority, sent.offset), "journal": lambda sent: sent.offset}


def open_for(consumer: Consumer, sent: Sent) -> list[str]:
    """The open handles that may give an event; one of them will. Which, if there are several, the model leaves open."""
    return [text for text in consumer.handles if FILTERS[text](sent.n)]


class Delivery(RuleBasedStateMachine):
    """A node and its model side by side."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.url = "memory:" if self.kind == "memory" else f"file:{self.folder.name}/plant.db"
        self.clock = testing.ManualClock()
        self.now = 0.0
        self.sent: dict[str, Sent] = {}
        self.consumers: dict[str, Consumer] = {}
        self.open()

    def run(self, wait: Any) -> Any:
        return self.runner.run(asyncio.wait_for(wait, 20))

    def open(self) -> None:
        self.node = testing.node(url=self.url, clock=self.clock)
        self.bus = self.run(self.node.__aenter__())

    def teardown(self) -> None:
        self.run(self.node.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()

    # What the model expects

    def alive(self, sent: Sent) -> bool:
        return not sent.cancelled and (sent.expires is None or self.now < sent.expires)

    def due(self, consumer: Consumer) -> list[Sent]:
        """What the consumer must be given now, in order, as far as an open handle matches it."""
        if len(consumer.held) >= WINDOW:
            return []
        waiting = [self.sent[id] for id in consumer.wanted - consumer.settled - consumer.held.keys()]
        due = [sent for sent in waiting if self.alive(sent) and consumer.delayed.get(sent.id, 0) <= self.now]
        return sorted((sent for sent in due if open_for(consumer, sent)), key=ORDERS[consumer.order])

    # Publishers

    @rule(
        n=st.integers(0, 5),
        priority=st.sampled_from([1, 5, 9]),
        ttl=st.sampled_from([None, None, TTL]),
        persistent=st.sampled_from([True, True, True, False]),
    )
    def publish(self, n: int, priority: int, ttl: float | None, persistent: bool) -> None:
        id = str(len(self.sent))
        made = event(id, data={"n": n}, priority=priority, ttl=ttl, persistent=persistent, cancel="any")
        answer = self.run(self.bus.publish(made))
        assert all(answer.offset > sent.offset for sent in self.sent.values() if sent.persistent)
        expires = None if ttl is None else self.now + ttl
        self.sent[id] = Sent(id, answer.offset, n, priority, persistent, expires)
        for consumer in self.consumers.values():
            if any(FILTERS[text](n) for text in consumer.filters):
                consumer.wanted.add(id)

    @precondition(lambda self: any(sent.persistent for sent in self.sent.values()))
    @rule(data=st.data())
    def publish_again(self, data: st.DataObject) -> None:
        sent = self.sent[data.draw(st.sampled_from(sorted(id for id, sent in self.sent.items() if sent.persistent)))]
        assert self.run(self.bus.publish(event(sent.id))).offset == sent.offset

    @precondition(lambda self: any(self.alive(sent) for sent in self.sent.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        sent = self.sent[data.draw(st.sampled_from(sorted(id for id, sent in self.sent.items() if self.alive(sent))))]
        self.run(self.bus.cancel(sent.id))
        sent.cancelled = True
        for consumer in self.consumers.values():
            consumer.held.pop(sent.id, None)
            if sent.id in consumer.had:
                consumer.to_tell.add(sent.id)

    # Consumers

    @rule(name=st.sampled_from("AB"), text=st.sampled_from(sorted(FILTERS)), past=st.sampled_from([None, *"rl"]))
    def subscribe(self, name: str, text: str, past: str | None) -> None:
        """Open a handle that is not open yet; the past is for a filter the consumer did not have."""
        order = {"A": "priority", "B": "journal"}[name]
        consumer = self.consumers.setdefault(name, Consumer(order))
        if text in consumer.handles:
            return
        new = text not in consumer.filters
        bound = {None: None, "r": tocsin.retained(), "l": tocsin.last(2)}[past] if new else None
        options = {"order": order, "ack_wait": ACK_WAIT, "max_in_flight": WINDOW}
        handle = self.run(self.bus.subscribe(text, consumer=name, past=bound, **options))
        consumer.handles[text] = handle
        consumer.filters.add(text)
        if bound is not None:
            match = [id for id, sent in self.sent.items() if FILTERS[text](sent.n) and self.alive(sent)]
            consumer.wanted |= set(match if past == "r" else match[-2:])

    def opened(self) -> list[tuple[str, str]]:
        return [(name, text) for name, each in sorted(self.consumers.items()) for text in sorted(each.handles)]

    @precondition(lambda self: self.opened())
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        self.take_from(*data.draw(st.sampled_from(self.opened())))

    @rule(name=st.sampled_from("AB"))
    def drain(self, name: str) -> None:
        """Ask every open handle until none gives anything: nothing that is due may be left."""
        consumer = self.consumers.get(name, Consumer("journal"))
        while any([self.take_from(name, text) for text in sorted(consumer.handles)]):
            pass
        assert not self.due(consumer)

    def take_from(self, name: str, text: str) -> bool:
        """What comes is due, and nothing that only this handle can give is due before it."""
        consumer = self.consumers[name]
        handle = consumer.handles[text]
        due = {sent.id: sent for sent in self.due(consumer) if text in open_for(consumer, sent)}
        first = next((sent for sent in due.values() if open_for(consumer, sent) == [text]), None)
        while (got := self.run(self.poll(handle))) is not None and got.notice:
            assert got.event.type == "tocsin.cancelled"
            consumer.to_tell.remove(got.event.correlation_id)
        if got is None:
            assert first is None
            return False
        id = got.event.id
        assert id in due and got.offset == due[id].offset
        assert first is None or list(due).index(id) <= list(due).index(first.id)
        consumer.attempts[id] = consumer.attempts.get(id, 0) + 1
        assert got.attempt == consumer.attempts[id] or id in consumer.unsure
        consumer.held[id] = Held(got, self.now + ACK_WAIT)
        consumer.had.add(id)
        return True

    async def poll(self, handle: Any) -> Any:
        await testing.settled(self.bus)
        return handle.poll()

    def holding(self) -> list[tuple[str, str]]:
        return [(name, id) for name, each in sorted(self.consumers.items()) for id in sorted(each.held)]

    @precondition(lambda self: self.holding())
    @rule(data=st.data(), verb=st.sampled_from(["ack", "ack", "nak", "later", "term", "in_progress"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        name, id = data.draw(st.sampled_from(self.holding()))
        consumer = self.consumers[name]
        held = consumer.held[id]
        if verb == "in_progress":
            self.run(held.delivery.in_progress())
            held.deadline = self.now + ACK_WAIT
            return
        del consumer.held[id]
        if verb == "ack":
            self.run(held.delivery.ack())
            consumer.settled.add(id)
            consumer.acked.add(id)
        elif verb == "term":
            self.run(held.delivery.term("no"))
            consumer.settled.add(id)
        elif verb == "nak":
            self.run(held.delivery.nak())
        else:
            self.run(held.delivery.nak(delay=DELAY))
            consumer.delayed[id] = self.now + DELAY

    @precondition(lambda self: self.opened())
    @rule(data=st.data())
    def close_handle(self, data: st.DataObject) -> None:
        """What it gave and nobody settled is settled first, so that the model need not say when it comes back."""
        name, text = data.draw(st.sampled_from(self.opened()))
        consumer = self.consumers[name]
        for id in sorted(consumer.held):
            self.run(consumer.held.pop(id).delivery.ack())
            consumer.settled.add(id)
            consumer.acked.add(id)
        self.run(consumer.handles.pop(text).close())

    # The world

    @rule(seconds=st.sampled_from([1, 6, 13, 31]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.now += seconds
        for consumer in self.consumers.values():
            for id in [id for id, held in consumer.held.items() if held.deadline < self.now]:
                del consumer.held[id]

    @precondition(lambda self: self.kind == "file")
    @rule(how=st.sampled_from(["close", "crash"]))
    def restart(self, how: str) -> None:
        """In flight becomes undelivered; events that are not persistent are gone; delays are over."""
        if how == "crash":
            self.run(testing.crash(self.bus))
        self.run(self.node.__aexit__(None, None, None))
        self.open()
        for consumer in self.consumers.values():
            consumer.handles.clear()
            consumer.held.clear()
            consumer.delayed.clear()
            consumer.unsure |= consumer.attempts.keys()
            consumer.wanted -= {id for id, sent in self.sent.items() if not sent.persistent}
        for sent in self.sent.values():
            if not sent.persistent and sent.expires is None:
                sent.expires = self.now  # never to be delivered again

    @invariant()
    def status_agrees(self) -> None:
        for sent in list(self.sent.values())[-3:]:
            if not sent.persistent:
                continue
            status = self.run(self.bus.status(sent.id))
            acked = {name for name, each in self.consumers.items() if sent.id in each.acked}
            settled = {name for name, each in self.consumers.items() if sent.id in each.settled}
            assert acked <= set(status.acked) <= settled  # whether `term` counts as an ack is not said
            if sent.cancelled:
                assert status.state == "cancelled"
            elif self.alive(sent):
                assert status.state in ("live", "settled")


class OnMemory(Delivery):
    kind = "memory"


class OnFile(Delivery):
    kind = "file"


OnMemory.TestCase.settings = settings(stateful_step_count=40)
OnFile.TestCase.settings = settings(stateful_step_count=40, max_examples=settings().max_examples // 2)
TestOnMemory = pytest.mark.timeout(600)(OnMemory.TestCase)
TestOnFile = pytest.mark.timeout(600)(OnFile.TestCase)

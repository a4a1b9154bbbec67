"""Others that find `SEQ([type='a'] AS a, [type='b'] AS b) BY k` in context chronicle, for the same stream.

    loop         a dictionary of queues, written for this one question; tells pairs of offsets
    loop_events  the same, and tells what we tell: an `Event` with parts, key and a hashed id
    notify       an event graph as in Sentinel: nodes with `notify`, one for each operator; no other generality
    durable      durable_rules from PyPI, a Rete in C with a Python front; order is a condition on offsets

Each has `feed_batch(events)`, which returns the pairs of offsets found.
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Any

from tocsin import Event

__all__ = ["PEERS", "DurablePeer", "LoopEventsPeer", "LoopPeer", "NotifyPeer", "durable_failure"]

Pair = tuple[int, int]


class LoopPeer:
    """What one would write by hand."""

    def __init__(self) -> None:
        self._open: dict[Any, deque[int]] = {}

    def feed_batch(self, events: Iterable[Event]) -> list[Pair]:
        waiting, found = self._open, []
        for event in events:
            if event.type == "a":
                key = event.data["k"]
                if key in waiting:
                    waiting[key].append(event.offset or 0)
                else:
                    waiting[key] = deque([event.offset or 0])
            elif event.type == "b":
                openers = waiting.get(event.data["k"])
                if openers:
                    found.append((openers.popleft(), event.offset or 0))
        return found


class LoopEventsPeer:
    """The same, and it tells as much as we do."""

    def __init__(self) -> None:
        self._open: dict[Any, deque[Event]] = {}
        self.told: list[Event] = []

    def feed_batch(self, events: Iterable[Event]) -> list[Pair]:
        waiting, found = self._open, []
        for event in events:
            if event.type == "a":
                waiting.setdefault(event.data["k"], deque()).append(event)
            elif event.type == "b":
                openers = waiting.get(event.data["k"])
                if openers:
                    opener = openers.popleft()
                    found.append((opener.offset or 0, event.offset or 0))
                    self.told.append(_told(opener, event))
        return found


def _told(opener: Event, closer: Event) -> Event:
    made = "\0".join(("pair", opener.source, opener.id, closer.source, closer.id)).encode()
    parts = [
        {"name": name, "offset": event.offset, "id": event.id, "source": event.source}
        for name, event in (("a", opener), ("b", closer))
    ]
    data = {"parts": parts, "key": {"k": closer.data["k"]}}
    digest = hashlib.blake2b(made, digest_size=16).hexdigest()
    return Event("pair", "loop", id=digest, time=closer.time, data=data)


class _Node(ABC):
    """A node of an event graph: it is notified, and notifies what it is a part of."""

    def __init__(self) -> None:
        self.parents: list[tuple[_Node, int]] = []

    def tell(self, key: Any, occurrence: tuple[Event, ...]) -> None:
        for parent, role in self.parents:
            parent.notify(role, key, occurrence)

    @abstractmethod
    def notify(self, role: int, key: Any, occurrence: tuple[Event, ...]) -> None:
        """A constituent has occurred."""


class _Primitive(_Node):
    def notify(self, role: int, key: Any, occurrence: tuple[Event, ...]) -> None:
        self.tell(key, occurrence)


class _Sequence(_Node):
    """SEQ in context chronicle."""

    def __init__(self, first: _Node, second: _Node) -> None:
        super().__init__()
        first.parents.append((self, 0))
        second.parents.append((self, 1))
        self._open: dict[Any, deque[tuple[Event, ...]]] = {}

    def notify(self, role: int, key: Any, occurrence: tuple[Event, ...]) -> None:
        if role == 0:
            self._open.setdefault(key, deque()).append(occurrence)
        elif openers := self._open.get(key):
            self.tell(key, (*openers.popleft(), *occurrence))


class _Rule(_Node):
    def __init__(self, whole: _Node) -> None:
        super().__init__()
        whole.parents.append((self, 0))
        self.found: list[Pair] = []

    def notify(self, role: int, key: Any, occurrence: tuple[Event, ...]) -> None:
        self.found.append((occurrence[0].offset or 0, occurrence[-1].offset or 0))


class NotifyPeer:
    """The classic event graph."""

    def __init__(self) -> None:
        self._leaves = {"a": _Primitive(), "b": _Primitive()}
        self._rule = _Rule(_Sequence(self._leaves["a"], self._leaves["b"]))

    def feed_batch(self, events: Iterable[Event]) -> list[Pair]:
        leaves, self._rule.found = self._leaves, []
        for event in events:
            leaf = leaves.get(event.type)
            if leaf is not None:
                leaf.notify(0, event.data["k"], (event,))
        return self._rule.found


class DurablePeer:
    """durable_rules. Events are dictionaries there; making them is not part of what is timed: see `given`."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        from durable.lang import c, m, ruleset, when_all

        self._name = f"pair{next(self._numbers)}"
        found = self.found = []  # type: list[Pair]
        with ruleset(self._name):

            @when_all(c.a << (m.type == "a"), c.b << (m.type == "b") & (m.k == c.a.k) & (m.n > c.a.n))
            def pair(c: Any) -> None:
                found.append((c.a.n, c.b.n))

    @staticmethod
    def given(events: Iterable[Event]) -> list[dict[str, Any]]:
        return [{"type": event.type, "k": event.data["k"], "n": event.offset} for event in events]

    def feed_batch(self, events: Iterable[dict[str, Any]]) -> list[Pair]:
        from durable.engine import MessageNotHandledException
        from durable.lang import post

        for event in events:
            try:
                post(self._name, event)
            except MessageNotHandledException:  # how it says that no rule knows such an event
                continue
        return self.found


def durable_failure() -> str | None:
    """Why durable_rules cannot be compared; None: it can."""
    try:
        DurablePeer()
    except ImportError as error:
        return f"durable_rules is not there ({error}): pip install -e '.[bench]'"
    return None


PEERS = {"loop": LoopPeer, "loop_events": LoopEventsPeer, "notify": NotifyPeer, "durable": DurablePeer}

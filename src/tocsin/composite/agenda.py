"""What time brings: which cells are to be looked at when, because they tick or because something in them grows too old.

There is one note of each sort for an operation and a key at most that counts, for the first of what is to come. When it
has come, the cell is looked at and the next one noted. So a note may be for something that is gone: looking costs
little, and nothing follows. However many come and go, notes are as many as keys.

Notes follow from the state, and are made anew from it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from tocsin.composite.calendar import Calendar
from tocsin.composite.keys import Key
from tocsin.composite.operations import Cell, Operation
from tocsin.composite.state import State, uncollected
from tocsin.composite.windows import next_due

__all__ = ["NOW", "SLACK", "Agenda"]

NOW = -(1 << 62)
"""Before any instant: there may be something to do."""
SLACK = 250_000
"""Microseconds for which what is too old may stay where it is, in operations of which `is_plain` is true: a closer does
not take it, and who touches the cell gives it up first. Many are given up together in less time."""

Notes = list[tuple[int, int, Operation, Key]]
"""A heap, by instant; a number breaks ties, since neither operations nor keys compare."""


class Agenda:
    """Notes for all operations of an engine."""

    def __init__(self, state: State, operations: Iterable[Operation]) -> None:
        """Note what the state has open."""
        self._state = state
        self.timers: Notes = []
        self.expiries: Calendar[tuple[Operation, Key]] = Calendar()
        self._plain: Calendar[tuple[Operation, Key]] = Calendar()  # those of `Operation.is_plain`
        self.wake = NOW
        """Up to this instant there is nothing to do …"""
        self.must = NOW
        """… and up to this one nothing that cannot wait, for who looks himself for what is too old: see `SLACK`."""
        self._numbers = itertools.count()
        with uncollected():
            for operation in operations:
                operation.relieve = self.expire
                self._watch_all(operation)

    def __len__(self) -> int:
        """How many notes of expiry there are."""
        return len(self.expiries) + len(self._plain)

    def watch(self, operation: Operation, key: Key, cell: Cell, first: int | None) -> None:
        """See to it that a cell is looked at when it ticks, and when what began at `first` is too old."""
        rules = operation.node.rules
        if rules.period and key not in operation.ticking:
            # A note that there is comes first: periods are equal, and what opens now is due later than what is open.
            operation.ticking.add(key)
            due = next_due(rules, cell)
            heapq.heappush(self.timers, (due, next(self._numbers), operation, key))
            self.wake, self.must = min(self.wake, due), min(self.must, due)
        if first is not None and rules.within is not None:
            instant = first + rules.within
            noted = operation.expiries.get(key)
            if noted is None or instant < noted:
                self._expire_at(operation, key, instant)

    def expect(self, operation: Operation, key: Key, first: int) -> None:
        """See to it that a cell is looked at when what began at `first` is too old; nothing is noted for it yet."""
        within = operation.node.rules.within
        assert within is not None
        self._expire_at(operation, key, first + within)

    def _expire_at(self, operation: Operation, key: Key, instant: int) -> None:
        operation.expiries[key] = instant
        self._put(operation, key, instant)
        if instant < self.wake:
            self.wake = instant
        if operation.is_plain:
            instant += SLACK
        if instant < self.must:
            self.must = instant

    def _put(self, operation: Operation, key: Key, instant: int) -> None:
        notes = self._plain if operation.is_plain else self.expiries
        notes.put(instant, next(self._numbers), (operation, key))

    def settle(self, other: int) -> None:
        """Find out how long there is nothing to do; `other` is what else comes next."""
        if self.timers:
            other = min(other, self.timers[0][0])
        other = min(other, self.expiries.next)
        self.wake, self.must = min(other, self._plain.next), min(other, self._plain.next + SLACK)

    def _watch_all(self, operation: Operation) -> None:
        """The same for all cells of an operation, which may be many."""
        period, within, oldest = operation.node.rules.period, operation.node.rules.within, operation.work.oldest
        if period:
            for key, cell in operation.cells.items():
                self.watch(operation, key, cell, None)
        if within is not None:
            operation.expiries = {key: oldest(cell) + within for key, cell in operation.cells.items()}
            for key, instant in operation.expiries.items():
                self._put(operation, key, instant)

    def due(self, instant: int) -> dict[int, dict[Key, None]]:
        """Take the timers of an instant, which must be the next one: operation → keys, in the order of notes."""
        found: dict[int, dict[Key, None]] = {}
        while self.timers and self.timers[0][0] == instant:
            _, _, operation, key = heapq.heappop(self.timers)
            operation.ticking.discard(key)
            found.setdefault(operation.number, {})[key] = None
        return found

    def expire(self) -> None:
        """Give up what cannot be completed any more."""
        now, take = self._state.time, self.expiries.take
        while (note := take(now)) is not None:
            instant, _, (operation, key) = note
            if operation.expiries.get(key) != instant:
                continue  # there was an earlier one, and it has made the next
            del operation.expiries[key]
            cell = operation.expire(key, now)
            if cell is not None:
                self.watch(operation, key, cell, operation.work.oldest(cell))
        take, put, numbers = self._plain.take, self._plain.put, self._numbers
        while (note := take(now)) is not None:
            operation, key = note[2]
            first = operation.expire_oldest(key, now)
            if first is not None:
                put(first + operation.within, next(numbers), note[2])
            else:
                del operation.expiries[key]

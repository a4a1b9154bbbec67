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

from tocsin.composite.keys import Key
from tocsin.composite.operations import Operation
from tocsin.composite.state import State, uncollected
from tocsin.composite.windows import Cell, next_due

__all__ = ["Agenda"]

Notes = list[tuple[int, int, Operation, Key]]
"""A heap, by instant; a number breaks ties, since neither operations nor keys compare."""


class Agenda:
    """Notes for all operations of an engine."""

    def __init__(self, state: State, operations: Iterable[Operation]) -> None:
        """Note what the state has open."""
        self._state = state
        self.timers: Notes = []
        self.expiries: Notes = []
        self._numbers = itertools.count()
        with uncollected():
            for operation in operations:
                self._watch_all(operation)

    def watch(self, operation: Operation, key: Key, cell: Cell, first: int | None) -> None:
        """See to it that a cell is looked at when it ticks, and when what began at `first` is too old."""
        rules = operation.node.rules
        if rules.period and key not in operation.ticking:
            # A note that there is comes first: periods are equal, and what opens now is due later than what is open.
            operation.ticking.add(key)
            heapq.heappush(self.timers, (next_due(rules, cell), next(self._numbers), operation, key))
        if first is not None and rules.within is not None:
            instant = first + rules.within
            noted = operation.expiries.get(key)
            if noted is None or instant < noted:
                operation.expiries[key] = instant
                heapq.heappush(self.expiries, (instant, next(self._numbers), operation, key))

    def _watch_all(self, operation: Operation) -> None:
        """The same for all cells of an operation, which may be many."""
        period, within, oldest = operation.node.rules.period, operation.node.rules.within, operation.work.oldest
        if period:
            for key, cell in operation.cells.items():
                self.watch(operation, key, cell, None)
        if within is not None:
            operation.expiries = {key: oldest(cell) + within for key, cell in operation.cells.items()}
            numbers = self._numbers
            self.expiries += [(instant, next(numbers), operation, key) for key, instant in operation.expiries.items()]
            heapq.heapify(self.expiries)

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
        now, expiries = self._state.time, self.expiries
        while expiries and expiries[0][0] < now:
            instant, _, operation, key = heapq.heappop(expiries)
            if operation.expiries.get(key) != instant:
                continue  # there was an earlier one, and it has made the next
            del operation.expiries[key]
            cell = operation.expire(key, now)
            if cell is not None:
                self.watch(operation, key, cell, operation.work.oldest(cell))

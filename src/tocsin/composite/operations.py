"""Nodes at work: the cells of an operation, how much they hold, and what happens when that is too much."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tocsin.composite.graph import Graph, OperationNode
from tocsin.composite.keys import Key
from tocsin.composite.occurrence import Occurrence, Part, Window, start_of, windows_of
from tocsin.composite.pairs import Pairs
from tocsin.composite.pools import Either, Pools
from tocsin.composite.state import Counts, State
from tocsin.composite.windows import Windows

__all__ = ["Cell", "Operation", "figures"]

Cell = list[Any]
"""Of windows; of parts where `Operation.is_plain` says so."""


class Operation:
    """An operation of the graph with its state, for all keys."""

    __slots__ = (
        "_counts",
        "_context",
        "_has_within",
        "_max_open",
        "cells",
        "expiries",
        "is_plain",
        "is_timed",
        "leaves",
        "node",
        "number",
        "open",
        "relieve",
        "size",
        "ticking",
        "within",
        "work",
    )

    def __init__(self, number: int, node: OperationNode, kinds: int, state: State, max_open: int) -> None:
        """Take up the state of a node that has so many kinds of constituents."""
        rules = node.rules
        self.number, self.node = number, node
        self._counts = state.counts
        self._max_open = max_open if node.max_open is None else node.max_open
        self.work: Windows | Pairs | Pools | Either
        """What arrivals do to a cell."""
        if node.is_pool:
            self.work = (Either if rules.operator == "OR" else Pools)(rules, kinds)
        else:
            self.work = Pairs(rules) if Pairs.can(rules) else Windows(rules)
        self.is_plain = isinstance(self.work, Pairs)
        """Do cells hold openers that are single events, the oldest first, and nothing else? See `pairs`."""
        self.leaves = self.is_plain and rules.accept is None and not rules.interval
        """… and does a closer take all of them that are not too old, or the first? See `leave`."""
        self._context, self.within = rules.context, rules.within or 0
        self._has_within = rules.within is not None
        self.relieve: Callable[[], None] = _nothing
        """Gives up all that is too old by now; see `Agenda`."""
        self.size: Callable[[Cell], int] = self.work.size
        self.cells: dict[Key, Cell] = state.cells.setdefault(node.identity, {})
        _as(Part if self.is_plain else Window, self.cells)
        self.open = sum(map(self.size, self.cells.values()))
        """How much all cells hold."""
        self.is_timed = bool(rules.period) or rules.within is not None
        self.expiries: dict[Key, int] = {}
        """See `Agenda`: keys of which the expiry is noted, and for when."""
        self.ticking: set[Key] = set()
        """See `Agenda`: keys of which a timer is noted."""

    def keep(self, key: Key, cell: Cell, before: int) -> None:
        """File a cell that was changed, and held so much before."""
        if cell:
            self.cells[key] = cell
            self.open += self.size(cell) - before
            while self.open > self._max_open:
                self._drop()
        else:
            self.cells.pop(key, None)
            self.open -= before

    def enter(self, key: Key, cell: Cell | None, opener: Part) -> bool:
        """Keep an opener, where `is_plain` says so; returns whether it is too old before anything that is noted."""
        if cell is None:
            self.cells[key] = [opener]
        else:
            if self._context == "recent":
                self.open -= len(cell)
                cell.clear()
            cell.append(opener)
        self.open += 1
        if self.open > self._max_open:
            self.relieve()  # what is too old goes first
            while self.open > self._max_open:
                self._drop()
        return self._has_within and key not in self.expiries

    def leave(self, key: Key, cell: Cell, closer: Part, offset: int) -> list[Occurrence]:
        """What occurs at an event that closes, where `leaves` says so, all openers came before, and none is too old."""
        context = self._context
        if context == "chronicle":
            used = [cell[0]]
            del cell[0]
        elif context == "recent":
            used = cell
        else:
            used = cell[:]
            cell.clear()
        if not cell:
            del self.cells[key]
        if context != "recent":
            self.open -= len(used)
        time = closer.time
        return [Occurrence(each.time, start_of(each), time, offset, (each, closer)) for each in used]

    def has_room(self, more: int) -> bool:
        """Can it keep so many openers more?"""
        return self.open + more <= self._max_open

    def count_expired(self, gone: int) -> None:
        """Count openers that somebody gave up because they were too old."""
        if gone:
            _count(self._counts.expired, self.node.identity, gone)

    def expire_oldest(self, key: Key, now: int) -> int | None:
        """`expire` where `is_plain` says so; returns when the oldest began that is left, if any is."""
        cell = self.cells.get(key)
        if cell is None:
            return None
        border, gone, first = now - self.within, 0, 0
        for part in cell:
            first = part.time
            if first >= border:
                break
            gone += 1
        if gone:
            _count(self._counts.expired, self.node.identity, gone)
            self.open -= gone
            if gone == len(cell):
                del self.cells[key]
                return None
            del cell[:gone]
        return first

    def expire(self, key: Key, now: int) -> Cell | None:
        """Give up what cannot be completed any more; returns the cell if something is left."""
        cell = self.cells.get(key)
        if cell is None:
            return None
        before = self.size(cell)
        gone = self.work.expire(cell, now)
        if gone:
            _count(self._counts.expired, self.node.identity, gone)
        self.keep(key, cell, before)
        return cell or None

    def _drop(self) -> None:
        """Give up the oldest opener of the key that has waited longest."""
        key, cell = next(iter(self.cells.items()))
        node, before = self.node, self.size(cell)
        if self.is_plain:
            del cell[0]
            if not cell:
                del self.cells[key]
            self.open -= 1
            _count(self._counts.dropped, node.identity, 1)
            return
        oldest = next(window for window in cell if window.openers)
        del oldest.openers[0]
        if not oldest.openers and not (node.is_pool and node.rules.context != "continuous"):
            cell.remove(oldest)
        if not any(window.openers for window in cell):
            del self.cells[key]
            cell.clear()
        self.open -= before - self.size(cell)
        _count(self._counts.dropped, node.identity, 1)


def figures(graph: Graph, operations: Mapping[int, Operation], counts: Counts) -> dict[str, dict[str, int]]:
    """For each definition what it has detected, and what its operations hold and gave up.

    Operations that definitions share count for each of them; those of a definition it names are not its own.
    """
    own: dict[int, set[int]] = {number: {number} for number in operations}
    found = {}
    for number, node in enumerate(graph.nodes):  # constituents come first
        mine = own.get(number, set())
        for link in node.links:
            if link.key is None:
                own[link.to] |= mine
        for definition in node.outputs:
            name = graph.definitions[definition].name
            identities = [operations[each].node.identity for each in mine]
            found[name] = {
                "detected": counts.detected.get(name, 0),
                "open": sum(operations[each].open for each in mine),
                "expired": sum(counts.expired.get(identity, 0) for identity in identities),
                "dropped": sum(counts.dropped.get(identity, 0) for identity in identities),
            }
    return {definition.name: found[definition.name] for definition in graph.definitions}


def _as(kind: type[Part | Window], cells: dict[Key, Cell]) -> None:
    """What is open as `pairs` or `windows` has it, where an earlier version has left the other."""
    for cell in cells.values():
        if cell and not isinstance(cell[0], kind):
            cell[:] = [window.openers[0].parts[0] for window in cell] if kind is Part else windows_of(cell)


def _nothing() -> None:
    pass


def _count(counts: dict[str, int], name: str, more: int) -> None:
    counts[name] = counts.get(name, 0) + more

"""Nodes at work: the cells of an operation, how much they hold, and what happens when that is too much."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.composite.graph import Graph, OperationNode
from tocsin.composite.keys import Key
from tocsin.composite.pools import Either, Pools
from tocsin.composite.state import Counts, State
from tocsin.composite.windows import Cell, Windows

__all__ = ["Operation", "figures"]


class Operation:
    """An operation of the graph with its state, for all keys."""

    __slots__ = (
        "_counts",
        "_max_open",
        "cells",
        "expiries",
        "is_timed",
        "node",
        "number",
        "open",
        "size",
        "ticking",
        "work",
    )

    def __init__(self, number: int, node: OperationNode, kinds: int, state: State, max_open: int) -> None:
        """Take up the state of a node that has so many kinds of constituents."""
        rules = node.rules
        self.number, self.node = number, node
        self._counts = state.counts
        self._max_open = max_open if node.max_open is None else node.max_open
        self.work: Windows | Pools | Either
        """What arrivals do to a cell."""
        if node.is_pool:
            self.work = (Either if rules.operator == "OR" else Pools)(rules, kinds)
        else:
            self.work = Windows(rules)
        self.size = self.work.size
        self.cells: dict[Key, Cell] = state.cells.setdefault(node.identity, {})
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


def _count(counts: dict[str, int], name: str, more: int) -> None:
    counts[name] = counts.get(name, 0) + more

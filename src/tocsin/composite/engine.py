"""The run: events and instants go in at the leaves, occurrences rise through the graph, detections come out.

    event ─ leaves ─▶ occurrences ─▶ inboxes of operations, lowest first ─▶ … ─▶ (definition, key, occurrence)
    time  ─ timers due ─▶ ticks ─────────────┘

One *instant* is one event, or all timers of one microsecond. At an instant every operation is asked once, after its
constituents. A timer due at t fires after the events of t and before anything later.

Not thread-safe; one engine feeds one state.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, NamedTuple

from tocsin.composite.graph import Graph, LeafNode, Link, OperationNode
from tocsin.composite.keys import Key, key_reader
from tocsin.composite.leaves import LeafFinder
from tocsin.composite.occurrence import Occurrence, Part, distinct, positions, without_values
from tocsin.composite.state import State
from tocsin.composite.where import reader
from tocsin.composite.windows import Cell
from tocsin.model import Event

__all__ = ["Detection", "Engine"]

Inbox = dict[int, dict[Key, list[list[Occurrence]]]]
"""Operation → key → arrivals by place."""


class Detection(NamedTuple):
    """A definition has occurred."""

    definition: int
    """Its number in the graph."""
    key: Key
    occurrence: Occurrence


class Engine:
    """A graph at work on a state."""

    def __init__(self, graph: Graph, state: State, max_open: int) -> None:
        """Take up the state where it is."""
        self.graph, self.state, self._max_open = graph, state, max_open
        self._cells: list[dict[Key, Cell]] = [
            state.cells.setdefault(node.identity, {}) if isinstance(node, OperationNode) else {} for node in graph.nodes
        ]
        filters: dict[str, list[Any]] = {}
        readers = {}
        for node in graph.nodes:
            if isinstance(node, LeafNode):
                if node.by not in readers:
                    readers[node.by] = key_reader(node.by)
                filters.setdefault(node.filter, []).append((node, readers[node.by], reader(node.needs)))
        self._finder = LeafFinder(list(filters))
        self._leaves = list(filters.values())
        self._open = [0] * len(graph.nodes)
        self._timers: list[tuple[int, int, int, Key]] = []
        self._expiries: list[tuple[int, int, int, Key]] = []
        self._entries = 0  # breaks ties in heaps: keys of different kinds do not compare
        for number, node in enumerate(graph.nodes):
            if isinstance(node, OperationNode):
                for key, cell in self._cells[number].items():
                    self._open[number] += _size(node, cell)
                    self._watch(number, node, key, cell)

    def event(self, event: Event, time: int, offset: int) -> list[Detection]:
        """Feed one event; all timers before it must have fired."""
        self.state.time = time
        self.expire()
        found: list[Detection] = []
        inbox: Inbox = {}
        for number in self._finder.find(event):
            keyless = False
            for leaf, read_key, read_values in self._leaves[number]:
                key = read_key(event)
                if key is None:
                    keyless = True
                    continue
                part = Part(leaf.name, offset, event.id, event.source, time, read_values(event))
                occurrence = Occurrence(time, offset, time, offset, (part,))
                _deliver(inbox, leaf.links, key, [occurrence])
                for definition in leaf.outputs:
                    found.append(Detection(definition, key, occurrence))
            self.state.counts.keyless += keyless
        if inbox:
            self._rise(inbox, found)
        return _ordered(found)

    def next_timer(self) -> int | None:
        """The instant of the next timer."""
        return self._timers[0][0] if self._timers else None

    def timers(self, instant: int) -> list[Detection]:
        """Fire all timers of one instant, which must be the next one."""
        self.state.time = instant
        self.expire()
        found: list[Detection] = []
        due: dict[int, set[Key]] = {}
        while self._timers and self._timers[0][0] == instant:
            _, _, number, key = heapq.heappop(self._timers)
            due.setdefault(number, set()).add(key)
        self._rise({number: {key: [] for key in keys} for number, keys in due.items()}, found, due, instant)
        return _ordered(found)

    def expire(self) -> None:
        """Give up what cannot be completed any more."""
        now = self.state.time
        while self._expiries and self._expiries[0][0] < now:
            _, _, number, key = heapq.heappop(self._expiries)
            cell = self._cells[number].get(key)
            if cell is None:
                continue
            node = self.graph.nodes[number]
            assert isinstance(node, OperationNode)
            before = _size(node, cell)
            gone = node.expire(cell, now)
            if gone:
                expired = self.state.counts.expired
                expired[node.identity] = expired.get(node.identity, 0) + gone
            self._keep(number, node, key, cell, before)

    # -- rising

    def _rise(
        self, inbox: Inbox, found: list[Detection], due: dict[int, set[Key]] | None = None, instant: int = 0
    ) -> None:
        nodes, all_cells = self.graph.nodes, self._cells
        while inbox:
            number = min(inbox)
            node = nodes[number]
            assert isinstance(node, OperationNode)
            cells = all_cells[number]
            for key, arrivals in inbox.pop(number).items():
                cell = cells.get(key)
                if cell is None:
                    cell = []
                before = _size(node, cell)
                ticks = due is not None and key in due.get(number, ())
                occurred = node.step(cell, arrivals, instant if ticks else None)
                self._keep(number, node, key, cell, before)
                if cell and (node.rules.period or node.rules.within is not None):
                    self._watch_new(number, node, key, cell, arrivals, instant)
                if occurred:
                    _deliver(inbox, node.links, key, occurred)
                    for definition in node.outputs:
                        found.extend(Detection(definition, key, occurrence) for occurrence in occurred)

    def _keep(self, number: int, node: OperationNode, key: Key, cell: Cell, before: int) -> None:
        """File a cell that was changed."""
        cells = self._cells[number]
        if cell:
            cells[key] = cell
        else:
            cells.pop(key, None)
        self._open[number] += _size(node, cell) - before
        while self._open[number] > self._max_open:
            self._drop(number, node)

    def _drop(self, number: int, node: OperationNode) -> None:
        """Give up the oldest opener of the key that has waited longest."""
        key, cell = next(iter(self._cells[number].items()))
        before = _size(node, cell)
        oldest = next(window for window in cell if window.openers)
        del oldest.openers[0]
        if not oldest.openers and not (node.is_pool and node.rules.context != "continuous"):
            cell.remove(oldest)
        if not any(window.openers for window in cell):
            del self._cells[number][key]
            cell.clear()
        self._open[number] -= before - _size(node, cell)
        dropped = self.state.counts.dropped
        dropped[node.identity] = dropped.get(node.identity, 0) + 1

    def _watch(self, number: int, node: OperationNode, key: Key, cell: Cell) -> None:
        """Note when the windows of a cell tick, and when they are too old."""
        for window in cell:
            if window.due is not None:
                self._note(self._timers, window.due, number, key)
            if node.rules.within is not None:
                for opener in window.openers:
                    self._note(self._expiries, opener.first + node.rules.within, number, key)

    def _watch_new(
        self, number: int, node: OperationNode, key: Key, cell: Cell, arrivals: list[list[Occurrence]], instant: int
    ) -> None:
        """The same for what an instant has added. Openers of one instant tick together, so one note is enough."""
        rules = node.rules
        if rules.period:
            newest = cell[-1].openers[0]
            opened = any(newest is opener for came in arrivals[:1] for opener in came)
            if opened and cell[-1].due is not None:
                self._note(self._timers, cell[-1].due, number, key)
            if instant and any(window.due == instant + rules.period for window in cell):
                self._note(self._timers, instant + rules.period, number, key)
        if rules.within is not None:
            for opener in [opener for came in (arrivals if node.is_pool else arrivals[:1]) for opener in came]:
                self._note(self._expiries, opener.first + rules.within, number, key)

    def _note(self, heap: list[tuple[int, int, int, Key]], instant: int, number: int, key: Key) -> None:
        self._entries += 1
        heapq.heappush(heap, (instant, self._entries, number, key))


def _deliver(inbox: Inbox, links: Iterable[Link], key: Key, occurred: list[Occurrence]) -> None:
    for link in links:
        target = key if link.key is None else tuple([key[place] for place in link.key])
        by_key = inbox.get(link.to)
        if by_key is None:
            by_key = inbox[link.to] = {}
        arrivals = by_key.get(target)
        if arrivals is None:
            arrivals = by_key[target] = []
        while len(arrivals) <= link.role:
            arrivals.append([])
        if link.key is None:
            arrivals[link.role].extend(occurred)
        else:  # detections of a definition: each once, in order whatever their keys were; its names are its own
            longest = link.span
            came = [each for each in distinct(occurred) if longest is None or each.last - each.first <= longest]
            arrivals[link.role] = sorted([*arrivals[link.role], *map(without_values, came)], key=positions)


def _size(node: OperationNode, cell: Cell) -> int:
    """How much a cell holds: openers, and what they have gathered."""
    if not cell:
        return 0
    if node.rules.operator in ("SEQ", "NOT", "A", "P", "PLUS") and node.rules.context in ("chronicle", "continuous"):
        return len(cell)
    return sum(len(window.openers) + len(window.middles) for window in cell)


def _ordered(found: list[Detection]) -> list[Detection]:
    """In order of definition, then of constituents."""
    if len(found) > 1:
        found.sort(key=lambda each: (each.definition, positions(each.occurrence)))
    return found

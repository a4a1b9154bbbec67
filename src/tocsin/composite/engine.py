"""The run: events and instants go in at the leaves, occurrences rise through the graph, detections come out.

    event ─ leaves ─▶ occurrences ─▶ operations, lowest first ─▶ … ─▶ (definition, key, occurrence)
    time  ─ timers due ─▶ ticks ─────────┘

One *instant* is one event, or all timers of one microsecond. At an instant every operation is asked once, after its
constituents. A timer due at t fires after the events of t and before anything later.

Speed. An event that no leaf sees costs a look in a dictionary: time is let pass when somebody can notice. Where all
that an event can reach are different operations, none above another, each takes its arrival at once; only else are
arrivals gathered in an inbox first.

Not thread-safe; one engine feeds one state. Who feeds it from an iterator must not ask it anything meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tocsin.composite.agenda import NOW, Agenda
from tocsin.composite.graph import Graph, LeafNode, Link, OperationNode, TimeNode
from tocsin.composite.keys import Key, key_reader
from tocsin.composite.leaves import CLOCK, SOURCE, SYSTEM, LeafFinder, Plan
from tocsin.composite.occurrence import Occurrence, Part, distinct, positions, tick, without_values
from tocsin.composite.operations import Operation, figures
from tocsin.composite.state import State
from tocsin.composite.times import NEVER, Times
from tocsin.composite.where import Needs, reader
from tocsin.composite.windows import Take
from tocsin.filters.values import micros
from tocsin.model import CLASSIFICATION, Event

__all__ = ["Detection", "Engine", "EngineLeaf", "Inbox", "Make", "Reader", "Tell", "ordered", "pass_on"]

Inbox = dict[int, dict[Key, list[list[Occurrence]]]]
"""Operation → key → arrivals by place."""
Reader = Callable[[Any], dict[str, Any] | None]
"""Takes what `WHERE` asks for out of an event, or finds it by the number of its row."""
Make = Callable[[Any, int, int, str | None, Reader | None], Occurrence]
"""Makes the occurrence of a leaf: of an event or the number of its row, its time and offset, and the leaf's name."""
Tell = Callable[[list["Detection"]], None]
"""Is told what was detected at one instant, if anything was."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_SYSTEM = len(SYSTEM)
_OPEN = CLASSIFICATION[0]


class Detection(msgspec.Struct, frozen=True, gc=False):
    """A definition has occurred."""

    definition: int
    """Its number in the graph."""
    key: Key
    occurrence: Occurrence


class EngineLeaf(NamedTuple):
    """A leaf at work: how it is asked, and where what it sees goes."""

    read_key: Callable[[Any], Key | None]
    """Of an event, or of the number of its row."""
    name: str | None
    read_values: Reader | None
    targets: tuple[tuple[Operation, Take, bool], ...]
    """Where occurrences go: how one alone is taken, and whether that does something where nothing is open."""
    links: tuple[Link, ...]
    outputs: tuple[int, ...]
    by: tuple[str, ...]
    needs: Needs


class _Reach(NamedTuple):
    """What events of one type can reach."""

    leaves: tuple[tuple[EngineLeaf, ...], ...]
    """For each filter that is surely true."""
    find: Callable[[Event], list[int]] | None
    """Which filters are true; None: those of `leaves`, all of them."""
    is_simple: bool
    """All operations are different ones, and none is above another."""


class Engine:
    """A graph at work on a state."""

    def __init__(self, graph: Graph, state: State, max_open: int) -> None:
        """Take up the state where it is."""
        self.graph, self.state = graph, state
        kinds: dict[int, int] = {}
        for link in [link for node in graph.nodes for link in node.links]:
            kinds[link.to] = max(kinds.get(link.to, 0), link.role + 1)
        self.operations = {
            number: Operation(number, node, kinds[number], state, max_open)
            for number, node in enumerate(graph.nodes)
            if isinstance(node, OperationNode)
        }
        by_filter: dict[str, list[EngineLeaf]] = {}
        for node in graph.nodes:
            if isinstance(node, LeafNode):
                by_filter.setdefault(node.filter, []).append(self._leaf(node))
        self.leaves = [tuple(leaves) for leaves in by_filter.values()]
        self.numbers = {text: number for number, text in enumerate(by_filter)}
        finder = LeafFinder(list(by_filter))
        self._reaches = {kind: self._reach(plan) for kind, plan in finder.plans.items()}
        self._rest = None if finder.rest is None else self._reach(finder.rest)
        self.agenda = Agenda(state, self.operations.values())
        self._times = Times(graph, state)

    def _leaf(self, node: LeafNode) -> EngineLeaf:
        targets = []
        for link in node.links:
            work = self.operations[link.to].work
            targets.append((self.operations[link.to], work.takes[link.role], work.opens[link.role]))
        values = reader(node.needs) if node.needs else None
        return EngineLeaf(
            key_reader(node.by), node.name, values, tuple(targets), node.links, node.outputs, node.by, node.needs
        )

    def _reach(self, plan: Plan) -> _Reach:
        leaves = tuple(self.leaves[number] for number in plan.sure)
        is_simple = self.is_simple_for(plan.numbers)
        return _Reach(leaves, plan.find if plan.asked else None, is_simple)

    def is_simple_for(self, numbers: Iterable[int]) -> bool:
        """Do the leaves of these filters lead to different operations, none above another?"""
        links = [link for number in numbers for leaf in self.leaves[number] for link in leaf.links]
        touched = {link.to for link in links}
        is_simple = len(touched) == len(links) and all(link.key is None for link in links)
        above, seen = list(touched), set(touched)
        while above and is_simple:
            for link in self.graph.nodes[above.pop()].links:
                is_simple = is_simple and link.to not in touched
                if link.to not in seen:
                    seen.add(link.to)
                    above.append(link.to)
        return is_simple

    # -- feeding

    def feed(self, events: Iterable[Event], tell: Tell) -> None:
        """Take events in order, and let time pass up to the last."""
        if self._times.is_new:
            events = self._noting(events)
        state, counts = self.state, self.state.counts
        reach_of, rest = self._reaches.get, self._rest
        fed, latest = state.fed, _EARLIEST
        taken, is_behind = 0, False
        try:
            for event in events:
                offset = event.offset
                if offset is None:
                    offset = fed + 1
                elif offset <= fed:
                    counts.repeated += 1
                    continue
                fed = offset
                taken += 1
                is_behind = True
                moment = event.arrived
                if moment is None:
                    moment = event.time
                if moment is not None and moment > latest:
                    latest = moment
                kind = event.type
                if kind[:_SYSTEM] == SYSTEM or event.source == SOURCE:
                    counts.skipped += 1
                    if kind == CLOCK:  # nothing else happens at its instant
                        self.advance(self.pass_to(micros(latest), tell), tell)
                        is_behind = False
                    continue
                reach = reach_of(kind, rest)
                if reach is None:
                    continue
                groups = reach[0] if reach[1] is None else [self.leaves[number] for number in reach[1](event)]
                detections = self.event(
                    groups, reach[2], event, _occurrence, self.pass_to(micros(latest), tell), offset
                )
                is_behind = False
                if detections:
                    tell(detections)
        finally:
            state.fed = fed
            counts.events += taken
            if is_behind:
                self.pass_to(micros(latest), tell)

    def _noting(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events; the first tells new absolute times what instant it is, whether a leaf sees it or not."""
        for event in events:
            moment = event.arrived or event.time
            self.begin(self.state.time if moment is None else max(micros(moment), self.state.time))
            yield event

    def advance(self, instant: int, tell: Tell) -> None:
        """Let time pass: fire every timer due at or before an instant."""
        state = self.state
        self.begin(instant)
        self._fire(instant, tell)
        if instant >= state.time:
            state.time = state.advanced = instant
        self.agenda.expire()
        self.agenda.settle(self._times.next)

    def reach(self, offset: int, instant: int, tell: Tell) -> None:
        """Let time pass as an event does that no leaf sees; nothing happens if its offset has been fed."""
        if offset > self.state.fed:
            self.state.fed = offset
            self.begin(max(instant, self.state.time))
            self.pass_to(instant, tell)

    def next_timer(self) -> int | None:
        """The instant of the next timer."""
        instant = self._next()
        return instant if instant < NEVER else None

    def begin(self, instant: int, only: Container[str] | None = None) -> None:
        """Let absolute times that are new count from an instant on: all, or those of these texts."""
        if self._times.is_new:
            self._times.begin(instant, only)
            self.agenda.wake = self.agenda.must = NOW

    def _next(self) -> int:
        timers, times = self.agenda.timers, self._times
        return min(timers[0][0], times.next) if timers else times.next

    def pass_to(self, time: int, tell: Tell) -> int:
        """Let time pass until just before an event; returns its time, which is later than any that is over."""
        state = self.state
        if time < state.time:
            time = state.time
        if time <= state.advanced:
            time = state.advanced + 1
        agenda = self.agenda
        if time > agenda.wake:
            if self._next() < time:
                self._fire(time - 1, tell)
            state.time = time
            agenda.expire()
            agenda.settle(self._times.next)
        else:
            state.time = time
        return time

    def _fire(self, upto: int, tell: Tell) -> None:
        agenda = self.agenda
        while (instant := self._next()) <= upto:
            self.state.time = instant
            agenda.expire()
            due = agenda.due(instant)
            inbox: Inbox = {number: {key: [] for key in keys} for number, keys in due.items()}
            found: list[Detection] = []
            for node in self._times.take(instant) if self._times.next == instant else ():
                self._strike(node, instant, inbox, found)
            self.rise(inbox, found, due, instant)
            if found:
                tell(ordered(found))

    def _strike(self, node: TimeNode, instant: int, inbox: Inbox, found: list[Detection]) -> None:
        """An absolute time has come. It has no key: where keys are, it goes to those that have something open."""
        occurrence = tick(instant, node.name)
        for link in node.links:
            for key in list(self.operations[link.to].cells) if link.every else [()]:
                _deliver(inbox, [link], key, [occurrence])
        for definition in node.outputs:
            found.append(Detection(definition, (), occurrence))

    def figures(self) -> dict[str, dict[str, int]]:
        """What each definition has detected, holds open and gave up."""
        return figures(self.graph, self.operations, self.state.counts)

    def held(self) -> dict[int, tuple[str, int]]:
        """By number of an operation: its identity, and how much it holds."""
        return {number: (each.node.identity, each.open) for number, each in self.operations.items()}

    # -- rising

    def event(
        self, groups: Sequence[tuple[EngineLeaf, ...]], is_simple: bool, event: Any, make: Make, time: int, offset: int
    ) -> list[Detection]:
        """What is detected at an event, or the number of its row, that has these leaves, by filter."""
        found: list[Detection] = []
        inbox: Inbox = {}
        for leaves in groups:
            keyless = False
            for read_key, name, read_values, targets, links, outputs, _, _ in leaves:
                key = read_key(event)
                if key is None:
                    keyless = True
                    continue
                occurrence = None
                if outputs or not is_simple:
                    occurrence = make(event, time, offset, name, read_values)
                    for definition in outputs:
                        found.append(Detection(definition, key, occurrence))
                    if not is_simple:
                        _deliver(inbox, links, key, [occurrence])
                        continue
                for operation, take, opens in targets:
                    cell = operation.cells.get(key)
                    if cell is None:
                        if not opens:
                            continue
                        cell, before = [], 0
                    else:
                        before = operation.size(cell)
                    if occurrence is None:  # most that close find nothing open, and need none
                        occurrence = make(event, time, offset, name, read_values)
                    occurred: list[Occurrence] = []
                    take(cell, occurrence, occurred)
                    operation.keep(key, cell, before)
                    if opens and operation.is_timed and cell:
                        self.agenda.watch(operation, key, cell, time)
                    if occurred:
                        pass_on(operation.node, key, occurred, inbox, found)
            if keyless:
                self.state.counts.keyless += 1
        if inbox:
            self.rise(inbox, found)
        return ordered(found) if len(found) > 1 else found

    def rise(
        self, inbox: Inbox, found: list[Detection], due: dict[int, dict[Key, None]] | None = None, instant: int = 0
    ) -> None:
        """Ask all operations with arrivals, and those above them; at a timer's instant those that are due tick."""
        while inbox:
            number = min(inbox)
            operation = self.operations[number]
            ticking = due.get(number, ()) if due is not None else ()
            work = operation.work
            for key, arrivals in inbox.pop(number).items():
                cell = operation.cells.get(key)
                if cell is None:
                    cell = []
                before = operation.size(cell)
                occurred = work.step(cell, arrivals, instant if key in ticking else None)
                operation.keep(key, cell, before)
                if operation.is_timed and cell:
                    openers = work.openers(arrivals)
                    self.agenda.watch(operation, key, cell, min([o.first for o in openers]) if openers else None)
                if occurred:
                    pass_on(operation.node, key, occurred, inbox, found)


def _occurrence(event: Event, time: int, offset: int, name: str | None, read_values: Reader | None) -> Occurrence:
    values = None if read_values is None else read_values(event)
    level = 0 if event.classification is _OPEN else CLASSIFICATION.index(event.classification)
    return Occurrence(time, offset, time, offset, (Part(name, offset, event.id, event.source, time, values, level),))


def pass_on(node: OperationNode, key: Key, occurred: list[Occurrence], inbox: Inbox, found: list[Detection]) -> None:
    """Pass on what occurred: to operations above, and as detections."""
    if node.links:
        _deliver(inbox, node.links, key, occurred)
    for definition in node.outputs:
        for occurrence in occurred:
            found.append(Detection(definition, key, occurrence))


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


def ordered(found: list[Detection]) -> list[Detection]:
    """In order of definition, then of constituents."""
    found.sort(key=lambda each: (each.definition, positions(each.occurrence)))
    return found

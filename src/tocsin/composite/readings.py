"""Which constituent played which part: the flat parts of a derived event, read back into the shape of its definition.

A derived event lists its parts in order of roles, and nothing else. Mostly the names in it leave one way to read them;
offsets, and the events themselves where they are given, rule out others. Where several ways remain all are returned, up
to a few, so that nobody takes the first for the only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from tocsin.composite.expression import Definition, Expression, Leaf, Operation
from tocsin.composite.occurrence import TIMER
from tocsin.filters.filter import Filter
from tocsin.model import Event

__all__ = ["Reading", "Readings", "Role", "flat"]

Role = Literal["opener", "middle", "closer", "tick", "kind", "either", "named", "whole"]

_STATES = 2_000
"""Ways to choose among the kinds of AND and ANY that are followed."""


class Reading(NamedTuple):
    """An expression, and the parts that made it occur."""

    expression: Expression | None
    """None: a tick."""
    definition: Definition
    """The one that the expression stands in."""
    role: Role
    start: int
    stop: int
    """Its parts are those from start up to stop."""
    of: tuple[Reading, ...] = ()
    begins: int = 0
    """The lowest offset; TIMER: there is none."""
    ends: int | None = None
    """The offset at which it occurred; None: a timer had a hand in it."""

    @property
    def operation(self) -> Operation | None:
        """The operation, if it is one."""
        return self.expression if isinstance(self.expression, Operation) else None


class _Chain(NamedTuple):
    """Constituents one after the other, the last first."""

    before: _Chain | None
    last: Reading

    def items(self) -> list[Reading]:
        found = [self.last]
        chain = self.before
        while chain is not None:
            found.append(chain.last)
            chain = chain.before
        return found[::-1]


class Readings:
    """Reads the parts of one derived event."""

    def __init__(
        self,
        parts: list[dict[str, Any]],
        definitions: Mapping[str, Definition],
        events: Mapping[int, Event],
        most: int,
    ) -> None:
        """Take the parts, the definitions that may be named, constituents by offset; follow so many ways at a place."""
        self._most = most
        self._parts, self._definitions, self._events = parts, definitions, events
        self._known: dict[tuple[int, int], dict[int, list[Reading]]] = {}
        self._filters: dict[str, Filter] = {}
        self._top: Expression | None = None
        self.complete = True
        """Are all ways to read it among those found?"""

    def whole(self, definition: Definition) -> list[Reading]:
        """The ways to read all parts as this definition; none: it did not make them."""
        self._top = definition.expression
        found = self._from(definition.expression, definition, 0).get(len(self._parts), [])
        return [reading._replace(role="whole") for reading in found]

    def _from(self, expression: Expression, definition: Definition, start: int) -> dict[int, list[Reading]]:
        """The ways to read an expression from a place on, by where they stop."""
        rest = [expression]  # SEQ of many is as deep as it is long: begin with the innermost
        while isinstance(inner := rest[-1], Operation) and (id(inner), start) not in self._known:
            rest.append(inner.of[0])
        for each in reversed(rest):
            if (id(each), start) not in self._known:
                self._known[id(each), start] = self._found(each, definition, start)
        return self._known[id(expression), start]

    def _found(self, expression: Expression, definition: Definition, start: int) -> dict[int, list[Reading]]:
        if isinstance(expression, Leaf):
            ways = self._leaf(expression, definition, start)
        else:
            ways = self._operation(expression, definition, start)
        found: dict[int, list[Reading]] = {}
        for way in ways:
            stopping = found.setdefault(way.stop, [])
            if len(stopping) < self._most:
                stopping.append(way)
            else:
                self.complete = False
        return found

    def _leaf(self, leaf: Leaf, definition: Definition, start: int) -> Iterator[Reading]:
        if leaf.definition is not None:
            named = self._definitions[leaf.definition]
            for ways in self._from(named.expression, named, start).values():
                for way in ways:
                    yield way._replace(expression=leaf, definition=definition, of=(way._replace(role="named"),))
            return
        if start >= len(self._parts) or ("offset" in self._parts[start]) != (leaf.at is None):
            return
        part = self._parts[start]
        if leaf.at is not None:
            if part["name"] == (leaf.alias or f"t{start + 1}"):
                yield Reading(leaf, definition, "whole", start, start + 1, (), TIMER)
            return
        event = self._events.get(part["offset"])
        if part["name"] == (leaf.alias or f"e{start + 1}") and (event is None or self._matches(leaf, event)):
            yield Reading(leaf, definition, "whole", start, start + 1, (), part["offset"], part["offset"])

    def _matches(self, leaf: Leaf, event: Event) -> bool:
        text = str(leaf.filter)
        if text not in self._filters:
            self._filters[text] = Filter(text)
        return self._filters[text].matches(event)

    def _operation(self, operation: Operation, definition: Definition, start: int) -> Iterator[Reading]:
        operator = operation.operator
        if operator == "OR" or operation.count == 1:
            yield from self._either(operation, definition, start)
        elif operator in ("AND", "ANY"):
            yield from self._pool(operation, definition, start)
        else:
            yield from self._window(operation, definition, start)

    def _either(self, operation: Operation, definition: Definition, start: int) -> Iterator[Reading]:
        sure = False  # of filters that one event matches the left one counts
        for part in operation.of:
            is_filter = isinstance(part, Leaf) and part.filter is not None
            if is_filter and sure:
                continue
            for way in self._ways(part, definition, start, "either"):
                yield way._replace(expression=operation, role="whole", of=(way,))
                sure = sure or (is_filter and self._parts[start]["offset"] in self._events)

    def _pool(self, operation: Operation, definition: Definition, start: int) -> Iterator[Reading]:
        """AND and ANY: one of each kind, or in `cumulative` any number, in the order they came."""
        gathers = definition.context == "cumulative"
        least = operation.count or len(operation.of)
        states: dict[int, dict[frozenset[int], list[_Chain | None]]] = {start: {frozenset(): [None]}}
        while states:
            at = min(states)
            for kinds, chains in states.pop(at).items():
                if len(kinds) >= least:
                    for chain in chains if self._may_stop(operation, at) else []:
                        assert chain is not None
                        items = chain.items()
                        ends = None if any(item.ends is None for item in items) else items[-1].ends
                        yield self._made(operation, definition, items, ends)
                    if not gathers:
                        continue
                for kind, part in enumerate(operation.of):
                    if kind in kinds and not gathers:
                        continue
                    for way in (way for ways in self._from(part, definition, at).values() for way in ways):
                        self._follow(states, kinds | {kind}, chains, way._replace(role="kind"))

    def _follow(
        self,
        states: dict[int, dict[frozenset[int], list[_Chain | None]]],
        kinds: frozenset[int],
        chains: list[_Chain | None],
        way: Reading,
    ) -> None:
        by_kinds = states.setdefault(way.stop, {})
        if len(by_kinds) >= _STATES:
            self.complete = False
            return
        found = by_kinds.setdefault(kinds, [])
        for chain in chains:
            if chain is None or _in_order(chain.last, way):
                if len(found) < self._most:
                    found.append(_Chain(chain, way))
                else:
                    self.complete = False
        if not found:
            del by_kinds[kinds]
            if not by_kinds:
                del states[way.stop]

    def _window(self, operation: Operation, definition: Definition, start: int) -> Iterator[Reading]:
        """Openers, middles or ticks, closer: as many of them as the operator and the context have."""
        operator, interval = operation.operator, definition.semantics == "interval"
        for opened in self._run(operation.of[0], definition, start, "opener", many=definition.context == "cumulative"):
            stop = opened.last.stop
            if operator in ("P", "PLUS"):
                if self._may_stop(operation, stop):
                    yield self._made(operation, definition, opened.items(), None)
                continue
            if operator == "A*":
                between: list[_Chain | None] = [*self._run(operation.of[1], definition, stop, "middle", many=True)]
            elif operator == "P*":
                between = self._ticks(definition, stop)
            else:
                between = [None]
            role: Role = "middle" if operator == "A" else "closer"
            last = operation.of[1 if operator == "A" else -1]
            for middle in between:
                for closer in self._ways(last, definition, stop if middle is None else middle.last.stop, role):
                    if not self._may_stop(operation, closer.stop):
                        continue
                    items = opened.items()
                    middles = [] if middle is None else middle.items()
                    early = operator == "A*" and not any(_before(each, middles[0], interval) for each in items)
                    if not early and all(_before(each, closer, interval) for each in items + middles):
                        yield self._made(operation, definition, [*items, *middles, closer], closer.ends)

    def _may_stop(self, operation: Operation, stop: int) -> bool:
        """Is it worth while to look at what stops here? The whole has to use all parts."""
        return operation is not self._top or stop == len(self._parts)

    def _ways(self, part: Expression, definition: Definition, start: int, role: Role) -> list[Reading]:
        found = self._from(part, definition, start)
        return [way._replace(role=role) for ways in found.values() for way in ways]

    def _run(self, part: Expression, definition: Definition, start: int, role: Role, *, many: bool) -> list[_Chain]:
        """One, or one or more, one after the other."""
        found: list[_Chain] = []
        ends: dict[int, list[_Chain]] = {}
        for way in self._ways(part, definition, start, role):
            ends.setdefault(way.stop, []).append(_Chain(None, way))
        while ends:
            at = min(ends)
            chains = ends.pop(at)
            if len(chains) > self._most:
                self.complete = False
            for chain in chains[: self._most]:
                found.append(chain)
                if many:
                    for way in self._ways(part, definition, at, role):
                        if _in_order(chain.last, way):
                            ends.setdefault(way.stop, []).append(_Chain(chain, way))
        return found

    def _ticks(self, definition: Definition, start: int) -> list[_Chain | None]:
        chain = None
        for at in range(start, len(self._parts)):
            if "offset" in self._parts[at]:
                break
            chain = _Chain(chain, Reading(None, definition, "tick", at, at + 1))
        if chain is None:
            return []
        return [chain] if chain.before is None else [chain, chain.before]  # the last may close

    def _made(self, operation: Operation, definition: Definition, items: list[Reading], ends: int | None) -> Reading:
        begins = min(item.begins for item in items if item.expression is not None)
        return Reading(operation, definition, "whole", items[0].start, items[-1].stop, tuple(items), begins, ends)


def _in_order(one: Reading, other: Reading) -> bool:
    """Can they have come in this order, or at once? An event matches one filter once."""
    if one.ends is None or other.ends is None:
        return True
    once = one.expression is other.expression and not one.of
    return one.ends < other.ends or (one.ends == other.ends and not once)


def _before(one: Reading, other: Reading, interval: bool) -> bool:
    """Can the one have ended before the other?"""
    border = other.begins if interval else other.ends
    return one.ends is None or border is None or one.ends < border


def flat(reading: Reading) -> Iterator[Reading]:
    """A reading and everything below it, from the top down."""
    yield reading
    for each in reading.of:
        yield from flat(each)

"""Composite events the slow way: whole streams, plain lists, one node after the other.

    found = detections([parse("d", "SEQ([type='a'], [type='b'])")], [Simple("a", 1, 1), Simple("b", 2, 2)], until=10)

Every sub-expression is a function from the stream to the complete list of its occurrences. It merges the lists of its
constituents by position and goes through them once. Nothing is kept between calls, nothing is thrown away early, and no
code is shared with the engine: only the values of `expression`, and filters for the leaves.

What the contract leaves open is settled here as follows; the engine must agree.
- Occurrences of one node at one instant come in the order in which they were made: oldest window first, places of
  constituents from left to right. Those of a named definition come in order of their parts' positions, each once.
- A tick is a middle: closers of its instant go before it, openers behind it.
- What lasts longer than the span that holds for an operation takes no part in it (a named definition may have such).
- Two occurrences are the same in an operator if they are made of the same set of events and timers.
- If any arrival of an instant closes something in AND or ANY in recent, arrivals of that instant do not combine.
- What waits as two kinds in chronicle is used up only as the kind it was used as.
- ANY in chronicle tries kinds from left to right, then the oldest of each; the last kind's candidates change first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import combinations, product
from typing import Any, NamedTuple

from tocsin.clock import as_datetime
from tocsin.composite.expression import Definition, Expression, Leaf, Operation
from tocsin.filters.filter import Filter
from tocsin.model import Event

__all__ = ["SECOND", "Found", "Simple", "detections"]

SECOND = 1_000_000
Position = tuple[int, int, int]
"""Microseconds; 0 for an event, 1 for a timer; offset."""
Key = tuple[Any, ...]


class Simple(NamedTuple):
    """An event."""

    kind: str
    time: int
    """Seconds."""
    offset: int
    machine: str | int | None = None
    value: int | None = None

    @property
    def position(self) -> Position:
        return self.time * SECOND, 0, self.offset

    @property
    def event(self) -> Event:
        """As the engine is fed it."""
        data = {"machine": self.machine, "value": self.value}
        return Event(
            self.kind,
            "/test",
            id=f"{self.kind}{self.offset}",
            offset=self.offset,
            arrived=as_datetime(0) + timedelta(seconds=self.time),
            data={name: value for name, value in data.items() if value is not None},
        )


class Part(NamedTuple):
    name: str | None
    position: Position
    event: Simple | None
    """None: a tick."""
    own: bool = True
    """Not of a named definition, whose names are its own: `WHERE` does not see them."""


class Occurrence(NamedTuple):
    start: Position
    end: Position
    parts: tuple[Part, ...]
    timers: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return self.end[0] - self.start[0]


class Found(NamedTuple):
    """A detection, in a form to compare."""

    definition: str
    time: int
    """Microseconds."""
    parts: tuple[str, ...]
    """`a1` for an event, `t5000000` for a tick; with a name before it if it has one: `x=a1`."""
    key: Key


def detections(definitions: Sequence[Definition], events: Sequence[Simple], until: int) -> list[Found]:
    """All detections up to a second, in order."""
    known = {definition.name: definition for definition in definitions}
    found = []
    for number, definition in enumerate(definitions):
        for key, occurrence in _whole(definition, known, events, until * SECOND):
            row = Found(definition.name, occurrence.end[0], tuple(_shown(part) for part in occurrence.parts), key)
            found.append(((occurrence.end, number), row))
    return [row for _, row in sorted(found, key=lambda each: each[0])]


def _shown(part: Part) -> str:
    text = f"t{part.position[0]}" if part.event is None else f"{part.event.kind}{part.event.offset}"
    return text if part.name is None else f"{part.name}={text}"


def _whole(
    definition: Definition, known: Mapping[str, Definition], events: Sequence[Simple], until: int
) -> list[tuple[Key, Occurrence]]:
    """What a definition detects: by instant, then in order of the constituents' positions; each once."""
    named = {
        leaf.definition: _whole(known[leaf.definition], known, events, until)
        for leaf in _leaves(definition.expression)
        if leaf.definition is not None
    }
    fields = {name: known[name].by for name in named}
    keys: list[Key] = []
    for key in [_key(definition.by, event) for event in events]:
        if key is not None and key not in keys:
            keys.append(key)
    found = []
    for key in keys:
        node = _Node(
            definition,
            [event for event in events if _key(definition.by, event) == key],
            {
                name: [each for theirs, each in those if _projected(theirs, fields[name], definition.by) == key]
                for name, those in named.items()
            },
            until,
        )
        seen = []
        for occurrence in node.top():
            identity = ([part.position for part in occurrence.parts], occurrence.timers)
            if identity not in seen:
                seen.append(identity)
                found.append((key, occurrence))
    return sorted(found, key=lambda each: (each[1].end, [part.position for part in each[1].parts]))


def _leaves(expression: Expression) -> list[Leaf]:
    if isinstance(expression, Leaf):
        return [expression]
    return [leaf for part in expression.of for leaf in _leaves(part)]


def _key(by: tuple[str, ...], event: Simple) -> Key | None:
    values = tuple({"machine": event.machine, "type": event.kind, "value": event.value}[field] for field in by)
    return None if None in values else values


def _projected(key: Key, fields: tuple[str, ...], by: tuple[str, ...]) -> Key:
    return tuple(key[fields.index(field)] for field in by)


def _join(items: Sequence[Occurrence], tick: int | None = None) -> Occurrence:
    """Made of these, in this order; by a timer's firing, if there is one."""
    start = min(item.start for item in items)
    end = max(item.end for item in items) if tick is None else (tick, 1, 0)
    timers = [timer for item in items for timer in item.timers] + ([] if tick is None else [tick])
    return Occurrence(start, end, tuple(part for item in items for part in item.parts), tuple(timers))


def _same(one: Occurrence, other: Occurrence) -> bool:
    """Made of the same events and timers?"""
    return _members(one) == _members(other)


def _members(occurrence: Occurrence) -> tuple[set[Position], set[int]]:
    return {part.position for part in occurrence.parts}, set(occurrence.timers)


def _by_position(items: Iterable[Occurrence]) -> list[Occurrence]:
    return sorted(items, key=lambda item: (item.end, item.start))


class _Node:
    """One definition over the events of one key."""

    def __init__(
        self, definition: Definition, events: Sequence[Simple], named: Mapping[str, list[Occurrence]], until: int
    ) -> None:
        self.definition, self.events, self.named, self.until = definition, events, named, until
        self.context = definition.context
        self.interval = definition.semantics == "interval"

    def top(self) -> list[Occurrence]:
        expression = self.definition.expression
        if isinstance(expression, Operation):
            return self.operation(expression, None, top=True)
        return [each for each in self.leaf(expression) if self.accepts(each)]

    def leaf(self, leaf: Leaf) -> list[Occurrence]:
        if leaf.definition is not None:
            return [
                each._replace(parts=tuple(part._replace(own=False) for part in each.parts))
                for each in self.named[leaf.definition]
            ]
        test = Filter(str(leaf.filter))
        return [
            Occurrence(event.position, event.position, (Part(leaf.alias, event.position, event),))
            for event in self.events
            if test.matches(event.event)
        ]

    def operation(self, operation: Operation, span: int | None, *, top: bool = False) -> list[Occurrence]:
        """All occurrences, in order of their ends."""
        spans = [each for each in (span, operation.within) if each is not None]
        span = min(spans) if spans else None
        lists = [self.leaf(part) if isinstance(part, Leaf) else self.operation(part, span) for part in operation.of]
        lists = [[each for each in those if span is None or each.length <= span] for those in lists]
        rules = _Rules(self, operation, span, top)
        if operation.operator == "OR" or operation.count == 1:
            return _either(rules, lists)
        if operation.operator in ("AND", "ANY"):
            return _gather(rules, lists)
        return _follow(rules, lists)

    def accepts(self, occurrence: Occurrence) -> bool:
        """Is WHERE true? `x.value > y.value`, or with a number, joined by AND."""
        if self.definition.where is None:
            return True
        values = {part.name: part.event.value for part in occurrence.parts if part.event is not None and part.own}
        for condition in self.definition.where.split(" AND "):
            read = re.fullmatch(r"(\w+)\.value (<=|>=|<>|!=|<|>|=) (?:(\w+)\.value|(\d+))", condition)
            assert read is not None, condition
            left = values.get(read[1])
            right = values.get(read[3]) if read[4] is None else int(read[4])
            if left is None or right is None:
                return False
            true = {
                "<": left < right,
                "<=": left <= right,
                ">": left > right,
                ">=": left >= right,
                "=": left == right,
                "<>": left != right,
                "!=": left != right,
            }
            if not true[read[2]]:
                return False
        return True


class _Rules(NamedTuple):
    node: _Node
    operation: Operation
    span: int | None
    top: bool

    def counts(self, occurrence: Occurrence) -> bool:
        """May it occur: is it short enough, and WHERE true?"""
        if self.span is not None and occurrence.length > self.span:
            return False
        return not self.top or self.node.accepts(occurrence)

    def fresh(self, occurrence: Occurrence, now: int) -> bool:
        """Can it still be completed?"""
        return self.span is None or now - occurrence.start[0] <= self.span

    def border(self, occurrence: Occurrence) -> Position:
        """What comes before an occurrence ends before this."""
        return occurrence.start if self.node.interval else occurrence.end


def _instants(lists: Sequence[list[Occurrence]]) -> list[Position]:
    return sorted({each.end for those in lists for each in those})


def _at(those: list[Occurrence], now: Position) -> list[Occurrence]:
    return [each for each in those if each.end == now]


# -- OR


def _either(rules: _Rules, lists: Sequence[list[Occurrence]]) -> list[Occurrence]:
    found: list[Occurrence] = []
    for now in _instants(lists):
        here: list[Occurrence] = []
        for each in [each for those in lists for each in _at(those, now)]:
            twice = any(
                [part.position for part in each.parts] == [part.position for part in other.parts]
                and each.timers == other.timers
                for other in here
            )
            if rules.counts(each) and not twice:
                here.append(each)
        found += here
    return found


# -- AND, ANY


def _gather(rules: _Rules, lists: Sequence[list[Occurrence]]) -> list[Occurrence]:
    context = rules.node.context
    found: list[Occurrence] = []
    waiting: list[list[tuple[int, Occurrence]]] = []
    """Of `continuous`, each window with what it has met; otherwise each alone, oldest first."""
    for now in _instants(lists):
        came = [(kind, each) for kind, those in enumerate(lists) for each in _at(those, now)]
        waiting = [group for group in waiting if rules.fresh(group[0][1], now[0])]
        closed = [each for kind, each in came if _complete(rules, waiting, kind, each, found)]
        together = not closed
        for kind, each in came:
            if context == "recent":
                if together:
                    _complete(rules, waiting, kind, each, found)
                waiting = [group for group in waiting if group[0][0] != kind]
                waiting.append([(kind, each)])
            elif not any(_same(each, other) for other in closed):
                if _complete(rules, waiting, kind, each, found):
                    closed.append(each)
                    continue
                if context == "continuous":
                    for group in waiting:
                        kinds = [other for other, _ in group]
                        if kind not in kinds and len(kinds) + 1 < _wanted(rules):
                            group.append((kind, each))
                waiting.append([(kind, each)])
        if context != "recent":  # what closed something does not also open
            waiting = [
                group
                for group in waiting
                if group[0][1].end != now or not any(_same(group[0][1], other) for other in closed)
            ]
    return found


def _wanted(rules: _Rules) -> int:
    return rules.operation.count or len(rules.operation.of)


def _complete(
    rules: _Rules,
    waiting: list[list[tuple[int, Occurrence]]],
    kind: int,
    each: Occurrence,
    found: list[Occurrence],
) -> bool:
    """Does it complete something? Takes out of `waiting` what is used up."""
    context, others = rules.node.context, _wanted(rules) - 1

    def fire(items: list[Occurrence]) -> bool:
        made = _join(_by_position([*items, each]))
        if rules.counts(made):
            found.append(made)
            return True
        return False

    if context == "continuous":
        did = False
        for group in list(waiting):
            kinds = [other for other, _ in group]
            if len(kinds) == others and kind not in kinds and fire([item for _, item in group]):
                waiting.remove(group)
                did = True
        return did
    alone = [group[0] for group in waiting]
    queues = {number: [item for other, item in alone if other == number] for number, _ in sorted(alone, key=_kind)}
    queues.pop(kind, None)
    if len(queues) < others:
        return False
    if context == "recent":
        newest = _by_position([queue[-1] for queue in queues.values()])
        return fire(newest[len(newest) - others :])
    if context == "cumulative":
        if fire([item for _, item in sorted(alone, key=_kind)]):
            waiting.clear()
            return True
        return False
    for numbers in combinations(queues, others):
        for chosen in product(*[queues[number] for number in numbers]):
            if fire(list(chosen)):
                for used in zip(numbers, chosen, strict=True):
                    waiting.remove([used])
                return True
    return False


def _kind(pair: tuple[int, Occurrence]) -> int:
    return pair[0]


# -- SEQ, NOT, A, A*, P, P*, PLUS


def _follow(rules: _Rules, lists: Sequence[list[Occurrence]]) -> list[Occurrence]:
    operator, context = rules.operation.operator, rules.node.context
    openers = lists[0]
    middles = lists[1] if operator in ("NOT", "A", "A*") else []
    closers = lists[-1] if operator != "PLUS" and len(lists) > 1 else []
    period = rules.operation.period or 0
    found: list[Occurrence] = []
    waiting: list[Occurrence] = []
    begun = 0  # of cumulative: when its window began
    instants = _instants([openers, middles, closers])
    now: Position = (-1, 0, 0)

    def fire(occurrence: Occurrence) -> bool:
        if rules.counts(occurrence):
            found.append(occurrence)
            return True
        return False

    def groups() -> list[list[Occurrence]]:
        """What a context tries, in its order."""
        if context == "cumulative":
            return [list(waiting)] if waiting else []
        return [[opener] for opener in (waiting[-1:] if context == "recent" else waiting)]

    def usable(group: list[Occurrence], by: Occurrence) -> list[Occurrence]:
        return [opener for opener in group if opener.end < rules.border(by)]

    def phase(group: list[Occurrence]) -> int:
        return begun if context == "cumulative" else group[0].end[0]

    def between(group: list[Occurrence], closer: Occurrence) -> list[Occurrence]:
        """The middles and ticks behind the first of a group and before a closer."""
        first, last = min(opener.end for opener in group), rules.border(closer)
        if operator == "P*":
            ticks = [(time, 1, 0) for time in range(phase(group) + period, last[0] + 1, period)]
            those = [Occurrence(tick, tick, (Part(None, tick, None),)) for tick in ticks]
        else:
            those = middles
        return [each for each in those if first < rules.border(each) and each.end < last]

    def close(closer: Occurrence) -> bool:
        did = False
        for group in groups():
            group = usable(group, closer)
            if operator == "NOT":
                group = [opener for opener in group if not between([opener], closer)]
            if not group:
                continue
            if operator in ("SEQ", "NOT"):
                if not fire(_join([*group, closer])):
                    continue
            elif operator in ("A*", "P*"):
                gathered = [each for each in between(group, closer) if rules.fresh(each, now[0])]
                if gathered and not fire(_join([*group, *gathered, closer])):
                    continue
            did = True
            if context != "recent" or operator not in ("SEQ", "NOT"):
                for opener in group:
                    waiting.remove(opener)
            if context == "chronicle":
                break
        return did

    def ticks() -> list[int]:
        """When the open windows tick next."""
        if operator not in ("P", "PLUS"):
            return []
        return [phase(group) + ((now[0] - phase(group)) // period + 1) * period for group in groups()]

    while True:
        following = [instant for instant in instants if instant > now][:1]
        at_tick = [(time, 1, 0) for time in ticks() if time <= rules.node.until]
        if now[1] == 0:  # at the instant of an event a tick of the same time is still to come
            at_tick += [
                (now[0], 1, 0) for group in groups() if period and _ticks_at(operator, phase(group), now, period)
            ]
        if not following and not at_tick:
            return found
        now = min(following + at_tick)
        waiting = [opener for opener in waiting if rules.fresh(opener, now[0])]
        closed = [closer for closer in _at(closers, now) if close(closer)]
        if operator == "A":
            for middle in _at(middles, now):
                for group in groups():
                    group = usable(group, middle)
                    if group and fire(_join([*group, middle])):
                        if context == "cumulative":
                            waiting = [opener for opener in waiting if opener not in group]
                        if context == "chronicle":
                            break
        if now[1] == 1:
            for group in groups():
                if _ticks_at(operator, phase(group), now, period):
                    fire(_join(group, now[0]))
                    if operator == "PLUS":
                        waiting = [opener for opener in waiting if opener not in group]
        for opener in _at(openers, now):
            if context == "recent":
                waiting = [opener]
            elif not any(_same(opener, closer) for closer in closed):
                if not waiting:
                    begun = now[0]
                waiting.append(opener)


def _ticks_at(operator: str, begun: int, now: Position, period: int) -> bool:
    if operator == "PLUS":
        return now[0] == begun + period
    return operator == "P" and now[0] > begun and (now[0] - begun) % period == 0

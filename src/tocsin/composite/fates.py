"""What becomes of the constituents of a detection: used up by it, or still open to take part in another.

It follows from operator, context and role, and is known only so far as the detection itself tells. Where it depends on
what else came (another window that holds the same event, a newer opener of an inner operation) the answer is *perhaps*:
never a guess.

Said of the moment after the detection. Later an opener can be replaced, expire, or be given up for want of room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from tocsin.composite.expression import Definition, Expression, Leaf, Operation
from tocsin.composite.origin import TIMED, timers
from tocsin.composite.readings import Reading, Role, flat
from tocsin.filters.filter import Filter
from tocsin.model import Event

__all__ = ["Fate", "completing", "fates"]

Fate = Literal["used", "perhaps", "open"]

_RANK: dict[Fate, int] = {"used": 0, "perhaps": 1, "open": 2}


class _Place(NamedTuple):
    """A filter in the whole of a definition, also in the definitions it names."""

    leaf: Leaf
    holds: bool
    """Can an event stay there, or in something made of it?"""


def fates(
    whole: Reading, offsets: list[int | None], definitions: Mapping[str, Definition], events: Mapping[int, Event]
) -> list[Fate | None]:
    """What becomes of each part; None: a tick.

    Args:
        whole: the parts as they were read.
        offsets: theirs; None: a tick.
        definitions: those that may be named.
        events: constituents by offset, as far as they are known.
    """
    found: list[Fate] = ["used"] * len(offsets)
    _settle(whole, True, found)
    places = list(_places(whole.definition, definitions))
    taken: dict[int, list[Leaf]] = {}
    for reading in flat(whole):
        if isinstance(reading.expression, Leaf) and reading.expression.filter is not None:
            taken.setdefault(reading.begins, []).append(reading.expression)
    elsewhere = {
        offset: [place for place in _others(places, leaves) if _fits(place, leaves[0], events.get(offset))]
        for offset, leaves in taken.items()
    }
    completed = completing(whole)
    last = None if completed is None else completed.begins
    stirred = timers(whole.definition.expression, definitions) > 1 if last is None else bool(elsewhere[last])
    if last is not None and (reopened := _reopened(whole, last, elsewhere[last], events)):
        stirred, elsewhere[last] = False, []
        recent = whole.definition.context == "recent"
        for place, offset in enumerate(offsets):
            if offset == last:
                found[place] = "open" if recent or reopened.operator == "A" else "used"
            elif recent:
                found[place] = "used"  # the newer opener has replaced it
    for place, offset in enumerate(offsets):
        if offset is None:
            continue
        if (stirred and found[place] == "open") or (found[place] == "used" and any(p.holds for p in elsewhere[offset])):
            found[place] = "perhaps"
    highest: dict[int | None, Fate] = {}  # an event may be there twice
    for offset, fate in zip(offsets, found, strict=True):
        highest[offset] = max(fate, highest.get(offset, fate), key=_RANK.__getitem__)
    return [None if offset is None else highest[offset] for offset in offsets]


def _settle(reading: Reading, live: bool, found: list[Fate], swept: bool = True) -> None:
    """Note the highest fate that parts have in an operation and below.

    live: it occurred at the last instant. swept: what holds it holds nothing else of its kind any more.
    """
    operation = reading.operation
    final = _final(reading)
    for each in reading.of:
        fate: Fate = "used"
        if operation is not None and each.role != "either":
            fate = _rule(reading, each, final)
            if fate == "open" and not live:
                fate = "perhaps"  # something may have come since
            if fate == "used" and not swept and _is_shared(reading, each):
                fate = "perhaps"
        for place in range(each.start, each.stop):
            if _RANK[fate] > _RANK[found[place]]:
                found[place] = fate
        _settle(each, live and each in final, found, _sweeps(reading, each))


def _rule(reading: Reading, each: Reading, final: list[Reading]) -> Fate:
    """What an operation that has just occurred does with a constituent."""
    assert reading.operation is not None
    operator, context = reading.operation.operator, reading.definition.context
    strict = reading.definition.where is None and reading.definition.semantics == "detection"
    if operator in ("AND", "ANY"):
        if context == "recent":
            several = each in final and any(
                isinstance(r.expression, Leaf) and r.expression.definition for r in flat(each)
            )
            return "perhaps" if several else "open"  # a definition may have occurred several times at once
        windows = context == "continuous" and (reading.operation.count or 2) > 2
        return "perhaps" if windows and final != [each] else "used"  # each window holds what it has met
    if each.role == "opener":
        keeps = operator in ("SEQ", "NOT") and context == "recent"
        return "open" if keeps or operator == "P" or (operator == "A" and context != "cumulative") else "used"
    if operator == "A*" and each.role == "middle":  # the window of another opener may hold it, too
        return "perhaps" if context == "chronicle" or (context != "recent" and not strict) else "used"
    return "used"


def _sweeps(reading: Reading, each: Reading) -> bool:
    """Does the whole, when it occurs, use up all it holds in the place of this constituent?"""
    if reading.role != "whole" or reading.operation is None or reading.operation.operator not in ("SEQ", "NOT"):
        return False
    strict = reading.definition.where is None and reading.definition.semantics == "detection"
    return strict and each.role == "opener" and reading.definition.context in ("continuous", "cumulative")


def _is_shared(reading: Reading, each: Reading) -> bool:
    """Can an inner operation have occurred several times with this constituent?"""
    return reading.definition.context == "continuous" and each.role != "opener"


def _final(reading: Reading) -> list[Reading]:
    """The constituents that came at the instant at which it occurred."""
    if not reading.of or (reading.operation is not None and reading.operation.operator in TIMED):
        return []
    last = reading.of[-1]
    return [last, *(each for each in reading.of[:-1] if each.ends is not None and each.ends == last.ends)]


def completing(reading: Reading) -> Reading | None:
    """The filter at which the event that completed it came in; None: a timer or an absolute time completed it."""
    if reading.operation is not None and reading.operation.operator in TIMED:
        return None
    if isinstance(reading.expression, Leaf) and reading.expression.at is not None:
        return None
    return completing(reading.of[-1]) if reading.of else reading


def _places(definition: Definition, definitions: Mapping[str, Definition]) -> Iterator[_Place]:
    interval = definition.semantics == "interval"

    def walk(expression: Expression, role: Role, depth: int) -> Iterator[_Place]:
        if isinstance(expression, Leaf):
            if expression.definition is not None:
                yield from walk(definitions[expression.definition].expression, "named", depth + 1)
            elif expression.at is None:
                passes = role == "closer" or (role == "middle" and operator != "A*" and not interval)
                yield _Place(expression, not (depth == 1 and (passes or operator == "OR")))
            return
        for number, part in enumerate(expression.of):
            yield from walk(part, _role(expression.operator, number, len(expression.of)), depth + 1)

    operator = "OR" if isinstance(definition.expression, Leaf) else definition.expression.operator
    yield from walk(definition.expression, "whole", 0)


def _role(operator: str, number: int, count: int) -> Role:
    if operator in ("OR", "AND", "ANY"):
        return "either" if operator == "OR" else "kind"
    if number == 0:
        return "opener"
    return "middle" if number == 1 and count == 3 else "closer"


def _others(places: list[_Place], taken: list[Leaf]) -> list[_Place]:
    """The places that an event did not take."""
    rest = list(taken)
    found = []
    for place in places:
        if any(place.leaf is leaf for leaf in rest):
            rest = [leaf for leaf in rest if leaf is not place.leaf]
        else:
            found.append(place)
    return found


def _fits(place: _Place, taken: Leaf, event: Event | None) -> bool:
    """Does the event match there, too? If it is not known: can it?"""
    test = Filter(str(place.leaf.filter))
    return test.matches(event) if event is not None else test.overlaps(Filter(str(taken.filter)))


def _reopened(whole: Reading, last: int, elsewhere: list[_Place], events: Mapping[int, Event]) -> Operation | None:
    """The whole, if all that the last event did beside completing it was to come as its opener, too: SEQ(a, a)."""
    operation = whole.operation
    if operation is None or operation.operator not in ("SEQ", "NOT", "A", "A*", "P*"):
        return None
    final = whole.of[-1].expression
    if not isinstance(final, Leaf) or len(elsewhere) != 1 or elsewhere[0].leaf is not operation.of[0]:
        return None
    return operation if last in events or final.filter == elsewhere[0].leaf.filter else None

"""Why a derived event is there: which parts, by which rule, what it used up, and why not earlier.

Made from the definition and the derived event alone. With the constituents themselves (`events`, by offset) it shows
types and times, and is surer which filter each of them matched. What cannot be known is said to be unknown: a part
whose `fate` is *perhaps*, a `leaf` that is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tocsin.composite.expression import Context, Definition, Leaf, Semantics
from tocsin.composite.fates import Fate, completing, fates
from tocsin.composite.origin import TIMED, is_of
from tocsin.composite.printer import print_expression
from tocsin.composite.readings import Reading, Readings, Role, flat
from tocsin.composite.sentences import rule
from tocsin.errors import EventError
from tocsin.model import Event, parse_time, time_text

__all__ = ["ExplainedPart", "Explanation", "Step", "explain"]

_SHOWN = 30
"""Parts and steps that the text shows; the fields have them all."""
_FEW, _MANY = 8, 400
"""Ways to read parts that are followed at one place; the more only if the fewer lead nowhere."""
_FATES = {"used": "used up", "open": "stays open", "perhaps": "may still be open", None: ""}


class ExplainedPart(msgspec.Struct, frozen=True):
    """One constituent, and what it did."""

    name: str
    role: Role | None
    """In the operation it stands in directly; None: it cannot be told."""
    leaf: str | None
    """What it matched, as the definition has it; None: a tick, or it cannot be told."""
    fate: Fate | None
    """`used` up by this detection, still `open` after it; `perhaps`: that depends on what else came. None: a tick."""
    offset: int | None
    """None: a tick."""
    id: str | None
    source: str | None
    time: datetime | None
    """Journal time; None: the event was not given."""
    event: Event | None = None


class Step(msgspec.Struct, frozen=True):
    """An operation that occurred on the way; the first is the whole."""

    depth: int
    definition: str
    """The name of the definition that it stands in."""
    text: str
    rule: str
    parts: tuple[str, ...]
    within: timedelta | None
    """How long it may last."""
    span: timedelta | None
    """How long it lasted; None: not known."""


class Explanation(msgspec.Struct, frozen=True):
    """Why a derived event is there. `str()` is for people."""

    definition: Definition
    key: dict[str, Any]
    time: datetime
    parts: tuple[ExplainedPart, ...]
    """As in the derived event."""
    steps: tuple[Step, ...]
    """From the top down."""
    completed_by: ExplainedPart | None
    """What was missing until then; None: a timer, at `time`, or it cannot be told."""
    missing: str
    """Why not earlier, in a sentence."""
    span: timedelta | None
    """From the first part to the end; None: not known."""
    within: timedelta | None
    """How long that may take."""
    certain: bool
    """Is there one way only to read the parts?"""

    @property
    def context(self) -> Context:
        """The definition's."""
        return self.definition.context

    @property
    def semantics(self) -> Semantics:
        """The definition's."""
        return self.definition.semantics

    @property
    def rule(self) -> str:
        """The rule of the whole, in a sentence."""
        if self.steps:
            return self.steps[0].rule
        expression = self.definition.expression
        if isinstance(expression, Leaf) and expression.at is not None:
            return "Each time it is that time; nothing is kept."
        return "Each event that matches the filter is one; nothing is kept."

    @property
    def used(self) -> tuple[ExplainedPart, ...]:
        """The parts that this detection used up."""
        return tuple(part for part in self.parts if part.fate == "used")

    @property
    def open(self) -> tuple[ExplainedPart, ...]:
        """The parts that were open after it, to take part again."""
        return tuple(part for part in self.parts if part.fate == "open")

    @property
    def text(self) -> str:
        """The same as `str()`."""
        return "\n".join(_lines(self))

    def __str__(self) -> str:
        """Return the explanation in plain lines."""
        return self.text


def explain(
    event: Event, definitions: Mapping[str, Definition], events: Mapping[int, Event] | None = None
) -> Explanation:
    """Say why a derived event is there.

    Args:
        event: what a definition detected.
        definitions: all of them by name.
        events: its constituents by offset, as many as are at hand.

    Raises:
        EventError: it is none of these definitions' events.
    """
    definition = definitions.get(event.type)
    if definition is None:
        raise EventError(f"{event.type} is no definition", field="type", help="give an event that a definition made")
    parts = _parts(event)
    offsets = [part.get("offset") for part in parts]
    known = {offset: _same(parts, offset, given) for offset, given in (events or {}).items() if offset in offsets}
    reader = Readings(parts, definitions, known, _FEW)
    ways = reader.whole(definition)
    if not ways and not reader.complete:
        reader = Readings(parts, definitions, known, _MANY)
        ways = reader.whole(definition)
    if not ways or event.time is None or not is_of(definition, event, parts, definitions):
        raise EventError(
            f"this event was not made by {definition.name} as it is now, {definition.text} in {definition.context}",
            field="data",
            help="it may have been defined otherwise then",
        )
    certain = reader.complete and len(ways) == 1
    leaves = [_leaves(way) for way in ways]
    ends = [fates(way, offsets, definitions, known) for way in ways]
    explained = []
    for place, part in enumerate(parts):
        matched = {each[place] for each in leaves} if reader.complete else {(None, None)}
        role, leaf = matched.pop() if len(matched) == 1 else (None, None)
        fate: Fate | None = ends[0][place]
        if fate is not None and not (reader.complete and len({each[place] for each in ends}) == 1):
            fate = "perhaps"
        explained.append(_explained(part, role, leaf, fate, known))
    timed = {completing(way) is None for way in ways}
    first = _first(explained, event.time)
    operation = ways[0].operation
    within = None if operation is None else operation.within
    return Explanation(
        definition,
        event.data.get("key", {}),
        event.time,
        tuple(explained),
        tuple(_steps(ways, explained, event.time)),
        explained[-1] if timed == {False} else None,  # what comes last stands last
        _missing(ways[0], certain, explained, event.time),
        None if first is None else event.time - first,
        None if within is None else timedelta(microseconds=within),
        certain,
    )


def _parts(event: Event) -> list[dict[str, Any]]:
    """The parts of a derived event, if it has the form of one."""
    parts = event.data.get("parts") if isinstance(event.data, dict) else None
    if not isinstance(parts, list) or not parts or not all(map(_is_part, parts)):
        raise EventError(
            "this is no derived event: its data has no parts", field="data", help="give an event that a definition made"
        )
    return parts


def _is_part(part: Any) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("name"), str):
        return False
    if "offset" in part:
        return (
            isinstance(part["offset"], int) and isinstance(part.get("id"), str) and isinstance(part.get("source"), str)
        )
    return isinstance(part.get("time"), str)


def _same(parts: list[dict[str, Any]], offset: int, given: Event) -> Event:
    for part in parts:
        if part.get("offset") == offset and (part["source"], part["id"]) != (given.source, given.id):
            raise EventError(
                f"the event given for offset {offset} is another one: {given.source} {given.id}",
                field="id",
                help=f"give {part['source']} {part['id']}, or leave it out",
            )
    return given


def _leaves(way: Reading) -> dict[int, tuple[Role | None, str | None]]:
    """What each part matched, and its role."""
    found: dict[int, tuple[Role | None, str | None]] = {}
    for reading in flat(way):
        if reading.expression is None:
            found[reading.start] = (reading.role, None)
        elif isinstance(reading.expression, Leaf) and reading.expression.definition is None:
            found[reading.start] = (reading.role, print_expression(reading.expression))
    return found


def _explained(
    part: dict[str, Any], role: Role | None, leaf: str | None, fate: Fate | None, known: Mapping[int, Event]
) -> ExplainedPart:
    if "offset" not in part:
        return ExplainedPart(part["name"], role, leaf, None, None, None, None, parse_time(part["time"], "time"))
    event = known.get(part["offset"])
    time = None if event is None else event.arrived or event.time
    return ExplainedPart(part["name"], role, leaf, fate, part["offset"], part["id"], part["source"], time, event)


def _first(parts: Sequence[ExplainedPart], last: datetime) -> datetime | None:
    times = [part.time for part in parts]
    return None if None in times else min([last, *filter(None, times)])


def _steps(ways: list[Reading], parts: list[ExplainedPart], time: datetime) -> Iterator[Step]:
    """The operations that all ways to read have in common."""
    others = [{(id(each.expression), each.start, each.stop) for each in flat(way)} for way in ways[1:]]

    def walk(reading: Reading, depth: int) -> Iterator[Step]:
        operation = reading.operation
        shared = all((id(reading.expression), reading.start, reading.stop) in each for each in others)
        if operation is not None and shared:
            mine = parts[reading.start : reading.stop]
            within = None if operation.within is None else timedelta(microseconds=operation.within)
            yield Step(
                depth,
                reading.definition.name,
                print_expression(operation),
                rule(operation, reading.definition.context),
                tuple(part.name for part in mine),
                within,
                _span(reading, parts, time),
            )
        for each in reading.of:
            yield from walk(each, depth + (operation is not None))

    yield from walk(ways[0], 0)


def _span(reading: Reading, parts: list[ExplainedPart], time: datetime) -> timedelta | None:
    """How long it lasted; None: a part is not known, or a timer ended it before the whole was there."""
    last = completing(reading)
    end = time if reading.role == "whole" else None if last is None else parts[last.start].time
    first = None if end is None else _first(parts[reading.start : reading.stop], end)
    return None if first is None or end is None else end - first


def _missing(way: Reading, certain: bool, parts: list[ExplainedPart], time: datetime) -> str:
    """Why not earlier: from what came last up to the whole."""
    lacked: list[str] = []
    reading = way
    while reading.of and not _is_timed(reading):
        last = reading.of[-1]
        if reading.operation is not None:
            lacked.append(f"{_LACKED[last.role]} for {reading.operation.operator}")
        elif isinstance(reading.expression, Leaf):
            lacked.append(f"no {reading.expression.definition}")
        reading = last
    if _is_timed(reading):
        assert reading.operation is not None
        lacked.append(f"no tick of {reading.operation.operator}")
        until = f"Until {time_text(time)}"
    elif parts[reading.start].offset is None:
        until = f"Until {parts[reading.start].name} came, at {time_text(time)},"
    else:
        until = f"Until {parts[reading.start].name} came (offset {parts[reading.start].offset})"
    if not lacked or not certain:
        return f"{until} something was missing."
    return f"{until} there was {', and so '.join(reversed(lacked))}."


_LACKED: dict[Role, str] = {
    "middle": "no middle",
    "closer": "no closer",
    "kind": "one too few",
    "either": "nothing",
}


def _is_timed(reading: Reading) -> bool:
    return reading.operation is not None and reading.operation.operator in TIMED


def _lines(found: Explanation) -> Iterator[str]:
    key = ", ".join(f"{field} = {value!r}" for field, value in found.key.items())
    yield f"{found.definition.name} occurred at {time_text(found.time)}{f' for {key}' if key else ''}"
    yield f"  {found.definition.text}"
    yield f"  context {found.context}, semantics {found.semantics}"
    yield ""
    yield from _table([_row(part) for part in found.parts[:_SHOWN]])
    yield from _more(len(found.parts))
    if not found.certain:
        yield "  There are several ways to read these parts; hand in the events, or name constituents, to know more."
    yield ""
    yield found.rule
    for step in found.steps[1:_SHOWN]:
        yield f"{'  ' * step.depth}{', '.join(step.parts[:_SHOWN])}: {step.text}{_length(step.span, step.within)}"
        yield f"{'  ' * step.depth}  {step.rule}"
    yield from _more(len(found.steps))
    if found.definition.where is not None:
        yield f"The condition was true: {found.definition.where}"
    yield ""
    yield f"Why not earlier: {found.missing}{_length(found.span, found.within)}"


def _row(part: ExplainedPart) -> list[str]:
    if part.offset is None:
        return [part.role or "", part.name, part.leaf or "", "", time_text(part.time) if part.time else "", ""]
    shown = "" if part.event is None else part.event.type
    time = "" if part.time is None else time_text(part.time)
    return [
        part.role or "",
        part.name,
        part.leaf or "",
        f"offset {part.offset} {shown}".rstrip(),
        time,
        _FATES[part.fate],
    ]


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width]
        yield f"  {'  '.join(cells)}".rstrip()


def _more(count: int) -> Iterator[str]:
    if count > _SHOWN:
        yield f"  and {count - _SHOWN:,} more"


def _length(span: timedelta | None, within: timedelta | None) -> str:
    if span is None:
        return ""
    shown = _elapsed(span) if span else "no time"
    return f"  ({shown} from first to last{'' if within is None else f', {span / within:.0%} of what it may take'})"


def _elapsed(span: timedelta) -> str:
    """How long something took, for people: three digits, in a unit that leaves few of them before the point."""
    seconds = span.total_seconds()
    for most, size, unit in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "minutes"), (172_800, 3600, "hours")):
        if seconds < most:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:,.1f} days"

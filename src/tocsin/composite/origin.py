"""Did this definition make this event? Its id tells: it is a hash of the definition and of what was detected.

A definition of the same name may have been another one at the time: with other text, or in another context. Timers that
took part are in the id and not in the event. Where they cannot be told from it, nothing is known, and nothing refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from tocsin.clock import as_micros
from tocsin.composite.deriving import deriver
from tocsin.composite.expression import Definition, Expression, Leaf
from tocsin.composite.occurrence import Occurrence, Part
from tocsin.model import Event, parse_time

__all__ = ["TIMED", "is_of", "timers"]

TIMED = ("P", "PLUS")
"""Operators whose timers are in no part."""


def is_of(
    definition: Definition, event: Event, parts: Sequence[Mapping[str, Any]], definitions: Mapping[str, Definition]
) -> bool:
    """Is it so, as far as can be known?"""
    count = timers(definition.expression, definitions)
    top = not isinstance(definition.expression, Leaf) and definition.expression.operator in TIMED
    given = event.data.get("key")
    if event.time is None or not isinstance(given, dict) or list(given) != list(definition.by):
        return False
    if count > top:
        return True
    time = as_micros(event.time)
    made_of = tuple(
        Part(part["name"], part["offset"], part["id"], part["source"], time)
        if "offset" in part
        else Part(part["name"], None, "", "", as_micros(parse_time(part["time"], "time")))
        for part in parts
    )
    occurrence = Occurrence(time, 0, time, 0, made_of, (time,) if top else ())
    derive = deriver(definition)
    return any(derive(key, occurrence).id == event.id for key in product(*map(_forms, given.values())))


def timers(expression: Expression, definitions: Mapping[str, Definition]) -> int:
    """How many operations of an expression, and of the definitions it names, occur by a timer."""
    if isinstance(expression, Leaf):
        named = expression.definition
        return 0 if named is None else timers(definitions[named].expression, definitions)
    return (expression.operator in TIMED) + sum(timers(part, definitions) for part in expression.of)


def _forms(value: Any) -> list[Any]:
    """What a value of a key can have been before it was shown: see `keys`."""
    if isinstance(value, bool):
        return [f"\x00{str(value).lower()}"]
    if isinstance(value, float) and value != value:
        return ["\x00nan"]
    return [value, f"\x00{value}"] if isinstance(value, str) else [value]

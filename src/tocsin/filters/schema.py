"""Declared attributes per event type: what an event may hold and what a filter may ask.

Declaring is optional. With a schema, a misspelt name, a number asked for as text, or a filter that can match nothing is
refused when it is handed in, with a reason. In TOML, one table per event type; `"*"` holds for all types:

    strict = true                                        # the default; false: what is not declared passes unchecked

    ["*"]
    region = { values = ["eu", "us"] }                   # an enumeration of texts (or of numbers)

    ["machine.value"]
    value = { min = 0, max = 10, step = 0.5 }            # a number; each of the three may be left out
    machine = { type = "text" }                          # text, number, boolean, timestamp, array, or any
    "position.lat" = { min = -90, max = 90 }             # a field of the payload further down: data.position.lat

A declared name is the same thing as attribute, as top-level field of the payload, and as `data.name`.

With a step, numbers are rounded to the grid `min, min + step, …`: once, here, in events (`check_event`) and in the
constants of filters (`check_filter`), never in matching. A value must be inside the bounds before it is rounded; one
half way goes to the even grid point. Equal grid points give equal numbers, however they were reached.

Pure: reads no files. `Schema.from_toml(text)` and `Schema.from_attributes(text)` take text.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec

from tocsin.errors import EventError, SchemaError
from tocsin.filters import admission, intervals, refusals, values
from tocsin.filters.advice import near
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import domain
from tocsin.model import ENVELOPE, Event

if TYPE_CHECKING:
    from tocsin.filters.filter import Filter

__all__ = ["ANY_TYPE", "Attribute", "Schema"]

ANY_TYPE = "*"
"""The table whose declarations hold for every event type."""

KINDS = {
    "text": values.TEXT,
    "number": values.NUMBER,
    "boolean": values.BOOLEAN,
    "timestamp": values.TIME,
    "array": values.OTHER,
    "any": None,
}
_OPTIONS = frozenset({"type", "min", "max", "step", "values"})
_MAX_GRID = 2**53
_MAX_POINTS = 4_096  # a finer grid is treated as an interval when looking for filters that match nothing
_ALIASES = {"string": "text", "str": "text", "list": "array", "date": "timestamp", "datetime": "timestamp"} | (
    dict.fromkeys(["int", "integer", "long", "float", "double", "decimal"], "number")
)
_LAYOUT = 'write ["event.type"], and below it lines like name = { type = "text" }'
_LINE = re.compile(r"\(at line (\d+)")


class Attribute(msgspec.Struct, frozen=True):
    """One declared name and what it may hold."""

    name: str
    """With dots for a field further down in the payload."""
    type: str
    """One of text, number, boolean, timestamp, array, any."""
    low: float | None = None
    high: float | None = None
    step: float | None = None
    values: tuple[str, ...] | tuple[float, ...] = ()
    """The only values allowed, in the order of their declaration; empty: no enumeration."""

    @property
    def kind(self) -> str | None:
        """The kind of value in `tocsin.filters.values`; None for any."""
        return KINDS[self.type]

    def check(self, value: Any, field: str) -> Any:
        """Return the value as admitted: a number on the grid, anything else as it is.

        Raises:
            EventError: naming `field`: another type, or outside what is declared.
        """
        kind = self.kind
        have = values.kind_of(value)
        if kind is None:
            return value
        if kind == values.TIME and have == values.TEXT and values.text_as_time(value) is not None:
            return value
        if have != kind or (kind == values.OTHER and not isinstance(value, list)):
            raise EventError(
                f"{field} is {_show(value)}, not a{'n' * (self.type == 'array')} {self.type}",
                field=field,
                help=f"{self.name} is declared as {self.describe()}",
            )
        if kind == values.NUMBER and not self._within(value) or (self.values and value not in self.values):
            raise EventError(
                f"{field} is {_show(value)}, outside what is declared",
                field=field,
                help=f"{self.name} is {self.describe()}",
            )
        return self.snap(value) if self.step is not None else value

    def snap(self, number: float) -> float:
        """Round a number inside the bounds to the nearest grid point; outside, or without a step, keep it."""
        if self.step is None or self.low is None or not self._within(number):
            return number
        start, step = _exact(self.low), _exact(self.step)
        index = round((_exact(number) - start) / step)
        if self.high is not None:
            index = min(index, (_exact(self.high) - start) // step)
        return _plain(start + index * step)

    def _within(self, number: float) -> bool:
        number = values.number(number)
        if not math.isfinite(number):
            return self.low is None and self.high is None and self.step is None
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    def allowed(self) -> Cuts | None:
        """The set of admitted values in the domain of `kind`; None if there is no such set (arrays, any)."""
        kind = self.kind
        if kind is None or kind == values.OTHER:
            return None
        if self.values:
            keys = (
                intervals.text_key(v) if isinstance(v, str) else intervals.number_key(float(v)) for v in self.values
            )
            return intervals.points(keys)
        if kind != values.NUMBER:
            return domain(kind)
        bottom, top = domain(kind)
        if self.step is not None and self.low is not None and self.high is not None:
            start, step = _exact(self.low), _exact(self.step)
            last = (_exact(self.high) - start) // step
            if last < _MAX_POINTS:
                return intervals.points(intervals.number_key(float(start + i * step)) for i in range(last + 1))
        low = bottom if self.low is None else intervals.number_key(self.low)
        high = top if self.high is None else intervals.after(intervals.number_key(self.high))
        return (low, high)

    def describe(self) -> str:
        """Say in words what is declared, for messages."""
        if self.values:
            shown = ", ".join(map(repr, self.values[:8]))
            return f"one of {shown}{', …' if len(self.values) > 8 else ''}"
        words = [f"a{'n' * self.type.startswith('a')} {self.type}"]
        if self.low is not None:
            words.append(f"from {self.low}")
        if self.high is not None:
            words.append(f"{'at most' if self.low is None else 'to'} {self.high}")
        if self.step is not None:
            words.append(f"in steps of {self.step}")
        return " ".join(words)


class Schema:
    """Declarations, and the two checks they are for.

    Args:
        types: event type → declarations; `"*"` for every type.
        strict: refuse what is not declared.
    """

    def __init__(self, types: Mapping[str, Iterable[Attribute]], *, strict: bool = True) -> None:
        """Keep the declarations."""
        self.strict = strict
        self._types: dict[str, dict[str, Attribute]] = {
            name: {attribute.name: attribute for attribute in attributes} for name, attributes in types.items()
        }
        self._common = self._types.pop(ANY_TYPE, {})

    @property
    def types(self) -> tuple[str, ...]:
        """The event types with declarations of their own."""
        return tuple(self._types)

    def attributes(self, type: str | None = None) -> dict[str, Attribute]:
        """Return name → declaration for one event type, or (None) those that hold for every type."""
        return self._common | self._types.get(type, {}) if type is not None else dict(self._common)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Read the layout shown in this module's docstring.

        Raises:
            SchemaError: not TOML (`.position` is the line), or a declaration that makes no sense (`.field` names it).
        """
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = _LINE.search(str(error))
            raise SchemaError(
                f"the schema is not TOML: {error}", position=int(line[1]) if line else None, help=_LAYOUT
            ) from None
        strict = True
        types: dict[str, list[Attribute]] = {}
        for name, table in tables.items():
            if name == "strict" and isinstance(table, bool):
                strict = table
                continue
            if not isinstance(table, dict):
                message = "strict is neither true nor false" if name == "strict" else f"{name} stands in no table"
                help = "write strict = true" if name == "strict" else 'write ["event.type"] above it'
                raise SchemaError(message, field=name, help=help)
            types[name] = [_declaration(f"{name}.{field}", field, options) for field, options in table.items()]
        return cls(types, strict=strict)

    @classmethod
    def from_attributes(cls, text: str) -> Schema:
        """Read the `.attributes` format: `name#lower:upper:step`, `name$value:value:…`, `%` comments, blank lines.

        The declarations hold for every event type, strictly.

        Raises:
            SchemaError: `.position` is the line.
        """
        declared: dict[str, Attribute] = {}
        for place, raw in enumerate(text.splitlines(), start=1):
            line = raw.strip()
            if not line or line.startswith("%"):
                continue
            try:
                attribute = _attribute_line(line)
                if attribute.name in declared:
                    raise SchemaError(f"{attribute.name} is declared twice", field=attribute.name)
            except SchemaError as error:
                raise SchemaError(error.message, field=error.field, position=place, help=error.help) from None
            declared[attribute.name] = attribute
        return cls({ANY_TYPE: declared.values()})

    def check_event(self, event: Event) -> Event:
        """Return the event as admitted: numbers rounded to their declared step.

        Raises:
            EventError: naming the field: not declared (strict), another type, or outside what is declared.
        """
        declared = self.attributes(event.type)
        attributes = {
            name: self._admit(declared, name, value, f"attributes.{name}", event.type)
            for name, value in event.attributes.items()
        }
        data = self._payload(declared, event.data, "", event.type) if isinstance(event.data, dict) else event.data
        if data is event.data and all(value is event.attributes[name] for name, value in attributes.items()):
            return event
        return event.replace(attributes=attributes, data=data)

    def _payload(self, declared: dict[str, Attribute], data: dict[str, Any], above: str, type: str) -> dict[str, Any]:
        """Check a JSON object; it is copied only where a value changes."""
        changed: dict[str, Any] = {}
        for field, value in data.items():
            name = above + field
            if isinstance(value, dict) and name not in declared and _outer(declared, name):
                admitted: Any = self._payload(declared, value, name + ".", type)
            else:
                admitted = self._admit(declared, name, value, f"data.{name}", type)
            if admitted is not value:
                changed[field] = admitted
        return data | changed if changed else data

    def _admit(self, declared: dict[str, Attribute], name: str, value: Any, field: str, type: str) -> Any:
        attribute = declared.get(name)
        if attribute is not None:
            return value if value is None else attribute.check(value, field)
        if self.strict:
            likely = None if type in self._types else near(type, self._types)
            help = f"did you mean the type {likely}?" if likely else refusals.suggestion(name, declared)
            raise EventError(f"{field} is not declared for events of type {type}", field=field, help=help)
        return value

    def check_filter(self, wanted: Filter, type: str | None = None) -> Filter:
        """Return the filter as admitted: constants rounded to the declared step of what they are compared with.

        Args:
            wanted: the filter.
            type: the event type it is for, if the filter does not say it itself (`type = 'machine.value'`).
                Without either, it is checked against all declared types.

        Raises:
            FilterTypeError: an unknown name (strict), a test of the wrong type, or nothing it could match.
        """
        return admission.admit(self, wanted, type)


def _outer(declared: Mapping[str, Attribute], name: str) -> bool:
    return any(other.startswith(name + ".") for other in declared)


@functools.lru_cache(maxsize=4096)
def _exact(number: float) -> Fraction:
    """The number its author wrote: 0.1 means a tenth, not the nearest double."""
    return Fraction(repr(number))


def _plain(number: Fraction) -> float:
    return int(number) if number.denominator == 1 else float(number)


def _show(value: object) -> str:
    short = isinstance(value, str | float | bool) or (isinstance(value, int) and abs(value) < 2**70)
    text = repr(value) if short else f"of type {type(value).__name__}"
    return text if len(text) <= 48 else text[:47] + "…"


def _attribute_line(line: str) -> Attribute:
    found = re.match(r"([^#$]+)([#$])(.*)\Z", line)
    if found is None:
        raise SchemaError(f"{line[:40]!r} declares nothing", help="write name#lower:upper:step or name$value:value")
    name, kind, rest = found[1].strip(), found[2], found[3].split(":")
    if kind == "$":
        return _declaration(name, name, {"values": [value.strip() for value in rest if value.strip()]})
    try:
        low, high, step = (float(part) if "." in part or "e" in part.lower() else int(part) for part in rest)
    except ValueError:
        raise SchemaError(
            f"{name} has {':'.join(rest)[:40]!r} where three numbers belong",
            field=name,
            help="write name#lower:upper:step",
        ) from None
    return _declaration(name, name, {"min": low, "max": high, "step": step})


def _declaration(place: str, name: str, options: Any) -> Attribute:
    """Check one declaration.

    Raises:
        SchemaError: with `.field` set to `place`.
    """

    def bad(message: str, help: str) -> SchemaError:
        return SchemaError(f"{place}: {message}", field=place, help=help)

    if not isinstance(options, dict):
        kind = options if options in list(KINDS) else "number"
        raise bad("a declaration is a table", f'write {name} = {{ type = "{kind}" }}')
    if unknown := options.keys() - _OPTIONS:
        known = near(min(unknown), _OPTIONS)
        help = f"did you mean {known}?" if known else f"there are {', '.join(sorted(_OPTIONS))}"
        raise bad(f"there is no option {min(unknown)}", f'{help}; an event type with dots needs quotes: ["a.b"]')
    if (
        not name
        or any(not part for part in name.split("."))
        or name in ENVELOPE
        or name.split(".")[0] in ("data", "attributes")
    ):
        raise bad(
            "this name cannot be declared", "declare names of attributes and payload fields, without data. in front"
        )
    listed = options.get("values", [])
    numeric = [option for option in ("min", "max", "step") if option in options]
    kind = options.get("type")
    if "values" in options:
        same = isinstance(listed, list) and (_all_text(listed) or all(map(_is_number, listed)))
        if not listed or not same or len(set(listed)) != len(listed):
            raise bad("values must be different texts, or different numbers", 'write values = ["eu", "us"]')
        if numeric:
            raise bad("values and a range exclude each other", "keep one of them")
    implied = "number" if numeric or (listed and not _all_text(listed)) else "text" if listed else None
    if kind is None:
        kind = implied
    if kind is None:
        raise bad("it says neither a type nor a range", f'write {name} = {{ type = "text" }}')
    if not isinstance(kind, str) or kind not in KINDS:
        likely = _ALIASES.get(str(kind)) or near(str(kind), KINDS)
        help = f"did you mean {likely}?" if likely else f"use one of {', '.join(KINDS)}"
        raise bad(f"there is no type {kind!r}", help)
    if implied is not None and kind != implied:
        raise bad(f"the type {kind} does not fit: the range or the values are of type {implied}", "leave the type away")
    for option in numeric:
        if not _is_number(options[option]):
            raise bad(f"{option} is not a number", "write it without quotes")
    low, high, step = (options.get(option) for option in ("min", "max", "step"))
    if low is not None and high is not None and low > high:
        raise bad("min is above max", "swap them")
    if step is not None:
        if step <= 0 or low is None:
            raise bad("step must be above 0 and needs a min, where the grid begins", "write min = 0, step = 0.5")
        if high is not None and (_exact(high) - _exact(low)) / _exact(step) > _MAX_GRID:
            raise bad("the step is too fine for the range", "use a coarser one, or none")
    return Attribute(name, kind, low, high, step, tuple(listed))


def _all_text(listed: list[Any]) -> bool:
    return all(isinstance(value, str) for value in listed)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

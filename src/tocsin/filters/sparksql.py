r"""Syntax tree → Spark SQL over the columns of the Tocsin source, with the meaning of `tocsin.filters.evaluate`.

The columns the text speaks of, if nobody gives other `Names`:

    offset BIGINT, arrived TIMESTAMP, time TIMESTAMP, id, source, type, subject STRING, priority INT, ttl DOUBLE,
    persistent BOOLEAN, ack, cancel, correlation_id, classification, datacontenttype STRING,
    attributes MAP<STRING, VARIANT>     each value a boolean, BIGINT, DOUBLE or STRING; the map may be NULL
    data STRING                         the payload as JSON text (a text payload is a JSON string); NULL if there is
                                        none; a binary payload is a data URL, `data:;base64,…`, which is no JSON text

Promises:
    - True, false and NULL come out as the node has them, with ANSI mode on or off: nothing in the text can raise.
    - Types in events are dynamic, so each use of a name is guarded by `schema_of_variant`: nothing is coerced.
    - Literals survive Spark's lexer, variable substitution (`${…}`) included.

Does not promise:
    - `distance_km` agrees to rounding only: Java's sine may differ from C's in the last bit.
    - `lower` and `upper` of letters that Java's and Python's Unicode tables do not both know.
    - Whole numbers of more than 1,000 digits: Spark's JSON reader gives up on the payload.
    - NaN in `data`: JSON has none. (An attribute can be NaN: a VARIANT holds it.)
    - Sessions with `spark.sql.parser.escapedStringLiterals` on.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from tocsin.filters import documents, patterns, syntax, values, xpath
from tocsin.filters.syntax import Condition, Field, Literal, Value
from tocsin.filters.tokens import NAME
from tocsin.filters.values import EXACT
from tocsin.model import RESERVED

__all__ = ["WHOLE", "Names", "render", "render_value", "render_variant"]

_NULL = "CAST(NULL AS BOOLEAN)"
_LOWEST = -(2**63)
_ATTRIBUTE_LENGTH = 64
_NUMBERS = "'^(BIGINT|DOUBLE|DECIMAL|FLOAT)'"  # what schema_of_variant calls a number
_COMPARABLE = "'^(BIGINT|DOUBLE|DECIMAL|FLOAT|STRING|BOOLEAN)'"
_ELEMENT = "element"


class _Term(msgspec.Struct, frozen=True):
    """A value as Spark SQL: one expression for each kind it can be of, NULL where the value is of another kind.

    `number` is a DOUBLE. `whole` is the same as a BIGINT where it is one and its double may not be exact.
    """

    missing: str
    """Condition: is the value NULL?"""
    comparable: str = "FALSE"
    """Condition: is the value of a kind that compares at all?"""
    text: str | None = None
    number: str | None = None
    whole: str | None = None
    boolean: str | None = None
    time: str | None = None
    variant: str | None = None


class Names(msgspec.Struct, frozen=True):
    """What names mean beyond the envelope: the columns of the source, unless somebody knows better."""

    payload: str | None = "try_parse_json(data)"
    """An expression for the payload as a VARIANT; None: no event has one."""
    has_attributes: bool = True
    """Is there a column of attributes?"""
    beside: dict[str, str] = {}
    """Columns that are attributes where they are not NULL: by name, their kind, `WHOLE` or as in `filters.values`."""


WHOLE = "whole"
"""The kind of a column of whole numbers, of which a double may not tell all."""
_SOURCE = Names()
_NOTHING = _Term("TRUE")
"""What a name is that can be nothing."""


def render(condition: Condition, names: Names = _SOURCE) -> str:
    """Return the condition as a Spark SQL boolean expression, for `df.where(…)` or `expr(…)`."""
    return _CONDITIONS[type(condition)](condition, names)


def render_variant(path: tuple[str, ...], names: Names = _SOURCE) -> str | None:
    """What a name means, as a VARIANT; None: it is a column, if only now and then, or can be nothing."""
    term = _field(path, names)
    return term.variant if term.variant is not None and term == _dynamic(term.variant) else None


def render_value(path: tuple[str, ...], variant: str | None = None, names: Names = _SOURCE) -> str | None:
    """What a name means, as a text that tells kinds apart; None: it is a time, or can be nothing.

    `t…` is a text, `n…` a whole number of 64 bits, however it is written, `d…` any other number, `b…` a boolean. Equal
    values have equal texts, others have not. NULL: the value is missing, or not a single one.

    Args:
        path: the name.
        variant: the column that holds what `render_variant` gives, if there is one: it is asked several times.
        names: what names mean.
    """
    term, choices = _field(path, names) if variant is None else _dynamic(variant), []
    if term.text:
        choices.append(f"concat('t', {term.text})")
    if term.whole:
        choices.append(f"concat('n', CAST({term.whole} AS STRING))")
    if term.number:
        is_whole = f"{term.number} = rint({term.number}) AND {term.number} >= {_double(-(2**63))}"
        is_whole += f" AND {term.number} < {_double(2**63)}"
        whole = f"concat('n', CAST(CAST({term.number} AS BIGINT) AS STRING))"
        choices.append(f"(CASE WHEN {is_whole} THEN {whole} ELSE concat('d', CAST({term.number} AS STRING)) END)")
    if term.boolean:
        choices.append(f"concat('b', CAST({term.boolean} AS STRING))")
    return f"coalesce({', '.join(choices)})" if choices else None


# -- conditions; each text is closed by brackets, or is a call


def _and(node: syntax.And, names: Names) -> str:
    return "(" + " AND ".join(render(part, names) for part in node.parts) + ")"


def _or(node: syntax.Or, names: Names) -> str:
    return "(" + " OR ".join(render(part, names) for part in node.parts) + ")"


def _not(node: syntax.Not, names: Names) -> str:
    return f"(NOT {render(node.condition, names)})"


def _negate(text: str, negated: bool) -> str:
    return f"(NOT {text})" if negated else text


def _compare(node: syntax.Compare, names: Names) -> str:
    return _comparison(node.op, _term(node.left, names), _term(node.right, names))


def _between(node: syntax.Between, names: Names) -> str:
    value = _term(node.value, names)
    low, high = _comparison(">=", value, _term(node.low, names)), _comparison("<=", value, _term(node.high, names))
    return _negate(f"({low} AND {high})", node.negated)


def _in(node: syntax.In, names: Names) -> str:
    """One IN list per kind: an OR of thousands would be too deep for Spark, and a mixed list would be coerced."""
    value = _term(node.value, names)
    texts: list[str] = []
    numbers: list[str] = []
    wholes: list[int] = []
    parts: list[str] = []
    for item in node.items:
        constant = item.value if isinstance(item, Literal) else None
        if isinstance(constant, str) and value.text:
            texts.append(_text(constant))
        elif isinstance(constant, int) and not isinstance(constant, bool) and abs(constant) >= EXACT and value.number:
            wholes.append(constant)
        elif isinstance(constant, int | float) and not isinstance(constant, bool) and value.number:
            numbers.append(_double(constant))
        else:
            parts.append(_comparison("=", value, _term(item, names)))
    if texts:
        parts.append(f"({value.text} IN ({', '.join(texts)}))")
    if numbers:
        parts.append(f"({value.number} IN ({', '.join(numbers)}))")
    if wholes:
        as_doubles = f"({value.number} IN ({', '.join(map(_double, wholes))}))"
        as_wholes = f"({value.whole} IN ({', '.join(map(_whole, wholes))}))"
        parts.append(f"coalesce({as_wholes}, {as_doubles})" if value.whole else as_doubles)
    return _negate("(" + " OR ".join(dict.fromkeys(parts)) + ")", node.negated)


def _like(node: syntax.Like, names: Names) -> str:
    # Written anew with `\` as escape: Spark takes no escape character beyond 16 bits.
    parts = patterns.like_parts(node.pattern, node.escape)
    escaped = (p[0] if isinstance(p, tuple) else "".join("\\" + c if c in "%_\\" else c for c in p) for p in parts)
    return _text_test(node.value, f"LIKE {_text(''.join(escaped))}", node.negated, names)


def _rlike(node: syntax.RLike, names: Names) -> str:
    return _text_test(node.value, f"RLIKE {_text(node.pattern)}", node.negated, names)


def _text_test(value: Value, test: str, negated: bool, names: Names) -> str:
    text = _term(value, names).text
    return _negate(f"({text} {test})", negated) if text else _NULL


def _is_null(node: syntax.IsNull, names: Names) -> str:
    return _negate(_term(node.value, names).missing, node.negated)


def _is_truth(node: syntax.IsTruth, names: Names) -> str:
    return f"({render(node.condition, names)} IS {'NOT ' * node.negated}{'TRUE' if node.truth else 'FALSE'})"


def _truth(node: syntax.Truth, names: Names) -> str:
    return _term(node.value, names).boolean or _NULL


def _call(node: syntax.Call, names: Names) -> str:
    if node.name in syntax.XPATH_FUNCTIONS:
        return _xpath(node, names) or _NULL
    first, second = (_term(argument, names) for argument in node.args)
    if node.name == "array_contains":
        return _array_contains(first, second)
    return f"{node.name}({first.text}, {second.text})" if first.text and second.text else _NULL


def _array_contains(array: _Term, value: _Term) -> str:
    if array.variant is None:
        return _NULL
    elements = f"try_variant_get({array.variant}, '$', 'array<variant>')"
    element = _dynamic(_ELEMENT)
    found = f"exists({elements}, {_ELEMENT} -> coalesce({_comparison('=', element, value)}, FALSE))"
    doubt = f"exists({elements}, {_ELEMENT} -> {element.missing})"
    return (
        f"(CASE WHEN {elements} IS NOT NULL AND {value.comparable} "
        f"THEN CASE WHEN {found} THEN TRUE WHEN {doubt} THEN NULL ELSE FALSE END END)"
    )


def _comparison(op: str, left: _Term, right: _Term) -> str:
    """Compare as every kind both sides can be of; at most one of these is not NULL."""
    pairs = [(left.text, right.text), (left.boolean, right.boolean), (left.time, right.time)]
    pairs += [(_as_time(left), right.time), (left.time, _as_time(right))]
    pairs += [(left.whole, right.whole), (left.number, right.number)]  # in this order: exact where both are whole
    branches = [f"({one} {op} {other})" for one, other in pairs if one and other]
    if len(branches) > 1:
        return f"coalesce({', '.join(branches)})"
    return branches[0] if branches else _NULL


def _as_time(term: _Term) -> str | None:
    """A text read as a timestamp, as a comparison with one does."""
    if term.text is None:
        return None
    return f"(CASE WHEN {term.text} RLIKE {_TIMESTAMP} THEN try_cast({term.text} AS TIMESTAMP_LTZ) END)"


# -- values


def _term(node: Value, names: Names) -> _Term:
    if isinstance(node, Literal):
        return _constant(node.value)
    if isinstance(node, Field):
        return _field(node.path, names)
    if node.name in syntax.XPATH_FUNCTIONS:
        return _xpath_term(node, names)
    if node.name in ("lower", "upper", "length"):
        text = _term(node.args[0], names).text
        if text is None:
            return _NOTHING
        applied = f"{node.name}({text})"
        if node.name == "length":
            return _computed(f"CAST({applied} AS DOUBLE)")
        return _Term(f"({applied} IS NULL)", f"({applied} IS NOT NULL)", text=applied)
    numbers = [_term(argument, names).number for argument in node.args]
    if not all(numbers):
        return _NOTHING
    return _computed(_CALCULATIONS[node.name](*numbers))


def _xpath(node: syntax.Call, names: Names) -> str | None:
    """Spark's function of that name, asked only of what it can parse: it raises on anything else.

    There is no other way to ask Spark whether a text is XML than to let its own parser try, which scala-xml, part of
    Spark, does with the same settings. Spark takes a call by name for nondeterministic, so it moves it nowhere.
    """
    text, path = _term(node.args[0], names).text, node.args[1]
    if text is None or not isinstance(path, Literal) or not isinstance(path.value, str):
        return None
    guards = (
        f"length({text}) <= {xpath.read(path.value).longest}",
        f"NOT contains({text}, {_text(documents.DOCTYPE)})",
        f"try_reflect('scala.xml.XML', 'loadString', {text}) IS NOT NULL",
    )
    return f"(CASE WHEN {' AND '.join(guards)} THEN {node.name}({text}, {_text(path.value)}) END)"


def _xpath_term(node: syntax.Call, names: Names) -> _Term:
    found = _xpath(node, names)
    if found is None:
        return _NOTHING
    if node.name == "xpath_string":
        return _Term(f"({found} IS NULL)", f"({found} IS NOT NULL)", text=found)
    term = _computed(f"CAST({found} AS DOUBLE)")
    return msgspec.structs.replace(term, whole=found) if node.name == "xpath_long" else term


def _computed(number: str) -> _Term:
    return _Term(f"({number} IS NULL)", f"({number} IS NOT NULL)", number=number)


def _constant(value: syntax.Scalar) -> _Term:
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return _Term("FALSE", "TRUE", boolean="TRUE" if value else "FALSE")
    if isinstance(value, str):
        return _Term("FALSE", "TRUE", text=_text(value))
    if isinstance(value, datetime):
        return _Term("FALSE", "TRUE", time=f"timestamp_micros({_whole(values.micros(value))})")
    exact = _whole(value) if isinstance(value, int) and abs(value) >= EXACT else None
    return _Term("FALSE", "TRUE", number=_double(value), whole=exact)


def _field(path: tuple[str, ...], names: Names) -> _Term:
    head, rest = path[0], path[1:]
    if head in _COLUMNS:
        return _column(head, _COLUMNS[head]) if not rest else _NOTHING
    if head == "data":
        return _payload(rest, names)
    if head == "attributes" and not rest:
        return _Term("(coalesce(size(attributes), 0) <= 0)") if names.has_attributes else _NOTHING
    is_attribute = head == "attributes"
    name = rest[0] if is_attribute else head
    column = _column(name, names.beside[name]) if name in names.beside else _NOTHING
    attribute = _attribute(name) if names.has_attributes and _can_be_attribute(name) else _NOTHING
    if is_attribute:
        return _first_of(column, attribute) if len(rest) == 1 else _NOTHING
    payload = _payload(path, names)
    if rest:  # an attribute hides the field of that name, and has no fields itself
        absent = [column.missing] if column is not _NOTHING else []
        absent += [f"{attribute.variant} IS NULL"] if attribute is not _NOTHING else []
        if not absent or payload is _NOTHING:
            return payload
        return _dynamic(f"(CASE WHEN {' AND '.join(absent)} THEN {payload.variant} END)")
    return _first_of(column, _first_of(attribute, payload))


def _payload(path: tuple[str, ...], names: Names) -> _Term:
    if names.payload is None:
        return _NOTHING
    if path:
        return _dynamic(_walk(names.payload, path))
    whole = _dynamic(names.payload)  # a binary payload is no JSON, but it is there
    return msgspec.structs.replace(whole, missing=f"(data IS NULL OR is_variant_null({names.payload}))")


def _first_of(one: _Term, other: _Term) -> _Term:
    """One where it is not NULL, else the other, which is a VARIANT or nothing."""
    if one is _NOTHING or other is _NOTHING:
        return other if one is _NOTHING else one
    if one.variant is not None:
        return _dynamic(f"coalesce({one.variant}, {other.variant})")

    def either(mine: str | None, its: str | None) -> str:
        return f"(CASE WHEN {one.missing} THEN {its}{f' ELSE {mine}' if mine else ''} END)"

    return _Term(
        missing=f"({one.missing} AND {other.missing})",
        comparable=f"({one.comparable} OR {other.comparable})",
        text=either(one.text, other.text),
        number=either(one.number, other.number),
        whole=either(one.whole, other.whole),
        boolean=either(one.boolean, other.boolean),
        variant=either(None, other.variant),
    )


def _column(name: str, kind: str) -> _Term:
    column = "`" + name.replace("`", "``") + "`"
    missing, present = f"({column} IS NULL)", f"({column} IS NOT NULL)"
    if kind in (values.NUMBER, WHOLE):
        whole = f"CAST({column} AS BIGINT)" if kind == WHOLE else None
        return _Term(missing, present, number=f"CAST({column} AS DOUBLE)", whole=whole)
    if kind == values.TEXT:
        return _Term(missing, present, text=column)
    return _Term(missing, present, boolean=column) if kind == values.BOOLEAN else _Term(missing, present, time=column)


def _dynamic(variant: str) -> _Term:
    schema = f"schema_of_variant({variant})"

    def read(guard: str, as_type: str) -> str:
        return f"(CASE WHEN {schema} {guard} THEN try_variant_get({variant}, '$', '{as_type}') END)"

    return _Term(
        missing=f"({variant} IS NULL OR is_variant_null({variant}))",
        comparable=f"coalesce({schema} RLIKE {_COMPARABLE}, FALSE)",
        text=read("= 'STRING'", "string"),
        number=read(f"RLIKE {_NUMBERS}", "double"),
        whole=read("= 'BIGINT'", "bigint"),
        boolean=read("= 'BOOLEAN'", "boolean"),
        variant=variant,
    )


def _can_be_attribute(name: str) -> bool:
    return NAME.match(name) is not None and len(name) <= _ATTRIBUTE_LENGTH and name not in RESERVED


def _attribute(name: str) -> _Term:
    return _dynamic(f"try_element_at(attributes, '{name}')")


def _walk(variant: str, path: tuple[str, ...]) -> str:
    """Go down a path. Spark's path syntax cannot say every name; those it cannot are looked up in a map."""
    plain = ""
    for name in path:
        if NAME.match(name):
            plain += f".{name}"
            continue
        if plain:
            variant, plain = f"try_variant_get({variant}, '${plain}', 'variant')", ""
        variant = f"try_element_at(try_variant_get({variant}, '$', 'map<string,variant>'), {_text(name)})"
    return f"try_variant_get({variant}, '${plain}', 'variant')" if plain else variant


def _distance(lat1: str, lon1: str, lat2: str, lon2: str) -> str:
    def half_sine(one: str, other: str) -> str:
        return f"pow(sin((radians({other}) - radians({one})) / 2D), 2D)"

    on_earth = f"abs({lat1}) <= 90D AND abs({lat2}) <= 90D AND abs({lon1}) <= 180D AND abs({lon2}) <= 180D"
    square = f"{half_sine(lat1, lat2)} + cos(radians({lat1})) * cos(radians({lat2})) * {half_sine(lon1, lon2)}"
    return f"(CASE WHEN {on_earth} THEN {_double(2 * values.EARTH_RADIUS_KM)} * asin(least(1D, sqrt({square}))) END)"


# -- literals


def _text(value: str) -> str:
    r"""Quote a text. `${` would be substituted before Spark's lexer sees it; control characters are for readers."""
    quoted = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return "'" + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in quoted) + "'"


def _double(value: int | float) -> str:
    number = float(value) + 0.0  # -0.0 is 0.0 in every comparison
    if number in (float("inf"), float("-inf")):
        return f"CAST('{'-' * (number < 0)}Infinity' AS DOUBLE)"
    text = f"{number!r}D".upper()
    return f"({text})" if number < 0 else text


def _whole(value: int) -> str:
    if value == _LOWEST:  # Spark reads the digits before the sign, and these do not fit
        return f"CAST('{value}' AS BIGINT)"
    return f"({value}L)" if value < 0 else f"{value}L"


_TIMESTAMP = _text(f"^(?:{values.TIMESTAMP_TEXT})\\z")
_COLUMNS: dict[str, str] = {
    "offset": WHOLE,
    **dict.fromkeys(("priority", "ttl"), values.NUMBER),
    **dict.fromkeys(("arrived", "time"), values.TIME),
    **dict.fromkeys(("id", "source", "type", "subject", "ack", "cancel", "correlation_id"), values.TEXT),
    **dict.fromkeys(("classification", "datacontenttype"), values.TEXT),
    "persistent": values.BOOLEAN,
}
_CALCULATIONS: dict[str, Callable[..., str]] = {
    "+": lambda left, right: f"({left} + {right})",
    "-": lambda left, right: f"({left} - {right})",
    "*": lambda left, right: f"({left} * {right})",
    "/": lambda left, right: f"({left} / nullif({right}, 0D))",
    "%": lambda left, right: f"({left} % nullif({right}, 0D))",
    "negate": lambda value: f"(- {value})",
    "abs": lambda value: f"abs({value})",
    "distance_km": _distance,
}
_CONDITIONS: dict[type, Callable[[Any, Names], str]] = {
    syntax.Compare: _compare,
    syntax.Between: _between,
    syntax.In: _in,
    syntax.Like: _like,
    syntax.RLike: _rlike,
    syntax.IsNull: _is_null,
    syntax.IsTruth: _is_truth,
    syntax.Truth: _truth,
    syntax.Not: _not,
    syntax.And: _and,
    syntax.Or: _or,
    syntax.Call: _call,
}

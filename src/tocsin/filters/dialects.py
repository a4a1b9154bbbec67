"""Other people's filters → ours: CloudEvents subscription filters and EventBridge-style patterns.

`from_cloudevents` takes the `filters` of the CloudEvents Subscriptions API: one filter object, or a list of which all
must hold. Dialects `exact`, `prefix`, `suffix` (attribute → text), `all`, `any`, `not` and `sql`. They ask context
attributes only: an extension `tenant` is our `attributes.tenant`, `correlationid` is `correlation_id`. An absent
attribute fits nothing, and `not` is true where its filter is not. Of `sql` the part is accepted that means the same in
our language: comparisons, LIKE, IN, AND, OR, NOT, + - * %, LOWER, UPPER, LENGTH, ABS. Refused: EXISTS, XOR, other
functions, division (whole in CloudEvents SQL), and everything ours has beyond theirs.

`from_eventbridge` takes a JSON pattern. `source`, `id`, `time` are ours, `detail-type` is `type`, `detail` is `data`;
any other top-level name is an attribute (`resources`, a list, is refused). Objects nest; a list means any of: a
constant, or one of

    {"prefix": "a"}  {"suffix": "a"}  {"equals-ignore-case": "a"}  {"wildcard": "a*b"}  {"exists": true}
    {"numeric": [">", 0, "<=", 5]}    {"anything-but": "a" | ["a", 1] | {"prefix": "a"} | …}    and "$or": [patterns]

prefix and suffix also take {"equals-ignore-case": "a"}. Differences: JSON null and an absent field are both NULL here;
a field that is an array is asked element by element only with `arrays=True`, and only for constants.

Every refusal is a `FilterError` whose `.field` is the path of the bad part, such as `filters[0].any[1].exact`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tocsin.errors import EventError, FilterError, FilterLimitError
from tocsin.filters import facts, syntax, values
from tocsin.filters.filter import Filter
from tocsin.filters.language import TIME_FIELDS, parse
from tocsin.filters.printer import print_condition
from tocsin.filters.syntax import Condition, Field, Literal, Value
from tocsin.model import ENVELOPE, parse_time

__all__ = ["from_cloudevents", "from_eventbridge"]

MAX_DEPTH = 24
"""Nesting of a foreign filter: what our own language takes, with room for the brackets we add."""

_TRUE, _FALSE = syntax.Truth(Literal(True)), syntax.Truth(Literal(False))
_NUMBERS = frozenset({"priority", "ttl", "offset"})
_CONTEXT = frozenset(
    {"id", "source", "type", "subject", "ack", "cancel", "correlation_id", "classification", "datacontenttype"}
)
_SQL_NODES = (syntax.Compare, syntax.In, syntax.Like, syntax.Not, syntax.And, syntax.Or, syntax.Truth)
_NUMERIC_OPS = frozenset({"=", "<", "<=", ">", ">="})


def from_cloudevents(spec: Any) -> Filter:
    """Translate filters of the CloudEvents Subscriptions API.

    Args:
        spec: one filter object, a list of them (all must hold), or the JSON text of either.

    Raises:
        FilterError: `.field` is the path of what is not understood.
    """
    spec = _decoded(spec)
    if isinstance(spec, list):
        parts = [_cloudevents(part, f"filters[{index}]", 0) for index, part in enumerate(spec)]
        return _made(_all(parts) if parts else _TRUE)
    return _made(_cloudevents(spec, "filter", 0))


def from_eventbridge(pattern: Any, *, arrays: bool = False) -> Filter:
    """Translate an EventBridge-style pattern.

    Args:
        pattern: the pattern, or its JSON text.
        arrays: let a constant also match an element of an array. Such filters cannot be looked up in an index.

    Raises:
        FilterError: `.field` is the path of what is not understood.
    """
    return _made(_Pattern(arrays).fields((), _decoded(pattern), "pattern", 0))


def _made(condition: Condition) -> Filter:
    return Filter(print_condition(condition))


def _decoded(spec: Any) -> Any:
    if not isinstance(spec, str | bytes):
        return spec
    try:
        return msgspec.json.decode(spec)
    except (ValueError, RecursionError) as error:
        raise FilterError(f"this is not JSON: {error}", help="give a JSON object") from None


def _bad(path: str, message: str, help: str) -> FilterError:
    return FilterError(f"{path}: {message}", field=path, help=help)


def _check_depth(path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise FilterLimitError(
            f"{path[:60]}…: nested more than {MAX_DEPTH} deep",
            limit="depth",
            help="split it into several subscriptions",
        )


def _all(parts: list[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else syntax.And(tuple(parts))


def _any(parts: list[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else syntax.Or(tuple(parts))


# -- CloudEvents


def _cloudevents(spec: Any, path: str, depth: int) -> Condition:
    _check_depth(path, depth)
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise _bad(path, "a filter is an object with one dialect", f"use one of {', '.join(_DIALECTS)}")
    ((dialect, content),) = spec.items()
    translate = _DIALECTS.get(dialect)
    if translate is None:
        raise _bad(path, f"there is no dialect {str(dialect)[:40]!r}", f"use one of {', '.join(_DIALECTS)}")
    return translate(content, f"{path}.{dialect}", depth + 1)


def _several(make: Callable[[list[Condition]], Condition], content: Any, path: str, depth: int) -> Condition:
    if not isinstance(content, list) or not content:
        raise _bad(path, "a list of filters is expected", "write at least one filter in it")
    return make([_cloudevents(part, f"{path}[{index}]", depth) for index, part in enumerate(content)])


def _not(content: Any, path: str, depth: int) -> Condition:
    return syntax.IsTruth(_cloudevents(content, path, depth), truth=True, negated=True)


def _attributes(test: str, content: Any, path: str, depth: int) -> Condition:
    if not isinstance(content, Mapping) or not content:
        raise _bad(path, "attributes and their texts are expected", f'write {{"{test}": {{"type": "com.example"}}}}')
    parts: list[Condition] = []
    for name, text in content.items():
        here = f"{path}.{name}"
        if not isinstance(text, str) or not text:
            raise _bad(here, "a text is expected that is not empty", "put the value in quotes")
        parts.append(_attribute(test, str(name), text, here))
    return _all(parts)


def _attribute(test: str, name: str, text: str, path: str) -> Condition:
    if name == "specversion":  # every event is of this version
        fits = {"exact": text == "1.0", "prefix": "1.0".startswith(text), "suffix": "1.0".endswith(text)}
        return _TRUE if fits[test] else _FALSE
    field = _context(name, path)
    if test != "exact":
        if field.path[0] in _NUMBERS or field.path in (*TIME_FIELDS, ("persistent",)):
            raise _bad(path, f"{name} is not a text, so it has no {test}", "use exact, or sql")
        return syntax.Call({"prefix": "startswith", "suffix": "endswith"}[test], (field, Literal(text)))
    if field.path in TIME_FIELDS:
        return syntax.Compare("=", field, Literal(_moment(text, path)))
    typed = _as_typed(text)
    if field.path[0] in _CONTEXT or typed is None:
        return syntax.Compare("=", field, Literal(text))
    if field.path[0] in ENVELOPE:
        return syntax.Compare("=", field, Literal(typed))
    return syntax.In(field, (Literal(text), Literal(typed)))  # an extension may hold the number itself


def _as_typed(text: str) -> bool | int | None:
    """The boolean or whole number that CloudEvents writes as this text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and abs(number) < 2**63 else None


def _context(name: str, path: str) -> Field:
    """The field behind a CloudEvents context attribute."""
    name = {"correlationid": "correlation_id"}.get(name, name)
    if name in ENVELOPE:
        return Field((name,))
    if not facts.attributable(name):
        raise _bad(
            path, f"{name[:40]!r} is not a context attribute", "filters of CloudEvents cannot look into data; use ours"
        )
    return Field(("attributes", name))


def _moment(text: str, path: str) -> Any:
    try:
        return parse_time(text, "time")
    except EventError:
        raise _bad(path, f"{text[:40]!r} is not a timestamp", "write it as 2026-01-31T12:00:00Z") from None


def _sql(content: Any, path: str, depth: int) -> Condition:
    if not isinstance(content, str):
        raise _bad(path, "an expression is expected", "write it in quotes")
    try:
        condition = parse(content)
    except FilterError as error:
        error.field = path
        error.help = error.help or "only what CloudEvents SQL and our filters share is accepted"
        raise
    shared: Condition = _shared(condition, path)
    return shared


def _shared(node: Any, path: str) -> Any:
    """Copy the tree with names as context attributes; refuse what CloudEvents SQL does not have."""
    if isinstance(node, Literal):
        if node.value is None or values.kind_of(node.value) == values.TIME:
            raise _bad(path, "CloudEvents SQL has neither NULL nor timestamps", "use our own filter")
        return node
    if isinstance(node, Field):
        if len(node.path) > 1:
            raise _bad(path, f"{'.'.join(node.path)} reaches into something", "CloudEvents SQL has attributes only")
        return _context(node.path[0], path)
    if isinstance(node, syntax.Call):
        if node.name in (*syntax.CONDITION_FUNCTIONS, *syntax.XPATH_FUNCTIONS, "distance_km", "/"):
            raise _bad(path, f"{node.name} is not the same in CloudEvents SQL, or not in it", "use our own filter")
    elif not isinstance(node, _SQL_NODES):
        raise _bad(path, f"{print_condition(node)[:60]} is not CloudEvents SQL", "use our own filter")
    parts: dict[str, Any] = {}
    for name in node.__struct_fields__:
        child = getattr(node, name)
        if isinstance(child, tuple):
            parts[name] = tuple(_shared(part, path) for part in child)
        else:
            parts[name] = _shared(child, path) if isinstance(child, msgspec.Struct) else child
    return type(node)(**parts)


_DIALECTS: dict[str, Callable[[Any, str, int], Condition]] = {
    "exact": functools.partial(_attributes, "exact"),
    "prefix": functools.partial(_attributes, "prefix"),
    "suffix": functools.partial(_attributes, "suffix"),
    "all": functools.partial(_several, _all),
    "any": functools.partial(_several, _any),
    "not": _not,
    "sql": _sql,
}


# -- EventBridge


class _Pattern:
    """One pattern; `arrays` as in `from_eventbridge`."""

    def __init__(self, arrays: bool) -> None:
        self._arrays = arrays

    def fields(self, above: tuple[str, ...], pattern: Any, path: str, depth: int) -> Condition:
        """An object: every field must fit."""
        _check_depth(path, depth)
        if not isinstance(pattern, Mapping) or not pattern:
            raise _bad(path, "an object with at least one field is expected", 'write {"source": ["line/7"]}')
        parts: list[Condition] = []
        for name, wanted in pattern.items():
            here = f"{path}.{name}"
            if name == "$or":
                if not isinstance(wanted, list) or not wanted:
                    raise _bad(here, "a list of patterns is expected", "write at least one pattern in it")
                parts.append(_any([self.fields(above, one, f"{here}[{i}]", depth + 1) for i, one in enumerate(wanted)]))
                continue
            field = (*above, str(name)) if above else self._top(str(name), here)
            if isinstance(wanted, Mapping):
                if field[0] != "data":
                    raise _bad(here, "only detail has fields", "write a list of values")
                parts.append(self.fields(field, wanted, here, depth + 1))
            elif isinstance(wanted, list) and wanted:
                value = Field(field)
                parts.append(_any([self._one(value, one, f"{here}[{i}]") for i, one in enumerate(wanted)]))
            else:
                raise _bad(here, "a list with at least one value is expected", 'write ["a"] for one value')
        return _all(parts)

    def _top(self, name: str, path: str) -> tuple[str, ...]:
        known = {"detail": ("data",), "detail-type": ("type",)}
        if name in known:
            return known[name]
        if name in ENVELOPE:
            return (name,)
        if name == "resources" or not facts.attributable(name):
            raise _bad(path, f"{name[:40]!r} has no counterpart in our events", "ask source, detail-type, detail, …")
        return ("attributes", name)

    def _one(self, field: Field, wanted: Any, path: str) -> Condition:
        if not isinstance(wanted, Mapping):
            return self._constant(field, wanted, path)
        if len(wanted) != 1:
            raise _bad(path, "one operator is expected", f"use one of {', '.join(_OPERATORS)}")
        ((operator, content),) = wanted.items()
        translate = _OPERATORS.get(operator)
        if translate is None:
            raise _bad(path, f"there is no operator {str(operator)[:40]!r}", f"use one of {', '.join(_OPERATORS)}")
        if field.path in TIME_FIELDS and operator != "exists":
            raise _bad(path, f"{field.path[0]} is a timestamp, so it has no {operator}", "give the whole timestamp")
        return translate(field, content, f"{path}.{operator}")

    def _constant(self, field: Field, wanted: Any, path: str) -> Condition:
        if wanted is None:
            return syntax.IsNull(field)
        same = syntax.Compare("=", field, _scalar(field, wanted, path))
        if not self._arrays or field.path[0] != "data":
            return same
        return syntax.Or((same, syntax.Call("array_contains", (field, Literal(wanted)))))


def _scalar(field: Field, wanted: Any, path: str) -> Literal:
    if field.path in TIME_FIELDS:
        return Literal(_moment(_text(wanted, path), path))
    if isinstance(wanted, str | bool):
        return Literal(wanted)
    if not isinstance(wanted, int | float):
        raise _bad(path, "a text, number or boolean is expected", "write it without a list around it")
    if not math.isfinite(values.number(wanted)):
        raise _bad(path, "a finite number is expected", "JSON has no other")
    return Literal(values.number(wanted))


def _text(content: Any, path: str) -> str:
    if not isinstance(content, str):
        raise _bad(path, "a text is expected", "put it in quotes")
    return content


def _affix(function: str, field: Field, content: Any, path: str) -> Condition:
    value: Value = field
    if isinstance(content, Mapping) and list(content) == ["equals-ignore-case"]:
        value, content = syntax.Call("lower", (field,)), _text(content["equals-ignore-case"], path).lower()
    return syntax.Call(function, (value, Literal(_text(content, path))))


def _ignore_case(field: Field, content: Any, path: str) -> Condition:
    return syntax.Compare("=", syntax.Call("lower", (field,)), Literal(_text(content, path).lower()))


def _wildcard(field: Field, content: Any, path: str) -> Condition:
    text, out, index = _text(content, path), [], 0
    while index < len(text):
        character = text[index]
        if character == "\\":
            index += 1
            if index >= len(text) or text[index] not in "*\\":
                raise _bad(path, "a backslash must stand before * or itself", "double it")
            out.append("\\\\" if text[index] == "\\" else "*")
        else:
            out.append({"*": "%", "%": "\\%", "_": "\\_"}.get(character, character))
        index += 1
    return syntax.Like(field, "".join(out))


def _exists(field: Field, content: Any, path: str) -> Condition:
    if not isinstance(content, bool):
        raise _bad(path, "true or false is expected", "write it without quotes")
    return syntax.IsNull(field, negated=content)


def _numeric(field: Field, content: Any, path: str) -> Condition:
    if not isinstance(content, list) or len(content) not in (2, 4):
        raise _bad(path, "an operator and a number are expected, once or twice", 'write [">", 0, "<=", 5]')
    parts: list[Condition] = []
    for op, number in zip(content[::2], content[1::2], strict=True):
        if not isinstance(op, str) or op not in _NUMERIC_OPS:
            raise _bad(path, f"{str(op)[:40]!r} is not an operator", f"use one of {' '.join(sorted(_NUMERIC_OPS))}")
        if values.kind_of(number) != values.NUMBER:
            raise _bad(path, "a number is expected behind the operator", "write it without quotes")
        parts.append(syntax.Compare(op, field, Literal(values.number(number))))
    return _all(parts)


def _anything_but(field: Field, content: Any, path: str) -> Condition:
    """A scalar that is there and is not this; also one of another type."""
    is_number = syntax.Compare(">=", field, Literal(float("-inf")))
    is_boolean = syntax.In(field, (Literal(True), Literal(False)))
    if isinstance(content, Mapping):
        if len(content) != 1 or next(iter(content)) not in ("prefix", "suffix", "wildcard", "equals-ignore-case"):
            raise _bad(
                path, "prefix, suffix, wildcard or equals-ignore-case is expected", "or a value, or a list of values"
            )
        ((operator, inner),) = content.items()
        listed = inner if isinstance(inner, list) and inner else [inner]
        fits = [_OPERATORS[operator](field, one, f"{path}.{operator}") for one in listed]
        return syntax.Or((_all([syntax.Not(one) for one in fits]), is_number, is_boolean))
    listed = content if isinstance(content, list) else [content]
    texts = [item for item in listed if isinstance(item, str)]
    numbers = [item for item in listed if values.kind_of(item) == values.NUMBER]
    if not listed or len(texts) + len(numbers) != len(listed):
        raise _bad(path, "texts or numbers are expected", "write them in a list")
    is_text: Condition = syntax.Like(field, "%")
    if texts:
        is_text = syntax.In(field, tuple(Literal(item) for item in texts), negated=True)
    if numbers:
        is_number = syntax.In(field, tuple(Literal(values.number(item)) for item in numbers), negated=True)  # type: ignore[assignment]
    return syntax.Or((is_text, is_number, is_boolean))


_OPERATORS: dict[str, Callable[[Field, Any, str], Condition]] = {
    "prefix": functools.partial(_affix, "startswith"),
    "suffix": functools.partial(_affix, "endswith"),
    "equals-ignore-case": _ignore_case,
    "wildcard": _wildcard,
    "exists": _exists,
    "numeric": _numeric,
    "anything-but": _anything_but,
}

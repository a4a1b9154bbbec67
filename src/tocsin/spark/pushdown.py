"""Spark's filters → ours: what of a query's WHERE the source can use to read less.

    offset, arrived         become ends of the range that is read
    the rest of the envelope becomes a filter: statistics skip blocks, the others lose their rows before Spark sees them

Promised: nothing that Spark would keep is left out. Spark asks every row again, so what cannot be said here (functions,
OR, payloads and attributes) is simply not said.
Not promised: that less is read. Times come from Spark as instants, so the session's time zone does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import datasource as spark

from tocsin.clock import as_micros
from tocsin.errors import FilterError
from tocsin.filters import syntax
from tocsin.filters.filter import Filter
from tocsin.filters.printer import print_condition
from tocsin.journal.rows import SCHEMA
from tocsin.model import ENVELOPE

__all__ = ["NOTHING", "Pushed", "push"]

_ALTERNATIVES = 8
"""A filter of more is asked of events, not of columns, which costs more than Spark's own test."""
_COMPARISONS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_OPPOSITES = {"=": "<>", ">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_CALLS: dict[type[spark.Filter], str] = {spark.StringStartsWith: "startswith", spark.StringEndsWith: "endswith"}
_LINES = ("offset", "arrived")
"""Columns that grow with the offset: a condition on one is a range."""
_INTEGERS, _TEXTS, _TIMES = ("offset", "priority"), "string", ("arrived", "time")


class Pushed(msgspec.Struct, frozen=True):
    """What a query asks for, as far as the source understands it. All ends are included; None: no end."""

    first: int | None = None
    last: int | None = None
    since: int | None = None
    """The earliest `arrived`, in microseconds."""
    until: int | None = None
    filter: str | None = None


NOTHING = Pushed()


def push(filters: Iterable[spark.Filter]) -> Pushed:
    """Turn filters, of which all must hold, into what the source can use."""
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    conditions: list[syntax.Condition] = []
    text = None
    for each in filters:
        name = _column(each)
        if name in _LINES:
            low, high = _ends(each, name)
            if low is not None:
                lows[name] = max(low, lows.get(name, low))
            if high is not None:
                highs[name] = min(high, highs.get(name, high))
        elif name is not None and (condition := _condition(each, name)) is not None:
            together = _usable([*conditions, condition])
            if together is not None:
                text = together
                conditions.append(condition)
    return Pushed(lows.get("offset"), highs.get("offset"), lows.get("arrived"), highs.get("arrived"), text)


def _column(each: spark.Filter) -> str | None:
    """The column a filter speaks of, if it is one of the envelope."""
    inner = each.child if isinstance(each, spark.Not) else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 and path[0] in ENVELOPE else None


def _ends(each: spark.Filter, name: str) -> tuple[int | None, int | None]:
    """A filter as a range of whole numbers: offsets or microseconds."""
    if isinstance(each, spark.In):
        values = [_whole(value, name) for value in each.value if value is not None]
        known = [value for value in values if value is not None]
        return (min(known), max(known)) if known and len(known) == len(values) else (None, None)
    op = _COMPARISONS.get(type(each))
    value = _whole(getattr(each, "value", None), name)
    if op is None or value is None:
        return None, None
    match op:
        case ">":
            return value + 1, None
        case ">=":
            return value, None
        case "<":
            return None, value - 1
        case "<=":
            return None, value
    return value, value


def _whole(value: Any, name: str) -> int | None:
    if not _fits(value, name):
        return None
    return as_micros(value) if isinstance(value, datetime) else int(value)


def _condition(each: spark.Filter, name: str) -> syntax.Condition | None:
    """A filter as a condition that is true wherever the filter is; None: not known."""
    field = syntax.Field((name,))
    negated = isinstance(each, spark.Not)
    inner = each.child if isinstance(each, spark.Not) else each
    if isinstance(inner, spark.IsNull | spark.IsNotNull):
        not_null = isinstance(inner, spark.IsNotNull) is not negated
        return syntax.IsNull(field, negated=True) if not_null else syntax.IsNull(field)
    if isinstance(inner, spark.In):
        values = [value for value in inner.value if value is not None]
        if not values or not all(_fits(value, name) for value in values) or (negated and None in inner.value):
            return None
        return syntax.In(field, tuple(map(syntax.Literal, values)), negated=negated)
    value = getattr(inner, "value", None)
    if not _fits(value, name):
        return None
    if type(inner) in _CALLS:
        call = syntax.Call(_CALLS[type(inner)], (field, syntax.Literal(value)))
        return syntax.Not(call) if negated else call
    op = _COMPARISONS.get(type(inner))
    if op is None:
        return None
    test = syntax.Compare(_OPPOSITES[op] if negated else op, field, syntax.Literal(value))
    # NOT (x <=> v) is true for NULL, unlike x <> v.
    return syntax.Or((syntax.IsNull(field), test)) if negated and isinstance(inner, spark.EqualNullSafe) else test


def _fits(value: Any, name: str) -> bool:
    """Is this a value that the column can be compared with here as it is on Spark?"""
    if name in _TIMES:
        return isinstance(value, datetime) and value.utcoffset() is not None
    if name in _INTEGERS:
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "ttl":
        return isinstance(value, float) and math.isfinite(value)
    if name == "persistent":
        return isinstance(value, bool)
    return isinstance(value, str) and SCHEMA.field(name).type == _TEXTS


def _usable(conditions: list[syntax.Condition]) -> str | None:
    """The text of a filter that whole columns can answer; None: they cannot."""
    text = print_condition(conditions[0] if len(conditions) == 1 else syntax.And(tuple(conditions)))
    try:
        alternatives = Filter(text).form.alternatives
    except FilterError:  # too long, or a time that the language cannot write
        return None
    plain = len(alternatives) <= _ALTERNATIVES and not any(each.residues for each in alternatives)
    return text if plain else None

"""Hypothesis strategies for filters and events that speak the same small vocabulary, so that they meet often.

    filters()        text of a filter with any operator of the language, nested
    conjunctions()   text of comparisons, IN, BETWEEN and prefixes joined by AND: what the relations decide completely
    events()         events that hold, lack, or hold in an unexpected type what those filters name
    scalars(), literal(value), names()   the pieces, for tests that build their own

Pools are small and full of awkward values on purpose: a name carries numbers in one event and text, NULL, a list or
nothing in the next; whole numbers stand around 2^53 and 2^63, where doubles end and 64 bits end.
"""

from __future__ import annotations

import functools
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from tocsin.errors import FilterError
from tocsin.filters.language import parse
from tocsin.filters.printer import print_scalar
from tocsin.model import Event

__all__ = [
    "NUMBERS",
    "TEXTS",
    "TIMES",
    "conjunctions",
    "events",
    "filters",
    "literal",
    "names",
    "scalars",
    "tests",
]

START = datetime(2026, 1, 1, tzinfo=UTC)
NUMBERS: list[int | float] = [
    *(-3, -1, 0, 1, 2, 3, 5, 10, 80, 0.5, 2.5, -0.0, -2.5, 0.1, 1e300, 5e-324, math.inf, -math.inf),
    *(2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, float(2**53)),
    *(2**63 - 1, -(2**63), 2**63, float(2**63), 10**30, -(10**30)),
]
TEXTS = [
    *("", "a", "ab", "abc", "abd", "b", "ba", "A", "Ab", "bcb", "aXb", " a", "a ", "10", "true"),
    *("50%", "a_b", "a%b", "it's", "x\\y", "a\nb", "a\n"),
    *("é", "ß", "SS", "İ", "ŭ", "😀", "\U0010ffff", "a\U0010ffff", "\0"),
    *("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-02T00:00:00Z", "2026-02-31T00:00:00Z"),
]
TIMES = [START + timedelta(seconds=seconds) for seconds in (0, 1, 86_400)] + [START - timedelta(microseconds=1)]
TYPES = ["a", "ab", "abc", "b", "machine.value"]
SOURCES = ["a", "line/7"]

# Where a filter looks. A bare name may be an attribute or a field of the payload; the paths reach the same values.
SCALAR_NAMES = ["x", "y", "s", "flag", "data.x", "data.s", "attributes.x", "attributes.s", "a.b", "data.a.b"]
SCALAR_NAMES += ["data.a.c.d"]
ODD_NAMES = ["`odd name`", "data.`é`", "`in`", "data"]
ENVELOPE_TEXT = ["type", "source", "subject", "id", "ack", "classification", "datacontenttype"]
ENVELOPE_NUMBER = ["priority", "ttl", "offset"]
ARRAYS = ["tags", "data.tags", "data.a.tags", "x"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "!="]
LIKE_PATTERNS = [
    *("", "%", "a", "a%", "%b", "%b%", "a%b", "a_b", "_", "_%"),
    *("%_b", "a\\%b", "50\\%", "a\\_b", "\\\\%", "x\\\\y", "%%", "é%", "%\n"),
    *("a%b%", "%a%b", "__", "ab%c_", "İ%"),
]
ESCAPED_PATTERNS = [("50!%", "!"), ("a!_b%", "!"), ("!!%", "!"), ("a/%b", "/"), ("%a|%", "|")]
REGEXES = ["a", "^a", "b$", "(?i)AB", "a.b", "(?s)a.b", "[a-c]+$", "^$", "^[^a]", "a|x"]
REGEXES += ["(ab)+c?", "^.{2}$", "\\\\d", "^a\\\\b?"]


def literal(value: object) -> str:
    """Write a value as the language does; NaN has no spelling."""
    return print_scalar(value)  # type: ignore[arg-type]


def numbers() -> st.SearchStrategy[int | float]:
    return st.sampled_from(NUMBERS) | st.integers(-5, 12) | st.floats(allow_nan=False, width=32)


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(TEXTS) | st.text("aAbB_%\\é😀", max_size=4)


def times() -> st.SearchStrategy[datetime]:
    return st.sampled_from(TIMES)


def scalars() -> st.SearchStrategy[Any]:
    """Values a payload can hold, NULL and NaN included."""
    return st.one_of(
        st.sampled_from(NUMBERS),
        st.integers(-5, 12),
        texts(),
        st.booleans(),
        st.sampled_from([None, math.nan]),
    )


def names() -> st.SearchStrategy[str]:
    """Names of any kind of value."""
    rare = [*ODD_NAMES, *ENVELOPE_TEXT, *ENVELOPE_NUMBER, "persistent", "attributes", "tags"]
    return st.sampled_from(SCALAR_NAMES * 4 + rare)


def literals() -> st.SearchStrategy[str]:
    return st.one_of(
        numbers().map(literal),
        texts().map(literal),
        st.sampled_from(["TRUE", "FALSE", "NULL"]),
        times().map(literal),
    )


@st.composite
def values(draw: st.DrawFn) -> str:
    """Names, and what is computed from names."""
    return draw(_values())


@functools.cache
def _values() -> st.SearchStrategy[str]:
    name, number = names(), numbers().map(literal)
    terms = st.one_of(
        st.builds("{}({})".format, st.sampled_from(["lower", "upper", "length", "abs"]), name),
        st.builds("{} {} {}".format, name, st.sampled_from("+-*/%"), number),
        st.builds("({} - {}) * {}".format, name, name, number),
        st.builds("-{}".format, name),
        st.builds("distance_km(x, y, {}, {})".format, st.integers(-90, 90), st.integers(-180, 180)),
        st.builds("length(lower({})) + {}".format, name, number),
    )
    return st.one_of(name, name, name, terms)


def _time_tests() -> st.SearchStrategy[str]:
    moment = times().map(lambda time: literal(time.isoformat())) | times().map(literal)
    name = st.sampled_from(["time", "arrived"])
    return st.one_of(
        st.builds("{} {} {}".format, name, st.sampled_from(OPERATORS), moment),
        st.builds("{} {}BETWEEN {} AND {}".format, name, st.sampled_from(["", "NOT "]), moment, moment),
        st.builds("{} {}IN ({}, {})".format, name, st.sampled_from(["", "NOT "]), moment, moment | st.just("NULL")),
        st.builds("{} IS {}NULL".format, name, st.sampled_from(["", "NOT "])),
        st.builds("s {} {}".format, st.sampled_from(OPERATORS), times().map(literal)),
    )


@st.composite
def tests(draw: st.DrawFn) -> str:
    """One condition without AND, OR, NOT around it."""
    return draw(_tests())


@functools.cache
def _tests() -> st.SearchStrategy[str]:
    value, constant, maybe_not = values(), literals(), st.sampled_from(["", "NOT "])
    text_value = st.sampled_from(
        ["s", "x", "data.s", "attributes.s", "type", "subject", "a.b", "lower(s)", "upper(data.s)"]
    )
    text = texts().map(literal)
    like = st.one_of(
        st.sampled_from(LIKE_PATTERNS).map(literal),
        st.sampled_from(ESCAPED_PATTERNS).map(lambda pair: f"{literal(pair[0])} ESCAPE {literal(pair[1])}"),
        st.text("ab%_é", max_size=5).map(literal),
    )
    return st.one_of(
        st.builds("{} {} {}".format, value, st.sampled_from(OPERATORS), constant),
        st.builds("{} {} {}".format, value, st.sampled_from(OPERATORS), constant),
        st.builds("{} {} {}".format, constant, st.sampled_from(OPERATORS), value),
        st.builds("{} {} {}".format, value, st.sampled_from(OPERATORS), value),
        st.builds("{} {}BETWEEN {} AND {}".format, value, maybe_not, constant, constant),
        st.builds(
            "{} {}IN ({})".format, value, maybe_not, st.lists(constant | value, min_size=1, max_size=4).map(", ".join)
        ),
        st.builds("{} {}IN ({})".format, text_value, maybe_not, st.lists(text, min_size=1, max_size=4).map(", ".join)),
        st.builds("{} {}LIKE {}".format, text_value, maybe_not, like),
        st.builds("{} {}RLIKE '{}'".format, text_value, maybe_not, st.sampled_from(REGEXES)),
        st.builds("{} IS {}NULL".format, value, maybe_not),
        st.builds("{} IS {}{}".format, names(), maybe_not, st.sampled_from(["TRUE", "FALSE"])),
        st.builds(
            "{}({}, {})".format, st.sampled_from(["startswith", "endswith", "contains"]), text_value, text | text_value
        ),
        st.builds("array_contains({}, {})".format, st.sampled_from(ARRAYS), constant),
        st.builds(
            "distance_km(x, y, {}, {}) {} {}".format,
            st.integers(-90, 90),
            st.integers(-180, 180),
            st.sampled_from(["<", "<=", ">"]),
            st.integers(0, 20_000),
        ),
        st.sampled_from(["flag", "data.flag", "x", "persistent", "TRUE", "FALSE", "NULL"]),
        _time_tests(),
    ).filter(_in_language)


def _in_language(text: str) -> bool:
    """`time` and `arrived` take timestamps only; a stray one in the general shapes is left out."""
    try:
        parse(text)
    except FilterError:
        return False
    return True


@st.composite
def filters(draw: st.DrawFn, max_leaves: int = 6) -> str:
    """Text of a filter; every text is in the language."""
    return draw(_filters(max_leaves))


@functools.cache
def _filters(max_leaves: int) -> st.SearchStrategy[str]:

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        several = st.lists(inner.map("({})".format), min_size=2, max_size=3)
        return st.one_of(
            several.map(" AND ".join),
            several.map(" OR ".join),
            inner.map("NOT ({})".format),
            st.builds("({}) IS {}".format, inner, st.sampled_from(["TRUE", "NOT TRUE", "FALSE", "NOT FALSE"])),
        )

    return st.recursive(tests(), extend, max_leaves=max_leaves)


@st.composite
def conjunctions(draw: st.DrawFn, max_tests: int = 4) -> str:
    """Text of comparisons, IN, BETWEEN and prefixes over plain names, joined by AND."""
    return draw(_conjunctions(max_tests))


@functools.cache
def _conjunctions(max_tests: int) -> st.SearchStrategy[str]:
    number_name = st.sampled_from(["x", "y", "data.x", "attributes.x", "a.b", "data.a.b", "priority"])
    text_name = st.sampled_from(["s", "data.s", "attributes.s", "a.b", "type", "subject", "x"])
    number = st.integers(-3, 12).map(literal) | st.sampled_from([0.5, 2.5, -1.5, math.inf]).map(literal)
    text = st.sampled_from(["", "a", "ab", "abc", "abd", "b", "ba", "é", "😀"]).map(literal)
    moment = times().map(literal)
    flag = st.sampled_from(["TRUE", "FALSE"])

    def over(name: st.SearchStrategy[str], value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds("{} {} {}".format, name, st.sampled_from(OPERATORS), value),
            st.builds("{} BETWEEN {} AND {}".format, name, value, value),
            st.builds("{} IN ({})".format, name, st.lists(value, min_size=1, max_size=4).map(", ".join)),
        )

    test = st.one_of(
        over(number_name, number),
        over(text_name, text),
        over(st.sampled_from(["time", "arrived"]), moment),
        st.builds("startswith({}, {})".format, text_name, text),
        st.builds("{} LIKE '{}%'".format, text_name, st.sampled_from(["", "a", "ab", "b", "é"])),
        st.builds("{} = {}".format, st.sampled_from(["flag", "data.flag", "persistent"]), flag),
        st.builds("{} IS NOT NULL".format, st.sampled_from(["x", "s", "data", "data.a"])),
    )
    return st.lists(test, min_size=1, max_size=max_tests).map(" AND ".join)


def _attribute(value: Any) -> bool:
    return value is not None and not (type(value) is int and not -(2**63) <= value < 2**63)


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Events of every shape: attributes beside payload, payloads that are no object, awkward values, missing names."""
    value = scalars()
    number = st.sampled_from(NUMBERS) | st.integers(-5, 12)
    members = st.lists(value, max_size=3)
    deep = st.fixed_dictionaries({"d": value}) | value
    inner = st.fixed_dictionaries({}, optional={"b": value, "c": deep, "tags": members})
    payload = st.fixed_dictionaries(
        {},
        optional={
            "x": st.one_of(number, number, value, members),
            "y": number | value,
            "s": st.one_of(texts(), texts(), value),
            "flag": st.booleans() | value,
            "a": inner | value,
            "tags": members | value,
            "odd name": value,
            "é": value,
            "in": value,
        },
    )
    attributes = st.fixed_dictionaries(
        {},
        optional={
            "x": (number | value).filter(_attribute),
            "s": (texts() | value).filter(_attribute),
            "flag": st.booleans(),
            "y": number.filter(_attribute),
        },
    )
    content = draw(st.sampled_from([None] * 8 + ["text/plain", "application/octet-stream", "application/json"]))
    body: st.SearchStrategy[Any] = texts()
    if content in (None, "application/json"):
        body = st.one_of(payload, payload, payload, payload, value, members)
    arrived = draw(st.none() | times())
    return Event(
        type=draw(st.sampled_from(TYPES)),
        source=draw(st.sampled_from(SOURCES)),
        id=draw(st.sampled_from(["a", "1"])),
        subject=draw(st.sampled_from([None, "a", "ab", "b", "é"])),
        time=draw(st.none() | times()),
        data=draw(body),
        datacontenttype=content,
        attributes=draw(attributes),
        priority=draw(st.integers(1, 10)),
        ttl=draw(st.sampled_from([None, 0.5, 3, 80])),
        persistent=draw(st.booleans()),
        ack=draw(st.sampled_from(["none", "client"])),
        classification=draw(st.sampled_from(["unclassified", "secret"])),
        offset=None if arrived is None else draw(st.integers(1, 12)),
        arrived=arrived,
    )

"""Spark's filters as ours: they never leave out what Spark keeps, and leave out the rest where they can."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tocsin.clock import as_micros
from tocsin.filters.filter import Filter
from tocsin.model import Event

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from pyspark.sql import datasource as spark

from tocsin.spark.pushdown import NOTHING, Pushed, push

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEXTS = ["", "a", "ab", "abc", "b", "it's", "50%", "a_b", "x\\y", "é", "😀", "\U0010ffff"]
VALUES: dict[str, list[Any]] = {
    "offset": [-5, 0, 1, 2, 3, 5, 8, 9, 2**53 + 1, 2**63 - 1],
    "arrived": [NOON + timedelta(microseconds=step) for step in (-1, 0, 1, 2, 5)] + [datetime(1, 1, 1, tzinfo=UTC)],
    "time": [
        NOON,
        NOON - timedelta(days=1),
        NOON.astimezone(ZoneInfo("Asia/Kathmandu")),
        datetime.max.replace(tzinfo=UTC),
    ],
    "priority": [-1, 1, 2, 5, 10, 11],
    "ttl": [0.5, 1.0, 2.5, -0.0, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")],
    "persistent": [True, False],
    **dict.fromkeys(("id", "source", "type", "subject", "correlation_id", "datacontenttype"), TEXTS),
    "ack": ["none", "client", "x"],
    "cancel": ["any", "originator"],
    "classification": ["secret", "unclassified", "t"],
}
COMPARISONS = (
    *(spark.EqualTo, spark.EqualNullSafe, spark.GreaterThan, spark.GreaterThanOrEqual, spark.LessThan),
    spark.LessThanOrEqual,
)


def random_filter(draw: random.Random) -> spark.Filter:
    name = draw.choice([*VALUES, "offset", "arrived", "type", "data", "attributes"])
    values = VALUES.get(name, TEXTS)
    path = (name,) if name in VALUES else (name, "x") if draw.random() < 0.8 else (name,)
    kind = draw.random()
    made: spark.Filter
    if kind < 0.5:
        made = draw.choice(COMPARISONS)(path, draw.choice(values))
    elif kind < 0.7:
        many = draw.choices([*values, None] if draw.random() < 0.3 else values, k=draw.randrange(1, 5))
        made = spark.In(path, many)  # type: ignore[arg-type]  # a list is what Spark's worker makes of it
    elif kind < 0.8:
        made = draw.choice((spark.IsNull, spark.IsNotNull))(path)
    elif values is TEXTS:
        made = draw.choice((spark.StringStartsWith, spark.StringEndsWith, spark.StringContains))(
            path, draw.choice(TEXTS)
        )
    else:
        made = spark.EqualTo(path, draw.choice(values))
    return spark.Not(made) if draw.random() < 0.3 else made


def verdict(each: spark.Filter, event: Event) -> bool | None:
    """What Spark says of a row: three-valued, NaN above everything and equal to itself."""
    if isinstance(each, spark.Not):
        inner = verdict(each.child, event)
        return None if inner is None else not inner
    have = getattr(event, each.attribute[0])  # type: ignore[attr-defined]
    if isinstance(each, spark.IsNull | spark.IsNotNull):
        return (have is None) is isinstance(each, spark.IsNull)
    if isinstance(each, spark.EqualNullSafe):
        return have is not None and key(have) == key(each.value)
    if have is None:
        return None
    match each:
        case spark.In():
            if any(value is not None and key(have) == key(value) for value in each.value):
                return True
            return None if None in each.value else False
        case spark.StringStartsWith():
            return bool(have.startswith(each.value))
        case spark.StringEndsWith():
            return bool(have.endswith(each.value))
        case spark.StringContains():
            return each.value in have
        case spark.EqualTo():
            return bool(key(have) == key(each.value))
        case spark.GreaterThan():
            return bool(key(have) > key(each.value))
        case spark.GreaterThanOrEqual():
            return bool(key(have) >= key(each.value))
        case spark.LessThan():
            return bool(key(have) < key(each.value))
        case spark.LessThanOrEqual():
            return bool(key(have) <= key(each.value))
    raise AssertionError(each)


def key(value: Any) -> Any:
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value.encode() if isinstance(value, str) else value


def random_event(draw: random.Random) -> Event:
    def some(*values: Any) -> Any:
        return draw.choice(values)

    texts = [text for text in TEXTS if text]
    return Event(
        *(draw.choice(texts), draw.choice(texts), draw.choice(texts)),
        subject=some(None, *texts),
        time=some(None, *[value for value in VALUES["time"] if value.year < 9999]),
        priority=some(1, 2, 5, 10),
        ttl=some(None, 0.5, 1.0, 2.5),
        persistent=some(True, False),
        ack=some("none", "client"),
        cancel=some("any", "originator"),
        classification=some("secret", "unclassified"),
        correlation_id=some(None, *texts),
        offset=some(1, 2, 3, 5, 8),
        arrived=NOON + timedelta(microseconds=some(-1, 0, 1, 5)),
    )


def passes(pushed: Pushed, event: Event) -> bool:
    assert event.offset is not None and event.arrived is not None
    arrived = as_micros(event.arrived)
    return (
        (pushed.first is None or event.offset >= pushed.first)
        and (pushed.last is None or event.offset <= pushed.last)
        and (pushed.since is None or arrived >= pushed.since)
        and (pushed.until is None or arrived <= pushed.until)
        and (pushed.filter is None or Filter(pushed.filter).matches(event))
    )


def test_nothing_that_spark_keeps_is_left_out() -> None:
    draw = random.Random(2026)
    events = [random_event(draw) for _ in range(300)]
    found: Counter[tuple[bool, bool]] = Counter()
    exact = 0
    for _ in range(1_500):
        filters = [random_filter(draw) for _ in range(draw.choice((1, 1, 2, 3)))]
        pushed = push(filters)
        asked = [each for each in filters if getattr(each, "child", each).attribute[0] in VALUES]  # type: ignore[attr-defined]
        wrong = False
        for event in draw.sample(events, 60):
            wanted, given = all(verdict(each, event) is True for each in asked), passes(pushed, event)
            assert given or not wanted, (filters, pushed, event)
            found[wanted, given] += 1
            wrong |= wanted is not given
        exact += not wrong
    assert min(found[True, True], found[False, False]) > 5_000, found
    assert exact > 1_000  # the rest is what columns cannot answer: contains, NaN, NOT on offsets


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], NOTHING),
        ([spark.GreaterThan(("offset",), 5), spark.LessThanOrEqual(("offset",), 9)], Pushed(first=6, last=9)),
        ([spark.EqualTo(("offset",), 5)], Pushed(first=5, last=5)),
        ([spark.In(("offset",), (7, None, 3))], Pushed(first=3, last=7)),
        ([spark.LessThan(("offset",), 5), spark.LessThan(("offset",), 9)], Pushed(last=4)),
        ([spark.GreaterThanOrEqual(("arrived",), NOON)], Pushed(since=as_micros(NOON))),
        (
            [spark.LessThan(("arrived",), NOON.astimezone(timezone(timedelta(hours=5, minutes=45))))],
            Pushed(until=as_micros(NOON) - 1),
        ),
        ([spark.EqualTo(("type",), "it's")], Pushed(filter="type = 'it''s'")),
        ([spark.IsNotNull(("subject",)), spark.IsNull(("ttl",))], Pushed(filter="subject IS NOT NULL AND ttl IS NULL")),
        ([spark.Not(spark.EqualTo(("persistent",), True))], Pushed(filter="persistent <> TRUE")),
        ([spark.In(("priority",), (1, 2, None))], Pushed(filter="priority IN (1, 2)")),
        ([spark.EqualTo(("time",), NOON)], Pushed(filter="time = TIMESTAMP '2026-01-01T12:00:00Z'")),
        ([spark.StringStartsWith(("source",), "line/")], Pushed(filter="startswith(source, 'line/')")),
    ],
)
def test_what_becomes_of_some(filters: list[spark.Filter], expected: Pushed) -> None:
    assert push(filters) == expected


@pytest.mark.parametrize(
    "each",
    [
        spark.EqualTo(("data",), "x"),
        spark.EqualTo(("data", "machine"), "m7"),
        spark.EqualTo(("attributes", "x"), 1),
        spark.EqualTo(("filters",), 3),
        spark.EqualTo(("ttl",), float("nan")),
        spark.GreaterThan(("ttl",), float("inf")),
        spark.EqualTo(("type",), 5),
        spark.EqualTo(("priority",), True),
        spark.EqualTo(("offset",), 5.5),
        spark.EqualTo(("time",), date(2026, 1, 1)),
        spark.EqualTo(("arrived",), datetime(2026, 1, 1)),
        spark.In(("priority",), (None,)),
        spark.Not(spark.In(("priority",), (1, None))),
        spark.Not(spark.EqualTo(("offset",), 5)),
        spark.StringContains(("type",), "a"),
    ],
)
def test_what_is_not_understood_is_left_to_spark(each: spark.Filter) -> None:
    assert push([each]) == NOTHING
    beside = push([spark.EqualTo(("source",), "s"), each, spark.EqualTo(("ack",), "none")])
    assert beside == Pushed(filter="source = 's' AND ack = 'none'")


def test_a_list_too_long_for_a_filter_is_left_to_spark() -> None:
    long = spark.In(("id",), tuple(f"{number:030d}" for number in range(10_000)))
    assert push([long, spark.EqualTo(("type",), "a")]) == Pushed(filter="type = 'a'")
    assert push([spark.In(("id",), tuple(map(str, range(1_000))))]).filter is not None


def test_many_alternatives_do_not_pile_up() -> None:
    names = ("subject", "correlation_id", "datacontenttype", "type", "source")
    pushed = push([spark.Not(spark.EqualNullSafe((name,), "a")) for name in names])
    assert pushed.filter is not None
    assert len(Filter(pushed.filter).form.alternatives) <= 8

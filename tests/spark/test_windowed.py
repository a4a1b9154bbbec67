"""Two-event patterns as window functions: where they are compiled, they find what the engine finds, row for row."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.spark.detect_cases import events_in, expected, plant
from tests.spark.test_sql_meaning import SCHEMA, draw, row
from tests.strategies import events as random_events
from tests.unit.test_spark_records import storable
from tocsin import Event
from tocsin import spark as ts
from tocsin.composite.expression import CONTEXTS
from tocsin.composite.keys import key_reader
from tocsin.composite.language import parse
from tocsin.filters.sparksql import render_value
from tocsin.spark import detected, windowed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PATTERNS = {  # text → contexts that windows can tell
    "SEQ([type = 'a'] AS x, [type = 'b'] AS y) BY machine": CONTEXTS,
    "SEQ([type = 'a'], [type = 'b']) WITHIN 9 SECONDS BY machine": ("recent", "continuous", "cumulative"),
    "SEQ([type = 'a' AND value > 1], [type IN ('b', 'c')])": CONTEXTS,
    "SEQ([type IN ('a', 'b')], [value > 2] AS y) BY machine": ("recent",),  # one event may open and close
    "SEQ([type = 'a'], [type = 'a']) WITHIN 20 SECONDS BY machine, value": ("recent",),
    "NOT([type = 'a'], [value > 3], [type = 'c'] AS y) BY machine": CONTEXTS,  # what is between may open or close, too
    "NOT([type = 'a'] AS x, [type = 'b'], [type = 'c']) WITHIN 15 SECONDS BY value": (
        *("recent", "continuous", "cumulative"),
    ),
}
OTHERS = [
    "SEQ([type = 'a'] AS x, [type = 'b'] AS y) BY machine WHERE y.value > x.value",
    "SEQ([lower(type) = 'a'], [type = 'b'])",
    "SEQ([type = 'a'], [type = 'b']) BY time",
    "SEQ([type = 'a'], [type = 'b'], [type = 'c'])",
    "SEQ([type = 'a'], PLUS([type = 'b'], 2 SECONDS))",
    "SEQ([type = 'a'], AT '12:00')",
    "AND([type = 'a'], [type = 'b'])",
    "[type = 'a']",
]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("windowed") / "plant.db", 11, 600)


@pytest.fixture(scope="module")
def frame(spark: Any, journal: Path) -> Any:
    events = spark.read.format("tocsin").option("url", f"file:{journal}").option("system", "true").load()
    yield (cached := events.repartition(3).cache())
    cached.unpersist()


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(
        frame.selectExpr("id", "type", "source", "unix_micros(time)", "key", "classification", "data").collect()
    )


def rows_wanted(events: list[Event]) -> list[tuple[Any, ...]]:
    """The same of what a detector gave."""
    batch = detected.to_arrow(events)
    columns = [column.to_pylist() for column in batch.set_column(3, "time", batch.column("time").cast("int64")).columns]
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize(("text", "contexts"), PATTERNS.items())
def test_windows_find_what_the_engine_finds(frame: Any, journal: Path, text: str, contexts: tuple[str, ...]) -> None:
    found = {context: windowed.windowed(frame, parse(context, text, context)) for context in CONTEXTS}
    assert {context for context, rows in found.items() if rows is not None} == set(contexts)
    wanted = expected({context: (text, context) for context in contexts}, events_in(journal)).values()
    assert min(Counter(event.type for event in wanted).values()) > 5
    together = reduce(DataFrame.unionAll, [rows for rows in found.values() if rows is not None])
    assert rows_of(together) == rows_wanted(list(wanted))


@pytest.mark.parametrize("text", OTHERS)
def test_what_windows_cannot_tell_is_left_to_the_engine(frame: Any, text: str) -> None:
    for context in CONTEXTS:
        assert windowed.windowed(frame, parse("other", text, context)) is None
    assert windowed.pattern_of(parse("other", "SEQ([type = 'a'], [type = 'b'])", semantics="interval")) is None


def test_repeated_offsets_count_once_and_columns_may_be_missing(frame: Any, journal: Path) -> None:
    text = "SEQ([type = 'a'], [type = 'b']) BY source"
    slim = frame.select("offset", "arrived", "id", "source", "type")
    twice = slim.union(slim.where("offset % 3 = 0"))
    events = [event.replace(classification="unclassified") for event in events_in(journal)]
    wanted = expected({context: (text, context) for context in CONTEXTS}, events).values()
    found = [windowed.windowed(twice, parse(context, text, context)) for context in CONTEXTS]
    assert rows_of(reduce(DataFrame.unionAll, found)) == rows_wanted(list(wanted)) and len(wanted) > 100


def test_columns_that_sql_would_not_see_are_left_to_the_engine(frame: Any) -> None:
    """Other columns are attributes, and payloads may be declared otherwise."""
    pair = parse("pair", "SEQ([type = 'a'], [type = 'b']) BY machine")
    assert windowed.windowed(frame, pair) is not None
    assert windowed.windowed(frame.selectExpr("*", "'m1' AS machine"), pair) is None
    assert windowed.windowed(frame.selectExpr("* EXCEPT (data)", "parse_json(data) AS data"), pair) is None
    assert windowed.windowed(frame.drop("arrived"), pair) is None


def test_detect_uses_windows_in_a_batch(frame: Any, journal: Path) -> None:
    text = "SEQ([type = 'a'], [type = 'b']) BY machine"
    found = ts.detect(frame, {"pair": text})
    assert "Window" in found._jdf.queryExecution().toString()
    wanted = expected({"pair": text}, events_in(journal))
    assert {each.id for each in found.collect()} == wanted.keys() and wanted


def test_keys_in_sql_are_the_engine_s(spark: Any) -> None:
    """Values of every kind: equal keys, and only those, have equal texts, from which the key can be read."""
    odd = [
        1,
        1.0,
        -0.0,
        0,
        0.1,
        2.5,
        2**53 + 1,
        -(2**63),
        2**63,
        1e300,
        True,
        False,
        "",
        "1",
        "true",
        "é😀",
        "\x01",
        None,
    ]
    events = [Event("t", "s", data={"x": each}, priority=3) for each in odd]
    events += [Event("t", "s", attributes={"x": each}) for each in odd if each is not None and each != 2**63]
    events += [Event("t", "s", attributes={"x": float(each)}) for each in ("nan", "inf", "-inf", "-0.0")]
    events += [Event("t", "s", data={"x": each}) for each in ([1], {"y": 2}, [])]
    events += [each.replace(data=storable(each.data)) for each in draw(random_events(), 100)]
    paths = [
        ("x",),
        ("data", "x"),
        ("attributes", "x"),
        ("x", "y"),
        ("s",),
        ("priority",),
        ("persistent",),
        ("source",),
    ]
    texts = [render_value(path) for path in paths]
    assert None not in texts and render_value(("time",)) is None
    frame = spark.createDataFrame([row(n, each) for n, each in enumerate(events)], SCHEMA)
    found = frame.selectExpr("n", *(f"{text} AS k{place}" for place, text in enumerate(texts))).orderBy("n").collect()
    known = 0
    for event, (_, *keys) in zip(events, found, strict=True):
        for path, key in zip(paths, keys, strict=True):
            wanted = key_reader((".".join(path),))(event)
            got = None if key is None else windowed._key([key])
            assert (got, type(got and got[0])) == (wanted, type(wanted and wanted[0])), (path, event)
            known += wanted is not None
    assert known > 200

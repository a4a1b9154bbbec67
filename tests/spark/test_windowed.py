"""Two-event patterns as window functions: where they are compiled, they find what the engine finds, row for row."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.spark.detect_cases import NOON, events_in, expected, plant
from tests.spark.test_sql_meaning import SCHEMA, draw, row
from tests.strategies import events as random_events
from tests.unit.test_spark_records import storable
from tocsin import Detector, Event
from tocsin import spark as ts
from tocsin.clock import as_micros
from tocsin.cloudevents import encode_json
from tocsin.composite.expression import CONTEXTS, Definition
from tocsin.composite.keys import key_reader
from tocsin.composite.language import parse
from tocsin.filters.sparksql import render_value
from tocsin.model import CLASSIFICATION
from tocsin.spark import detected
from tocsin.spark.detecting import plan
from tocsin.spark.labelling import can_tell, pattern_of
from tocsin.spark.packing import pack
from tocsin.spark.pairing import read_key
from tocsin.spark.replaying import replay
from tocsin.spark.windowed import windowed

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


def compiled(frame: Any, definition: Definition) -> Any:
    """What windows find; None: they cannot tell."""
    pattern = pattern_of(definition)
    return windowed(frame, [pattern]) if pattern is not None and can_tell(frame.schema, pattern) else None


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(
        frame.selectExpr("id", "type", "source", "unix_micros(time)", "key", "classification", "data").collect()
    )


def rows_wanted(events: list[Event]) -> list[tuple[Any, ...]]:
    """The same of what a detector gave."""
    found = []
    for event in events:
        key = msgspec.json.encode(event.data["key"]).decode() if event.data["key"] else None
        data = encode_json(event.data, "data").decode()
        when = as_micros(event.time)  # type: ignore[arg-type]
        found.append((event.id, event.type, event.source, when, key, event.classification, data))
    return sorted(found)


@pytest.mark.parametrize(("text", "contexts"), PATTERNS.items())
def test_windows_find_what_the_engine_finds(frame: Any, journal: Path, text: str, contexts: tuple[str, ...]) -> None:
    found = {context: compiled(frame, parse(context, text, context)) for context in CONTEXTS}
    assert {context for context, rows in found.items() if rows is not None} == set(contexts)
    wanted = expected({context: (text, context) for context in contexts}, events_in(journal)).values()
    assert min(Counter(event.type for event in wanted).values()) > 5
    together = reduce(DataFrame.unionAll, [rows for rows in found.values() if rows is not None])
    assert rows_of(together) == rows_wanted(list(wanted))


@pytest.mark.parametrize("text", OTHERS)
def test_what_windows_cannot_tell_is_left_to_the_engine(frame: Any, text: str) -> None:
    for context in CONTEXTS:
        assert compiled(frame, parse("other", text, context)) is None
    assert pattern_of(parse("other", "SEQ([type = 'a'], [type = 'b'])", semantics="interval")) is None


def test_repeated_offsets_count_once_and_columns_may_be_missing(frame: Any, journal: Path) -> None:
    text = "SEQ([type = 'a'], [type = 'b']) BY source"
    slim = frame.select("offset", "arrived", "id", "source", "type")
    twice = slim.union(slim.where("offset % 3 = 0"))
    events = [event.replace(classification="unclassified") for event in events_in(journal)]
    wanted = expected({context: (text, context) for context in CONTEXTS}, events).values()
    found = [compiled(twice, parse(context, text, context)) for context in CONTEXTS]
    assert rows_of(reduce(DataFrame.unionAll, found)) == rows_wanted(list(wanted)) and len(wanted) > 100


def test_columns_that_sql_would_not_see_are_left_to_the_engine(frame: Any) -> None:
    """Payloads may be declared otherwise, and be made of other columns."""
    pair = parse("pair", "SEQ([type = 'a'], [type = 'b']) BY machine")
    assert compiled(frame, pair) is not None
    assert compiled(frame.selectExpr("*", "array('m1') AS machine"), pair) is None
    assert compiled(frame.selectExpr("*", "arrived AS machine"), pair) is None
    assert compiled(frame.selectExpr("*", "type AS offset"), pair) is None
    assert compiled(frame.selectExpr("* EXCEPT (data)", "parse_json(data) AS data"), pair) is None
    assert compiled(frame.drop("arrived"), pair) is None


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
        -(2.0**63),
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
            got = None if key is None else read_key([key])
            assert (got, type(got and got[0])) == (wanted, type(wanted and wanted[0])), (path, event)
            known += wanted is not None
    assert known > 200


# -- random streams

OPENERS = ("type = 'a'", "type = 'a'", "type = 'a' AND value < 3", "type IN ('a', 'd')", "value < 2")
MIDDLES = ("type = 'b'", "type = 'd'", "type = 'c' AND value > 2", "value > 2")
CLOSERS = ("type = 'b'", "type IN ('b', 'c')", "type = 'c' AND value > 0", "value > 2")
KEYS: list[Any] = ["m1", "m1", "m1", "1", 1, 1.0, 2.5, True, None, [1]]


def some_stream(draw: random.Random) -> list[tuple[Event, int]]:
    """Events in the order of a journal, several at one instant; some have no key, some share an id; and how often each
    row is there.
    """
    found, offset, instant = [], 0, 0
    for _ in range(200):
        offset, instant = offset + draw.randint(1, 3), instant + draw.choice((0, 0, 1, 2, 5))
        data = {"machine": draw.choice(KEYS), "value": draw.choice((0, 1, 2, 3, "3", None))}
        event = Event(
            draw.choice("aaabbbccd"),
            f"/{draw.choice('xy')}",
            id=str(draw.randrange(6) if draw.random() < 0.5 else 1000 + offset),
            data=data if draw.random() < 0.9 else "text",
            attributes={"machine": draw.choice(KEYS[:8])} if draw.random() < 0.2 else {},
            classification=draw.choice(CLASSIFICATION) if draw.random() < 0.2 else "unclassified",
        )
        arrived = NOON + timedelta(seconds=instant)
        found.append((event.replace(offset=offset, arrived=arrived), draw.choice((1, 1, 1, 2, 3))))
    return found


def some_text(draw: random.Random) -> str:
    """A definition that windows have, in some contexts at least."""
    opener, middle, closer = (f"[{draw.choice(each)}]" for each in (OPENERS, MIDDLES, CLOSERS))
    within = draw.choice(("", "", " WITHIN 3 SECONDS", " WITHIN 20 SECONDS"))
    by = draw.choice(("", " BY machine", " BY source, machine", " BY value", " BY data.machine"))
    return draw.choice((f"SEQ({opener}, {closer})", f"NOT({opener} AS x, {middle}, {closer})")) + within + by


def test_random_streams(spark: Any) -> None:
    """Windows and engine, on streams and definitions nobody has thought of."""
    contexts: Counter[str] = Counter()
    doubled = 0
    for seed in draw(st.integers(0, 2**32), 4):
        chance = random.Random(seed)
        stream, asked = some_stream(chance), dict.fromkeys(some_text(chance) for _ in range(5))
        events = [event for event, _ in stream]
        definitions = {f"{context}{n}": (text, context) for n, text in enumerate(asked) for context in CONTEXTS}
        patterns = [pattern_of(parse(name, *said)) for name, said in definitions.items()]
        compiled = {each.definition.name for each in patterns if each is not None}
        rows = [row(n, event) for n, (event, times) in enumerate(stream) for _ in range(times)]
        frame = spark.createDataFrame(rows, SCHEMA).drop("n").repartition(3)
        found = ts.detect(frame, {name: said for name, said in definitions.items() if name in compiled})
        assert "MapInArrow" not in found._jdf.queryExecution().optimizedPlan().toString()
        wanted = []
        for name in compiled:
            detector = Detector()
            detector.define(name, *definitions[name])
            wanted += detector.feed_batch(events)
        assert rows_of(found) == rows_wanted(wanted), (seed, definitions)
        contexts.update(event.type.rstrip("0123456789") for event in wanted)
        doubled += len(wanted) - len({event.id for event in wanted})
    assert contexts.keys() == set(CONTEXTS) and min(contexts.values()) > 30 and doubled > 0


def test_openers_of_one_id_are_told_once(spark: Any) -> None:
    """At one closer, as by the engine; at another they are told again."""
    text = "SEQ([type = 'a'], [type = 'b'])"
    said = [("a", "1"), ("a", "1"), ("a", "2"), ("b", "3"), ("a", "1"), ("b", "3")]
    events = [
        Event(kind, "/x", id=id, offset=n, arrived=NOON, classification="unclassified")
        for n, (kind, id) in enumerate(said, 1)
    ]
    frame = spark.createDataFrame([row(n, event) for n, event in enumerate(events)], SCHEMA).drop("n")
    detector = Detector()
    detector.define("pair", text, "continuous")
    wanted = detector.feed_batch(events)
    assert len(wanted) == 3 and len({event.id for event in wanted}) == 2
    assert rows_of(ts.detect(frame, {"pair": (text, "continuous")})) == rows_wanted(wanted)


@pytest.mark.parametrize("given", ["0L AS offset", "-1L AS offset", "CAST(NULL AS BIGINT) AS offset"])
def test_what_has_no_place_in_the_order_is_refused(frame: Any, given: str) -> None:
    events = frame.selectExpr("* EXCEPT (offset)", given)
    with pytest.raises(PySparkException, match="EventError"):
        ts.detect(events, {"pair": "SEQ([type = 'a'], [type = 'b']) BY machine"}).count()


def test_what_an_event_lacks_is_seen_as_the_engine_sees_it(spark: Any) -> None:
    """An unknown classification is refused; no id, source or classification is "-" or none."""
    columns = "offset BIGINT, arrived TIMESTAMP, type STRING, source STRING, id STRING, classification STRING"
    by_window = "SEQ([type = 'a'] AS a, [type = 'b'] AS b)"
    by_engine = f"{by_window} WHERE a.type = 'a'"

    def found(text: str, *rows: tuple[str | None, str | None, str | None]) -> list[tuple[Any, ...]]:
        given = [(n, NOON, kind, *each) for n, (kind, each) in enumerate(zip("ab", rows, strict=True), 1)]
        asked = {"pair": text}
        return [
            (row.classification, row.data) for row in ts.detect(spark.createDataFrame(given, columns), asked).collect()
        ]

    lacking = ((None, None, None), ("s", "2", "secret"))
    assert found(by_window, *lacking) == found(by_engine, *lacking) != []
    for text in (by_window, by_engine):
        with pytest.raises(PySparkException, match="classification is 'TOP-SECRET'"):
            found(text, ("s", "1", "TOP-SECRET"), ("s", "2", "unclassified"))


@pytest.mark.parametrize("own", ["data, attributes", "data", ""])
def test_columns_beside_the_source_s_are_attributes(frame: Any, own: str) -> None:
    """As for the engine, which reads such rows itself."""
    slim = frame.select("offset", "arrived", "id", "source", "type", *(own.split(", ") if own else ()))
    kinds = ("STRING", "BIGINT", "INT", "DOUBLE", "BOOLEAN")
    columns = [f"CAST(nullif(offset % 3, 2) AS {kind}) AS {kind.lower()}" for kind in kinds]
    events = slim.selectExpr("*", *columns, "CAST(offset % 5 AS DOUBLE) AS value")
    given = {
        kind: (f"SEQ([type = 'a' AND value > 1], [type = 'b']) BY {kind.lower()}, source", "continuous")
        for kind in kinds
    }
    given["data"] = ("SEQ([type = 'a' AND string = '1'], [type = 'b' AND bigint = 0 OR machine = 'm1'])", "recent")
    found = ts.detect(events, given)
    assert "MapInArrow" not in found._jdf.queryExecution().optimizedPlan().toString()
    made = plan(given, buckets=2)
    wanted = rows_of(replay(pack(events, made), made))
    assert rows_of(found) == wanted
    assert min(Counter(each[1] for each in wanted).values()) > 5 and len({each[1] for each in wanted}) == 6


def test_python_is_asked_for_ids_keys_and_payloads_only(frame: Any) -> None:
    found = ts.detect(frame, {"pair": "SEQ([type = 'a'], [type = 'b']) BY machine"})
    for columns, python in ((("type", "time", "parts", "classification"), False), (("id",), True)):
        plan = found.select(*columns)._jdf.queryExecution().executedPlan().toString()
        assert ("ArrowEvalPython" in plan) is python, plan
    told = found.selectExpr(
        "parts", f"from_json(data, 'STRUCT<parts: ARRAY<{detected.PART}>>').parts AS said"
    ).collect()
    assert told and all(each.parts == each.said for each in told)


def test_the_source_is_read_once_for_definitions_of_one_context(frame: Any, journal: Path) -> None:
    texts = [text for text, contexts in PATTERNS.items() if "continuous" in contexts]
    definitions = {f"d{n}": (text, "continuous") for n, text in enumerate(texts)}
    found = ts.detect(frame, definitions)
    assert found._jdf.queryExecution().executedPlan().toString().count("InMemoryTableScan [") == 1
    assert rows_of(found) == rows_wanted(list(expected(definitions, events_in(journal)).values()))

"""`Filter.sql()` means on Spark what the filter means here: same true, same false, same NULL, event by event.

The filters are the conformance corpus, a few that aim at Spark's own ways, and random ones; the events are the corpus's
and random ones. Everything is compared with everything, with ANSI mode on (Spark's default) and off.
"""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.strategies import events as random_events
from tests.strategies import filters as random_filters
from tests.unit.test_patterns import JAVA, random_pattern, random_text, with_end
from tocsin.filters.filter import Filter
from tocsin.filters.patterns import compile_regex
from tocsin.model import Event, Scalar

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CORPUS = Path(__file__).resolve().parents[1] / "conformance" / "corpus" / "filters.jsonl"
SCHEMA = (
    "n INT, offset BIGINT, arrived TIMESTAMP, time TIMESTAMP, id STRING, source STRING, type STRING, subject STRING, "
    "priority INT, ttl DOUBLE, persistent BOOLEAN, ack STRING, cancel STRING, correlation_id STRING, "
    "classification STRING, datacontenttype STRING, attributes MAP<STRING, VARIANT>, data STRING"
)
COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")][1:16]  # those of the envelope
PER_QUERY = 100
RANDOM_FILTERS, RANDOM_EVENTS = 200, 150

# What Spark might read its own way: its lexer, its substitution of variables, its sets, its casts.
AIMED = [
    r"s = 'x\\y' OR s = 'it\'s' OR s = '${spark.app.name}'",
    "s = 'a\nb' OR s = '\0' OR s = '\U0010ffff'",
    r"s IN ('a', 'x\\y', 'it''s', '\0', '😀')",
    "x IN (0, 1, 2, 3, 5, 10, 80, 0.5, 2.5, 0.1, 1e300, 1e999, 7, 8, 9)",
    "x * -1 * 0 IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)",
    "x - x IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)",
    "x NOT IN (9007199254740991, 9007199254740992, 9007199254740993, 9223372036854775807, -9223372036854775808, 3)",
    "x IN (1, 'a', TRUE, NULL, TIMESTAMP '2026-01-01T00:00:00Z')",
    "x = y OR x < y",
    "x <> data.x",
    "attributes.x >= data.x",
    "offset <= x",
    "offset = x OR priority = x OR ttl = x",
    "ttl * 2 > x",
    "s < data.s",
    "s > time",
    "s BETWEEN time AND arrived",
    "'2026-01-01T00:00:00Z' IN (time, arrived)",
    "array_contains(tags, x)",
    "array_contains(tags, s) IS NOT TRUE",
    "array_contains(tags, 9007199254740993)",
    "array_contains(data, 'a')",
    "array_contains(tags, TIMESTAMP '2026-01-01T00:00:00Z')",
    "data = 'a' OR data = 1 OR data",
    "data IS NULL OR attributes IS NULL",
    "data > 'a'",
    "type = 1 OR priority = 'a' OR persistent = 1 OR time = s",
    "persistent = flag",
    "lower(s) = upper(s)",
    "length(s) > length(data.s)",
    "x / y > 1 OR x % y > 1",
    "-x = abs(x)",
    "x % 0 = 1 OR x / 0 = 1",
    "`odd name` = 1 OR data.`é` = 'a' OR `in` IS NOT NULL",
    "data.`q?'\"` = 1 OR data.`a.b`.c = 1 OR data.``.x = 1",
    r"s RLIKE '^[\x{0}-\x{10FFFF}]$'",
    r"s LIKE '%\\_%' OR s LIKE '50!%' ESCAPE '!'",
    "s LIKE 'a😀%' ESCAPE '😀'",
    "distance_km(x, y, 10, 20) < 5000 OR distance_km(y, x, 10, 20) IS NULL",
]


@pytest.fixture(scope="module", name="spark")
def session(spark: Any) -> Any:
    """The session of all tests, with other settings."""
    own = spark.newSession()
    for name, value in {
        "spark.sql.session.timeZone": "Asia/Kathmandu",  # nothing may depend on it
        "spark.sql.subexpressionElimination.enabled": "false",
        # Compiling hundreds of expressions takes minutes, interpreting them seconds. One test below compiles.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        own.conf.set(name, value)
    return own


def draw(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """The same random things on every run."""
    found: list[Any] = []

    @seed(2026)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(thing: Any) -> None:
        found.append(thing)

    collect()
    return found


def corpus() -> tuple[list[str], list[Event]]:
    lines = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").split("\n") if line]
    events = [Event(**{"type": "t", "source": "s", "id": "e", **line["event"]}) for line in lines]
    return [line["filter"] for line in lines], events


def without_nan(value: Any) -> Any:
    """JSON has no NaN; the source cannot write one into `data`."""
    if isinstance(value, dict):
        return {name: without_nan(member) for name, member in value.items()}
    if isinstance(value, list):
        return [without_nan(member) for member in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def json_text(data: Any) -> str | None:
    """The payload as the source writes it."""
    if data is None:
        return None
    if isinstance(data, bytes):
        return "data:;base64," + base64.b64encode(data).decode()
    return json.dumps(data, ensure_ascii=False).replace("Infinity", "1e999")


def variant(value: Scalar) -> tuple[bytes, bytes]:
    """A scalar in Spark's binary form: its value, and a dictionary of no names."""
    if isinstance(value, bool):
        body = bytes([1 << 2 if value else 2 << 2])
    elif isinstance(value, int):
        body = bytes([6 << 2]) + struct.pack("<q", value)
    elif isinstance(value, float):
        body = bytes([7 << 2]) + struct.pack("<d", value)
    else:
        text = value.encode()
        body = bytes([16 << 2]) + struct.pack("<I", len(text)) + text
    return body, b"\x01\x00\x00"


def row(number: int, event: Event) -> tuple[Any, ...]:
    from pyspark.sql.types import VariantVal

    attributes = {name: VariantVal(*variant(value)) for name, value in event.attributes.items()}
    values = [getattr(event, name) for name in COLUMNS]
    values[COLUMNS.index("ttl")] = None if event.ttl is None else float(event.ttl)
    return (number, *values, attributes if attributes or number % 2 else None, json_text(event.data))


def differences(frame: Any, texts: list[str], events: list[Event], found: Counter[bool | None]) -> list[str]:
    """Evaluate filters on Spark, many at a time; describe each disagreement and count the verdicts."""
    wrong = []
    for start in range(0, len(texts), PER_QUERY):
        chunk = [Filter(text) for text in texts[start : start + PER_QUERY]]
        rows = frame.selectExpr("n", *(f"{f.sql()} AS f{place}" for place, f in enumerate(chunk))).collect()
        assert len(rows) == len(events)
        for verdicts in rows:
            event = events[verdicts["n"]]
            for place, one in enumerate(chunk):
                expected, got = one.evaluate(event), verdicts[place + 1]
                found[expected] += 1
                if got is not expected:
                    wrong.append(f"{one.text!r} is {expected} here and {got} on Spark for {event!r}")
    return wrong


@pytest.fixture(scope="module")
def filters_and_events() -> tuple[list[str], list[Event]]:
    texts, events = corpus()
    texts = [*AIMED, *texts, *draw(random_filters(), RANDOM_FILTERS)]
    events = events + draw(random_events(), RANDOM_EVENTS)
    events = [event.replace(data=without_nan(event.data)) for event in events]
    odd = {"q?'\"": 1, "a.b": {"c": 1}, "": {"x": 1}, "s": "${spark.app.name}", "tags": ["2026-01-01T01:00:00+01:00"]}
    events.append(Event("t", "s", data=odd, attributes={"x": math.nan, "y": -math.inf}))
    return list(dict.fromkeys(texts)), list({repr(event): event for event in events}.values())


@pytest.fixture(scope="module")
def frame(spark: Any, filters_and_events: tuple[list[str], list[Event]]) -> Any:
    rows = [row(number, event) for number, event in enumerate(filters_and_events[1])]
    return spark.createDataFrame(rows, SCHEMA).repartition(2).cache()


def test_spark_agrees_with_ansi_on(spark: Any, frame: Any, filters_and_events: tuple[list[str], list[Event]]) -> None:
    texts, events = filters_and_events
    assert len(texts) >= 350
    assert len(events) >= 300
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    found: Counter[bool | None] = Counter()
    wrong = differences(frame, texts, events, found)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
    assert min(found[True], found[False], found[None]) > 5_000, found


def test_spark_agrees_with_ansi_off(spark: Any, frame: Any, filters_and_events: tuple[list[str], list[Event]]) -> None:
    texts, events = filters_and_events
    some = [*AIMED, *random.Random(7).sample(texts, 100)]
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        found: Counter[bool | None] = Counter()
        wrong = differences(frame, some, events, found)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
    assert min(found.values()) > 1_000, found


def test_spark_agrees_when_it_compiles(
    spark: Any, frame: Any, filters_and_events: tuple[list[str], list[Event]]
) -> None:
    """Generated code is another implementation of the same expressions."""
    names = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "CODEGEN_ONLY"}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        wrong = differences(frame, AIMED, filters_and_events[1], Counter())
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])


def test_a_filter_is_a_where_clause(frame: Any, filters_and_events: tuple[list[str], list[Event]]) -> None:
    one = Filter("x > 1 AND x < 1e9 AND s IS NULL")
    numbers = {found["n"] for found in frame.where(one.sql()).select("n").collect()}
    assert numbers == {number for number, event in enumerate(filters_and_events[1]) if one.matches(event)}
    assert numbers


def test_a_long_list_is_served(frame: Any, filters_and_events: tuple[list[str], list[Event]]) -> None:
    items = ", ".join([f"'k{number}'" for number in range(3_000)] + ["'a'"])
    one = Filter(f"s IN ({items})")
    assert frame.where(one.sql()).count() == sum(map(one.matches, filters_and_events[1])) > 0


def test_java_reads_patterns_alike(spark: Any) -> None:
    """Java's own verdict on the hand-written table, and on random patterns over texts full of line ends."""
    chance = random.Random(9)
    cases = [(pattern, text) for pattern, text, _ in JAVA]
    for _ in range(500):
        pattern = chance.choice([random_pattern, with_end])(chance)
        cases += [(pattern, random_text(chance, "abcABx1.-é😀\n\r\u0085\u2028 \x0b")) for _ in range(6)]
        cases += [(pattern, random_text(chance, "abc") + chance.choice(["\n", "\r\n", "\r", "\u2029", "\n\r"]))]
    frame = spark.createDataFrame([(n, *case) for n, case in enumerate(cases)], "n INT, pattern STRING, text STRING")
    found = {row["n"]: row["found"] for row in frame.selectExpr("n", "text RLIKE pattern AS found").collect()}
    wrong = [case for n, case in enumerate(cases) if compile_regex(case[0])(case[1]) is not found[n]]
    assert not wrong, wrong[:10]
    assert [found[n] for n in range(len(JAVA))] == [expected for _, _, expected in JAVA]
    assert min(Counter(found.values()).values()) > 500

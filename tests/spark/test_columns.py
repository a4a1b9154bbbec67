"""The batches of `tocsin.spark.columns` in Spark's hands: it reads them as meant, and what it hands back is read too.

Spark is the oracle: `schema_of_variant` and `try_variant_get` for attributes, `from_json` for typed payloads; and for
filters the node's own evaluator, on rows that went through the JVM.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.test_sql_meaning import AIMED, corpus, differences, draw
from tests.strategies import events as random_events
from tests.strategies import filters as random_filters
from tocsin.filters.filter import Filter
from tocsin.journal import rows
from tocsin.model import Event

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    # PySpark's own habits on shutdown and with pandas; nothing of ours.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

START = datetime(2026, 1, 1, tzinfo=UTC)
WHOLES = [
    sign * (1 << bits) + step for bits in (0, 7, 8, 15, 16, 31, 32, 53) for sign in (1, -1) for step in (-1, 0, 1)
]
WHOLES += [2**63 - 1, -(2**63)]
NUMBERS = [0.0, -0.0, 0.1, 1.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan]
HARD = [
    Event("t", "s", attributes={f"n{place}": each for place, each in enumerate(WHOLES)}),
    Event("t", "s", attributes={f"f{place}": each for place, each in enumerate(NUMBERS)}),
    Event("t", "s", attributes={f"t{size}": "é" * size for size in (0, 1, 31, 32, 63, 64, 127, 128, 32_768)}),
    Event("t", "s", attributes={"yes": True, "no": False, "text": "😀\0\n", "x": "5"}),
    Event("t", "s", data='text "quoted" \u2028 😀', datacontenttype="text/plain"),
    Event("t", "s", data=bytes(range(256)), datacontenttype="application/octet-stream"),
    Event("t", "s", time=datetime(1, 1, 1, tzinfo=UTC), data=[{"x": 1}], priority=10, ttl=0.5, persistent=False),
    Event("t", "s", time=datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), data={"x": 2**63}, subject="é"),
]
ARRAYS: list[Any] = [[], [1, 2], [1, None], [1, "x"], [None], ["a", 1.5, True, {"b": [1]}], [[1]], [2**63], [1.0]]
ARRAYS += [[{"x": 1}, {"x": "a"}, {}], [{"x": 1}, 5], [{"x": {"y": 1}}, None]]
QUICK = {
    "spark.sql.session.timeZone": "Asia/Kathmandu",  # nothing may depend on it
    "spark.sql.subexpressionElimination.enabled": "false",
    # Compiling hundreds of expressions takes minutes, interpreting them seconds.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module", autouse=True)
def quick(spark: Any) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinities: the journal refuses them in a payload."""
    if isinstance(value, dict):
        return {name: finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """With offsets from 1, as the journal gives them out."""
    found = HARD + [Event("t", "s", data=each) for each in ARRAYS]
    found += [Event("t", "s", data={"x": each}) for each in [*WHOLES, 0.5, "7", None, True, [1]]]
    found += random.Random(4).sample(corpus()[1], 60) + draw(random_events(), 80)
    return [
        event.replace(offset=place, arrived=START + timedelta(seconds=place), data=finite(event.data))
        for place, event in enumerate(found, 1)
    ]


@pytest.fixture(scope="module")
def stored(events: list[Event]) -> bytes:
    """The journal's batch, as it travels to a task."""
    seconds = [1_767_225_600_000_000 + event.offset * 1_000_000 for event in events if event.offset]
    batch = rows.to_arrow([rows.to_row(event) for event in events], 1, seconds)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


Emit = Callable[[str], Any]


@pytest.fixture(scope="module")
def emit(spark: Any, stored: bytes) -> Emit:
    """A DataFrame of the batch with the columns of a schema, made in Spark's tasks in slices."""

    def frame(schema: str) -> Any:
        def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark.sql.pandas.types import to_arrow_schema
            from pyspark.sql.types import _parse_datatype_json_string

            from tocsin.journal import engine
            from tocsin.spark.columns import Columns

            assert engine.wait(), engine.failure()
            wanted = to_arrow_schema(_parse_datatype_json_string(parsed), timezone="UTC")
            plan = Columns(wanted)
            (batch,) = pa.ipc.open_stream(stored)
            for piece in batches:
                for number in piece.column(0).to_pylist():
                    made = plan.of_journal(batch.slice(number * 50, 50))
                    assert wanted.equals(made.schema, check_metadata=True)
                    made.validate(full=True)
                    yield made

        parsed = spark.createDataFrame([], schema).schema.json()
        (batch,) = pa.ipc.open_stream(stored)
        return spark.range(0, -(-batch.num_rows // 50), 1, 2).mapInArrow(make, schema)

    return frame


@pytest.fixture(scope="module")
def frame(emit: Emit) -> Iterator[Any]:
    from tocsin.spark.schema import SCHEMA

    made = emit(SCHEMA).cache()
    yield made
    made.unpersist()


def test_the_envelope_is_read_as_it_is(frame: Any, events: list[Event]) -> None:
    names = ["offset", "id", "source", "type", "subject", "priority", "ttl", "persistent", "ack", "cancel"]
    names += ["correlation_id", "classification", "datacontenttype"]
    times = ["unix_micros(arrived) AS arrived", "unix_micros(time) AS time", "attributes IS NULL AS bare", "data"]
    found = frame.selectExpr(*names, *times).orderBy("offset").collect()
    assert len(found) == len(events) > 150
    epoch, micro = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    for row, event in zip(found, events, strict=True):
        assert {name: row[name] for name in names} == {name: getattr(event, name) for name in names}
        assert row["arrived"] == (event.arrived - epoch) // micro  # type: ignore[operator]
        assert row["time"] == (None if event.time is None else (event.time - epoch) // micro)
        assert row["bare"] == (not event.attributes)
        if event.data is not None and not isinstance(event.data, bytes):
            assert json.loads(row["data"]) == event.data


def test_attributes_have_the_types_of_events(frame: Any, events: list[Event]) -> None:
    frame = frame.selectExpr("offset", "explode(attributes) AS (name, value)")
    kinds = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "STRING"}
    reads = [f"try_variant_get(value, '$', '{kind}') AS {kind}" for kind in kinds.values()]
    found = frame.selectExpr("offset", "name", "schema_of_variant(value) AS kind", *reads).collect()
    seen = {(row["offset"], row["name"]): (row["kind"], repr(row[row["kind"]])) for row in found}
    expected = {
        (event.offset, name): (kinds[type(value)], repr(value))
        for event in events
        for name, value in event.attributes.items()
    }
    assert seen == expected
    assert min(Counter(kind for kind, _ in seen.values()).values()) > 10


def test_filters_mean_the_same(frame: Any, events: list[Event]) -> None:
    chance = random.Random(4)
    texts = [*chance.sample(AIMED, 10), *chance.sample(corpus()[0], 12), *draw(random_filters(), 8)]
    numbered = frame.selectExpr("CAST(offset - 1 AS INT) AS n", "*")
    found: Counter[bool | None] = Counter()
    wrong = differences(numbered, texts, events, found)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
    assert min(found[True], found[False], found[None]) > 300, found


def test_a_filter_finds_its_events(frame: Any, events: list[Event]) -> None:
    one = Filter("x > 1 OR s = 'a' OR yes")
    found = {row["offset"] for row in frame.where(one.sql()).select("offset").collect()}
    assert found == {event.offset for event in events if one.matches(event)}
    assert 10 < len(found) < len(events)


def test_what_spark_hands_back_is_what_it_got(frame: Any, stored: bytes, events: list[Event]) -> None:
    def back(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import msgspec

        from tocsin.journal import attributes, engine
        from tocsin.spark.columns import events as read
        from tocsin.spark.columns import to_journal

        assert engine.wait(), engine.failure()
        for batch in batches:
            # The quick way is taken, not the other that gives the same.
            assert attributes._pack_by_kernel(engine.kernels(), batch.column("attributes")) is not None
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, to_journal(batch).schema) as writer:
                writer.write_batch(to_journal(batch))
            shown = repr(msgspec.to_builtins(read(batch), builtin_types=[datetime, bytes]))
            yield pa.record_batch({"block": [bytes(sink.getvalue())], "shown": [shown]})

    import msgspec

    found = frame.coalesce(1).sortWithinPartitions("offset").mapInArrow(back, "block BINARY, shown STRING").collect()
    blocks = pa.Table.from_batches([batch for row in found for batch in pa.ipc.open_stream(bytes(row["block"]))])
    (expected,) = pa.ipc.open_stream(stored)
    assert blocks.combine_chunks().equals(pa.Table.from_batches([expected]))
    as_doubles = [event.replace(ttl=None if event.ttl is None else float(event.ttl)) for event in events]
    assert len(found) == 1
    assert found[0]["shown"] == repr(msgspec.to_builtins(as_doubles, builtin_types=[datetime, bytes]))


def test_attributes_as_texts(emit: Emit, events: list[Event]) -> None:
    found = emit("offset BIGINT, attributes MAP<STRING, STRING>").collect()
    assert len(found) == len(events)
    for row in found:
        attributes = events[row["offset"] - 1].attributes
        assert (row["attributes"] or {}).keys() == attributes.keys()
        for name, value in attributes.items():
            text = row["attributes"][name]
            assert text == value if isinstance(value, str) else repr(json.loads(text)) == repr(value)


TYPES = [
    "STRUCT<x: DOUBLE, s: STRING, flag: BOOLEAN, tags: ARRAY<STRING>, a: STRUCT<b: STRING, c: STRUCT<d: BIGINT>>>",
    "STRUCT<x: BIGINT, y: INT, s: DOUBLE, tags: ARRAY<BIGINT>, a: MAP<STRING, STRING>, `odd name`: BOOLEAN>",
    "STRUCT<x: ARRAY<INT>, tags: ARRAY<STRUCT<x: INT>>, a: MAP<STRING, BIGINT>, `é`: STRING, flag: STRING>",
    "MAP<STRING, STRING>",
    "MAP<STRING, DOUBLE>",
    "ARRAY<BIGINT>",
    "ARRAY<STRING>",
    "ARRAY<STRUCT<x: INT>>",
]


def alike(ours: Any, its: Any) -> bool:
    """The same, but for how a number is spelt that became text."""
    if isinstance(ours, dict | list | tuple) and type(ours) is type(its) and len(ours) == len(its):
        if isinstance(ours, dict):
            return ours.keys() == its.keys() and all(alike(ours[name], its[name]) for name in ours)
        return all(map(alike, ours, its))
    if isinstance(ours, str) and isinstance(its, str) and ours != its:
        return float(ours) == float(its)
    return repr(ours) == repr(its)


@pytest.mark.parametrize("kind", TYPES)
def test_typed_payloads_are_read_as_from_json_does(frame: Any, emit: Emit, events: list[Event], kind: str) -> None:
    ours = emit(f"offset BIGINT, data {kind}").orderBy("offset").collect()
    its = frame.selectExpr("offset", f"from_json(data, '{kind}') AS data").orderBy("offset").collect()
    wrong = [(a, b, events[a["offset"] - 1].data) for a, b in zip(ours, its, strict=True) if not alike(a, b)]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(map(repr, wrong[:10]))
    assert sum(row["data"] is not None for row in ours) >= 4


def test_payloads_as_variants(frame: Any, emit: Emit, events: list[Event]) -> None:
    reads = [
        "offset",
        "schema_of_variant(data) AS kind",
        "to_json(data) AS text",
        "try_variant_get(data, '$.x', 'double') AS x",
    ]
    ours = emit("offset BIGINT, data VARIANT").selectExpr(*reads).orderBy("offset").collect()
    parsed = frame.selectExpr("offset", "try_variant_get(try_parse_json(data), '$.x', 'double') AS x").orderBy("offset")
    for row, its, event in zip(ours, parsed.collect(), events, strict=True):
        assert row["x"] == its["x"]
        if isinstance(event.data, bytes):
            assert row["kind"] == "BINARY"
        elif event.data is None:
            assert row["kind"] is None
        else:
            assert json.loads(row["text"]) == event.data
    assert sum(row["x"] is not None for row in ours) > 20


def test_large_objects_are_searched_in_javas_order(spark: Any) -> None:
    """From 32 names on Spark searches by halving, and compares as Java does: U+FFFF comes after U+1F600."""
    from pyspark.sql.types import VariantVal

    from tocsin.journal.variants import encode

    names = [*(f"n{number}" for number in range(300)), "\uffff", "\ue000", "😀", "\U0010ffff", "é", "Z", "_", "~"]
    value = {name: number for number, name in enumerate(names)}
    made = spark.createDataFrame([(VariantVal(*encode(value)),)], "v VARIANT")
    (row,) = made.selectExpr(*(f"try_variant_get(v, '$[\"{name}\"]', 'int')" for name in names)).collect()
    assert list(row) == list(value.values())


@pytest.mark.parametrize("number, kind", [(2**63, "DECIMAL(19,0)"), (1 - 10**38, "DECIMAL(38,0)"), (10**38, "DOUBLE")])
def test_long_whole_numbers(spark: Any, number: int, kind: str) -> None:
    from pyspark.sql.types import VariantVal

    from tocsin.journal.variants import encode

    made = spark.createDataFrame([(VariantVal(*encode(number)),)], "v VARIANT")
    (row,) = made.selectExpr("schema_of_variant(v)", "to_json(v)").collect()
    assert row[0] == kind
    assert json.loads(row[1]) == (float(number) if kind == "DOUBLE" else number)

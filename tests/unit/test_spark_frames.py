"""Rows of a DataFrame as events: every column, every payload, and what is wrong with which row."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

import pyarrow as pa

from tocsin.errors import EventError, SchemaError
from tocsin.journal import variants
from tocsin.model import Event
from tocsin.spark.frames import Frames
from tocsin.spark.nested import json_values
from tocsin.spark.sink import _Rows

NOW = datetime(2026, 5, 6, 7, 8, 9, 10, UTC)
MOMENT = pa.timestamp("us", "Asia/Kathmandu")  # whatever the session's zone, the instant counts


def rows(extra: bool = False, count: int | None = None, **columns: Any) -> list[Event]:
    """The events of columns; `type` and `source` are there unless given."""
    length = count or max((len(column) for column in columns.values()), default=1)
    given = {"type": pa.array(["t"] * length), "source": pa.array(["s"] * length), **columns}
    batch = pa.record_batch({name: pa.array(column) for name, column in given.items()})
    return list(Frames(batch.schema, extra=extra).events(batch, lambda row: f"id-{row}", NOW))


def variant_array(*values: Any) -> pa.Array:
    pairs = [
        None if value is ... else dict(zip(("value", "metadata"), variants.encode(value), strict=True))
        for value in values
    ]
    return pa.array(pairs, variants.VARIANT)


def test_type_and_source_are_enough() -> None:
    assert rows(count=2) == [Event("t", "s", f"id-{row}", time=NOW) for row in range(2)]


def test_every_column_reaches_its_field() -> None:
    time = datetime(1969, 7, 20, 20, 17, 40, 5, UTC)
    (found,) = rows(
        offset=pa.array([77]),
        arrived=pa.array([NOW], MOMENT),
        time=pa.array([time], MOMENT),
        id=["mine"],
        subject=["sub"],
        priority=pa.array([9], pa.int8()),
        ttl=pa.array([1.5]),
        persistent=[False],
        ack=["receipt"],
        cancel=["any"],
        correlation_id=["c"],
        classification=["secret"],
        datacontenttype=["application/vnd.x+json"],
        attributes=pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int64())),
        data=['{"x": [1, 2.5, null, "é"]}'],
    )
    assert found == Event(
        "t",
        "s",
        "mine",
        subject="sub",
        time=time,
        data={"x": [1, 2.5, None, "é"]},
        datacontenttype="application/vnd.x+json",
        attributes={"a": 1},
        priority=9,
        ttl=1.5,
        persistent=False,
        ack="receipt",
        cancel="any",
        correlation_id="c",
        classification="secret",
    )


def test_null_is_the_default() -> None:
    nothing = dict.fromkeys(("id", "subject", "ack", "cancel", "classification", "datacontenttype", "data"), [None])
    texts = {name: pa.array(column, pa.string()) for name, column in nothing.items()}
    (found,) = rows(
        **texts,
        time=pa.array([None], MOMENT),
        priority=pa.array([None], pa.int32()),
        ttl=pa.array([None], pa.float64()),
        persistent=pa.array([None], pa.bool_()),
        attributes=pa.array([None], pa.map_(pa.string(), pa.string())),
    )
    assert found == Event("t", "s", "id-0", time=NOW)


def test_some_ids_may_be_given_and_others_made() -> None:
    assert [each.id for each in rows(id=["a", None, "b", None])] == ["a", "id-1", "b", "id-3"]


def test_numbers_of_any_width_fit() -> None:
    found = rows(priority=pa.array([3], pa.int64()), ttl=pa.array([Decimal("0.25")], pa.decimal128(5, 2)))
    assert (found[0].priority, found[0].ttl) == (3, 0.25)
    assert rows(ttl=pa.array([60], pa.int32()))[0].ttl == 60


# Attributes.


def test_attributes_keep_their_kinds() -> None:
    kinds = pa.map_(pa.string(), variants.VARIANT)
    values = {"b": True, "i": 2**62, "f": 0.5, "n": math.inf, "s": "é", "long": "x" * 100}
    entries = [
        (name, dict(zip(("value", "metadata"), variants.encode(value), strict=True))) for name, value in values.items()
    ]
    (found, none, empty) = rows(attributes=pa.array([entries, None, []], kinds))
    assert found.attributes == values and type(found.attributes["b"]) is bool
    assert none.attributes == empty.attributes == {}


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.string(), "x", "x"),
        (pa.bool_(), True, True),
        (pa.int16(), -5, -5),
        (pa.float32(), 0.5, 0.5),
        (pa.decimal128(9, 2), Decimal("1.50"), 1.5),
        (pa.decimal128(9, 2), Decimal("7.00"), 7),
        (MOMENT, NOW, "2026-05-06T07:08:09.000010Z"),
        (pa.date32(), date(2026, 5, 6), "2026-05-06"),
    ],
)
def test_attributes_may_be_of_any_scalar_type(kind: pa.DataType, given: Any, expected: Any) -> None:
    (found,) = rows(attributes=pa.array([[("a", given)]], pa.map_(pa.string(), kind)))
    assert found.attributes == {"a": expected} and type(found.attributes["a"]) is type(expected)
    (found,) = rows(extra=True, a=pa.array([given], kind))
    assert found.attributes == {"a": expected}


def test_other_columns_may_become_attributes() -> None:
    kind = pa.map_(pa.string(), pa.string())
    found = rows(
        extra=True,
        line=["a", None, "c"],
        level=pa.array([1, 2, None]),
        attributes=pa.array([[("line", "z"), ("x", "y")], None, []], kind),
    )
    assert [each.attributes for each in found] == [
        {"line": "a", "x": "y", "level": 1},
        {"level": 2},
        {"line": "c"},
    ]


# Payloads.


def test_text_is_json() -> None:
    texts = ['{"a": 1}', "[1]", '"x"', "12", "true", "null", None]
    assert [each.data for each in rows(data=texts)] == [{"a": 1}, [1], "x", 12, True, None, None]


def test_text_and_binary_payloads_are_written_as_the_source_writes_them() -> None:
    kinds = ["text/plain", "application/xml", "image/png", "application/json", None]
    url = "data:;base64," + base64.b64encode(b"\0\xff").decode()
    found = rows(data=['"plain"', '"<a/>"', url, '{"a": 1}', "2"], datacontenttype=kinds)
    assert [each.data for each in found] == ["plain", "<a/>", b"\0\xff", {"a": 1}, 2]
    assert [each.datacontenttype for each in found] == kinds


def test_binary_columns_are_bytes() -> None:
    found = rows(data=pa.array([b"\0\1", None], pa.binary()))
    assert [(each.data, each.datacontenttype) for each in found] == [
        (b"\0\1", "application/octet-stream"),
        (None, None),
    ]
    assert rows(data=pa.array([b'{"a": 1}']), datacontenttype=["application/json"])[0].data == {"a": 1}
    assert rows(data=pa.array(["é".encode()]), datacontenttype=["text/plain"])[0].data == "é"


def test_structs_maps_and_arrays_are_json_values() -> None:
    kind = pa.struct(
        {
            "n": pa.int32(),
            "text": pa.string(),
            "deep": pa.struct({"when": MOMENT, "plain": pa.timestamp("us"), "day": pa.date32()}),
            "list": pa.list_(pa.struct({"x": pa.float64()})),
            "map": pa.map_(pa.string(), pa.list_(pa.int8())),
            "raw": pa.binary(),
            "sum": pa.decimal128(12, 2),
            "any": variants.VARIANT,
        }
    )
    full = {
        "n": 7,
        "text": "é",
        "deep": {"when": NOW, "plain": datetime(2026, 1, 2, 3), "day": date(2026, 1, 2)},
        "list": [{"x": 0.5}, None, {"x": None}],
        "map": [("a", [1, None]), ("b", None)],
        "raw": b"\0\xff",
        "sum": Decimal("1.25"),
        "any": dict(zip(("value", "metadata"), variants.encode({"k": [1, "z"]}), strict=True)),
    }
    column = pa.array([full, None, {"deep": {"day": None}, "list": [], "map": []}], kind)
    expected = [
        {
            "n": 7,
            "text": "é",
            "deep": {"when": "2026-05-06T07:08:09.000010Z", "plain": "2026-01-02T03:00:00", "day": "2026-01-02"},
            "list": [{"x": 0.5}, None, {}],
            "map": {"a": [1, None], "b": None},
            "raw": "AP8=",
            "sum": 1.25,
            "any": {"k": [1, "z"]},
        },
        None,
        {"deep": {}, "list": [], "map": {}},
    ]
    assert [each.data for each in rows(data=column)] == expected
    # A slice of a column has children that reach beyond it.
    assert json_values(column.slice(1)) == expected[1:] and json_values(column.slice(0, 1)) == expected[:1]
    nested = pa.array([[1], [2, 3], None, [4]], pa.list_(pa.int64()))
    assert json_values(nested.slice(1, 2)) == [[2, 3], None]


def test_variants_are_their_values() -> None:
    values = [{"a": [1, {"b": None}]}, "text", 5, 2.5, True, None]
    found = rows(data=variant_array(*values, ...))
    assert [each.data for each in found] == [*values, None]


# What is refused before there are rows.


@pytest.mark.parametrize(
    ("columns", "field", "words"),
    [
        ({"priority": ["high"]}, "priority", "CAST it AS INT"),
        ({"priority": pa.array([1.0])}, "priority", "CAST it AS INT"),
        ({"ttl": ["5"]}, "ttl", "CAST it AS DOUBLE"),
        ({"time": ["2026-01-01"]}, "time", "CAST it AS TIMESTAMP"),
        ({"time": pa.array([NOW], pa.timestamp("us"))}, "time", "is timestamp_ntz; CAST it AS TIMESTAMP"),
        ({"subject": pa.array([1])}, "subject", "CAST it AS STRING"),
        ({"persistent": ["true"]}, "persistent", "CAST it AS BOOLEAN"),
        ({"attributes": ["{}"]}, "attributes", "MAP<STRING"),
        ({"attributes": pa.array([[(1, "x")]], pa.map_(pa.int32(), pa.string()))}, "attributes", "MAP<STRING"),
        ({"attributes": pa.array([[("a", [1])]], pa.map_(pa.string(), pa.list_(pa.int8())))}, "attributes", "MAP"),
        ({"data": pa.array([[(1, "x")]], pa.map_(pa.int32(), pa.string()))}, "data", "CAST"),
        ({"data": pa.array([timedelta(1)])}, "data", "CAST it to STRING"),
        ({"data": pa.array([{"a": {"b": timedelta(1)}}])}, "data.a.b", "CAST it to STRING"),
        ({"prority": pa.array([1])}, "prority", "did you mean priority"),
        ({"machine": ["m7"]}, "machine", "or drop it. With option extraColumns=attributes"),
    ],
)
def test_wrong_columns_are_named(columns: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        rows(**columns)
    assert caught.value.field == field and words in str(caught.value) and field in caught.value.message


def test_nobody_is_told_to_leave_out_what_is_needed() -> None:
    with pytest.raises(SchemaError, match="the column type is int; CAST it AS STRING$"):
        Frames(pa.schema({"type": pa.int32(), "source": pa.string()}))


def test_missing_and_double_columns_are_named() -> None:
    with pytest.raises(SchemaError, match="no column source.*rename Source"):
        Frames(pa.schema({"type": pa.string(), "Source": pa.string()}))
    with pytest.raises(SchemaError, match="no column type.*lit"):
        Frames(pa.schema({"source": pa.string()}))
    with pytest.raises(SchemaError, match="two columns id"):
        Frames(pa.schema([(name, pa.string()) for name in ("type", "source", "id", "id")]))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a b": ["x"]}, "cannot be an attribute"),
        ({"destination": ["x"]}, "cannot be an attribute"),
        ({"deep": pa.array([{"x": 1}])}, "too much for an attribute"),
    ],
)
def test_not_everything_can_be_an_attribute(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        rows(extra=True, **columns)


# What is wrong with a row.


@pytest.mark.parametrize(
    ("columns", "field", "words"),
    [
        ({"type": ["a", None]}, "type", "type is None"),
        ({"type": ["a", ""]}, "type", "type is ''"),
        ({"type": ["a", "tocsin.clock"]}, "type", "does not begin with tocsin."),
        ({"source": ["a", None]}, "source", "source is None"),
        ({"id": ["a", "b\n"]}, "id", "control characters"),
        ({"priority": pa.array([10, 11])}, "priority", "priority is 11; give an integer from 1 to 10"),
        ({"ttl": pa.array([1, -1])}, "ttl", "ttl is -1"),
        ({"ack": ["none", "always"]}, "ack", "none, client, receipt"),
        ({"classification": ["secret", "open"]}, "classification", "give one of"),
        ({"data": ["1", "hello"]}, "data", "data is 'hello'.*to_json"),
        ({"data": ['"x"', "1"], "datacontenttype": ["text/plain"] * 2}, "data", "text/plain as a JSON string"),
        ({"data": ["data:;base64,AA==", "AA=="], "datacontenttype": ["image/png"] * 2}, "data", "data URL"),
        ({"data": ["data:;base64,AA==", "data:;base64,?"], "datacontenttype": ["image/png"] * 2}, "data", "data"),
        ({"data": ["1", "2"], "datacontenttype": [None, "nonsense"]}, "datacontenttype", "not a media type"),
        ({"data": [b"a", b"\xff"], "datacontenttype": ["text/plain"] * 2}, "data", "UTF-8"),
        ({"time": pa.array([0, 2**62], pa.int64()).cast(MOMENT)}, "time", "no event can"),
        ({"data": pa.array([{"t": 0}, {"t": 2**62}]).cast(pa.struct({"t": MOMENT}))}, "data", "no event can"),
        (
            {"attributes": pa.array([[], [("a b", "x")]], pa.map_(pa.string(), pa.string()))},
            "attributes.a b",
            "not a name",
        ),
        (
            {"attributes": pa.array([[], [("a", 2**64 - 1)]], pa.map_(pa.string(), pa.uint64()))},
            "attributes.a",
            "64 bits",
        ),
        ({"data": pa.array([None, {"value": b"\xff", "metadata": b"\1\0\0"}], variants.VARIANT)}, "data", "VARIANT"),
    ],
)
def test_a_bad_row_is_told_when_its_turn_comes(columns: dict[str, Any], field: str, words: str) -> None:
    given = {"type": pa.array(["t", "t"]), "source": pa.array(["s", "s"]), **columns}
    batch = pa.record_batch({name: pa.array(column) for name, column in given.items()})
    taken: list[Event] = []
    with pytest.raises(EventError, match=words) as caught:
        for each in Frames(batch.schema).events(batch, lambda row: f"id-{row}", NOW):
            taken.append(each)
    assert caught.value.field == field and len(taken) == 1, (caught.value.field, taken)


def test_the_first_bad_row_counts_whatever_the_column() -> None:
    columns = {"data": ["1", "2", "3", "x"], "priority": pa.array([1, 2, 99, 4]), "id": ["a", "b", "c", "d"]}
    given = {"type": pa.array(["t"] * 4), "source": pa.array(["s"] * 4), **columns}
    batch = pa.record_batch({name: pa.array(column) for name, column in given.items()})
    taken = []
    with pytest.raises(EventError, match="priority is 99"):
        for each in Frames(batch.schema).events(batch, str, NOW):
            taken.append(each.id)
    assert taken == ["a", "b"]


def test_large_texts_are_texts() -> None:
    (found,) = rows(subject=pa.array(["x"], pa.large_string()), data=pa.array(['{"a": 1}'], pa.large_string()))
    assert (found.subject, found.data) == ("x", {"a": 1})


def test_json_text_keeps_its_numbers() -> None:
    text = '{"big": 123456789012345678901234567890, "small": 1e-300, "whole": 9007199254740993}'
    assert rows(data=[text])[0].data == json.loads(text)


@pytest.mark.parametrize(("type", "source"), [("pair", "tocsin:definitions"), ("tocsin.clock", "plant")])
def test_what_only_a_node_writes_is_refused_on_every_way_in(type: str, source: str) -> None:
    rows = pa.record_batch({"type": ["a", type], "source": ["plant", source]})
    taken = iter(_Rows(iter([rows]), "id-", False))
    assert next(taken).type == "a"
    with pytest.raises(EventError, match="the node's own") as caught:
        next(taken)
    assert ("withColumn('source'" in str(caught.value.help)) is (type == "pair")

"""`tocsin.spark.columns`: what the journal holds comes to Spark and back unchanged, with Numba and without.

No Java here. The oracles are msgspec (the journal's own MessagePack), PySpark's reader and writer of VARIANTs, and the
events themselves; `tests/spark/test_columns.py` asks Spark.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import events as random_events
from tocsin.errors import EventError, SchemaError
from tocsin.journal import rows
from tocsin.model import Event

types = pytest.importorskip("pyspark.sql.types", reason="PySpark is not installed; `make setup` installs it")

from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402
from pyspark.sql.variant_utils import VariantUtils  # noqa: E402

from tocsin.journal import attributes, engine, payloads  # noqa: E402
from tocsin.journal.variants import NO_NAMES, VARIANT, decode, encode  # noqa: E402
from tocsin.spark.columns import SOURCE_ARROW, Columns, events, to_journal  # noqa: E402
from tocsin.spark.schema import SCHEMA  # noqa: E402

START = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = pa.map_(pa.string(), pa.string())
json_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
LENGTHS = (0, 1, 31, 32, 63, 64, 255, 256, 65_535, 65_536)
EDGES = [
    sign * (1 << bits) + step for bits in (0, 5, 7, 8, 15, 16, 31, 32, 53) for sign in (1, -1) for step in (-1, 0, 1)
]
EDGES += [2**63 - 1, -(2**63), -(2**63) + 1]
NUMBERS = [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan]
HARD = [
    Event("t", "s", "1"),
    Event("t", "s", "2", attributes={"empty": "", "text": "é😀\0\n"}),
    Event("t", "s", "3", attributes={f"n{place}": each for place, each in enumerate(EDGES)}),
    Event("t", "s", "4", attributes={f"f{place}": each for place, each in enumerate(NUMBERS)}),
    Event("t", "s", "5", attributes={f"t{size}": "x" * size for size in LENGTHS}),
    *(Event("t", "s", f"m{size}", attributes={f"a{n}": n % 2 == 0 for n in range(size)}) for size in (1, 15, 16, 300)),
    Event("t", "s", "6", attributes={"a" * 64: True, "_": False}),
    Event("t", "s", "7", data="text \"quoted\" \u2028 é😀\0", datacontenttype="text/plain"),
    Event("t", "s", "8", data="", datacontenttype="text/xml"),
    Event("t", "s", "9", data=bytes(range(256)), datacontenttype="application/octet-stream"),
    Event("t", "s", "10", data=b"", datacontenttype="image/png"),
    Event("t", "s", "11", data={"big": "x" * 1_000_000, "deep": [[[{"a": None}]]], "n": 10**30}),
    Event("t", "s", "12", data="a JSON string"),
    Event("t", "s", "13", data=[], datacontenttype="application/vnd.x+json"),
    Event("t", "s", "14", datacontenttype="application/json"),
    Event("t", "s", "15", data=0, time=datetime(1, 1, 1, tzinfo=UTC), ttl=1e12, priority=10, subject="é",
          persistent=False, ack="receipt", cancel="any", correlation_id="c", classification="top-secret"),
    Event("t", "s", "16", time=datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), ttl=0.5),
]  # fmt: skip


@pytest.fixture(params=["numba", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of doing it."""
    if request.param == "python":
        monkeypatch.setattr(engine, "kernels", lambda: None)
    elif not engine.wait():
        pytest.skip(f"no kernels: {engine.failure()}")
    return str(request.param)


def in_python(function: Any, *arguments: Any) -> Any:
    """Do something without kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "kernels", lambda: None)
        return function(*arguments)


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinities: the journal refuses them in a payload."""
    if isinstance(value, dict):
        return {name: finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def stored(given: list[Event]) -> list[Event]:
    """Events as a journal gives them out."""
    return [
        event.replace(
            offset=place,
            arrived=START + timedelta(microseconds=place),
            data=finite(event.data),
            ttl=None if event.ttl is None else float(event.ttl),
        )
        for place, event in enumerate(given, 1)
    ]


def journal(given: list[Event]) -> pa.RecordBatch:
    arrived = [1_767_225_600_000_000 + place for place in range(1, len(given) + 1)]
    return rows.to_arrow([rows.to_row(event) for event in given], 1, arrived)


def same(left: Any, right: Any) -> bool:
    """Equal, of equal types, NaN equal to itself, -0.0 not to 0.0."""
    return repr(msgspec.to_builtins(left, builtin_types=[datetime, bytes])) == repr(
        msgspec.to_builtins(right, builtin_types=[datetime, bytes])
    )


def as_bytes(*columns: pa.Array) -> bytes:
    """Every buffer, as Arrow sends it to Spark."""
    batch = pa.record_batch(list(columns), [str(place) for place in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))


def read(given: list[Event], **kinds: pa.DataType) -> list[Any]:
    """One column of events, as a type."""
    (name,) = kinds
    made = Columns(schema(**kinds)).of_journal(journal(given))
    made.validate(full=True)
    assert made.schema == schema(**kinds)
    return list(made.column(name).to_pylist(maps_as_pydicts="strict"))


# -- there and back


def test_the_schema_is_what_spark_makes_of_ours() -> None:
    simple = {
        "BIGINT": types.LongType,
        "INT": types.IntegerType,
        "DOUBLE": types.DoubleType,
        "STRING": types.StringType,
    }
    simple |= {"TIMESTAMP": types.TimestampType, "BOOLEAN": types.BooleanType}
    fields = []
    for column in SCHEMA.replace(", VARIANT", ",VARIANT").split(", "):
        name, kind = column.split(" ", 1)
        variants = types.MapType(types.StringType(), types.VariantType())
        fields.append(types.StructField(name, variants if kind.startswith("MAP") else simple[kind]()))
    expected = to_arrow_schema(types.StructType(fields), timezone="UTC")
    assert SOURCE_ARROW.equals(expected, check_metadata=True)
    assert str(SOURCE_ARROW.field("attributes").type) == str(expected.field("attributes").type)
    made = Columns(expected).of_journal(journal(HARD))
    assert made.schema.equals(expected, check_metadata=True)


@pytest.mark.parametrize("start, length", [(0, len(HARD)), (0, 0), (3, 0), (1, 7), (5, len(HARD) - 5)])
def test_hard_events_come_back(way: str, start: int, length: int) -> None:
    batch = journal(stored(HARD)).slice(start, length)
    there = Columns(SOURCE_ARROW).of_journal(batch)
    there.validate(full=True)
    back = to_journal(there)
    back.validate(full=True)
    assert back.equals(batch)
    assert same(rows.from_arrow(back), rows.from_arrow(batch))
    assert len(back) == length


@given(st.lists(random_events(), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_random_events_come_back(given: list[Event], start: int, length: int) -> None:
    given = stored(given)
    batch = journal(given).slice(start, length)
    there = Columns(SOURCE_ARROW).of_journal(batch)
    there.validate(full=True)
    assert to_journal(there).equals(batch)
    assert same(events(there), given[start : start + length])
    plain = in_python(Columns(SOURCE_ARROW).of_journal, batch)
    assert as_bytes(*plain.columns) == as_bytes(*there.columns)
    assert in_python(to_journal, there).equals(batch)
    assert same(in_python(events, there), given[start : start + length])


@given(st.data())
def test_a_slice_of_the_columns_comes_back(data: st.DataObject) -> None:
    """Spark may hand in slices: what a buffer holds before and after them is not looked at."""
    given = stored(data.draw(st.lists(random_events(), min_size=1, max_size=9)) + HARD[:5])
    start = data.draw(st.integers(0, len(given)))
    there = Columns(SOURCE_ARROW).of_journal(journal(given)).slice(start, data.draw(st.integers(0, len(given))))
    expected = journal(given).slice(start, len(there))
    assert to_journal(there).equals(expected)
    assert in_python(to_journal, there).equals(expected)
    assert same(events(there), given[start : start + len(there)])


def test_both_ways_make_the_same_bytes() -> None:
    assert engine.wait(), engine.failure()
    batch = journal(HARD)
    kind = SOURCE_ARROW.field("attributes").type
    packed = batch.column("attributes")
    quick, plain = attributes.to_variants(packed, kind), in_python(attributes.to_variants, packed, kind)
    assert as_bytes(quick) == as_bytes(plain)
    assert as_bytes(attributes.pack(quick)) == as_bytes(in_python(attributes.pack, quick)) == as_bytes(packed)


# -- attributes


def test_attributes_are_what_pyspark_reads(way: str) -> None:
    made = read(HARD, attributes=SOURCE_ARROW.field("attributes").type)
    assert len(made) == len(HARD)
    for event, found in zip(HARD, made, strict=True):
        values = {name: VariantUtils.to_python(each["value"], each["metadata"]) for name, each in (found or {}).items()}
        assert same(values, event.attributes)
        assert (found is None) == (not event.attributes)


def test_very_many_attributes(way: str) -> None:
    many = Event("t", "s", "1", attributes={f"a{number}": number for number in range(70_000)})
    batch = journal([many])
    there = Columns(SOURCE_ARROW).of_journal(batch)
    assert to_journal(there).equals(batch)
    assert events(there)[0].attributes == many.attributes


@given(st.binary(max_size=40) | st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text(), max_size=3))
def test_foreign_bytes_are_an_error_or_what_msgspec_reads(given: Any) -> None:
    """Kernels read nothing outside a row, and take nothing for granted."""
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if not isinstance(value, int) or abs(value) < 2**63}
        given = msgspec.msgpack.encode(given)
    kind = SOURCE_ARROW.field("attributes").type
    packed = pa.array([b"\x81\xa1a\x01", given, b"\x81\xa1b\x02"], pa.binary()).slice(1, 1)
    try:
        expected = in_python(attributes.to_variants, packed, kind)
    except (EventError, TypeError):
        expected = None
    try:
        found = attributes.to_variants(packed, kind)
    except (EventError, TypeError):
        assert expected is None
        return
    found.validate()  # kernels do not ask whether a text is UTF-8, nor whether a name is there twice
    if expected is not None and len(found.keys) == len(expected.keys):
        assert found.equals(expected)


@given(st.data())
def test_cut_off_and_changed_attributes_are_noticed(data: st.DataObject) -> None:
    event = data.draw(st.sampled_from([each for each in HARD if each.attributes]))
    packed = msgspec.msgpack.encode(event.attributes)
    place = data.draw(st.integers(0, len(packed) - 1))
    kind = SOURCE_ARROW.field("attributes").type
    with pytest.raises(EventError, match="row 1"):
        attributes.to_variants(pa.array([None, packed[:place]], pa.binary()), kind)


def test_attributes_as_texts(way: str) -> None:
    given = {"s": "1", "n": -(2**63), "f": 1.5, "b": True, "e": "", "x": math.nan, "y": math.inf, "z": -math.inf}
    event = Event("t", "s", attributes=given)
    texts = {"s": "1", "n": "-9223372036854775808", "f": "1.5", "b": "true", "e": "", "x": "NaN", "y": "Infinity"}
    texts["z"] = "-Infinity"
    assert read([event, HARD[0]], attributes=TEXTS) == [texts, None]
    made = Columns(schema(attributes=TEXTS)).of_journal(journal([HARD[0], event]))
    assert [each.attributes for each in events(made)] == [{}, texts]


def variant_maps(*maps: dict[str, tuple[bytes, bytes] | None] | None) -> pa.Array:
    given = [
        None if each is None else [(name, v and {"value": v[0], "metadata": v[1]}) for name, v in each.items()]
        for each in maps
    ]
    return pa.array(given, SOURCE_ARROW.field("attributes").type)


def test_attributes_that_spark_made(way: str) -> None:
    """A decimal is a number, a timestamp its text; NULL is nothing."""
    day, moment = (20_000).to_bytes(4, "little"), (1_767_225_600_000_001).to_bytes(8, "little")
    made = variant_maps(
        {"whole": VariantUtils.parse_json("5"), "decimal": VariantUtils.parse_json("1.50")},
        None,
        {},
        {"gone": None, "null": VariantUtils.parse_json("null")},
        {"day": (bytes([11 << 2]) + day, NO_NAMES), "time": (bytes([12 << 2]) + moment, NO_NAMES)},
        {"local": (bytes([13 << 2]) + moment, NO_NAMES), "float": (bytes([14 << 2]) + b"\0\0\0?", NO_NAMES)},
        {"uuid": (bytes([20 << 2]) + bytes(range(16)), NO_NAMES), "kept": (b"\x05a", encode({"x": 1})[1])},
    )
    expected: list[dict[str, Any]] = [
        {"whole": 5, "decimal": 1.5},
        {},
        {},
        {},
        {"day": "2024-10-04", "time": "2026-01-01T00:00:00.000001Z"},
        {"local": "2026-01-01T00:00:00.000001", "float": 0.5},
        {"uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f", "kept": "a"},
    ]
    packed = attributes.pack(made).to_pylist()
    assert [each and msgspec.msgpack.decode(each) for each in packed] == [each or None for each in expected]
    assert attributes.dicts(made) == expected


@pytest.mark.parametrize("value", [{"a": 1}, [1], b"raw", 2**63, 10**37])
def test_attributes_that_no_event_has_are_refused(way: str, value: Any) -> None:
    with pytest.raises(EventError, match="the attribute odd") as caught:
        attributes.pack(variant_maps({"odd": encode(value)}))
    assert caught.value.field == "attributes.odd"
    assert caught.value.help
    assert attributes.dicts(variant_maps({"odd": encode(value)})) == [{"odd": value}]


@pytest.mark.parametrize(
    "broken", [b"", b"\x18\x00", b"\x40\xff\xff\xff\xff", b"\x09a", b"\xfc", b"\x02\x01\x00\x00\x01\x00"]
)
def test_broken_variants_are_refused(way: str, broken: bytes) -> None:
    with pytest.raises(EventError, match="cannot be read"):
        attributes.pack(variant_maps({"a": (broken, NO_NAMES)}))


@given(st.binary(max_size=12) | json_scalars.map(lambda value: encode(value)[0]))
def test_foreign_variants_are_an_error_or_what_python_reads(value: bytes) -> None:
    maps = variant_maps({"a": encode(1)}, {"b": (value, NO_NAMES)}, {"c": encode("x")}).slice(1, 1)
    try:
        expected = in_python(attributes.pack, maps)
    except EventError:
        expected = None
    try:
        found = attributes.pack(maps)
    except EventError:
        assert expected is None
        return
    if expected is not None:
        # Bytes behind a value are nothing to Python; a kernel leaves such a row to it.
        assert as_bytes(found) == as_bytes(expected)


# -- data


def test_data_is_json_text() -> None:
    made = read(HARD, data=pa.string())
    assert len(made) == len(HARD)
    for event, found in zip(HARD, made, strict=True):
        if event.data is None:
            assert found is None
        elif isinstance(event.data, bytes):
            assert found.startswith("data:;base64,")
        else:
            assert msgspec.json.decode(found) == event.data


@pytest.mark.parametrize("media_type", [None, "application/json", "text/json"])
def test_json_is_not_copied(media_type: str | None) -> None:
    batch = journal([Event("t", "s", data={"a": number}, datacontenttype=media_type) for number in range(10)])
    there = Columns(SOURCE_ARROW).of_journal(batch)
    assert there.column("data").buffers()[2].address == batch.column("data").buffers()[2].address
    assert to_journal(there).column("data").buffers()[2].address == batch.column("data").buffers()[2].address


@pytest.mark.parametrize(
    "media_type, text",
    [
        *(("text/plain", each) for each in ("no JSON", "5")),
        *(("image/png", each) for each in ("AAAA", "data:;base64,=AA", '"data:;base64,"')),
    ],
)
def test_data_that_we_did_not_write_is_refused(media_type: str, text: str) -> None:
    with pytest.raises(EventError, match="data of row 1") as caught:
        payloads.from_text(pa.array(["{}", text]), pa.array([None, media_type]))
    assert (caught.value.field, bool(caught.value.help)) == ("data", True)


json_values = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_a_variant_is_what_pyspark_reads(value: Any) -> None:
    value = msgspec.msgpack.decode(msgspec.msgpack.encode(bounded(value)))
    assert same(ordered(VariantUtils.to_python(*encode(value))), ordered(value))
    assert same(ordered(decode(*encode(value))), ordered(value))


@given(json_values)
def test_a_variant_of_pyspark_is_read(value: Any) -> None:
    value = finite(bounded(value))
    assert ordered(decode(*VariantUtils.parse_json(msgspec.json.encode(value).decode()))) == ordered(value)


def bounded(value: Any) -> Any:
    """Without whole numbers of more than 64 bits: both readers make doubles or decimals of them."""
    if isinstance(value, dict):
        return {name: bounded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [bounded(member) for member in value]
    return value % 2**63 if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def ordered(value: Any) -> Any:
    """An object's names come out sorted."""
    if isinstance(value, dict):
        return [(name, ordered(value[name])) for name in sorted(value)]
    return [ordered(member) for member in value] if isinstance(value, list) else value


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 70_000])
def test_large_variants(count: int) -> None:
    for value in ({f"n{each}": [each, "x" * (each % 300)] for each in range(count)}, [[each] for each in range(count)]):
        assert decode(*encode(value)) == value
        assert count > 300 or VariantUtils.to_python(*encode(value)) == value  # PySpark takes long for large ones


def test_long_variants() -> None:
    for size in (63, 64, 255, 256, 65_535, 65_536, 1 << 24):
        value = {"x" * min(size, 70_000): "é" * (size // 2), "y": b"b" * size}
        assert decode(*encode(value)) == value


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**38 - 1, 1 - 10**38])
def test_long_whole_numbers_are_decimals(number: int) -> None:
    with localcontext(prec=38):  # PySpark computes them
        assert VariantUtils.to_python(*encode(number)) == Decimal(number)
    assert decode(*encode(number)) == number


@pytest.mark.parametrize("sign, digits, found", [(1, 38, 1e38), (1, 400, math.inf), (-1, 400, -math.inf)])
def test_longer_ones_are_doubles(sign: int, digits: int, found: float) -> None:
    number = sign * 10**digits
    assert decode(*encode(number)) == VariantUtils.to_python(*encode(number)) == found


def test_data_as_variant() -> None:
    made = read(HARD, data=VARIANT)
    assert len(made) == len(HARD)
    for event, found in zip(HARD, made, strict=True):
        assert (found is None) == (event.data is None)
        if found is not None:
            assert ordered(VariantUtils.to_python(**found)) == ordered(event.data)


def test_data_as_struct() -> None:
    kind = pa.struct([("machine", pa.string()), ("value", pa.float64()), ("inner", pa.struct([("on", pa.bool_())]))])
    given: list[Any] = [
        {"machine": "m7", "value": 9, "inner": {"on": True}, "more": 1},
        {"machine": 5, "value": "high", "inner": {"on": 1}},
        {"machine": None, "inner": 5},
        [1],
        "text",
        None,
    ]
    nothing = {"machine": None, "value": None, "inner": None}
    assert read([Event("t", "s", data=each) for each in given], data=kind) == [
        {"machine": "m7", "value": 9.0, "inner": {"on": True}},
        {"machine": "5", "value": None, "inner": {"on": None}},
        nothing,
        nothing,
        nothing,
        None,
    ]
    assert read([HARD[10], HARD[12]], data=kind) == [nothing, nothing]


def test_data_as_map_and_array() -> None:
    def column(kind: pa.DataType, *given: Any) -> list[Any]:
        return read([Event("t", "s", data=each) for each in given], data=kind)

    assert column(pa.map_(pa.string(), pa.int64()), {"a": 1, "b": None}, {"a": 1, "b": "x"}, [1], {}, None) == [
        {"a": 1, "b": None}, None, None, {}, None,
    ]  # fmt: skip
    assert column(pa.list_(pa.int32()), [1, None], [2**31], [True], [1.0], {}, "x", []) == [
        [1, None], None, None, None, None, None, [],
    ]  # fmt: skip
    points = pa.list_(pa.struct([("x", pa.float64()), ("rest", VARIANT), ("at", pa.timestamp("us", "UTC"))]))
    given = [{"x": 1, "rest": {"a": [1]}, "at": "2026-01-01T01:00:00+01:00"}, {"x": "INF", "at": "?"}]
    ((first, second),) = column(points, given)
    assert (first["x"], decode(**first["rest"]), first["at"]) == (1.0, {"a": [1]}, START)
    assert second == {"x": math.inf, "rest": None, "at": None}


# -- plans


def test_only_wanted_columns_are_made_and_needed() -> None:
    plan = Columns(schema(type=pa.string(), offset=pa.int64()))
    assert plan.needs == ("offset", "type")
    made = plan.of_journal(journal(HARD).select(plan.needs))
    assert made.schema.names == ["type", "offset"]
    assert made.column("offset").to_pylist() == list(range(1, len(HARD) + 1))
    plan = Columns(schema(data=pa.string()))
    assert plan.needs == ("datacontenttype", "data")
    assert plan.of_journal(journal(HARD).select(plan.needs)).num_rows == len(HARD)


@pytest.mark.parametrize(
    "field, message",
    [
        (pa.field("ofset", pa.int64()), "no column ofset"),
        (pa.field("priority", pa.int8()), "priority cannot be int8"),
        (pa.field("time", pa.timestamp("us")), "time cannot be"),
        (pa.field("attributes", pa.string()), "attributes cannot be string"),
        (pa.field("attributes", pa.map_(pa.string(), pa.int64())), "attributes cannot be map"),
        (pa.field("data", pa.float64()), "data cannot be read as double"),
        (pa.field("data", pa.struct([("a", pa.list_(pa.date32()))])), r"data\.a\[\] cannot be read as date32"),
        (pa.field("data", pa.map_(pa.int64(), pa.string())), "data cannot be read as map"),
        (pa.field("subject", pa.string(), False), "subject can be NULL"),
        (pa.field("data", pa.struct([pa.field("a", pa.string(), False)])), "data can be NULL, also inside"),
        (pa.field("data", pa.list_(pa.field("element", pa.string(), False))), "data can be NULL, also inside"),
    ],
)
def test_what_cannot_be_made_is_refused(field: pa.Field, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        Columns(pa.schema([field]))
    assert caught.value.field == field.name
    assert caught.value.help


def test_what_is_never_null_may_be_declared_so() -> None:
    wanted = pa.schema([pa.field("offset", pa.int64(), False), pa.field("type", pa.string(), False)])
    assert Columns(wanted).of_journal(journal(HARD)).schema.equals(wanted)


def test_back_takes_all_columns_of_their_types() -> None:
    there = Columns(SOURCE_ARROW).of_journal(journal(HARD))
    with pytest.raises(SchemaError, match="no column data"):
        to_journal(there.drop_columns(["data"]))
    with pytest.raises(SchemaError, match="priority is int64"):
        to_journal(there.set_column(7, "priority", there.column("priority").cast(pa.int64())))
    with pytest.raises(EventError, match=f"type is NULL in {len(HARD)} rows"):
        to_journal(there.set_column(5, "type", pa.nulls(len(HARD), pa.string())))
    elsewhere = there.set_column(1, "arrived", there.column("arrived").cast(pa.timestamp("us", "Asia/Kathmandu")))
    assert to_journal(elsewhere).equals(journal(HARD))


# -- events


def test_events_are_those_of_the_journal(way: str) -> None:
    given = stored(HARD)
    made = events(Columns(SOURCE_ARROW).of_journal(journal(given)))
    assert same(made, given)
    assert {type(each) for each in made} == {Event}


SUBSETS = [[], *([name] for name in SOURCE_ARROW.names), ["data", "type", "attributes"]]


@pytest.mark.parametrize("names", SUBSETS, ids=" ".join)
def test_columns_that_are_missing_are_as_in_a_plain_event(way: str, names: list[str]) -> None:
    given = stored(HARD)
    batch = Columns(SOURCE_ARROW).of_journal(journal(given)).select(names or ["offset"])
    if not names:
        batch = batch.rename_columns(["other"])
    made = events(batch)
    assert len(made) == len(given)
    for event, found in zip(given, made, strict=True):
        fields = {name: getattr(event, name) for name in names if name != "datacontenttype"}
        assert same({name: getattr(found, name) for name in fields}, fields)
        plain = Event("-", "-", "-")
        assert all(
            getattr(found, name) == getattr(plain, name) for name in Event.__struct_fields__ if name not in names
        )


def test_null_is_as_in_a_plain_event(way: str) -> None:
    for count in (0, 1, 3):
        nothing = pa.record_batch([pa.nulls(count, field.type) for field in SOURCE_ARROW], schema=SOURCE_ARROW)
        assert events(nothing) == [Event("-", "-", "-")] * count
    two = journal([HARD[-2].replace(offset=None)] * 2)
    there = Columns(SOURCE_ARROW).of_journal(two)
    half = pa.record_batch(
        [pa.concat_arrays([column[:1], pa.nulls(1, column.type)]) for column in there.columns], schema=SOURCE_ARROW
    )
    first, second = events(half)
    assert same(first, events(there)[0])
    assert same(second, Event("-", "-", "-"))


def test_data_of_other_types_is_read(way: str) -> None:
    payload = {"machine": "m7", "tags": ["a"], "inner": {"on": True}}
    batch = journal([Event("t", "s", data=payload), Event("t", "s", data=payload | {"tags": None}), HARD[0]])
    struct = pa.struct(
        [("machine", pa.string()), ("tags", pa.list_(pa.string())), ("inner", pa.map_(pa.string(), pa.bool_()))]
    )
    for kind in (pa.string(), VARIANT, struct):
        made = events(Columns(schema(data=kind)).of_journal(batch))
        assert [each.data for each in made] == [payload, payload | {"tags": None}, None]


@pytest.mark.parametrize("text", ["no JSON", "data:;base64,?", "{", '{"x": 1e999}'])
def test_data_that_is_no_json_has_no_names(text: str) -> None:
    assert events(pa.record_batch({"data": [text]}))[0].data == text.encode()


def test_times_of_any_zone_and_of_no_python() -> None:
    moment = datetime(2026, 3, 29, 1, 30, 0, 7, tzinfo=UTC)
    column = pa.array([moment, None], pa.timestamp("us", "Europe/Vienna"))
    made = events(pa.record_batch({"time": column}))
    assert [each.time for each in made] == [moment, None]
    assert made[0].time is not None
    assert made[0].time.tzinfo is UTC
    with pytest.raises(EventError, match="time is beyond"):
        events(pa.record_batch({"time": pa.array([2**60], pa.timestamp("us", "UTC"))}))


# -- kernels


def test_kernels_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_KERNELS", "numpy")
    monkeypatch.setattr(engine, "_loaded", None)
    monkeypatch.setattr(engine, "_thread", None)
    assert engine.kernels() is None
    assert not engine.wait()


@pytest.mark.parametrize("error", [ImportError("no numba"), RuntimeError("no locator available")])
def test_without_numba_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(name: str) -> None:
        raise error

    for name in ("_loaded", "_thread", "_failure"):
        monkeypatch.setattr(engine, name, None)
    monkeypatch.setattr(engine.importlib, "import_module", fail)
    assert engine.kernels() is None
    assert str(error) in str(engine.failure())

"""Arrow in, the same keys out: as from a list of events, one event at a time, and asking every filter in turn."""

from __future__ import annotations

import contextlib
import json
import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.workloads import ATTRIBUTES, Content
from tests.strategies import NUMBERS, TEXTS, filters, times
from tocsin import Event, Filter
from tocsin.errors import MatcherError, TocsinError
from tocsin.filters.index import Matcher, arrow, batch, engine
from tocsin.model import ENVELOPE

Key = str | int
START = datetime(2026, 1, 1, tzinfo=UTC)
TYPE, SOURCE = pa.array(["t"]), pa.array(["s"])


@pytest.fixture(params=["numba", "numpy"])
def engines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    assert engine.wait()
    if request.param == "numpy":
        monkeypatch.setattr(engine, "_loaded", None)
    return str(request.param)


def as_event(row: dict[str, Any]) -> Event:
    """What a row means, said once more: envelope, then attributes, then the payload."""
    fields = {name: row[name] for name in ENVELOPE if row.get(name) is not None}
    attributes = {**dict(row.get("attributes") or {})}
    attributes |= {
        name: value
        for name, value in row.items()
        if name not in (*ENVELOPE, "attributes", "data") and value is not None and not isinstance(value, list | dict)
    }
    data = row.get("data")
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except ValueError:
            fields["datacontenttype"] = "text/plain"
    whole = {
        name: value
        for name, value in row.items()
        if name not in ("attributes", "data") and isinstance(value, list | dict)
    }
    if whole:
        data = {**(data or {}), **whole}
    known = {name: value for name, value in attributes.items() if value is not None}
    return Event(**{"type": "t", "source": "s", "id": "-", **fields}, attributes=known, data=data)


def same(left: list[list[Key]], right: list[list[Key]]) -> bool:
    return [sorted(keys, key=repr) for keys in left] == [sorted(keys, key=repr) for keys in right]


def in_lists(matcher: Matcher, given: pa.RecordBatch | pa.Table) -> list[list[Key]]:
    """The pairs of `match_pairs`, one list for each row."""
    found: list[list[Key]] = [[] for _ in range(given.num_rows)]
    numbers, keys = matcher.match_pairs(given)
    for row, key in zip(numbers.tolist(), keys.to_pylist(), strict=True):
        found[row].append(key)
    return found


def check(texts: list[str], given: pa.RecordBatch | pa.Table, *, columns: bool | None = None) -> int:
    """Compare the five ways; returns how many matches there were.

    `columns` says whether the rows must, or must not, be read column by column.
    """
    events = [as_event(row) for row in given.to_pylist()]
    known = [Filter(text) for text in texts]
    linear: list[list[Key]] = [[key for key, each in enumerate(known) if each.matches(event)] for event in events]
    matcher = Matcher(enumerate(texts))
    for _ in range(2):
        assert same(matcher.match_batch(given), linear)
        assert same(in_lists(matcher, given), linear)
        matcher.optimize()
    assert same(matcher.match_batch(events), linear)
    assert same([matcher.match(event) for event in events], linear)
    if columns is not None and given.num_rows:
        first = next(arrow.pieces(given, batch.CHUNK))
        view = matcher._live.view
        rows = batch.Rows.blank(first.num_rows, view)
        assert arrow.encode(view, arrow.Events(first), rows.codes, rows.keys) is columns
    # With a computed term in the matcher, rows are made into events: the answers to the others must not change.
    matcher.add("computed", "length(nosuch) > 3")
    assert same(matcher.match_batch(given), linear)
    return sum(map(len, linear))


def rows(**columns: Any) -> pa.RecordBatch:
    """A record batch with type and source as well, so that every row is an event."""
    arrays = {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    size = len(next(iter(arrays.values())))
    fixed = {"type": ["t"] * size, "source": ["s"] * size, "id": ["-"] * size}
    return pa.record_batch({name: pa.array(values) for name, values in fixed.items() if name not in arrays} | arrays)


ORDER = ["x = {}", "x <> {}", "x < {}", "x <= {}", "x > {}", "x >= {}", "x IN ({}, 3)", "x NOT IN ({}, 7)"]


def over(*values: str) -> list[str]:
    return [shape.format(value) for shape in ORDER for value in values] + ["x IS NULL", "x IS NOT NULL", "x"]


# -- plain columns


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.float32(), pa.float64(), pa.float16()]
)
def test_numbers_of_every_width(kind: pa.DataType, engines: str) -> None:
    values = [0, 1, 3, 100, None, 7, 3]
    column = pa.array(
        np.array([0 if v is None else v for v in values], kind.to_pandas_dtype()),
        mask=np.array([v is None for v in values]),
    )
    assert check(over("0", "3", "2.5", "100", "1e999"), rows(x=column), columns=True) > 50


def test_doubles_that_are_no_numbers(engines: str) -> None:
    values = [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1e308, None, 0.1, 2.5]
    assert check(over("0", "1e999", "-1e999", "0.1", "5e-324", "2.5"), rows(x=values), columns=True) > 100


def test_whole_numbers_beyond_doubles(engines: str) -> None:
    values = [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None, -(2**53) - 1]
    texts = over(
        "9007199254740992", "9007199254740993", "9223372036854775807", "-9223372036854775808", "9007199254740992.0"
    )
    assert check(texts, rows(x=pa.array(values, pa.int64()))) > 50


def test_booleans(engines: str) -> None:
    texts = [
        "x",
        "NOT x",
        "x = TRUE",
        "x <> TRUE",
        "x >= FALSE",
        "x IN (TRUE, FALSE)",
        "x IS NULL",
        "x IS TRUE",
        "x = 1",
    ]
    assert check(texts, rows(x=[True, False, None, True]), columns=True) == 15


TEXT_SHAPES = [
    "x = {}",
    "x <> {}",
    "x < {}",
    "x >= {}",
    "x IN ({}, 'a')",
    "x NOT IN ({}, 'a')",
    "startswith(x, {})",
    "endswith(x, {})",
]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts(kind: pa.DataType, engines: str) -> None:
    texts = [
        shape.format(Filter(f"x = '{value}'").text[4:]) for shape in TEXT_SHAPES for value in ("a", "ab", "é", "", "😀")
    ]
    texts += ["x IS NULL", "x LIKE 'a%b'", "contains(x, 'b')", "x > TIMESTAMP '2026-01-01T00:30:00Z'"]
    column = pa.array([*TEXTS, None, *TEXTS[:3]], kind)
    assert check(texts, rows(x=column)) > 300
    assert check(texts[:20], rows(x=column), columns=True) > 100


def test_texts_with_thousands_of_values_in_filters(engines: str) -> None:
    """Beyond `_FEW` values Arrow does not search the list: each distinct text is looked up."""
    texts = [f"x IN ({', '.join(repr(f'v{i}') for i in range(2000))})", "x = 'w'", "x <> 'v1'", "x LIKE 'v1%'"]
    assert check(texts, rows(x=["v0", "v1", "v1999", "v2000", None, "w", "v1"]), columns=True) == 12


EQUALITY = True


@pytest.mark.parametrize("equality", [EQUALITY, False])
def test_dictionary_encoded_texts(equality: bool, engines: str) -> None:
    texts = ["x LIKE 'a%'", "x >= 'b'", "endswith(x, 'b')", "x IS NULL"]
    if equality:
        texts += ["x = 'a'", "x <> 'a'", "x IN ('a', 'é')"]
    column = pa.array(["a", "ab", None, "é", "a", "b"]).dictionary_encode()
    assert check(texts, rows(x=column)) >= 7


def test_a_dictionary_with_a_null_in_it(engines: str) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 0]), pa.array(["a", None, "b"]))
    assert check(["x >= 'b'", "x IS NULL", "x IS NOT NULL"], rows(x=column)) == 6


@pytest.mark.parametrize("values", [[1, 2, None, 1], [1.5, 2.0, None, math.nan]])
def test_dictionary_encoded_numbers(values: list[Any], engines: str) -> None:
    assert check(over("1", "1.5", "2"), rows(x=pa.array(values).dictionary_encode())) > 20


def test_text_views(engines: str) -> None:
    assert (
        check(
            ["x LIKE 'a%'", "x IS NULL", "x = 'a'", "x <> 'a'"], rows(x=pa.array(["a", "ab", None], pa.string_view()))
        )
        == 5
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_timestamps(unit: str, zone: str, engines: str) -> None:
    moments = [START, None, START + timedelta(days=1), START - timedelta(seconds=1)]
    texts = [f"time {o} '2026-01-01T00:00:00Z'" for o in ("=", "<>", "<", ">=")] + [
        "time IS NULL",
        "arrived > '2026-01-01T12:00:00Z'",
    ]
    texts += ["time BETWEEN '2026-01-01T00:00:00Z' AND '2026-01-01T09:00:00+09:00'"]
    given = rows(time=pa.array(moments, pa.timestamp(unit, zone)), arrived=pa.array(moments, pa.timestamp(unit, zone)))
    assert check(texts, given, columns=True) == 9


def test_columns_of_nulls_and_of_nothing(engines: str) -> None:
    texts = ["x IS NULL", "x = 1", "x <> 1", "x > 'a'", "y IS NULL", "x IS NULL AND y = 1"]
    assert check(texts, rows(x=pa.nulls(3)), columns=True) == 6


def test_envelope_columns(engines: str) -> None:
    given = pa.record_batch(
        {
            "type": ["a", "b", "a"],
            "source": ["s", "s", "q"],
            "id": ["1", "2", "3"],
            "subject": ["u", None, "v"],
            "priority": [1, 5, 10],
            "ttl": pa.array([None, 0.5, 3.0]),
            "offset": [1, 2, None],
            "persistent": [True, False, True],
            "ack": ["none", "client", "receipt"],
            "classification": ["secret", "unclassified", "secret"],
            "correlation_id": [None, "c", None],
        }
    )
    texts = ["type = 'a'", "source LIKE 's%'", "id > '1'", "subject IS NULL", "priority >= 5", "ttl < 1", "offset = 2"]
    texts += [
        "NOT persistent",
        "ack <> 'none'",
        "classification = 'secret' AND type = 'a'",
        "correlation_id IS NOT NULL",
    ]
    assert check(texts, given, columns=True) == 17


# -- nested columns


def nested() -> pa.RecordBatch:
    inner = [
        {"x": 1, "s": "a", "a": {"b": 5}},
        {"x": None, "s": "b", "a": None},
        None,
        {"x": 7, "s": None, "a": {"b": None}},
    ]
    outer = [{"x": 2, "k": "v"}, None, {"x": 3, "k": None}, {"x": None, "k": "w"}]
    return rows(data=pa.array(inner), attributes=pa.array(outer))


def test_structs_for_payload_and_attributes(engines: str) -> None:
    paths = [
        "data.x = 1",
        "data.x IS NULL",
        "data.a.b = 5",
        "data.a.b IS NULL",
        "data.s LIKE 'a%'",
        "attributes.x >= 2",
    ]
    paths += [
        "attributes.k = 'w'",
        "attributes.k IS NULL",
        "data.x.y IS NULL",
        "data.nosuch IS NULL",
        "attributes.nosuch = 1",
    ]
    assert check(paths, nested()) > 15
    assert (
        check(
            [*paths, "x = 2", "x = 7", "x IS NULL", "s = 'b'", "k = 'v'", "a.b = 5", "data IS NULL", "data.a IS NULL"],
            nested(),
        )
        > 20
    )


def test_plain_paths_are_read_column_by_column(engines: str) -> None:
    assert check(["data.x = 1", "data.a.b >= 5", "attributes.k = 'w'", "data.s IS NULL"], nested(), columns=True) == 5


def test_attributes_as_a_map(engines: str) -> None:
    kind = pa.map_(pa.string(), pa.string())
    given = rows(attributes=pa.array([[("x", "a"), ("y", "b")], [], None, [("x", "b")]], kind))
    assert check(["x = 'a'", "attributes.x = 'b'", "x IS NULL", "y LIKE 'b%'", "attributes.y IS NULL"], given) == 8


def test_payload_as_json_text(engines: str) -> None:
    payloads = [{"x": 1, "tags": ["a"]}, {"x": 2.5, "a": {"b": "c"}}, {"x": "1"}, {}, {"x": None}]
    given = rows(data=[*(json.dumps(payload) for payload in payloads), None, '"text"', "no json", "17"])
    texts = [
        "x = 1",
        "data.x > 1",
        "x IS NULL",
        "a.b = 'c'",
        "array_contains(tags, 'a')",
        "data.a.b LIKE 'c%'",
        "x <> 1",
    ]
    assert check(texts, given) == 12


def test_a_filter_on_the_whole_of_json_text(engines: str) -> None:
    given = rows(data=['"abc"', "5", "null", "no json", '{"x": 1}', None, "[1]"])
    assert check(["data = 'abc'", "data = 5", "data IS NULL", "data = 'no json'", "data LIKE 'a%'"], given) == 6


@pytest.mark.parametrize("where", ["data", "attributes"])
def test_a_column_beside_the_same_name_in_a_struct(where: str, engines: str) -> None:
    given = rows(
        x=pa.array([1, None, 3]), **{where: pa.array([{"x": 2, "y": 1}, {"x": 5, "y": 1}, {"x": None, "y": None}])}
    )
    texts = ["x = 1", "x = 2", "x = 5", "x = 3", "x IS NULL", "y = 1", f"{where}.y = 1"]
    assert check([*texts, "data.x = 2"] if where == "data" else texts, given) > 6


def test_a_column_is_an_attribute(engines: str) -> None:
    assert check(["attributes.x = 1", "attributes.x IS NULL", "data.x IS NULL"], rows(x=[1, None])) == 4
    given = rows(x=[1, None], attributes=pa.array([{"x": 2}, {"x": 3}]))
    assert check(["attributes.x = 1", "attributes.x = 2", "attributes.x = 3"], given) == 2


def test_attributes_that_are_all_null_hide_nothing(engines: str) -> None:
    assert check(["x = 1", "data.x = 1"], rows(attributes=pa.nulls(2), data=[{"x": 1}, {"x": 2}])) == 2


def test_a_timestamp_column_is_an_attribute_too(engines: str) -> None:
    """Attributes hold no timestamps: they become text in UTC."""
    given = rows(x=pa.array([START, None], pa.timestamp("us", "UTC")))
    texts = ["x LIKE '2026%'", "x = '2026-01-01T00:00:00Z'", "x > TIMESTAMP '2025-01-01T00:00:00Z'", "x IS NULL"]
    assert check(texts, given) == 4


def test_what_a_batch_does_not_say_is_as_in_an_event(engines: str) -> None:
    texts = [
        "priority = 5",
        "persistent",
        "ack = 'none'",
        "classification IS NULL",
        "type = 't'",
        "x = 1 AND priority > 3",
    ]
    assert check(texts, rows(x=[1, 2])) == 9
    assert check(texts, rows(x=[1, 2], priority=pa.array([None, 9]))) == 8


def test_lists_and_structs_as_columns(engines: str) -> None:
    given = rows(
        tags=pa.array([["a", "b", "a"], [], None, ["b", None]]), a=pa.array([{"b": 1}, None, {"b": 2}, {"b": None}])
    )
    texts = [
        "array_contains(tags, 'a')",
        "array_contains(tags, 'b')",
        "tags IS NULL",
        "a.b = 1",
        "a.b IS NULL",
        "a IS NULL",
    ]
    assert check(texts, given) == 8


def test_lists_as_columns_are_fields_of_the_payload(engines: str) -> None:
    given = rows(tags=pa.array([["a"], None]), a=pa.array([{"b": 1}, None]))
    assert check(["array_contains(data.tags, 'a')", "data.a.b = 1"], given) == 2


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array([2**64 - 1, 5], pa.uint64())),
        pytest.param(pa.array([Decimal("0.10"), Decimal("5")], pa.decimal128(10, 2))),
        pytest.param(pa.array([START.replace(tzinfo=None)] * 2, pa.timestamp("us"))),
        pa.array([b"abc", None]),
        pa.array([START.date(), None]),
        pa.array([timedelta(1), None]),
    ],
    ids=["uint64", "decimal", "naive timestamp", "binary", "date", "duration"],
)
def test_columns_no_event_can_hold_are_met_alike_on_both_ways(column: pa.Array, engines: str) -> None:
    """Whatever is decided about such a type, a filter elsewhere in the matcher must not change it."""
    given = rows(x=column)
    answers: list[Any] = []
    for other in ([], [("computed", "length(nosuch) > 3")]):
        matcher = Matcher([*enumerate(["x = 5", "x >= 0.1", "x IS NULL", "x > '2020'", "type = 't'"]), *other])
        try:
            answers.append([sorted(keys, key=repr) for keys in matcher.match_batch(given)])
        except TocsinError as error:
            answers.append(type(error))
    assert answers[0] == answers[1]


def test_columns_nobody_asks_about_do_not_matter(engines: str) -> None:
    given = rows(x=[1, 2], other=pa.array([b"abc", None]), day=pa.array([START.date(), None]))
    for text in ("x = 1", "abs(x) = 1"):
        assert Matcher([("a", text)]).match_batch(given) == [["a"], []]


# -- sizes


def test_empty_data(engines: str) -> None:
    matcher = Matcher([("a", "x = 1"), ("b", "s RLIKE 'a'")])
    schema = pa.schema({"x": pa.int64(), "s": pa.string()})
    assert matcher.match_batch(pa.RecordBatch.from_pylist([], schema)) == []
    assert matcher.match_batch(schema.empty_table()) == []
    assert matcher.match_batch(pa.table({"x": pa.chunked_array([[], [1], []], pa.int64())})) == [["a"]]
    assert Matcher().match_batch(rows(x=[1, 2])) == [[], []]


def test_many_chunks_of_many_rows() -> None:
    assert engine.wait()
    content = Content(0.01, seed=4)
    texts = [content.filter() for _ in range(1500)]
    values = [content.values() for _ in range(2 * batch.CHUNK + 700)]
    columns = {name: pa.array([row.get(name) for row in values]) for name in ATTRIBUTES}
    parts = pa.record_batch(columns)
    table = pa.Table.from_batches([parts.slice(0, 3000), parts.slice(3000, 10), parts.slice(3010)])
    matcher = Matcher(enumerate(texts))
    events = [Event("t", "s", id="-", attributes=row) for row in values]
    found = matcher.match_batch(table)
    assert len(found) == len(events)
    assert same(found, matcher.match_batch(parts))
    assert same(found, matcher.match_batch(events))
    known = [Filter(text) for text in texts]
    for place in random.Random(1).sample(range(len(events)), 12):
        wanted = [key for key, each in enumerate(known) if each.matches(events[place])]
        assert sorted(found[place]) == wanted == sorted(matcher.match(events[place]))  # type: ignore[type-var]
    assert sum(map(len, found)) > 1000


def test_residues_see_the_right_rows() -> None:
    texts = ["s RLIKE '^a' AND x > 5", "s RLIKE '[0-9]$'", "x > 2 OR s RLIKE 'b'"]
    draw = random.Random(3)
    size = batch.CHUNK + 50
    given = rows(
        x=[draw.randrange(10) for _ in range(size)], s=[f"{draw.choice('ab')}{draw.choice('a1')}" for _ in range(size)]
    )
    found = Matcher(enumerate(texts)).match_batch(given.slice(7))
    events = [as_event(row) for row in given.slice(7).to_pylist()]
    known = [Filter(text) for text in texts]
    assert same(found, [[key for key, each in enumerate(known) if each.matches(event)] for event in events])


@pytest.mark.parametrize(
    "wrong", [None, 5, "text", b"bytes", {"x": 1}, {1, 2}, iter([]), pa.array([1]), pa.chunked_array([[1]])]
)
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(MatcherError, match="list of events or Arrow"):
        Matcher([("a", "x = 1")]).match_batch(wrong)


def test_one_event_is_refused_with_advice() -> None:
    with pytest.raises(MatcherError, match=r"match\(\)"):
        Matcher().match_batch(Event("t", "s"))


def test_a_list_of_something_else_is_refused() -> None:
    with pytest.raises(MatcherError):
        Matcher([("a", "x = 1")]).match_batch([1, 2])


# -- any filter, any rows

NUMBERS_64 = [number for number in NUMBERS if type(number) is float or -(2**63) <= number < 2**63]
WHOLE = [number for number in NUMBERS_64 if type(number) is int]


@st.composite
def plain_column(draw: st.DrawFn, size: int) -> pa.Array:
    kinds: list[tuple[pa.DataType, list[Any]]] = [
        (pa.float64(), [*map(float, NUMBERS), math.nan]),
        (pa.int64(), WHOLE),
        (pa.string(), TEXTS),
        (pa.large_string(), TEXTS),
        (pa.bool_(), [True, False]),
    ]
    kind, pool = draw(st.sampled_from(kinds))
    return pa.array(draw(st.lists(st.sampled_from([*pool, None]), min_size=size, max_size=size)), kind)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Rows with all of the envelope, and either plain columns or structs."""
    size = draw(st.integers(1, 6))

    def some(pool: list[Any], kind: pa.DataType | None = None) -> pa.Array:
        return pa.array(draw(st.lists(st.sampled_from(pool), min_size=size, max_size=size)), kind)

    moment = pa.timestamp("us", "UTC")
    columns = {
        "type": some(["a", "ab", "b"]),
        "source": some(["a", "line/7"]),
        "id": some(["a", "1"]),
        "subject": some([None, "a", "ab", "é"], pa.string()),
        "priority": some([1, 5, 10]),
        "ttl": some([None, 0.5, 3.0], pa.float64()),
        "offset": some([1, 2, 12]),
        "persistent": some([True, False]),
        "ack": some(["none", "client"]),
        "classification": some(["unclassified", "secret"]),
        "datacontenttype": some([None, "application/json"], pa.string()),
        "time": pa.array(draw(st.lists(st.none() | times(), min_size=size, max_size=size)), moment),
        "arrived": pa.array(draw(st.lists(times(), min_size=size, max_size=size)), moment),
    }
    layout = draw(st.sampled_from(["columns", "structs", "json"]))
    if layout == "columns":
        for name in draw(st.lists(st.sampled_from(["x", "y", "s", "flag"]), unique=True)):
            columns[name] = draw(plain_column(size))
        return pa.record_batch(columns)
    names = draw(st.lists(st.sampled_from(["x", "s", "flag", "y"]), unique=True, min_size=1))
    columns["attributes"] = pa.StructArray.from_arrays([draw(plain_column(size)) for _ in names], names)
    inner = pa.StructArray.from_arrays([draw(plain_column(size))], ["b"])
    payload = pa.StructArray.from_arrays([draw(plain_column(size)), draw(plain_column(size)), inner], ["x", "s", "a"])
    if layout == "json":
        texts = [msgspec.json.encode(row).decode() for row in payload.to_pylist()]  # NaN and infinity become null
        payload = pa.array([text if draw(st.booleans()) else None for text in texts], pa.string())
    columns["data"] = payload
    return pa.record_batch(columns)


@given(st.lists(filters(max_leaves=4), min_size=1, max_size=8), batches())
def test_any_filters_over_any_rows(texts: list[str], given: pa.RecordBatch) -> None:
    names = given.schema.names
    # Known differences, each with a test above: columns by the name `attributes.x`, and `data` as JSON text as a whole.
    assume("attributes" in names or not any("attributes" in text for text in texts))
    if "data" in names and pa.types.is_string(given.schema.field("data").type):
        texts = [text for text in texts if ("data",) not in fields(text)]
    check(texts, given)


def fields(text: str) -> set[tuple[str, ...]]:
    """Paths of all fields in a filter's text."""
    found: set[tuple[str, ...]] = set()

    def walk(node: Any) -> None:
        if isinstance(node, msgspec.Struct):
            if hasattr(node, "path"):
                found.add(node.path)
            for name in node.__struct_fields__:
                walk(getattr(node, name))
        elif isinstance(node, list | tuple):
            for each in node:
                walk(each)

    walk(Filter(text).condition)
    return found


def test_numbers_of_every_type_against_numbers_far_and_near(engines: str) -> None:
    """Named numbers that lie close together are looked up in a table, others searched: no difference."""
    draw = random.Random(8)
    pool: list[Any] = [0, 1, 2, 3, -5, 127, -128, 200, 255, 32767, 65535, 70_000, 2.5, 1e300, math.inf]
    pool += [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
    types = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float32(), pa.float64()]
    matches = 0
    for kind in types * 6:
        named = draw.sample(pool, draw.choice([3, 6, len(pool)]))
        if draw.random() < 0.5:
            named = [value for value in named if abs(value) < 1000] or [1]
        literals = ["1e999" if value == math.inf else repr(value) for value in named]
        texts = [f"x = {value}" for value in literals]
        texts += [f"x NOT IN ({', '.join(literals[:3])})", f"x IN ({', '.join(literals[:3])})"]
        column: list[Any] = []
        for value in draw.choices([*pool, None], k=20):
            with contextlib.suppress(pa.ArrowInvalid, OverflowError):
                column.append(None if value is None else pa.scalar(value, kind).as_py())
        matches += check(texts, rows(x=pa.array(column, kind)), columns=True)
    assert matches > 500

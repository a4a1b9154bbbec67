"""Rows of the source for the matcher: names dug out as columns mean what they mean in the events."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.test_sql_meaning import json_text, variant
from tests.strategies import events as random_events
from tests.strategies import filters as random_filters
from tocsin import Event, Filter, Matcher
from tocsin.filters.index import arrow, batch
from tocsin.journal.columns import SOURCE_ARROW
from tocsin.journal.columns import events as made_of
from tocsin.model import ENVELOPE
from tocsin.spark.records import SourceRecords

VARIANTS = SOURCE_ARROW.field("attributes").type
Key = str | int


def storable(value: Any) -> Any:
    """JSON has neither NaN nor infinities: a journal refuses such payloads."""
    if isinstance(value, dict):
        return {name: storable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [storable(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def source_batch(events: list[Event], *columns: str) -> pa.RecordBatch:
    """What Spark would hand to Python, written without the code that is tested."""
    rows: dict[str, list[Any]] = {name: [getattr(event, name) for event in events] for name in ENVELOPE}
    rows["ttl"] = [None if event.ttl is None else float(event.ttl) for event in events]
    rows["data"] = [json_text(event.data) for event in events]
    rows["attributes"] = [
        [
            (name, dict(zip(("value", "metadata"), variant(value), strict=True)))
            for name, value in each.attributes.items()
        ]
        if each.attributes or number % 2
        else None
        for number, each in enumerate(events)
    ]
    names = columns or SOURCE_ARROW.names
    return pa.record_batch({name: pa.array(rows[name], SOURCE_ARROW.field(name).type) for name in names})


def in_columns(matcher: Matcher, rows: SourceRecords) -> bool:
    """Are these rows read column by column?"""
    view = matcher._live.view
    blank = batch.Rows.blank(len(rows), view)
    return arrow.encode(view, rows, blank.codes, blank.keys)


def pairs(matcher: Matcher, rows: Any) -> list[tuple[int, Key]]:
    numbers, keys = matcher.match_pairs(rows)
    return sorted(zip(numbers.tolist(), keys.to_pylist(), strict=True))


def test_any_filter_any_event() -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=150)
    @given(
        st.lists(random_filters(max_leaves=3), min_size=1, max_size=6),
        st.lists(random_events(), min_size=1, max_size=9),
    )
    def compare(texts: list[str], events: list[Event]) -> None:
        events = [event.replace(data=storable(event.data)) for event in events]
        matcher = Matcher(enumerate(texts))
        rows = SourceRecords(source_batch(events), matcher.fields())
        known = [Filter(text) for text in texts]
        wanted = sorted(
            (row, key) for row, event in enumerate(events) for key, f in enumerate(known) if f.matches(event)
        )
        assert pairs(matcher, rows) == wanted
        assert pairs(matcher, rows[1:]) == [(row - 1, key) for row, key in wanted if row]
        tally["columns" if in_columns(matcher, rows) else "events"] += len(wanted)

    compare()
    assert min(tally["columns"], tally["events"]) > 5, tally  # both ways were gone
    assert len(tally) == 2


VALUES: dict[str, list[Any]] = {
    "whole": [1, 2, -3, 2**62, None],
    "small": [1, 300, 70_000, -(2**40)],
    "double": [1.5, -0.0, math.inf, math.nan, None],
    "number": [1, 2.5, None, 7],
    "text": ["a", "é" * 40, "", "x" * 70, None],
    "flag": [True, False, None],
}
TESTS = [
    "v = 1",
    "v > 1",
    "v <> 2.5",
    "v = 'a'",
    "v > 'b'",
    "v LIKE 'x%'",
    "v",
    "v IS NULL",
    "v IS NOT NULL",
    "v IN (7, 1.5)",
]


@pytest.mark.parametrize("where", ["attributes", "data"])
@pytest.mark.parametrize("kind", VALUES)
def test_values_of_one_kind_are_a_column(where: str, kind: str) -> None:
    events = []
    for number in range(40):
        value = VALUES[kind][number % len(VALUES[kind])]
        value = storable(value) if where == "data" else value
        fields = {"v": value} if value is not None else {}
        events.append(Event("t", "s", **{where: {**fields, "w": number}}))
    texts = [*TESTS, *(text.replace("v", f"{where}.v") for text in TESTS if "LIKE" not in text)]
    matcher = Matcher(enumerate(texts))
    rows = SourceRecords(source_batch(events), matcher.fields())
    assert in_columns(matcher, rows)
    known = [Filter(text) for text in texts]
    wanted = sorted((row, key) for row, event in enumerate(events) for key, f in enumerate(known) if f.matches(event))
    assert pairs(matcher, rows) == wanted
    assert len(wanted) > 20


def test_where_a_name_is_looked_for() -> None:
    """An attribute hides a member of the payload, row by row; paths reach each."""
    events = [
        Event("t", "s", attributes={"v": 1}, data={"v": 2}),
        Event("t", "s", data={"v": 2, "a": {"b": 5}}),
        Event("t", "s", attributes={"v": 3}),
        Event("t", "s", attributes={"w": 1}, data={"w": {"b": 1}, "a": {"b": {"c": 1}}}),
        Event("t", "s"),
        Event("t", "s", data="text"),
        Event("t", "s", data=[1, 2]),
    ]
    texts = ["v = 1", "v = 2", "v = 3", "attributes.v = 1", "data.v = 2", "a.b = 5", "data.a.b = 5", "v IS NULL"]
    matcher = Matcher(enumerate(texts))
    known = [Filter(text) for text in texts]
    for chosen in (events, events[:3], events[4:]):
        rows = SourceRecords(source_batch(chosen), matcher.fields())
        wanted = sorted(
            (row, key) for row, event in enumerate(chosen) for key, f in enumerate(known) if f.matches(event)
        )
        assert pairs(matcher, rows) == wanted
    assert in_columns(matcher, SourceRecords(source_batch(events[:3]), matcher.fields()))
    hidden = Matcher([(0, "w.b = 1")])
    assert pairs(hidden, SourceRecords(source_batch(events), hidden.fields())) == []


def test_some_columns_of_the_source() -> None:
    events = [Event("t", "s", attributes={"v": 1}, data={"w": 2}, priority=7), Event("u", "s")]
    matcher = Matcher(
        enumerate(["v = 1", "w = 2", "type = 't'", "priority = 7", "priority = 5", "TRUE", "data IS NULL"])
    )
    for columns, wanted in {
        ("attributes",): [0, 4, 5, 6],
        ("data",): [1, 4, 5],
        ("type", "priority"): [2, 3, 5, 6],
    }.items():
        rows = SourceRecords(source_batch(events, *columns), matcher.fields())
        assert [key for row, key in pairs(matcher, rows) if row == 0] == wanted


def test_other_columns_are_attributes_or_members() -> None:
    events = [Event("t", "s", attributes={"v": 1}, data={"w": 2, "n": {"a": 1}}) for _ in range(3)]
    source = source_batch(events)
    more = {
        "v": pa.array([None, 5, 6]),
        "z": pa.array(["a", None, "b"]),
        "n": pa.array([{"a": 7}, {"a": 8}, None], pa.struct([("a", pa.int64())])),
        "d": pa.array([1, 2, 3], pa.decimal128(5, 1)),
        "bytes": pa.array([b"a", b"b", b"c"]),
    }
    rows = pa.record_batch([*source.columns, *more.values()], names=[*source.schema.names, *more])
    cases = {
        "v = 1": [0],
        "v = 5": [1],
        "attributes.v = 6": [2],
        "z = 'a'": [0],
        "n.a = 7": [0],
        "data.n.a = 8": [1],
        "n.a = 1": [2],
        "w = 2": [0, 1, 2],
        "d > 1.5": [1, 2],
        "bytes IS NULL": [0, 1, 2],
        "lower(z) = 'b'": [2],
    }
    for several in (False, True):
        for text, wanted in cases.items():
            matcher = Matcher([(0, text), *([(1, "length(z) > 9")] if several else [])])
            found = pairs(matcher, SourceRecords(rows, matcher.fields()))
            assert [row for row, _ in found] == wanted, text


def test_text_that_is_no_json_has_no_members() -> None:
    """Reading a few members must refuse what reading all refuses."""
    draw = random.Random(4)
    good = [
        '{"x": 1, "y": "a\\u00e9", "z": [1, {"x": 2}], "n": null, "f": 1.5e3}',
        '{"y": {"x": 1}, "x": 12345678901234}',
    ]
    texts = [
        "",
        "null",
        "[1]",
        '"x"',
        "{",
        '{"x": 1',
        '{"x": 1}}',
        '{"x": 01}',
        '{"y": 01, "x": 1}',
        '{"x": 1, "x": 2}',
    ]
    texts += [
        '{"y": "\\ud800", "x": 1}',
        '{"y": "\\q", "x": 1}',
        '{"y": NaN, "x": 1}',
        "data:;base64,eA==",
        '{"y": 1e999, "x": 1}',
    ]
    texts += [
        '{"y": ' + "[" * 2_000 + "]" * 2_000 + ', "x": 1}',
        '{"y": "a\tb", "x": 1}',
        '{"y": tru, "x": 1}',
        ' {"x" : 1 } ',
    ]
    for _ in range(3_000):
        chosen = draw.choice(good)
        place = draw.randrange(len(chosen))
        texts.append(
            chosen[:place] + draw.choice(['"', "{", "}", "[", "1", "e", ",", "\\", "", "é", "-"]) + chosen[place + 1 :]
        )
    rows = pa.record_batch({"data": pa.array(texts)})
    matcher = Matcher(enumerate(["x = 1", "x > 1", "x IS NULL", "y IS NULL", "f = 1500"]))
    found = pairs(matcher, SourceRecords(rows, matcher.fields()))
    assert found == pairs(matcher, made_of(rows))
    assert 200 < sum(key == 0 for _, key in found) < 2_500
    numbers = [number for number, text in enumerate(texts) if isinstance(_loaded(text), dict)]
    assert {row for row, key in found if key == 0} <= set(numbers)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError, RecursionError):
        return None


def test_a_declared_payload() -> None:
    kind = pa.struct([("machine", pa.string()), ("value", pa.float64())])
    rows = pa.record_batch(
        {"data": pa.array([{"machine": "m7", "value": 9.5}, {"machine": None, "value": 1.0}, None], kind)}
    )
    matcher = Matcher(enumerate(["machine = 'm7'", "value > 0", "data.value < 5", "value IS NULL"]))
    assert pairs(matcher, SourceRecords(rows, matcher.fields())) == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 3)]


def test_attributes_as_texts() -> None:
    rows = pa.record_batch({"attributes": pa.array([[("v", "1")], None, []], pa.map_(pa.string(), pa.string()))})
    matcher = Matcher(enumerate(["v = '1'", "v = 1", "v IS NULL", "attributes IS NULL"]))
    assert pairs(matcher, SourceRecords(rows, matcher.fields())) == [(0, 0), (1, 2), (1, 3), (2, 2), (2, 3)]


def test_a_sliced_batch() -> None:
    events = [Event("t", "s", attributes={"v": number}, data={"w": number}) for number in range(9)]
    rows = source_batch(events).slice(3, 4)
    matcher = Matcher(enumerate(["v = 3", "w = 4", "v > 5", "v = 2"]))
    assert pairs(matcher, SourceRecords(rows, matcher.fields())) == [(0, 0), (1, 1), (3, 2)]


def test_numbers_of_every_width() -> None:
    """Spark writes whole numbers as short as they are."""
    values = [(3, 1, -5), (4, 2, 300), (5, 4, -70_000), (6, 8, 2**53 + 1), (6, 8, -(2**63))]
    entries = [
        [
            (
                "v",
                {
                    "value": bytes([kind << 2]) + number.to_bytes(size, "little", signed=True),
                    "metadata": b"\x01\x00\x00",
                },
            )
        ]
        for kind, size, number in values
    ]
    rows = pa.record_batch({"attributes": pa.array(entries, VARIANTS)})
    matcher = Matcher(enumerate(f"v = {number}" for _, _, number in values))
    assert pairs(matcher, SourceRecords(rows, matcher.fields())) == [(number, number) for number in range(5)]
    mixed = pa.record_batch(
        {
            "attributes": pa.array(
                [*entries, [("v", dict(zip(("value", "metadata"), variant(1.5), strict=True)))]], VARIANTS
            )
        }
    )
    found = pairs(matcher, SourceRecords(mixed, matcher.fields()))
    assert found == [(number, number) for number in range(5)]  # 2^53 + 1 is not rounded


def test_decoding_reads_named_members_only() -> None:
    assert msgspec.__version__  # the decoder passes over what is not named; the names may be odd
    events = [Event("t", "s", data={"odd name": 1, "é": "a", "": 3, "type": 4})]
    matcher = Matcher(enumerate(["`odd name` = 1", "data.`é` = 'a'", "data.`` = 3", "data.type = 4", "type = 't'"]))
    rows = SourceRecords(source_batch(events), matcher.fields())
    assert pairs(matcher, rows) == [(0, key) for key in range(5)]
    assert in_columns(matcher, rows)

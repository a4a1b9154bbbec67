"""Declared attributes: reading them, admitting events, admitting filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import EventError, FilterTypeError, SchemaError
from tocsin.filters.filter import Filter
from tocsin.filters.schema import Attribute, Schema
from tocsin.model import Event

TOML = """
["*"]
region = { values = ["eu", "us"] }

["machine.value"]
value = { min = 0, max = 10, step = 0.5 }
machine = { type = "text" }
on = { type = "boolean" }
since = { type = "timestamp" }
tags = { type = "array" }
extra = { type = "any" }
level = { values = [1, 2, 5] }
"position.lat" = { min = -90, max = 90 }

["machine.state"]
value = { type = "text" }
count = { min = 0, step = 1 }
"""


@pytest.fixture
def schema() -> Schema:
    return Schema.from_toml(TOML)


def value_event(**data: object) -> Event:
    return Event(type="machine.value", source="line/7", data=data)


# -- declarations


def test_toml_is_read(schema: Schema) -> None:
    assert schema.strict
    assert schema.types == ("machine.value", "machine.state")
    assert schema.attributes() == {"region": Attribute("region", "text", values=("eu", "us"))}
    assert schema.attributes("machine.state")["count"] == Attribute("count", "number", 0, None, 1)
    assert list(schema.attributes("machine.value"))[:2] == ["region", "value"]
    assert not Schema.from_toml("strict = false").strict


@pytest.mark.parametrize(
    ("toml", "field"),
    [
        ("['a']\nx = 3", "a.x"),
        ("['a']\nx = { kind = 'text' }", "a.x"),
        ("['a']\nx = { type = 'color' }", "a.x"),
        ("['a']\nx = {}", "a.x"),
        ("['a']\nx = { min = 5, max = 1 }", "a.x"),
        ("['a']\nx = { min = '1' }", "a.x"),
        ("['a']\nx = { max = 5, step = 1 }", "a.x"),
        ("['a']\nx = { min = 0, step = 0 }", "a.x"),
        ("['a']\nx = { min = 0, max = 1e300, step = 1e-300 }", "a.x"),
        ("['a']\nx = { type = 'text', min = 0 }", "a.x"),
        ("['a']\nx = { values = [] }", "a.x"),
        ("['a']\nx = { values = ['a', 'a'] }", "a.x"),
        ("['a']\nx = { values = ['a', 1] }", "a.x"),
        ("['a']\nx = { values = ['a'], min = 0 }", "a.x"),
        ("['a']\ntype = { type = 'text' }", "a.type"),
        ("['a']\n'data.x' = { type = 'text' }", "a.data.x"),
        ("x = 3", "x"),
    ],
)
def test_a_bad_declaration_is_named(toml: str, field: str) -> None:
    with pytest.raises(SchemaError) as refused:
        Schema.from_toml(toml)
    assert refused.value.field == field and refused.value.help


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("['a']\nx = { type = 'string' }", "did you mean text"),
        ("['a']\nx = { type = 'int' }", "did you mean number"),
        ("['a']\nx = { type = ['text'] }", "there is no type"),
        ("['a']\nx = { mim = 0 }", "did you mean min"),
        ("['a']\nx = {}", "neither a type nor a range"),
        ("['a']\nx = 'text'", 'write x = { type = "text" }'),
        ("['a']\nx = { type = 'text', min = 0 }", "of type number"),
        ("strict = 'yes'", "neither true nor false"),
    ],
)
def test_a_bad_declaration_is_told_how_to_mend_it(toml: str, says: str) -> None:
    with pytest.raises(SchemaError) as refused:
        Schema.from_toml(toml)
    assert says in str(refused.value)


def test_an_event_of_a_misspelt_type_is_told_so(schema: Schema) -> None:
    with pytest.raises(EventError, match="did you mean the type machine.value"):
        schema.check_event(Event("machine.valu", "-", data={"value": 1}))


def test_text_that_is_not_toml_has_a_line() -> None:
    with pytest.raises(SchemaError) as refused:
        Schema.from_toml("\n\n['a'\n")
    assert refused.value.position == 3


@pytest.mark.parametrize(
    "line", ["a", "a#1:2", "a#1:x:1", "a#5:1:1", "a#0:5:0", "#0:5:1", "t$", "t$x:x", "a#0:7:1\na#0:7:1"]
)
def test_a_bad_line_of_an_attribute_file_is_named(line: str) -> None:
    with pytest.raises(SchemaError) as refused:
        Schema.from_attributes("% fine\n\nb#0:7:1\n" + line)
    assert refused.value.position == 4 + line.count("\n")


def test_attribute_files_are_read() -> None:
    declared = Schema.from_attributes("ozone4#0:200:0.001\n  % note\r\ntestText$cat:mouse:dog\n").attributes()
    assert declared["ozone4"] == Attribute("ozone4", "number", 0, 200, 0.001)
    assert declared["testText"].values == ("cat", "mouse", "dog")


# -- events


@pytest.mark.parametrize(
    "data",
    [
        {"value": 3.5, "machine": "m7", "on": True, "region": "eu"},
        {"since": "2026-01-01T00:00:00Z", "tags": ["a", 1], "extra": {"a": [1]}, "level": 5},
        {"position": {"lat": 52.5}},
        {"value": None},
        {},
    ],
)
def test_what_is_declared_passes_unchanged(schema: Schema, data: dict[str, object]) -> None:
    event = value_event(**data)
    assert schema.check_event(event) == event


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"value": 10.1}, "data.value"),
        ({"value": float("nan")}, "data.value"),
        ({"value": 10**5000}, "data.value"),
        ({"value": "3"}, "data.value"),
        ({"value": True}, "data.value"),
        ({"machine": 7}, "data.machine"),
        ({"on": 1}, "data.on"),
        ({"since": "yesterday"}, "data.since"),
        ({"tags": "a"}, "data.tags"),
        ({"tags": {}}, "data.tags"),
        ({"level": 3}, "data.level"),
        ({"region": "asia"}, "data.region"),
        ({"position": {"lat": 91}}, "data.position.lat"),
        ({"position": {"lon": 1}}, "data.position.lon"),
        ({"valeu": 1}, "data.valeu"),
        ({"machine": {"a": 1}}, "data.machine"),
    ],
)
def test_what_is_not_declared_is_refused_by_name(schema: Schema, data: dict[str, object], field: str) -> None:
    with pytest.raises(EventError) as refused:
        schema.check_event(value_event(value=1) if not data else value_event(**data))
    assert refused.value.field == field and refused.value.help


def test_attributes_are_checked_like_the_payload(schema: Schema) -> None:
    event = Event("machine.value", "line/7", attributes={"value": 3.26}, data={"value": 0.3})
    admitted = schema.check_event(event)
    assert (admitted.attributes, admitted.data) == ({"value": 3.5}, {"value": 0.5})
    assert (event.attributes, event.data) == ({"value": 3.26}, {"value": 0.3})
    with pytest.raises(EventError, match="did you mean machine"):
        schema.check_event(Event("machine.value", "line/7", attributes={"machin": "m7"}))


def test_a_type_has_its_own_declarations(schema: Schema) -> None:
    assert schema.check_event(Event("machine.state", "-", data={"value": "on", "count": 3.4})).data["count"] == 3
    with pytest.raises(EventError):
        schema.check_event(Event("machine.state", "-", data={"machine": "m7"}))


def test_without_strict_only_declared_names_are_checked() -> None:
    schema = Schema.from_toml("strict = false\n" + TOML)
    assert schema.check_event(value_event(other=1, value=0.7)).data == {"other": 1, "value": 0.5}
    with pytest.raises(EventError):
        schema.check_event(value_event(other=1, value=11))
    assert str(schema.check_filter(Filter("othr > 3 AND value < 3.3"), "machine.value")) == "othr > 3 AND value < 3.5"
    with pytest.raises(FilterTypeError):
        schema.check_filter(Filter("value > 11"), "machine.value")


def test_payloads_that_are_no_object_pass(schema: Schema) -> None:
    for data in (None, "text", [1, 2], b"bytes"):
        event = Event("machine.value", "-", data=data)
        assert schema.check_event(event) is event


@given(st.floats(0, 10), st.sampled_from([0.1, 0.25, 0.3, 1, 3, 7]))
def test_snapping_is_nearest_idempotent_and_inside(number: float, step: float) -> None:
    attribute = Attribute("x", "number", 0, 10, step)
    snapped = attribute.snap(number)
    assert 0 <= snapped <= 10
    assert attribute.snap(snapped) == snapped
    assert abs(snapped - number) <= step / 2 + 1e-9 or number > 10 - step


def test_grid_points_are_the_same_number_however_reached() -> None:
    attribute = Attribute("x", "number", 0, 10, 0.1)
    assert attribute.snap(0.1 + 0.2) == attribute.snap(0.3) == 0.3
    assert attribute.snap(0.25) == 0.2 and attribute.snap(0.35) == 0.4  # half way: to the even grid point
    assert repr(attribute.snap(2.0)) == "2"


# -- filters


@pytest.mark.parametrize(
    ("given_text", "admitted"),
    [
        ("type = 'machine.value' AND value > 3.4", "type = 'machine.value' AND value > 3.5"),
        ("value < 3.4 AND type IN ('machine.value')", "value < 3.5 AND type IN ('machine.value')"),
        ("type = 'machine.value' AND 3.4 < data.value", "type = 'machine.value' AND 3.5 < data.value"),
        ("type = 'machine.value' AND value BETWEEN 0.6 AND 99", "type = 'machine.value' AND value BETWEEN 0.5 AND 99"),
        ("type = 'machine.value' AND value IN (0.6, 99)", "type = 'machine.value' AND value IN (0.5, 99)"),
        ("type = 'machine.value' AND value + 1 > 3.4", "type = 'machine.value' AND value + 1 > 3.4"),
        ("type = 'machine.state' AND value > 'm'", "type = 'machine.state' AND value > 'm'"),
        (
            "type = 'machine.state' AND value = 'on' OR type = 'machine.value' AND value = 1.1",
            "type = 'machine.state' AND value = 'on' OR type = 'machine.value' AND value = 1",
        ),
        ("attributes.region = 'eu' AND data.machine LIKE 'm%'", "attributes.region = 'eu' AND data.machine LIKE 'm%'"),
        ("since > TIMESTAMP '2026-01-01T00:00:00Z'", "since > TIMESTAMP '2026-01-01T00:00:00Z'"),
        ("since LIKE '2026%'", "since LIKE '2026%'"),
        ("array_contains(tags, 'a') AND on", "array_contains(tags, 'a') AND on"),
        ("extra = 'x' OR extra.y > 3 OR data IS NOT NULL", None),
        ("position.lat > 10 AND data.position IS NOT NULL", "position.lat > 10 AND data.position IS NOT NULL"),
        ("region IS NULL", "region IS NULL"),
        ("NOT region = 'eu'", "NOT region = 'eu'"),
        ("value = 'on' OR value = 3", "value = 'on' OR value = 3"),
        ("priority > 3 AND source LIKE 'line%'", "priority > 3 AND source LIKE 'line%'"),
        ("count > 9.6", "count > 10"),
    ],
)
def test_filters_are_admitted_with_rounded_constants(schema: Schema, given_text: str, admitted: str | None) -> None:
    if admitted is None:
        with pytest.raises(FilterTypeError):  # extra is declared, a field below it is not
            schema.check_filter(Filter(given_text))
    else:
        assert str(schema.check_filter(Filter(given_text))) == admitted


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("machin = 'm7'", 0, "did you mean machine"),
        ("REGION = 'eu'", 0, "did you mean region"),
        ("lat > 3", 0, "did you mean position.lat"),
        ("priorty > 3", 0, "did you mean priority"),
        ("region = 'eu' AND colour = 1", 18, "not declared"),
        ("type = 'machine.state' AND machine = 'm7'", 27, "it is for machine.value"),
        ("machine > 3", 0, "machine is a text, and 3 is a number"),
        ("machine = 3", 0, "in quotes: '3'"),
        ("count = '3'", 0, "without quotes: 3"),
        ("machine = on", 0, "machine is a text, and on is a boolean"),
        ("tags = 'a'", 0, "array_contains(tags, 'a')"),
        ("3 < machine", 4, "machine is a text"),
        ("count LIKE '1%'", 0, "LIKE takes a text"),
        ("lower(count) = 'a'", 6, "lower takes a text"),
        ("machine + 1 > 2", 0, "takes a number"),
        ("abs(machine) = 1", 4, "takes a number"),
        ("machine", 0, "takes a boolean"),
        ("on = 'yes'", 0, "on is a boolean"),
        ("on = 1", 0, "write TRUE or FALSE"),
        ("since > 3", 0, "since is a timestamp"),
        ("array_contains(machine, 'a')", 15, "takes an array"),
        ("region = 'asia'", 0, "can never be true"),
        ("region = 'EU'", 0, "did you mean 'eu'"),
        ("priority > 11", 0, "a whole number from 1 to 10"),
        ("position.lat >= 91", 0, "91 is above that"),
        ("position.lat BETWEEN -200 AND -100", 0, "-200 is below that"),
        ("contains(region, 'z')", 9, "can never be true"),
        ("region > 'us'", 0, "'eu', 'us'"),
        ("level = 3", 0, "can never be true"),
        ("position.lat > 90", 0, "from -90 to 90, and 90 is its maximum"),
        ("count < 0", 0, "can never be true"),
        ("count > 5 AND region = 'eu' AND count < 3", 32, "exclude each other"),
        ("type = 'machine.value' AND value > 3 AND value < 3.5", 41, "exclude each other"),
        (
            "value <> 4 AND region = 'eu' AND value > 3.5 AND value < 4.5",
            49,
            "value <> 4, value > 3.5 and value < 4.5 exclude",
        ),
        ("count > 1 AND machine = 'a'", 14, "no event type declares both count and machine"),
        ("(level = 1 OR level = 2) AND level > 2", 29, "(level = 1 OR level = 2) and level > 2 exclude"),
        ("NOT (region = 'eu' OR region = 'us')", 22, "NOT region = 'eu' and NOT region = 'us' exclude"),
        ("count > 3 AND count < 2 OR level > 2 AND level < 2", 14, "nor can the other alternatives"),
        ("region = 'eu' AND (region = 'us' OR priority > 10)", None, "can never be true"),
        ("FALSE", None, "names nothing"),
    ],
)
def test_filters_are_refused_with_place_and_reason(schema: Schema, text: str, position: int | None, says: str) -> None:
    with pytest.raises(FilterTypeError) as refused:
        schema.check_filter(Filter(text))
    assert says in str(refused.value)
    if position is not None:
        assert refused.value.position == position


def test_the_caller_can_name_the_type(schema: Schema) -> None:
    assert str(schema.check_filter(Filter("value > 3.4"), "machine.value")) == "value > 3.5"
    with pytest.raises(FilterTypeError, match="value is a text"):
        schema.check_filter(Filter("value > 3.4"), "machine.state")


def test_different_grids_need_a_type() -> None:
    schema = Schema.from_toml("['a']\nx = { min = 0, step = 1 }\n['b']\nx = { min = 0, step = 0.5 }")
    assert str(schema.check_filter(Filter("x > 3"))) == "x > 3"
    with pytest.raises(FilterTypeError, match="different steps"):
        schema.check_filter(Filter("x > 3.3"))
    assert str(schema.check_filter(Filter("x > 3.3 AND type = 'b'"))) == "x > 3.5 AND type = 'b'"


def test_an_admitted_filter_is_the_same_object_if_nothing_changed(schema: Schema) -> None:
    wanted = Filter("region = 'eu'")
    assert schema.check_filter(wanted) is wanted


@given(st.floats(-1, 8), st.floats(0, 7), st.sampled_from(["<", "<=", "=", ">", ">="]))
def test_filter_and_event_meet_on_the_grid(constant: float, number: float, op: str) -> None:
    """An admitted filter and event compare as grid points do, whole numbers here."""
    schema = Schema.from_attributes("a#0:7:1")
    try:
        wanted = schema.check_filter(Filter(f"a {op} {constant!r}"))
    except FilterTypeError:
        return
    limit = round(constant) if 0 <= constant <= 7 else constant
    expected = {
        "<": round(number) < limit,
        "<=": round(number) <= limit,
        "=": round(number) == limit,
        ">": round(number) > limit,
        ">=": round(number) >= limit,
    }[op]
    assert wanted.matches(schema.check_event(Event("-", "-", data={"a": number}))) == expected

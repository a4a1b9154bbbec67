"""Acceptance scenarios 1 to 11 of the elastic cloud broker: attributes, validation, operators, covering."""

from __future__ import annotations

import pytest

from tocsin.errors import EventError, FilterTypeError
from tocsin.filters.filter import Filter
from tocsin.filters.schema import Schema
from tocsin.model import Event

CONFIG_A = """
% configuration A
a#0:7:1
b#0:7:1

t$cat:mouse:dog:bird:dolphin
"""


@pytest.fixture
def schema() -> Schema:
    return Schema.from_attributes(CONFIG_A)


def publication(**data: object) -> Event:
    return Event(type="reading", source="sensor/1", data=data)


def hears(schema: Schema, subscription: str, **data: object) -> bool:
    """Subscribe and publish under the schema, as a node would."""
    return schema.check_filter(Filter(subscription)).matches(schema.check_event(publication(**data)))


def test_scenario_01_attribute_file_with_blanks_and_comments(schema: Schema) -> None:
    declared = schema.attributes()
    assert list(declared) == ["a", "b", "t"]
    assert (declared["a"].low, declared["a"].high, declared["a"].step) == (0, 7, 1)
    assert declared["t"].values == ("cat", "mouse", "dog", "bird", "dolphin")


def test_scenario_02_numbers_snap_to_the_nearest_step() -> None:
    schema = Schema.from_attributes("x#0:10:0.5")
    event = schema.check_event(publication(x=3.26))
    assert event.data == {"x": 3.5}
    subscription = schema.check_filter(Filter("x = 3.4"))
    assert str(subscription) == "x = 3.5"
    assert subscription.matches(event)


def test_scenario_03_an_undeclared_attribute_rejects_the_whole_publication(schema: Schema) -> None:
    with pytest.raises(EventError) as refused:
        schema.check_event(publication(a=1, b=2, colour="red"))
    assert refused.value.field == "data.colour"
    assert schema.check_event(publication(a=1, b=2)).data == {"a": 1, "b": 2}


@pytest.mark.parametrize("data", [{"a": 8}, {"a": -1}, {"t": "cow"}])
def test_scenario_04_values_outside_the_domain_are_rejected(schema: Schema, data: dict[str, object]) -> None:
    with pytest.raises(EventError) as refused:
        schema.check_event(publication(**data))
    assert refused.value.field == f"data.{next(iter(data))}"


@pytest.mark.parametrize("subscription", ["a < 0", "a > 7", "t < 3", "contains(a, 'x')", "unknown = 1"])
def test_scenario_05_subscriptions_that_cannot_match_are_rejected(schema: Schema, subscription: str) -> None:
    with pytest.raises(FilterTypeError) as refused:
        schema.check_filter(Filter(subscription))
    assert refused.value.position is not None and refused.value.help


def test_scenario_06_a_range_partly_outside_is_legal(schema: Schema) -> None:
    assert all(hears(schema, "a < 100", a=value) for value in range(8))


@pytest.mark.parametrize(
    ("subscription", "heard"),
    [
        ("a < 3", {0, 1, 2}),
        ("a <= 3", {0, 1, 2, 3}),
        ("a > 3", {4, 5, 6, 7}),
        ("a >= 3", {3, 4, 5, 6, 7}),
        ("a BETWEEN 2 AND 4", {2, 3, 4}),
        ("a = 3", {3}),
    ],
)
def test_scenario_07_boundaries(schema: Schema, subscription: str, heard: set[int]) -> None:
    assert {value for value in range(8) if hears(schema, subscription, a=value)} == heard


def test_scenario_08_contains_is_exact_inside_its_hull(schema: Schema) -> None:
    values = schema.attributes()["t"].values
    assert [value for value in values if hears(schema, "contains(t, 'o')", t=value)] == ["mouse", "dog", "dolphin"]
    assert not hears(schema, "contains(t, 'o')", t="bird")


def test_scenario_09_beginnings_and_endings(schema: Schema) -> None:
    values = schema.attributes()["t"].values
    assert [value for value in values if hears(schema, "startswith(t, 'do')", t=value)] == ["dog", "dolphin"]
    assert [value for value in values if hears(schema, "endswith(t, 't')", t=value)] == ["cat"]
    with pytest.raises(FilterTypeError, match="can never be true"):
        schema.check_filter(Filter("contains(t, 'zz')"))


def test_scenario_10_a_missing_attribute_does_not_match(schema: Schema) -> None:
    assert not hears(schema, "a > 2 AND b < 5", a=3)
    assert hears(schema, "a > 2 AND b < 5", a=3, b=4, t="cat")


def test_scenario_11_covering() -> None:
    outer = Filter("a <= 5")
    assert all(outer.covers(Filter(inner)) for inner in ("a < 4", "a = 5", "a BETWEEN 1 AND 3"))
    assert not outer.covers(Filter("a <= 6"))
    assert not outer.covers(Filter("b <= 5")) and not outer.covers(Filter("b = 1"))

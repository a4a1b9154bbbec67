"""CloudEvents filters and EventBridge patterns, translated; what has no counterpart is refused by path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tocsin.errors import FilterError, FilterLimitError
from tocsin.filters.dialects import from_cloudevents, from_eventbridge
from tocsin.model import Event

EVENT = Event(
    type="machine.value",
    source="line/7",
    id="1",
    subject="m7",
    time="2026-01-01T00:00:00Z",
    attributes={"tenant": "acme", "level": 5, "live": True},
    data={"state": "Running", "temp": 80, "tags": ["a", "b"], "inner": {"x": 1}, "gone": None, "path": "a*b_c"},
    priority=8,
)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"exact": {"type": "a"}}, "type = 'a'"),
        ({"exact": {"type": "a", "tenant": "x"}}, "type = 'a' AND attributes.tenant = 'x'"),
        ({"prefix": {"source": "line/"}}, "startswith(source, 'line/')"),
        ({"suffix": {"subject": ".jpg"}}, "endswith(subject, '.jpg')"),
        ({"exact": {"correlationid": "7"}}, "correlation_id = '7'"),
        ({"exact": {"priority": "8"}}, "priority = 8"),
        ({"exact": {"level": "5"}}, "attributes.level IN ('5', 5)"),
        ({"exact": {"live": "true"}}, "attributes.live IN ('true', TRUE)"),
        ({"exact": {"time": "2026-01-01T01:00:00+01:00"}}, "time = TIMESTAMP '2026-01-01T00:00:00Z'"),
        ({"exact": {"specversion": "1.0"}}, "TRUE"),
        ({"all": [{"exact": {"type": "a"}}, {"prefix": {"id": "b"}}]}, "type = 'a' AND startswith(id, 'b')"),
        ({"any": [{"exact": {"type": "a"}}, {"exact": {"type": "b"}}]}, "type = 'a' OR type = 'b'"),
        ({"not": {"exact": {"type": "a"}}}, "(type = 'a') IS NOT TRUE"),
        ([{"exact": {"type": "a"}}, {"exact": {"id": "b"}}], "type = 'a' AND id = 'b'"),
        ([], "TRUE"),
        (
            {"sql": "type LIKE 'a%' AND NOT tenant IN ('x', 'y')"},
            "type LIKE 'a%' AND attributes.tenant NOT IN ('x', 'y')",
        ),
        ({"sql": "LENGTH(subject) + 1 > 3 OR live"}, "length(subject) + 1 > 3 OR attributes.live"),
    ],
)
def test_cloudevents_filters(spec: Any, text: str) -> None:
    assert str(from_cloudevents(spec)) == text
    assert str(from_cloudevents(json.dumps(spec))) == text


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"exact": {"tenant": "acme", "level": "5", "live": "true"}}, True),
        ({"exact": {"tenant": "acme", "level": "6"}}, False),
        ({"not": {"exact": {"nosuch": "x"}}}, True),  # absent: it does not fit, so its negation does
        ({"not": {"any": [{"prefix": {"type": "machine"}}, {"suffix": {"id": "9"}}]}}, False),
        ({"sql": "level = 5 AND LOWER(tenant) = 'acme'"}, True),
        ({"exact": {"state": "Running"}}, False),  # the payload is not asked
    ],
)
def test_cloudevents_filters_on_an_event(spec: Any, fits: bool) -> None:
    assert from_cloudevents(spec).matches(EVENT) is fits


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("x", None),
        (3, "filter"),
        ({}, "filter"),
        ({"exact": {"type": "a"}, "prefix": {"type": "a"}}, "filter"),
        ({"equals": {"type": "a"}}, "filter"),
        ({"exact": "type"}, "filter.exact"),
        ({"exact": {}}, "filter.exact"),
        ({"exact": {"type": 3}}, "filter.exact.type"),
        ({"exact": {"type": ""}}, "filter.exact.type"),
        ({"exact": {"data.x": "1"}}, "filter.exact.data.x"),
        ({"exact": {"data": "1"}}, "filter.exact.data"),
        ({"exact": {"time": "noon"}}, "filter.exact.time"),
        ({"prefix": {"time": "2026"}}, "filter.prefix.time"),
        ({"prefix": {"priority": "1"}}, "filter.prefix.priority"),
        ({"any": []}, "filter.any"),
        ([{"any": [{"exact": {"type": "a"}}, {"exact": {"type": 1}}]}], "filters[0].any[1].exact.type"),
        ({"sql": 3}, "filter.sql"),
        ({"sql": "EXISTS tenant"}, "filter.sql"),
        ({"sql": "type = 'a' XOR id = 'b'"}, "filter.sql"),
        ({"sql": "SUBSTRING(type, 1) = 'a'"}, "filter.sql"),
        ({"sql": "level / 2 = 2"}, "filter.sql"),
        ({"sql": "level BETWEEN 1 AND 2"}, "filter.sql"),
        ({"sql": "tenant RLIKE 'a'"}, "filter.sql"),
        ({"sql": "tenant IS NULL"}, "filter.sql"),
        ({"sql": "data.x = 1"}, "filter.sql"),
        ({"sql": "contains(type, 'a')"}, "filter.sql"),
    ],
)
def test_cloudevents_filters_are_refused_by_path(spec: Any, field: str | None) -> None:
    with pytest.raises(FilterError) as refused:
        from_cloudevents(spec)
    assert refused.value.field == field and refused.value.help


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ({"source": ["line/7"]}, "source = 'line/7'"),
        ({"detail-type": ["a", "b"]}, "type = 'a' OR type = 'b'"),
        ({"account": ["12"]}, "attributes.account = '12'"),
        ({"detail": {"a": {"b": [1]}}}, "data.a.b = 1"),
        ({"detail": {"odd name": [True]}}, "data.`odd name` = TRUE"),
        ({"source": ["x"], "detail": {"n": [1, None]}}, "source = 'x' AND (data.n = 1 OR data.n IS NULL)"),
        ({"detail": {"s": [{"prefix": "a"}]}}, "startswith(data.s, 'a')"),
        ({"detail": {"s": [{"prefix": {"equals-ignore-case": "Ab"}}]}}, "startswith(lower(data.s), 'ab')"),
        ({"detail": {"s": [{"suffix": ".png"}]}}, "endswith(data.s, '.png')"),
        ({"detail": {"s": [{"equals-ignore-case": "RunNing"}]}}, "lower(data.s) = 'running'"),
        ({"detail": {"n": [{"numeric": [">", 0, "<=", 5.5]}]}}, "data.n > 0 AND data.n <= 5.5"),
        ({"detail": {"n": [{"numeric": ["=", 3]}]}}, "data.n = 3"),
        ({"detail": {"n": [{"exists": True}], "m": [{"exists": False}]}}, "data.n IS NOT NULL AND data.m IS NULL"),
        ({"detail": {"s": [{"wildcard": "a*b_c\\*"}]}}, r"data.s LIKE 'a%b\\_c*'"),
        ({"time": ["2026-01-01T00:00:00Z"]}, "time = TIMESTAMP '2026-01-01T00:00:00Z'"),
        ({"$or": [{"source": ["a"]}, {"detail": {"n": [1]}}]}, "source = 'a' OR data.n = 1"),
        ({"detail": {"$or": [{"n": [1]}, {"m": [2]}]}}, "data.n = 1 OR data.m = 2"),
    ],
)
def test_eventbridge_patterns(pattern: Any, text: str) -> None:
    assert str(from_eventbridge(pattern)) == text
    assert str(from_eventbridge(json.dumps(pattern))) == text


@pytest.mark.parametrize(
    ("detail", "fits"),
    [
        ({"state": [{"anything-but": "Stopped"}]}, True),
        ({"state": [{"anything-but": ["Stopped", "Running"]}]}, False),
        ({"temp": [{"anything-but": "80"}]}, True),  # a number is anything but a text
        ({"temp": [{"anything-but": [80, "x"]}]}, False),
        ({"nosuch": [{"anything-but": "x"}]}, False),
        ({"state": [{"anything-but": {"prefix": "Run"}}]}, False),
        ({"state": [{"anything-but": {"suffix": ["ped", "ted"]}}]}, True),
        ({"state": [{"anything-but": {"equals-ignore-case": "RUNNING"}}]}, False),
        ({"state": [{"anything-but": {"wildcard": "St*"}}]}, True),
        ({"path": [{"wildcard": "a\\*b_*"}]}, True),
        ({"path": [{"wildcard": "a_b*"}]}, False),
        ({"gone": [None]}, True),
        ({"gone": [{"exists": False}]}, True),
        ({"inner": {"x": [{"numeric": ["<", 2]}]}}, True),
        ({"tags": ["a"]}, False),
    ],
)
def test_eventbridge_patterns_on_an_event(detail: Any, fits: bool) -> None:
    assert from_eventbridge({"detail": detail}).matches(EVENT) is fits


def test_arrays_are_asked_element_by_element_on_request() -> None:
    wanted = from_eventbridge({"detail": {"tags": ["a", "x"], "state": ["Running"]}}, arrays=True)
    assert wanted.matches(EVENT)
    assert not from_eventbridge({"detail": {"tags": ["x"]}}, arrays=True).matches(EVENT)


@pytest.mark.parametrize(
    ("pattern", "field"),
    [
        ("{", None),
        ([], "pattern"),
        ({}, "pattern"),
        ({"source": "a"}, "pattern.source"),
        ({"source": []}, "pattern.source"),
        ({"source": {"a": ["b"]}}, "pattern.source"),
        ({"resources": ["a"]}, "pattern.resources"),
        ({"odd name": ["a"]}, "pattern.odd name"),
        ({"detail": {"a": {}}}, "pattern.detail.a"),
        ({"detail": {"a": [["b"]]}}, "pattern.detail.a[0]"),
        ({"detail": {"a": [{"cidr": "10.0.0.0/8"}]}}, "pattern.detail.a[0]"),
        ({"detail": {"a": ["b", {"prefix": 3}]}}, "pattern.detail.a[1].prefix"),
        ({"detail": {"a": [{"prefix": "a", "suffix": "b"}]}}, "pattern.detail.a[0]"),
        ({"detail": {"a": [{"numeric": [">"]}]}}, "pattern.detail.a[0].numeric"),
        ({"detail": {"a": [{"numeric": ["!", 3]}]}}, "pattern.detail.a[0].numeric"),
        ({"detail": {"a": [{"numeric": [">", "3"]}]}}, "pattern.detail.a[0].numeric"),
        ({"detail": {"a": [{"exists": "yes"}]}}, "pattern.detail.a[0].exists"),
        ({"detail": {"a": [{"anything-but": []}]}}, "pattern.detail.a[0].anything-but"),
        ({"detail": {"a": [{"anything-but": {"numeric": ["=", 1]}}]}}, "pattern.detail.a[0].anything-but"),
        ({"detail": {"a": [{"wildcard": "a\\b"}]}}, "pattern.detail.a[0].wildcard"),
        ({"time": [{"prefix": "2026"}]}, "pattern.time[0]"),
        ({"time": ["noon"]}, "pattern.time[0]"),
        ({"$or": {}}, "pattern.$or"),
    ],
)
def test_eventbridge_patterns_are_refused_by_path(pattern: Any, field: str | None) -> None:
    with pytest.raises(FilterError) as refused:
        from_eventbridge(pattern)
    assert refused.value.field == field and refused.value.help


def test_deep_nesting_is_refused() -> None:
    spec: Any = {"exact": {"type": "a"}}
    pattern: Any = {"a": ["b"]}
    for _ in range(5_000):
        spec, pattern = {"not": spec}, {"a": pattern}
    for translate, hostile in ((from_cloudevents, spec), (from_eventbridge, {"detail": pattern})):
        with pytest.raises(FilterLimitError) as refused:
            translate(hostile)
        assert refused.value.limit == "depth"
    deep: Any = {"exact": {"type": "a"}}
    for _ in range(20):
        deep = {"not": deep}
    assert from_cloudevents(deep).matches(EVENT) is False

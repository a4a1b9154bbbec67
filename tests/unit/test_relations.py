"""Identical, covers, overlaps, disjoint, merge: one line per case."""

from __future__ import annotations

import pytest

from tocsin.filters import relations
from tocsin.filters.filter import Filter
from tocsin.model import Event

COVERS = [
    ("TRUE", "x > 3"),
    ("x > 3", "FALSE"),
    ("x > 3", "x > 5 AND x < 4"),
    ("x > 3", "x > 3 AND s = 'a'"),
    ("x >= 3", "x = 3"),
    ("x IN (1, 2, 3)", "x IN (1, 3)"),
    ("x < 10 OR s = 'a'", "x < 5"),
    ("x <> 3", "x BETWEEN 4 AND 5"),
    ("s LIKE 'a%'", "s LIKE 'ab%'"),
    ("s LIKE 'a%'", "s >= 'ab' AND s < 'ac'"),
    ("s >= 'a'", "s LIKE 'ab%'"),
    ("endswith(s, 'b')", "endswith(s, 'ab')"),
    ("endswith(s, 'b')", "s IN ('ab', 'b')"),
    ("x IS NOT NULL", "x = 3"),
    ("x IS NOT NULL", "x + 1 > 3"),
    ("data.a IS NOT NULL", "data.a.b = 1"),
    ("s LIKE '%'", "s RLIKE '^a'"),
    ("lower(s) = 'eu'", "s IN ('EU', 'Eu')"),
    ("length(s) < 4", "s = 'abc'"),
    ("s RLIKE 'b$'", "s IN ('ab', 'bb')"),
    ("contains(s, 'a')", "contains(s, 'a') AND x = 1"),
    ("x > y", "x = 3 AND y = 2"),
    ("x < 5 OR x >= 5", "x IN (1, 7)"),
    ("x < 3 OR x > 1", "x = 2 OR x <> 2"),
    ("x < 5 AND y < 5 OR x < 5 AND y >= 5", "x = 1 AND y BETWEEN 4 AND 6"),
    ("x IS NULL OR x IS NOT NULL", "TRUE"),
    ("flag OR NOT flag", "flag IS NOT NULL AND flag = TRUE"),
    ("x > 3", "attributes.x > 3"),
    ("data.a.b = 1", "a.b = 1"),
    ("priority >= 10", "priority > 9"),
    ("priority >= 1 AND type IS NOT NULL", "TRUE"),
    ("ack IN ('client', 'receipt')", "ack <> 'none'"),
    ("time >= '2026-01-01T00:00:00Z'", "time = '2026-01-01T01:00:00+01:00'"),
    ("x > 9007199254740993", "x > 9007199254740995"),
    ("x > 5", "x > 9007199254740993"),
    ("NOT (x > y)", "x <= y"),
    ("s NOT RLIKE 'a'", "NOT (s RLIKE 'a') AND x = 1"),
    ("distance_km(lat, lon, 52, 13) < 5", "distance_km(lat, lon, 52, 13) < 4"),
]
NOT_COVERS = [
    ("x > 3", "TRUE"),
    ("x > 3", "x >= 3"),
    ("x > 3", "y > 3"),
    ("x > 3", "x > 3 OR s = 'a'"),
    ("x = 3", "x IN (3, 4)"),
    ("x > 3", "data.x > 3"),  # an attribute x would go first
    ("attributes.x > 3", "x > 3"),
    ("a.b = 1", "data.a.b = 1"),
    ("x <> 3", "x IS NOT NULL"),
    ("x < 5 OR x >= 5", "x IS NOT NULL"),  # a text is not NULL either
    ("s LIKE 'ab%'", "s LIKE 'a%'"),
    ("x = 1 AND y = 1 OR x = 2 AND y = 2", "x IN (1, 2) AND y IN (1, 2)"),
    ("x > 9007199254740995", "x > 9007199254740993"),
    ("x = TRUE", "x = 1"),
]


@pytest.mark.parametrize(("outer", "inner"), COVERS)
def test_covers(outer: str, inner: str) -> None:
    assert Filter(outer).covers(Filter(inner))


@pytest.mark.parametrize(("outer", "inner"), NOT_COVERS)
def test_does_not_cover(outer: str, inner: str) -> None:
    assert not Filter(outer).covers(Filter(inner))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("x BETWEEN 1 AND 2", "x >= 1 AND x <= 2"),
        ("x = 1 OR x = 2", "x IN (2, 1)"),
        ("NOT (x < 3)", "x >= 3"),
        ("x > 3 AND s = 'a'", "s = 'a' AND 3 < x"),
        ("priority = 10", "priority > 9"),
        ("`odd name` = 3", "data.`odd name` = 3"),
        ("x > 1 AND x < 1", "FALSE"),
    ],
)
def test_identical(one: str, two: str) -> None:
    assert Filter(one).identical(Filter(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("x > 3", "x <= 3"),
        ("x > 3", "x = 'a'"),
        ("x = TRUE", "x = 1"),
        ("x IS NULL", "x > 1"),
        ("s LIKE 'a%'", "s LIKE 'b%'"),
        ("endswith(s, 'a')", "s = 'b'"),
        ("s > 'a'", "s < 'a\\0'"),
        ("contains(s, 'a')", "NOT contains(s, 'a')"),
        ("contains(s, 'a')", "s IN ('b', 'c')"),
        ("x > y", "x <= y"),
        ("attributes.x = 1", "x = 2"),
        ("a.b = 1", "data.a.b = 2"),
        ("data.a = 1", "data.a.b = 1"),
        ("priority > 5", "priority < 6"),
        ("priority > 10", "TRUE"),
        ("type = 'a'", "type = ''"),
        ("lower(s) = 'a'", "s > 5"),
        ("length(s) = 3", "s = 'ab'"),
        ("x = 1 OR y = 1", "x = 2 AND y = 2"),
        ("x < 5", "x > 9007199254740993"),
        ("priority.x = 1", "TRUE"),
    ],
)
def test_disjoint_and_so_not_overlapping(one: str, two: str) -> None:
    assert Filter(one).disjoint(Filter(two)) and Filter(two).disjoint(Filter(one))
    assert not Filter(one).overlaps(Filter(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("TRUE", "TRUE"),
        ("x > 3", "x < 4"),
        ("x > 3", "data.x = 'a' AND x < 5"),
        ("attributes.x IS NULL", "x = 3"),
        ("data = 'abc'", "attributes.x = 1"),
        ("data.a.b = 1", "data.a.c = 2 AND a.d = 3"),
        ("s LIKE 'ab%'", "endswith(s, 'bc') AND s <> 'abbc'"),
        ("s > 'a'", "s < 'ab'"),
        ("s = TIMESTAMP '2026-01-01T00:00:00Z'", "s LIKE '2026%'"),
        ("time > '2026-01-01T00:00:00Z'", "time < '2026-01-01T00:00:00.000002Z'"),
        ("type LIKE 'machine.%' AND source > 'line'", "priority IN (3, 9) AND ttl < 60 AND offset >= 7"),
        ("subject <> 'a'", "classification >= 'secret' AND ack <> 'none' AND NOT persistent"),
        ("datacontenttype = 'text/plain'", "data LIKE 'a%'"),
        ("datacontenttype LIKE 'application/%'", "correlation_id IS NOT NULL"),
        ("attributes IS NULL", "x = 1"),
        ("attributes IS NOT NULL", "data IS NULL"),
        ("lower(s) = 'eu'", "length(s) = 2"),
        ("x * 2 + 1 = 7", "x - y = 1"),
        ("x = y", "y BETWEEN 2 AND 3"),
        ("array_contains(tags, 'a')", "array_contains(tags, 3)"),
        ("distance_km(lat, lon, 52, 13) < 5", "lat > 52"),
        ("s RLIKE '^a[bc]+$'", "contains(s, 'b')"),
        ("s LIKE 'a_c%d'", "s > 'a'"),
        ("x > 9007199254740993", "x <= 9007199254740995"),
        ("x > 1e999", "TRUE"),
        ("x <= -1e999", "TRUE"),
        ("`odd name` = 3", "data.`odd name` > 2"),
        ("specversion = '1.0'", "TRUE"),
    ],
)
def test_overlapping_and_so_not_disjoint(one: str, two: str) -> None:
    assert Filter(one).overlaps(Filter(two)) and Filter(two).overlaps(Filter(one))
    assert not Filter(one).disjoint(Filter(two))


@pytest.mark.parametrize(
    ("one", "two", "merged"),
    [
        ("x > 3", "x > 5", "x > 3"),
        ("x > 5", "x > 3", "x > 3"),
        ("x = 1", "x = 2", "x IN (1, 2)"),
        ("x < 3", "x > 5", "x NOT BETWEEN 3 AND 5"),
        ("x <= 3", "x >= 3", "x >= -1e999"),
        ("x = 1 AND s = 'a'", "x = 2 AND s = 'a'", "x IN (1, 2) AND s = 'a'"),
        ("x = 1", "s = 'a'", "x = 1 OR s = 'a'"),
        ("x BETWEEN 1 AND 3", "x BETWEEN 2 AND 5", "x BETWEEN 1 AND 5"),
        ("s RLIKE 'a' AND x = 1", "s RLIKE 'a' AND x = 2", "x IN (1, 2) AND s RLIKE 'a'"),
        ("x = 1 OR s = 'a'", "x = 2 OR y = 3", "s = 'a' OR x IN (1, 2) OR y = 3"),
    ],
)
def test_perfect_mergers(one: str, two: str, merged: str) -> None:
    found = Filter(one).merge(Filter(two))
    assert found.perfect
    assert found.identical(Filter(merged))
    assert len(str(found)) <= len(merged) + 4


def test_a_merger_of_too_many_alternatives_is_imperfect_and_keeps_what_they_share() -> None:
    wide = " OR ".join(f"x = {n} AND y = {n} AND s = 'a'" for n in range(relations.MAX_ALTERNATIVES))
    found = Filter(wide).merge(Filter("x = 100 AND y = 200 AND s = 'b'"))
    assert not found.perfect
    assert found.covers(Filter(wide))
    inside = Event("-", "-", data={"x": 100, "y": 1, "s": "b"})
    assert found.matches(inside)
    assert not found.matches(inside.replace(data={"x": 100, "y": 1, "s": "c"}))
    assert not found.merge(Filter("z = 1")).perfect


def test_mergers_with_nothing_in_common_accept_everything() -> None:
    wide = " OR ".join(f"x = {n} AND y = {n}" for n in range(relations.MAX_ALTERNATIVES))
    found = Filter(wide).merge(Filter("z = 1"))
    assert str(found) == "TRUE" and not found.perfect


def test_very_many_alternatives_are_answered_soon_and_safely() -> None:
    wide = Filter(" AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(9)))
    assert len(wide.form.alternatives) == 512
    assert not wide.covers(Filter("c = 1"))
    assert not wide.disjoint(wide)
    assert wide.merge(Filter("c = 1")).matches(Event("-", "-", data={"c": 1}))

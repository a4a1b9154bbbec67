"""Sets and normal forms written back as text: readable, and exactly the same set again."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.strategies import conjunctions, filters
from tocsin.filters import intervals, values
from tocsin.filters.filter import Filter
from tocsin.filters.normal import NULLNESS, REVERSED, Dimension
from tocsin.filters.unparse import conjunction_text, form_text, set_condition


def only_set(text: str) -> tuple[Dimension, intervals.Cuts]:
    (alternative,) = Filter(text).form.alternatives
    (found,) = alternative.sets.items()
    return found


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("x = 80.0", "x = 80"),
        ("x > 3", "x > 3"),
        ("x >= 3", "x >= 3"),
        ("x < 3", "x < 3"),
        ("x <= 3", "x <= 3"),
        ("x <> 3", "x <> 3"),
        ("x > 0.1", "x > 0.1"),
        ("x BETWEEN 1 AND 5", "x BETWEEN 1 AND 5"),
        ("x > 1 AND x < 5", "x > 1 AND x < 5"),
        ("x > 1 AND x <= 5", "x > 1 AND x <= 5"),
        ("x NOT BETWEEN 1 AND 5", "x NOT BETWEEN 1 AND 5"),
        ("x IN (3, 1, 2)", "x IN (1, 2, 3)"),
        ("x NOT IN (1, 2)", "x NOT IN (1, 2)"),
        ("x > 3 AND x <> 5", "x > 3 AND x <> 5"),
        ("x < 1 OR x BETWEEN 3 AND 4 OR x IN (7, 9)", "(x < 1 OR x BETWEEN 3 AND 4 OR x IN (7, 9))"),
        ("x > 1e999", "x > 1e999"),
        ("x <= 1e999", "x <= 1e999"),
        ("x = -1e999", "x = -1e999"),
        ("x < 5 OR x >= 5", "x >= -1e999"),
        ("x = -0.0", "x = 0"),
        ("x >= 1e300", "x >= 1e+300"),
        ("s = 'it''s'", "s = 'it''s'"),
        ("s LIKE 'ab%'", "startswith(s, 'ab')"),
        ("s NOT LIKE 'ab%'", "NOT startswith(s, 'ab')"),
        ("s >= 'a' AND s < 'b'", "startswith(s, 'a')"),
        ("s LIKE 'a%' AND s <> 'ab'", "startswith(s, 'a') AND s <> 'ab'"),
        ("s > 'a' AND s <= 'c'", "s > 'a' AND s <= 'c'"),
        ("s LIKE '%'", "s LIKE '%'"),
        ("s LIKE '%ab'", "endswith(s, 'ab')"),
        ("NOT endswith(s, 'ab')", "NOT endswith(s, 'ab')"),
        ("endswith(s, 'b') AND NOT endswith(s, 'ab')", "endswith(s, 'b') AND NOT endswith(s, 'ab')"),
        ("endswith(s, 'a') OR endswith(s, 'c')", "(endswith(s, 'a') OR endswith(s, 'c'))"),
        ("endswith(s, '')", "endswith(s, '')"),
        ("x IS NULL", "x IS NULL"),
        ("x IS NOT NULL", "x IS NOT NULL"),
        ("x IS NULL OR x IS NOT NULL", "(x IS NULL OR x IS NOT NULL)"),
        ("flag", "flag = TRUE"),
        ("NOT flag", "flag = FALSE"),
        ("flag OR NOT flag", "flag IN (FALSE, TRUE)"),
        ("time > '2026-01-01T01:00:00+01:00'", "time > TIMESTAMP '2026-01-01T00:00:00Z'"),
        ("lower(s) = 'eu'", "lower(s) = 'eu'"),
        ("data.`odd name` > 1", "data.`odd name` > 1"),
    ],
)
def test_a_set_reads_well_and_comes_back_unchanged(asked: str, written: str) -> None:
    dimension, cuts = only_set(asked)
    assert set_condition(*dimension, cuts) == written
    assert only_set(written) == (dimension, cuts)


def test_an_open_end_is_not_written_as_the_next_double() -> None:
    key = intervals.number_key(3.0)
    assert set_condition("x", values.NUMBER, (key + 1, intervals.TOP_NUMBER)) == "x > 3"
    assert set_condition("x", values.NUMBER, (intervals.BOTTOM_NUMBER, key)) == "x < 3"


def test_an_empty_set_is_false() -> None:
    assert [set_condition("x", kind, ()) for kind in (values.NUMBER, REVERSED, NULLNESS)] == ["FALSE"] * 3


def test_a_set_of_endings_that_no_filter_has_is_refused() -> None:
    with pytest.raises(ValueError, match="endings"):
        set_condition("s", REVERSED, (intervals.BOTTOM_TEXT, (0, "b", 0)))


def test_forms_of_nothing_and_everything() -> None:
    assert form_text(Filter("x > 5 AND x < 3").form) == "FALSE"
    assert form_text(Filter("TRUE").form) == "TRUE"


def test_residues_stand_beside_sets() -> None:
    (alternative,) = Filter("s RLIKE '^a' AND x > 3").form.alternatives
    assert conjunction_text(alternative) == "x > 3 AND s RLIKE '^a'"


def test_every_set_of_random_filters_comes_back_unchanged() -> None:
    compared = 0

    @given(filters())
    def check(text: str) -> None:
        nonlocal compared
        for alternative in Filter(text).form.alternatives:
            for dimension, cuts in alternative.sets.items():
                (again,) = Filter(set_condition(*dimension, cuts)).form.alternatives
                assert again.sets[dimension] == cuts
                compared += 1

    check()
    assert compared > 50


@given(conjunctions())
def test_the_form_of_a_conjunction_comes_back_unchanged(text: str) -> None:
    form = Filter(text).form
    assert Filter(form_text(form)).form.key() == form.key()

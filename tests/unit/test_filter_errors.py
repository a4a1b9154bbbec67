"""Advice in errors: what it proposes must itself be a filter, and a caret must find its place in any spelling.

The plain cases (text, position, a piece of the message) are lines of the corpus; here is what a line cannot say.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import FilterError
from tocsin.filters import advice
from tocsin.filters.filter import Filter
from tocsin.filters.limits import DEFAULT
from tocsin.filters.patterns import PatternError, compile_regex
from tocsin.filters.tokens import place_in_string, read_tokens


def refusal(text: str) -> FilterError:
    with pytest.raises(FilterError) as caught:
        Filter(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "proposed"),
    [
        ("a < 1 < 2", "a < 1 AND 1 < 2"),
        ("1 < a < 2", "1 < a AND a < 2"),
        ("0 <= data.a.b <= 1", "data.a.b BETWEEN 0 AND 1"),
        ("a = 1 = FALSE", "(a = 1) IS FALSE"),
        ("a LIKE 'x' = TRUE", "(a LIKE 'x') IS TRUE"),
        ("a = 1 IS NOT TRUE", "(a = 1) IS NOT TRUE"),
        ("name ILIKE 'It''s%'", "lower(name) LIKE 'it''s%'"),
        ("lower(a.b) MATCHES '^x'", "lower(a.b) RLIKE '^x'"),
        ("tags CONTAINS 'x'", "array_contains(tags, 'x')"),
        ("'x' IN tags", "array_contains(tags, 'x')"),
        ("`odd one` NOT NULL", "`odd one` IS NOT NULL"),
        ("a NOT = 5", "a <> 5"),
        ("a GE 5", "a >= 5"),
        ("EXISTS a", "a IS NOT NULL"),
        ("time > DATE '2026-01-01'", "time > TIMESTAMP '2026-01-01T00:00:00Z'"),
        ("x = 0xff", "x = 255"),
        ("x = 1_000", "x = 1000"),
        ("x > 5kg", "x > 5"),
    ],
)
def test_what_is_proposed_is_a_filter(text: str, proposed: str) -> None:
    error = refusal(text)
    assert error.help is not None
    assert proposed.removeprefix("x = ").removeprefix("x > ").removeprefix("time > ") in error.help
    assert Filter(proposed)


@pytest.mark.parametrize(
    "text", ["where = 1", "date > 3", "select", "div = 2 AND mod = 3", "a.case = 1", "if OR exists"]
)
def test_words_of_other_languages_are_still_names(text: str) -> None:
    assert str(Filter(text)) == text


@pytest.mark.parametrize(
    "text", ["x IN (1) IS TRUE", "x LIKE 'a' IS NOT TRUE", "x BETWEEN 1 AND 2 IS FALSE", "x IS NULL IS TRUE"]
)
def test_truth_may_be_asked_of_a_test_without_brackets(text: str) -> None:
    assert Filter(text)


@pytest.mark.parametrize("word", ["x" * 5_000, "3" + "x" * 5_000, "0x" + "f" * 5_000, "é" * 5_000, "f" * 5_000 + "("])
def test_a_long_word_is_shown_cut(word: str) -> None:
    assert len(refusal(f"a = 1 {word}").message) < 200


@given(st.lists(st.sampled_from(["a", "''", r"\n", r"\d", r"\\", r"\u0041", r"\%", '"', "é"]), max_size=8), st.data())
def test_a_place_in_a_text_is_found_past_its_escapes(pieces: list[str], data: st.DataObject) -> None:
    """Every character of the value is spelled at its place: what stands before it spells what comes before it."""
    text = f"x = '{''.join(pieces)}'"
    value = read_tokens(text, DEFAULT).items[1].value
    index = data.draw(st.integers(0, len(value)))
    place = place_in_string(text, 4, index)
    inside_kept_escape = 0 < index < len(value) and value[index - 1] == "\\" and value[index] in "d%"
    if not inside_kept_escape:
        assert read_tokens(text[:place] + "'", DEFAULT).items[1].value == value[:index]
    assert 5 <= place < len(text)


def test_a_place_in_a_raw_text() -> None:
    text = r"x RLIKE r'a\d(b'"
    assert place_in_string(text, 8, 3) == refusal(text).position == text.index("(")


@pytest.mark.parametrize(
    ("pattern", "at"),
    [
        ("ab(?=c)", 2),
        (r"a\1", 1),
        ("a|(b", 2),
        ("[a-z", 0),
        ("x[b-a]", 2),
        ("a{2}{3}", 4),
        ("(a$)b", 2),
        (r"a\p{L}", 1),
    ],
)
def test_a_pattern_error_knows_its_place_and_a_way_out(pattern: str, at: int) -> None:
    with pytest.raises(PatternError) as caught:
        compile_regex(pattern)
    assert caught.value.at == at
    assert caught.value.help


@given(st.text("ab$^.*+?{}()[]|\\-&2,:<=!PQpz", max_size=10))
def test_every_pattern_error_has_a_place_inside_and_help(pattern: str) -> None:
    try:
        compile_regex(pattern)
    except PatternError as error:
        assert 0 <= error.at <= len(pattern)
        assert error.help


def test_the_tables_use_only_the_names_they_are_given() -> None:
    for word in ("ILIKE", "CONTAINS", "DIV", "WHERE", "COLLATE"):
        told = advice.infix(word, "{x}", "'{y}'")  # braces in a filter are not placeholders
        assert told is not None
        assert not re.search(r"(?<!['{])\{(?!x\})", told)
    assert advice.infix("NOTHING", "x", "y") is None


@pytest.mark.parametrize(
    ("word", "likely"), [("REGION", "region"), ("regoin", "region"), ("Strasse", None), ("eu", None)]
)
def test_a_slip_is_recognised(word: str, likely: str | None) -> None:
    assert advice.near(word, ["region", "value"]) == likely

"""Definitions written in Python: they print and parse to what the text says, and mistakes are told at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import DefinitionError, Detector, Event
from tocsin.composite.builder import (
    Pattern,
    any_of,
    aperiodic,
    aperiodic_star,
    at,
    event,
    not_,
    periodic,
    periodic_star,
    plus,
    ref,
    text_of,
)
from tocsin.composite.language import parse

A, B, C = event("type = 'a'", as_="a"), event("type='b' AND v>3", as_="b"), event("v = 1")
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (A, "[type = 'a'] AS a"),
        (A >> B >> C, "SEQ([type = 'a'] AS a, [type = 'b' AND v > 3] AS b, [v = 1])"),
        (A >> (B >> C), "SEQ([type = 'a'] AS a, SEQ([type = 'b' AND v > 3] AS b, [v = 1]))"),
        (A & B | C, "OR(AND([type = 'a'] AS a, [type = 'b' AND v > 3] AS b), [v = 1])"),
        (A & B >> C, "AND([type = 'a'] AS a, SEQ([type = 'b' AND v > 3] AS b, [v = 1]))"),
        (
            (A >> B).within(MINUTE) >> C,
            "SEQ(SEQ([type = 'a'] AS a, [type = 'b' AND v > 3] AS b) WITHIN 1 MINUTE, [v = 1])",
        ),
        (not_(A, C, B), "NOT([type = 'a'] AS a, [v = 1], [type = 'b' AND v > 3] AS b)"),
        (aperiodic(A, C, B), "A([type = 'a'] AS a, [v = 1], [type = 'b' AND v > 3] AS b)"),
        (aperiodic_star(A, C, B), "A*([type = 'a'] AS a, [v = 1], [type = 'b' AND v > 3] AS b)"),
        (A >> at("8:00", as_="t"), "SEQ([type = 'a'] AS a, AT '08:00' AS t)"),
        (periodic(A, MINUTE), "P([type = 'a'] AS a, 1 MINUTE)"),
        (periodic(A, MINUTE, C), "P([type = 'a'] AS a, 1 MINUTE, [v = 1])"),
        (periodic_star(A, MINUTE, C), "P*([type = 'a'] AS a, 1 MINUTE, [v = 1])"),
        (plus(ref("machine.stop", as_="s"), timedelta(seconds=1.5)), "PLUS(machine.stop AS s, 1500 MILLISECONDS)"),
        (any_of(2, A, B, C), "ANY(2, [type = 'a'] AS a, [type = 'b' AND v > 3] AS b, [v = 1])"),
        (
            (A >> B).within(MINUTE).by("site", "data.line").where("b.v>a.v"),
            "SEQ([type = 'a'] AS a, [type = 'b' AND v > 3] AS b) WITHIN 1 MINUTE BY site, data.line WHERE b.v > a.v",
        ),
        ((A >> B).where("b.v>a.v").by("k"), "SEQ([type = 'a'] AS a, [type = 'b' AND v > 3] AS b) BY k WHERE b.v > a.v"),
    ],
)
def test_what_is_built_prints_as_the_language_has_it(built: Pattern, text: str) -> None:
    assert str(built) == built.text == text
    assert parse("d", text).text == text


# -- random expressions, built and written by hand at the same time


class Both(NamedTuple):
    built: Pattern
    text: str


FILTERS = {"type='a'": "type = 'a'", "v>3 and w<2": "v > 3 AND w < 2", "name = 'a]b'": "name = 'a]b'"}
LEAVES = st.one_of(
    st.sampled_from(list(FILTERS)).map(lambda text: Both(event(text), f"[{text}]")),
    st.sampled_from(["other", "some.other"]).map(lambda name: Both(ref(name), name)),
)
UNITS = {"milliseconds": "millisecond", "seconds": "SECOND", "hours": "Hours"}
DURATIONS = st.tuples(st.integers(1, 5000), st.sampled_from(list(UNITS))).map(
    lambda each: (timedelta(**{each[1]: each[0]}), f"{each[0]} {UNITS[each[1]]}")
)
SPANS = st.none() | DURATIONS


def within(made: Both, span: tuple[timedelta, str] | None) -> Both:
    return made if span is None else Both(made.built.within(span[0]), f"{made.text} within {span[1]}")


def chained(word: str, join: Callable[[Pattern, Pattern], Pattern], of: list[Both]) -> Both:
    built = of[0].built
    for each in of[1:]:
        built = join(built, each.built)
    return Both(built, f"{word}({', '.join(each.text for each in of)})")


def three(word: str, make: Callable[..., Pattern], of: list[Both]) -> Both:
    return Both(make(*(each.built for each in of)), f"{word}({', '.join(each.text for each in of)})")


def timed(word: str, make: Callable[..., Pattern], of: list[Both], every: tuple[timedelta, str]) -> Both:
    first, *rest = of
    items = [first.text, every[1], *(each.text for each in rest)]
    return Both(make(first.built, every[0], *(each.built for each in rest)), f"{word}({', '.join(items)})")


def operations(parts: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    one, two, few = (
        st.lists(parts, min_size=1, max_size=1),
        st.lists(parts, min_size=2, max_size=2),
        st.lists(parts, min_size=2, max_size=4),
    )
    return st.one_of(
        st.builds(chained, st.just("seq"), st.just(Pattern.__rshift__), few),
        st.builds(chained, st.just("AND"), st.just(Pattern.__and__), few),
        st.builds(chained, st.just("Or"), st.just(Pattern.__or__), few),
        *(
            st.builds(three, st.just(word), st.just(make), st.lists(parts, min_size=3, max_size=3))
            for word, make in (("NOT", not_), ("a", aperiodic), ("A *", aperiodic_star))
        ),
        st.builds(timed, st.just("P"), st.just(periodic), one | two, DURATIONS),
        st.builds(timed, st.just("p*"), st.just(periodic_star), two, DURATIONS),
        st.builds(timed, st.just("PLUS"), st.just(plus), one, DURATIONS),
        few.map(lambda of: Both(any_of(2, *(b.built for b in of)), f"ANY(2, {', '.join(b.text for b in of)})")),
    )


EXPRESSIONS = st.recursive(LEAVES, lambda parts: st.builds(within, operations(parts), SPANS), max_leaves=8)


@given(EXPRESSIONS, st.booleans())
def test_built_and_written_are_the_same_definition(both: Both, keyed: bool) -> None:
    built, text = both
    if keyed:
        built, text = built.by("machine", "data.k"), f"{text} by machine , data.k"
    assert parse("d", str(built)) == parse("d", text)
    assert str(built) == parse("d", text).text


def test_names_and_conditions_are_carried() -> None:
    text = "seq([type='a'] as a, not([v=1] as x, [v=2], [v=3] as y)) by k where y.v >a.v"
    built = A >> not_(event("v=1", as_="x"), event("v=2"), event("v=3", as_="y"))
    assert parse("d", str(built.by("k").where("y.v > a.v"))) == parse("d", text)


# -- mistakes


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: A >> A, "two constituents are called a"),
        (lambda: A and B, "neither true nor false"),
        (lambda: A >> "x", "a pattern is expected, not str"),
        (lambda: not_(A, None, B), "a pattern is expected, not NoneType"),
        (lambda: event("v >"), "ends too early"),
        (lambda: event(5), "a filter is a text, not int"),
        (lambda: event("v = 1] AS x, [v = 2"), "AS x, [v = 2"),
        (lambda: event("v = 1", as_="type"), "cannot name a constituent"),
        (lambda: event("v = 1", as_="x BY k"), "cannot name a constituent"),
        (lambda: ref("a b"), "not expected here"),
        (lambda: ref("a AS b"), "is not the name of a definition"),
        (lambda: ref(""), "an expression is expected"),
        (lambda: (A >> B).by("k") >> C, "hold for a whole definition"),
        (lambda: A.within(MINUTE), "not behind a leaf"),
        (lambda: (A >> B).by("k").within(MINUTE), "too late"),
        (lambda: (A >> B).within(MINUTE).within(MINUTE), "twice"),
        (lambda: (A >> B).by("k").by("j"), "twice"),
        (lambda: (A >> B).by(), "names no field"),
        (lambda: (A >> B).by("j, k"), "is not one field"),
        (lambda: (A >> B).where("c.v > 1"), "no constituent is called c"),
        (lambda: (A >> B).where("b.v >"), "ends too early"),
        (lambda: plus(A, timedelta(0)), "a duration is expected"),
        (lambda: plus(A, 5), "a duration is expected"),
        (lambda: plus(A, timedelta(days=40_000)), "a duration is expected"),
        (lambda: any_of(3, A, B), "ANY wants 3 of 2"),
        (lambda: any_of(A, B), "ANY wants"),
        (lambda: text_of(None), "a pattern is expected, not NoneType"),
    ],
)
def test_mistakes_are_told_where_they_are_made(make: Callable[[], object], says: str) -> None:
    with pytest.raises(DefinitionError) as error:
        make()
    assert says in str(error.value)


def test_the_position_is_that_in_the_piece_that_was_given() -> None:
    with pytest.raises(DefinitionError) as error:
        (A >> B).where("b.v > a.v AND AND")
    assert error.value.text == "b.v > a.v AND AND"
    assert error.value.position == len("b.v > a.v AND ")


# -- with a detector


def test_a_detector_takes_either() -> None:
    built, written = Detector(), Detector()
    pattern = (event("type = 'a'", as_="x") >> event("type = 'b'", as_="y")).within(MINUTE).by("k")
    one = built.define("found", pattern, "chronicle")
    assert one == written.define("found", str(pattern), "chronicle")
    stream = [Event(kind, "/test", id=kind, data={"k": 1}) for kind in "ab"]
    assert built.feed_batch(stream) == written.feed_batch(stream) != []
    with pytest.raises(DefinitionError, match="a pattern is expected, not int"):
        built.define("other", 5)  # type: ignore[arg-type]

"""Relations never claim what is false, and decide every conjunction: checked on sampled events and by brute force."""

from __future__ import annotations

import functools
import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import conjunctions, events, filters
from tocsin.filters import facts, intervals, relations, unparse, witness
from tocsin.filters.evaluate import compile_condition, compile_value
from tocsin.filters.filter import Filter
from tocsin.filters.normal import NormalForm, meet
from tocsin.model import Event


@pytest.fixture(scope="module")
def sample() -> list[Event]:
    """Events of all sorts, the same in every run."""
    found: list[Event] = []

    @settings(max_examples=160, database=None, derandomize=True)
    @given(events())
    def collect(event: Event) -> None:
        found.append(event)

    collect()
    assert len(found) >= 100
    return found


@st.composite
def pairs(draw: st.DrawFn, parts: st.SearchStrategy[str]) -> tuple[Filter, Filter]:
    """Two filters that have something to do with each other more often than chance would have it."""
    one, two = draw(parts), draw(parts)
    shape = draw(st.sampled_from(["plain", "narrower", "wider", "negated", "both"]))
    if shape == "narrower":
        two = f"({one}) AND ({two})"
    elif shape == "wider":
        one = f"({one}) OR ({two})"
    elif shape == "negated":
        two = f"NOT ({one})"
    elif shape == "both":
        one, two = f"({one}) OR ({two})", f"({two}) AND NOT ({one})"
    return Filter(one), Filter(two)


def matching(wanted: Filter, sample: list[Event]) -> list[bool]:
    return [wanted.matches(event) for event in sample]


def common_event(one: Filter, two: Filter) -> Event | None:
    for left, right in itertools.product(one.form.alternatives, two.form.alternatives):
        terms = one.form.terms | two.form.terms
        both = meet(left, right)
        known = both and facts.enrich(both, terms)
        if known is not None and (event := witness.find(known, terms, (one, two))) is not None:
            return event
    return None


def check_claims(one: Filter, two: Filter, sample: list[Event], seen: Counter[str]) -> None:
    """Whatever is claimed of the two must hold for every event of the sample."""
    first, second = matching(one, sample), matching(two, sample)
    for outer, inner, wide, narrow in ((one, two, first, second), (two, one, second, first)):
        if outer.covers(inner):
            missed = [e for e, w, n in zip(sample, wide, narrow, strict=True) if n and not w]
            assert not missed, f"{outer} does not cover {inner}: {missed[0]}"
            seen["covers"] += 1
            seen["covered events"] += sum(narrow)
    if one.identical(two):
        assert first == second
        seen["identical"] += 1
    disjoint = one.disjoint(two)
    if disjoint:
        shared = [e for e, a, b in zip(sample, first, second, strict=True) if a and b]
        assert not shared, f"{one} and {two} are not disjoint: {shared[0]}"
        seen["disjoint"] += 1
    if one.overlaps(two):
        assert not disjoint
        event = common_event(one, two)
        assert event is not None and one.matches(event) and two.matches(event)
        seen["overlaps"] += 1
    merged = one.merge(two)
    union = [a or b for a, b in zip(first, second, strict=True)]
    held = matching(merged, sample)
    assert merged.covers(one) and merged.covers(two) or merged.perfect
    if merged.perfect:
        assert held == union, f"{merged} is not {one} or {two}"
        seen["perfect mergers"] += 1
    else:
        assert all(h for h, u in zip(held, union, strict=True) if u)
    seen["merged events"] += sum(union)


def test_no_claim_about_random_filters_is_false(sample: list[Event]) -> None:
    seen: Counter[str] = Counter()

    @given(pairs(filters(max_leaves=4)))
    def check(pair: tuple[Filter, Filter]) -> None:
        check_claims(*pair, sample, seen)

    check()
    for claim in ("covers", "covered events", "disjoint", "overlaps", "perfect mergers", "merged events"):
        assert seen[claim] > 0, f"no {claim} seen"


def test_no_claim_about_conjunctions_is_false(sample: list[Event]) -> None:
    seen: Counter[str] = Counter()

    @given(pairs(conjunctions(max_tests=3)))
    def check(pair: tuple[Filter, Filter]) -> None:
        check_claims(*pair, sample, seen)

    check()
    for claim in ("covers", "identical", "disjoint", "overlaps", "perfect mergers", "merged events"):
        assert seen[claim] > 0, f"no {claim} seen"


@given(one=filters(max_leaves=4))
def test_the_normal_form_is_true_exactly_where_the_filter_is(one: str, sample: list[Event]) -> None:
    wanted = Filter(one)
    assert [form_matches(wanted.form, event) for event in sample] == matching(wanted, sample)


@given(one=filters(max_leaves=4))
def test_what_is_implied_holds_wherever_the_conjunction_does(one: str, sample: list[Event]) -> None:
    form = Filter(one).form
    terms = dict(form.terms)
    for alternative in form.alternatives:
        known = facts.enrich(alternative, terms)
        for event in sample:
            if form_matches(NormalForm((alternative,), form.terms), event):
                assert known is not None
                assert form_matches(NormalForm((known,), terms), event)


@given(one=filters(max_leaves=4))
def test_the_text_of_a_form_means_the_same(one: str, sample: list[Event]) -> None:
    wanted = Filter(one)
    again = Filter(unparse.form_text(wanted.form))
    assert matching(again, sample) == matching(wanted, sample)


def form_matches(form: NormalForm, event: Event) -> bool:
    def holds(term: str, kind: str, cuts: intervals.Cuts) -> bool:
        key = facts.key_of(compile_value(form.terms[term])(event), kind)
        return key is not None and intervals.contains(cuts, key)

    return any(
        all(holds(term, kind, cuts) for (term, kind), cuts in alternative.sets.items())
        and all(compile_condition(residue)(event) is True for residue in alternative.residues.values())
        for alternative in form.alternatives
    )


# -- completeness: every event that can make a difference, tried one by one

NUMBER_CONSTANTS = [0, 1]
TEXT_CONSTANTS = ["a", "ab", "b"]
NUMBERS = [-1, 0, 0.5, 1, 2]
PRIORITIES = [1, 2, 5, 6, 10]
TEXTS = ["", "a", "a\0", "ab", "ab\0", "ac", "ac\0", "b", "b\0", "c", "c\0"]
"""One of each stretch between the places where a test on these constants can change: at, after and beyond a prefix."""


@functools.cache
def world() -> list[Event]:
    absent: list[object] = [None]
    return [
        Event(
            "-",
            "-",
            id="-",
            attributes={} if attribute is None else {"x": attribute},
            data={"x": field, "s": text},
            priority=priority,
        )
        for attribute, field, text, priority in itertools.product(
            absent + NUMBERS + ["a", True], absent + NUMBERS + ["a", True], absent + TEXTS + [1], PRIORITIES
        )
    ]


@functools.cache
def bits(test: str) -> int:
    """The events of the world that match, as the bits of a whole number."""
    wanted = Filter(test)
    return sum(1 << place for place, event in enumerate(world()) if wanted.matches(event))


@functools.cache
def small_tests() -> list[str]:
    found = []
    for name, constants in (
        ("x", NUMBER_CONSTANTS),
        ("data.x", NUMBER_CONSTANTS),
        ("attributes.x", NUMBER_CONSTANTS),
        ("priority", [1, 5, 10]),
        ("s", [f"'{text}'" for text in TEXT_CONSTANTS]),
    ):
        for op, constant in itertools.product(["=", "<>", "<", "<=", ">", ">="], constants):
            found.append(f"{name} {op} {constant}")
        for low, high in itertools.product(constants, constants):
            found.append(f"{name} BETWEEN {low} AND {high}")
            found.append(f"{name} IN ({low}, {high})")
    found += [f"startswith(s, '{text}')" for text in ("", *TEXT_CONSTANTS)] + [f"s LIKE '{t}%'" for t in TEXT_CONSTANTS]
    return found


def test_conjunctions_are_decided_completely() -> None:
    seen: Counter[str] = Counter()
    several = st.lists(st.sampled_from(small_tests()), min_size=1, max_size=4)

    @settings(max_examples=600)
    @given(several, several, st.booleans())
    def check(first: list[str], second: list[str], narrower: bool) -> None:
        if narrower:
            second = first + second
        one, two = Filter(" AND ".join(first)), Filter(" AND ".join(second))
        left, right = (functools.reduce(int.__and__, map(bits, tests)) for tests in (first, second))
        assert one.covers(two) == (right & ~left == 0)
        assert two.covers(one) == (left & ~right == 0)
        assert one.identical(two) == (left == right)
        assert one.disjoint(two) == (left & right == 0)
        assert one.overlaps(two) == (left & right != 0)
        seen["covers"] += right != 0 and right & ~left == 0
        seen["does not cover"] += right & ~left != 0
        seen["overlaps"] += left & right != 0
        seen["disjoint"] += bool(left and right) and left & right == 0

    check()
    assert min(seen.values()) >= 10 and len(seen) == 4, seen


def test_unions_that_cover_only_together_are_seen() -> None:
    seen: Counter[str] = Counter()
    names = [test for test in small_tests() if not test.startswith(("data.", "attributes.", "priority"))]
    several = st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=2), min_size=1, max_size=3)

    @settings(max_examples=200)
    @given(several, several)
    def check(first: list[list[str]], second: list[list[str]]) -> None:
        one, two = (Filter(" OR ".join(" AND ".join(tests) for tests in each)) for each in (first, second))
        left, right = (
            functools.reduce(int.__or__, (functools.reduce(int.__and__, map(bits, tests)) for tests in each))
            for each in (first, second)
        )
        assert one.covers(two) == (right & ~left == 0)
        assert one.disjoint(two) == (left & right == 0)
        assert one.overlaps(two) == (left & right != 0)
        seen["covers"] += right != 0 and right & ~left == 0
        seen["does not cover"] += right & ~left != 0

    check()
    assert min(seen.values()) >= 10 and len(seen) == 2, seen


def test_a_merger_over_the_limit_is_imperfect_and_still_accepts_all(sample: list[Event]) -> None:
    seen = Counter[str]()
    original = relations.MAX_ALTERNATIVES
    relations.MAX_ALTERNATIVES = 1
    try:

        @given(filters(max_leaves=4), filters(max_leaves=4))
        def check(first: str, second: str) -> None:
            one, two = Filter(first), Filter(second)
            merged = one.merge(two)
            union = [a or b for a, b in zip(matching(one, sample), matching(two, sample), strict=True)]
            held = matching(merged, sample)
            if merged.perfect:
                assert held == union
            else:
                assert all(h for h, u in zip(held, union, strict=True) if u)
                seen["imperfect"] += 1
                seen["events"] += sum(union)

        check()
    finally:
        relations.MAX_ALTERNATIVES = original
    assert seen["imperfect"] > 0 and seen["events"] > 0

"""What somebody may see: the test of an event and the filter say the same, and the filter covers what it limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tocsin.errors import FilterError, FilterLimitError, TokenError
from tocsin.filters.filter import Filter
from tocsin.filters.limits import Limits
from tocsin.model import CLASSIFICATION, Event
from tocsin.security.rights import Rights
from tocsin.security.scope import Scope

PREFIXES = [
    "*",
    "a",
    "ab",
    "b",
    "mach",
    "machine.",
    "to",
    "tocsin.",
    "tocsin.se",
    "it's",
    "50%",
    "a_",
    "x\\y",
    "é",
    "😀",
]
TYPES = ["a", "ab", "abc", "b", "machine.value", "to", "tocsin.session", "tocsin.ack", "tocsin", "it's", "50% x", "a_b"]
TYPES += ["x\\y", "é", "😀", "\U0010ffff", "axb"]
scopes = st.builds(
    lambda prefixes, admin, clearance: Scope(
        Rights([f"subscribe:{each}" for each in prefixes] + ["admin"] * admin), clearance
    ),
    st.lists(st.sampled_from(PREFIXES), max_size=3),
    st.sampled_from([False, False, False, True]),
    st.sampled_from(CLASSIFICATION),
)
kinds = st.builds(
    lambda type, secrecy: Event(type, "s", classification=secrecy),
    st.sampled_from(TYPES),
    st.sampled_from(CLASSIFICATION),
)


@given(scopes, st.lists(kinds, min_size=1, max_size=20))
def test_both_forms_agree(scope: Scope, events: list[Event]) -> None:
    journal, published = scope.filter(system=True), scope.filter(system=False)
    for event in events:
        assert scope.sees(event) == (journal is None or journal.matches(event))
        if not event.type.startswith("tocsin."):
            assert scope.sees(event) == (published is None or published.matches(event))


@given(scopes, strategies.filters(), st.lists(strategies.events() | kinds, min_size=1, max_size=8), st.booleans())
def test_a_limited_filter_is_both_and_within(scope: Scope, text: str, events: list[Event], system: bool) -> None:
    asked = Filter(text)
    try:
        limited = scope.limit(text, system=system)
    except FilterLimitError:
        return  # refused is within
    for event in events:
        if system or not event.type.startswith("tocsin."):
            assert limited.matches(event) == (asked.matches(event) and scope.sees(event))
    if not scope.is_empty and (not system or scope.has_system):
        assert scope.covers(limited, system=system), "who made a consumer may attach to it again"
    assert str(scope.limit(text, system=system)) == str(limited) == str(Filter(str(limited)))


@given(scopes, scopes, strategies.conjunctions(), kinds)
def test_covering_is_sound(mine: Scope, other: Scope, text: str, event: Event) -> None:
    theirs = other.limit(text, system=True)
    if mine.covers(theirs, system=True) and theirs.matches(event):
        assert mine.sees(event)


def test_a_filter_costs_no_more_than_allowed() -> None:
    scope = Scope(Rights(["subscribe:a"]), "secret")
    assert "x = 1 OR y = 2" in str(scope.limit("x = 1 OR y = 2", system=False, limits=Limits(atoms=2)))
    with pytest.raises(FilterLimitError):
        scope.limit("x = 1 OR y = 2 OR z = 3", system=False, limits=Limits(atoms=2))
    with pytest.raises(FilterError):
        scope.limit("x = = 1", system=False)


def test_destinations_and_paths_are_limited_too() -> None:
    scope = Scope(Rights(["subscribe:a"]), "top-secret")
    fire = Event("a.fire", "s", attributes={"tag": "fire"})
    assert scope.limit("TAG:fire", system=False).matches(fire)
    assert not scope.limit("TAG:fire", system=False).matches(fire.replace(type="b.fire"))


def test_a_clearance_must_be_one() -> None:
    with pytest.raises(TokenError, match="no clearance"):
        Scope(Rights(["subscribe:*"]), "cosmic")

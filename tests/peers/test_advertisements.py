"""Advertisements: which of the four words is said, for every order in which sessions come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import PeerError
from tocsin.peers import advertisements
from tocsin.peers.advertisements import Advertisements, Change, Resource

R, S = Resource("a > 1"), Resource("b > 1")


def said(change: Change | None) -> str | None:
    return change and change.kind


def test_found_then_advertised_unadvertised_then_depleted() -> None:
    ads = Advertisements()
    assert ads.advertise("1", "p1", R) == Change("found", "a > 1", "p1", session="1")
    assert ads.advertise("2", "p2", R) == Change("advertised", "a > 1", "p2", session="2")
    assert ads.unadvertise("1", R) == Change("unadvertised", "a > 1", "p1", session="1")
    assert ads.unadvertise("2", R) == Change("depleted", "a > 1", "p2", session="2")
    assert ads.now() == []


def test_again_is_told_and_counts_once() -> None:
    ads = Advertisements()
    assert [said(ads.advertise("1", "p", R)) for _ in range(3)] == ["found", "advertised", "advertised"]
    assert ads.of("1") == [R]
    assert said(ads.unadvertise("1", R)) == "depleted"
    assert ads.unadvertise("1", R) is None


def test_what_is_unknown_is_not_told() -> None:
    ads = Advertisements()
    ads.advertise("1", "p", R)
    assert ads.unadvertise("1", S) is None and ads.unadvertise("2", R) is None and ads.leave("2") == []


def test_leaving_is_withdrawing_everything() -> None:
    ads = Advertisements()
    for session, resource in [("1", R), ("1", S), ("2", R)]:
        ads.advertise(session, session, resource)
    assert [(each.kind, each.resource) for each in ads.leave("1")] == [("unadvertised", "a > 1"), ("depleted", "b > 1")]
    assert ads.of("1") == [] and ads.of("2") == [R]


def test_events_and_requests_of_one_text_are_two_resources() -> None:
    ads = Advertisements()
    ads.advertise("1", "p", Resource("x"))
    assert ads.advertise("1", "p", Resource("x", served=True)) == Change("found", "x", "p", served=True, session="1")


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advertisements, "MAX_ADVERTISED", 1)
    ads = Advertisements()
    ads.check_room("1", R)
    ads.advertise("1", "p", R)
    ads.check_room("1", R)
    with pytest.raises(PeerError, match="at most 1 resources"):
        ads.check_room("1", S)
    ads.check_room("2", S)


Moves = st.lists(st.tuples(st.sampled_from("aul"), st.sampled_from("123"), st.sampled_from([R, S])), max_size=30)


@given(Moves)
def test_who_listens_knows_as_much_as_who_keeps_the_books(moves: list[tuple[str, str, Resource]]) -> None:
    """From the words alone a listener knows which resources there are; one who comes late is told the same state."""
    ads, there = Advertisements(), set()
    for move, session, resource in moves:
        if move == "a":
            changes = [ads.advertise(session, session, resource)]
        elif move == "u":
            changes = [change for change in [ads.unadvertise(session, resource)] if change]
        else:
            changes = ads.leave(session)
        for change in changes:
            assert (change.kind == "found") == (change.kind in ("found", "advertised") and change.resource not in there)
            assert change.kind == "found" or change.resource in there
            if change.kind == "found":
                there.add(change.resource)
            elif change.kind == "depleted":
                there.remove(change.resource)
        assert {change.resource for change in ads.now() if change.kind == "found"} == there
        assert len(ads.now()) == sum(len(ads.of(each)) for each in "123")

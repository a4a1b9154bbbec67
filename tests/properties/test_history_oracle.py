"""The past equals what an early subscriber saw: searches against plain lists, and against a seam (S44)."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.past import NOON, SECOND, PastJournal, stored
from tests.strategies import conjunctions, events, filters
from tocsin.clock import as_datetime, as_micros
from tocsin.filters.filter import Filter
from tocsin.journal import history
from tocsin.journal.bounds import Bound, Last, Retained, Since, Within, last, retained, since, within
from tocsin.journal.sieve import Report, Sieve
from tocsin.model import Event

SPAN = 40  # seconds the events arrive in
AGES = st.integers(1, SPAN + 5).map(lambda seconds: timedelta(seconds=seconds))
BOUNDS = st.one_of(
    st.builds(last, st.integers(1, 12), st.none() | AGES),
    st.builds(within, AGES),
    st.builds(since, st.integers(0, 30)),
    st.builds(since, st.integers(-3, SPAN + 3).map(lambda second: as_datetime(NOON + second * SECOND))),
    st.just(retained()),
)
TEXTS = st.one_of(filters(), conjunctions(), st.sampled_from(["TRUE", "priority > 3", "type = 'a' OR x > 1"]))


@st.composite
def pasts(draw: st.DrawFn) -> list[Event]:
    pool = draw(st.lists(events(), min_size=1, max_size=5))
    chosen = draw(st.lists(st.sampled_from(pool), max_size=30))
    systems = draw(st.sets(st.integers(0, 29), max_size=3))
    chosen = [each.replace(type="tocsin.x") if place in systems else each for place, each in enumerate(chosen)]
    arrived = sorted(draw(st.lists(st.integers(0, SPAN), min_size=len(chosen), max_size=len(chosen))))
    return stored(chosen, arrived=[NOON + second * SECOND for second in arrived])


def plainly(past: list[Event], wanted: Filter, bound: Bound, now: int, upto: int, system: bool) -> list[int]:
    """What the bound says, word by word."""
    found = []
    for event in past:
        assert event.offset is not None and event.arrived is not None
        age = timedelta(microseconds=now - as_micros(event.arrived))
        dead = event.ttl is not None and age >= timedelta(seconds=event.ttl)
        match bound:
            case Last():
                fits = bound.within is None or age <= bound.within
            case Within():
                fits = age <= bound.t
            case Since():
                fits = (event.offset if isinstance(bound.x, int) else event.arrived) >= bound.x  # type: ignore[operator]
            case Retained():
                fits = not dead
        hidden = event.type.startswith("tocsin.") and not system
        if fits and not hidden and event.offset <= upto and wanted.matches(event):
            found.append(event.offset)
    return found[-bound.n :] if isinstance(bound, Last) else found


@settings(max_examples=120)
@given(pasts(), TEXTS, BOUNDS, st.integers(0, 30), st.integers(1, 30), st.booleans(), st.booleans())
def test_search_does_what_the_bound_says(
    past: list[Event], text: str, bound: Bound, upto: int, size: int, system: bool, told: bool
) -> None:
    wanted, now = Filter(text), NOON + SPAN * SECOND
    journal = PastJournal(past, size, told)
    found = history.search(journal, wanted, bound, now=now, upto=upto, system=system)  # type: ignore[arg-type]
    assert found == plainly(past, wanted, bound, now, upto, system)


@settings(max_examples=60)
@given(st.lists(events(), min_size=25, max_size=30), filters() | conjunctions())
def test_a_sieve_lets_through_what_the_filter_matches(given_events: list[Event], text: str) -> None:
    past = stored(given_events)
    wanted = Filter(text)
    sieve = Sieve(wanted)
    for block in PastJournal(past, 100).parts:
        for batch in (block.batch(), block.batch(sieve.columns)):  # it looks at no other columns than it says
            found = [place for piece in sieve.rows(batch, Report()) for place in piece.tolist()]
            assert found == [place for place, event in enumerate(past) if wanted.matches(event)]


@settings(max_examples=50)
@given(pasts(), TEXTS, st.integers(0, 30), st.integers(1, 12), st.integers(1, 30))
def test_s44_past_then_live_is_what_an_early_subscriber_saw(
    past: list[Event], text: str, moment: int, n: int, size: int
) -> None:
    """A subscriber that comes after `moment` events gets the last n of the early one's, then the same live stream."""
    wanted = Filter(text)
    journal = PastJournal(past, size)
    early = [offset for offset, _, _ in history.scan(journal, {0: wanted}, 1, journal.head)]  # type: ignore[arg-type]
    before = [offset for offset in early if offset <= moment]
    live = [offset for offset in early if offset > moment]
    found = history.search(journal, wanted, last(n), now=NOON, upto=moment)  # type: ignore[arg-type]
    assert found + live == before[-n:] + live
    assert early == plainly(past, wanted, retained(), 0, journal.head, False)

"""A look back counts what plain lists count, whatever the blocks are, and tells how far it came."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.past import NOON, SECOND, PastJournal, stored
from tests.properties.test_history_oracle import SPAN, TEXTS, pasts
from tocsin.clock import as_micros
from tocsin.filters.filter import Filter
from tocsin.journal import history
from tocsin.journal.survey import Survey, Times, events_at
from tocsin.model import Event

SCOPES = st.none() | st.sampled_from(["type = 'a'", "priority < 5", "FALSE", "TRUE"])


def counted(events: list[Event], times: Times) -> list[int]:
    found = [0] * len(times.seen)
    for event in events:
        assert event.arrived is not None
        found[times.place(as_micros(event.arrived))] += 1
    return found


def micros(event: Event) -> int:
    assert event.arrived is not None
    return as_micros(event.arrived)


@settings(max_examples=100)
@given(
    pasts(), st.none() | TEXTS, SCOPES, st.integers(1, 5), st.integers(0, 30), st.integers(1, 30), st.booleans(),
    st.integers(1, 9), st.none() | st.integers(1, 5), st.booleans(),
)  # fmt: skip
def test_a_look_back_counts_what_is_there(
    past: list[Event],
    text: str | None,
    scoped: str | None,
    first: int,
    last: int,
    size: int,
    told: bool,
    buckets: int,
    enough: int | None,
    retained: bool,
) -> None:
    journal = PastJournal(past, size, told)
    wanted = Filter(text) if text is not None else None
    scope = Filter(scoped) if scoped is not None else None
    now = NOON + SPAN * SECOND
    times = Times(NOON + 5 * SECOND, (SPAN - 10) * SECOND // buckets, buckets)
    alive = (lambda batch: history.not_expired(batch, now)) if retained else None
    survey = Survey(wanted, scope, times=times, examples=3, enough=enough, alive=alive)
    survey.run(journal, first, last)  # type: ignore[arg-type]
    seen = [
        event
        for event in past
        if max(first, survey.first) <= (event.offset or 0) <= last
        and not event.type.startswith("tocsin.")
        and (scope is None or scope.matches(event))
    ]
    matching = [
        event
        for event in seen
        if wanted is not None
        and wanted.matches(event)
        and not (retained and event.ttl is not None and micros(event) + round(event.ttl * SECOND) <= now)
    ][-(enough or len(past) or 1) :]
    assert survey.complete
    assert survey.seen == len(seen)
    assert survey.matched == len(matching)
    assert times.seen.tolist() == counted(seen, times)
    assert times.matched.tolist() == counted(matching, times)
    assert survey.oldest == (micros(matching[0]) if matching else None)
    assert survey.newest == (micros(matching[-1]) if matching else None)
    assert survey.examples == [event.offset for event in matching[::-1][:3]]
    assert list(events_at(journal, survey.examples)) == matching[::-1][:3]  # type: ignore[arg-type]
    if enough is None or len(matching) < enough:
        assert survey.first == first


def test_who_must_end_knows_the_newest() -> None:
    """It ends between two stretches of some thousand events."""
    journal = PastJournal(stored([Event("a", "s", data={"n": n}) for n in range(20_000)]), 5_000)
    known = []
    for steps in range(3):
        left = iter([False] * steps)
        survey = Survey(Filter("n % 2 = 0"), examples=1)
        survey.run(journal, 1, 20_000, lambda left=left: next(left, True))  # type: ignore[arg-type, misc]
        assert survey.seen == 20_000 - survey.first + 1
        assert survey.matched == survey.seen // 2
        assert survey.examples == ([19_999] if survey.seen else [])
        known.append((survey.first, survey.complete))
    assert known == [(20_001, False), (10_001, False), (1, True)]

"""A block is never skipped if an event in it matches, whatever the filter and the events."""

from __future__ import annotations

from unittest import mock

from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.past import batch_of, stored
from tests.strategies import conjunctions, events, filters
from tocsin.filters.filter import Filter
from tocsin.journal import facts, statistics
from tocsin.journal.statistics import may_match
from tocsin.model import Event

TIGHT = {"MAX_VALUES": 1, "MAX_NAMES": 2, "_MAX_TEXT": 2, "_MAX_TRIED": 4}
"""Limits that make nearly every list a range and leave names out, so that those are tried as well."""


@settings(max_examples=250)
@given(
    filters() | conjunctions(),
    st.lists(events(), min_size=1, max_size=6),
    st.sampled_from([1, 2**53 - 2]),
    st.sampled_from([{"MAX_VALUES": facts.MAX_VALUES}, TIGHT]),
)
def test_a_block_with_a_match_is_read(text: str, given_events: list[Event], first: int, limits: dict[str, int]) -> None:
    block = stored(given_events, first)
    if not block:
        return
    wanted = Filter(text)
    with mock.patch.multiple(facts, **limits):
        known = statistics.collect(batch_of(block))
        assert statistics.load(statistics.dump(known)) == known
        answer = may_match(wanted, known)
    note(f"skipped: {not answer}")
    if any(wanted.matches(event) for event in block):
        assert answer


@settings(max_examples=100)
@given(conjunctions(), events())
def test_of_a_block_of_one_event_nearly_everything_is_known(text: str, event: Event) -> None:
    """A conjunction of plain tests, asked of one event: only payloads that are no object leave doubts."""
    block = stored([event])
    if not block or not (event.data is None or isinstance(event.data, dict)):
        return
    if any(isinstance(each, list | dict) for each in (event.data or {}).values()):
        return
    wanted = Filter(text)
    if "data IS NOT NULL" in text:
        return
    assert may_match(wanted, statistics.collect(batch_of(block))) == wanted.matches(block[0])

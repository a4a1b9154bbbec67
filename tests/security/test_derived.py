"""A composite event is as secret as the most secret of its parts, whatever made it and whatever came between."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import START
from tocsin import Detector, Event
from tocsin.composite.expression import CONTEXTS
from tocsin.model import CLASSIFICATION

TEXTS = [
    "[type = 'a']",
    "SEQ([type = 'a'], [type = 'b'])",
    "SEQ([type = 'a'], [type = 'b'], [type = 'c'])",
    "AND([type = 'a'], [type = 'b'])",
    "OR([type = 'a'], [type = 'b'])",
    "ANY(2, [type = 'a'], [type = 'b'], [type = 'c'])",
    "NOT([type = 'a'], [type = 'b'], [type = 'c'])",
    "A([type = 'a'], [type = 'b'], [type = 'c'])",
    "A*([type = 'a'], [type = 'b'], [type = 'c'])",
    "P([type = 'a'], 2 SECONDS, [type = 'c'])",
    "P*([type = 'a'], 2 SECONDS, [type = 'c'])",
    "PLUS([type = 'a'], 3 SECONDS)",
    "SEQ(PLUS([type = 'a'], 1 SECONDS), AND([type = 'b'], [type = 'c']))",
]
given_events = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(CLASSIFICATION)), min_size=1, max_size=12)


def fed(text: str, context: str, events: list[Event], cut: int | None = None) -> list[Event]:
    detector = Detector()
    detector.define("found", text, context=context)
    detector.define("again", "OR(found, [type = 'never'])", context=context)
    found = []
    for number, each in enumerate(events):
        if number == cut:  # what is half detected goes through bytes
            detector = Detector.restore(detector.snapshot())
        found += detector.feed(each)
    return found + detector.advance(START + timedelta(seconds=len(events) + 10))


@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=30)
@given(given_events, st.sampled_from(CONTEXTS), st.integers(0, 12))
def test_the_highest_of_its_parts(text: str, given: list[tuple[str, str]], context: str, cut: int) -> None:
    events = [
        Event(kind, "s", id=str(n), classification=secrecy, offset=n, arrived=START + timedelta(seconds=n))
        for n, (kind, secrecy) in enumerate(given, 1)
    ]
    level = {each.id: CLASSIFICATION.index(each.classification) for each in events}
    found = fed(text, context, events, cut)
    for each in found:
        parts = [level[part["id"]] for part in each.data["parts"] if "id" in part]
        assert each.classification == CLASSIFICATION[max(parts)]
    plain = fed(text, context, [each.replace(classification="unclassified") for each in events])
    assert [each.id for each in found] == [each.id for each in plain], "an id does not depend on it"


def test_each_of_these_is_detected() -> None:
    """Else the test above would prove nothing."""
    kinds = itertools.cycle("abac")
    events = [
        Event(next(kinds), "s", id=str(n), offset=n, arrived=START + timedelta(seconds=n * 3)) for n in range(1, 13)
    ]
    for text in TEXTS:
        assert fed(text, "chronicle", events), text

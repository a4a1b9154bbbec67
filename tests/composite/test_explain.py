"""Explanations are true: what they say is used up is gone from the detector, what they say is open is there.

Both by looking at what the detector holds (random definitions, all operators and contexts) and by what it does
afterwards (the worked vectors, then more events). Where an explanation says *perhaps*, both must happen.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from datetime import timedelta
from itertools import product
from typing import Any

import msgspec
import pytest

from tests.composite.oracle import SECOND
from tests.composite.test_oracle import HORIZON, some_case
from tests.composite.test_vectors import CASES, EPOCH, VECTORS, stream
from tocsin import Detector, Event, EventError
from tocsin.composite.explain import Explanation

LAST = 34


def defined(text: str, context: str = "recent", semantics: str = "detection") -> Detector:
    made = Detector()
    made.define("found", text, context, semantics)
    return made


def instants(detector: Detector, events: list[Event], last: int = LAST) -> Any:
    """Feed a stream; after each instant at which something was found, what was found."""
    now = 0
    for event in [*events, None]:
        upto = last if event is None else int((event.arrived or EPOCH).timestamp())
        for second in range(now, upto):
            if found := detector.advance(second * SECOND):
                yield found
        now = max(now, upto)
        if event is not None and (found := detector.feed(event)):
            yield found


def held(detector: Detector, name: str) -> set[int]:
    return {offset for each in detector.waiting(name, limit=1_000_000) for offset in each.offsets}


def offsets(parts: Any) -> set[int]:
    return {part.offset for part in parts}


# -- what the detector holds


@pytest.mark.parametrize("block", range(4))
def test_fates_of_random_definitions_are_those_in_the_detector(block: int) -> None:
    seen: Counter[str | None] = Counter()
    for seed in range(block * 250, block * 250 + 250):
        draw = random.Random(f"fates {seed}")
        case = some_case(draw, most=draw.choice((1, 1, 2)))
        detector, events = case.detector(), {each.offset: each.event for each in case.events}
        known = events if draw.random() < 0.7 else None
        for found in instants(detector, list(events.values()), HORIZON):
            for each in found:
                explanation = detector.explain(each, known)
                there = held(detector, each.type)
                assert offsets(explanation.open) <= there, (case, each, str(explanation))
                assert not offsets(explanation.used) & there, (case, each, str(explanation))
                seen.update(part.fate for part in explanation.parts)
    assert seen["used"] > 100 and seen["open"] > 100, "nothing was tested"


# -- what the detector does


@pytest.mark.parametrize(("text", "context"), CASES)
def test_what_is_open_takes_part_again_and_what_is_used_up_does_not(text: str, context: str) -> None:
    detector, count = defined(text, context), 0
    events = stream(VECTORS[text][0])
    known = {event.offset: event for event in events if event.offset is not None}
    for found in instants(detector, events):
        again: set[int] = set()
        for kinds in product("abc", repeat=2):
            copy = Detector.restore(detector.snapshot())
            for number, kind in enumerate(kinds):
                arrived = EPOCH + timedelta(seconds=100 + number)
                for each in copy.feed(Event(kind, "/probe", offset=1000 + number, arrived=arrived)):
                    again |= {part["offset"] for part in each.data["parts"] if "offset" in part}
        for each in found:
            count += 1
            explanation = detector.explain(each, known)
            assert offsets(explanation.open) <= again, str(explanation)
            assert not offsets(explanation.used) & again, str(explanation)
            unknown = {part.role for part in explanation.parts if part.fate == "perhaps"}
            assert unknown <= ({"middle"} if (text[:2], context) == ("A*", "chronicle") else set())
            assert bool(explanation.open) == bool(re.search(r"\bstays?\b", explanation.rule)), str(explanation)
    assert count == len(VECTORS[text][1 + ("recent", "chronicle", "continuous", "cumulative").index(context)].split())


def test_perhaps_means_that_both_happen() -> None:
    text = "A*([type='a'] AS a, [type='b'] AS b, [type='c'] AS c)"
    fates = []
    for events in ("a1@1 b1@2 c1@3", "a1@1 a2@1 b1@2 c1@3"):
        detector = defined(text, "chronicle")
        [found] = detector.feed_batch(stream(events))
        [middle] = [part for part in detector.explain(found).parts if part.name == "b"]
        fates.append((middle.fate, middle.offset in held(detector, "found")))
    assert fates == [("perhaps", False), ("perhaps", True)]


def test_an_event_that_closes_and_opens_replaces_its_opener() -> None:
    detector = defined("SEQ([type='a'] AS x, [type='a'] AS y)")
    [found] = detector.feed_batch(stream("a1@1 a2@2"))
    explanation = detector.explain(found)
    assert [(part.name, part.fate) for part in explanation.parts] == [("x", "used"), ("y", "open")]
    assert held(detector, "found") == {2}


# -- what it tells


def event(type: str, second: float, **data: Any) -> Event:
    return Event(type, "/test", id=f"{type}{second}", data=data, time=EPOCH + timedelta(seconds=second))


def break_in() -> tuple[Detector, Event, dict[int, Event]]:
    detector = Detector()
    detector.define(
        "break_in",
        "NOT([type = 'door.open'] AS o, [type = 'badge'] AS b, [type = 'motion'] AS m) WITHIN 2 MINUTES BY door",
        "chronicle",
    )
    events = [event("door.open", 1, door=7), event("door.open", 20, door=7), event("motion", 31, door=7)]
    [found] = detector.feed_batch(events)
    return detector, found, dict(enumerate(events, 1))


def test_an_explanation_has_fields_for_programs() -> None:
    detector, found, events = break_in()
    explanation = detector.explain(found, events)
    assert (explanation.definition.name, explanation.context, explanation.semantics) == (
        "break_in",
        "chronicle",
        "detection",
    )
    assert explanation.key == {"door": 7}
    assert [(part.role, part.name, part.leaf, part.offset) for part in explanation.parts] == [
        ("opener", "o", "[type = 'door.open'] AS o", 1),
        ("closer", "m", "[type = 'motion'] AS m", 3),
    ]
    assert [part.event for part in explanation.parts] == [events[1], events[3]]
    assert explanation.used == explanation.parts and explanation.open == ()
    assert explanation.completed_by == explanation.parts[1]
    assert explanation.missing == "Until m came (offset 3) there was no closer for NOT."
    assert (explanation.span, explanation.within) == (timedelta(seconds=30), timedelta(minutes=2))
    assert explanation.certain


def test_an_explanation_has_lines_for_people() -> None:
    detector, found, events = break_in()
    text = str(detector.explain(found, events))
    for said in ("for door = 7", "chronicle", "used up", "offset 1 door.open", "25% of what it may take", "forbidden"):
        assert said in text
    bare = detector.explain(found)
    assert bare.span is None and bare.parts[0].time is None
    assert [part.fate for part in bare.parts] == ["used", "used"]
    assert bare.text == str(bare)


def test_nested_operations_and_definitions_are_explained_from_the_top_down() -> None:
    detector = Detector()
    detector.define("pair", "SEQ([type = 'a'], [type = 'b'])", "chronicle")
    detector.define("late", "SEQ(pair AS p, PLUS([type = 'c'], 5 SECONDS) WITHIN 1 MINUTE) WITHIN 1 HOUR", "recent")
    events = [event("a", 1), event("b", 2), event("c", 3)]
    found = detector.feed_batch(events) + detector.advance(60 * SECOND)
    explanation = detector.explain(found[-1], dict(enumerate(events, 1)))
    assert [(step.depth, step.definition, step.text.split("(")[0], step.span) for step in explanation.steps] == [
        (0, "late", "SEQ", timedelta(seconds=7)),
        (1, "pair", "SEQ", timedelta(seconds=1)),
        (1, "late", "PLUS", None),
    ]
    assert [part.role for part in explanation.parts] == ["opener", "closer", "opener"]
    assert explanation.completed_by is None
    assert explanation.missing == "Until 1970-01-01T00:00:08Z there was no tick of PLUS, and so no closer for SEQ."
    assert [part.fate for part in explanation.parts] == ["open", "open", "used"]
    assert held(detector, "late") == {1, 2}


def test_ticks_are_parts_without_a_fate() -> None:
    detector = defined("P*([type='a'] AS a, 5 SECONDS, [type='c'] AS c)", "chronicle")
    [found] = detector.feed_batch(stream("a1@0 c1@11"))
    parts = detector.explain(found).parts
    assert [(part.role, part.fate) for part in parts] == [
        ("opener", "used"),
        ("tick", None),
        ("tick", None),
        ("closer", "used"),
    ]
    assert [part.time for part in parts[1:3]] == [EPOCH + timedelta(seconds=5), EPOCH + timedelta(seconds=10)]


def test_what_can_be_read_in_several_ways_is_not_guessed() -> None:
    detector = defined("AND([type='a'], [type='b'])", "chronicle")
    events = stream("b1@1 a1@2")
    [found] = detector.feed_batch(events)
    vague = detector.explain(found)
    assert not vague.certain and {part.leaf for part in vague.parts} == {None}
    assert [part.fate for part in vague.parts] == ["used", "used"]
    assert "several ways" in str(vague)
    clear = detector.explain(found, {1: events[0], 2: events[1]})
    assert clear.certain and [part.leaf for part in clear.parts] == ["[type = 'b']", "[type = 'a']"]


def test_a_definition_that_is_one_filter() -> None:
    detector = defined("[type = 'a'] AS a")
    [found] = detector.feed_batch(stream("a1@1"))
    explanation = detector.explain(found)
    assert explanation.rule == "Each event that matches the filter is one; nothing is kept."
    assert [part.fate for part in explanation.parts] == ["used"]


def test_thousands_of_parts_are_explained_in_a_moment() -> None:
    for text in ("A*([type='a'] AS a, [type='b'] AS b, [type='c'] AS c)", "A*([type='a'], [type='b'], [type='c'])"):
        detector = defined(text, "cumulative")
        events = stream(" ".join(["a1@1", *(f"b{n}@2" for n in range(3000)), "c1@3"]))
        [found] = detector.feed_batch(events)
        started = time.process_time()
        explanation = detector.explain(found, {event.offset: event for event in events if event.offset})
        assert time.process_time() - started < 3
        assert len(explanation.used) == 3002
        assert "and 2,972 more" in str(explanation)


def test_a_long_chain_is_explained() -> None:
    chain = [f"[type = 'x{number}']" for number in range(120)]
    detector = defined(f"SEQ({', '.join(chain)})", "chronicle")
    [found] = detector.feed_batch([event(f"x{number}", number) for number in range(120)])
    explanation = detector.explain(found)
    assert len(explanation.used) == 120 and explanation.certain
    assert len(explanation.steps) == 119


# -- what is none of ours


def refused(detector: Detector, given: Event, says: str, events: dict[int, Event] | None = None) -> None:
    with pytest.raises(EventError) as error:
        detector.explain(given, events)
    assert says in str(error.value)


def test_an_event_that_no_definition_made_is_refused() -> None:
    detector, found, events = break_in()
    refused(detector, event("motion", 3), "is not where derived events come from")
    refused(detector, Event("other", found.source, data=found.data), "other is no definition")
    refused(detector, Event(found.type, found.source, time=found.time), "no parts")
    refused(detector, Event(found.type, found.source, time=found.time, data={"parts": [{"name": "o"}]}), "no parts")
    refused(detector, found, "is another one", {1: events[3]})
    changed = Detector()
    changed.define("break_in", "SEQ([type = 'door.open'] AS o, [type = 'x'] AS x) BY door")
    refused(changed, found, "as it is now")


@pytest.mark.parametrize("text", ["SEQ([type='a'] AS a, [type='b'] AS b)", "PLUS([type='a'] AS a, 1 SECOND)"])
def test_an_event_of_an_earlier_definition_of_the_name_is_refused(text: str) -> None:
    for key in (1, 1.5, True, "x", "2026-11-16T08:00:00Z"):
        detector = defined(f"{text} BY k")
        found = detector.feed_batch([event(kind, 2, k=key) for kind in "ab"]) + detector.advance(3_600 * SECOND)
        assert [detector.explain(each).key for each in found] == [{"k": key}]
        for other in (defined(f"{text} BY k", "chronicle"), defined(f"{text} WITHIN 1 HOUR BY k"), defined(text)):
            refused(other, found[0], "as it is now")


def test_a_definition_that_occurs_several_times_at_once() -> None:
    detector = Detector()
    detector.define("pair", "SEQ([type='a'] AS a, [type='b'] AS b)", "continuous")
    detector.define("found", "AND(pair, [type='x'] AS x)", "recent")
    found = [each for each in detector.feed_batch(stream("x1@1 a1@2 a2@3 b1@4")) if each.type == "found"]
    fates = [[part.fate for part in detector.explain(each).parts] for each in found]
    assert fates == [["open", "perhaps", "perhaps"]] * 2
    assert held(detector, "found") == {1, 3, 4}, "the second has replaced the first"


# -- what is open


def test_waiting_says_what_is_open_and_what_for() -> None:
    detector = Detector()
    detector.define("pair", "SEQ([type = 'a'] AS a, [type = 'b'] AS b) WITHIN 1 MINUTE BY k", "chronicle")
    detector.define("late", "NOT(pair, [type = 'x'], PLUS([type = 'c'] AS c, 5 SECONDS))", "chronicle")
    detector.feed_batch([event("a", 1, k=1), event("a", 2, k=2), event("b", 3, k=1), event("a", 4, k=1), event("c", 5)])
    [first, second] = detector.waiting("pair")
    assert (first.key, first.offsets, first.since) == ({"k": 2}, (2,), EPOCH + timedelta(seconds=2))
    assert (first.wants, first.expires) == (("[type = 'b'] AS b",), EPOCH + timedelta(seconds=62))
    assert second.offsets == (4,)
    top, *rest = detector.waiting("late")
    assert (top.offsets, top.wants, top.ends) == ((1, 3), ("PLUS([type = 'c'] AS c, 5 SECONDS)",), "[type = 'x']")
    assert [each.ticks for each in rest if each.operation.startswith("PLUS")] == [EPOCH + timedelta(seconds=10)]
    assert len(detector.waiting("late", limit=2)) == 2
    assert str(first) == (
        "SEQ([type = 'a'] AS a, [type = 'b'] AS b) WITHIN 1 MINUTE for k = 2: since 1970-01-01T00:00:02Z; "
        "holds offset 2; waits for [type = 'b'] AS b; expires after 1970-01-01T00:01:02Z"
    )


@pytest.mark.parametrize(
    ("context", "wants"),
    [
        ("recent", ["[type = 'c']"]),
        ("chronicle", ["[type = 'c']"]),
        ("cumulative", ["[type = 'c']"]),
        ("continuous", ["[type = 'c']", "[type = 'a'] or [type = 'c']"]),
    ],
)
def test_waiting_for_other_kinds(context: str, wants: list[str]) -> None:
    detector = defined("ANY(3, [type = 'a'], [type = 'b'], [type = 'c'])", context)
    assert detector.feed_batch(stream("a1@1 b1@2")) == []
    assert [" or ".join(each.wants) for each in detector.waiting("found")] == wants


def test_explanations_are_values_that_travel() -> None:
    detector, found, events = break_in()
    explanation = detector.explain(found, events)
    assert msgspec.json.decode(msgspec.json.encode(explanation), type=Explanation) == explanation


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (2_500, "2.5 ms"),
        (2_521_158, "2.52 s"),
        (119_000_000, "119 s"),
        (1_000_000_000, "16.7 minutes"),
        (90_000_000_000, "25 hours"),
        (2_000_000_000_000, "23.1 days"),
    ],
)
def test_how_long_it_took_is_said_in_a_unit_for_people(micros: int, shown: str) -> None:
    detector = defined("SEQ([type = 'a'], [type = 'b'])")
    begun = EPOCH + timedelta(seconds=1)
    first = Event("a", "s", offset=1, arrived=begun)
    last = Event("b", "s", offset=2, arrived=begun + timedelta(microseconds=micros))
    [found] = [*detector.feed(first), *detector.feed(last)]
    assert f"({shown} from first to last)" in str(detector.explain(found, {1: first, 2: last}))

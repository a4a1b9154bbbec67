"""Definitions of one detector that come, change and go: who knows what of whom, and what stays."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from tocsin import DefinitionError, Detector, Event
from tocsin.clock import as_datetime, as_micros
from tocsin.composite.expression import CONTEXTS, Definition
from tocsin.composite.language import parse

NOON = as_datetime(1_800_000_000_000_000)
PAIR = "SEQ([type = 'a'], [type = 'b']) BY k"


def stream(kinds: str, first: int = 1) -> list[Event]:
    return [
        Event(kind, "/test", f"e{n}", data={"k": 1}, offset=n, arrived=NOON + timedelta(seconds=n))
        for n, kind in enumerate(kinds, first)
    ]


def shown(found: list[Event]) -> list[str]:
    return [f"{each.type}{[part.get('offset') for part in each.data['parts']]}" for each in found]


@pytest.mark.parametrize("is_stored", [False, True])
def test_of_what_it_is_made_of_it_sees_what_begins_after_it(is_stored: bool) -> None:
    made = Detector()
    made.define("low", PAIR)
    found = made.feed_batch(stream("a"))
    made.define("top", "SEQ(low, [type = 'c'])")
    made.define("also", "SEQ(top, [type = 'd'])")
    if is_stored:
        made = Detector.restore(made.snapshot())
    found += made.feed_batch(stream("bc", 2))
    assert shown(found) == ["low[1, 2]"]
    assert shown(made.feed_batch(stream("abcd", 4))) == ["low[4, 5]", "top[4, 5, 6]", "also[4, 5, 6, 7]"]
    assert "low" in made.draw() and made.waiting("top")


def test_one_that_is_made_anew_begins_for_all_that_are_made_of_it_and_they_keep_what_they_have() -> None:
    made = Detector()
    made.define("low", PAIR, "chronicle")
    made.feed_batch(stream("a"))
    made.define("top", "SEQ([type = 'x'], low) BY k", "chronicle")
    found = made.feed_batch(stream("xa", 2))
    made.define("low", PAIR, "chronicle", replace=True)
    found += made.feed_batch(stream("bab", 4))
    assert shown(found) == ["low[5, 6]", "top[2, 5, 6]"]


@pytest.mark.parametrize("context", CONTEXTS)
def test_it_finds_what_a_detector_finds_that_began_with_it(context: str) -> None:
    """Whoever else is there: what a definition detects follows from itself and from what came after it."""
    draw, found = random.Random(context), 0
    for _ in range(20):
        texts = {
            "low": "SEQ([type = 'a'], [type = 'b']) WITHIN 9 SECONDS BY k",
            "mid": "AND(low, [type = 'c'])",
            "top": "SEQ(mid, PLUS(low, 2 SECONDS))",
        }
        events, begins = stream("".join(draw.choices("abc", k=60))), sorted(draw.sample(range(50), 3))
        made = Detector()
        alone = {name: Detector() for name in texts}
        wanted: dict[str, list[str]] = {name: [] for name in texts}
        told: dict[str, list[str]] = {name: [] for name in texts}
        for event in events:
            for name, since in zip(texts, begins, strict=True):
                if event.offset == since + 1:
                    made.define(name, texts[name], context)
                    for each in made.family(name):
                        alone[name].define(each.name, each.text, context)
            for each in made.feed(event):
                told[each.type].append(each.id)
            for name, detector in alone.items():
                wanted[name] += [each.id for each in detector.feed(event) if each.type == name]
        assert told == wanted
        found += sum(map(len, told.values()))
    assert found > 100


def test_what_is_open_stays_whatever_takes_the_place_of_what_it_is_made_of() -> None:
    """One event first, then something that is made of several, and the other way round."""
    for first, then, kinds in (("[type = 'a']", "SEQ([type = 'a'], [type = 'd'])", "a"), (PAIR, "[type = 'a']", "ab")):
        made = Detector()
        made.define("low", first, "chronicle")
        made.define("top", "SEQ(low, [type = 'c'])", "chronicle")
        made.feed_batch(stream(kinds))
        made.define("low", then, "chronicle", replace=True)
        found = [each for each in made.feed_batch(stream("adcc", 3)) if each.type == "top"]
        opened = [each.offset for each in stream(kinds)]
        assert [[part["offset"] for part in each.data["parts"]][: len(opened)] for each in found[:1]] == [opened]
        assert len(found) == 2


def test_one_that_takes_the_place_of_another_knows_nothing_of_what_that_had_of_others() -> None:
    made = Detector()
    made.define("low", PAIR)
    made.feed_batch(stream("a"))
    made.define("top", "SEQ(low, [type = 'c'])")
    made.feed_batch(stream("a", 2))
    made.define("top", "low", replace=True)
    assert shown(made.feed_batch(stream("bab", 3))) == ["low[2, 3]", "low[4, 5]", "top[4, 5]"]


def test_a_past_brings_what_it_is_made_of_along() -> None:
    made = Detector()
    made.define("low", PAIR)
    made.feed_batch(stream("a"))
    rehearsed = made.rehearsal("top", "SEQ(low, [type = 'c'])")
    rehearsed.feed_batch(stream("a"))
    made.define("top", "SEQ(low, [type = 'c'])", rehearsed=rehearsed)
    assert shown(made.feed_batch(stream("bc", 2))) == ["low[1, 2]", "top[1, 2, 3]"]


def test_those_it_is_made_of_come_before_those_that_are_made_of_them() -> None:
    made = Detector()
    made.define("low", PAIR)
    made.define("mid", "AND(low, [type = 'c'])")
    made.define("top", "SEQ(mid, PLUS(low, 2 SECONDS))")
    assert [each.name for each in made.family("top")] == ["low", "mid", "top"]


# -- many at once


def definitions(**texts: str) -> list[Definition]:
    return [parse(name, text) for name, text in texts.items()]


def test_it_becomes_another_at_once() -> None:
    made = Detector()
    made.become(definitions(nn=PAIR, dep="SEQ(nn, [type = 'c']) BY k", other=PAIR))
    made.feed_batch(stream("a"))
    made.become(definitions(dep="SEQ([type = 'a'], [type = 'c'])", nn="SEQ(dep, [type = 'e'])", other=PAIR))
    assert [each.name for each in made.definitions()] == ["nn", "dep", "other"]
    assert shown(made.feed_batch(stream("bace", 2))) == ["other[1, 2]", "dep[3, 4]", "nn[3, 4, 5]"]
    made.become([])
    assert made.definitions() == [] and made.next_timer is None


def test_what_goes_takes_its_timers_along_also_if_what_is_made_of_it_is_replaced() -> None:
    made = Detector()
    made.become(definitions(low="P([type = 'a'], 1 SECOND, [type = 'z'])", top="SEQ(low, [type = 'c'])"))
    made.feed_batch(stream("a"))
    assert made.next_timer is not None
    made.become(definitions(top="SEQ([type = 'd'], [type = 'c'])"))
    assert made.next_timer is None and [each.name for each in made.definitions()] == ["top"]


def test_what_does_not_fit_changes_nothing() -> None:
    made = Detector()
    made.become(definitions(low=PAIR))
    made.feed_batch(stream("a"))
    with pytest.raises(DefinitionError):
        made.become(definitions(low="SEQ(top, [type = 'b'])", top="SEQ(low, [type = 'c'])"))
    assert shown(made.feed_batch(stream("b", 2))) == ["low[1, 2]"]


def test_absolute_times_count_from_when_each_begins() -> None:
    made, begun = (
        Detector(),
        {name: as_micros(NOON) + seconds * 1_000_000 for name, seconds in (("one", 60), ("two", 240))},
    )
    made.feed_batch(stream("a"))
    made.become(definitions(one="AT '* * * * *'", two="AT '*/2 * * * *'"), now=begun)
    found = made.advance(as_micros(NOON) + 300_000_000)
    assert [(each.type, (each.time - NOON).total_seconds()) for each in found if each.time] == [
        ("one", 120.0), ("one", 180.0), ("one", 240.0), ("one", 300.0),
    ]  # fmt: skip

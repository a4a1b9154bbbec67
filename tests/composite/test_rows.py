"""Columns against events: the same detections in the same order, the same figures, and state that goes on either way.

Instants lie closer together here than in `test_oracle`: what is too old is given up many at a time (`agenda.SLACK`),
and that must make no difference, also where there is no room for all that is open.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from tests.composite.in_columns import events_of, rows_of
from tests.composite.test_oracle import some_definition
from tocsin import DefinitionError, Detector, Event
from tocsin.cloudevents import encode_json
from tocsin.composite.deriving import Derived
from tocsin.composite.expression import CONTEXTS, OPERATORS
from tocsin.filters.values import micros
from tocsin.model import CLASSIFICATION

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAIRS = (
    "SEQ([type = 'a'], [type = 'b']) WITHIN 1 SECOND BY machine",
    "NOT([type = 'a'], [type = 'c'], [type = 'b']) WITHIN 1 SECOND BY machine",
    "SEQ([type = 'a'] AS x, [type = 'b'] AS y) WITHIN 2 SECONDS WHERE x.value < y.value",
    "SEQ([type = 'a'], SEQ([type = 'b'], [type = 'c']) WITHIN 1 SECOND) WITHIN 2 SECONDS BY machine",
    "SEQ([type in ('a', 'b')], [type in ('b', 'c')]) WITHIN 1 SECOND BY machine",
    "A([type = 'a'], [type = 'b'], [type = 'c']) WITHIN 1 SECOND BY machine",
    "AND([type = 'a'], [type = 'b']) WITHIN 1 SECOND BY machine",
    "SEQ([type = 'a'], [type = 'b'])",
    "SEQ(AT '12:00:03', [type = 'b']) WITHIN 2 SECONDS",
)


def some_events(draw: random.Random, count: int) -> list[Event]:
    found, time = [], NOON
    for offset in range(1, count + 1):
        data = {"machine": draw.choice(["m1", "m1", "m2", 7, None]), "value": draw.randint(0, 5)}
        kind, source = draw.choice("aaabbbcccde"), "/test"
        if draw.random() < 0.05:
            kind, source = draw.choice((("tocsin.clock", "tocsin"), ("tocsin.note", "t"), ("a", "tocsin:definitions")))
        level = draw.choice(CLASSIFICATION) if draw.random() < 0.2 else CLASSIFICATION[0]
        found.append(Event(kind, source, f"e{offset}", data=data, offset=offset, arrived=time, classification=level))
        time += timedelta(milliseconds=draw.choice((0, 0, 10, 50, 120, 300, 1100)))
    return found


def agree(made: Detector, events: list[Event], draw: random.Random) -> int:
    """Feed two detectors in batches, one with events and one in columns, by turns; returns how much was detected."""
    one, other, count = made, Detector.restore(made.snapshot()), 0
    names = [each.name for each in made.definitions()]
    while events:
        size = draw.randint(1, min(len(events), 40))
        batch, events = events[:size], events[size:]
        wanted = one.feed_batch(batch)
        derived, first, last = Derived(), batch[0], batch[-1]
        assert first.arrived is not None and last.offset is not None and last.arrived is not None
        other.begin(max(micros(first.arrived), other.time))  # it may be one that no leaf sees
        other.feed_rows(rows_of(other, batch), derived, names)
        other.reach(last.offset, micros(last.arrived), derived, names)
        found = events_of(derived)
        assert [(each.type, each.id, each.time, each.classification) for each in found] == [
            (each.type, each.id, each.time, each.classification) for each in wanted
        ]
        assert derived.data == [encode_json(each.data, "data") for each in wanted]
        assert other.stats()["definitions"] == one.stats()["definitions"]
        assert other.stats()["keyless"] == one.stats()["keyless"]
        assert (other.position, other.time) == (one.position, one.time)
        assert [other.waiting(name, 50) for name in names] == [one.waiting(name, 50) for name in names]
        if draw.random() < 0.3:
            one, other = other, Detector.restore(one.snapshot())
        count += len(wanted)
    return count


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("text", PAIRS)
def test_pairs_and_what_stands_beside_them(text: str, context: str) -> None:
    count = 0
    for seed in range(6):
        draw = random.Random(f"{text} {context} {seed}")
        made = Detector()
        made.define("found", text, context, max_open=draw.choice((None, None, 2, 5)))
        count += agree(made, some_events(draw, 120), draw)
    assert count > 3


APART = (
    "SEQ([type = 'a'], [type = 'b']) WITHIN 1 SECOND BY machine",
    "SEQ([type = 'b'] AS first, [type = 'c'] AS then) WITHIN 2 SECONDS BY machine",
    "SEQ([type = 'a'], [type = 'b']) BY machine",
    "SEQ([type in ('a', 'd')], [type = 'c']) WITHIN 300 MILLISECONDS BY machine",
    "NOT([type = 'a'], [type = 'c'], [type = 'b']) WITHIN 1 SECOND BY machine",
    "NOT([type = 'c'], [type = 'a'], [type in ('b', 'd')]) BY machine",
)
"""Those in which no key has to do with another: they are fed key by key."""


@pytest.mark.parametrize("max_open", [None, 40, 4])
@pytest.mark.parametrize("seed", range(8))
def test_key_by_key(seed: int, max_open: int | None) -> None:
    """Several definitions BY the same field, each in a context of its own; sometimes there is no room for all."""
    draw = random.Random(f"apart {seed} {max_open}")
    made = Detector()
    for number, text in enumerate(draw.sample(APART, 4)):
        made.define(f"d{number}", text, draw.choice(("recent", "chronicle", "continuous")), max_open=max_open)
    assert made.is_apart
    assert agree(made, some_events(draw, 400), draw) > 20


def test_key_by_key_tells_what_has_one_id_once() -> None:
    """Two openers of one source and id: what they make with a closer would have the same id."""
    made = Detector()
    made.define("pair", "SEQ([type = 'a'], [type = 'b']) BY machine", "continuous")
    events = [
        Event(kind, "/test", name, data={"machine": "m"}, offset=offset, arrived=NOON)
        for offset, (kind, name) in enumerate([("a", "x"), ("a", "y"), ("a", "x"), ("b", "z")], 1)
    ]
    other, derived = Detector.restore(made.snapshot()), Derived()
    other.feed_rows(rows_of(other, events), derived, ["pair"])
    assert derived.pairs
    derived.settle()
    assert derived.ids == [each.id for each in made.feed_batch(events)]
    assert len(derived.ids) == 2 == other.stats()["detected"]["pair"]


def test_few_rows_for_each_key_go_in_the_order_of_events() -> None:
    made, derived = Detector(), Derived()
    made.define("pair", "SEQ([type = 'a'], [type = 'b']) BY machine", "chronicle")
    events = [
        Event(kind, "/test", f"e{offset}", data={"machine": (offset - 1) // 3}, offset=offset, arrived=NOON)
        for offset, kind in enumerate("aabaabaab", 1)
    ]
    made.feed_rows(rows_of(made, events), derived, ["pair"])
    assert derived.ids and not derived.pairs


@pytest.mark.parametrize(
    "others",
    [
        ["SEQ([type = 'a'], [type = 'b']) BY source"],
        ["AND([type = 'a'], [type = 'b']) BY machine"],
        ["SEQ([type = 'a'] AS x, [type = 'b'] AS y) BY machine WHERE x.value < y.value"],
        ["SEQ([type = 'a'], AT '12:00:03') BY machine"],
        ["SEQ([type = 'a'], SEQ([type = 'b'], [type = 'c'])) BY machine"],
        ["[type = 'a'] BY machine"],
    ],
)
def test_what_is_not_fed_key_by_key(others: list[str]) -> None:
    made = Detector()
    made.define("pair", APART[0], "chronicle")
    assert made.is_apart
    for number, text in enumerate(others):
        made.define(f"other{number}", text, "chronicle")
    assert not made.is_apart


def test_without_by_there_is_nothing_to_divide() -> None:
    made = Detector()
    made.define("pair", "SEQ([type = 'a'], [type = 'b'])", "chronicle")
    assert not made.is_apart


def test_random_definitions_together() -> None:
    counts = []
    for seed in range(40):
        draw = random.Random(f"together {seed}")
        made, known = Detector(), list[tuple[str, bool]]()
        for number in range(5):
            (name, text, context, semantics), keyed = some_definition(draw, f"d{number}", known, draw.choice(OPERATORS))
            try:
                made.define(name, text, context, semantics, max_open=draw.choice((None, 3, 20)))
            except DefinitionError:  # a draw that means nothing
                continue
            known.append((name, keyed))
        counts.append(agree(made, some_events(draw, 100), draw))
    assert sum(1 for count in counts if count > 5) > 30

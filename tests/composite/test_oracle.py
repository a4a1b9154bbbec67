"""The engine against the oracle: random definitions over random streams, in every way of feeding.

The oracle must reproduce the worked vectors first. Then the engine must agree with it, detection for detection and in
order: fed one by one, in random batches, in columns, with time let pass in between and snapshots at random places.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.composite.in_columns import events_of, rows_of
from tests.composite.oracle import SECOND, Found, Simple, detections
from tests.composite.test_vectors import CASES, EPOCH, VECTORS, wanted
from tocsin.composite import Detector
from tocsin.composite.deriving import Derived
from tocsin.composite.expression import CONTEXTS, OPERATORS, SEMANTICS, Operator
from tocsin.composite.language import parse
from tocsin.filters.values import micros
from tocsin.model import Event, parse_time

FILTERS = ("type = 'a'", "type = 'b'", "type = 'c'", "type = 'd'", "value > 2", "type in ('a', 'b')", "type <> 'c'")
HORIZON = 26


class Case(NamedTuple):
    """Definitions, (name, text, context, semantics) each, and a stream."""

    definitions: tuple[tuple[str, str, str, str], ...]
    events: tuple[Simple, ...]

    def expected(self) -> list[Found]:
        return detections([parse(*each) for each in self.definitions], self.events, HORIZON)

    def detector(self) -> Detector:
        detector = Detector()
        for each in self.definitions:
            detector.define(*each)
        return detector


# -- what is drawn


def some_leaf(draw: random.Random, names: list[str], known: list[str]) -> str:
    if known and draw.random() < 0.3:
        return draw.choice(known)
    plain = draw.random() < 0.75
    text = f"[{draw.choice(FILTERS[:4] if plain else FILTERS[4:])}]"
    if draw.random() < 0.5:
        names.append(f"n{len(names)}")
        text += f" AS {names[-1]}"
    return text


def some_expression(
    draw: random.Random, depth: int, names: list[str], known: list[str], operator: Operator | None = None
) -> str:
    if operator is None:
        if depth == 0 or draw.random() < 0.3:
            return some_leaf(draw, names, known)
        return some_expression(draw, depth, names, known, draw.choice(OPERATORS))
    few: dict[Operator, int] = {"NOT": 3, "A": 3, "A*": 3, "P": draw.choice((1, 2, 2, 2)), "P*": 2, "PLUS": 1}
    count = few.get(operator, 0) or (draw.randint(2, 4) if operator == "ANY" else draw.choice((2, 2, 2, 3)))
    items = [some_expression(draw, depth - 1, names, known) for _ in range(count)]
    if operator in ("P", "P*", "PLUS"):
        items.insert(1, f"{draw.randint(1, 5)} SECONDS")
    if operator == "ANY":
        items.insert(0, str(draw.choice((1, 2, 2, count))))
    text = f"{operator}({', '.join(items)})"
    return text if draw.random() < 0.75 else f"{text} WITHIN {draw.randint(2, 14)} SECONDS"


def some_where(draw: random.Random, names: list[str]) -> str:
    if not names or draw.random() < 0.7:
        return ""
    conditions = []
    for _ in range(draw.choice((1, 1, 2))):
        right = f"{draw.choice(names)}.value" if draw.random() < 0.6 else str(draw.randint(0, 5))
        conditions.append(f"{draw.choice(names)}.value {draw.choice(('<', '<=', '>', '>=', '=', '<>'))} {right}")
    return f" WHERE {' AND '.join(conditions)}"


def some_events(draw: random.Random) -> tuple[Simple, ...]:
    found, time = [], draw.randint(0, 2)
    keys: list[str | int] = ["m1", "m1", "m2", 7] if draw.random() < 0.5 else ["m1"]
    for offset in range(1, draw.randint(4, 18) + 1):
        found.append(
            Simple(
                draw.choice("aaabbbcccde"),
                time,
                offset,
                None if draw.random() < 0.05 else draw.choice(keys),
                None if draw.random() < 0.1 else draw.randint(0, 5),
            )
        )
        time += draw.choice((0, 0, 1, 1, 2, 3))
    return tuple(each for each in found if each.time <= HORIZON)


def some_definition(
    draw: random.Random, name: str, known: Sequence[tuple[str, bool]] = (), operator: Operator | None = None
) -> tuple[tuple[str, str, str, str], bool]:
    keyed = draw.random() < 0.3
    names: list[str] = []
    usable = [other for other, theirs in known if theirs or not keyed]
    text = some_expression(draw, draw.choice((1, 1, 2, 2, 3)), names, usable, operator)
    text += (" BY machine" if keyed else "") + some_where(draw, names)
    return (name, text, draw.choice(CONTEXTS), draw.choice(SEMANTICS)), keyed


def some_case(draw: random.Random, *, most: int = 1) -> Case:
    """One definition, or several of which the later are made of the earlier."""
    definitions: list[tuple[str, str, str, str]] = []
    known: list[tuple[str, bool]] = []
    for number in range(most):
        definition, keyed = some_definition(draw, f"d{number}", known)
        definitions.append(definition)
        known.append((definition[0], keyed))
    return Case(tuple(definitions), some_events(draw))


# -- what the engine says


def read(event: Event) -> Found:
    assert event.time is not None
    parts = []
    for part in event.data["parts"]:
        text = part["id"] if "id" in part else f"t{micros(parse_time(part['time'], 'time'))}"
        named = part["name"].startswith("n")
        parts.append(f"{part['name']}={text}" if named else text)
    return Found(event.type, micros(event.time), tuple(parts), tuple(event.data["key"].values()))


def fed_one_by_one(case: Case, draw: random.Random) -> list[Event]:
    detector = case.detector()
    found = [event for each in case.events for event in detector.feed(each.event)]
    return found + detector.advance(HORIZON * SECOND)


def fed_in_batches(case: Case, draw: random.Random) -> list[Event]:
    detector, found, rest = case.detector(), [], [each.event for each in case.events]
    while rest:
        size = draw.randint(1, len(rest))
        found += detector.feed_batch(rest[:size])
        rest = rest[size:]
    return found + detector.advance(HORIZON * SECOND)


def fed_with_snapshots(case: Case, draw: random.Random) -> list[Event]:
    """Also lets time pass, where the next event is later."""
    detector, found = case.detector(), []
    for each in case.events:
        if draw.random() < 0.3:
            before = each.time * SECOND - draw.choice((1, SECOND // 2))
            if all(other.time * SECOND <= before for other in case.events if other.offset < each.offset):
                found += detector.advance(before)
        if draw.random() < 0.5:
            detector = Detector.restore(detector.snapshot())
        found += detector.feed(each.event)
    detector = Detector.restore(detector.snapshot())
    return found + detector.advance(HORIZON * SECOND)


def fed_in_columns(case: Case, draw: random.Random) -> list[Event]:
    """Some batches in columns and others as events, by turns, with snapshots in between: they share one state."""
    detector, found, rest = case.detector(), [], [each.event for each in case.events]
    while rest:
        size = draw.randint(1, len(rest))
        batch, rest = rest[:size], rest[size:]
        if draw.random() < 0.3:
            detector = Detector.restore(detector.snapshot())
        if draw.random() < 0.3:
            found += detector.feed_batch(batch)
            continue
        derived, last, emits = Derived(), batch[-1], [name for name, *_ in case.definitions]
        detector.feed_rows(rows_of(detector, batch), derived, emits)
        assert last.offset is not None and last.arrived is not None
        detector.reach(last.offset, micros(last.arrived), derived, emits)
        found += events_of(derived)
    return found + detector.advance(HORIZON * SECOND)


def agree(case: Case, draw: random.Random) -> int:
    """Compare all ways of feeding; returns how many detections there were."""
    expected = case.expected()
    ids = None
    for way in (fed_one_by_one, fed_in_batches, fed_with_snapshots, fed_in_columns):
        found = way(case, draw)
        assert [read(event) for event in found] == expected, (way.__name__, case)
        assert ids is None or ids == [event.id for event in found], (way.__name__, case)
        ids = [event.id for event in found]
        assert len(set(ids)) == len(ids), case
    return len(expected)


# -- what the engine once got wrong; streams are `kind@second:machine:value`

REGRESSIONS = {
    "what closed something does not open, also as part of something with the same events": (
        [("d0", "AND(AND([type = 'a'], [type = 'a']), [type <> 'c'])", "chronicle")],
        "e@1 a@2 a@3",
        "d0@2(e1,a2,a2) d0@3(a3,a3,a3)",
    ),
    "ANY does not keep as a third kind an event that completed it with itself": (
        [("d0", "ANY(2, [type = 'a'], [type <> 'c'], [type <> 'd'])", "chronicle")],
        "a@1 d@2",
        "d0@1(a1,a1)",
    ),
    "ANY in continuous leaves no window of an event that completed one with itself": (
        [("d0", "ANY(3, [type = 'a'], [type <> 'c'], [type <> 'd'])", "continuous")],
        "a@1 c@2 a@3",
        "d0@1(a1,a1,a1) d0@3(c2,a3,a3)",
    ),
    "what waits as two kinds is used up as one, also without a snapshot": (
        [("d0", "ANY(2, [type = 'b'], [type = 'b'], [type <> 'c'] AS n0) WHERE n0.value > 1", "chronicle")],
        "b@1::0 b@2::3 a@3::5",
        "d0@2(b1,n0=b2) d0@3(b1,n0=a3)",
    ),
    "OR tries the right side where WHERE is not true of the left one": (
        [("d0", "OR([type = 'a'] AS n0, [type <> 'c'] AS n1) WHERE n1.value > 0", "recent")],
        "a@1::1",
        "d0@1(n1=a1)",
    ),
    "an opener that is too old does not lend its ticks to a later one": (
        [("d0", "P([type = 'a'], 2 SECONDS) WITHIN 2 SECONDS", "cumulative")],
        "a@1 a@4",
        "d0@3(a1) d0@6(a2)",
    ),
    "nor to one that comes by a timer": (
        [("d0", "P(PLUS([type = 'a'], 1 SECOND), 2 SECONDS) WITHIN 3 SECONDS", "cumulative")],
        "a@1 a@4",
        "d0@4(a1) d0@7(a2)",
    ),
    "a closer goes before a tick, also if it comes by a timer": (
        [("d0", "P([type = 'a'], 2 SECONDS, PLUS([type = 'b'], 3 SECONDS))", "continuous")],
        "a@1 b@2",
        "d0@3(a1)",
    ),
    "A* is not closed by a combination of which WHERE is not true": (
        [("d0", "A*([type = 'a'] AS n0, [type = 'b'], [type = 'c'] AS n1) WHERE n1.value > n0.value", "chronicle")],
        "a@1::5 a@2::1 b@3 c@4::3 c@5::9",
        "d0@4(n0=a2,b3,n1=c4) d0@5(n0=a1,b3,n1=c5)",
    ),
    "WITHIN holds for all of a named definition": (
        [
            ("d0", "SEQ([type = 'a'], [type = 'b'])", "recent"),
            ("d1", "SEQ([type = 'c'], d0) WITHIN 3 SECONDS", "recent"),
        ],
        "a@1 c@8 b@9",
        "d0@9(a1,b3)",
    ),
    "a named definition's detections of one instant come in order, whatever their keys": (
        [("d0", "PLUS([type = 'a'], 2 SECONDS) BY machine", "continuous"), ("d1", "SEQ(d0, [type = 'c'])", "recent")],
        "a@1:m1 a@1:m2 a@1:m3 a@1:m4 c@5",
        "d0@3(a1)m1 d0@3(a2)m2 d0@3(a3)m3 d0@3(a4)m4 d1@5(a4,c5)",
    ),
    "two detections of a named definition with one id are one": (
        [("d0", "AND([type = 'a'], [type <> 'c'])", "recent"), ("d1", "SEQ(d0, [type = 'c'])", "chronicle")],
        "a@1 a@2 c@3 c@4 c@5",
        "d0@1(a1,a1) d0@2(a1,a2) d1@3(a1,a1,c3) d1@4(a1,a2,c4)",
    ),
    "a definition that is another one, without its key": (
        [("d0", "SEQ([type = 'a'], [type = 'b']) BY machine", "recent"), ("d1", "d0", "recent")],
        "a@1:m1 b@2:m1",
        "d0@2(a1,b2)m1 d1@2(a1,b2)",
    ),
    "names in a named definition are its own": (
        [
            ("d0", "SEQ([type = 'a'] AS n0, [type = 'b'] AS n1) WHERE n1.value > n0.value", "recent"),
            ("d1", "SEQ([type = 'c'] AS n0, d0) WHERE n0.value > 3", "recent"),
        ],
        "c@1::5 a@2::1 b@3::2",
        "d0@3(n0=a2,n1=b3) d1@3(n0=c1,n0=a2,n1=b3)",
    ),
    "a window ticks although another opener of its instant was used as closer": (
        [("d0", "P(OR(SEQ([type = 'a'], [type = 'b']), [type = 'b']), 2 SECONDS, [type = 'b'])", "chronicle")],
        "b@1 a@1 b@2 b@5",
        "d0@4(a2,b3)",
    ),
    "a tick lies behind the events of its time": (
        [
            (
                "d0",
                "OR(P*([type = 'a'], 2 SECONDS, [type = 'c']), A*([type = 'a'], [type = 'b'], [type = 'c']))",
                "recent",
            )
        ],
        "a@1 b@3 c@4",
        "d0@4(a1,b2,c3) d0@4(a1,t3000000,c3)",
    ),
}


def stream(text: str) -> tuple[Simple, ...]:
    found = []
    for offset, word in enumerate(text.split(), 1):
        kind, _, rest = word.partition("@")
        second, machine, value = [*rest.split(":"), "", ""][:3]
        found.append(Simple(kind, int(second), offset, machine or None, int(value) if value else None))
    return tuple(found)


def shown(found: Found) -> str:
    return f"{found.definition}@{found.time // SECOND}({','.join(found.parts)}){','.join(found.key)}"


# -- tests


@pytest.mark.parametrize(("text", "context"), CASES)
def test_the_oracle_reproduces_the_vectors(text: str, context: str) -> None:
    events, words = [], {}
    for offset, word in enumerate(VECTORS[text][0].split(), 1):
        name, _, second = word.partition("@")
        events.append(Simple(name[0], int(second), offset))
        words[f"{name[0]}{offset}"] = name
    found = []
    for each in detections([parse("found", text, context)], events, 34):
        parts = [words.get(part) or f"t{int(part[1:]) // SECOND}" for part in each.parts]
        found.append(f"{each.time // SECOND}:({','.join(parts)})")
    assert found == wanted(text, context)
    assert micros(EPOCH) == 0


def test_the_oracle_knows_interval_semantics() -> None:
    text = "SEQ([type='a'], SEQ([type='b'], [type='c']))"
    events = [Simple("b", 1, 1), Simple("a", 2, 2), Simple("c", 3, 3)]
    assert len(detections([parse("found", text)], events, 9)) == 1
    assert detections([parse("found", text, "recent", "interval")], events, 9) == []


@pytest.mark.parametrize("what", REGRESSIONS)
def test_once_wrong(what: str) -> None:
    definitions, events, found = REGRESSIONS[what]
    case = Case(tuple((*each, "detection") for each in definitions), stream(events))
    assert " ".join(shown(each) for each in case.expected()) == found
    agree(case, random.Random(what))


def test_definitions_that_share_nodes_do_not_disturb_each_other() -> None:
    for seed in range(60):
        draw = random.Random(f"shared {seed}")
        text = some_expression(draw, 2, [], [], draw.choice(OPERATORS))
        text = re.sub(r" AS n\d+", "", text)
        context, semantics = draw.choice(CONTEXTS), draw.choice(SEMANTICS)
        texts = [
            text,
            f"SEQ({text}, [type = 'c'])",
            f"AND([value > 2], {text})",
            f"OR({text}, {text}) WITHIN 9 SECONDS",
        ]
        definitions = [(f"d{number}", each, context, semantics) for number, each in enumerate(texts)]
        definitions.append(("d9", text, draw.choice(CONTEXTS), semantics))
        agree(Case(tuple(definitions), some_events(draw)), draw)


def test_a_sweep_of_seeds() -> None:
    """So many that few can be empty, else nothing was compared."""
    detected = [agree(some_case(random.Random(seed)), random.Random(seed)) for seed in range(400)]
    assert sum(1 for count in detected if count) >= 200


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_in_every_context_detects(operator: Operator) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for context, semantics, seed in product(CONTEXTS, SEMANTICS, range(60)):
        if seed >= 12 and seen[context, semantics] >= 4:
            continue
        draw = random.Random(f"{operator} {context} {semantics} {seed}")
        (name, text, _, _), _ = some_definition(draw, "d0", operator=operator)
        case = Case(((name, text, context, semantics),), some_events(draw))
        seen[context, semantics] += agree(case, draw) > 0
    assert all(seen[way] >= 4 for way in product(CONTEXTS, SEMANTICS)), seen


def test_definitions_made_of_definitions() -> None:
    detected: Counter[str] = Counter()
    for seed in range(150):
        draw = random.Random(f"named {seed}")
        case = some_case(draw, most=3)
        agree(case, draw)
        detected.update({found.definition for found in case.expected()})
    assert all(detected[name] >= 50 for name in ("d0", "d1", "d2")), detected


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.randoms(use_true_random=False), st.integers(1, 2))
def test_engine_and_oracle_agree(draw: random.Random, most: int) -> None:
    agree(some_case(draw, most=most), draw)

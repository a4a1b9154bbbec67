"""The engine's shortcuts: each gives what the long way gives, and what is noted for later stays small."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.composite.test_golden_ids import GOLDEN, WAYS
from tests.composite.test_golden_ids import stream as golden_stream
from tests.composite.test_oracle import HORIZON, SECOND, Case, some_case
from tocsin import Detector, Event
from tocsin.clock import as_datetime
from tocsin.composite.detector import CLOCK, SOURCE
from tocsin.composite.engine import Engine
from tocsin.composite.pairs import Pairs
from tocsin.composite.windows import Windows
from tocsin.filters.index import engine as kernels

NOON = as_datetime(1_800_000_000 * SECOND)
PAIR = "SEQ([type = 'a'] AS a, [type = 'b'] AS b)"


def event(type: str, second: float = 0, **data: Any) -> Event:
    return Event(type, "/test", id=f"{type}{second}", data=data, time=NOON + timedelta(seconds=second))


def detector(text: str, context: str = "chronicle", **options: Any) -> Detector:
    made = Detector(**options)
    made.define("found", text, context)
    return made


def engine_of(made: Detector) -> Engine:
    made.feed_batch(())
    assert made._engine is not None
    return made._engine


def through_inboxes(made: Detector) -> Detector:
    """No arrival is taken at once."""
    engine = engine_of(made)
    engine._reaches = {kind: reach._replace(is_simple=False) for kind, reach in engine._reaches.items()}
    if engine._rest is not None:
        engine._rest = engine._rest._replace(is_simple=False)
    return made


def in_windows(made: Detector) -> Detector:
    """Every opener has a window."""
    for operation in engine_of(through_inboxes(made)).operations.values():
        if isinstance(operation.work, Pairs):
            operation.work = Windows(operation.node.rules)
            operation.size = operation.work.size
            operation.is_plain = operation.leaves = False
    return made


def everything(made: Detector, events: Iterable[Event], until: Any) -> tuple[list[Event], Any, Any]:
    found = made.feed_batch(events)
    held = [made.waiting(each.name, 100) for each in made.definitions()]
    return found + made.advance(until), held, made.stats()


@pytest.mark.parametrize("long_way", [through_inboxes, in_windows])
def test_every_operator_the_long_way(long_way: Any) -> None:
    for text in GOLDEN:
        for context, semantics in WAYS:
            short, long = Detector(), Detector()
            for made in (short, long):
                made.define("found", text, context, semantics)
            until = NOON + timedelta(seconds=30)
            expected = everything(short, golden_stream(), until)
            assert everything(long_way(long), golden_stream(), until) == expected, (text, context)


@pytest.mark.parametrize("long_way", [through_inboxes, in_windows])
def test_random_definitions_the_long_way(long_way: Any) -> None:
    compared = 0
    for seed in range(150):
        case: Case = some_case(random.Random(f"ways {seed}"), most=2)
        events = [each.event for each in case.events]
        expected = everything(case.detector(), events, HORIZON * SECOND)
        assert everything(long_way(case.detector()), events, HORIZON * SECOND) == expected, case
        compared += len(expected[0])
    assert compared > 100


# -- events that no leaf sees


def test_what_no_leaf_sees_lets_time_pass() -> None:
    made = detector("PLUS([type = 'a'], 5 SECONDS)")
    found = made.feed_batch([event("a", 0), event("x", 3), event("x", 7), event("a", 8), event("x", 20)])
    assert [each.time for each in found] == [NOON + timedelta(seconds=5), NOON + timedelta(seconds=13)]
    assert made.time == 1_800_000_020 * SECOND
    assert made.stats()["events"] == made.position == 5


def test_what_no_leaf_sees_lets_openers_grow_old() -> None:
    made = detector(f"{PAIR} WITHIN 5 SECONDS")
    made.feed_batch([event("a", 0), event("x", 6)])
    assert made.stats()["definitions"]["found"] == {"detected": 0, "open": 0, "expired": 1, "dropped": 0}


def test_times_that_go_backward_among_what_no_leaf_sees() -> None:
    made = detector(PAIR)
    [found] = made.feed_batch([event("x", 10), event("a", 3), event("x", 12), event("x", 4), event("b", 5)])
    assert found.time == NOON + timedelta(seconds=12)


def test_a_batch_is_the_same_as_its_events_one_by_one() -> None:
    draw = random.Random(7)
    events = [event(draw.choice("abcx"), second // 2, k=draw.randrange(3)) for second in range(300)]
    for place in (20, 90, 91, 200):
        at = events[place].time
        events.insert(place, Event(CLOCK, "node", id=f"clock{place}", time=at))
        events.insert(place, Event("a", SOURCE, id=f"derived{place}", time=at))
    whole, single = Detector(), Detector()
    for made in (whole, single):
        made.define("pair", f"{PAIR} WITHIN 3 SECONDS BY k", "chronicle")
        made.define("late", "NOT([type = 'a'], [type = 'b'], PLUS([type = 'a'], 2 SECONDS)) BY k", "continuous")
    found = whole.feed_batch(iter(events))
    assert found == [each for one in events for each in single.feed(one)]
    assert len(found) > 50
    assert whole.snapshot() == single.snapshot()
    assert whole.stats() == single.stats()
    assert whole.stats()["skipped"] == 8


def test_what_came_before_a_failing_iterator_counts() -> None:
    def failing() -> Iterator[Event]:
        yield event("a", 1)
        yield event("x", 9)
        raise RuntimeError("the disk is gone")

    made = detector(PAIR)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        made.feed_batch(failing())
    assert (made.position, made.time) == (2, 1_800_000_009 * SECOND)
    assert len(made.feed(event("b", 10))) == 1


# -- notes


def test_there_is_one_note_for_a_key_however_much_comes() -> None:
    made = Detector()
    made.define("pair", f"{PAIR} WITHIN 1 HOUR BY k")
    made.define("silence", "PLUS([type = 'a'], 1 HOUR) BY k")
    made.feed_batch(event("a", n, k=n % 5) for n in range(3000))
    agenda = engine_of(made).agenda
    assert len(agenda.timers) == len(agenda) == 5
    assert made.next_timer == 1_800_003_600 * SECOND
    assert [each.data["parts"][0]["id"] for each in made.advance(NOON + timedelta(hours=9))] == [
        f"a{n}" for n in range(2995, 3000)
    ]
    assert not agenda.timers
    assert made.stats()["definitions"]["pair"]["open"] == 0


@pytest.mark.parametrize("context", ["chronicle", "continuous", "cumulative"])
@pytest.mark.parametrize("text", [PAIR, "AND([type = 'a'], [type = 'b'])", f"SEQ({PAIR}, [type = 'b'])"])
def test_openers_of_one_key_grow_old_one_by_one(text: str, context: str) -> None:
    made = detector(f"{text} WITHIN 10 SECONDS", context)
    for second in range(100):
        made.feed(event("a", second))
        assert made.stats()["definitions"]["found"]["open"] == min(second + 1, 11)
        assert made.stats()["definitions"]["found"]["expired"] == max(second - 10, 0)


# -- figures


def test_figures_by_definition() -> None:
    made = Detector(max_open=3)
    made.define("pair", f"{PAIR} BY k", "chronicle")
    made.define("same", f"{PAIR} BY k", "chronicle")
    made.define("thrice", "SEQ(pair, [type = 'c']) BY k", "chronicle")
    made.define("leaf", "[type = 'a']")
    made.feed_batch([*(event("a", n, k=n) for n in range(5)), event("b", 6, k=4)])
    figures = made.stats()["definitions"]
    shared = {"detected": 1, "open": 2, "expired": 0, "dropped": 2}
    assert figures["pair"] == figures["same"] == shared
    assert figures["thrice"] == {"detected": 0, "open": 1, "expired": 0, "dropped": 0}
    assert figures["leaf"] == {"detected": 5, "open": 0, "expired": 0, "dropped": 0}
    assert list(figures) == ["pair", "same", "thrice", "leaf"]


def test_figures_survive_a_snapshot() -> None:
    made = detector(f"{PAIR} WITHIN 5 SECONDS BY k")
    made.feed_batch([event("a", n, k=n) for n in range(20)])
    again = Detector.restore(made.snapshot())
    assert again.stats()["definitions"] == made.stats()["definitions"]
    assert again.stats()["definitions"]["found"]["expired"] == 14


# -- leaves and state


def test_many_leaves_of_one_type_with_and_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[Event]:
        made = Detector()
        for low in range(12):
            made.define(f"d{low}", f"SEQ([type = 'a' AND v >= {low}] AS a, [type = 'b' AND v = {low}] AS b)")
        return made.feed_batch([event("a", 1, v=6), event("b", 2, v=4), event("b", 3, v=6), event("b", 4, v=7)])

    assert kernels.wait() or kernels.failure()
    indexed = found()
    monkeypatch.setattr(kernels, "kernels", lambda: None)
    assert [each.type for each in indexed] == ["d4", "d6"]
    assert found() == indexed


def test_a_snapshot_leaves_garbage_collection_as_it_was() -> None:
    made = detector(PAIR)
    made.feed(event("a", 1))
    assert gc.isenabled()
    try:
        for collecting in (True, False):
            (gc.enable if collecting else gc.disable)()
            made = Detector.restore(made.snapshot())
            assert gc.isenabled() is collecting
    finally:
        gc.enable()
    assert len(made.feed(event("b", 2))) == 1

"""The detector: keys, conditions, spans, definitions of definitions, time, limits, mistakes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tocsin import DefinitionError, Detector, Event
from tocsin.clock import as_datetime
from tocsin.composite.detector import SOURCE

SECOND = 1_000_000
NOON = as_datetime(1_800_000_000 * SECOND)
PAIR = "SEQ([type = 'a'] AS a, [type = 'b'] AS b)"


def event(type: str, second: float = 0, offset: int | None = None, **data: Any) -> Event:
    return Event(type, "/test", id=f"{type}{second}", data=data, offset=offset, time=NOON + timedelta(seconds=second))


def detector(text: str, context: str = "chronicle", **options: Any) -> Detector:
    made = Detector(**options)
    made.define("found", text, context)
    return made


def ids(found: list[Event]) -> list[list[str]]:
    return [[part.get("id", "tick") for part in each.data["parts"]] for each in found]


# -- keys


def test_only_events_of_one_key_go_together() -> None:
    made = detector(f"{PAIR} BY machine")
    stream = [event("a", 1, machine="m1"), event("a", 2, machine="m2"), event("b", 3, machine="m2")]
    found = made.feed_batch(stream)
    assert ids(found) == [["a2", "b3"]]
    assert found[0].data["key"] == {"machine": "m2"}


def test_keys_compare_as_in_filters() -> None:
    made = detector(f"{PAIR} BY k")
    openers = [event("a", n, k=key) for n, key in enumerate((1, True, "1"))]
    found = made.feed_batch([*openers, event("b", 3, k=1.0), event("b", 4, k=True), event("b", 5, k="1")])
    assert ids(found) == [["a0", "b3"], ["a1", "b4"], ["a2", "b5"]]
    assert [each.data["key"]["k"] for each in found] == [1, True, "1"]


def test_one_key_has_one_form_however_it_was_written() -> None:
    for first, second in ((1, 1.0), (1.0, 1)):
        [found] = detector(f"{PAIR} BY k").feed_batch([event("a", 1, k=first), event("b", 2, k=second)])
        assert repr(found.data["key"]) == "{'k': 1}"


def test_an_event_without_the_key_takes_no_part_and_is_counted() -> None:
    made = detector(f"{PAIR} BY machine")
    assert made.feed_batch([event("a", 1), event("b", 2), event("a", 3, machine=None)]) == []
    assert made.stats()["keyless"] == 3


def test_several_fields_are_one_key() -> None:
    made = detector(f"{PAIR} BY site, line")
    found = made.feed_batch(
        [event("a", 1, site=1, line=2), event("b", 2, site=2, line=1), event("b", 3, site=1, line=2)]
    )
    assert ids(found) == [["a1", "b3"]]
    assert found[0].data["key"] == {"site": 1, "line": 2}


# -- conditions and spans


def test_where_passes_over_what_does_not_fit_and_uses_up_nothing() -> None:
    made = detector(f"{PAIR} WHERE b.v > a.v")
    found = made.feed_batch([event("a", 1, v=9), event("a", 2, v=3), event("b", 3, v=5), event("b", 4, v=10)])
    assert ids(found) == [["a2", "b3"], ["a1", "b4"]]


def test_where_survives_a_snapshot() -> None:
    made = detector(f"{PAIR} WHERE b.v > a.v")
    made.feed(event("a", 1, v=3))
    made = Detector.restore(made.snapshot())
    assert ids(made.feed(event("b", 2, v=4))) == [["a1", "b2"]]


def test_within_is_the_distance_of_first_and_last() -> None:
    for late, count in ((60, 1), (60.000001, 0)):
        assert len(detector(f"{PAIR} WITHIN 1 MINUTE").feed_batch([event("a", 0), event("b", late)])) == count


def test_within_lets_go_of_what_is_too_old() -> None:
    made = detector(f"{PAIR} WITHIN 1 SECOND BY k")
    made.feed_batch([event("a", n, k=n) for n in range(500)])
    [node] = made.stats()["nodes"]
    assert node["keys"] <= 2
    assert node["expired"] >= 498


def test_within_in_the_middle_of_an_expression() -> None:
    made = detector("SEQ(SEQ([type = 'a'], [type = 'b']) WITHIN 1 SECOND, [type = 'c'])")
    assert ids(made.feed_batch([event("a", 0), event("b", 1), event("c", 50)])) == [["a0", "b1", "c50"]]
    assert made.feed_batch([event("a", 60), event("b", 62), event("c", 63)]) == []


# -- time


def test_the_silence_of_a_machine() -> None:
    made = detector("PLUS([type = 'value'] AS v, 30 SECONDS) BY machine", "recent")
    assert (
        made.feed_batch([event("value", 0, machine=1), event("value", 20, machine=1), event("value", 25, machine=2)])
        == []
    )
    found = made.advance(NOON + timedelta(seconds=60))
    assert [(each.data["key"], each.time) for each in found] == [
        ({"machine": 1}, NOON + timedelta(seconds=50)),
        ({"machine": 2}, NOON + timedelta(seconds=55)),
    ]
    assert made.advance(NOON + timedelta(seconds=600)) == []


def test_a_timer_fires_after_the_events_of_its_instant_and_before_later_ones() -> None:
    made = detector("NOT([type = 'a'], [type = 'b'], PLUS([type = 'a'], 5 SECONDS))")
    assert made.feed_batch([event("a", 0), event("b", 5), event("x", 6)]) == []
    assert len(made.feed_batch([event("a", 10), event("b", 15.000001)])) == 1


def test_what_is_fed_after_advance_is_later() -> None:
    made = detector("SEQ(PLUS([type = 'a'], 5 SECONDS), [type = 'b'])")
    made.feed(event("a", 0))
    made.advance(NOON + timedelta(seconds=5))
    assert len(made.feed(event("b", 5))) == 1


def test_times_that_go_backward_or_stand_still() -> None:
    found = detector(PAIR).feed_batch([event("a", 10), event("b", 3)])
    assert ids(found) == [["a10", "b3"]]
    assert found[0].time == NOON + timedelta(seconds=10)
    assert len(detector(PAIR).feed_batch([event("a", 1), event("b", 1)])) == 1


def test_timers_across_a_restart() -> None:
    made = detector("P([type = 'a'], 2 SECONDS, [type = 'c'])")
    made.feed(event("a", 0))
    found = []
    for second in range(1, 8):
        made = Detector.restore(made.snapshot())
        found += made.advance(NOON + timedelta(seconds=second))
    assert [(each.time - NOON).seconds for each in found if each.time] == [2, 4, 6]


# -- one event in several places


def test_an_event_that_is_both_sides_of_an_and() -> None:
    both = "AND([v > 1] AS x, [w > 1] AS y)"
    for context in ("recent", "chronicle", "continuous", "cumulative"):
        assert ids(detector(both, context).feed(event("a", 1, v=2, w=2))) == [["a1", "a1"]]
    made = detector(both)
    made.feed(event("a", 1, v=2))
    assert ids(made.feed(event("a", 2, v=2, w=2))) == [["a1", "a2"]]
    assert made.feed(event("a", 3, w=2)) == []


def test_or_occurs_once() -> None:
    assert len(detector("OR([v > 1], [w > 1])").feed(event("a", 1, v=2, w=2))) == 1


def test_any_two_of_three() -> None:
    text = "ANY(2, [type = 'a'], [type = 'b'], [type = 'c'])"
    stream = [event("a", 1), event("a", 2), event("c", 3), event("b", 4)]
    assert ids(detector(text).feed_batch(stream)) == [["a1", "c3"], ["a2", "b4"]]
    assert ids(detector(text, "recent").feed_batch(stream)) == [["a2", "c3"], ["c3", "b4"]]
    assert ids(detector(text, "continuous").feed_batch(stream)) == [["a1", "c3"], ["a2", "c3"]]
    assert ids(detector(text, "cumulative").feed_batch(stream)) == [["a1", "a2", "c3"]]


# -- definitions


def test_definitions_of_definitions() -> None:
    made = Detector()
    made.define("pair", f"{PAIR} BY k", "chronicle")
    made.define("twice", "SEQ(pair AS first, pair AS second)", "chronicle")
    stream = [event("a", 1, k=1), event("a", 2, k=2), event("b", 3, k=2), event("b", 4, k=1)]
    found = made.feed_batch(stream)
    assert [each.type for each in found] == ["pair", "pair", "twice"]
    assert ids(found)[-1] == ["a2", "b3", "a1", "b4"]


def test_derived_events_and_system_records_are_not_seen() -> None:
    made = detector("SEQ([type = 'a' OR type = 'found'], [true])")
    assert made.feed_batch([Event("found", SOURCE, id="x"), Event("tocsin.clock", "node", id="y")]) == []
    assert made.stats()["skipped"] == 2


def test_cycles_and_unknown_names_are_refused() -> None:
    made = Detector()
    with pytest.raises(DefinitionError, match="no definition other"):
        made.define("one", "SEQ([v = 1], other)")
    with pytest.raises(DefinitionError, match="one → one"):
        made.define("one", "SEQ([v = 1], one)")
    assert made.definitions() == []


def test_what_others_are_made_of_stays() -> None:
    made = Detector()
    made.define("low", PAIR)
    made.define("high", "SEQ(low, [type = 'c'])")
    with pytest.raises(DefinitionError, match="high is made of low"):
        made.undefine("low")
    made.undefine("high")
    made.undefine("low")
    with pytest.raises(DefinitionError, match="there is no definition low"):
        made.undefine("low")


def test_a_definition_goes_by_what_its_parts_go_by() -> None:
    made = Detector()
    made.define("low", f"{PAIR} BY machine")
    with pytest.raises(DefinitionError, match="define low BY site too"):
        made.define("high", "SEQ(low, [type = 'c']) BY site")
    made.define("high", "SEQ(low, [type = 'c']) BY machine", "chronicle")
    stream = [event(kind, n, machine=m) for n, (kind, m) in enumerate((("a", 1), ("b", 1), ("c", 2), ("c", 1)))]
    assert [each.type for each in made.feed_batch(stream)] == ["low", "high"]


def test_removing_one_does_not_disturb_another_that_shares_its_parts() -> None:
    made = Detector()
    made.define("one", PAIR, "chronicle")
    made.define("two", PAIR, "chronicle")
    made.feed(event("a", 1))
    made.undefine("one")
    found = made.feed(event("b", 2))
    assert [each.type for each in found] == ["two"]


def test_adding_one_does_not_disturb_what_is_open() -> None:
    made = detector(PAIR)
    made.feed(event("a", 1))
    made.define("later", "SEQ([type = 'x'], [type = 'y'])")
    assert ids(made.feed(event("b", 2))) == [["a1", "b2"]]


def test_equal_parts_are_one_node() -> None:
    made = Detector()
    for number in range(50):
        made.define(f"d{number}", f"SEQ({PAIR}, [type = 'c' AND n = {number}])")
    operations = [node for node in made.graph.nodes if hasattr(node, "rules")]
    assert len(operations) == 51
    assert len(made.graph.nodes) == 51 + 52


def test_names_are_given_once() -> None:
    made = detector(PAIR)
    with pytest.raises(DefinitionError, match="defined already"):
        made.define("found", PAIR)


def test_where_must_name_constituents() -> None:
    with pytest.raises(DefinitionError, match="no constituent is called c"):
        detector(f"{PAIR} WHERE c.v > 1")
    with pytest.raises(DefinitionError, match="does not say of which constituent"):
        detector(f"{PAIR} WHERE v > 1")


# -- limits and state


@pytest.mark.parametrize("context", ["chronicle", "continuous", "cumulative"])
def test_too_many_openers_are_given_up_and_counted(context: str) -> None:
    made = detector(PAIR, context, max_open=10)
    made.feed_batch([event("a", n) for n in range(25)])
    assert made.stats()["nodes"][0]["dropped"] == 15
    found = made.feed(event("b", 30))
    assert "a15" in ids(found)[0] or ids(found)[0][0] == "a15"


def test_too_many_keys_are_given_up_and_counted() -> None:
    made = detector(f"{PAIR} BY k", "recent", max_open=10)
    made.feed_batch([event("a", n, k=n) for n in range(25)])
    assert made.stats()["nodes"][0] | {"text": ""} == {"text": "", "keys": 10, "dropped": 15, "expired": 0}


def test_what_comes_again_is_dropped_and_counted() -> None:
    made = detector(PAIR)
    made.feed_batch([event("a", 1, 5), event("b", 2, 6)])
    assert made.feed_batch([event("a", 1, 5), event("b", 2, 6)]) == []
    assert made.stats()["repeated"] == 2


def test_ids_do_not_depend_on_how_it_was_fed() -> None:
    stream = [event("a", 1, 1), event("b", 2, 2)]
    one, other = detector(PAIR), detector(PAIR)
    assert one.feed_batch(stream) == [each for part in stream for each in other.feed(part)]
    recent = detector(PAIR, "recent").feed_batch(stream)
    assert recent[0].id != detector(PAIR).feed_batch(stream)[0].id


@pytest.mark.parametrize("stored", [b"", b"nonsense", b"\x93\x90\x00\xc4\x01\x00"])
def test_what_is_no_snapshot_is_refused(stored: bytes) -> None:
    with pytest.raises(DefinitionError, match="no s"):
        Detector.restore(stored).feed(event("a"))


def test_a_rehearsal_is_for_what_was_named_then() -> None:
    detector = Detector()
    detector.define("pair", "SEQ([type = 'a'], [type = 'b']) BY k")
    rehearsed = detector.rehearsal("over", "pair BY k")
    detector.define("pair", "SEQ([type = 'a'], [type = 'b']) BY k, l", replace=True)
    with pytest.raises(DefinitionError, match="has changed"):
        detector.define("over", "pair BY k", rehearsed=rehearsed)
    assert [each.name for each in detector.definitions()] == ["pair"]
    detector.define("over", "pair BY k", rehearsed=detector.rehearsal("over", "pair BY k"))

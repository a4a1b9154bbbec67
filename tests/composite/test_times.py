"""Absolute times as constituents: when they come, who gets them, and that nothing is lost between snapshots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tocsin.composite import Detector
from tocsin.errors import DefinitionError
from tocsin.model import Event

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


def event(type: str, id: str, hours: float, **data: Any) -> Event:
    return Event(type, "/s", id, data=data, time=MONDAY + timedelta(hours=hours))


def shown(found: list[Event]) -> list[tuple[str, ...]]:
    """Ids of events, and hours of times, of each detection."""
    return [tuple(part["id"] if "id" in part else part["time"][8:16] for part in each.data["parts"]) for each in found]


def test_a_definition_that_is_a_time() -> None:
    detector = Detector()
    detector.define("morning", "AT '08:00' AS m")
    assert detector.feed(event("x", "x1", 7)) == []  # from here on time is known
    found = detector.feed(event("x", "x2", 9))
    assert shown(found) == [("16T08:00",)] and found[0].data["parts"][0]["name"] == "m"
    assert found[0].time == MONDAY + timedelta(hours=8)
    assert shown(detector.advance(MONDAY + timedelta(days=3))) == [("17T08:00",), ("18T08:00",)]


def test_an_event_goes_before_a_time_at_its_instant_and_advance_reaches_it() -> None:
    detector = Detector()
    detector.define("late", "SEQ([type = 'x'] AS x, AT '08:00' AS t)", "chronicle")
    assert detector.feed(event("x", "x1", 8)) == []
    assert shown(detector.advance(MONDAY + timedelta(hours=8))) == [("x1", "16T08:00")]
    assert detector.advance(MONDAY + timedelta(hours=8)) == []


def test_every_operator_and_place() -> None:
    stream = [event("a", "a1", 7), event("b", "b1", 8.5), event("a", "a2", 9), event("b", "b2", 30)]
    expected = {
        "SEQ(AT '08:00', [type = 'b'])": [("16T08:00", "b1"), ("16T08:00", "b2")],  # recent: the time stays
        "SEQ([type = 'a'], AT '08:00')": [("a1", "16T08:00")],
        "AND(AT '08:00', [type = 'b'])": [("16T08:00", "b1"), ("16T08:00", "b2")],
        "OR(AT '08:00', [type = 'b'])": [("16T08:00",), ("b1",), ("b2",)],
        "NOT([type = 'a'], [type = 'b'], AT '10:00')": [("a2", "16T10:00")],
        "A([type = 'a'], AT '*/30 9 * * *', [type = 'b'])": [("a2", "16T09:00"), ("a2", "16T09:30")],  # events go first
        "A*([type = 'a'], [type = 'b'], AT '10:00')": [],
        "A*([type = 'b'], [type = 'a'], AT '10:00')": [("b1", "a2", "16T10:00")],
        "PLUS(AT '08:00', 1 HOUR)": [("16T08:00",)],
        "ANY(2, [type = 'a'], AT '08:00', [type = 'q'])": [("a1", "16T08:00"), ("16T08:00", "a2")],
    }
    for text, wanted in expected.items():
        detector = Detector()
        detector.define("d", text)
        found = detector.feed_batch(stream)
        assert shown(found) == wanted, text


def test_with_by_a_time_goes_to_every_key_that_is_open() -> None:
    detector = Detector()
    detector.define("left_on", "NOT([type = 'on'] AS o, [type = 'off'], AT '20:00' AS t) BY lamp", "chronicle")
    stream = [event("on", f"on{n}", 10 + n, lamp=n) for n in range(4)] + [event("off", "off2", 15, lamp=2)]
    assert detector.feed_batch(stream) == []
    found = detector.feed(event("x", "x", 21))
    assert [each.data["key"]["lamp"] for each in found] == [0, 1, 3]
    assert [part[0] for part in shown(found)] == ["on0", "on1", "on3"]
    assert detector.feed(event("x", "y", 50)) == []


@pytest.mark.parametrize(
    "text", ["SEQ(AT '08:00', [type = 'x']) BY k", "AND([type = 'x'], AT '08:00') BY k", "AT '08:00' BY k"]
)
def test_a_time_has_no_key(text: str) -> None:
    detector = Detector()
    with pytest.raises(DefinitionError, match="has no k"):
        detector.define("d", text)
    detector.define("at", "AT '08:00'")
    with pytest.raises(DefinitionError):
        detector.define("d", "SEQ([type = 'x'], at) BY k")


def test_snapshots_between_any_two_events_change_nothing() -> None:
    texts = {
        "late": "SEQ([type = 'a'], AT '0 */2 * * *')",
        "report": "A*([type = 'a'], [type = 'b'], AT '12:00') BY k",
        "once": "AT '2026-11-16T09:00:00Z'",
        "named": "SEQ(once, [type = 'b'])",
    }
    stream = [event("ab"[n % 2], f"e{n}", n * 1.0, k=n % 3) for n in range(40)]
    whole = Detector()
    for name, text in texts.items():
        whole.define(name, text, "chronicle")
    wanted = whole.feed_batch(stream)
    assert {each.type for each in wanted} == {"late", "report", "once", "named"}
    cut, found = Detector(), []
    for name, text in texts.items():
        cut.define(name, text, "chronicle")
    for each in stream:
        cut = Detector.restore(cut.snapshot())
        found += cut.feed(each)
    assert [each.id for each in found] == [each.id for each in wanted]


def test_a_new_definition_does_not_make_up_for_what_is_over() -> None:
    detector = Detector()
    detector.feed(event("x", "x1", 9))
    detector.define("morning", "AT '08:00'")
    assert shown(detector.advance(MONDAY + timedelta(hours=33))) == [("17T08:00",)]
    fresh = Detector()
    now = MONDAY + timedelta(days=1, hours=9)
    fresh.define("morning", "AT '08:00'", now=int(now.timestamp() * 1_000_000))
    assert fresh.next_timer == int((MONDAY + timedelta(days=2, hours=8)).timestamp() * 1_000_000)


def test_explained_and_drawn() -> None:
    detector = Detector()
    detector.define("report", "A*([type = 'a'] AS a, [type = 'b'] AS b, AT '12:00' AS noon)", "chronicle")
    found = detector.feed_batch([event("a", "a1", 9), event("b", "b1", 10), event("x", "x", 13)])
    explanation = detector.explain(found[0])
    assert [(part.name, part.role, part.fate) for part in explanation.parts] == [
        ("a", "opener", "used"),
        ("b", "middle", "perhaps"),  # another opener's window may hold it
        ("noon", "closer", None),
    ]
    assert explanation.parts[2].leaf == "AT '12:00' AS noon" and explanation.completed_by is None
    assert "Until noon came, at 2026-11-16T12:00:00Z" in str(explanation)
    assert "closer: AT '12:00' AS noon" in detector.draw()
    assert "AT &#x27;12:00" in detector.draw("svg") or "AT '12:00'" in detector.draw("svg")
    assert "12:00" in detector.draw("dot")


def test_a_time_that_closes_ticks_is_told_from_them() -> None:
    detector = Detector()
    detector.define("ticks", "P*([type = 'a'] AS a, 1 HOUR, AT '12:00')")
    [found] = detector.feed_batch([event("a", "a1", 9.5), event("x", "x", 13)])
    explanation = detector.explain(found)
    assert [part.role for part in explanation.parts] == ["opener", "tick", "tick", "closer"]
    assert explanation.parts[3].leaf == "AT '12:00'"


def test_many_constituents_and_deep_names_are_bounded() -> None:
    detector = Detector()
    with pytest.raises(DefinitionError, match="more than 128"):
        detector.define("wide", f"OR({', '.join(['[v = 1]'] * 5_000)})")
    detector.define("d0", "[type = 'a']")
    for level in range(1, 60):  # an identity that held those below it would have 2 ** 60 characters
        detector.define(f"d{level}", f"OR(d{level - 1} AS x, SEQ(d{level - 1} AS y, [type = 'c']))")
    assert {len(node.identity) for node in detector.graph.nodes} == {32}

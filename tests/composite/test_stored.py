"""Snapshots of earlier versions: what they had half detected goes on, whichever way a detector is fed.

`tests/fixtures/detector-v1.msgpack` was written by the first version, which had a window for every opener.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.composite.in_columns import events_of, rows_of
from tocsin import DefinitionError, Detector, Event
from tocsin.composite.deriving import Derived

V1 = Path(__file__).parent.parent / "fixtures" / "detector-v1.msgpack"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEFINITIONS = {
    "pair": ("SEQ([type='a'] AS a, [type='b'] AS b) WITHIN 9 SECONDS BY machine", "chronicle"),
    "calm": ("NOT([type='a'],[type='c'],[type='b']) BY machine", "continuous"),
    "rise": ("SEQ([type='a'] AS a,[type='b'] AS b) WHERE a.value < b.value", "recent"),
    "all": ("AND([type='a'],[type='b'],[type='d'])", "chronicle"),
}


def event(offset: int, kind: str, machine: str | int) -> Event:
    arrived = NOON + timedelta(seconds=offset)
    data = {"machine": machine, "value": offset}
    return Event(kind, "/test", f"e{offset}", data=data, offset=offset, arrived=arrived)


FIRST: list[tuple[str, str | int]] = [("a", "m1"), ("a", "m2"), ("a", "m1"), ("b", "m1"), ("a", 7)]
THEN: list[tuple[str, str | int]] = [("b", "m1"), ("b", "m2"), ("d", "m1"), ("b", 7), ("b", "m1")]
BEFORE = [event(offset, *each) for offset, each in enumerate(FIRST, 1)]
AFTER = [event(offset, *each) for offset, each in enumerate(THEN, 6)]


@pytest.mark.parametrize("in_columns", [False, True])
def test_the_first_version_goes_on(in_columns: bool) -> None:
    whole = Detector()
    for name, said in DEFINITIONS.items():
        whole.define(name, *said)
    assert len(whole.feed_batch(BEFORE)) == 4
    wanted = whole.feed_batch(AFTER)
    restored = Detector.restore(V1.read_bytes())
    assert [each.name for each in restored.definitions()] == list(DEFINITIONS)
    assert len(restored.waiting("pair")) == 3
    restored = Detector.restore(restored.snapshot())  # also before anything was fed
    if in_columns:
        derived = Derived()
        restored.feed_rows(rows_of(restored, AFTER), derived, DEFINITIONS)
        found = events_of(derived)
    else:
        found = restored.feed_batch(AFTER)
    assert [each.id for each in found] == [each.id for each in wanted]
    assert {each.type for each in found} == DEFINITIONS.keys()
    assert restored.stats() == whole.stats()


def test_a_later_version_is_refused() -> None:
    stored = msgspec.msgpack.decode(V1.read_bytes())
    state = msgspec.msgpack.decode(stored[2])
    state[0] = 9
    stored[2] = msgspec.msgpack.encode(state)
    with pytest.raises(DefinitionError, match="version 9"):
        Detector.restore(msgspec.msgpack.encode(stored))

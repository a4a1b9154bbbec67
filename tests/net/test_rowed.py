"""Events that come as rows are read by a quick way and a slow one: both say the same, also of what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import events
from tocsin import Event, EventError
from tocsin.clock import as_datetime
from tocsin.journal import rowed
from tocsin.journal.contract import Committed, Request
from tocsin.journal.rowed import Rowed
from tocsin.journal.rows import from_row, to_row
from tocsin.journal.sqlite import SqliteJournal
from tocsin.net.protocol import MSGPACK

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
PLAIN = ["a.b", "src", "1", None, None, None, b'{"a":1}', None, 5, None, 1, None]
DEEP = b"[" * 129 + b"]" * 129


def packed(row: list[Any] | tuple[Any, ...]) -> bytes:
    return msgspec.msgpack.encode(row)


def changed(place: int, value: Any) -> list[Any]:
    return [*PLAIN[:place], value, *PLAIN[place + 1 :]]


@settings(max_examples=300, deadline=None)
@given(events())
def test_quick_and_slow_read_the_same(event: Event) -> None:
    try:
        row = to_row(event)
    except EventError:
        return
    slow = from_row(row, 7, 1_000_000)
    quick = rowed.read(packed(row), 7, as_datetime(1_000_000))
    assert repr(quick) == repr(slow)  # not NaN == NaN
    assert type(quick.data) is type(slow.data) and quick.attributes is not slow.attributes
    fresh, kept = rowed.rowed(packed(row))
    assert (fresh.offset, fresh.arrived) == (None, None)
    assert repr(msgspec.structs.astuple(kept)) == repr(to_row(fresh))


@pytest.mark.parametrize(
    "row",
    [
        changed(0, ""),
        changed(0, "a\nb"),
        changed(1, "x" * 2049),
        changed(2, ""),
        changed(3, "a\x00"),
        changed(4, 2**62),
        changed(5, "no media type"),
        changed(6, b"{"),
        changed(6, DEEP),
        changed(6, b'{"a":"\xff"}'),
        changed(6, b'{"a":1e999}'),
        changed(7, {"id": 1}),
        changed(8, 0),
        changed(8, 11),
        changed(9, -1),
        changed(10, 6),
        changed(11, ""),
        changed(0, 5),
        PLAIN[:11],
        [],
    ],
    ids=repr,
)
def test_what_is_no_event_is_refused(row: list[Any]) -> None:
    for _ in range(2):  # what is remembered of the first time changes nothing
        with pytest.raises(EventError):
            rowed.rowed(packed(row))


def test_a_name_that_comes_twice_is_stored_once() -> None:
    """Readers would differ about which of the two counts."""
    event, row = rowed.rowed(packed(changed(6, b'{"a":1, "a":2}')))
    assert event.data == {"a": 2} and row.data == b'{"a":2}'
    event, row = rowed.rowed(packed(changed(6, b"null")))
    assert event.data is None and row.data is None


@settings(max_examples=20, deadline=None)
@given(st.lists(events(), min_size=1, max_size=20, unique_by=lambda each: (each.source, each.id)))
def test_what_is_stored_of_rows_is_what_is_stored_of_events(tmp_path_factory: Any, given: list[Event]) -> None:
    parts = []
    for event in given:
        try:
            parts.append(MSGPACK.event(event.replace(offset=None, arrived=None)))
        except EventError:
            continue
    both = [MSGPACK.read_events(parts), [MSGPACK.read_event(part) for part in parts]]
    assert isinstance(both[0], Rowed) and not isinstance(both[1], Rowed)
    blocks, told = [], []
    for number, coming in enumerate(both):
        path: Path = tmp_path_factory.mktemp("rowed") / f"{number}.db"
        with SqliteJournal(path, merge=False) as journal:
            heard: list[Committed] = []
            journal.listeners.append(heard.append)
            journal.submit(Request(1_800_000_000_000_000, coming))
            assert journal.append([]) == []
            blocks.append([event for block in journal.blocks() for event in block.events()])
            told.append([event for each in heard for event in each.events])
            for each in heard:
                for event in each.events if each.rows else ():
                    assert rowed.read(each.rows[event.offset or 0], event.offset, event.arrived).id == event.id
    assert repr(blocks[0]) == repr(blocks[1]) == repr(told[0]) == repr(told[1])


def test_a_repeated_row_is_not_stored_again(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "a.db", merge=False) as journal:
        first = journal.append(
            MSGPACK.read_events([MSGPACK.event(Event("a", "s", "1")), MSGPACK.event(Event("a", "s", "2"))])
        )
        again = journal.append(
            MSGPACK.read_events([MSGPACK.event(Event("a", "s", "2")), MSGPACK.event(Event("a", "s", "3"))])
        )
        assert (first, again) == ([1, 2], [2, 3])


def test_a_row_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its offset goes to another event, which has another row."""
    rows = MSGPACK.read_events(
        [MSGPACK.event(Event("a", "s", "1")), MSGPACK.event(Event("a", "s", "2", data="x" * 99))]
    )
    with SqliteJournal(tmp_path / "a.db", merge=False, commit_delay=0.2) as journal:  # both share a commit
        heard: list[Committed] = []
        journal.listeners.append(heard.append)
        bad, good = Request(1, rows, largest=50), Request(1, [Event("b", "s", "3")])
        journal.submit(bad)
        journal.submit(good)
        journal.append([])
    assert isinstance(bad.error, EventError) and bad.error.field == "data"
    assert list(good.offsets) == [1]
    assert [event.id for each in heard for event in each.events] == ["3"] and not any(each.rows for each in heard)

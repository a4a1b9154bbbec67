"""The hot window: the newest events at hand, the rest from blocks, in bounded memory."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime

import pytest

from tests.past import PastJournal, stored
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.window import HotWindow, size_of
from tocsin.model import Event
from tocsin.net.events import to_packed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def some(count: int, letters: int = 50, first: int = 1) -> list[Event]:
    return stored(
        [Event("t", "s", f"e{number:04}", data={"x": number, "s": "a" * letters}) for number in range(count)], first
    )


def test_what_was_put_is_there() -> None:
    window = HotWindow()
    events = some(10)
    window.put_many(events[:4])
    window.put_many(events[4:])
    assert window.get(7) is events[6]
    assert window.get(11) is None
    assert window.get_many([3, 99, 1]) == [events[2], None, events[0]]
    assert window.stats()["events"] == 10


def test_the_newest_stay_within_the_bytes() -> None:
    events = some(1000)
    window = HotWindow(20 * size_of(events[0]) + 10)
    for event in events:
        window.put_many([event])
    assert window.stats()["events"] == 20
    assert window.get(1000) is events[-1]
    assert window.get(981) is events[980]
    assert window.get(980) is None
    assert window.stats()["bytes"] <= 20 * size_of(events[0]) + 10


def packed(events: list[Event]) -> dict[int, bytes]:
    return {event.offset or 0: to_packed(event) for event in events}


def test_events_that_nobody_waits_for_are_here_as_rows() -> None:
    window = HotWindow()
    events = some(40)
    events[3] = events[3].replace(ttl=2.5, subject="é", attributes={"level": 3}, time=NOON, persistent=False)
    awaited = [number % 4 == 0 for number in range(40)]
    window.put_many(events, packed(events[:30]), awaited)
    for number, event in enumerate(events):
        is_kept = awaited[number] or number >= 30  # a row is needed to make it again
        assert window.get(number + 1) == event and (window.get(number + 1) is event) == is_kept
        assert window.held(number + 1) == event
    assert window.recent(1, 40) == window.get_many(range(1, 41)) == events
    assert window.recent(1, 41) is None and window.recent(41, 40) == []
    following = window.following(3, 99)
    assert following is not None and list(following) == events[2:] and window.following(41, 50) is None
    assert window.stats()["events"] == 40 and window.stats()["misses"] == 0
    assert window.row(2) == to_packed(events[1]) and window.row(40) is None


def test_if_nobody_waits_at_all_they_take_a_third_of_the_memory() -> None:
    events = some(1000)
    waited, unwaited = HotWindow(), HotWindow()
    waited.put_many(events, packed(events))
    unwaited.put_many(events, packed(events), [()] * 1000)
    assert unwaited.recent(1, 1000) == events == waited.recent(1, 1000)
    assert 0 < unwaited.stats()["bytes"] < waited.stats()["bytes"] / 3


def test_rows_leave_the_window_as_events_do() -> None:
    events = some(1000)
    window = HotWindow(100_000)
    for start in range(0, 1000, 20):
        part = events[start : start + 20]
        window.put_many(part, packed(part), [start % 40 == 0] * 20)
    stats = window.stats()
    assert stats["bytes"] <= 100_000 and 20 < stats["events"] < 1000
    oldest = next(offset for offset in range(1, 1001) if window.held(offset) is not None)
    assert window.recent(oldest, 1000) == events[oldest - 1 :] and window.recent(oldest - 1, 1000) is None
    window.drop(995)
    assert window.recent(995, 1000) == events[994:] and window.held(994) is None and window.row(994) is None
    assert window.stats()["events"] == 6


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("rows_from", [0, 1])
def test_a_small_event_does_not_hide_how_large_those_after_it_are(awaited: bool, rows_from: int) -> None:
    window = HotWindow(1_000_000)
    offset = 1
    for _ in range(20):
        events = [*some(1, 5, offset), *some(15, 100_000, offset + 1)]
        offset += 16
        window.put_many(events, packed(events[rows_from:]), [awaited] * 16)
    held = [number for number in range(1, offset) if window.row(number) is not None]
    assert len(held) < 20 and window.stats()["bytes"] <= 1_000_000


def test_one_large_event_does_not_make_small_ones_look_large() -> None:
    large, *small = stored(
        [Event("t", "s", f"e{number}", data="x" * (1_000_000 if not number else 10)) for number in range(17)], 1
    )
    window = HotWindow()
    window.put_many([large], packed([large]), [True])
    alone = window.stats()["bytes"]
    for event in small:
        window.put_many([event], packed([event]), [True])
    assert window.stats()["bytes"] < alone + 100_000


def test_a_row_that_is_being_taken_away_is_no_event() -> None:
    """Threads that read take no lock: they may come between two steps of who makes room."""
    window, events = HotWindow(), some(2)
    window.put_many(events, packed(events), [False, False])
    del window._arrived[1], window._rows[2]
    assert window.held(1) is window.held(2) is window.get(1) is None


def test_what_was_lent_is_not_made_again() -> None:
    window, events = HotWindow(), some(2)
    window.put_many(events, packed(events), [False, False])
    window.lend(events[:1])
    assert window.get(1) is events[0] and window.get(1) is not events[0] and window.get(1) == events[0]
    assert window.stats()["block_bytes"] <= size_of(events[0])


def test_one_event_larger_than_the_window_is_not_kept() -> None:
    window = HotWindow(1000)
    window.put_many(some(1, letters=5000))
    assert window.stats() == {"events": 0, "bytes": 0, "block_bytes": 0, "hits": 0, "misses": 0}


@pytest.mark.parametrize("size", [7, 128, 500])
def test_older_ones_come_from_the_journal(size: int) -> None:
    events = some(1000)
    journal = PastJournal(events, size)
    window = HotWindow(1 << 20, journal)  # type: ignore[arg-type]
    window.put_many(events[900:])
    assert window.get_many(range(1002)) == [None, *events, None]
    assert window.stats()["hits"] == 100
    before = journal.reads
    assert window.get(900) == events[899]
    assert journal.reads == before  # still at hand


def test_reading_in_order_reads_each_block_once() -> None:
    journal = PastJournal(some(1000), 250)
    window = HotWindow(4 << 20, journal)  # type: ignore[arg-type]
    before = journal.reads
    for offset in range(1, 1001):
        assert window.get(offset) is not None
    assert journal.reads - before == 4


def test_what_is_read_is_bounded_too() -> None:
    events = some(5000, letters=1000)
    journal = PastJournal(events, 500)
    window = HotWindow(1 << 20, journal)  # type: ignore[arg-type]
    for offset in range(1, 5001, 50):
        assert window.get(offset) == events[offset - 1]
        # A quarter for stretches, a quarter for blocks; one of each is kept even if it is larger.
        assert window.stats()["block_bytes"] <= 2 * (1 << 18) + 128 * size_of(events[0]) + 700_000
    window.forget()
    assert window.stats()["block_bytes"] == 0


def test_trimmed_events_are_gone() -> None:
    journal = PastJournal(some(100), 10)
    window = HotWindow(1 << 20, journal)  # type: ignore[arg-type]
    journal.trim(51)
    assert window.get(50) is None
    assert window.get(51) is not None


def test_what_a_scan_has_made_is_lent_until_it_is_asked_for() -> None:
    events = some(100)
    journal = PastJournal(events, 10)
    window = HotWindow(1 << 20, journal)  # type: ignore[arg-type]
    journal.trim(11)
    before = journal.reads
    window.lend(events[:50])
    assert window.get_many(range(11, 51)) == events[10:50] and journal.reads == before
    assert window.get(10) is None  # trimmed before it was lent
    assert window.get(11) == events[10] and journal.reads > before


def test_what_is_lent_is_bounded_and_can_be_forgotten() -> None:
    events = some(1000)
    window = HotWindow(40 * size_of(events[0]))
    window.lend(events)
    assert window.stats()["block_bytes"] <= 10 * size_of(events[0])
    assert window.get(1000) is events[-1] and window.get(900) is None
    window.forget()
    assert window.get(999) is None and window.stats()["block_bytes"] == 0


def test_events_without_offset_have_no_place() -> None:
    with pytest.raises(ValueError, match="journal"):
        HotWindow().put_many([Event("t", "s")])


def test_with_a_journal_in_memory() -> None:
    journal = MemoryJournal()
    window = HotWindow(0, journal)
    journal.listeners.append(lambda committed: window.put_many(committed.events))
    journal.append([Event("a", "s", "1"), Event("b", "s", "2")])
    journal.append([Event("c", "s", "3")])
    assert [event and event.id for event in window.get_many([1, 2, 3, 4])] == ["1", "2", "3", None]


def test_many_threads() -> None:
    events = some(2000)
    window = HotWindow(200 * size_of(events[0]), PastJournal(events, 100))  # type: ignore[arg-type]
    wrong: list[int] = []

    def read(start: int) -> None:
        for offset in range(start, 2000, 7):
            event = window.get(offset)
            if event is None or event.offset != offset:
                wrong.append(offset)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(1, 5)]
    for thread in threads:
        thread.start()
    for event in events:
        window.put_many([event])
    for thread in threads:
        thread.join()
    assert not wrong


def deep_size(value: object) -> int:
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        size += sum(deep_size(key) + deep_size(each) for key, each in value.items())
    elif isinstance(value, list):
        size += sum(map(deep_size, value))
    return size


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"a": 1},
        {f"name{number}": number * 1.5 for number in range(50)},
        ["text"] * 1000,
        {"rows": [{"x": number, "y": str(number)} for number in range(500)]},
        "é" * 5000,
        b"x" * 100_000,
        list(range(10_000)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_estimate_is_near_and_never_far_below(data: object) -> None:
    (event,) = stored([Event("type", "source", data=data)])
    fields = sum(deep_size(getattr(event, name)) for name in ("type", "source", "id", "time", "arrived", "attributes"))
    real = sys.getsizeof(event) + fields + deep_size(event.data)
    assert real * 0.8 < size_of(event) < real * 3 + 1000


def test_a_deep_payload_does_not_exhaust_the_stack() -> None:
    data: object = 1
    for _ in range(120):
        data = [data]
    (event,) = stored([Event("t", "s", data=data)])
    assert size_of(event) > 120 * 64

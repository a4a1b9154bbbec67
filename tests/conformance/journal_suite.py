"""What every journal must do, written once. `test_journal.py` runs it for each backend.

A backend gives `make(place, clock)`, which opens the journal that lives in the directory `place`; one that outlives its
process passes `LastingJournalSuite`, which opens it again after `close` or `abandon`. Time is a ManualClock's, and
nothing here sleeps.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tocsin.clock import SECOND, ManualClock, as_datetime
from tocsin.errors import EventError, JournalError, TrimmedError, WriterError
from tocsin.journal import contract
from tocsin.journal.contract import Committed, Journal, Note, Request
from tocsin.journal.rows import SCHEMA, from_arrow
from tocsin.model import Event

__all__ = ["JournalSuite", "LastingJournalSuite", "event", "stored", "submit"]

T0 = 1_767_225_600_000_000
"""The beginning of 2026."""


def event(id: object, **fields: Any) -> Event:
    """An event of the plant."""
    return Event(**{"type": "alarm", "source": "plant", "id": str(id), **fields})


def submit(journal: Journal, *events: Event, arrived: int = T0, **fields: Any) -> Request:
    """Submit a request and wait until it is done."""
    done = threading.Event()
    request = Request(arrived, events, done=lambda _: done.set(), **fields)
    journal.submit(request)
    assert done.wait(30), "the request was not answered"
    return request


def stored(journal: Journal, first: int = 1, last: int | None = None) -> list[Event]:
    """All events, oldest first."""
    return [each for block in journal.blocks(first, last) for each in block.events()]


def ids(journal: Journal) -> list[str]:
    return [each.id for each in stored(journal)]


class JournalSuite:
    """The tests. A subclass says how to open a journal."""

    make: ClassVar[Callable[[Path, ManualClock], Journal]]
    """Opens the journal at a place; static."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(as_datetime(T0))

    @pytest.fixture
    def open(self, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], Journal]]:
        opened: list[Journal] = []

        def open_again() -> Journal:
            opened.append(self.make(tmp_path, clock))
            return opened[-1]

        yield open_again
        for journal in opened:
            journal.close()

    @pytest.fixture
    def journal(self, open: Callable[[], Journal]) -> Journal:
        return open()

    # Offsets and what comes back.

    def test_begins_empty(self, journal: Journal) -> None:
        assert (journal.head, journal.first, journal.kept, journal.crashed) == (0, 1, 1, False)
        assert list(journal.blocks()) == list(journal.read()) == []
        assert journal.offset_at(T0) == 1
        assert journal.state() == {} and journal.notes(1) == [] and journal.publisher(1) == ""

    def test_offsets_count_up(self, journal: Journal) -> None:
        assert journal.append([event(1), event(2)]) == [1, 2]
        assert journal.append([]) == []
        assert journal.append([event(3)]) == [3]
        assert (journal.head, journal.first) == (3, 1)
        assert [each.offset for each in stored(journal)] == [1, 2, 3]

    def test_events_come_back_as_they_were(self, journal: Journal) -> None:
        rich = [
            event(1, data={"a": [1, 2.5, None, "é"], "n": 2**60}, attributes={"x": 1, "y": 0.5, "s": "t", "b": True}),
            event(2, data="<a/>", datacontenttype="application/xml", subject="pump", correlation_id="c"),
            event(3, data=b"\x00\xff", datacontenttype="image/png", priority=10, ttl=1.5, persistent=False),
            event(4, data=None, ack="receipt", cancel="any", classification="secret", attributes={"x": math.inf}),
            event(5, data="text", time=datetime(1969, 7, 20, 20, 17, 40, 5, UTC)),
            event(6, data=None, datacontenttype="application/json", ttl=3),
        ]
        journal.append(rich)
        arrived = as_datetime(T0)
        expected = [
            each.replace(offset=n, arrived=arrived, time=each.time or arrived) for n, each in enumerate(rich, 1)
        ]
        assert stored(journal) == expected
        (block,) = journal.blocks()
        batch = block.batch()
        assert batch.schema == SCHEMA
        assert from_arrow(batch) == expected
        assert from_arrow(next(journal.read())) == expected
        some = block.batch(("type", "data", "no such column"))
        assert some == batch.select(["offset", "type", "data"])
        assert block.batch(()) == batch.select(["offset"])

    def test_the_callers_event_does_not_change(self, journal: Journal) -> None:
        mine = event(1)
        journal.append([mine])
        assert (mine.offset, mine.arrived, mine.time) == (None, None, None)

    def test_a_republished_event_gets_new_marks(self, journal: Journal) -> None:
        journal.append([event(1)])
        old = event(2, offset=77, arrived=datetime(2000, 1, 1, tzinfo=UTC))
        journal.append([old])
        (again,) = stored(journal, 2)
        assert (again.offset, again.arrived) == (2, as_datetime(T0))

    def test_time_is_stamped_only_if_missing(self, journal: Journal) -> None:
        own = datetime(2020, 5, 17, tzinfo=UTC)
        submit(journal, event(1), event(2, time=own), arrived=T0 + 5)
        assert [each.time for each in stored(journal)] == [as_datetime(T0 + 5), own]

    def test_arrival_never_decreases(self, journal: Journal) -> None:
        for number, arrived in enumerate([T0 + 10, T0, T0 + 10, T0 + 20, T0 + 15]):
            submit(journal, event(number), arrived=arrived)
        found = [each.arrived for each in stored(journal)]
        assert found == [as_datetime(T0 + ahead) for ahead in (10, 10, 10, 20, 20)]
        assert all(block.arrived[0] <= block.arrived[1] for block in journal.blocks())

    def test_what_comes_after_a_closed_instant_is_later(self, journal: Journal) -> None:
        for number, closes in enumerate([False, True, False, True, False]):
            submit(journal, event(number), arrived=T0, closes=closes)
        found = [each.arrived for each in stored(journal)]
        assert found == [as_datetime(T0 + later) for later in (0, 0, 1, 1, 2)]

    def test_append_takes_the_clocks_time(self, journal: Journal, clock: ManualClock) -> None:
        clock.advance(7)
        journal.append([event(1)])
        assert stored(journal)[0].arrived == as_datetime(T0 + 7 * SECOND)

    # Requests that are refused.

    def test_a_bad_request_fails_alone_and_whole(self, journal: Journal) -> None:
        good, bad = event(1), event(2, data={"x": math.nan})
        heard: list[Committed] = []
        journal.listeners.append(heard.append)
        refused = submit(journal, event(3), bad, state={"a": b"1"}, notes=[Note(1, T0, "step")], writer="w", position=1)
        assert isinstance(refused.error, EventError) and (refused.offsets, refused.fresh) == ([], 0)
        assert not heard and journal.head == 0
        assert submit(journal, good).offsets == [1]
        assert ids(journal) == ["1"] and journal.state() == {} and journal.notes(1) == []
        # Neither the ids nor the position of the refused request are remembered.
        assert submit(journal, event(3), writer="w", position=1).offsets == [2]

    def test_a_payload_may_be_too_large(self, journal: Journal) -> None:
        refused = submit(journal, event(1), event(2, data="x" * 99), largest=100)  # the quotes count
        assert isinstance(refused.error, EventError) and journal.head == 0
        assert submit(journal, event(2, data="x" * 98), event(3), largest=100).offsets == [1, 2]

    def test_append_raises_what_is_wrong(self, journal: Journal) -> None:
        with pytest.raises(EventError):
            journal.append([event(1, data=math.inf)])

    @pytest.mark.parametrize(
        "fields",
        [
            {"writer": "w"},
            {"position": 1},
            {"state": {"a": "text"}},
            {"events": [42]},
        ],
    )
    def test_misuse_is_answered_with_an_error(self, journal: Journal, fields: dict[str, Any]) -> None:
        others = {name: value for name, value in fields.items() if name != "events"}
        assert isinstance(submit(journal, *fields.get("events", []), **others).error, JournalError)
        assert journal.append([event(1)]) == [1]

    # Stored once.

    def test_a_repeated_event_keeps_its_offset(self, journal: Journal) -> None:
        journal.append([event(1), event(2)])
        again = submit(journal, event(2), event(3), event(3), event(1), event(2, source="other"))
        assert (again.offsets, again.fresh) == ([2, 3, 3, 1, 4], 2)
        assert ids(journal) == ["1", "2", "3", "2"]

    def test_ids_are_remembered_for_some_time_and_for_some_number(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(contract, "DEDUP_SECONDS", 10)
        monkeypatch.setattr(contract, "DEDUP_LEAST", 2)
        monkeypatch.setattr(contract, "DEDUP_MOST", 5)
        at = T0
        assert submit(journal, event("a"), arrived=at).offsets == [1]
        at += 10 * SECOND
        assert submit(journal, event("b"), event("a"), arrived=at).offsets == [2, 1]  # just ten seconds
        at += 1
        assert submit(journal, event("a"), arrived=at).offsets == [1]  # older, but of the last two
        assert submit(journal, event("c"), arrived=at).offsets == [3]
        assert submit(journal, event("a"), arrived=at).offsets == [4]  # older, and not of the last two
        assert submit(journal, event("b"), arrived=at).offsets == [2]  # of the last ten seconds
        assert submit(journal, event("d"), event("e"), arrived=at).offsets == [5, 6]
        assert submit(journal, event("b"), arrived=at).offsets == [2]  # the fifth back
        assert submit(journal, event("f"), arrived=at).offsets == [7]
        assert submit(journal, event("b"), arrived=at).offsets == [8]  # the sixth back
        assert submit(journal, event("a"), arrived=at).offsets == [4]  # the newer of its two

    # Writers.

    def test_a_repeated_position_gets_the_first_answer(self, journal: Journal) -> None:
        first = submit(journal, event(1), event(2), event(1), writer="w", position=7)
        assert (first.offsets, first.fresh) == ([1, 2, 1], 2)
        again = submit(journal, event(8), event(9), writer="w", position=7, state={"a": b"2"}, notes=[Note(1, T0, "x")])
        assert (again.offsets, again.fresh, again.error) == ([1, 2, 1], 0, None)
        assert journal.head == 2 and journal.state() == {} and journal.notes(1) == []
        assert submit(journal, event(3), writer="w", position=9).offsets == [3]
        assert submit(journal, writer="w", position=7).offsets == [1, 2, 1]

    def test_positions_grow(self, journal: Journal) -> None:
        submit(journal, event(1), writer="w", position=5)
        refused = submit(journal, event(2), writer="w", position=4)
        assert isinstance(refused.error, WriterError) and "4" in str(refused.error) and "'w'" in str(refused.error)
        assert submit(journal, event(2), writer="other", position=4).offsets == [2]

    def test_a_writers_events_are_stored_once_too(self, journal: Journal) -> None:
        journal.append([event(1)])
        assert journal.append([event(1), event(2)], "w", 1) == [1, 2]
        assert journal.append([event(2)], "v", 1) == [2]
        assert journal.append([event(2)], "v", 1) == [2]

    def test_of_a_client_the_last_positions_are_known(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        """It numbers without end: what is kept of that must have one."""
        monkeypatch.setattr(contract, "POSITIONS_KEPT", 3)
        for n in range(1, 7):
            for writer in (contract.CLIENT + "a", contract.CLIENT + "b", "w"):
                assert submit(journal, event(f"{writer}{n}"), writer=writer, position=n).error is None
        again = [submit(journal, writer=contract.CLIENT + "a", position=n) for n in range(1, 7)]
        assert [type(each.error) for each in again[:3]] == [WriterError] * 3
        assert [each.offsets for each in again[3:]] == [[10], [13], [16]]
        assert submit(journal, writer="w", position=1).offsets == [3]

    def test_a_position_without_events_counts(self, journal: Journal) -> None:
        assert submit(journal, writer="w", position=1, state={"a": b"1"}).offsets == []
        assert submit(journal, event(1), writer="w", position=1, state={"a": b"2"}).offsets == []
        assert journal.state() == {"a": b"1"} and journal.head == 0

    # State, notes, publishers.

    def test_state_is_set_replaced_and_removed(self, journal: Journal) -> None:
        submit(journal, state={"a/1": b"1", "a/2": b"", "b": b"3", "a%": b"4", "A/1": b"5"})
        submit(journal, event(1), state={"a/1": b"6", "b": None, "gone": None})
        assert journal.state("a/") == {"a/1": b"6", "a/2": b""}
        assert list(journal.state()) == ["A/1", "a%", "a/1", "a/2"]
        assert journal.state("a%") == {"a%": b"4"} and journal.state("b") == {}

    def test_notes_are_kept_by_event_in_order(self, journal: Journal) -> None:
        journal.append([event(1), event(2)])
        submit(journal, notes=[Note(1, T0 + 9, "matched", "a"), Note(2, T0, "matched", "a"), Note(1, T0, "acked", "é")])
        submit(journal, notes=[Note(1, T0, "expired")])
        assert journal.notes(1) == [
            Note(1, T0 + 9, "matched", "a"),
            Note(1, T0, "acked", "é"),
            Note(1, T0, "expired", ""),
        ]
        assert journal.notes(2) == [Note(2, T0, "matched", "a")] and journal.notes(3) == []

    def test_publishers_are_remembered(self, journal: Journal) -> None:
        submit(journal, event(1), event(2), by="anna")
        submit(journal, event(3))
        submit(journal, event(1), event(4), by="bert")
        assert [journal.publisher(offset) for offset in range(1, 6)] == ["anna", "anna", "", "bert", ""]

    # Listeners.

    def test_listeners_hear_before_done(self, journal: Journal) -> None:
        story: list[object] = []
        over = threading.Event()
        journal.listeners.append(lambda commit: story.append([each.offset for each in commit.events]))

        def done(request: Request) -> None:
            story.append(request.offsets)
            over.set()

        request = Request(T0, [event(1), event(2), event(1)], done=done)
        journal.submit(request)
        assert over.wait(30)
        assert story == [[1, 2], [1, 2, 1]]

    def test_listeners_get_events_as_stored_and_the_requests(self, journal: Journal) -> None:
        heard: list[Committed] = []
        journal.listeners.append(heard.append)
        payload = {"x": 1}
        request = submit(journal, event(1, data=payload))
        silent = submit(journal, state={"a": b"1"})
        again = submit(journal, event(1))
        assert [each for commit in heard for each in commit.events] == stored(journal)
        assert [each for commit in heard for each in commit.requests] == [request, silent, again]

    def test_a_request_that_is_not_durable_is_done_first(self, journal: Journal) -> None:
        story: list[str] = []
        heard = threading.Event()

        def listen(commit: Committed) -> None:
            story.append("heard")
            heard.set()

        journal.listeners.append(listen)
        journal.submit(Request(T0, [event(1)], durable=False, done=lambda each: story.append(f"done {each.offsets}")))
        assert heard.wait(30)
        assert story == ["done [1]", "heard"] and ids(journal) == ["1"]

    def test_a_listener_may_submit_but_not_wait(self, journal: Journal) -> None:
        errors: list[Exception] = []
        order: list[int] = []
        over = threading.Event()

        def listen(commit: Committed) -> None:
            order.append(commit.events[0].offset or 0)
            if commit.events[0].id == "1":
                journal.submit(Request(T0, [event(2)], done=lambda _: over.set()))
                try:
                    journal.append([event(3)])
                except JournalError as error:
                    errors.append(error)

        journal.listeners += [listen, listen]
        submit(journal, event(1))
        assert over.wait(30)
        assert order == [1, 1, 2, 2] and len(errors) == 2 and ids(journal) == ["1", "2"]

    def test_a_failing_listener_or_callback_stops_nothing(
        self, journal: Journal, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard: list[Committed] = []

        def fail(_: object) -> None:
            raise RuntimeError("oops")

        journal.listeners += [fail, heard.append]
        journal.submit(Request(T0, [event(1)], done=fail))
        assert submit(journal, event(2)).offsets == [2]
        assert sum(len(commit.events) for commit in heard) == 2
        assert "oops" in caplog.text

    # Reading.

    def fill(self, journal: Journal) -> None:
        """Offsets 1-3, 4, 5-8, arrived one second apart."""
        for number, ends in enumerate([(1, 3), (4, 4), (5, 8)]):
            events = [event(each) for each in range(ends[0], ends[1] + 1)]
            submit(journal, *events, arrived=T0 + number * SECOND)

    def test_blocks_cover_what_was_asked_for(self, journal: Journal) -> None:
        self.fill(journal)
        for first in range(-1, 10):
            for last in [*range(10), None, 99]:
                wanted = set(range(max(first, 1), (8 if last is None else min(last, 8)) + 1))
                found = list(journal.blocks(first, last))
                offsets = [offset for block in found for offset in range(block.first, block.last + 1)]
                assert offsets == sorted(set(offsets)) and wanted <= set(offsets)
                assert all(wanted & set(range(block.first, block.last + 1)) for block in found)
                back = list(journal.blocks(first, last, backwards=True))
                assert [(block.first, block.last) for block in back[::-1]] == [(b.first, b.last) for b in found]

    def test_read_gives_exactly_these(self, journal: Journal) -> None:
        self.fill(journal)
        for first in range(-1, 10):
            for last in [*range(10), None]:
                table = pa.Table.from_batches(journal.read(first, last), SCHEMA)
                assert table.column("offset").to_pylist() == list(
                    range(max(first, 1), (8 if last is None else min(last, 8)) + 1)
                )

    def test_a_block_knows_its_times(self, journal: Journal) -> None:
        self.fill(journal)
        for block in journal.blocks():
            arrived = block.batch().column("arrived").cast(pa.int64()).to_pylist()
            assert block.arrived == (arrived[0], arrived[-1])
            assert [each.offset for each in block.events()] == list(range(block.first, block.last + 1))

    def test_a_moment_is_found(self, journal: Journal) -> None:
        self.fill(journal)
        expected = {-SECOND: 1, 0: 1, 1: 4, SECOND: 4, SECOND + 1: 5, 2 * SECOND: 5, 2 * SECOND + 1: 9}
        assert {ahead: journal.offset_at(T0 + ahead) for ahead in expected} == expected

    def test_a_walk_ends_at_the_head_of_its_beginning(self, journal: Journal) -> None:
        self.fill(journal)
        walk = journal.blocks()
        next(walk)
        journal.append([event(99)])
        assert [offset for block in walk for offset in range(block.first, block.last + 1)] == [4, 5, 6, 7, 8]

    # Trimming.

    def test_trim_drops_whole_blocks(self, journal: Journal) -> None:
        self.fill(journal)
        submit(journal, notes=[Note(2, T0, "x"), Note(5, T0, "y")], state={"a": b"1"})
        assert journal.trim(1) == journal.trim(3) == 1
        assert journal.trim(4) == 4
        assert journal.trim(7) == journal.trim(2) == 5
        assert (journal.first, journal.head) == (5, 8)
        assert [each.offset for each in stored(journal)] == [5, 6, 7, 8]
        assert journal.notes(2) == [] and len(journal.notes(5)) == 1 and journal.state() == {"a": b"1"}
        assert journal.offset_at(T0) == 5

    def test_what_was_trimmed_is_said_so(self, journal: Journal) -> None:
        self.fill(journal)
        journal.trim(5)
        for first in (2, 4):
            with pytest.raises(TrimmedError) as caught:
                list(journal.blocks(first))
            assert caught.value.first == 5
            with pytest.raises(TrimmedError):
                list(journal.blocks(first, backwards=True))
            with pytest.raises(TrimmedError):
                list(journal.read(first))
        assert len(stored(journal, 5)) == len(stored(journal)) == 4

    def test_offsets_go_on_when_everything_is_trimmed(self, journal: Journal) -> None:
        self.fill(journal)
        assert journal.trim(100) == 9
        assert (journal.first, journal.head) == (9, 8)
        assert list(journal.blocks()) == list(journal.blocks(backwards=True)) == [] and journal.offset_at(T0) == 9
        assert journal.append([event("new")]) == [9]
        (new,) = stored(journal)
        assert new.arrived == as_datetime(T0 + 2 * SECOND)  # journal time went on, too

    def test_a_trimmed_event_may_come_again(self, journal: Journal) -> None:
        self.fill(journal)
        journal.trim(5)
        assert journal.append([event(5), event(1)]) == [5, 9]

    # Ending.

    def test_a_closed_journal_takes_nothing(self, journal: Journal) -> None:
        journal.append([event(1)])
        journal.close()
        journal.close()
        with pytest.raises(JournalError):
            journal.submit(Request(T0, [event(2)]))
        with pytest.raises(JournalError):
            journal.append([event(2)])

    def test_close_finishes_what_was_submitted(self, journal: Journal) -> None:
        requests = [Request(T0, [event(number)]) for number in range(100)]
        for request in requests:
            journal.submit(request)
        journal.close()
        assert sorted(request.offsets[0] for request in requests) == list(range(1, 101))

    def test_numbers_for_people(self, journal: Journal) -> None:
        self.fill(journal)
        stats = journal.stats()
        assert {"first": 1, "head": 8, "events": 8, "commits": 3, "queued": 0, "ids": 8}.items() <= stats.items()
        assert {"blocks", "bytes"} <= stats.keys()

    def test_many_threads_publish(self, journal: Journal) -> None:
        heard: list[int] = []
        journal.listeners.append(lambda commit: heard.extend(each.offset or 0 for each in commit.events))
        answers: dict[str, int] = {}

        def publish(name: str) -> None:
            for number in range(50):
                key = f"{name}/{number}"
                answers[key] = journal.append([event(key)])[0]

        threads = [threading.Thread(target=publish, args=(str(name),)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert heard == list(range(1, 401))
        assert {each.id: each.offset for each in stored(journal)} == answers


class LastingJournalSuite(JournalSuite):
    """The same, and what holds of a journal that outlives its process."""

    def test_everything_is_there_after_closing(self, open: Callable[[], Journal], journal: Journal) -> None:
        self.fill(journal)
        submit(journal, event("w"), writer="w", position=3, state={"a": b"1"}, notes=[Note(2, T0, "x", "y")], by="anna")
        before = stored(journal), journal.state(), journal.notes(2), journal.publisher(9)
        journal.close()
        again = open()
        assert not again.crashed and (again.head, again.first) == (9, 1)
        assert (stored(again), again.state(), again.notes(2), again.publisher(9)) == before
        assert again.append([event(4), event("new")]) == [4, 10]
        assert submit(again, event("other"), writer="w", position=3).offsets == [9]
        assert isinstance(submit(again, writer="w", position=2).error, JournalError)
        assert submit(again, event("late"), arrived=0).error is None
        assert stored(again)[-1].arrived == as_datetime(T0 + 2 * SECOND)

    def test_a_trimmed_journal_opens_again(self, open: Callable[[], Journal], journal: Journal) -> None:
        self.fill(journal)
        journal.trim(100)
        journal.close()
        again = open()
        assert (again.first, again.head) == (9, 8)
        assert again.append([event(1)]) == [9]
        assert stored(again)[0].arrived == as_datetime(T0 + 2 * SECOND)

    def test_an_abandoned_journal_is_said_to_have_crashed(self, open: Callable[[], Journal], journal: Journal) -> None:
        self.fill(journal)
        journal.abandon()
        again = open()
        assert again.crashed and again.head == 8
        again.close()
        assert not open().crashed

    def test_windows_hold_over_a_reopening(
        self, open: Callable[[], Journal], journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(contract, "DEDUP_SECONDS", 10)
        monkeypatch.setattr(contract, "DEDUP_LEAST", 2)
        for number in range(10):
            submit(journal, event(number), arrived=T0 + number * 4 * SECOND)
        journal.close()
        again = open()
        at = T0 + 36 * SECOND
        assert submit(again, event(9), event(8), event(7), arrived=at).offsets == [10, 9, 8]
        assert submit(again, event(6), arrived=at).offsets == [11]

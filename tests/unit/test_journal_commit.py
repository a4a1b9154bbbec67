"""Commits: shared, split, refused, failed. What the suite cannot see from outside."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.journal_suite import T0, event, stored, submit
from tocsin.clock import SECOND
from tocsin.errors import EventError, JournalError, JournalFullError
from tocsin.journal import contract, draft, ids
from tocsin.journal.contract import Committed, Note, Request
from tocsin.journal.ids import Ids
from tocsin.journal.sqlite import SqliteJournal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        yield journal


@contextmanager
def held(journal: SqliteJournal) -> Iterator[None]:
    """Keep the committer busy with a commit until the end of the block."""
    busy, go = threading.Event(), threading.Event()

    def wait(_: Committed) -> None:
        busy.set()
        go.wait(30)

    journal.listeners.append(wait)
    journal.submit(Request(T0, state={"held": b"1"}))
    assert busy.wait(30)
    journal.listeners.remove(wait)
    try:
        yield
    finally:
        go.set()


def together(journal: SqliteJournal, *requests: Request) -> None:
    """Submit requests so that they share a commit, and wait for all of them."""
    left = threading.Semaphore(0)
    for request in requests:
        request.done = lambda _: left.release()
    with held(journal):
        for request in requests:
            journal.submit(request)
    for _ in requests:
        assert left.acquire(timeout=30)


def tell(journal: SqliteJournal, statement: str) -> None:
    """Run a statement on the writer's connection."""
    journal._committer.run(lambda: journal._store.db.execute(statement).fetchall())


# Sharing.


def test_what_gathers_during_a_commit_shares_the_next(journal: SqliteJournal) -> None:
    before = journal.stats()["commits"]
    requests = [Request(T0 + number, [event(number)]) for number in range(200)]
    together(journal, *requests)
    assert journal.stats()["commits"] - before == 2  # the one that held it up, and one for all
    assert [request.offsets for request in requests] == [[number] for number in range(1, 201)]
    (block,) = journal.blocks()
    assert (block.first, block.last, block.arrived) == (1, 200, (T0, T0 + 199))
    assert [each.id for each in block.events()] == [str(number) for number in range(200)]


def test_a_delay_gathers_company(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db", commit_delay=0.2) as journal:
        left = threading.Semaphore(0)
        for number in range(50):
            journal.submit(Request(T0, [event(number)], done=lambda _: left.release()))
        for _ in range(50):
            assert left.acquire(timeout=30)
        assert journal.stats()["commits"] <= 2


def test_a_commit_is_bounded(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "COMMIT_EVENTS", 10)
    together(journal, *(Request(T0, [event((number, each)) for each in range(4)]) for number in range(10)))
    assert [block.last - block.first + 1 for block in journal.blocks()] == [12, 12, 12, 4]


def test_a_large_request_is_one_commit_of_several_blocks(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Committed] = []
    journal.listeners.append(heard.append)
    monkeypatch.setattr(draft, "BLOCK_EVENTS", 10)
    first, second = Request(T0, [event(0)], by="a"), Request(T0 + 9, [event(n) for n in range(1, 30)], by="b")
    together(journal, first, second, Request(T0 + 11, [event("last")]))
    assert [(block.first, block.last) for block in journal.blocks()] == [(1, 10), (11, 20), (21, 30), (31, 31)]
    assert [block.arrived for block in journal.blocks()] == [(T0, T0 + 9)] + [(T0 + 9, T0 + 9)] * 2 + [
        (T0 + 11, T0 + 11)
    ]
    assert len(heard[-1].events) == 31 and stored(journal) == heard[-1].events
    assert [journal.publisher(offset) for offset in (1, 2, 30, 31)] == ["a", "b", "b", ""]
    monkeypatch.setattr(draft, "BLOCK_BYTES", 300)
    submit(journal, *(event(("big", number), data="x" * 200) for number in range(5)), arrived=T0 + 12)
    assert len(list(journal.blocks(32))) == 3 and len(stored(journal, 32)) == 5


def test_an_event_that_no_file_can_hold_is_refused(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(draft, "EVENT_BYTES", 2000)
    assert isinstance(submit(journal, event(1), event(2, data="x" * 3000)).error, EventError)
    assert journal.append([event(1)]) == [1]


def test_a_bad_request_leaves_its_neighbours_alone(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "BLOCK_EVENTS", 3)
    requests = [
        Request(T0, [event(1), event(2)], state={"a": b"1"}),
        Request(
            T0, [*(event(n) for n in range(3, 9)), event(9, data=math.nan)], state={"a": b"2"}, writer="w", position=1
        ),
        Request(T0, [event(3), event(1)], writer="w", position=1, notes=[Note(3, T0, "x")]),
        Request(T0, state={"b": "text"}),  # type: ignore[dict-item]
        Request(T0, notes=[Note(2**63, T0, "x")]),
        Request(T0, notes=[Note(1, T0, "\ud800")]),
        Request(T0, [event(4)], writer="\ud800", position=1),
        Request(T0, [event(4)], by="\ud800"),
        Request(T0, [event(4)], writer="w", position=2**63),
        Request(10**30, [event(4)]),
        Request(T0, [event(4)]),
    ]
    together(journal, *requests)
    assert [request.offsets for request in requests] == [[1, 2], [], [3, 1], [], [], [], [], [], [], [], [4]]
    assert [bool(request.error) for request in requests] == [False, True, False, *[True] * 7, False]
    assert isinstance(requests[1].error, EventError)
    assert all(isinstance(request.error, JournalError) for request in requests[3:10])
    assert [each.id for each in stored(journal)] == ["1", "2", "3", "4"]
    assert journal.state() == {"a": b"1", "held": b"1"} and len(journal.notes(3)) == 1


def test_duplicates_and_positions_within_one_commit(journal: SqliteJournal) -> None:
    requests = [
        Request(T0, [event(1)], writer="w", position=1),
        Request(T0, [event(2)], writer="w", position=1),
        Request(T0, [event(1), event(3)], writer="w", position=5),
        Request(T0, [event(4)], writer="w", position=3),
        Request(T0, [event(3)]),
    ]
    together(journal, *requests)
    assert [request.offsets for request in requests] == [[1], [1], [1, 2], [], [2]]
    assert isinstance(requests[3].error, JournalError)


# Failing.


@pytest.mark.parametrize(
    ("spoil", "mend"),
    [
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000"),
        ("PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_takes_nothing_loses_nothing(journal: SqliteJournal, tmp_path: Path, spoil: str, mend: str) -> None:
    submit(journal, event(1), writer="w", position=1, state={"a": b"1"}, arrived=T0)
    heard: list[Committed] = []
    big = {"data": "x" * 100_000}
    tell(journal, spoil)  # max_page_count: never below what the file has
    journal.listeners.append(heard.append)
    failed = [
        Request(T0 + SECOND, [event(2, **big)]),
        Request(T0 + SECOND, [event(3)], writer="w", position=2, state={"a": b"2"}, notes=[Note(1, T0, "x")]),
    ]
    left = threading.Semaphore(0)
    for request in failed:
        request.done = lambda _: left.release()
        journal.submit(request)
    for _ in failed:
        assert left.acquire(timeout=30)
    refused = [request for request in failed if request.error is not None]
    assert refused and failed[0] in refused
    for request in refused:
        assert isinstance(request.error, JournalFullError) and (request.offsets, request.fresh) == ([], 0)
        assert request.error.path == str(tmp_path / "j.db")
    with pytest.raises(JournalFullError):
        journal.append([event(2, **big)])
    unanswered = Request(T0, [event(4, **big)], durable=False)
    journal.submit(unanswered)
    tell(journal, mend)
    assert unanswered.error is not None and journal.stats()["lost"] == 1
    head = journal.head
    # Nothing is remembered of what failed: ids, positions, state, journal time, offsets.
    assert journal.state() == {"a": b"1"} or failed[1].error is None
    assert submit(journal, event(2, **big), arrived=T0).offsets == [head + 1]
    again = submit(journal, event(3), writer="w", position=2, state={"a": b"2"})
    assert again.error is None and journal.state() == {"a": b"2"}
    assert [each.offset for each in stored(journal)] == list(range(1, journal.head + 1))
    assert [each.offset for commit in heard for each in commit.events] == list(range(2, journal.head + 1))


def test_each_failed_request_has_its_own_error(journal: SqliteJournal) -> None:
    tell(journal, "PRAGMA query_only = ON")
    requests = [Request(T0, [event(number)], done=lambda _: None) for number in range(3)]
    for request in requests:
        journal.submit(request)
    tell(journal, "PRAGMA query_only = OFF")
    assert len({id(request.error) for request in requests}) == 3
    assert all(isinstance(request.error, JournalFullError) for request in requests)


def test_a_closed_journal_says_so_to_readers(journal: SqliteJournal) -> None:
    journal.close()
    for ask in (journal.state, journal.trim, journal.blocks):
        with pytest.raises(JournalError, match="closed"):
            ask(1) if ask != journal.state else ask()  # type: ignore[operator]


def test_abandoning_answers_who_waits(journal: SqliteJournal) -> None:
    answers: list[Request] = []
    with held(journal):
        journal.submit(Request(T0, [event(1)], done=answers.append))
        ending = threading.Thread(target=journal.abandon)
        ending.start()
        while not answers:
            ending.join(0.01)
    ending.join()
    assert isinstance(answers[0].error, JournalError)


# Ids.


def test_a_collision_of_hashes_never_loses_an_event(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (draft, ids):
        monkeypatch.setattr(module, "hash", lambda _: 7, raising=False)
    assert submit(journal, event(1), event(2), event(1)).offsets == [1, 2, 1]
    assert submit(journal, event(3), event(2), event(1), event(3)).offsets == [3, 2, 1, 3]
    journal.merge_now()
    assert submit(journal, event(1), event(2), event(3), event(4)).offsets == [1, 2, 3, 4]
    assert [each.id for each in stored(journal)] == ["1", "2", "3", "4"]


def test_ids_are_found_in_merged_blocks_and_after_reopening(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        for number in range(20):
            submit(journal, event(number), arrived=T0 + number)
        assert journal.merge_now() == 20
        submit(journal, event(20), arrived=T0 + 20)
        everything = [event(number) for number in range(21)]
        assert submit(journal, *everything, arrived=T0 + 30).offsets == list(range(1, 22))
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        assert journal.stats()["ids"] == 21
        assert submit(journal, *everything, arrived=T0 + 30).offsets == list(range(1, 22))


def test_opening_reads_no_more_ids_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        for number in range(40):
            submit(journal, event(number), arrived=T0 + number * SECOND)
    monkeypatch.setattr(contract, "DEDUP_LEAST", 5)
    for seconds, most, held_ids in [(0, 100, 5), (10, 100, 11), (10, 8, 8), (100, 100, 40)]:
        monkeypatch.setattr(contract, "DEDUP_SECONDS", seconds)
        monkeypatch.setattr(contract, "DEDUP_MOST", most)
        with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
            assert journal.stats()["ids"] == held_ids


def test_old_ids_are_cleared_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "DEDUP_LEAST", 2000)
    monkeypatch.setattr(contract, "DEDUP_SECONDS", 10)
    monkeypatch.setattr(contract, "DEDUP_MOST", 5000)
    memory, sizes = Ids(lambda _: None), []
    for offset in range(1, 20_001):
        memory.stamp(offset, T0 + offset * 10_000)  # a hundred a second: the number decides
        memory.load(offset, [("s", str(offset))])
        memory.clear_old(offset, T0 + offset * 10_000)
        sizes.append(len(memory))
    assert min(sizes[2000:]) >= 2000 and max(sizes) <= 3100
    for offset in range(20_001, 40_001):
        memory.stamp(offset, T0 + 200 * SECOND)  # all at once: time would keep them, the upper bound does not
        memory.load(offset, [("s", str(offset))])
        memory.clear_old(offset, T0 + 200 * SECOND)
        sizes.append(len(memory))
    assert max(sizes) <= 6100 and len(memory) >= 5000
    memory.back_to(39_000)
    assert max(memory.known.values()) == 39_000


def test_the_largest_numbers_survive(journal: SqliteJournal) -> None:
    fields: dict[str, Any] = {"attributes": {"big": 2**63 - 1, "small": -(2**63)}, "data": {"huge": 10**40}}
    submit(journal, event(1, **fields))
    journal.merge_now()
    (found,) = stored(journal)
    assert (found.attributes, found.data) == (fields["attributes"], fields["data"])

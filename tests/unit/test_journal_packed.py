"""Events that come packed: stored as others are, by every journal, without being unpacked."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conformance.journal_suite import T0, event, stored, submit
from tests.unit.test_journal_commit import together
from tocsin.clock import as_datetime
from tocsin.errors import JournalError
from tocsin.journal import blocks, draft, packed, sqlite
from tocsin.journal.check import check
from tocsin.journal.contract import Committed, Journal, Request
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.packed import Chunk, PackedEvents, pack
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event

TIME = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
MAKE: dict[str, Callable[[Path], Journal]] = {
    "memory": lambda path: MemoryJournal(),
    "file": lambda path: SqliteJournal(path, merge=False),
    "lazy": lambda path: SqliteJournal(path, merge=False, lazy=True),
}


@pytest.fixture(params=MAKE)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    journal = MAKE[request.param](tmp_path / "j.db")
    yield journal
    journal.close()


def some(*ids: object) -> list[Event]:
    """Events with a time, of every kind."""
    kinds = [
        {"data": {"n": 1.5, "text": "é"}, "attributes": {"a": True, "b": 2**62}},
        {"data": b"\0\xff", "datacontenttype": "image/png", "priority": 10, "ttl": 1.5},
        {"data": "plain", "datacontenttype": "text/plain", "ack": "client", "cancel": "any", "subject": "s"},
        {"persistent": False, "classification": "secret", "correlation_id": "c"},
    ]
    return [event(id, time=TIME, **kinds[place % 4]) for place, id in enumerate(ids)]


def as_chunks(events: list[Event], each: int = 3) -> list[Chunk]:
    """Packed, a few to the chunk."""
    parts = [events[start : start + each] for start in range(0, len(events), each)]
    return [Chunk.of(rows, count) for part in parts for rows, count in pack(part)]


def send(journal: Journal, events: PackedEvents, **fields: object) -> Request:
    """`submit` for events that stay packed."""
    over = threading.Event()
    request = Request(T0, events, done=lambda _: over.set(), **fields)  # type: ignore[arg-type]
    journal.submit(request)
    assert over.wait(30), "the request was not answered"
    return request


def test_packed_events_come_back_as_they_were(journal: Journal) -> None:
    events = some(*range(10))
    packed_events = PackedEvents(as_chunks(events))
    assert list(packed_events) == events and len(packed_events) == 10
    assert packed_events[-1] == events[-1] and packed_events[2:4] == events[2:4]
    with pytest.raises(IndexError):
        packed_events[10]
    submit(journal, event("before"))
    heard: list[Committed] = []
    journal.listeners.append(heard.append)
    done = send(journal, packed_events, by="anna", state={"a": b"1"}, writer="w", position=4)
    assert (list(done.offsets), done.fresh, done.error) == (list(range(2, 12)), 10, None)
    expected = [each.replace(offset=n, arrived=as_datetime(T0)) for n, each in enumerate(events, 2)]
    assert stored(journal, 2) == expected
    # Who listens hears of them, or where they are.
    assert heard[0].events == expected or (heard[0].events, heard[0].unread) == ([], (2, 11))
    assert journal.state() == {"a": b"1"} and {journal.publisher(offset) for offset in range(2, 12)} == {"anna"}
    again = send(journal, PackedEvents(as_chunks(some("other"))), writer="w", position=4)
    assert (list(again.offsets), again.fresh, journal.head) == (list(range(2, 12)), 0, 11)
    assert journal.append([event("after")]) == [12]


def test_what_was_stored_before_is_left_out(journal: Journal) -> None:
    journal.append(some("a", "b"))
    done = send(journal, PackedEvents(as_chunks(some("c", "a", "d", "c", "e", "b", "e", "a"), 2)))
    assert (list(done.offsets), done.fresh) == ([3, 1, 4, 3, 5, 2, 5, 1], 3)
    assert [each.id for each in stored(journal)] == ["a", "b", "c", "d", "e"]
    assert journal.append(some("d", "f")) == [4, 6]
    again = send(journal, PackedEvents(as_chunks(some("f", "d"))))
    assert (list(again.offsets), again.fresh, journal.head) == ([6, 4], 0, 6)
    assert list(send(journal, PackedEvents([])).offsets) == []


def test_what_is_unique_is_known_to_those_after_it(journal: Journal) -> None:
    journal.append(some("a"))
    assert list(send(journal, PackedEvents(as_chunks(some("b", "c", "d", "e")), unique=True)).offsets) == [2, 3, 4, 5]
    assert journal.append(some("c", "f")) == [3, 6]
    assert list(send(journal, PackedEvents(as_chunks(some("g")), unique=True)).offsets) == [7]
    assert journal.append(some("g", "a")) == [7, 1]


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_spoilt_chunks_refuse_the_request_alone(journal: Journal, damage: str) -> None:
    good, bad = as_chunks(some("a", "b")), as_chunks(some("c", "d"))

    def read() -> bytes:
        if damage == "gone":
            raise FileNotFoundError("no such file")
        rows = bytes(bad[0].read())
        return rows[:-1] if damage == "cut" else bytes([rows[0] ^ 1]) + rows[1:]

    spoilt = Chunk(bad[0].count, bad[0].size, bad[0].checksum, read)
    for unique in (True, False):
        done = send(journal, PackedEvents([*good, spoilt], unique=unique), writer="w", position=1, state={"a": b"1"})
        assert isinstance(done.error, JournalError) and "packed" in str(done.error), done.error
        assert journal.head == 0 and journal.state() == {}
    assert list(send(journal, PackedEvents([*good, *bad]), writer="w", position=1).offsets) == [1, 2, 3, 4]


def test_an_event_without_a_time_is_not_packed() -> None:
    with pytest.raises(ValueError, match="time"):
        list(pack([event(1)]))


# What only a file has.


def test_chunks_share_blocks_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "BLOCK_EVENTS", 10)
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        mixed = PackedEvents(as_chunks(some(*range(26)), 4))
        together(journal, Request(T0, some("x", "y")), Request(T0 + 1, mixed), Request(T0 + 2, some("z")))
        found = [(block.first, block.last) for block in journal.blocks()]
        assert found == [(1, 2), (3, 10), (11, 18), (19, 28), (29, 29)]
        monkeypatch.setattr(draft, "BLOCK_BYTES", 400)
        send(journal, PackedEvents(as_chunks([event(n, time=TIME, data="x" * 150) for n in "abcde"], 1)))
        assert len(list(journal.blocks(30))) == 3
        too_many = send(journal, PackedEvents(as_chunks(some(*range(100, 111)), 11)))
        assert isinstance(too_many.error, JournalError)
        assert len(stored(journal)) == journal.head == 34
    assert not check(tmp_path / "j.db").problems


def test_packing_ends_chunks_where_blocks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (packed.BLOCK_EVENTS, packed.BLOCK_BYTES) == (blocks.BLOCK_EVENTS, blocks.BLOCK_BYTES)
    monkeypatch.setattr(packed, "BLOCK_EVENTS", 4)
    assert [count for _, count in pack(some(*range(10)))] == [4, 4, 2]
    monkeypatch.setattr(packed, "BLOCK_BYTES", 1)
    assert [count for _, count in pack(some(*range(3)))] == [1, 1, 1]


def test_a_lazy_journal_reads_ids_when_it_must(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        journal.append(some(*range(50)))
    with SqliteJournal(tmp_path / "j.db", lazy=True) as journal:
        assert journal.stats()["ids"] == 0
        send(journal, PackedEvents(as_chunks(some("new")), unique=True))
        submit(journal, state={"a": b"1"})
        assert journal.stats()["ids"] == 0
        assert journal.append([event(7), event("new")]) == [8, 51]
        assert journal.stats()["ids"] == 51


def test_ids_may_be_handed_to_the_next_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def noted(block: blocks.Stored, path: str) -> list[tuple[str, str]]:
        read.append(block.first)
        return blocks.identities_of(block, path)

    monkeypatch.setattr(sqlite, "identities_of", noted)
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        journal.append(some(*range(50)))
        first = journal.ids
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        journal.append(some("a", "b"))
    assert read == [1]
    with SqliteJournal(tmp_path / "j.db", merge=False, lazy=True, ids=first) as journal:
        assert read == [1] and journal.ids is first
        assert journal.append(some(7, "b", "c")) == [8, 52, 53]
        assert read == [1, 51]  # the first block was known
        journal.merge_now()
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        journal.append(some("d"))
        journal.merge_now()
    with SqliteJournal(tmp_path / "j.db", merge=False, ids=first) as journal:
        assert journal.append(some(7, "b", "c", "d", "e")) == [8, 52, 53, 54, 55]
    with SqliteJournal(tmp_path / "other.db", ids=first) as journal:  # another file's are not taken
        assert journal.append(some(7, 7)) == [1, 1] and journal.ids is not first


def test_any_mixture_is_stored_as_plain_events_would_be(tmp_path: Path) -> None:
    """Random requests, packed or not, against the journal in memory with the same events unpacked."""
    chance = random.Random(4)
    oracle = MemoryJournal()
    journal = SqliteJournal(tmp_path / "j.db", lazy=True)
    for turn in range(300):
        if chance.random() < 0.15:
            journal.close()
            ids = journal.ids if chance.random() < 0.7 else None
            journal = SqliteJournal(tmp_path / "j.db", lazy=chance.random() < 0.7, ids=ids)
            if chance.random() < 0.3:
                journal.merge_now()
        events = some(*(chance.randrange(300) for _ in range(chance.randrange(1, 12))))
        plain = submit(oracle, *events, arrived=T0)
        if chance.random() < 0.6:
            done = send(journal, PackedEvents(as_chunks(events, chance.randrange(1, 5))))
        else:
            done = submit(journal, *events, arrived=T0)
        assert (list(done.offsets), done.fresh) == (list(plain.offsets), plain.fresh), turn
    assert journal.head == oracle.head > 100 and stored(journal) == stored(oracle)
    journal.close()

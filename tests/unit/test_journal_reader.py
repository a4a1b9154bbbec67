"""Reading while others write, merge and trim: from threads and from processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conformance.journal_suite import T0, event, stored, submit
from tocsin.clock import SECOND
from tocsin.errors import JournalDamagedError, JournalError, TrimmedError
from tocsin.journal import reader as reader_module
from tocsin.journal import store
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal

READER = """
import sys
from tocsin.journal.reader import open_reader
with open_reader(sys.argv[1]) as reader:
    print("open", flush=True)
    rounds = 0
    while True:
        head = reader.head
        forwards = [e.offset for b in reader.blocks(1, head) for e in b.events() if e.offset <= head]
        assert forwards == list(range(1, head + 1)), forwards
        backwards = [(b.first, b.last) for b in reader.blocks(1, head, backwards=True)]
        assert all(a[0] == b[1] + 1 for a, b in zip(backwards, backwards[1:])), backwards
        assert [o for b in reader.read(1, head) for o in b.column("offset").to_pylist()] == forwards
        half = head // 2
        if half:
            assert reader.offset_at(1_767_225_600_000_000 + half * 1000) == half, half
        assert reader.state()["n"] >= str(head).encode().rjust(9, b"0")
        rounds += 1
        if head == 2000:
            break
print(rounds, flush=True)
"""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        yield journal


def fill(journal: SqliteJournal, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        submit(journal, event(number, data={"n": number}), arrived=T0 + number * 1000)


def test_another_process_reads_during_writes_and_merges(journal: SqliteJournal, tmp_path: Path) -> None:
    submit(journal, event(1), arrived=T0 + 1000, state={"n": b"000000001"})
    child = subprocess.Popen(
        [sys.executable, "-c", READER, str(tmp_path / "j.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "open\n"
    for number in range(2, 2001):
        submit(journal, event(number), arrived=T0 + number * 1000, state={"n": str(number).encode().rjust(9, b"0")})
        if number % 100 == 0:
            journal.merge_now()
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert int(output) > 1


def test_a_block_is_readable_after_it_was_merged(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_WITH_DATA", f"{reader_module._ABOUT}, NULL")  # as for large blocks
    fill(journal, 10)
    held = list(journal.blocks())
    journal.merge_now()
    assert len(list(journal.blocks())) == 1
    for number, block in enumerate(held, 1):
        assert [each.id for each in block.events()] == [str(number)]
        assert block.batch().column("offset").to_pylist() == [number]
    (whole,) = journal.blocks()
    fill(journal, 5, 11)
    journal.merge_now()
    assert [each.offset for each in whole.events()] == list(range(1, 11))


def test_a_walk_goes_on_through_merges(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_PAGE", 3)
    fill(journal, 20)
    forwards, backwards = journal.blocks(), journal.blocks(backwards=True)
    there = [next(forwards) for _ in range(4)]
    back = [next(backwards) for _ in range(4)]
    journal.merge_now()
    there += forwards
    back += backwards
    for walk in (there, back[::-1]):
        assert [each.offset for block in walk for each in block.events()] == list(range(1, 21))
        assert [offset for block in walk for offset in range(block.first, block.last + 1)] == list(range(1, 21))
        for block in walk:
            assert block.arrived == (T0 + block.first * 1000, T0 + block.last * 1000)


def test_a_walk_says_that_it_was_overtaken_by_a_trim(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_PAGE", 3)
    fill(journal, 20)
    walk, back, all_there_is = journal.blocks(2), journal.blocks(2, backwards=True), journal.blocks(backwards=True)
    next(walk)
    late = journal.blocks()
    journal.trim(10)
    with pytest.raises(TrimmedError) as caught:
        list(walk)
    assert caught.value.first == 10
    with pytest.raises(TrimmedError):
        list(back)
    assert [block.first for block in all_there_is] == list(range(20, 9, -1))
    assert [block.first for block in late] == list(range(10, 21))  # it asked for what there is, and had not begun


def test_a_trimmed_block_says_so(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_WITH_DATA", f"{reader_module._ABOUT}, NULL")
    fill(journal, 3)
    block = next(iter(journal.blocks()))
    journal.trim(2)
    with pytest.raises(TrimmedError):
        block.events()


def test_a_missing_block_is_damage_not_silence(journal: SqliteJournal) -> None:
    fill(journal, 6)
    journal._committer.run(lambda: journal._store.db.execute("DELETE FROM blocks WHERE first = 3"))
    for read in (journal.blocks(), journal.blocks(backwards=True), journal.read(2), journal.blocks(3)):
        with pytest.raises(JournalDamagedError) as caught:
            list(read)
        assert (caught.value.first, caught.value.last) == (3, 3)
    assert [each.offset for each in stored(journal, 4)] == [4, 5, 6]


def test_moments_are_found_in_blocks_of_any_size(journal: SqliteJournal) -> None:
    offset = 0
    for size in [1, 7, 1, 1, 30, 2, 11]:
        submit(journal, *(event(offset + each) for each in range(size)), arrived=T0 + offset * SECOND)
        offset += size
    arrived = [at for batch in journal.read() for at in batch.column("arrived").cast(pa.int64()).to_pylist()]

    def plainly(moment: int) -> int:
        return next((place for place, at in enumerate(arrived, 1) if at >= moment), len(arrived) + 1)

    for _ in range(2):
        for second in range(-1, 60):
            for more in (0, 1):
                assert journal.offset_at(T0 + second * SECOND + more) == plainly(T0 + second * SECOND + more)
        journal.merge_now()


def test_many_threads_read_while_one_writes(journal: SqliteJournal) -> None:
    fill(journal, 1)
    over, faults = threading.Event(), []

    def read() -> None:
        try:
            while not over.is_set():
                head = journal.head
                found = [each.offset for each in stored(journal, 1, head) if (each.offset or 0) <= head]
                assert found == list(range(1, head + 1))
        except BaseException as error:  # reported by the test's own thread
            faults.append(error)

    threads = [threading.Thread(target=read) for _ in range(12)]  # more than connections are kept
    for thread in threads:
        thread.start()
    for number in range(5):
        fill(journal, 20, 2 + number * 20)
        journal.merge_now()
    over.set()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_reader_opens_a_closed_and_a_crashed_file(tmp_path: Path) -> None:
    path = tmp_path / "j ü?.db"
    with SqliteJournal(path, merge=False) as journal:
        fill(journal, 3)
    with open_reader(path) as reader:
        assert (reader.head, reader.first) == (3, 1) and len(list(reader.blocks())) == 3
        with SqliteJournal(path, merge=False) as journal:
            submit(journal, event(4), state={"a": b"1"}, by="anna")
            assert reader.head == 4 and reader.state("a") == {"a": b"1"} and reader.publisher(4) == "anna"
            assert reader.notes(4) == []
            journal.abandon()
    with open_reader(path) as reader:
        assert reader.head == 4


@pytest.mark.parametrize("last", ["b", "\ud7ff", "\U0010ffff", "z\U0010ffff\U0010ffff"])
def test_state_is_found_by_any_prefix(journal: SqliteJournal, last: str) -> None:
    names = {name: b"" for name in ("a", last, last + "a", last + "\U0010ffff", "\ue000", "zz", last[:-1] + "c")}
    submit(journal, state=names)
    assert list(journal.state(last)) == sorted(name for name in names if name.startswith(last))


def test_the_log_does_not_grow_for_ever(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LOG_MOST", 100_000)
    log = tmp_path / "j.db-wal"
    with open_reader(tmp_path / "j.db") as reader, reader.connection() as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM blocks").fetchone()
        for number in range(64):
            submit(journal, event(number, data="x" * 5_000))
        assert log.stat().st_size > 100_000  # someone reads what is in it
    for number in range(64):
        submit(journal, event((number, 2)))
    journal.trim(1)  # waits until the chores after the last commit are done
    assert log.stat().st_size == 0


def test_a_medium_without_room_for_an_index_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    with SqliteJournal(path) as journal:
        journal.append([event(1)])
    connect, asked = sqlite3.connect, []

    def refuse(place: str, **options: object) -> sqlite3.Connection:
        asked.append(place)
        if "immutable" not in place:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return connect(place, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reader_module.sqlite3, "connect", refuse)
    with open_reader(path) as reader:
        assert reader.head == 1 and len(asked) == 2
    (tmp_path / "j.db-wal").write_bytes(b"something")  # then there is more than the file, and it may not be left out
    with pytest.raises(JournalError, match="cannot be opened"):
        open_reader(path)

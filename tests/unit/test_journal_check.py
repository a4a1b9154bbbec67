"""Damage: found, named, refused by readers, and mended only in the open."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.conformance.journal_suite import T0, event, stored, submit
from tocsin.clock import SECOND
from tocsin.errors import JournalDamagedError, JournalError
from tocsin.journal.check import check
from tocsin.journal.contract import Note
from tocsin.journal.repair import repair
from tocsin.journal.sqlite import SqliteJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed journal: a segment of offsets 1-6, blocks 7, 8 and 9-10; each payload names its offset."""
    path = tmp_path / "j.db"
    with SqliteJournal(path, merge=False) as journal:
        for number in range(1, 7):
            submit(journal, payload(number), arrived=T0 + number)
        journal.merge_now()
        submit(journal, payload(7), writer="w", position=1)
        submit(journal, payload(8), notes=[Note(8, T0, "x")], state={"a": b"1"}, by="anna")
        submit(journal, payload(9), payload(10), writer="w", position=2, arrived=T0 + SECOND)
    return path


def payload(number: int) -> object:
    return event(number, data=f"payload-{number:04}", datacontenttype="text/plain")


def flip(path: Path, text: str) -> None:
    """Change a byte in the file, in the middle of a text it holds once."""
    content = bytearray(path.read_bytes())
    assert content.count(text.encode()) == 1
    content[content.index(text.encode()) + len(text) // 2] ^= 0x20
    path.write_bytes(content)


def run(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


def damaged(path: Path) -> list[tuple[int, int, bool]]:
    return [(each.first, each.last, each.at_end) for each in check(path).damaged]


def test_a_good_file_is_good(path: Path) -> None:
    report = check(path)
    assert report.ok and (report.first, report.head, report.events, report.blocks) == (1, 10, 10, 4)
    assert "everything is as it was written" in report.lines()[-1]
    assert repair(path).lines() == ["nothing had to be removed"]
    assert list(path.parent.glob("*removed*")) == []


def test_it_may_be_checked_while_it_is_written(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append([payload(11)])
        assert check(path).ok and check(path).head == 11
        journal.trim(9)
        assert check(path).ok and check(path).first == 9
        journal.trim(99)
        assert check(path).ok


@pytest.mark.parametrize(
    ("text", "found"),
    [("payload-0007", (7, 7, False)), ("payload-0010", (9, 10, True))],
)
def test_a_flipped_byte_is_found_and_refused(path: Path, text: str, found: tuple[int, int, bool]) -> None:
    flip(path, text)
    assert damaged(path) == [found]
    with SqliteJournal(path, merge=False) as journal:
        blocks = {(block.first, block.last): block for block in journal.blocks()}
        for read in (blocks[found[:2]].events, blocks[found[:2]].batch, lambda: list(journal.read(found[0]))):
            with pytest.raises(JournalDamagedError) as caught:
                read()
            assert (caught.value.first, caught.value.last) == found[:2]
        good = [block for ends, block in blocks.items() if ends != found[:2]]
        assert sum(len(block.events()) for block in good) == 10 - (found[1] - found[0] + 1)
        assert journal.append([payload(11)]) == [11]  # it still takes events


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE blocks SET data = zeroblob(5) WHERE first = 1",  # of the segment
        "UPDATE blocks SET data = substr(data, 1, length(data) - 1) WHERE first = 1",
        "UPDATE blocks SET last = 5 WHERE first = 1",
        "UPDATE blocks SET last = 7 WHERE first = 1",
        "UPDATE blocks SET last = 9000000000000000000 WHERE first = 1",
        "UPDATE blocks SET last = 0 WHERE first = 1",
        "UPDATE blocks SET arrived_first = 0 WHERE first = 1",
        "UPDATE blocks SET format = 'm' WHERE first = 1",
        "UPDATE blocks SET format = 'q' WHERE first = 1",
        "UPDATE blocks SET checksum = checksum + 1 WHERE first = 1",
        "UPDATE blocks SET data = (SELECT data FROM blocks WHERE first = 7) WHERE first = 1",
        "UPDATE blocks SET data = 'text' WHERE first = 1",
        "DELETE FROM blocks WHERE first = 1",
    ],
)
def test_every_column_counts(path: Path, statement: str) -> None:
    run(path, statement)
    offsets = [offset for first, last, _ in damaged(path) for offset in range(first, last + 1)]
    assert offsets == [1, 2, 3, 4, 5, 6]
    repair(path, force=True)
    assert check(path).ok
    assert [offset for first, last in check(path).lost for offset in range(first, last + 1)] == offsets
    with SqliteJournal(path, merge=False) as journal:
        assert [each.offset for each in stored(journal)] == [7, 8, 9, 10]


def test_what_is_beside_the_blocks_is_checked(path: Path) -> None:
    run(
        path,
        "UPDATE blocks SET statistics = zeroblob(20) WHERE first = 1",
        "UPDATE blocks SET publishers = zeroblob(20) WHERE first = 8",
        "UPDATE writers SET offsets = x'c1' WHERE position = 1",
        "UPDATE writers SET offsets = x'9192640a' WHERE position = 2",  # from 100 on
        "INSERT INTO notes VALUES (77, 0, 'x', '')",
        "INSERT INTO state VALUES ('b', 'text')",
    )
    report = check(path)
    assert not report.ok and not report.damaged and len(report.problems) == 6
    with SqliteJournal(path, merge=False) as journal:
        (block, *_) = journal.blocks()
        assert block.statistics is None and len(block.events()) == 6  # damaged statistics hide nothing
        with pytest.raises(JournalDamagedError):
            journal.publisher(8)


def test_a_torn_tail_is_cut_in_the_open(path: Path) -> None:
    flip(path, "payload-0008")
    flip(path, "payload-0010")
    assert damaged(path) == [(8, 8, True), (9, 10, True)]
    done = repair(path)
    assert [(each.first, each.last) for each in done.removed] == [(8, 8), (9, 10)] and done.left == []
    assert done.writers == [("w", 2)]
    assert any("offsets 9 to 10" in line for line in done.lines()) and any(
        str(done.copy) in line for line in done.lines()
    )
    assert done.copy is not None and done.copy.startswith(f"{path}.removed-2")
    db = sqlite3.connect(done.copy)
    kept = db.execute("SELECT first, last, data, reason FROM blocks ORDER BY first").fetchall()
    db.close()
    assert [row[:2] for row in kept] == [(8, 8), (9, 10)] and b"payload-0009" in kept[1][2] and "checksum" in kept[1][3]
    assert check(path).ok
    with SqliteJournal(path, merge=False) as journal:
        assert [each.offset for each in stored(journal)] == list(range(1, 8))
        # Offsets do not come back, and what was lost may be sent again.
        assert journal.head == 10
        assert submit(journal, payload(9), payload(10), writer="w", position=2).offsets == [11, 12]
        assert [each.offset for block in journal.blocks(backwards=True) for each in block.events()][:3] == [11, 12, 7]
        assert (journal.offset_at(T0 + 6), journal.offset_at(T0 + 7)) == (6, 13)
        journal.merge_now()
        assert [each.offset for each in stored(journal)] == [*range(1, 8), 11, 12]
    assert check(path).ok


def test_damage_in_the_middle_is_left_unless_forced(path: Path) -> None:
    flip(path, "payload-0007")
    flip(path, "payload-0009")
    done = repair(path)
    assert [each.first for each in done.removed] == [9] and [each.first for each in done.left] == [7]
    assert "--force" in " ".join(done.lines())
    assert damaged(path) == [(7, 7, False)]
    forced = repair(path, force=True)
    assert [each.first for each in forced.removed] == [7] and forced.copy != done.copy
    assert check(path).lost == [(7, 7), (9, 10)] and check(path).ok
    assert forced.writers == []  # only a tail is sent again


def test_a_file_that_sqlite_cannot_read_is_reported(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    try:
        report = check(path)
        assert not report.ok
    except JournalError:
        pass  # so broken that it is no journal at all
    with pytest.raises(JournalError):
        SqliteJournal(path)


def test_repair_needs_a_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no file"):
        repair(tmp_path / "nothing.db")
    assert list(tmp_path.iterdir()) == []

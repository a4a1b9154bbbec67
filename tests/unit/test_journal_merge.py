"""Merging: what is chosen, what it makes, and what it leaves alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.journal_suite import T0, event, stored, submit
from tocsin.errors import JournalFullError
from tocsin.journal import merge
from tocsin.journal.blocks import ARROW, LOST, ROWS
from tocsin.journal.check import check
from tocsin.journal.merge import Piece, plan
from tocsin.journal.sqlite import SqliteJournal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        yield journal


def fill(journal: SqliteJournal, count: int) -> None:
    for number in range(journal.head + 1, journal.head + 1 + count):
        submit(journal, event(number, data={"n": number}), arrived=T0 + number, by=f"p{number % 3}")


def pieces(*blocks: tuple[str, int] | tuple[str, int, int]) -> list[Piece]:
    """Consecutive blocks from format, events and bytes."""
    found, first = [], 1
    for format, events, *size in blocks:
        found.append(Piece(first, first + events - 1, format, size[0] if size else events * 100))
        first += events
    return found


ROW, SMALL, LARGE, GONE = (ROWS, 1), (ARROW, 300), (ARROW, 60_000), (LOST, 5)


@pytest.mark.parametrize(
    ("blocks", "wanted"),
    [
        ([], slice(0)),
        ([ROW] * 255, slice(0)),
        ([ROW] * 256, slice(256)),
        ([LARGE, *[ROW] * 300], slice(1, 301)),
        ([*[ROW] * 200, GONE, *[ROW] * 200], slice(0)),
        ([*[ROW] * 20, GONE, *[ROW] * 256], slice(21, 277)),
        ([(ROWS, 1000)] * 100, slice(65)),  # 64k events, and there are more
        ([(ROWS, 1000)] * 33, slice(33)),  # half a segment
        ([(ROWS, 1000)] * 32, slice(0)),
        ([(ROWS, 10, 3 << 20)] * 5, slice(2)),  # 8 MiB
        ([(ROWS, 1, 20 << 20), ROW], slice(1)),  # larger than a segment by itself
        ([SMALL] * 15, slice(0)),
        ([SMALL] * 16, slice(16)),
        ([*[SMALL] * 15, LARGE, *[SMALL] * 3, *[ROW] * 255], slice(0)),
        ([*[SMALL] * 16, *[ROW] * 256], slice(16)),
        ([(ARROW, 4000)] * 20, slice(16)),
    ],
)
def test_what_is_merged_next(blocks: list[tuple[str, int]], wanted: slice) -> None:
    given = pieces(*blocks)
    assert plan(given) == given[wanted]


def test_asked_to_merge_everything_it_does() -> None:
    for blocks in ([ROW], [GONE, ROW, ROW], [SMALL, SMALL], [LARGE, ROW]):
        assert plan(pieces(*blocks), all=True)
    for blocks in ([], [SMALL], [LARGE, LARGE], [GONE], [SMALL, GONE, SMALL]):
        assert not plan(pieces(*blocks), all=True)


def test_merging_changes_nothing_but_the_blocks(journal: SqliteJournal, tmp_path: Path) -> None:
    fill(journal, 50)
    before = stored(journal), [journal.publisher(offset) for offset in range(1, 51)]
    assert journal.merge_now() == 50
    (block,) = journal.blocks()
    assert (block.first, block.last, block.arrived) == (1, 50, (T0 + 1, T0 + 50))
    assert block.statistics is not None and block.statistics.types == {"alarm"}
    assert (stored(journal), [journal.publisher(offset) for offset in range(1, 51)]) == before
    assert journal.merge_now() == 0
    fill(journal, 10)
    assert journal.merge_now() == 12  # ten blocks of rows, then the two segments
    assert [(each.first, each.last) for each in journal.blocks()] == [(1, 60)]
    assert check(tmp_path / "j.db").ok


def test_it_happens_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "ENOUGH_ROWS", 8)
    with SqliteJournal(tmp_path / "j.db") as journal:
        done = threading.Event()
        replace = journal._merger._replace

        def watched(*arguments: object) -> bool:
            result = replace(*arguments)  # type: ignore[arg-type]
            done.set()
            return result

        journal._merger._replace = watched
        fill(journal, 40)
        assert done.wait(30)
        assert [each.offset for each in stored(journal)] == list(range(1, 41))
    with SqliteJournal(tmp_path / "j.db") as journal:
        assert journal.stats()["segments"] >= 1


@pytest.mark.parametrize(
    "damage", ["zeroblob(9)", "data || x'00'", "'text'", "7"], ids=["zeros", "bytes", "text", "number"]
)
def test_a_damaged_block_is_left_and_the_others_merged(
    journal: SqliteJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    fill(journal, 9)
    spoil = f"UPDATE blocks SET data = {damage} WHERE first = 5"
    journal._committer.run(lambda: journal._store.db.execute(spoil))
    assert journal.merge_now() == 8
    assert [(block.first, block.last) for block in journal.blocks()] == [(1, 4), (5, 5), (6, 9)]
    assert "damaged" in caplog.text
    assert [(each.first, each.last) for each in check(tmp_path / "j.db").damaged] == [(5, 5)]


def test_a_trim_meanwhile_wins(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(journal, 10)
    encode = merge.Merger._encode
    trims = iter([4])

    def slow(self: merge.Merger, run: list[Piece]) -> object:
        merged = encode(self, run)
        for before in trims:
            journal.trim(before)
        return merged

    monkeypatch.setattr(merge.Merger, "_encode", slow)
    journal.merge_now()
    assert journal.first == 4
    assert [(block.first, block.last) for block in journal.blocks()] == [(4, 10)]


def test_a_full_disk_leaves_the_blocks_as_they_are(journal: SqliteJournal) -> None:
    fill(journal, 10)
    journal._committer.run(lambda: journal._store.db.execute("PRAGMA query_only = ON"))
    with pytest.raises(JournalFullError):
        journal.merge_now()
    journal._committer.run(lambda: journal._store.db.execute("PRAGMA query_only = OFF"))
    assert len(list(journal.blocks())) == 10 and journal.merge_now() == 10


def test_space_of_trimmed_blocks_returns_to_the_disk(journal: SqliteJournal, tmp_path: Path) -> None:
    for number in range(20):
        submit(journal, event(number, data="x" * 100_000))
    full = (tmp_path / "j.db").stat().st_size + (tmp_path / "j.db-wal").stat().st_size
    assert full > 2_000_000
    journal.trim(16)
    left = (tmp_path / "j.db").stat().st_size + (tmp_path / "j.db-wal").stat().st_size
    assert left < 700_000
    assert len(stored(journal)) == 5

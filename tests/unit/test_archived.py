"""A journal and its lake read as one, while the border between them moves; archivers killed at every step."""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.test_lake import HOUR, NOON, event, filled, stored, tree
from tocsin.clock import ManualClock, as_datetime
from tocsin.errors import JournalError, LakeError, TrimmedError
from tocsin.filters.filter import Filter
from tocsin.journal import archiver, history, lakewriter
from tocsin.journal.archived import ArchivedJournal, open_archived
from tocsin.journal.bounds import Last
from tocsin.journal.contract import Journal, Request
from tocsin.journal.lake import Lake
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.rows import SCHEMA
from tocsin.journal.sqlite import SqliteJournal
from tocsin.journal.window import HotWindow

ROOT = Path(__file__).resolve().parents[2]
COUNT = 60


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    """Sixty events, two a commit, an hour between commits."""
    clock = ManualClock(as_datetime(NOON))
    made: Journal = MemoryJournal(clock=clock)
    if request.param == "file":
        made = SqliteJournal(tmp_path / "plant.db", clock=clock, merge=False)
    for n in range(1, COUNT + 1, 2):
        made.append([event(n), event(n + 1)])
        clock.advance(3600)
    yield made
    made.close()


@pytest.fixture
def joined(journal: Journal, tmp_path: Path) -> ArchivedJournal:
    return ArchivedJournal(journal, Lake(tmp_path / "lake"))


def archive(joined: ArchivedJournal, upto: int | None = None) -> None:
    archiver.archive(joined.journal, joined.lake.path, chunk=7, upto=upto)


def offsets(blocks: Any) -> list[int]:
    return [each.offset or 0 for block in blocks for each in block.events()]


def test_border_moves_under_a_walk(joined: ArchivedJournal) -> None:
    archive(joined, 20)
    for backwards in (False, True):
        walk = joined.blocks(backwards=backwards)
        found = offsets([next(walk), next(walk)])
        archive(joined, 40)
        joined.trim(30 if not backwards else 41)
        found += offsets(walk)
        assert sorted(found) == list(range(1, COUNT + 1))
    assert joined.kept > 30 and joined.first == 1


def test_block_in_hand_stays_readable(joined: ArchivedJournal) -> None:
    blocks = list(joined.blocks())
    archive(joined)
    joined.trim(COUNT + 1)
    assert joined.kept == COUNT + 1
    assert offsets(blocks) == list(range(1, COUNT + 1))
    table = pa.Table.from_batches([block.batch() for block in blocks], SCHEMA)
    assert table.column("offset").to_pylist() == list(range(1, COUNT + 1))
    assert [block.batch(("type",)).schema.names for block in blocks[:1]] == [["offset", "type"]]


def test_trim_beyond_the_archive_ends_a_walk(joined: ArchivedJournal, caplog: pytest.LogCaptureFixture) -> None:
    archive(joined, 20)
    joined.trim(15)
    walk = joined.blocks(3)
    found = offsets([next(walk)])
    joined.trim(41)
    with caplog.at_level(logging.WARNING), pytest.raises(TrimmedError) as told:
        for block in walk:
            found += offsets([block])
    assert found == list(range(1, 21))  # as far as anybody has it
    assert told.value.first == joined.first == joined.kept == 41
    assert "out of reach" in caplog.text
    assert offsets(joined.blocks()) == list(range(41, COUNT + 1))


@pytest.mark.parametrize("seed", range(12))
def test_any_border_at_any_time(joined: ArchivedJournal, seed: int) -> None:
    """Walks of all kinds while archiving and trimming go on in between their steps."""
    chance = random.Random(seed)
    walks: list[tuple[Iterator[Any], list[int], list[int]]] = []
    archived = 0
    for _ in range(60):
        what = chance.randrange(5)
        if what == 0:
            archived = max(archived, chance.randint(1, COUNT))
            archive(joined, archived)
        elif what == 1 and archived:
            joined.trim(chance.randint(1, archived + 1))
        elif what == 2:
            first, backwards = chance.randint(1, COUNT), chance.random() < 0.5
            last = chance.randint(first, COUNT)
            expected = list(range(first, last + 1))
            walks.append((joined.blocks(first, last, backwards=backwards), [], expected))
        else:
            for walk, found, _ in walks:
                block = next(walk, None)
                if block is not None:
                    found += offsets([block])
    for walk, found, expected in walks:
        found += offsets(walk)
        assert len(found) == len(set(found))
        assert set(expected) <= set(found)
        moment = NOON + chance.randint(-1, 2 * COUNT) * HOUR // 2
        plain = [
            each.offset for each in stored(joined) if each.arrived is not None and each.arrived >= as_datetime(moment)
        ]
        assert joined.offset_at(moment) == (plain[0] if plain else COUNT + 1)
    assert joined.first == 1


def test_history_and_window_reach_across(joined: ArchivedJournal) -> None:
    archive(joined, 33)
    joined.trim(33)
    found = history.search(joined, Filter("n % 5 = 0"), Last(10), now=NOON, upto=joined.head)
    assert found == [15, 20, 25, 30, 35, 40, 45, 50, 55, 60]
    window = HotWindow(1, joined)
    events = window.get_many(range(1, COUNT + 2))
    assert [each and each.id for each in events] == [*(f"e{n}" for n in range(1, COUNT + 1)), None]


def test_reader_of_both(tmp_path: Path) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    with SqliteJournal(path, clock=ManualClock(as_datetime(NOON)), merge=False) as journal:
        for n in range(1, 21):
            journal.append([event(n)])
        journal.submit(Request(NOON, state={"a/b": b"1"}))
        archiver.archive(journal, str(lake), chunk=6)
        journal.trim(11)
        with open_archived(path, lake) as both:
            assert (both.first, both.kept, both.head) == (1, 11, 20)
            assert offsets(both.blocks()) == list(range(1, 21))
            assert pa.Table.from_batches(both.read(5, 15)).column("offset").to_pylist() == list(range(5, 16))
            assert both.state("a/") == {"a/b": b"1"}
            assert both.offset_at(NOON) == 1
    with pytest.raises(JournalError):
        both.blocks()
    with pytest.raises(JournalError):
        open_archived(tmp_path / "none.db", lake)
    with SqliteJournal(tmp_path / "other.db") as other:
        other.append([event(n) for n in range(100, 130)])
    with pytest.raises(LakeError):
        open_archived(tmp_path / "other.db", lake)


# -- killed at every step

PROGRAM = """
import sys
from tocsin import testing
from tocsin.journal import archiver
from tocsin.journal.reader import open_reader
path, lake, point, times = sys.argv[1:]
testing.crash_at(point, int(times))
with open_reader(path) as reader:
    archiver.archive(reader, lake, chunk=7)
"""


@pytest.mark.crash
@pytest.mark.parametrize("point", ["archive-staged", "archive-moved", "archive-committed"])
def test_archiver_killed_at_a_named_point(tmp_path: Path, point: str) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    with SqliteJournal(path, clock=ManualClock(as_datetime(NOON))) as journal:
        filled([event(n, type=f"t{n % 3}") for n in range(1, 31)], journal=journal)
        archiver.archive(journal, str(lake), chunk=7, upto=10)
    for times in (2, 1):
        command = [sys.executable, "-c", PROGRAM, str(path), str(lake), point, str(times)]
        assert subprocess.run(command, cwd=ROOT).returncode == -signal.SIGKILL
        with open_archived(path, lake) as both:  # what is listed is whole, whatever lies about
            assert offsets(both.lake.blocks()) == list(range(1, both.lake.last + 1))
    with SqliteJournal(path) as journal:
        archiver.archive(journal, str(lake), chunk=7)
        archiver.archive(journal, str(tmp_path / "plain"), chunk=7)
    assert tree(lake) == tree(tmp_path / "plain") and len(tree(lake)["files"]) > 10


@pytest.mark.crash
@pytest.mark.slow
def test_archiver_killed_at_random_moments(tmp_path: Path) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    with SqliteJournal(path, clock=ManualClock(as_datetime(NOON))) as journal:
        filled((event(n, type=f"t{n % 3}") for n in range(1, 201)), per_commit=20, journal=journal)
    chance, killed, reached = random.Random(3), 0, set()
    for _ in range(4):
        command = [sys.executable, "-c", PROGRAM, str(path), str(lake), "archive-staged", "1000000"]
        process = subprocess.Popen(command, cwd=ROOT)
        with open_archived(path, lake) as both:
            before = both.archived
            while process.poll() is None and both.archived == before:  # it is at work now
                time.sleep(0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, 0.3))
        killed += process.poll() is None
        process.kill()
        process.wait()
        with open_archived(path, lake) as both:
            reached.add(both.lake.last)
            assert offsets(both.lake.blocks()) == list(range(1, both.lake.last + 1))
    assert killed > 1 and len(reached) > 1
    with SqliteJournal(path) as journal:
        archiver.archive(journal, str(lake), chunk=7)
        archiver.archive(journal, str(tmp_path / "plain"), chunk=7)
    assert tree(lake) == tree(tmp_path / "plain")


def test_chunk_that_is_too_large_to_be_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakewriter, "_KNOWN_BYTES", 100)
    archiver.archive(filled(map(event, range(1, 30))), str(tmp_path / "lake"))
    (chunk,) = Lake(tmp_path / "lake").manifest.chunks
    assert chunk.packed is None
    assert [block.statistics for block in Lake(tmp_path / "lake").blocks()] == [None]

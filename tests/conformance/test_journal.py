"""The journals we have, each against the one suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.journal_suite import T0, JournalSuite, LastingJournalSuite, event, stored
from tocsin.clock import SECOND, ManualClock
from tocsin.errors import TrimmedError
from tocsin.journal.archived import ArchivedJournal
from tocsin.journal.archiver import archive
from tocsin.journal.contract import Journal
from tocsin.journal.lake import Lake
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.sqlite import SqliteJournal


class TestMemory(JournalSuite):
    @staticmethod
    def make(place: Path, clock: ManualClock) -> Journal:
        return MemoryJournal(clock=clock)


class TestFile(LastingJournalSuite):
    @staticmethod
    def make(place: Path, clock: ManualClock) -> Journal:
        return SqliteJournal(place / "journal.db", clock=clock)


class TestLazyFile(LastingJournalSuite):
    """The same file, whose ids are read only when they are needed."""

    @staticmethod
    def make(place: Path, clock: ManualClock) -> Journal:
        return SqliteJournal(place / "journal.db", clock=clock, lazy=True)


class TestFileWithALake(LastingJournalSuite):
    """A journal that nobody has archived yet."""

    @staticmethod
    def make(place: Path, clock: ManualClock) -> Journal:
        return ArchivedJournal(SqliteJournal(place / "journal.db", clock=clock), Lake(place / "lake"))


class TestArchivedFile(JournalSuite):
    """A journal whose old part is in a lake alone: what can be read is the same."""

    @staticmethod
    def make(place: Path, clock: ManualClock) -> Journal:
        return ArchivedJournal(SqliteJournal(place / "journal.db", clock=clock), Lake(place / "lake"))

    def fill(self, journal: Journal) -> None:
        """The lake has offsets 1-6 in chunks of three, the journal 5-8."""
        super().fill(journal)
        assert isinstance(journal, ArchivedJournal)
        archive(journal.journal, journal.lake.path, chunk=3, upto=6)
        assert journal.trim(5) == journal.kept == 5

    def test_trim_drops_whole_blocks(self, journal: Journal) -> None:
        self.fill(journal)
        assert (journal.first, journal.kept, journal.head) == (1, 5, 8)
        assert journal.trim(7) == 5

    def test_what_was_trimmed_is_said_so(self, journal: Journal) -> None:
        """Trimmed and not archived: nothing before it is within reach."""
        self.fill(journal)
        journal.trim(100)
        assert (journal.first, journal.kept) == (9, 9)
        with pytest.raises(TrimmedError) as caught:
            list(journal.blocks(2))
        assert caught.value.first == 9
        assert list(journal.blocks()) == []

    def test_offsets_go_on_when_everything_is_trimmed(self, journal: Journal) -> None:
        self.fill(journal)
        assert isinstance(journal, ArchivedJournal)
        archive(journal.journal, journal.lake.path, chunk=3)
        assert journal.trim(100) == 9
        assert (journal.first, journal.head) == (1, 8)
        assert [each.offset for each in stored(journal)] == list(range(1, 9))
        assert [journal.offset_at(T0 + ahead) for ahead in (0, 1, 2 * SECOND, 2 * SECOND + 1)] == [1, 4, 5, 9]
        assert journal.append([event("new")]) == [9]
        assert [each.offset for each in stored(journal, 8)] == [7, 8, 9]  # a block holds what is asked for, and more

    def test_a_trimmed_event_may_come_again(self, journal: Journal) -> None:
        self.fill(journal)
        assert journal.append([event(5), event(1)]) == [5, 9]

    def test_numbers_for_people(self, journal: Journal) -> None:
        self.fill(journal)
        assert {"first": 5, "head": 8, "archived": 6}.items() <= journal.stats().items()

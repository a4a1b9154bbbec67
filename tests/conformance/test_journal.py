"""The journals we have, each against the one suite."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.journal_suite import JournalSuite, LastingJournalSuite
from tocsin.clock import ManualClock
from tocsin.journal.contract import Journal
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

"""Random lives of a journal: the file and the plain lists in memory always agree."""

from __future__ import annotations

import math
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.conformance.journal_suite import T0, event, stored
from tocsin.clock import SECOND
from tocsin.journal import contract
from tocsin.journal.check import check
from tocsin.journal.contract import Journal, Note, Request
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event

IDS = st.sampled_from("abcdef")
EVENTS = st.lists(st.builds(event, IDS, source=st.sampled_from("st")), max_size=5)
BAD = st.just(event("bad", data=math.nan))
WRITERS = st.none() | st.tuples(st.sampled_from("vw"), st.integers(1, 6))
STATE = st.dictionaries(st.sampled_from(["a", "ab", "b"]), st.none() | st.binary(max_size=2), max_size=2)
NOTES = st.lists(st.builds(Note, st.integers(1, 20), st.integers(0, 3), st.sampled_from("xy")), max_size=2)


class Lives(RuleBasedStateMachine):
    """Every step is done to both; the windows of ids are tiny, so that they matter."""

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(contract, "DEDUP_SECONDS", 3)
        self.patch.setattr(contract, "DEDUP_LEAST", 4)
        self.patch.setattr(contract, "DEDUP_MOST", 9)
        self.place = tempfile.TemporaryDirectory()
        self.path = Path(self.place.name) / "j.db"
        self.plain = MemoryJournal()
        self.file = SqliteJournal(self.path, merge=False)
        self.now = T0
        self.merged = False

    def teardown(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
            self.patch.undo()
            report = check(self.path)
            self.place.cleanup()
            # The notes drawn here are about any offset; that is all there may be to complain of.
            assert not report.damaged and all("notes are about" in each for each in report.problems), report.lines()

    @rule(
        events=EVENTS,
        bad=st.one_of(st.none(), st.none(), st.none(), BAD),
        seconds=st.sampled_from([-2, 0, 0, 1, 2, 4]),
        writer=WRITERS,
        state=STATE,
        notes=NOTES,
        durable=st.booleans(),
        by=st.sampled_from(["", "anna"]),
    )
    def submit(
        self,
        events: list[Event],
        bad: Event | None,
        seconds: int,
        writer: tuple[str, int] | None,
        state: dict[str, bytes | None],
        notes: list[Note],
        durable: bool,
        by: str,
    ) -> None:
        self.now += max(seconds, 0) * SECOND
        given = [*events, *([bad] if bad is not None else [])]
        name, position = writer if writer is not None else (None, None)
        answers = []
        for journal in (self.plain, self.file):
            done = threading.Event()
            heard: list[Event] = []
            journal.listeners[:] = [lambda commit, heard=heard, done=done: (heard.extend(commit.events), done.set())]
            request = Request(
                self.now + min(seconds, 0) * SECOND,
                given,
                writer=name,
                position=position,
                durable=durable,
                by=by,
                state=state,
                notes=notes,
                done=lambda request, done=done: done.set() if request.durable or request.error else None,
            )
            journal.submit(request)
            assert done.wait(5)
            answers.append((request.offsets, request.fresh, type(request.error), heard))
        assert answers[0] == answers[1]

    @rule(offset=st.integers(0, 40))
    def trim(self, offset: int) -> None:
        kept = self.file.trim(offset)
        if self.merged:  # the file has larger blocks, so it may keep more: bring the lists to its border
            assert self.plain.first <= kept <= max(offset, self.plain.first)
            while self.plain.first < kept:
                self.plain.trim(next(self.plain.blocks()).last + 1)
            offset = 0
        assert self.plain.trim(offset) == kept

    @rule()
    def merge(self) -> None:
        self.file.merge_now()
        self.merged = True

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        (self.file.close if clean else self.file.abandon)()
        self.file = SqliteJournal(self.path, merge=False)
        assert self.file.crashed != clean

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "file"):
            return
        assert self.view(self.file) == self.view(self.plain)

    def view(self, journal: Journal) -> object:
        first, head = journal.first, journal.head
        return (
            first,
            head,
            stored(journal),
            journal.state(),
            journal.state("a"),
            [journal.notes(offset) for offset in range(1, 21)],
            [journal.publisher(offset) for offset in range(first, head + 2)],
            [journal.offset_at(self.now - back * SECOND) for back in range(6)],
        )


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=settings().max_examples // 5, stateful_step_count=25)

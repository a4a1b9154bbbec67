"""kill -9 in the middle of everything: what was answered is there, what was not is there whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.journal_suite import T0, event, stored, submit
from tocsin.journal.check import check
from tocsin.journal.sqlite import SqliteJournal

WORKER = """
import sys, threading
from tocsin.journal import merge
from tocsin.journal.contract import Note, Request
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event

merge.ENOUGH_ROWS = 16  # so that merging is often under way
journal = SqliteJournal(sys.argv[1])

def work(name):
    for number in range(1, 1_000_000):
        answered = threading.Event()
        request = Request(
            1_767_225_600_000_000 + number,
            [Event("t", name, f"{number}-{part}", data={"n": number}) for part in range(3)],
            writer=name,
            position=number,
            state={name: str(number).encode()},
            notes=[Note(number, number, "x", name)],
            done=lambda _: answered.set(),
        )
        journal.submit(request)
        answered.wait()
        sys.stdout.write(f"{name} {number} {','.join(map(str, request.offsets))}\\n")
        sys.stdout.flush()

for name in "abcd":
    threading.Thread(target=work, args=(name,), daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.crash
@pytest.mark.parametrize("lines", [1, 40, 400])
def test_what_was_answered_survives(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "j.db"
    child = subprocess.Popen([sys.executable, "-c", WORKER, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(lines)]
    os.kill(child.pid, signal.SIGKILL)
    said += child.stdout.read().splitlines(keepends=True)
    child.wait()
    child.stdout.close()
    answered = {}
    for line in said:
        if line.endswith("\n"):  # the last one may be torn
            name, number, offsets = line.split()
            answered[name, int(number)] = [int(offset) for offset in offsets.split(",")]
    assert len(answered) >= lines
    assert check(path).ok
    with SqliteJournal(path, merge=False) as journal:
        assert journal.crashed
        found = stored(journal)
        assert [each.offset for each in found] == list(range(1, journal.head + 1))
        there: dict[tuple[str, int], list[int]] = {}
        for each in found:
            there.setdefault((each.source, int(each.id.split("-")[0])), []).append(each.offset or 0)
        assert answered.items() <= there.items()
        assert all(len(offsets) == 3 for offsets in there.values())  # whole, or not at all
        for name in "abcd":
            newest = max((number for source, number in there if source == name), default=0)
            # State, notes and position went with the events.
            assert journal.state(name) == ({name: str(newest).encode()} if newest else {})
            assert sum(note.who == name for number in range(1, newest + 2) for note in journal.notes(number)) == newest
            # Sent again it is stored once; the next one is new.
            repeat = [event(f"{newest}-{part}", type="t", source=name) for part in range(3)]
            if newest:
                assert submit(journal, *repeat, writer=name, position=newest).offsets == there[name, newest]
                assert submit(journal, *repeat, arrived=T0 + newest).offsets == there[name, newest]
            before = journal.head
            assert submit(journal, event("next", source=name), writer=name, position=newest + 1).offsets == [before + 1]
    with SqliteJournal(path) as journal:
        assert not journal.crashed

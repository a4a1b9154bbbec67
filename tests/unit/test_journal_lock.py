"""One writer, whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.journal_suite import event
from tocsin.errors import JournalLockedError
from tocsin.journal.lockfile import LockFile
from tocsin.journal.repair import repair
from tocsin.journal.sqlite import SqliteJournal

HOLDER = """
import sys
from tocsin.journal.sqlite import SqliteJournal
journal = SqliteJournal(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""
"""A process that keeps a journal open until its input ends."""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "j.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "open\n"
    with child:
        yield child  # type: ignore[misc]
        child.kill()


def test_a_second_process_is_told_who_writes(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    for action in (SqliteJournal, repair):
        with pytest.raises(JournalLockedError) as caught:
            action(tmp_path / "j.db")
        assert f"process {holder.pid} on {os.uname().nodename} since 2" in caught.value.holder
        assert caught.value.holder in str(caught.value) and caught.value.path == str(tmp_path / "j.db")


def test_a_dead_holder_is_no_obstacle(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert str(holder.pid) in (tmp_path / "j.db.lock").read_text()
    with SqliteJournal(tmp_path / "j.db") as journal:
        assert journal.crashed and journal.append([event(1)]) == [1]


def test_the_same_process_cannot_open_twice(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        with pytest.raises(JournalLockedError, match=f"process {os.getpid()} "):
            SqliteJournal(tmp_path / "j.db")
        assert journal.append([event(1)]) == [1]  # the attempt did no harm
    SqliteJournal(tmp_path / "j.db").close()


def test_a_forked_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    lock = LockFile(str(tmp_path / "j.db"))
    (here, child_writes), (child_reads, end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.close(end)
        os.write(child_writes, b"!")
        os.read(child_reads, 1)
        os._exit(0)
    try:
        os.read(here, 1)
        lock._close()  # as if this process had died
        LockFile(str(tmp_path / "j.db")).release()  # the child is alive, and has nothing
    finally:
        os.close(end)
        os.waitpid(child, 0)
        for each in (here, child_writes, child_reads):
            os.close(each)


def test_a_lock_file_that_says_nothing_still_locks(tmp_path: Path) -> None:
    lock = LockFile(str(tmp_path / "j.db"))
    (tmp_path / "j.db.lock").write_text("?")
    with pytest.raises(JournalLockedError, match="unknown process"):
        LockFile(str(tmp_path / "j.db"))
    lock.release()
    lock.release()

"""SQLite's log is copied beside the commits, and does not grow for ever."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tests.helpers import event
from tocsin.journal.contract import Request
from tocsin.journal.sqlite import SqliteJournal

NOISE = os.urandom(150_000).hex()


def test_the_log_is_begun_anew_while_events_pour_in(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqliteJournal(path, merge=False) as journal:
        largest = 0
        for number in range(200):  # 60 MB
            journal.append([event(str(number), data=NOISE)])
            largest = max(largest, os.path.getsize(f"{path}-wal"))
        assert 16 << 20 < largest < 48 << 20
        assert sum(len(block.events()) for block in journal.blocks()) == 200
    assert not os.path.exists(f"{path}-wal")
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_state_counts_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqliteJournal(path, merge=False) as journal:
        largest = 0
        for number in range(200):
            journal.submit(Request(number, state={f"name{number % 3}": os.urandom(300_000)}))
            journal.append([event(str(number))])
            largest = max(largest, os.path.getsize(f"{path}-wal"))
        assert 16 << 20 < largest < 48 << 20
        assert {name: len(value) for name, value in journal.state("name").items()} == dict.fromkeys(
            ("name0", "name1", "name2"), 300_000
        )


def test_a_commit_needs_no_other_file(tmp_path: Path) -> None:
    """Blocks and state go in one statement, for which SQLite makes a table of its own: in memory."""
    with SqliteJournal(tmp_path / "a.db", merge=False) as journal:
        assert journal._store.db.execute("PRAGMA temp_store").fetchone() == (2,)
        journal.submit(Request(1, state={"a": b"1", "b": b"2"}))
        journal.append([event("1", data=NOISE)])
        journal.submit(Request(2, state={"a": b"3", "b": None}))
        journal.append([event("2")])
        assert journal.state() == {"a": b"3"}
        assert journal.head == 2

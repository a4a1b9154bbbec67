"""Urls, files that are not ours, and files of older versions."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.conformance.journal_suite import T0, event, stored, submit
from tests.fixtures.make_journal import events
from tocsin.clock import SECOND, as_datetime
from tocsin.errors import JournalDamagedError, JournalError
from tocsin.journal import migrations
from tocsin.journal.check import check
from tocsin.journal.contract import Note
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.opening import file_path, open_journal
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def test_urls_name_journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_journal("memory:"), MemoryJournal)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    for url, place in {
        "file:plant.db": "plant.db",
        f"file:{tmp_path}/x%20.db": "x%20.db",  # as written
        f"file://{tmp_path}/a%20b/y.db": "a b/y.db",
        f"file://localhost{tmp_path}/z.db": "z.db",
        "file:./a b/ü?.db": "a b/ü?.db",
    }.items():
        journal = open_journal(url)
        journal.append([event(1)])
        journal.close()
        assert (tmp_path / place).is_file(), url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "not the url"),
        ("plant.db", "file:plant.db"),
        ("memory", "not the url"),
        ("file:", "names no file"),
        ("file://", "names no file"),
        ("file://host/plant.db", "another machine"),
        ("nats://host", "memory: or file:"),
        ("memory:x", "memory: or file:"),
        ("file:a\0b", "names no file"),
    ],
)
def test_other_urls_are_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(JournalError, match=words):
        open_journal(url)


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is a directory"):
        open_journal(f"file:{tmp_path}")
    with pytest.raises(JournalError, match="make its directory"):
        open_journal(f"file:{tmp_path}/nowhere/plant.db")
    assert file_path("file:/a") == file_path("file:///a") == "/a"


def test_a_file_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("dear diary, " * 1000)
    other = tmp_path / "other.db"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    for path, kind in [(text, JournalDamagedError), (other, JournalError)]:
        before = path.read_bytes()
        for action in (SqliteJournal, open_reader, check):
            with pytest.raises(kind):
                action(path)
        assert path.read_bytes() == before


def test_reading_needs_a_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be opened"):
        open_reader(tmp_path / "nothing.db")
    assert not (tmp_path / "nothing.db").exists()
    (tmp_path / "empty.db").touch()
    with pytest.raises(JournalError, match="holds no journal"):
        open_reader(tmp_path / "empty.db")


def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with SqliteJournal(tmp_path / "empty.db") as journal:
        assert journal.append([event(1)]) == [1]


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    SqliteJournal(tmp_path / "new.db").close()
    db = sqlite3.connect(tmp_path / "new.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    for action in (SqliteJournal, open_reader):
        with pytest.raises(JournalError, match="newer Tocsin"):
            action(tmp_path / "new.db")


def test_a_step_is_taken_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteJournal(tmp_path / "j.db").close()
    broken = [*migrations.MIGRATIONS, ("broken", "CREATE TABLE extra (x); CREATE TABLE extra (x)")]
    monkeypatch.setattr(migrations, "MIGRATIONS", broken)
    with pytest.raises(JournalError, match="extra"):
        SqliteJournal(tmp_path / "j.db")
    monkeypatch.setattr(migrations, "MIGRATIONS", [*broken[:-1], ("mended", "CREATE TABLE extra (x)")])
    for _ in range(2):
        with SqliteJournal(tmp_path / "j.db") as journal:
            assert not journal.crashed
    db = sqlite3.connect(tmp_path / "j.db")
    assert db.execute("PRAGMA user_version").fetchone() == (len(broken),)
    assert db.execute("SELECT count(*) FROM extra").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize("version", range(1, len(migrations.MIGRATIONS) + 1))
def test_files_of_older_versions_open(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.db"
    shutil.copy(FIXTURES / f"journal-v{version}.db", path)
    with SqliteJournal(path) as journal:
        assert (journal.first, journal.head, journal.crashed) == (3, 12, False)
        ahead = [1] * 3 + [2] * 3 + [3] * 4
        expected = [
            each.replace(
                offset=offset, arrived=as_datetime(T0 + second * SECOND), time=as_datetime(T0 + second * SECOND)
            )
            for offset, (each, second) in enumerate(zip(events()[2:], ahead, strict=True), 3)
        ]
        assert stored(journal) == expected
        assert journal.state() == {"a": b"\x01"} and journal.notes(4) == [Note(4, T0, "acked", "bert")]
        assert [journal.publisher(offset) for offset in (3, 5, 6)] == ["anna", "anna", ""]
        assert submit(journal, event("other"), writer="w", position=3).offsets == [6, 7, 8]
        assert journal.append([event(12), event(13)]) == [12, 13]
    assert check(path).ok


def test_links_lead_to_one_journal(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "real.db"):
        os.symlink(tmp_path / "real.db", tmp_path / "link.db")
        with pytest.raises(JournalError, match="open for writing"):
            SqliteJournal(tmp_path / "link.db")

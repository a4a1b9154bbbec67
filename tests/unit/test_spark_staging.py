"""Staged rows and their commit, without Spark: what a task leaves, what the driver makes of it, what is cleared."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from pyspark.sql.types import StructType

from tests.conformance.journal_suite import stored, submit
from tocsin.errors import JournalError, JournalLockedError, WriterError
from tocsin.journal.packed import Chunk, pack
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event
from tocsin.spark.intofile import FileTarget
from tocsin.spark.sink import BatchSink, Staged, StreamSink, batch_writer, stream_writer
from tocsin.spark.staging import Stage, StagedFile, chunks_in, job_name, stream_name

TIME = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = StructType().add("type", "string").add("source", "string")
QUERY, OTHER = "11111111-aaaa", "22222222-bbbb"


def events(*ids: object) -> list[Event]:
    return [Event("t", "s", str(id), time=TIME, data={"id": str(id)}) for id in ids]


def staged(stage: Stage, partition: int, *ids: object, query: str | None = QUERY) -> Staged:
    """What a task of Spark does, with these events for rows."""
    with StagedFile(stage, partition) as file:
        for rows, count in pack(events(*ids)):
            file.add(rows, count)
    return Staged(file.path, file.pieces, query)


def stage_of(sink: StreamSink | BatchSink) -> Stage:
    assert isinstance(sink.target, FileTarget)
    return sink.target.stage


def stream(tmp_path: Path, writer: str = "w", columns: StructType = COLUMNS) -> StreamSink:
    return stream_writer({"url": f"file:{tmp_path}/j.db", "writer": writer}, columns, False)


def commit(sink: StreamSink, batch: int, *partitions: list[object], query: str = QUERY) -> None:
    sink.commit([staged(stage_of(sink), number, *ids, query=query) for number, ids in enumerate(partitions)], batch)


def ids(tmp_path: Path) -> list[str]:
    with open_reader(tmp_path / "j.db") as reader:
        return [event.id for block in reader.blocks() for event in block.events()]


def left(tmp_path: Path) -> list[str]:
    """Files beside the journal, but for those that SQLite keeps for readers."""
    return sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(("-shm", "-wal")))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(str(tmp_path / "staging"), stream_name("file:j.db", "w"))
    stage.prepare()
    return stage


# Files.


def test_what_is_staged_comes_back(stage: Stage) -> None:
    found = staged(stage, 5, *"abc")
    (chunk,) = chunks_in(found.path, found.pieces)
    assert chunk.events() == events(*"abc") and Path(found.path).name.startswith("5-")
    assert staged(stage, 5, *"abc").path != found.path  # another attempt of the same task


def test_a_task_without_rows_leaves_no_file(stage: Stage) -> None:
    assert staged(stage, 0).pieces == [] and list(stage.place.iterdir()) == []


def test_a_failed_attempt_removes_its_file(stage: Stage) -> None:
    with pytest.raises(KeyError), StagedFile(stage, 0) as file:
        for rows, count in pack(events("a")):
            file.add(rows, count)
        assert len(list(stage.place.iterdir())) == 1
        raise KeyError
    assert list(stage.place.iterdir()) == []


def test_an_attempt_after_the_end_of_its_batch_leaves_nothing(stage: Stage, tmp_path: Path) -> None:
    late = StagedFile(stage, 0)
    early = staged(stage, 1, "a")
    stage.clear()
    assert not Path(early.path).exists()
    with pytest.raises(JournalError, match="option staging"), late:
        for rows, count in pack(events("a")):
            late.add(rows, count)
    assert left(tmp_path) == []


def test_a_directory_that_cannot_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file.*option staging"):
        Stage(str(tmp_path / "no" / "staging"), stream_name("file:j.db", "w")).prepare()
    assert not (tmp_path / "no").exists()


def test_clearing_leaves_others_alone(stage: Stage, tmp_path: Path) -> None:
    other = Stage(stage.root, stream_name("file:j.db", "other"))
    other.prepare()
    staged(stage, 0, "a")
    staged(other, 0, "b")
    stage.clear()
    stage.clear()
    assert not stage.place.exists() and len(list(other.place.iterdir())) == 1
    other.clear()
    assert left(tmp_path) == []
    assert other.whose != stream_name("file:k.db", "other")


def test_what_dead_drivers_left_is_cleared_by_the_next_commit(stage: Stage) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    living = job_name()
    dead = f"job-{gone.pid}-0123-{socket.gethostname()}"
    elsewhere = f"job-{gone.pid}-0123-another-machine"
    old = stream_name("file:j.db", "old")
    for whose in (living, dead, elsewhere, old):
        Stage(stage.root, whose).prepare()
        staged(Stage(stage.root, whose), 0, "a")
    long_ago = time.time() - 25 * 3600
    for path in [Path(stage.root, old), *Path(stage.root, old).iterdir()]:
        os.utime(path, (long_ago, long_ago))
    stage.clear()
    assert sorted(os.listdir(stage.root)) == sorted([living, elsewhere])


# Commits.


def test_partitions_are_stored_in_order_and_nothing_is_left(tmp_path: Path) -> None:
    commit(stream(tmp_path), 0, list("ab"), [], list("c"))
    assert ids(tmp_path) == ["a", "b", "c"]
    assert left(tmp_path) == ["j.db", "j.db.lock", "j.db.sink.lock"]
    with SqliteJournal(tmp_path / "j.db") as journal:
        assert journal.state() == {"sink/w": QUERY.encode()} and journal.publisher(1) == "w" and not journal.crashed


def test_a_repeated_batch_is_answered_from_what_is_stored(tmp_path: Path) -> None:
    commit(stream(tmp_path), 0, list("ab"))
    commit(stream(tmp_path), 0, list("xyz"))  # the same batch, and its rows came out differently
    commit(stream(tmp_path), 1, list("c"))
    commit(stream(tmp_path), 0, list("ab"))
    assert ids(tmp_path) == ["a", "b", "c"] and left(tmp_path) == ["j.db", "j.db.lock", "j.db.sink.lock"]


def test_a_repeated_batch_needs_no_files(tmp_path: Path) -> None:
    sink = stream(tmp_path)
    message = staged(stage_of(sink), 0, "a")
    sink.commit([message], 0)
    sink.commit([message, None], 0)
    assert ids(tmp_path) == ["a"]


def test_repetitions_are_known_long_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.journal.contract.DEDUP_MOST", 50)
    monkeypatch.setattr("tocsin.journal.contract.DEDUP_LEAST", 10)
    commit(stream(tmp_path), 0, list("ab"))
    with SqliteJournal(tmp_path / "j.db") as journal:
        for start in range(0, 1000, 100):
            journal.append(events(*range(start, start + 100)))
    commit(stream(tmp_path), 0, list("ab"))
    commit(stream(tmp_path), 1, list("c"))
    assert len(ids(tmp_path)) == 1003 and ids(tmp_path)[-1] == "c"


def test_an_empty_batch_touches_no_journal(tmp_path: Path) -> None:
    commit(stream(tmp_path), 0, [], [])
    stream(tmp_path).commit([], 1)
    assert left(tmp_path) == []


def test_another_query_under_the_name_is_refused(tmp_path: Path) -> None:
    commit(stream(tmp_path), 0, list("a"))
    with pytest.raises(WriterError, match=f"(?s)'w' belongs to the query {QUERY}.*a writer of its own") as caught:
        commit(stream(tmp_path), 0, list("b"), query=OTHER)
    assert isinstance(caught.value, JournalError)
    with pytest.raises(WriterError):
        commit(stream(tmp_path), 7, list("b"), query=OTHER)
    commit(stream(tmp_path, "v"), 0, list("b"), query=OTHER)
    assert ids(tmp_path) == ["a", "b"]


def test_a_query_that_changes_its_name_is_refused(tmp_path: Path) -> None:
    commit(stream(tmp_path), 0, list("a"))
    with pytest.raises(WriterError, match="'w' until now, not as 'v'; keep the name"):
        commit(stream(tmp_path, "v"), 1, list("b"))
    assert ids(tmp_path) == ["a"]


@pytest.mark.parametrize("position", [1, 5])
def test_a_name_that_others_than_queries_use_is_refused(tmp_path: Path, position: int) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        submit(journal, *events("a"), writer="w", position=position)
    with pytest.raises(WriterError):
        commit(stream(tmp_path), 0, list("b"))
    assert ids(tmp_path) == ["a"]


def test_a_checkpoint_older_than_the_journal_is_told(tmp_path: Path) -> None:
    commit(stream(tmp_path), 0, list("a"))
    commit(stream(tmp_path), 1, [])
    commit(stream(tmp_path), 2, list("b"))
    with pytest.raises(WriterError, match="checkpoint is older than the journal"):
        commit(stream(tmp_path), 1, list("c"))
    assert ids(tmp_path) == ["a", "b"]


def test_a_journal_that_is_held_names_its_holder(tmp_path: Path) -> None:
    sink = stream(tmp_path)
    with SqliteJournal(tmp_path / "j.db") as journal:
        with pytest.raises(JournalLockedError, match=f"process {os.getpid()} .*close it while this query runs"):
            commit(sink, 0, list("a"))
        assert journal.head == 0
    sink.abort([], 0)
    assert "j.db.staging" not in left(tmp_path)
    commit(stream(tmp_path), 0, list("a"))
    assert ids(tmp_path) == ["a"]


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_spoilt_file_stores_nothing(tmp_path: Path, damage: str) -> None:
    sink = stream(tmp_path)
    good, bad = (staged(stage_of(sink), number, *"ab") for number in range(2))
    rows = Path(bad.path).read_bytes()
    Path(bad.path).unlink()
    if damage != "gone":
        Path(bad.path).write_bytes(rows[:-1] if damage == "cut" else rows[:-1] + bytes([rows[-1] ^ 1]))
    with pytest.raises(JournalError, match="packed"):
        sink.commit([good, bad], 0)
    assert ids(tmp_path) == []
    commit(stream(tmp_path), 0, list("c"))
    assert ids(tmp_path) == ["c"]


def test_given_ids_are_compared_and_made_ones_are_not(tmp_path: Path) -> None:
    commit(stream(tmp_path, columns=COLUMNS.add("id", "string")), 0, list("ab"))
    commit(stream(tmp_path), 1, list("bc"), list("ac"))
    assert ids(tmp_path) == ["a", "b", "c"]


def test_batches_of_writes_are_numbered_by_the_user(tmp_path: Path) -> None:
    def write(batch: int, *names: str, query: str | None = None) -> None:
        sink = batch_writer({"url": f"file:{tmp_path}/j.db", "writer": "w", "batch": str(batch)}, COLUMNS, False)
        sink.commit([staged(stage_of(sink), 0, *names, query=query)])

    write(0, "a")
    write(0, "x")
    write(5, "b")
    write(5, "x")
    assert ids(tmp_path) == ["a", "b"]
    with pytest.raises(WriterError, match="belongs to batch writes"):
        write(6, "x", query=QUERY)  # inside foreachBatch of some query
    with pytest.raises(WriterError):
        commit(stream(tmp_path), 9, ["x"])
    assert ids(tmp_path) == ["a", "b"]


def test_a_write_without_a_name_is_stored_each_time(tmp_path: Path) -> None:
    sinks = [batch_writer({"url": f"file:{tmp_path}/j.db"}, COLUMNS, False) for _ in range(2)]
    assert all(isinstance(sink, BatchSink) for sink in sinks) and sinks[0].ids != sinks[1].ids
    for sink, name in zip(sinks, "ab", strict=True):
        sink.commit([staged(stage_of(sink), 0, name, query=None)])
    assert ids(tmp_path) == ["a", "b"] and left(tmp_path) == ["j.db", "j.db.lock", "j.db.sink.lock"]


def test_a_large_batch_is_one_commit(tmp_path: Path) -> None:
    sink = stream(tmp_path)
    numbers = range(70_000)
    sink.commit([staged(stage_of(sink), 0, *numbers), staged(stage_of(sink), 1, "last")], 0)
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:
        assert journal.head == 70_001 and len({event.id for event in stored(journal)}) == 70_001
        assert len({event.arrived for event in stored(journal)}) == 1


def test_a_missing_directory_is_told_before_rows_are_read(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no directory.*make it"):
        stream_writer({"url": f"file:{tmp_path}/no/j.db", "writer": "w"}, COLUMNS, False)


def test_chunks_of_memory_and_of_files_are_alike(stage: Stage) -> None:
    found = staged(stage, 0, *"ab")
    (rows,) = pack(events(*"ab"))
    (chunk,) = chunks_in(found.path, found.pieces)
    memory = Chunk.of(*rows)
    assert (chunk.count, chunk.size, chunk.checksum, chunk.rows()) == (
        memory.count,
        memory.size,
        memory.checksum,
        memory.rows(),
    )

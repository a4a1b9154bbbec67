"""The archive on Spark: the same lake as without it, readable by Spark itself, and whole whoever dies on the way."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tocsin
from tocsin.clock import ManualClock
from tocsin.errors import JournalDamagedError, JournalError, LakeError
from tocsin.filters.filter import Filter
from tocsin.journal import archiver, lakewriter, manifest
from tocsin.journal.archived import open_archived
from tocsin.journal.lake import Lake, remembered_lake
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event
from tocsin.spark.schema import SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
TYPES = ["door.open", "machine.value", "123", "a/b: %", "tocsin.ack"]


def event(n: int) -> Event:
    return Event(
        TYPES[n * 7 % 5],
        "plant",
        f"e{n}",
        data={"n": n, "text": "é" * (n % 5)} if n % 6 else None,
        attributes={"line": "abc"[n % 3], "n": n, "hot": n % 2 == 0, "speed": n / 7} if n % 4 else {},
        priority=1 + n % 10,
        ttl=n if n % 9 == 0 else None,
    )


def fill(path: Path, count: int, first: int = 1, per_commit: int = 50) -> None:
    """Events from `first` to `count`, an hour between commits, so that there are several days."""
    clock = ManualClock(datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=first // per_commit))
    with SqliteJournal(path, clock=clock, merge=False) as journal:
        for start in range(first, count + 1, per_commit):
            journal.append([event(n) for n in range(start, min(start + per_commit, count + 1))])
            clock.advance(3600)
        journal.merge_now()


def tree(lake: Path) -> dict[str, Any]:
    """What a lake is: its files with their rows, and the newest list without its version."""
    files = {
        str(path.relative_to(lake)): repr(pq.ParquetFile(path).read().to_pylist())
        for path in lake.rglob("*.parquet")
        if "_tocsin" not in path.parts
    }
    listed = manifest.load(str(lake))
    return {"files": files, "chunks": listed.chunks, "last": listed.last}


def undisturbed(path: Path, lake: Path, chunk: int) -> dict[str, Any]:
    """The lake that one run without Spark makes."""
    with open_reader(path) as reader:
        archiver.archive(reader, str(lake), chunk=chunk)
    return tree(lake)


@pytest.fixture
def ts() -> Any:
    from tocsin import spark

    return spark


def test_spark_makes_the_same_lake(spark: Any, ts: Any, tmp_path: Path) -> None:
    path = tmp_path / "plant.db"
    fill(path, 2_345)
    report = ts.archive(f"file:{path}", tmp_path / "lake", spark=spark, chunk=500)
    expected = undisturbed(path, tmp_path / "plain", 500)
    assert tree(tmp_path / "lake") == expected
    assert (report.first, report.last, report.events, report.chunks, report.rewritten) == (1, 2_345, 2_345, 5, 0)
    assert report.files == len(expected["files"]) > 20 and report.bytes > 0
    assert not (tmp_path / "lake" / "_tocsin" / "staging").exists()
    assert remembered_lake(str(path)) == str(tmp_path / "lake")
    again = ts.archive(f"file:{path}", tmp_path / "lake", spark=spark, chunk=500)
    assert (again.events, again.chunks, again.version) == (0, 0, report.version)
    fill(path, 2_600, first=2_346)
    grown = ts.archive(f"file:{path}", tmp_path / "lake", spark=spark, chunk=500)
    assert (grown.events, grown.rewritten, grown.chunks) == (255, 345, 2)
    assert tree(tmp_path / "lake") == undisturbed(path, tmp_path / "plain again", 500)


def test_spark_reads_the_files_itself(spark: Any, ts: Any, tmp_path: Path) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    fill(path, 1_000)
    ts.archive(f"file:{path}", lake, spark=spark, chunk=300)
    plain = spark.read.parquet(str(lake))
    assert dict(plain.dtypes)["attributes"] == "map<string,variant>"
    assert dict(plain.dtypes)["day"] == "date" and dict(plain.dtypes)["type"] == "string"
    with open_reader(path) as reader:
        events = [each for block in reader.blocks() for each in block.events() if not each.type.startswith("tocsin.")]
    assert [row[0] for row in plain.select("offset").orderBy("offset").collect()] == [each.offset for each in events]
    declared = spark.read.schema(f"{SCHEMA}, day DATE").parquet(str(lake))
    for text in ("line = 'b' AND n > 500", "type = '123'", "hot AND speed < 50", "type = 'a/b: %' OR n = 7"):
        wanted = Filter(text)
        found = [row[0] for row in declared.where(wanted.sql()).select("offset").orderBy("offset").collect()]
        assert found == [each.offset for each in events if wanted.matches(each)] and found
    days = {str(row[0]) for row in plain.select("day").distinct().collect()}
    assert days == {str(each.arrived.date()) for each in events if each.arrived is not None}


def test_types_that_look_like_numbers_stay_text_if_one_says_so(spark: Any, ts: Any, tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "plant.db") as journal:
        journal.append([Event("007", "s"), Event("42", "s")])
    ts.archive(f"file:{tmp_path / 'plant.db'}", tmp_path / "lake", spark=spark)
    declared = spark.read.schema(f"{SCHEMA}, day DATE").parquet(str(tmp_path / "lake"))
    assert sorted(row[0] for row in declared.select("type").collect()) == ["007", "42"]
    session = spark.newSession()
    session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    guessed = session.read.parquet(str(tmp_path / "lake"))
    assert sorted(row[0] for row in guessed.select("type").collect()) == ["007", "42"]


def test_events_stay_on_executors(spark: Any, ts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[Any] = []
    frames = type(spark.range(1))
    collect = frames.collect

    def spy(frame: Any) -> Any:
        rows = collect(frame)
        collected.extend(rows)
        return rows

    monkeypatch.setattr(frames, "collect", spy)
    monkeypatch.setattr(lakewriter, "write", lambda *_: pytest.fail("the driver has written events"))
    path = tmp_path / "plant.db"
    with SqliteJournal(path) as journal:
        journal.append([Event("t", "s", str(n), data="x" * 1000 + str(n)) for n in range(4_000)])
    assert ts.archive(f"file:{path}", tmp_path / "lake", spark=spark, chunk=1_000).events == 4_000
    assert len(collected) == 4 and sum(len(bytes(row[0])) for row in collected) < 40_000


def test_archiving_beside_a_node_that_writes_merges_and_trims(spark: Any, ts: Any, tmp_path: Path) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    trims: list[int] = []
    begun, stop = threading.Event(), threading.Event()

    def live() -> None:
        with tocsin.sync.connect(f"file:{path}", lake=lake) as bus:
            n = 0
            begun.set()
            while not stop.is_set() or n < 3_000:
                bus.publish_many([Event("t", "s", f"e{each}", data={"n": each}) for each in range(n, n + 20)])
                n += 20
                if n % 200 == 0:
                    trims.append(bus.trim(archived=True))
                if n % 1_000 == 0:
                    bus._inner._node.journal.journal.merge_now()

    node = threading.Thread(target=live)
    node.start()
    try:
        assert begun.wait(30)
        deadline = time.monotonic() + 120  # how much is archived in one go depends on who is faster, the node or Spark
        while max(trims, default=0) <= 400 and time.monotonic() < deadline:
            ts.archive(f"file:{path}", lake, spark=spark, chunk=400)
    finally:
        stop.set()
        node.join()
    report = ts.archive(f"file:{path}", lake, spark=spark, chunk=400)
    assert max(trims) > 400
    with open_archived(path, lake) as joined:
        ids = [each.id for block in joined.blocks() for each in block.events()]
        assert joined.first == 1 and report.last == joined.head
    assert ids == [f"e{n}" for n in range(len(ids))] and len(ids) == report.last >= 3_000
    files = [pq.ParquetFile(file) for file in lake.glob("day=*/*/*.parquet")]
    assert sum(file.metadata.num_rows for file in files) == len(ids)


def test_retention_and_small_chunks(spark: Any, ts: Any, tmp_path: Path) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    fill(path, 500)
    first = ts.archive(f"file:{path}", lake, spark=spark, chunk=200, upto=130)
    assert (first.last, first.events) == (130, 130)
    second = ts.archive(f"file:{path}", lake, spark=spark, chunk=200, compact=False)
    assert (second.events, second.rewritten) == (370, 0)
    assert [(chunk.first, chunk.last) for chunk in Lake(lake).manifest.chunks] == [
        (1, 130),
        (131, 200),
        (201, 400),
        (401, 500),
    ]
    ts.archive(f"file:{path}", lake, spark=spark, chunk=200)
    assert [(chunk.first, chunk.last) for chunk in Lake(lake).manifest.chunks] == [(1, 200), (201, 400), (401, 500)]
    kept = ts.archive(f"file:{path}", lake, spark=spark, chunk=200, retention=timedelta(days=36_500))
    assert kept.dropped == 0
    gone = ts.archive(f"file:{path}", lake, spark=spark, chunk=200, retention=timedelta(microseconds=1))
    assert (gone.dropped, gone.first, gone.last) == (3, 501, 500)
    assert not list(lake.rglob("*.parquet"))
    assert ts.archive(f"file:{path}", lake, spark=spark, chunk=200).events == 0


def test_errors_say_what_to_do(spark: Any, ts: Any, tmp_path: Path) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    fill(path, 300)
    for arguments in ({"chunk": 0}, {"upto": -1}, {"retention": timedelta(0)}, {"retention": 5}):
        with pytest.raises(JournalError) as refused:
            ts.archive(f"file:{path}", lake, spark=spark, **arguments)
        assert refused.value.help
    for url in ("http://host:8420", "memory:", f"file:{tmp_path / 'none.db'}", "plant.db"):
        with pytest.raises(JournalError) as refused:
            ts.archive(url, lake, spark=spark)
        assert refused.value.help
    ts.archive(f"file:{path}", lake, spark=spark, chunk=100)
    fill(tmp_path / "other.db", 400, first=101)
    with pytest.raises(LakeError, match="another journal"):
        ts.archive(f"file:{tmp_path / 'other.db'}", lake, spark=spark)
    with archiver.Archiver(open_reader(path), str(lake)), pytest.raises(LakeError, match="another archiver"):
        ts.archive(f"file:{path}", lake, spark=spark)


def test_a_lake_that_reaches_less_far_back_does_not_take_the_others_place(spark: Any, ts: Any, tmp_path: Path) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    fill(path, 300)
    with pytest.raises(LakeError, match="is not a directory; give a path"):
        ts.archive(f"file:{path}", "s3://bucket/lake", spark=spark)
    ts.archive(f"file:{path}", tmp_path / "first", spark=spark)
    ts.archive(f"file:{path}", lake, spark=spark)  # it holds all of it as well
    assert remembered_lake(str(path)) == str(lake)
    with SqliteJournal(path) as journal:
        assert journal.trim(301) == 301
    with pytest.raises(LakeError, match=r"is archived in .*/lake, from offset 1 on; .*/new would begin at 301"):
        ts.archive(f"file:{path}", tmp_path / "new", spark=spark)
    assert remembered_lake(str(path)) == str(lake)
    assert ts.archive(f"file:{path}", lake, spark=spark).first == 1


def test_a_damaged_block_is_told(spark: Any, ts: Any, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "plant.db"
    fill(path, 300)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE blocks SET data = CAST(substr(data, 1, length(data) - 9) || 'otherwise' AS BLOB)")
        db.commit()
    with pytest.raises(JournalDamagedError) as told:
        ts.archive(f"file:{path}", tmp_path / "lake", spark=spark)
    assert told.value.help and "offsets 1" in str(told.value)
    assert Lake(tmp_path / "lake").last == 0


# -- dying

PROGRAM = """
import sys
from tocsin import spark as ts, testing
url, lake, point, times = sys.argv[1:]
if point:
    testing.crash_at(point, int(times))
spark = ts.session("local[2]", memory="1g")
print("ready", flush=True)
ts.archive(url, lake, spark=spark, chunk=300)
spark.stop()
"""


def start(path: Path, lake: Path, point: str = "", times: int = 1) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, f"file:{path}", str(lake), point, str(times)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", ["archive-staged", "archive-moved", "archive-committed"])
def test_killed_at_a_named_point(spark: Any, ts: Any, tmp_path: Path, point: str) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    fill(path, 1_000)
    ts.archive(f"file:{path}", lake, spark=spark, chunk=300)
    fill(path, 2_000, first=1_001)
    process = start(path, lake, point)
    assert process.wait(120) == -signal.SIGKILL
    ts.archive(f"file:{path}", lake, spark=spark, chunk=300)
    assert tree(lake) == undisturbed(path, tmp_path / "plain", 300)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(spark: Any, ts: Any, tmp_path: Path, seed: int) -> None:
    path, lake = tmp_path / "plant.db", tmp_path / "lake"
    chance = random.Random(seed)
    fill(path, 40_000, per_commit=2_000)
    killed = 0
    for _ in range(3):
        process = start(path, lake)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.5, 6))
        killed += process.poll() is None
        process.kill()
        process.wait()
    assert killed
    ts.archive(f"file:{path}", lake, spark=spark, chunk=300)
    assert tree(lake) == undisturbed(path, tmp_path / "plain", 300)
    assert len(os.listdir(lake)) > 2

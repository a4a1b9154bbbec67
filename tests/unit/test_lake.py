"""A lake: what is written is what is read, by us and by others; what goes wrong is told; archivers may die."""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tocsin.clock import ManualClock, as_datetime, as_micros
from tocsin.errors import JournalDamagedError, JournalError, JournalFullError, LakeError, TrimmedError
from tocsin.filters.filter import Filter
from tocsin.journal import archiver, lakefiles, lakewriter, manifest
from tocsin.journal.archiver import Archiver, Staged, plan
from tocsin.journal.contract import Journal, Request
from tocsin.journal.lake import Lake, remember_lake, remembered_lake
from tocsin.journal.manifest import Chunk, Manifest
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.rows import SCHEMA, from_arrow
from tocsin.journal.sqlite import SqliteJournal
from tocsin.journal.statistics import may_match
from tocsin.model import Event

NOON = as_micros(datetime(2026, 1, 1, 12, tzinfo=UTC))
HOUR = 3_600_000_000


def event(n: int, **fields: Any) -> Event:
    return Event(**{"type": "alarm", "source": "plant", "id": f"e{n}", "data": {"n": n}, **fields})


def rich() -> list[Event]:
    """Everything an event can hold."""
    return [
        event(1, data={"a": [1, 2.5, None, "é"], "n": 2**60}, attributes={"x": 1, "y": 0.5, "s": "t", "b": True}),
        event(2, data="<a/>", datacontenttype="application/xml", subject="pump", correlation_id="c", type="x/y: 100%"),
        event(3, data=b"\x00\xff", datacontenttype="image/png", priority=10, ttl=1.5, persistent=False),
        event(4, data=None, ack="receipt", cancel="any", classification="secret", attributes={"x": math.inf}),
        event(
            5, data="text", time=datetime(1969, 7, 20, 20, 17, 40, 5, UTC), attributes={"low": -(2**63), "e": "ü" * 99}
        ),
        event(6, data=None, datacontenttype="application/json", ttl=3.0, type="tocsin.ack", source="tocsin"),
        event(7, type="ä" * 300, attributes={"flag": False, "empty": "", "nan": math.nan}),
        event(8, type="123", data=[]),
        event(9, data=b"", datacontenttype="application/octet-stream", type="123"),
        event(10, data="", datacontenttype="text/plain"),
    ]


def filled(events: Iterable[Event], per_commit: int = 3, step: int = HOUR, journal: Journal | None = None) -> Journal:
    """A journal of these events, an hour between commits."""
    journal = journal if journal is not None else MemoryJournal()
    waiting, moment = list(events), NOON
    while waiting:
        request = Request(moment, waiting[:per_commit])
        journal.submit(request)
        assert request.error is None
        waiting, moment = waiting[per_commit:], moment + step
    return journal


def stored(source: Any, first: int = 1, last: int | None = None) -> list[Event]:
    return [each for block in source.blocks(first, last) for each in block.events()]


def plain(events: Iterable[Event]) -> list[str]:
    """Events to be compared, also where they hold NaN."""
    return [repr(each) for each in events]


def tree(lake: Path) -> dict[str, Any]:
    """What a lake is: its Parquet files with their rows, and its newest list without the version."""
    files = {
        str(path.relative_to(lake)): repr(pq.ParquetFile(path).read().to_pylist())
        for path in lake.rglob("*.parquet")
        if "_tocsin" not in path.parts
    }
    listed = manifest.load(str(lake))
    return {"files": files, "chunks": listed.chunks, "last": listed.last}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


# -- what is written is what is read


@pytest.mark.parametrize("chunk", [1, 3, 4, 100])
def test_everything_an_event_holds_comes_back(lake: Path, chunk: int) -> None:
    journal = filled(rich())
    assert archiver.archive(journal, str(lake), chunk=chunk) == 10
    found = Lake(lake)
    assert (found.first, found.last) == (1, 10)
    assert plain(stored(found)) == plain(stored(journal))
    batches = [block.batch() for block in found.blocks()]
    assert all(batch.schema == SCHEMA for batch in batches)
    assert plain(each for batch in batches for each in from_arrow(batch)) == plain(stored(journal))


def test_columns_are_read_apart(lake: Path) -> None:
    archiver.archive(filled(rich()), str(lake))
    (block,) = Lake(lake).blocks()
    whole = block.batch()
    for names in ((), ("type",), ("data",), ("attributes", "priority"), ("arrived", "no such column")):
        expected = [name for name in SCHEMA.names if name == "offset" or name in names]
        assert block.batch(names).schema == pa.schema([SCHEMA.field(name) for name in expected])
        assert block.batch(names) == whole.select(expected)


def test_blocks_are_as_the_contract_says(lake: Path) -> None:
    journal = filled(map(event, range(1, 31)))
    archiver.archive(journal, str(lake), chunk=7)
    found = Lake(lake)
    for first in (1, 5, 7, 8, 30):
        for last in (1, 6, 8, 30, None):
            blocks = list(found.blocks(first, last))
            offsets = [offset for block in blocks for offset in range(block.first, block.last + 1)]
            wanted = set(range(first, (last or 30) + 1))
            assert offsets == sorted(set(offsets)) and wanted <= set(offsets)
            assert all(wanted & set(range(block.first, block.last + 1)) for block in blocks)
            backwards = [(block.first, block.last) for block in found.blocks(first, last, backwards=True)]
            assert backwards[::-1] == [(block.first, block.last) for block in blocks]
    for block in found.blocks():
        arrived = block.batch(("arrived",)).column("arrived").cast(pa.int64())
        assert block.arrived == (arrived[0].as_py(), arrived[-1].as_py())


def test_large_chunks_are_read_in_parts(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakewriter, "_GROUP_ROWS", 500)
    count = 30_000
    kinds = ["a", "a", "a", "b", "c"]
    journal = filled((event(n, type=kinds[n % 5]) for n in range(1, count + 1)), per_commit=1000, step=1)
    archiver.archive(journal, str(lake), chunk=count)
    found = Lake(lake)
    blocks = list(found.blocks())
    assert len(blocks) > 2 and {block.last % 4096 for block in blocks[:-1]} == {0}
    file = next(lake.glob("day=*/type=a/*.parquet"))
    assert pq.ParquetFile(file).num_row_groups > 3
    assert [each.offset for each in stored(found, 9_000, 9_000)] == list(range(blocks[1].first, blocks[1].last + 1))
    assert found.read(8_190, 8_200).column("offset").to_pylist() == list(range(8_190, 8_201))
    assert plain(stored(found)) == plain(stored(journal))


def test_large_payloads_make_small_blocks(lake: Path) -> None:
    chance = random.Random(1)
    journal = filled((event(n, data=chance.randbytes(300_000)) for n in range(60)), per_commit=60)
    archiver.archive(journal, str(lake))
    blocks = list(Lake(lake).blocks())
    assert len(blocks) > 5
    assert pq.ParquetFile(next(lake.glob("day=*/*/*.parquet"))).num_row_groups >= 3
    assert stored(Lake(lake)) == stored(journal)


def test_a_moment_is_found(lake: Path) -> None:
    journal = filled([event(n, type=f"t{n % 3}") for n in range(1, 21)], per_commit=2)
    archiver.archive(journal, str(lake), chunk=6)
    found = Lake(lake)
    for moment in [NOON + step * HOUR + more for step in range(-1, 11) for more in (-1, 0, 1)]:
        assert found.offset_at(moment) == journal.offset_at(moment)


def test_statistics_skip_blocks_also_by_type_within_a_chunk(lake: Path) -> None:
    events = [event(n, type="rare" if n == 20_000 else "usual") for n in range(1, 25_001)]
    archiver.archive(filled(events, per_commit=5_000, step=1), str(lake))
    blocks = list(Lake(lake).blocks())
    hopeful = [block for block in blocks if may_match(Filter("type = 'rare'"), block.statistics)]
    assert [block.first <= 20_000 <= block.last for block in hopeful] == [True] and len(blocks) > 3
    assert not any(may_match(Filter("n > 30000"), block.statistics) for block in blocks)


def test_what_was_lost_keeps_its_offsets(lake: Path) -> None:
    class Hole:
        """A block that `journal repair` has emptied."""

        first, last, arrived, statistics = 5, 8, (NOON + HOUR, NOON + 2 * HOUR), None

        def events(self) -> list[Event]:
            return []

        def batch(self, columns: Any = None) -> pa.RecordBatch:
            return next(journal.blocks()).batch().slice(0, 0)

    journal = filled(map(event, range(1, 13)), per_commit=4)
    blocks = list(journal.blocks())
    place = str(lake / "staged")
    chunk = lakewriter.write([blocks[0], Hole(), blocks[2]], 2, 12, place)
    assert chunk.lost == ((5, 8),) and (chunk.arrived[0], chunk.ids) == (NOON, ("e2", "e12"))
    manifest.commit(place, manifest.replaced(Manifest(), [chunk]))
    found = Lake(place)
    assert [(block.first, block.last, len(block.events())) for block in found.blocks()] == [
        (2, 4, 3),
        (5, 8, 0),
        (9, 12, 4),
    ]
    assert [each.offset for each in stored(found)] == [2, 3, 4, 9, 10, 11, 12]
    assert found.read(4, 9).column("offset").to_pylist() == [4, 9]
    with pytest.raises(JournalDamagedError):
        lakewriter.write([blocks[0], blocks[2]], 1, 12, place)


# -- others read it too


def test_others_read_the_files(lake: Path) -> None:
    journal = filled(rich())
    archiver.archive(journal, str(lake), chunk=4)
    ours = [each for each in stored(journal) if not each.type.startswith("tocsin.")]
    frame = pd.read_parquet(lake).sort_values("offset")
    assert frame["id"].tolist() == [each.id for each in ours]
    assert frame["day"].astype(str).unique().tolist() == ["2026-01-01"]
    text = ds.partitioning(pa.schema([("day", pa.string()), ("type", pa.string())]), flavor="hive")
    table = ds.dataset(lake, partitioning=text, exclude_invalid_files=False).to_table().sort_by("offset")
    expected = [each.type for each in ours]
    assert [type for type in table.column("type").to_pylist() if "~" not in type] == [
        t for t in expected if len(t) < 99
    ]
    files = f"read_parquet('{lake}/day=*/*/*.parquet', hive_types_autocast=false)"
    found = duckdb.sql(f'SELECT id, type, data FROM {files} ORDER BY "offset"').fetchall()
    assert [row[0] for row in found] == [each.id for each in ours]
    assert ("e8", "123", "[]") in found and ("e2", "x/y: 100%", '"<a/>"') in found
    assert ("e3", "alarm", "data:;base64,AP8=") in found
    assert len(list(lake.glob("_system/day=*/type=tocsin.ack/*.parquet"))) == 1


def test_days_are_those_of_arrival_in_utc(lake: Path) -> None:
    archiver.archive(filled(map(event, range(1, 6)), per_commit=1, step=6 * HOUR), str(lake))
    days = {path.parent.parent.name: path for path in lake.glob("day=*/type=alarm/*.parquet")}
    assert sorted(days) == ["day=2026-01-01", "day=2026-01-02"]
    assert pq.ParquetFile(days["day=2026-01-02"]).read().column("offset").to_pylist() == [3, 4, 5]


def test_types_have_paths_of_their_own(lake: Path) -> None:
    names = ["a", "A b", "a/b", "a%2Fb", "é", "..", "x" * 250, "x" * 251, "{}", "a=b", "\u0001"]
    places = [lakefiles.directory_of("2026-01-01", name) for name in names]
    assert len(set(places)) == len(names)
    assert all(place.count("/") == 1 and len(os.fsencode(place)) < 255 for place in places)


# -- how chunks come about


def chunks(*ranges: tuple[int, int]) -> list[Chunk]:
    return [Chunk(first, last, (0, 0), ("", ""), ()) for first, last in ranges]


@pytest.mark.parametrize(
    ("there", "first", "head", "compact", "expected"),
    [
        ([], 1, 25, True, [(1, 10), (11, 20), (21, 25)]),
        ([], 7, 25, True, [(7, 10), (11, 20), (21, 25)]),
        ([], 26, 25, True, []),
        ([(1, 10), (11, 14)], 15, 14, True, []),
        ([(1, 10), (11, 14)], 15, 25, True, [(11, 20), (21, 25)]),
        ([(1, 10), (11, 14)], 15, 25, False, [(15, 20), (21, 25)]),
        ([(1, 10), (11, 20)], 21, 22, True, [(21, 22)]),
        ([(1, 4), (5, 8), (9, 10), (11, 20)], 21, 20, True, [(1, 10)]),
        ([(1, 4), (6, 8), (9, 9)], 10, 12, True, [(6, 10), (11, 12)]),
        ([(1, 4)], 6, 9, True, [(6, 9)]),
        ([(1, 100)], 101, 104, True, [(101, 104)]),  # chunks were larger once
    ],
)
def test_plan(there: list[Any], first: int, head: int, compact: bool, expected: list[Any]) -> None:
    assert plan(chunks(*there), first, head, 10, compact) == expected


def test_a_lake_does_not_depend_on_how_often_it_was_written(tmp_path: Path) -> None:
    events = [event(n, type=f"t{n % 3}") for n in range(1, 48)]
    journal = filled([], per_commit=1)
    moment = NOON
    for each in events:
        journal.submit(Request(moment, [each]))
        moment += HOUR // 2
        if each.id in ("e3", "e9", "e10", "e11", "e31"):
            archiver.archive(journal, str(tmp_path / "often"), chunk=10)
    archiver.archive(journal, str(tmp_path / "often"), chunk=10)
    archiver.archive(journal, str(tmp_path / "once"), chunk=10)
    assert tree(tmp_path / "often") == tree(tmp_path / "once")
    assert len(tree(tmp_path / "once")["files"]) > 10


def test_an_unfinished_chunk_grows_when_its_beginning_is_in_the_lake_alone(tmp_path: Path) -> None:
    journal, whole = filled(map(event, range(1, 15))), filled(map(event, range(1, 40)))
    archiver.archive(journal, str(tmp_path / "lake"), chunk=10)
    assert journal.trim(15) == 15
    filled(map(event, range(15, 40)), journal=journal)
    archiver.archive(journal, str(tmp_path / "lake"), chunk=10)
    archiver.archive(whole, str(tmp_path / "whole"), chunk=10)
    assert [(c.first, c.last) for c in Lake(tmp_path / "lake").manifest.chunks] == [
        (1, 10),
        (11, 20),
        (21, 30),
        (31, 39),
    ]
    assert [each.id for each in stored(Lake(tmp_path / "lake"))] == [each.id for each in stored(whole)]


def test_small_chunks_are_put_together_later(lake: Path) -> None:
    journal = filled(map(event, range(1, 31)))
    for upto in (4, 8, 12, 30):
        with Archiver(journal, str(lake), 10, compact=False) as archive:
            install(archive, upto)
    assert len(Lake(lake).manifest.chunks) == 6
    archiver.archive(journal, str(lake), chunk=10)
    assert [(c.first, c.last) for c in Lake(lake).manifest.chunks] == [(1, 10), (11, 20), (21, 30)]
    assert stored(Lake(lake)) == stored(journal)
    assert sorted(path.name for path in lake.rglob("day=*/*/*.parquet")) == [
        "1-10.parquet",
        "11-20.parquet",
        "21-30.parquet",
    ]


def install(archive: Archiver, upto: int | None = None) -> None:
    written = []
    for first, last in archive.ranges(upto):
        place = os.path.join(archive.staging, f"{first}")
        written.append(Staged(lakewriter.write(archive.journal.blocks(first, last), first, last, place), place))
    archive.install(written)


def test_retention_drops_old_chunks_and_does_not_bring_them_back(lake: Path) -> None:
    journal = filled(map(event, range(1, 31)), per_commit=10)
    archiver.archive(journal, str(lake), chunk=10)
    with Archiver(journal, str(lake), 10) as archive:
        assert [chunk.first for chunk in archive.drop_before(NOON + 2 * HOUR)] == [1, 11]
        assert archive.ranges() == []
    found = Lake(lake)
    assert (found.first, found.last) == (21, 30)
    assert len(list(lake.rglob("day=*/*/*.parquet"))) == 1
    with Archiver(journal, str(lake), 10) as archive:
        archive.drop_before(NOON + 99 * HOUR)
        assert archive.ranges() == []
    assert (Lake(lake).first, Lake(lake).last) == (31, 30) and stored(Lake(lake)) == []
    with pytest.raises(TrimmedError):
        found.read(21, 30)


# -- dying, and two at once


def test_what_a_dead_run_has_left_is_cleared_away(lake: Path) -> None:
    journal = filled(map(event, range(1, 31)))
    archiver.archive(journal, str(lake), chunk=10, upto=14)
    expected = tree(lake)
    dead = Archiver(journal, str(lake), 10)
    place = os.path.join(dead.staging, "x")
    chunk = lakewriter.write(journal.blocks(11, 20), 11, 20, place)
    for file in chunk.files:  # as if it had died between moving files and the manifest
        target = lake / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(os.path.join(place, file.path), target)
    (lake / "day=2026-01-01" / "type=alarm" / "notes.txt").write_text("mine")
    dead._lock.release()
    assert len(tree(lake)["files"]) == len(expected["files"]) + 1
    with Archiver(journal, str(lake), 10) as archive:
        assert archive.removed == 1
    assert tree(lake) == expected
    assert not (lake / "_tocsin" / "staging").exists()
    assert (lake / "day=2026-01-01" / "type=alarm" / "notes.txt").exists()


@pytest.mark.parametrize("lists", [0, 1])
def test_the_only_copies_are_never_cleared_away(lake: Path, lists: int) -> None:
    """All lists were lost, or the newest: what the journal does not have any more must stay."""
    journal = filled(map(event, range(1, 31)))
    archiver.archive(journal, str(lake), chunk=10, upto=14)
    archiver.archive(journal, str(lake), chunk=10)
    for path in sorted((lake / "_tocsin").glob("*.json"))[lists:]:
        path.unlink()
    files = sorted(lake.rglob("*.parquet"))
    known = Lake(lake).last
    assert known < 16 and len(files) == 3
    assert journal.trim(known + 5) > known + 1
    for _ in range(2):  # and the lock was let go
        with pytest.raises(LakeError, match="may be the only copies of what was trimmed; restore the newest list"):
            Archiver(journal, str(lake), 10)
    assert sorted(lake.rglob("*.parquet")) == files


def test_two_archivers(lake: Path) -> None:
    journal = filled(map(event, range(1, 31)))
    with Archiver(journal, str(lake), 10) as first:
        with pytest.raises(LakeError, match="another archiver") as caught:
            Archiver(journal, str(lake), 10)
        assert caught.value.help and str(os.getpid()) in str(caught.value)
        install(first)
    assert stored(Lake(lake)) == stored(journal)


def test_two_who_pass_the_lock_do_no_harm(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose locks do not reach other machines."""
    journal = filled(map(event, range(1, 31)))
    one = Archiver(journal, str(lake), 10)
    one._lock.release()
    other = Archiver(journal, str(lake), 10)
    os.makedirs(one.staging)
    install(one, 20)
    with pytest.raises(LakeError, match="somebody else"):
        install(other)
    other.close()
    assert [each.offset for each in stored(Lake(lake))] == list(range(1, 21))
    archiver.archive(journal, str(lake), chunk=10)
    assert stored(Lake(lake)) == stored(journal)


def test_versions_are_written_once_and_old_ones_go(lake: Path) -> None:
    for version in range(1, 30):
        manifest.commit(str(lake), Manifest(version, last=version))
    with pytest.raises(LakeError):
        manifest.commit(str(lake), Manifest(29))
    assert manifest.load(str(lake)).last == 29
    assert len(list((lake / "_tocsin").iterdir())) == 10


def test_many_who_write_one_version(lake: Path) -> None:
    won: list[int] = []
    gate = threading.Barrier(8)

    def race(number: int) -> None:
        gate.wait()
        try:
            manifest.commit(str(lake), Manifest(1, last=number))
            won.append(number)
        except LakeError:
            pass

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and manifest.load(str(lake)).last == won[0]


def test_a_reader_goes_on_when_chunks_are_written_anew(lake: Path) -> None:
    journal = filled(map(event, range(1, 26)))
    archiver.archive(journal, str(lake), chunk=10, upto=14)
    found = Lake(lake)
    old = list(found.blocks())
    archiver.archive(journal, str(lake), chunk=10)
    assert plain(each for block in old for each in block.events()) == plain(stored(journal)[:14])
    assert found.last == 25  # it has looked again
    stale = Lake(lake)
    with Archiver(journal, str(lake), 100) as archive:
        install(archive)
    assert stale.offset_at(NOON + HOUR) == journal.offset_at(NOON + HOUR)


# -- damage and misuse


def test_damage_is_told(lake: Path) -> None:
    journal = filled(map(event, range(1, 31)))
    archiver.archive(journal, str(lake), chunk=10)
    paths = sorted(lake.rglob("day=*/*/*.parquet"))
    raw = paths[0].read_bytes()
    for changed in (raw[:-10], raw[:100] + bytes([raw[100] ^ 1]) + raw[101:], b""):
        paths[0].write_bytes(changed)
        lakefiles._footer.cache_clear()
        with pytest.raises(JournalDamagedError) as caught:
            stored(Lake(lake))
        assert caught.value.help and (caught.value.first, caught.value.last) == (1, 10)
    paths[0].unlink()
    with pytest.raises(JournalDamagedError, match="missing"):
        stored(Lake(lake))
    assert len(stored(Lake(lake), 11)) == 20


def test_a_list_that_cannot_be_read(lake: Path) -> None:
    archiver.archive(filled([event(1)]), str(lake))
    (newest,) = (lake / "_tocsin").glob("*.json")
    newest.write_text("{")
    with pytest.raises(LakeError, match="cannot be read") as caught:
        Lake(lake)
    assert str(newest) in str(caught.value)
    newest.write_text('{"version": 1, "format": 99}')
    with pytest.raises(LakeError, match="format 99"):
        Lake(lake)


def test_another_journals_lake(tmp_path: Path, lake: Path) -> None:
    archiver.archive(filled(map(event, range(1, 31))), str(lake), chunk=10)
    with pytest.raises(LakeError, match="ends at 12"):
        Archiver(filled(map(event, range(1, 13))), str(lake))
    with pytest.raises(LakeError, match="offset 1 is event 'e1' there and 'e101' here"):
        Archiver(filled(map(event, range(101, 141))), str(lake))
    other = filled([*map(event, range(1, 30)), *map(event, range(130, 141))])
    with pytest.raises(LakeError, match="offset 30"):
        Archiver(other, str(lake))
    assert len(list(lake.rglob("*.parquet"))) == 3  # nothing was removed


def test_another_file_that_shares_nothing_with_the_lake(tmp_path: Path, lake: Path) -> None:
    def opened(name: str) -> SqliteJournal:
        return SqliteJournal(tmp_path / name, clock=ManualClock(as_datetime(NOON)))

    with opened("a.db") as journal:
        journal.append(list(map(event, range(1, 31))))
        archiver.archive(journal, str(lake))
        journal.trim(31)
        archiver.archive(journal, str(lake))
    with opened("b.db") as other:
        other.append(list(map(event, range(1, 31))))
        archiver.archive(other, str(tmp_path / "other"))  # the same events would be taken for the same journal
        other.trim(31)
        with pytest.raises(LakeError, match="another file"):
            Archiver(other, str(lake))


@pytest.mark.parametrize("chunk", [0, -5, 2.5, "10"])
def test_a_chunk_that_means_nothing(lake: Path, chunk: Any) -> None:
    with pytest.raises(JournalError, match="chunk"):
        Archiver(MemoryJournal(), str(lake), chunk)


def test_places_that_cannot_be_a_lake(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="object stores"):
        Lake("s3://bucket/lake")
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalFullError):
        Archiver(MemoryJournal(), str(tmp_path / "file" / "lake"))


def test_the_lakes_place_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "plant.db"
    assert remembered_lake(str(path)) is None
    remember_lake(str(path), str(tmp_path / "lake"))
    assert remembered_lake(str(path)) == str(tmp_path / "lake")
    moved = tmp_path / "moved"
    moved.mkdir()
    os.rename(f"{path}.lake", moved / "plant.db.lake")
    assert remembered_lake(str(moved / "plant.db")) == str(moved / "lake")
    remember_lake(str(path), "/elsewhere/lake")
    assert remembered_lake(str(path)) == "/elsewhere/lake"
    (tmp_path / "plant.db.lake").write_text("nonsense")
    with pytest.raises(LakeError):
        remembered_lake(str(path))


def test_age_of_retention_is_a_moment() -> None:
    assert as_micros(as_datetime(NOON) - timedelta(hours=1)) == NOON - HOUR


def test_iterators_are_lazy(lake: Path) -> None:
    journal = filled(map(event, range(1, 31)))
    archiver.archive(journal, str(lake), chunk=10)
    walk: Iterator[Any] = Lake(lake).blocks(backwards=True)
    assert next(walk).last == 30

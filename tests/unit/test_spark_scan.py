"""What a task of the Spark source reads, without Spark: plans and batches compared with the journal's own events."""

from __future__ import annotations

import logging
import pickle
import random
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tocsin.clock import ManualClock, as_datetime, as_micros
from tocsin.errors import JournalDamagedError, JournalError, SchemaError, TrimmedError
from tocsin.filters.filter import Filter
from tocsin.journal.archiver import archive
from tocsin.journal.reader import open_reader
from tocsin.journal.sieve import Report
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tocsin.spark import scan as scan_module
from tocsin.spark.columns import SOURCE_ARROW
from tocsin.spark.options import read_options
from tocsin.spark.origin import open_origin
from tocsin.spark.pushdown import Pushed
from tocsin.spark.ranges import Range
from tocsin.spark.scan import Scan

TYPES = ("machine.value", "machine.stop", "door.open", "tocsin.note")


def plant(path: Path, count: int = 3_000, *, seed: int = 1, merged: bool = True) -> SqliteJournal:
    """A journal with stretches of different types, a few system records, and blocks of every kind."""
    draw = random.Random(seed)
    clock = ManualClock()
    journal = SqliteJournal(path, clock=clock, merge=False)
    number = 0
    while number < count:
        size = min(count - number, draw.choice((1, 1, 1, 7, 100, 400)))
        type_ = TYPES[number * len(TYPES) // count] if draw.random() < 0.8 else draw.choice(TYPES)
        journal.append([event(draw, number + place, type_) for place in range(size)])
        clock.advance(0.25)
        number += size
        if merged and draw.random() < 0.1:
            journal.merge_now()
    return journal


def event(draw: random.Random, number: int, type_: str) -> Event:
    return Event(
        type_,
        f"line/{draw.randrange(5)}",
        str(number),
        subject=draw.choice((None, "pump", "valve")),
        priority=draw.randrange(1, 11),
        data=draw.choice((None, {"value": draw.randrange(100), "n": number}, "text")),
        attributes=draw.choice(({}, {"region": draw.choice(("eu", "us"))})),
    )


def scan_of(
    path: Path, columns: tuple[str, ...] = ("offset", "id"), pushed: Pushed | None = None, **options: Any
) -> Scan:
    schema = pa.schema([SOURCE_ARROW.field(name) for name in columns])
    parsed = read_options({"url": f"file:{path}", **{name: str(value) for name, value in options.items()}})
    return Scan(parsed, schema, pushed) if pushed is not None else Scan(parsed, schema)


def read(scan: Scan, wanted: Range, report: Report | None = None) -> list[pa.RecordBatch]:
    """Plan and read as Spark does, through pickles."""
    origin = scan.open()
    try:
        found = scan.plan(origin, wanted)
    finally:
        origin.close()
    sent = pickle.loads(pickle.dumps((scan, found)))
    return [batch for share in sent[1] for batch in sent[0].read(share, None, report)]


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def events_of(path: Path) -> list[Event]:
    with open_reader(path) as reader:
        return [event for block in reader.blocks() for event in block.events()]


@pytest.mark.parametrize("merged", [True, False])
def test_every_range_and_filter_gives_what_the_events_say(tmp_path: Path, merged: bool) -> None:
    path = tmp_path / "j.db"
    draw = random.Random(3)
    with plant(path, merged=merged):
        everything = events_of(path)
        assert len(everything) == 3_000
        compared = 0
        for _ in range(60):
            first = draw.randrange(1, 3_000)
            wanted = Range(first, draw.randrange(first, 3_001))
            system = draw.random() < 0.5
            text = draw.choice(
                [None, "type = 'door.open'", "priority > 7 AND source LIKE 'line/1%'", "value > 50", "region = 'eu'"]
            )
            pushed = draw.choice(
                [
                    None,
                    Pushed(filter="type = 'machine.stop'"),
                    Pushed(filter="subject IS NULL OR subject <> 'pump'"),
                    Pushed(first=500, last=1_500, filter="priority IN (1, 2, 3)"),
                    Pushed(since=as_micros(everything[1_000].arrived or as_datetime(0))),
                    Pushed(until=as_micros(everything[1_000].arrived or as_datetime(0))),
                ]
            )
            scan = scan_of(
                path,
                pushed=pushed,
                system=system,
                eventsPerPartition=draw.choice((1, 50, 700, 10_000)),
                **({"filter": text} if text else {}),
            )
            found = offsets(read(scan, wanted))
            expected = [
                each.offset
                for each in everything
                if wanted.first <= (each.offset or 0) <= wanted.last
                and (system or not each.type.startswith("tocsin."))
                and (text is None or Filter(text).matches(each))
                and (pushed is None or holds(pushed, each))
            ]
            assert found == expected, (wanted, system, text, pushed)
            compared += len(found)
        assert compared > 5_000


def holds(pushed: Pushed, event: Event) -> bool:
    arrived = as_micros(event.arrived or as_datetime(0))
    return (
        (pushed.first or 0) <= (event.offset or 0) <= (pushed.last or 1 << 60)
        and (pushed.since or 0) <= arrived <= (pushed.until or 1 << 60)
        and (pushed.filter is None or Filter(pushed.filter).matches(event))
    )


def test_planning_reads_no_events_and_shares_are_as_large_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with SqliteJournal(path, clock=ManualClock(), merge=False) as journal:
        for block in range(20):
            journal.append([Event("t", "s", f"{block} {number}") for number in range(100)])
    spoil(path, "1")
    scan = scan_of(path, eventsPerPartition=300)
    origin = scan.open()
    assert scan.plan(origin, Range(1, 2_000)) == [
        (Range(first, min(first + 299, 2_000)),) for first in range(1, 2_000, 300)
    ]
    assert scan.plan(origin, Range(150, 160)) == [(Range(150, 160),)]
    origin.close()
    with pytest.raises(JournalDamagedError, match="offsets 1 to 100"):
        list(scan.read([Range(1, 2_000)]))


def spoil(path: Path, which: str) -> None:
    """Damage the events of some blocks; what is known of them stays."""
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE blocks SET data = zeroblob(length(data)) WHERE {which}")
    db.close()


def test_blocks_in_which_nothing_can_match_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with SqliteJournal(path, clock=ManualClock(), merge=False) as journal:
        for block in range(10):
            journal.append([Event(f"type.{block}", "s", f"{block} {number}") for number in range(4_200)])
            journal.merge_now()  # large enough to stay a block of its own
    shutil.copy(path, tmp_path / "whole.db")
    spoil(path, "first <> 12601")
    report, planned = Report(), Report()
    for pushed, options in ((Pushed(filter="type = 'type.3'"), {}), (None, {"filter": "type = 'type.3'"})):
        whole = scan_of(tmp_path / "whole.db", pushed=pushed, **options)
        expected = offsets(read(whole, Range(1, 42_000)))
        assert expected == list(range(12_601, 16_801))
        scan = scan_of(path, pushed=pushed, **options)
        origin = scan.open()
        found = scan.plan(origin, Range(1, 42_000), planned)
        origin.close()
        assert (planned.read, planned.skipped) == (1, 9)
        assert offsets([batch for share in found for batch in scan.read(share, None, report)]) == expected
        # A task may be given more than it needs: it looks at the statistics too.
        assert offsets(list(scan.read([Range(12_000, 18_000)], None, report))) == expected
    assert report.skipped == 4
    with pytest.raises(JournalDamagedError):
        read(scan_of(path), Range(1, 42_000))


def test_columns_that_nobody_wants_are_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with plant(path, 500) as journal:
        journal.merge_now()
    for columns in (("id",), ("offset", "type", "priority"), ("data",), SOURCE_ARROW.names):
        batches = read(scan_of(path, tuple(columns), system=True), Range(1, 500))
        assert sum(batch.num_rows for batch in batches) == 500
        assert all(batch.schema.names == list(columns) for batch in batches)
    seen: list[set[str]] = []
    original = scan_module.Gathering
    try:
        scan_module.Gathering = lambda columns: seen.append(set(columns)) or original(columns)  # type: ignore[assignment,misc,func-returns-value]
        read(scan_of(path, ("id",), system=True), Range(1, 500))
        read(scan_of(path, ("id",)), Range(1, 500))
        read(scan_of(path, ("data",), system=True), Range(1, 500))
        read(scan_of(path, ("id",), system=True, filter="priority > 3 AND value > 3"), Range(1, 500))
    finally:
        scan_module.Gathering = original  # type: ignore[misc]
    assert seen == [
        {"id"},
        {"id", "type"},
        {"data", "datacontenttype"},
        {"id", "priority", "attributes", "data", "datacontenttype"},
    ]


def test_batches_have_a_good_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.db"
    with SqliteJournal(path, clock=ManualClock(), merge=False) as journal:
        journal.append([Event("t", "s", str(number), data="x" * 100) for number in range(20_000)])
        journal.merge_now()
        for number in range(600):
            journal.append([Event("t", "s", f"late {number}")])
    scan = scan_of(path, ("offset", "data"), eventsPerPartition=100_000)
    sizes = [batch.num_rows for batch in read(scan, Range(1, 20_600))]
    assert sum(sizes) == 20_600
    assert len(sizes) <= 4 and max(sizes) <= 16_384
    monkeypatch.setattr(scan_module, "_BYTES", 100_000)
    sizes = [batch.num_rows for batch in read(scan, Range(1, 20_000))]
    assert sum(sizes) == 20_000
    assert max(sizes) < 1_500


def test_what_is_trimmed_after_planning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "j.db"
    with SqliteJournal(path, clock=ManualClock(), merge=False) as journal:
        for block in range(10):
            journal.append([Event("t", "s", f"{block} {number}") for number in range(10)])
        for first in (1, 11):
            strict, lenient = scan_of(path), scan_of(path, allowGaps=True)
            assert offsets(list(strict.read([Range(first, 100)]))) == list(range(first, 101))
            journal.trim(first + 15)
            with pytest.raises(
                TrimmedError, match=rf"offset {first} is no longer kept; {journal.first} .*allowGaps=true"
            ):
                list(strict.read([Range(first, 100)]))
            with caplog.at_level(logging.WARNING, "tocsin.spark"):
                caplog.clear()
                assert offsets(list(lenient.read([Range(first, 100)]))) == list(range(journal.first, 101))
            assert f"offsets {first} to {journal.first - 1} were trimmed" in caplog.text
        assert list(lenient.read([Range(2, 9)])) == []
        origin = strict.open()
        with pytest.raises(TrimmedError):
            strict.plan(origin, Range(1, 100))
        assert lenient.plan(origin, Range(1, 100)) == [(Range(journal.first, 100),)]
        origin.close()


def test_a_trim_in_the_middle_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with SqliteJournal(path, clock=ManualClock(), merge=False) as journal:
        for block in range(400):  # more than one page of the list, each too large to come with it
            journal.append([Event("t", "s", f"{block} {number}", data="x" * 6_000) for number in range(10)])
        strict, lenient = scan_of(path), scan_of(path, allowGaps=True)
        walks = [
            scan._walk(
                origin := scan.open(),
                Range(1, 4_000),
                scan_module._sieves(scan.options, scan.pushed),
                scan_module.Gathering({"id"}),
                Report(),
            )
            for scan in (strict, lenient)
        ]
        begun = [next(walk).column("offset").to_pylist() for walk in walks]
        assert begun[0] == begun[1] == list(range(1, begun[0][-1] + 1))
        journal.trim(3_000)
        with pytest.raises(TrimmedError):
            list(walks[0])
        rest = [offset for batch in walks[1] for offset in batch.column("offset").to_pylist()]
        assert rest[-1] == 4_000 and rest == sorted(set(rest))
        assert set(range(journal.first, 4_001)) <= set(rest)
        assert begun[1][-1] < rest[0]
        origin.close()


def test_a_journal_that_is_shorter_than_planned_is_an_error(tmp_path: Path) -> None:
    with plant(tmp_path / "j.db", 100):
        pass
    for options in ({}, {"allowGaps": True}):
        with pytest.raises(
            JournalError, match="offset 150 lies beyond the end of the journal, whose newest offset is 100"
        ):
            list(scan_of(tmp_path / "j.db", **options).read([Range(50, 150)]))


def test_the_version_of_the_filter_set_is_a_column(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with plant(path, 20):
        pass
    options = read_options({"url": f"file:{path}", "system": "true"})
    for names in (["id", "filters", "offset"], ["filters"]):
        schema = pa.schema(
            [pa.field("filters", pa.int64()) if name == "filters" else SOURCE_ARROW.field(name) for name in names]
        )
        (batch,) = Scan(options, schema).read([Range(1, 20)], 7)
        assert batch.schema == schema
        assert batch.column("filters").to_pylist() == [7] * 20


def test_a_column_that_cannot_be_made_is_refused_when_the_scan_is_made(tmp_path: Path) -> None:
    options = read_options({"url": f"file:{tmp_path}/j.db"})
    with pytest.raises(SchemaError, match="data"):
        Scan(options, pa.schema([pa.field("data", pa.date32())]))


def test_a_journal_and_its_lake_are_one(tmp_path: Path) -> None:
    path, lake = tmp_path / "j.db", tmp_path / "lake"
    with plant(path, 3_000, merged=False) as journal:
        whole = [batch.to_pylist() for batch in read(scan_of(path, ("offset", "id", "data")), Range(1, 3_000))]
        with pytest.raises(JournalError, match=r"there is no lake at .*; make it with"):
            scan_of(path, lake=lake).open()
        archive(journal, str(lake), chunk=500, upto=2_000)
        journal.trim(1_700)
        assert 1 < journal.first <= 1_700
        joined = scan_of(path, ("offset", "id", "data"), lake=lake)
        origin = joined.open()
        assert origin.first == 1
        origin.close()
        assert sum([batch.to_pylist() for batch in read(joined, Range(1, 3_000))], []) == sum(whole, [])
        with pytest.raises(TrimmedError, match=r"lake="):
            read(scan_of(path), Range(1, 3_000))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory:", "cannot be seen by Spark's processes; keep it in a file"),
        ("plant.db", "is not the url of a journal; write file:plant.db"),
        ("ftp://x/y", "names no journal that can be opened here"),
        ("file:", "names no file"),
        ("file:{tmp}/no.db", "there is no journal at .*no.db; check the url"),
        ("file:{tmp}", "is a directory, and no lake; name the journal in it"),
        ("file:{tmp}/text.db", "text.db"),
        ("file:{tmp}/empty.db", "holds no journal"),
    ],
)
def test_what_cannot_be_opened_says_why(tmp_path: Path, url: str, words: str) -> None:
    (tmp_path / "text.db").write_text("not a journal" * 1_000)
    (tmp_path / "empty.db").touch()
    with pytest.raises(JournalError, match=words):
        open_origin(url.format(tmp=tmp_path))
    with pytest.raises(JournalError, match="needs no token"):
        open_origin(f"file:{tmp_path}/text.db", token="x")


def test_times_are_kept_to_the_microsecond(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    clock = ManualClock()
    with SqliteJournal(path, clock=clock, merge=False) as journal:
        for number in range(5):
            journal.append([Event("t", "s", str(number))])
            clock.advance(0.000001)
    begin = as_micros(events_of(path)[0].arrived or as_datetime(0))
    for step in range(5):
        moment = begin + step
        assert offsets(read(scan_of(path, pushed=Pushed(since=moment)), Range(1, 5))) == list(range(step + 1, 6))
        assert offsets(read(scan_of(path, pushed=Pushed(until=moment)), Range(1, 5))) == list(range(1, step + 2))
    assert as_datetime(begin + 1) - as_datetime(begin) == timedelta(microseconds=1)

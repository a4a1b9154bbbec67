"""Export and import: nothing is lost, times stay, an interrupted import goes on, bad lines are named."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.past import NOON, SECOND
from tocsin.clock import as_datetime
from tocsin.errors import EventError, JournalError, TrimmedError
from tocsin.journal import transfer
from tocsin.journal.contract import Journal, Request
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.transfer import Imported
from tocsin.model import Event

START = as_datetime(NOON)
SHAPES = [
    Event("a", "s", "1", time=START, data={"x": 1, "é": [1.5, None, {"d": "\0"}]}, attributes={"r": "eu", "n": 2**62}),
    Event("a", "s", "2", time=START, data="plain é", datacontenttype="text/plain", ttl=2.5, persistent=False),
    Event("b", "s", "3", time=START, data=b"\xff\0", ack="client", cancel="any", classification="secret"),
    Event("b", "t", "1", subject="m7", priority=9, correlation_id="c", attributes={"flag": True, "f": 0.1, "i": 7}),
    Event("b", "t", "2", data=[1, 2], datacontenttype="application/vnd.x+json", attributes={"f": 7.0}),
    Event("b", "t", "3", data="a JSON text"),
]


def filled(events: list[Event], step: int = SECOND) -> MemoryJournal:
    journal = MemoryJournal()
    for number, event in enumerate(events):
        journal.submit(Request(NOON + number * step, [event]))
    return journal


def many(count: int) -> list[Event]:
    return [Event("t", "s", f"e{number}", data={"x": number}) for number in range(count)]


def everything(journal: Journal) -> list[Event]:
    return [event for block in journal.blocks() for event in block.events()]


@pytest.fixture(params=["memory", "sqlite"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "memory":
        yield MemoryJournal()
    else:
        from tocsin.journal.sqlite import SqliteJournal

        with SqliteJournal(tmp_path / "target.db") as journal:
            yield journal


def lines_of(journal: Journal, *range_: int, **options: object) -> bytes:
    sink = io.BytesIO()
    transfer.export_lines(journal, sink, *range_, **options)  # type: ignore[arg-type]
    return sink.getvalue()


def parquet_of(journal: Journal, *range_: int, **options: object) -> bytes:
    sink = io.BytesIO()
    transfer.export_parquet(journal, sink, *range_, **options)  # type: ignore[arg-type]
    return sink.getvalue()


def test_lines_there_and_back(target: Journal) -> None:
    source = filled(SHAPES)
    assert transfer.import_lines(target, io.BytesIO(lines_of(source))) == Imported(6, 0, 0)
    assert everything(target) == everything(source)


def test_parquet_there_and_back(target: Journal) -> None:
    odd = Event("c", "t", "9", attributes={"nan": math.nan, "inf": -math.inf})
    source = filled([*SHAPES, odd])
    assert transfer.import_parquet(target, io.BytesIO(parquet_of(source))) == Imported(7, 0, 0)
    *events, last = everything(target)
    assert events == everything(source)[:-1]
    assert math.isnan(float(last.attributes.pop("nan")))
    assert last.attributes == {"inf": -math.inf}


def test_a_line_is_a_cloud_event_with_its_place() -> None:
    (line,) = lines_of(filled(SHAPES), 4, 4).splitlines()
    members = msgspec.json.decode(line)
    assert members["specversion"] == "1.0"
    assert (members["offset"], members["arrived"]) == (4, "2026-01-01T12:00:03Z")


def test_parquet_is_readable_by_others(tmp_path: Path) -> None:
    path = str(tmp_path / "events.parquet")
    assert transfer.export_parquet(filled(SHAPES), path) == 6
    table = pq.read_table(path)
    assert table.column("data").to_pylist()[:3] == ['{"x":1,"é":[1.5,null,{"d":"\\u0000"}]}', "plain é", None]
    assert table.column("data_binary").to_pylist()[2] == b"\xff\0"
    assert dict(table.column("attributes").to_pylist()[0])["r"]["text"] == "eu"
    assert table.column("offset").to_pylist() == [1, 2, 3, 4, 5, 6]
    assert transfer.import_parquet(MemoryJournal(), path).stored == 6


def test_a_range(target: Journal) -> None:
    source = filled(many(300))
    assert len(lines_of(source, 100, 199).splitlines()) == 100
    assert lines_of(source, 299) == lines_of(source, 299, 300)
    assert transfer.import_parquet(target, io.BytesIO(parquet_of(source, 11, 20))).stored == 10
    assert [event.id for event in everything(target)] == [f"e{number}" for number in range(10, 20)]
    assert lines_of(MemoryJournal()) == b""
    assert transfer.import_lines(target, io.BytesIO(b"")) == Imported(0, 0, 0)
    assert transfer.import_parquet(target, io.BytesIO(parquet_of(MemoryJournal()))) == Imported(0, 0, 0)


def test_system_records_go_along_only_when_asked(target: Journal) -> None:
    source = filled([Event("tocsin.clock" if number % 2 else "a", "s", str(number)) for number in range(10)])
    assert len(lines_of(source).splitlines()) == 5
    whole = lines_of(source, system=True)
    assert len(whole.splitlines()) == 10
    assert transfer.import_lines(target, io.BytesIO(whole)) == Imported(5, 0, 5)
    assert transfer.import_lines(MemoryJournal(), io.BytesIO(whole), system=True) == Imported(10, 0, 0)


def test_without_arrival_the_producers_time_counts(target: Journal) -> None:
    lines = b"".join(
        b'{"specversion":"1.0","id":"%d","source":"s","type":"t","time":"2020-01-01T00:00:0%dZ"}\n\n' % (n, n)
        for n in range(5)
    )
    assert transfer.import_lines(target, io.BytesIO(lines)).stored == 5
    found = everything(target)
    assert [event.arrived for event in found] == [event.time for event in found]
    assert found[4].arrived == as_datetime(1_577_836_804_000_000)


def line(number: int, time: str | None = None, **more: object) -> bytes:
    members = {"specversion": "1.0", "id": str(number), "source": "s", "type": "t", **more}
    return msgspec.json.encode(members | ({"time": time} if time else {})) + b"\n"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line(3), "line 4: the event has no time"),
        (line(3, "2020-01-01T00:00:01Z"), "line 4: 2020-01-01T00:00:01Z is earlier than the one before, 2020"),
        (line(3, "2020-01-01T00:00:09Z", arrived="2020-01-01T00:00:01.5Z"), "line 4: 2020-01-01T00:00:01.500000Z is"),
        (b"{nonsense\n", "line 4: "),
        (line(3, "2020-01-01T00:00:03Z", priority=99), "line 4: priority is 99"),
        (line(3, "yesterday"), "line 4: time is 'yesterday'"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_the_lines_before_are_kept(target: Journal, bad: bytes, message: str) -> None:
    good = [line(number, f"2020-01-01T00:00:0{number}Z") for number in range(6)]
    broken = b"".join([good[0], good[1], good[2], bad, good[4]])
    with pytest.raises(EventError) as caught:
        transfer.import_lines(target, io.BytesIO(broken))
    assert caught.value.message.startswith(message)
    assert caught.value.help
    assert "earlier" not in message or "2020-01-01T00:00:02Z" in caught.value.message
    assert target.head == 3
    mended = b"".join(good)
    assert transfer.import_lines(target, io.BytesIO(mended)) == Imported(3, 3, 0)
    assert [event.id for event in everything(target)] == ["0", "1", "2", "3", "4", "5"]


def test_history_older_than_the_journal_is_refused(target: Journal) -> None:
    transfer.import_lines(target, io.BytesIO(line(1, "2020-01-02T00:00:00Z")))
    with pytest.raises(
        EventError, match=r"line 1: 2020-01-01T00:00:00Z is earlier than the newest event of the journal"
    ):
        transfer.import_lines(target, io.BytesIO(line(2, "2020-01-01T00:00:00Z")))
    assert target.head == 1


class Failing:
    """A journal that breaks down after some requests."""

    def __init__(self, journal: Journal, after: int) -> None:
        self.journal, self.left = journal, after

    def __getattr__(self, name: str) -> object:
        return getattr(self.journal, name)

    def submit(self, request: Request) -> None:
        if self.left <= 0:
            raise JournalError("the power is out")
        self.left -= 1
        self.journal.submit(request)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_BATCH", 32)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("step", [0, SECOND])
@pytest.mark.parametrize("after", [0, 1, 2, 20, 31, 32, 33, 90])
def test_an_interrupted_import_goes_on(after: int, step: int) -> None:
    source = filled(many(100), step)
    data, target = lines_of(source), MemoryJournal()
    if not (step == 0 and after > 2):
        with pytest.raises(JournalError, match="power"):
            transfer.import_lines(Failing(target, after), io.BytesIO(data))  # type: ignore[arg-type]
    before = target.head
    done = transfer.import_lines(target, io.BytesIO(data))
    assert done == Imported(100 - before, before, 0)
    assert everything(target) == everything(source)
    assert transfer.import_lines(target, io.BytesIO(data)) == Imported(0, 100, 0)
    assert transfer.import_parquet(target, io.BytesIO(parquet_of(source))) == Imported(0, 100, 0)


@pytest.mark.usefixtures("small_batches")
def test_also_when_ids_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on does not lean on the memory for ids, which covers the newest events only."""
    monkeypatch.setattr("tocsin.journal.contract.DEDUP_LEAST", 0)
    monkeypatch.setattr("tocsin.journal.contract.DEDUP_SECONDS", 0)
    source, target = filled(many(100)), MemoryJournal()
    data = lines_of(source)
    with pytest.raises(JournalError, match="power"):
        transfer.import_lines(Failing(target, 60), io.BytesIO(data))  # type: ignore[arg-type]
    assert transfer.import_lines(target, io.BytesIO(data)) == Imported(40, 60, 0)
    assert everything(target) == everything(source)


def test_a_file_that_has_grown_is_read_on(target: Journal) -> None:
    data = lines_of(filled(many(100)))
    half = b"".join(data.splitlines(keepends=True)[:50])
    assert transfer.import_lines(target, io.BytesIO(half)) == Imported(50, 0, 0)
    assert transfer.import_lines(target, io.BytesIO(data)) == Imported(50, 50, 0)


def test_another_file_under_the_same_name_is_refused(target: Journal) -> None:
    one, two = lines_of(filled(many(10))), lines_of(filled(many(10)[:5] + many(20)[11:]))
    transfer.import_lines(target, io.BytesIO(one), writer="history")
    with pytest.raises(JournalError, match="another file was imported as 'history'"):
        transfer.import_lines(target, io.BytesIO(two), writer="history")
    shorter = b"".join(one.splitlines(keepends=True)[:4])
    with pytest.raises(JournalError, match="name of its own"):
        transfer.import_lines(target, io.BytesIO(shorter), writer="history")


def test_events_published_lately_are_not_stored_again(target: Journal) -> None:
    data = b"".join(line(number, None, arrived="2026-01-01T12:00:00Z") for number in (1, 2, 1, 3))
    assert transfer.import_lines(target, io.BytesIO(data)) == Imported(3, 1, 0)


@pytest.mark.usefixtures("small_batches")
def test_progress(tmp_path: Path) -> None:
    source, told = filled(many(80)), []

    def progress(done: int, total: int | None) -> None:
        told.append((done, total))

    path = tmp_path / "events.jsonl"
    with path.open("wb") as file:
        transfer.export_lines(source, file, progress=progress)
    assert told[-1] == (80, 80)
    told.clear()
    with path.open("rb") as file:
        transfer.import_lines(MemoryJournal(), file, progress=progress)
    assert told[-1] == (path.stat().st_size,) * 2
    assert len(told) == 3
    told.clear()
    transfer.import_lines(MemoryJournal(), io.BytesIO(path.read_bytes()), progress=progress)
    assert told[-1] == (path.stat().st_size, None)
    told.clear()
    transfer.import_parquet(MemoryJournal(), io.BytesIO(parquet_of(source)), progress=progress)
    assert told[-1] == (80, 80)


def test_what_was_trimmed_cannot_be_exported() -> None:
    journal = filled(many(20))
    journal.trim(11)
    assert len(lines_of(journal).splitlines()) == 10
    for export in (lines_of, parquet_of):
        with pytest.raises(TrimmedError, match="from 11 on"):
            export(journal, 5)


def test_what_json_cannot_hold_is_named_with_its_offset() -> None:
    journal = filled([Event("a", "s", "1"), Event("a", "s", "2", attributes={"x": math.nan})])
    with pytest.raises(EventError, match="offset 2: ") as caught:
        lines_of(journal)
    assert "Parquet" in str(caught.value)


def parquet_file(**columns: pa.Array) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink


def test_a_parquet_file_of_others(target: Journal) -> None:
    moment = pa.array([NOON // 1000, NOON // 1000 + 5], pa.timestamp("ms", "UTC"))
    file = parquet_file(
        id=pa.array(["1", "2"]), source=pa.array(["s", "s"]), type=pa.array(["t", "t"]), time=moment,
        data=pa.array(['{"x": 1}', None]),
    )  # fmt: skip
    assert transfer.import_parquet(target, file) == Imported(2, 0, 0)
    assert everything(target)[0].data == {"x": 1}
    assert everything(target)[1].arrived == START + timedelta(milliseconds=5)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["1"], "source": ["s"]}, "no column type"),
        ({"id": ["1"], "source": ["s"], "type": ["t"], "colour": ["red"]}, "column colour is not known"),
        ({"id": ["1"], "source": ["s"], "type": ["t"]}, "row 1: the event has no time"),
        ({"id": [None, "2"], "source": ["s", "s"], "type": ["t", "t"]}, "row 1: id is missing"),
        ({"id": ["1"], "source": ["s"], "type": ["t"], "data": ["{"]}, "row 1: data is not JSON"),
        (
            {"id": ["1"], "source": ["s"], "type": ["t"], "data": ["1"], "data_binary": [b"1"]},
            "row 1: data and data_bin",
        ),
        ({"id": ["1"], "source": ["s"], "type": [""]}, "row 1: type is"),
    ],
)
def test_a_parquet_file_that_is_none_of_ours(columns: dict[str, list[object]], message: str) -> None:
    file = parquet_file(**{name: pa.array(values) for name, values in columns.items()})
    with pytest.raises(EventError, match=message):
        transfer.import_parquet(MemoryJournal(), file)


def test_no_parquet_at_all(tmp_path: Path) -> None:
    with pytest.raises(EventError, match="no Parquet file"):
        transfer.import_parquet(MemoryJournal(), io.BytesIO(b"nonsense"))
    with pytest.raises(FileNotFoundError):
        transfer.import_parquet(MemoryJournal(), str(tmp_path / "nowhere"))

"""Segments: what goes in comes out, small on disk, and damage is never taken for events."""

from __future__ import annotations

import random
import string
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tocsin.clock import as_micros
from tocsin.errors import JournalDamagedError
from tocsin.journal import rows, segments
from tocsin.model import Event

START = datetime(2026, 1, 1, tzinfo=UTC)


def batch_of(events: list[Event], first: int = 1) -> pa.RecordBatch:
    begin = as_micros(START)
    return rows.to_arrow([rows.to_row(event) for event in events], first, range(begin, begin + len(events)))


def plant(count: int, letters: int = 200) -> list[Event]:
    """Events of five fields and so many random letters."""
    draw = random.Random(4)
    return [
        Event(
            draw.choice(["machine.value", "door.open", "badge"]),
            f"line/{draw.randrange(40)}",
            subject=f"m{draw.randrange(200)}",
            time=START + timedelta(milliseconds=number, microseconds=draw.randrange(900)),
            data={
                "machine": f"m{draw.randrange(200)}",
                "value": round(draw.gauss(9, 2), 3),
                "count": draw.randrange(10_000),
                "ok": draw.random() < 0.9,
                "note": "".join(draw.choices(string.ascii_letters + string.digits, k=letters)),
            },
            attributes={"region": draw.choice(["eu", "us"])},
            priority=draw.randrange(1, 11),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_what_goes_in_comes_out(count: int) -> None:
    batch = batch_of(plant(count), first=17)
    again = segments.decode(segments.encode(batch))
    assert again.schema.equals(rows.SCHEMA)
    assert again.equals(batch)
    again.validate(full=True)


def test_every_shape_of_event_survives() -> None:
    events = [
        Event("t", "s", "1"),
        Event("t", "s", "2", data="é\0", datacontenttype="text/plain", ttl=0.5, persistent=False, ack="client"),
        Event("t", "s", "3", data=b"\xff\0", cancel="any", classification="secret", correlation_id="c"),
        Event("t", "s", "4", data=[1, {"a": None}], attributes={"x": True, "y": 2**62, "z": 0.1}, time=START),
    ]
    again = rows.from_arrow(segments.decode(segments.encode(batch_of(events))))
    plain = [event.replace(offset=None, arrived=None) for event in again]
    assert plain == events


@pytest.mark.parametrize("count", [0, 1, 300])
def test_columns_that_are_not_wanted_are_left_out(count: int) -> None:
    batch = batch_of(plant(count), first=17)
    data = segments.encode(batch)
    for wanted in ((), ("offset",), ("data", "type"), ("id", "source", "attributes"), tuple(rows.SCHEMA.names)):
        some = segments.decode(data, wanted)
        assert some.equals(batch.select([name for name in rows.SCHEMA.names if name in {"offset", *wanted}]))
        assert all(field.equals(rows.SCHEMA.field(field.name)) for field in some.schema)
        some.validate(full=True)


def test_a_slice_of_a_batch_can_be_written() -> None:
    batch = batch_of(plant(100))
    part = batch.slice(40, 20)
    assert segments.decode(segments.encode(part)).equals(part)


def test_distinct_texts_stay_plain_and_many_fit_wider_dictionaries() -> None:
    for count, repeat in ((200, 1), (200, 5), (40_000, 2)):
        events = [Event("t", f"s{number % count}", str(number)) for number in range(count * repeat)]
        batch = batch_of(events)
        assert segments.decode(segments.encode(batch)).equals(batch)


def test_on_disk_it_is_smaller_than_its_payload() -> None:
    batch = batch_of(plant(4096))
    payload = sum(len(each) for each in batch.column("data").to_pylist())
    assert len(segments.encode(batch)) < payload  # the goal is 1.5 times the payload; random letters hardly shrink


def test_rows_between_offsets() -> None:
    batch = batch_of(plant(10), first=101)
    assert segments.between(batch, 103, 105).column("offset").to_pylist() == [103, 104, 105]
    assert segments.between(batch, 1, 101).column("offset").to_pylist() == [101]
    assert segments.between(batch, 110, 999).column("offset").to_pylist() == [110]
    assert segments.between(batch, 1, 999).num_rows == 10
    for first, last in ((1, 100), (111, 200), (105, 104)):
        assert segments.between(batch, first, last).num_rows == 0
    assert segments.between(batch.slice(0, 0), 1, 5).num_rows == 0


def test_every_changed_or_missing_byte_is_noticed() -> None:
    data = segments.encode(batch_of(plant(3)))
    draw = random.Random(1)
    places = {*range(16), len(data) - 1, *draw.sample(range(len(data)), 60)}
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << draw.randrange(8)
        with pytest.raises(JournalDamagedError):
            segments.decode(bytes(changed))
    for length in (0, 3, 7, 8, 100, len(data) - 1):
        with pytest.raises(JournalDamagedError):
            segments.decode(data[:length])
    with pytest.raises(JournalDamagedError):
        segments.decode(data + b"\0")


def test_other_bytes_with_a_right_checksum_are_refused_too() -> None:
    import zlib

    def sealed(body: bytes) -> bytes:
        return b"TSG\x01" + zlib.crc32(body).to_bytes(4, "little") + body

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int8())])) as writer:
        writer.write_batch(pa.record_batch([pa.array([1], pa.int8())], names=["a"]))
    for body in (b"", b"nonsense", sink.getvalue().to_pybytes()):
        for columns in (None, ("type",)):
            with pytest.raises(JournalDamagedError):
                segments.decode(sealed(body), columns)


def test_a_batch_with_other_columns_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"rows\.SCHEMA"):
        segments.encode(pa.record_batch([pa.array([1])], names=["offset"]))

"""`GET /events`: ranges, filters, Arrow and JSON lines, what was trimmed, and a reader that is slow or leaves."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers import event as event_of
from tests.helpers import numbered, soon, take, testing
from tests.http.support import ARROW, Answer, served, until
from tocsin import Event
from tocsin.cloudevents import from_json
from tocsin.journal import rows
from tocsin.journal.columns import SOURCE_ARROW


def ids(answer: Answer) -> list[str]:
    assert answer.status == 200, answer
    return [json.loads(line)["id"] for line in answer.body.splitlines()]


def table(answer: Answer) -> pa.Table:
    assert (answer.status, answer.headers["content-type"]) == (200, ARROW["accept"]), answer
    return pa.ipc.open_stream(answer.body).read_all()


RANGES: list[tuple[str, Any]] = [
    ("", range(1, 11)),
    ("?from=3", range(3, 11)),
    ("?from=3&to=5", range(3, 6)),
    ("?to=1", [1]),
    ("?from=0&to=0", []),
    ("?from=11", []),
    ("?from=5&to=4", []),
    ("?from=9&to=999999999999999999", [9, 10]),
    ("?limit=4", range(1, 5)),
    ("?filter=n%20%3E%208", [9, 10]),
    ("?filter=n%20%3E%203&limit=2&from=2", [4, 5]),
    ("?filter=n%20%3E%2099", []),
]


async def test_ranges_hold_both_ends(url: str) -> None:
    async with served(url) as place:
        await place.bus.publish_many(numbered(10))
        for query, found in RANGES:
            wanted = [str(n) for n in found]
            assert ids(await place.get(f"/events{query}")) == wanted, query
            assert table(await place.get(f"/events{query}", **ARROW))["id"].to_pylist() == wanted, query


async def test_times_for_offsets() -> None:
    clock = testing.ManualClock()
    async with served(clock=clock) as place:
        for each in numbered(5):
            await place.bus.publish(each)
            clock.advance(60)
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        second, fourth = ((begin + timedelta(minutes=n)).isoformat() for n in (1, 3))
        assert ids(await place.get(f"/events?from={second}&to={fourth}")) == ["2", "3", "4"], "a + may be a blank"
        head = await place.ask("HEAD", f"/events?from={second.replace('+00:00', 'Z')}")
        assert (head.headers["tocsin-from"], head.headers["tocsin-to"]) == ("2", "5")


async def test_head_says_what_there_is(file_url: str) -> None:
    async with served(file_url) as place:
        await place.bus.publish_many(numbered(10))
        head = await place.ask("HEAD", "/events?from=4", headers=ARROW)
        assert head.status == 200
        told = {name: text for name, text in head.headers.items() if name.startswith("tocsin-")}
        assert told == {"tocsin-first": "1", "tocsin-head": "10", "tocsin-from": "4", "tocsin-to": "10"}


async def test_lines_are_the_events_again() -> None:
    async with served() as place:
        sent = [
            Event(
                "a", "s", id="1", data={"deep": [1, None, "ü\n"]}, attributes={"n": 1, "f": 0.5, "b": True, "t": "x"}
            ),
            Event("a", "s", id="2", data=b"\x00\xff", datacontenttype="application/octet-stream", ttl=5, ack="client"),
            Event("a", "s", id="3", data="text", datacontenttype="text/plain", priority=9, persistent=False),
            Event("a", "s", id="4", subject="x", correlation_id="c", classification="secret", cancel="any"),
        ]
        await place.bus.publish_many(sent)
        answer = await place.get("/events")
        found = [from_json(line) for line in answer.body.splitlines()]
        same = await take(place.bus, await place.bus.subscribe("TRUE", past=10, order="journal"))
        assert found == [each.event for each in same] and [each.offset for each in found] == [1, 2, 3, 4]


async def test_not_finite_attribute_is_text_in_lines_and_itself_in_arrow() -> None:
    async with served() as place:
        await place.bus.publish(Event("a", "s", id="1", attributes={"x": float("nan"), "y": 1.5}))
        [line] = (await place.get("/events")).body.splitlines()
        assert (json.loads(line)["x"], json.loads(line)["y"]) == ("nan", 1.5)
        assert table(await place.get("/events", **ARROW)).num_rows == 1


async def test_arrow_has_the_columns_of_spark_and_pandas_reads_it(url: str) -> None:
    async with served(url) as place:
        await place.bus.publish_many(numbered(3, attributes={"machine": "m7"}))
        answer = await place.get("/events", **ARROW)
        found = table(answer)
        assert found.schema.equals(SOURCE_ARROW, check_metadata=False)
        frame = found.to_pandas()
        assert list(frame["offset"]) == [1, 2, 3] and list(frame["type"]) == ["alarm"] * 3
        assert [json.loads(text)["n"] for text in frame["data"]] == [1, 2, 3]
        assert frame["arrived"].dt.tz is not None
        empty = table(await place.get("/events?from=9", **ARROW))
        assert empty.schema.equals(SOURCE_ARROW) and empty.num_rows == 0


async def test_system_records_are_asked_for() -> None:
    async with served() as place:
        await place.bus.publish(Event("a", "s", id="1"))
        await place.bus.cancel("1")
        assert ids(await place.get("/events")) == ["1"]
        lines = (await place.get("/events?system=true")).body.splitlines()
        assert [json.loads(line)["type"] for line in lines] == ["a", "tocsin.cancelled"]


BAD = [
    ("from=x", "*/*", (400, "ProtocolError"), "from"),
    ("to=-1", "*/*", (400, "ProtocolError"), "to"),
    ("from=2026-01-01T00:00:00", "*/*", (400, "ProtocolError"), "from"),
    ("limit=0", "*/*", (400, "ProtocolError"), "limit"),
    ("limit=1&limit=2", "*/*", (400, "ProtocolError"), "limit"),
    ("form=3", "*/*", (400, "ProtocolError"), "form"),
    ("system=maybe", "*/*", (400, "ProtocolError"), "system"),
    ("filter=n+%3E", "*/*", (400, "FilterError"), None),
    ("", "text/csv", (406, "ProtocolError"), "accept"),
]


async def test_bad_questions() -> None:
    async with served() as place:
        for query, accept, error, field in BAD:
            answer = await place.get(f"/events?{query}", accept=accept)
            assert (answer.error, answer.json["field"]) == (error, field), query


async def test_what_is_trimmed_is_gone(file_url: str) -> None:
    async with served(file_url) as place:
        for part in range(3):
            await place.bus.publish_many(numbered(10, first=1 + 10 * part))
        kept = await place.bus.trim(larger_than=0, hard=True)
        assert kept > 1
        answer = await place.get(f"/events?from={kept - 1}")
        assert answer.error == (410, "TrimmedError") and str(kept) in answer.json["help"]
        assert (await place.get("/events")).headers["tocsin-from"] == str(kept)


async def test_large_range_comes_in_parts_and_the_node_goes_on(file_url: str) -> None:
    """The loop is never held for long, and what is not read is not made."""
    async with served(file_url) as place:
        for part in range(10):
            await place.bus.publish_many(numbered(2000, first=1 + 2000 * part, attributes={"text": "x" * 500}))
        assert table(await place.get("/events", **ARROW))["offset"].to_pylist() == list(range(1, 20_001))
        wire = await place.open()
        wire.send("GET", "/events", {})
        assert (await soon(wire.head()))[0] == 200
        assert await soon(wire.chunk())
        sent = [await soon(place.bus.publish(each)) for each in numbered(20, first=30_000)]
        assert sent[-1].offset == 20_020, "nobody waits for who does not read"
        reads = place.server.http.reads
        wire.writer.transport.abort()
        await until(lambda: reads._value == 64)  # its place is free again


async def test_reader_that_takes_nothing_is_shown_out(file_url: str) -> None:
    async with served(file_url, stuck=0.3) as place:
        await place.bus.publish_many(numbered(4000, attributes={"text": "x" * 4000}))
        wire = await place.open()
        wire.send("GET", "/events", {})
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: place.server.http.reads._value < 64)
        await until(lambda: place.server.http.reads._value == 64)
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await soon(wire.answer())


async def test_many_read_at_once(file_url: str) -> None:
    async with served(file_url) as place:
        await place.bus.publish_many(numbered(500))
        place.server.http.reads = asyncio.Semaphore(2)
        answers = await asyncio.gather(*(place.get("/events", **ARROW) for _ in range(10)))
        assert [table(each).num_rows for each in answers] == [500] * 10


async def test_columns_are_the_readers_choice(url: str) -> None:
    async with served(url) as place:
        sent = numbered(3, attributes={"machine": "m7"}, datacontenttype="application/json")
        await place.bus.publish_many([*sent, event_of("other")])
        found = table(await place.get("/events?columns=type,%20id&filter=machine%20=%20'm7'", **ARROW))
        assert found.schema.names == ["offset", "id", "type"] and found["id"].to_pylist() == ["1", "2", "3"]
        data = table(await place.get("/events?columns=data&limit=1", **ARROW))
        assert data.schema.equals(pa.schema([SOURCE_ARROW.field("offset"), SOURCE_ARROW.field("data")]))
        assert json.loads(data["data"][0].as_py()) == {"n": 1}


async def test_raw_columns_are_the_journals(url: str) -> None:
    async with served(url) as place:
        await place.bus.publish_many(numbered(3, attributes={"machine": "m7"}, priority=7))
        found = table(await place.get("/events?raw=true", **ARROW))
        assert found.schema.equals(rows.SCHEMA, check_metadata=False)
        stored = [each for block in place.bus._node.journal.blocks() for each in block.events()]
        assert [each for batch in found.to_batches() for each in rows.from_arrow(batch)] == stored
        assert table(await place.get("/events?raw=true&columns=priority", **ARROW))["priority"].to_pylist() == [7, 7, 7]
        empty = table(await place.get("/events?raw=true&columns=priority&to=0", **ARROW))
        assert empty.schema.names == ["offset", "priority"] and not empty.num_rows


async def test_columns_that_are_none_are_refused() -> None:
    async with served() as place:
        for query in ("columns=x", "columns=", "columns=id,,type", "raw=perhaps"):
            assert (await place.get(f"/events?{query}", **ARROW)).error == (400, "ProtocolError"), query
        for query in ("columns=id", "raw=true"):
            answer = await place.get(f"/events?{query}")
            assert answer.error == (400, "ProtocolError") and answer.json["field"] == query.partition("=")[0]

"""`POST /events`: three modes, limits, and what is refused; nothing of what is refused is stored."""

from __future__ import annotations

import json
from typing import Any

from tests.helpers import soon
from tests.http.support import BATCH, STRUCTURED, Place, cloud, served

BINARY = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "line/7", "ce-type": "machine.value"}


async def stored(place: Place) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await place.get("/events")).body.splitlines()]


async def test_binary_structured_and_batch() -> None:
    async with served() as place:
        headers = {**BINARY, "ce-priority": "8", "ce-machine": "m7", "content-type": "application/json"}
        answer = await place.ask("POST", "/events", {"value": 9.2}, headers)
        assert (answer.status, answer.json) == (202, {"id": "7", "offset": 1})
        answer = await place.ask("POST", "/events", cloud("a", priority=3), STRUCTURED)
        assert (answer.status, answer.json) == (202, {"id": "a", "offset": 2})
        answer = await place.publish(cloud("b"), cloud("a", priority=3), cloud("c"))
        assert answer.status == 202
        assert answer.json == [{"id": "b", "offset": 3}, {"id": "a", "offset": 2}, {"id": "c", "offset": 4}]
        first, *others = await stored(place)
        assert (first["type"], first["priority"], first["machine"], first["data"]) == (
            *("machine.value", 8, "m7"),
            {"value": 9.2},
        )
        assert [(each["id"], each["offset"]) for each in others] == [("a", 2), ("b", 3), ("c", 4)]


async def test_empty_batch_stores_nothing() -> None:
    async with served() as place:
        assert (await place.publish()).json == []
        assert await stored(place) == []


async def test_publisher_is_who_it_says() -> None:
    async with served() as place:
        spelt = "Ännchen".encode().decode("latin-1")
        await place.ask("POST", "/events", cloud("b"), {**STRUCTURED, "Tocsin-Name": spelt})
        assert (await place.bus.audit("b"))[0].who == "Ännchen"
        await place.ask("POST", "/events", cloud("a"), {**STRUCTURED, "Tocsin-Name": "line-7"})
        assert (await place.ask("DELETE", "/events/a", headers={"Tocsin-Name": "other"})).error == (403, "CancelError")
        assert (await place.ask("DELETE", "/events/a", headers={"Tocsin-Name": "line-7"})).status == 204
        assert (await place.bus.status("a")).state == "cancelled"


async def test_claimed_place_in_the_journal_is_passed_over() -> None:
    async with served() as place:
        answer = await place.publish(cloud("a", offset=77, arrived="2001-01-01T00:00:00Z"))
        assert answer.json == [{"id": "a", "offset": 1}]
        [event] = await stored(place)
        assert event["offset"] == 1 and event["arrived"] > "2026"


BAD: list[tuple[dict[str, str], Any, tuple[int, str], str | None]] = [
    (STRUCTURED, b"{", (400, "EventError"), None),
    (STRUCTURED, b"\xff\xfe", (400, "EventError"), None),
    (STRUCTURED, b"[" * 100_000, (400, "EventError"), None),
    (STRUCTURED, cloud(priority=11), (400, "EventError"), "priority"),
    (STRUCTURED, cloud(type="tocsin.own"), (400, "EventError"), "type"),
    (BATCH, [cloud("a"), cloud("b", ttl=-1)], (400, "EventError"), "[1].ttl"),
    (BATCH, cloud("a"), (400, "EventError"), None),
    ({"content-type": "application/json"}, cloud(), (415, "ProtocolError"), "content-type"),
    ({"content-type": "application/cloudevents+xml"}, b"<a/>", (415, "ProtocolError"), "content-type"),
    ({**STRUCTURED, "content-encoding": "gzip"}, b"\x1f\x8b", (415, "ProtocolError"), "content-encoding"),
    ({}, b"", (415, "ProtocolError"), "content-type"),
    ({**BINARY, "ce-id": "%ff"}, b"", (400, "EventError"), "id"),
    ({name: each for name, each in BINARY.items() if name != "ce-type"}, b"", (400, "EventError"), "type"),
    ({**STRUCTURED, "Tocsin-Name": " "}, cloud(), (400, "ProtocolError"), "name"),
]


async def test_what_is_no_event_is_refused_and_nothing_is_stored() -> None:
    async with served() as place:
        for headers, body, error, field in BAD:
            answer = await place.ask("POST", "/events", body, headers)
            assert (answer.error, answer.json["field"]) == (error, field), (headers, str(body)[:80])
        assert await stored(place) == []


async def test_too_large_is_told_before_the_body_is_read() -> None:
    async with served() as place:
        for headers, size in ((STRUCTURED, 16 * 1024 * 1024 + 1), (BINARY, 1024 * 1024 + 1)):
            wire = await place.open()
            wire.send("POST", "/events", {**headers, "content-length": str(size), "expect": "100-continue"})
            answer = await soon(wire.answer())  # nothing of the body was sent, nor asked for
            assert answer.error == (413, "ProtocolError")
            wire.writer.close()


async def test_too_large_is_told_while_reading_where_no_length_is_said() -> None:
    async with served(max_frame=100_000) as place:
        wire = await place.open()
        wire.send("POST", "/events", {**STRUCTURED, "transfer-encoding": "chunked"})
        for _ in range(11):
            wire.writer.write(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert (await soon(wire.answer())).error == (413, "ProtocolError")
        wire.writer.close()


async def test_one_event_of_many_may_be_too_large() -> None:
    async with served() as place:
        large = cloud("large", data="x" * (1024 * 1024 - 2))
        assert (await place.publish(cloud("a"), large)).status == 202, "1 MiB is not too large"
        answer = await place.publish(cloud("b"), cloud("larger", data="x" * 1024 * 1024))
        assert answer.error == (413, "EventError") and answer.json["field"] == "[1].data"
        assert len((await place.get("/events")).body.splitlines()) == 2


async def test_bodies_all_together_are_bounded() -> None:
    async with served() as place:
        place.server.http.bodies.most = 50_000
        assert (await place.publish(cloud("a", data="x" * 60_000))).error == (429, "OverloadError")
        slow = await place.open()
        slow.send("POST", "/events", {**STRUCTURED, "content-length": "60000"}, b" " * 45_000)
        while place.server.http.bodies.held < 45_000:
            await soon(place.get("/health"))
        answer = await place.publish(cloud("b", data="x" * 10_000))
        assert answer.error == (429, "OverloadError") and answer.headers["retry-after"] == "1"
        slow.writer.close()
        while place.server.http.bodies.held:
            await soon(place.get("/health"))
        assert (await place.publish(cloud("c", data="x" * 10_000))).status == 202

"""`/batches`: parts from anywhere, stored as one: all or nothing, once, and by who may publish every type in them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.helpers import event, numbered, soon
from tests.http.support import Answer, Place, served
from tests.http.test_access import bearer, store
from tocsin.composite.leaves import SOURCE
from tocsin.journal.packed import pack
from tocsin.journal.rows import to_row
from tocsin.model import Event
from tocsin.net.http import staged
from tocsin.security.limits import Allowance

ROWS = {"content-type": "application/octet-stream"}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def rows_of(events: list[Event]) -> bytes:
    [(rows, count)] = pack([each.replace(time=NOON) for each in events])
    return b"\xdd" + count.to_bytes(4, "big") + rows


async def put(place: Place, name: str, part: str, events: list[Event], **headers: str) -> Answer:
    opened = await place.ask("PUT", f"/batches/{name}", headers=headers)
    if opened.status != 204:
        return opened
    return await place.ask("PUT", f"/batches/{name}/{part}", rows_of(events), {**ROWS, **headers})


async def staged_as(place: Place, name: str, parts: dict[str, list[Event]], **headers: str) -> list[dict[str, Any]]:
    found = []
    for part, events in parts.items():
        answer = await put(place, name, part, events, **headers)
        assert answer.status == 201, answer
        assert answer.json["events"] == len(events)
        found.append({"id": part, **answer.json})
    return found


async def commit(place: Place, name: str, parts: list[dict[str, Any]], *, headers: Any = None, **how: Any) -> Answer:
    return await place.ask("POST", f"/batches/{name}", {"parts": parts, **how}, headers)


async def stored(place: Place) -> list[str]:
    lines = (await place.get("/events")).body.splitlines()
    return [json.loads(line)["id"] for line in lines]


async def test_parts_are_stored_in_the_order_that_is_said(url: str) -> None:
    async with served(url) as place:
        parts = await staged_as(place, "b", {"2": numbered(3, 10), "1": numbered(3), "lost": numbered(1, 90)})
        assert await stored(place) == []
        answer = await commit(place, "b", [parts[1], parts[0]], writer="w", batch=0)
        assert (answer.status, answer.json) == (200, {"events": 6})
        assert await stored(place) == ["1", "2", "3", "10", "11", "12"]
        late = await place.ask("PUT", "/batches/b/3", rows_of(numbered(1)), ROWS)
        assert late.error == (409, "ProtocolError") and "is not open" in late.json["message"], "it is over"
        left = await commit(place, "b", [parts[2]], writer="w", batch=1)
        assert left.error == (503, "JournalError") and "cannot be read" in left.json["message"], "its batch is over"


async def test_what_comes_is_what_was_sent(url: str) -> None:
    rich = [
        event("1", data={"a": [1, 2.5, None, "é"]}, attributes={"x": 1, "y": 0.5, "b": True, "t": "x"}, time=NOON),
        event("2", data=b"\x00\xff", datacontenttype="application/octet-stream", ttl=5, ack="client", time=NOON),
        event("3", data="text", datacontenttype="text/plain", priority=9, persistent=False, time=NOON),
        event("4", subject="x", correlation_id="c", classification="secret", cancel="any", time=NOON),
    ]
    async with served(url) as place:
        await commit(place, "b", await staged_as(place, "b", {"1": rich}))
        found = [each for block in place.bus._node.journal.blocks() for each in block.events()]
        assert [each.replace(offset=None, arrived=None) for each in found] == rich


async def test_a_batch_that_was_stored_is_not_stored_again(url: str) -> None:
    async with served(url) as place:
        for name, how in (("a", {"writer": "w", "batch": 0}), ("b", {})):
            parts = await staged_as(place, name, {"1": numbered(3, 1 + 10 * (name == "b"))})
            for _ in range(3):  # its parts are gone after the first
                assert (await commit(place, name, parts, **how)).json == {"events": 3}
        other = await staged_as(place, "c", {"1": numbered(5, 50)})
        assert (await commit(place, "c", other, writer="w", batch=0)).status == 200, "the number counts, not the rows"
        assert await stored(place) == ["1", "2", "3", "11", "12", "13"]
        answer = await commit(place, "d", await staged_as(place, "d", {"1": numbered(1, 70)}), writer="w", batch=5)
        assert answer.status == 200
        late = await commit(place, "e", await staged_as(place, "e", {"1": numbered(1, 80)}), writer="w", batch=3)
        assert late.error == (409, "WriterError") and "older than the journal" in late.json["message"]


async def test_a_writer_belongs_to_one_query() -> None:
    async with served() as place:
        parts = await staged_as(place, "a", {"1": numbered(2)})
        how = {"writer": "w", "batch": 0, "query": "q1", "streaming": True}
        assert (await commit(place, "a", parts, **how)).status == 200
        parts = await staged_as(place, "b", {"1": numbered(2, 10)})
        taken = await commit(place, "b", parts, **{**how, "query": "q2"})
        assert taken.error == (409, "WriterError") and "belongs to the query q1" in taken.json["message"]
        renamed = await commit(place, "b", parts, **{**how, "writer": "v"})
        assert renamed.error == (409, "WriterError") and "until now" in renamed.json["message"]
        assert await stored(place) == ["1", "2"]
        await place.bus._publish_batch([event("x")], tuple_batch("plain", 1))
        answer = await commit(place, "b", parts, writer="plain", batch=0)
        assert answer.error == (409, "WriterError") and "no Spark query" in answer.json["message"]


def tuple_batch(writer: str, position: int) -> Any:
    from tocsin.node.pipeline import Batch

    return Batch(writer, position)


async def test_all_or_nothing(file_url: str) -> None:
    async with served(file_url) as place:
        parts = await staged_as(place, "b", {"1": numbered(3), "2": numbered(3, 10)})
        spoilt = [
            [parts[0], {**parts[1], "id": "no"}],
            [parts[0], {**parts[1], "checksum": 1}],
            [parts[0], {**parts[1], "events": 2}],
            [parts[0], {**parts[1], "size": 2}],
        ]
        for each in spoilt:
            answer = await commit(place, "b", each, writer="w", batch=0)
            assert answer.error == (503, "JournalError"), each
            assert await stored(place) == []
        assert (await commit(place, "b", parts, writer="w", batch=0)).json == {"events": 6}


async def test_what_is_dropped_is_gone(tmp_path: Path) -> None:
    async with served(f"file:{tmp_path}/plant.db") as place:
        parts = await staged_as(place, "b", {"1": numbered(3)})
        assert len(list((tmp_path / "plant.db.batches").glob("*/*/*"))) == 1
        assert (await place.ask("DELETE", "/batches/b")).status == 204
        assert (await place.ask("DELETE", "/batches/b")).status == 204
        assert (await commit(place, "b", parts)).status == 503
        assert list((tmp_path / "plant.db.batches").glob("*/*")) == []
        assert place.server.http.staged._bytes.total() == place.server.http.staged._parts.total() == 0


async def test_parts_survive_the_node(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/plant.db"
    async with served(url) as place:
        parts = await staged_as(place, "b", {"1": numbered(3), "2": numbered(3, 10)})
        half = tmp_path / "plant.db.batches" / "x" / "y"
        half.mkdir(parents=True)
        (half / ".half").write_bytes(b"the node was killed here")
    async with served(url) as place:
        assert (await commit(place, "b", parts, writer="w", batch=0)).json == {"events": 6}
        await put(place, "c", "1", numbered(1))
        assert not (half / ".half").exists()


async def test_subscribers_hear_of_large_batches_in_order(url: str) -> None:
    """More than is matched in one turn, with others published before and after."""
    async with served(url) as place:
        sub = await place.bus.subscribe("n % 500 = 0", order="journal")
        await place.bus.publish(event("first", data={"n": 0}))
        parts = await staged_as(place, "b", {"1": numbered(3_000), "2": numbered(3_000, 3_001)})
        answer = await commit(place, "b", parts, writer="w", batch=0)
        assert answer.json == {"events": 6_000}
        await place.bus.publish(event("last", data={"n": 0}))
        found = [(await soon(sub.next())).event for _ in range(14)]
        assert [each.id for each in found] == ["first", *(str(n) for n in range(500, 6_001, 500)), "last"]
        assert [each.offset for each in found] == [1, *(n + 1 for n in range(500, 6_001, 500)), 6_002]


BAD: list[tuple[bytes, str, str | None]] = [
    (b"", "no list of rows", None),
    (b"\xdd\xff\xff\xff\xff", "4,294,967,295 rows", None),
    (b"\xdd\x00\x01\x00\x01" + b"\x90" * 65_537, "65,537 rows", None),
    (b"\xdc\xff\xff" + b"\x90" * 65_535, "no event", None),
    (b"\xdc\xff", "no list of rows", None),
    (b"\x91" * 10_000, "", None),
    (msgspec.msgpack.encode(["x"]), "no event", None),
    (msgspec.msgpack.encode([to_row(event("a"))[:-1]]), "no event", None),
    (msgspec.msgpack.encode([to_row(event("a"))]) + b"\x00", "no list of rows", None),
    (msgspec.msgpack.encode([to_row(event("a")), to_row(event("b"))[:2] + (7,)]), "event 1: this is no event", "[1]"),
    (msgspec.msgpack.encode([to_row(event("a", type="tocsin.own"))]), "the node's own", "type"),
    (msgspec.msgpack.encode([to_row(event("a", source=SOURCE))]), "the node's own", "source"),
    (msgspec.msgpack.encode([to_row(event("a", data="x" * (1 << 20)))]), "1,048,578 bytes", "data"),
    (msgspec.msgpack.encode([(*to_row(event("a"))[:6], b"{", *to_row(event("a"))[7:])]), "", None),
]


@pytest.mark.parametrize(("body", "words", "field"), BAD)
async def test_what_is_no_part_is_refused(body: bytes, words: str, field: str | None) -> None:
    async with served() as place:
        await place.ask("PUT", "/batches/b")
        answer = await place.ask("PUT", "/batches/b/1", body, ROWS)
        assert answer.error == (400, "EventError") and words in answer.json["message"], answer.body
        assert field is None or answer.json["field"] == field
        assert place.server.http.staged._bytes.total() == 0


async def test_what_is_no_name_is_refused(tmp_path: Path) -> None:
    async with served(f"file:{tmp_path}/plant.db") as place:
        assert (await place.ask("PUT", "/batches/b")).status == 204
        for path in ("/batches/../1", "/batches/.b/1", "/batches/b/.1", "/batches/%2e%2e/1", "/batches/b/a%5cb"):
            answer = await place.ask("PUT", path, rows_of(numbered(1)), ROWS)
            assert answer.status in (400, 404), path
        for name in ("", "client/x", "tocsin/pipeline/statistics", "a\n", "x" * 300):
            answer = await commit(place, "b", await staged_as(place, "b", {"1": numbered(1)}), writer=name, batch=0)
            assert answer.error == (400, "ProtocolError") and answer.json["field"] == "writer", name
        parts = await staged_as(place, "b", {"1": numbered(1)})
        for how in ({"writer": "w"}, {"writer": "w", "batch": -1}):
            assert (await commit(place, "b", parts, **how)).json["field"] == "batch", how
        assert (await commit(place, "b", [{**parts[0], "id": "../../plant.db"}])).error == (400, "ProtocolError")
        assert (await commit(place, "b", [{**parts[0], "more": 1}])).error == (400, "ProtocolError")
        assert "named twice" in (await commit(place, "b", parts * 2)).json["message"]
        wrong = await place.ask("PUT", "/batches/b/1", b"[]", {"content-type": "application/json"})
        assert wrong.error == (415, "ProtocolError")
        assert await stored(place) == []


async def test_every_type_needs_the_right_to_publish_it(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    secret, token = tokens.add("ann", ["publish:a."])
    blind = tokens.add("bob", ["subscribe:*"])[0]
    async with served(tokens=tokens) as place:
        mixed = [event("1", type="a.x"), event("2", type="b.x")]
        answer = await put(place, "b", "1", mixed, **bearer(secret))
        assert answer.error == (403, "ForbiddenError") and "publish:b.x" in answer.json["message"]
        assert (await put(place, "b", "1", mixed[:1], **bearer(blind))).error == (403, "ForbiddenError")
        assert place.server.http.staged._bytes.total() == 0
        parts = await staged_as(place, "b", {"1": mixed[:1]}, **bearer(secret))
        # Another sees nothing of it, and drops nothing.
        other = tokens.add("other", ["publish:a."])[0]
        assert (await commit(place, "b", parts, headers=bearer(other))).error == (503, "JournalError")
        assert (await place.ask("DELETE", "/batches/b", headers=bearer(other))).status == 204
        for method in ("POST", "DELETE"):
            answer = await place.ask(method, "/batches/b", {"parts": parts}, headers=bearer(blind))
            assert answer.error == (403, "ForbiddenError")
        # What it may was changed between the two.
        less = tokens.add("ann", ["publish:c."])[0]
        tokens.revoke(token.id)
        place.server.gate.look()
        assert (await commit(place, "b", parts, headers=bearer(secret))).error == (401, "UnauthorizedError")
        assert (await commit(place, "b", parts, headers=bearer(less))).error == (403, "ForbiddenError")
        assert place.bus._node.journal.publisher(1) == "" and not [
            each for block in place.bus._node.journal.blocks() for each in block.events() if each.type == "a.x"
        ]


async def test_numbers_are_ones_own(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    secrets = [tokens.add(name, ["publish:*", "subscribe:*"])[0] for name in ("ann", "bob")]
    async with served(tokens=tokens) as place:
        for number, secret in enumerate(secrets):
            parts = await staged_as(place, "b", {"1": numbered(2, 1 + 10 * number)}, **bearer(secret))
            answer = await commit(place, "b", parts, headers=bearer(secret), writer="w", batch=0)
            assert answer.json == {"events": 2}
        found = (await place.ask("GET", "/events", headers=bearer(secrets[0]))).body.splitlines()
        assert [json.loads(line)["id"] for line in found] == ["1", "2", "11", "12"]
        assert [place.bus._node.journal.publisher(offset) for offset in (1, 3)] == ["ann", "bob"]


async def test_a_token_spends_what_it_stages(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    secret = tokens.add("ann", ["publish:*"], limits=Allowance(events=10, event_size=100))[0]
    clock = place_clock()
    async with served(tokens=tokens, clock=clock) as place:
        large = await put(place, "b", "1", [event("1", data="x" * 200)], **bearer(secret))
        assert large.error == (400, "EventError") and large.json["field"] == "data"
        clock.advance(10)
        assert (await put(place, "b", "1", numbered(50), **bearer(secret))).status == 201
        answer = await put(place, "b", "2", numbered(1), **bearer(secret))
        assert answer.error == (429, "OverloadError") and answer.headers["retry-after"] == "1"


def place_clock() -> Any:
    from tests.helpers import testing

    return testing.ManualClock()


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with served(f"file:{tmp_path}/plant.db") as place:
        kept = place.server.http.staged
        kept.most_each = 1_000
        assert (await put(place, "a", "1", numbered(5))).status == 201
        for _ in range(5):  # in its own place
            assert (await put(place, "a", "1", numbered(5))).status == 201
        answer = await put(place, "a", "2", numbered(20))
        assert answer.error == (429, "OverloadError") and answer.json["field"] == "parts"
        await place.ask("DELETE", "/batches/a")
        assert (await put(place, "a", "2", numbered(5))).status == 201
        monkeypatch.setattr(staged, "MOST_PARTS", 1)
        assert (await put(place, "a", "3", numbered(1))).error == (429, "OverloadError")
        monkeypatch.setattr(staged, "MOST_BATCHES", 1)
        answer = await place.ask("PUT", "/batches/other")
        assert answer.error == (429, "OverloadError") and answer.json["field"] == "name"
        assert (await place.ask("PUT", "/batches/a")).status == 204


async def test_what_nobody_came_back_for_goes_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(f"file:{tmp_path}/plant.db") as place:
        await staged_as(place, "old", {"1": numbered(3)})
        monkeypatch.setattr(staged, "_DAY", -1)
        await place.ask("DELETE", "/batches/other")
        assert list((tmp_path / "plant.db.batches").glob("*/*")) == []
        assert place.server.http.staged._bytes.total() == 0

"""`GET /history` and `GET /filters/…`: what the journal counts is what they say, for whoever may know it."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.behaviour.test_archived_past import archive, story
from tests.helpers import START, event, numbered, soon, testing
from tests.http.support import Place, served
from tests.http.test_access import bearer, store
from tocsin.model import time_text


async def asked(place: Place, path: str, secret: str = "", **query: Any) -> Any:
    """What is answered, which must be 200."""
    named = {name.rstrip("_"): each for name, each in query.items()}
    answer = await place.ask("GET", f"{path}?{urlencode(named)}", headers=bearer(secret) if secret else {})
    assert answer.status == 200, answer.body
    return answer.json


def at(seconds: float) -> str:
    return time_text(START.replace(second=int(seconds)))


async def ticking(place: Place, clock: Any, count: int = 10) -> None:
    """One event a second, from START on, `n` from 1; and some records of the node's own."""
    for each in numbered(count):
        await place.bus.publish(each)
        await place.bus.advertise(f"n = {each.id}")
        clock.advance(1)


async def test_history_counts_by_time() -> None:
    clock = testing.ManualClock()
    async with served(clock=clock) as place:
        await ticking(place, clock)
        found = await asked(place, "/history", buckets=5)
        assert found == {
            "from": at(0), "to": at(10), "seconds": 2.000001, "counts": [3, 2, 2, 2, 1], "matched": None,
            "complete": True, "first_offset": 1, "last_offset": place.server.node.head, "oldest": at(0),
        }  # fmt: skip
        span = {"from_": at(2), "to": time_text(START.replace(second=5, microsecond=999_999))}
        found = await asked(place, "/history", **span, buckets=4, filter="n % 2 = 0")
        assert (found["counts"], found["matched"]) == ([1, 1, 1, 1], [0, 1, 0, 1])
        assert (found["seconds"], found["from"]) == (1.0, at(2))
        early = await asked(place, "/history", from_="2025-12-31T23:59:50Z", to=at(9), buckets=2)
        assert early["counts"] == [0, 10] and early["from"] == "2025-12-31T23:59:50Z"
        offset = json.loads((await place.get("/events?filter=n%20%3D%204")).body)["offset"]
        later = await asked(place, "/history", from_=offset, buckets=1)
        assert (later["counts"], later["from"], later["first_offset"]) == ([7], at(3), offset)


async def test_an_empty_journal_has_a_history() -> None:
    async with served() as place:
        found = await asked(place, "/history", buckets=3)
        assert (found["counts"], found["oldest"], found["complete"]) == ([0, 0, 0], None, True)
        tried = await asked(place, "/filters/test", filter="TRUE")
        assert (tried["matched"], tried["looked"], tried["examples"], tried["first"]) == (0, 0, [], None)


async def test_would_this_have_matched() -> None:
    clock = testing.ManualClock()
    async with served(clock=clock) as place:
        await ticking(place, clock)
        found = await asked(place, "/filters/test", filter="n>3", past="5s", limit=2)
        examples = found.pop("examples")
        assert [each["data"]["n"] for each in examples] == [10, 9] and examples[0].keys() >= {"offset", "arrived"}
        assert found == {
            "filter": "n > 3", "matched": 5, "looked": 5, "from": at(5), "to": at(10), "first": at(5), "last": at(9),
            "complete": True,
        }  # fmt: skip
        by_default = await asked(place, "/filters/test", filter="n > 3")
        assert (by_default["matched"], by_default["looked"], by_default["to"]) == (7, 10, at(10))
        assert by_default["from"] == time_text(START.replace(year=2025, month=12, day=31, hour=23, second=10))
        newest = await asked(place, "/filters/test", filter="n % 2 = 1", past="2", limit=0)
        assert (newest["matched"], newest["first"], newest["last"], newest["examples"]) == (2, at(6), at(8), [])
        since = await asked(place, "/filters/test", filter="TRUE", past=f"since:{at(8)}")
        assert (since["matched"], since["from"]) == (2, at(8))


async def test_what_is_retained_has_neither_expired_nor_been_cancelled() -> None:
    clock = testing.ManualClock()
    async with served(clock=clock) as place:
        await place.bus.publish_many([event("short", ttl=5), event("long", ttl=50), event("gone", cancel="any")])
        await place.bus.cancel("gone", "plant")
        clock.advance(10)
        found = await asked(place, "/filters/test", filter="TRUE", past="retained")
        assert ([each["id"] for each in found["examples"]], found["looked"]) == (["long"], 3)


async def test_filters_are_checked_where_they_are_wrong() -> None:
    async with served() as place:
        assert await asked(place, "/filters/check", filter="temp>80  and x='a'") == {"filter": "temp > 80 AND x = 'a'"}
        for path in ("/filters/check", "/filters/test", "/history"):
            answer = await place.get(f"{path}?{urlencode({'filter': 'value > AND'})}")
            assert answer.error == (400, "FilterError"), path
            assert answer.json["position"] == 8
        assert (await place.get("/filters/check")).error == (400, "ProtocolError")
        for query in ("buckets=0", "buckets=1001", "buckets=x", "from=x", "to=-1", "past=1h"):
            assert (await place.get(f"/history?{query}")).error == (400, "ProtocolError"), query
        for query in ("past=x", "past=0s", "limit=101", "x=1"):
            assert (await place.get(f"/filters/test?filter=TRUE&{query}")).status == 400, query


async def test_who_has_no_time_says_how_far_it_came() -> None:
    """Of stretches of time that were not looked at nothing is said, rather than 0."""
    async with served(clock=(clock := testing.ManualClock())) as place:
        for second in range(4):
            await place.bus.publish_many(numbered(5_000, 5_000 * second))
            clock.advance(1)
        looks = iter([0.0, 0.0, 99.0])
        place.server.http.now = lambda: next(looks)
        found = await asked(place, "/history", buckets=4, to=at(3), filter="n % 2 = 0")
        assert (found["counts"], found["matched"]) == ([None, None, 5_000, 5_000], [None, None, 2_500, 2_500])
        assert not found["complete"]
        looks = iter([0.0, 0.0, 99.0])
        tried = await asked(place, "/filters/test", filter="n % 2 = 0", limit=1)
        assert (tried["matched"], tried["looked"], tried["complete"], tried["from"]) == (5_000, 10_000, False, at(2))


async def test_what_may_not_be_seen_is_not_counted(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    plain = tokens.add("ann", ["subscribe:a."])[0]
    cleared = tokens.add("eve", ["subscribe:*"], clearance="secret")[0]
    blind = tokens.add("bob", ["publish:*", "metrics"])[0]
    async with served(tokens=tokens) as place:
        await place.bus.publish_many(
            [
                *(event(f"a{n}", type="a.x", data={"n": n}) for n in range(3)),
                *(event(f"b{n}", type="b.x", data={"n": n}) for n in range(4)),
                event("hidden", type="a.x", classification="secret", data={"n": 1}),
            ]
        )
        for secret, count, ones in ((plain, 3, ["a1"]), (cleared, 8, ["hidden", "b1", "a1"])):
            history = await asked(place, "/history", secret, buckets=1, filter="n = 1")
            assert (history["counts"], history["matched"]) == ([count], [len(ones)])
            assert sum((await asked(place, "/history", secret, buckets=7))["counts"]) == count
            tried = await asked(place, "/filters/test", secret, filter="n = 1")
            assert (tried["looked"], [each["id"] for each in tried["examples"]]) == (count, ones)
            everything = await asked(place, "/filters/test", secret, filter="TRUE OR type = 'tocsin.token'")
            assert everything["matched"] == count
        for path in ("/history", "/filters/test?filter=TRUE"):
            assert (await place.ask("GET", path, headers=bearer(blind))).error == (403, "ForbiddenError")
        assert (await place.ask("GET", "/filters/check?filter=TRUE", headers=bearer(blind))).status == 200


@pytest.mark.parametrize("path", ["/history", "/filters/test?filter=n%20%3E%200"])
async def test_looks_wait_for_their_turn(path: str) -> None:
    async with served() as place:
        front = place.server.http
        await front.looks.acquire()
        await front.looks.acquire()
        front.turn = 0.01
        assert (await place.get(path)).error == (429, "OverloadError")
        front.looks.release()
        assert (await place.get(path)).status == 200
        front.looks.release()
        assert front.looks._value == 2


@pytest.mark.parametrize("path", ["/history", "/filters/test?filter=n%20%3E%200"])
async def test_the_node_goes_on_while_somebody_looks_back(path: str) -> None:
    async with served() as place:
        await place.bus.publish_many(numbered(10))
        looking, go_on = threading.Event(), threading.Event()

        def now() -> float:
            looking.set()
            go_on.wait(10)
            return 0.0

        place.server.http.now = now
        asking = asyncio.create_task(place.get(path))
        try:
            await asyncio.to_thread(looking.wait, 10)
            assert (await soon(place.bus.publish(event("meanwhile")))).offset == 11
            assert (await soon(place.get("/figures"))).status == 200
            assert not asking.done()
        finally:
            go_on.set()
        assert (await soon(asking)).status == 200


async def test_what_is_in_the_lake_alone_counts_too(tmp_path: Path) -> None:
    clock = testing.ManualClock()
    async with served(f"file:{tmp_path / 'plant.db'}", clock=clock, lake=tmp_path / "lake") as place:
        await story(place.bus, clock)
        before = await asked(place, "/history", buckets=7, filter="n % 2 = 0")
        tried = await asked(place, "/filters/test", filter="line = 'a' AND n < 20", past="2d", limit=100)
        assert (sum(before["counts"]), sum(before["matched"]), tried["matched"]) == (40, 20, 6)
        archive(tmp_path)
        await place.bus.trim(larger_than=1, archived=True)
        assert place.server.node.journal.kept > 10  # a live alert keeps the rest
        assert await asked(place, "/history", buckets=7, filter="n % 2 = 0") == before
        assert await asked(place, "/filters/test", filter="line = 'a' AND n < 20", past="2d", limit=100) == tried

"""Routes that are one verb of the bus each, the page, health, and what is at no route."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.helpers import START, event, heard, numbered, soon, testing
from tests.http.support import Place, cloud, served, until
from tocsin.model import time_text

JSON = {"content-type": "application/json"}


async def test_status_and_cancel() -> None:
    async with served() as place:
        await place.publish(cloud("a/b c"), cloud("x", source="one"), cloud("x", source="two"))
        sub = await place.bus.subscribe("TRUE", consumer="ops", past=10)
        assert (await place.get("/events/a%2Fb%20c/status")).json["pending"] == ["ops"]
        await heard(place.bus, sub)
        status = (await place.get("/events/a/b%20c/status")).json
        assert status == {
            "id": "a/b c",
            "source": "stranger",
            "offset": 1,
            "state": "settled",
            "matched": ["ops"],
            "delivered": ["ops"],
            "acked": ["ops"],
            "pending": [],
        }
        assert (await place.get("/events/x/status")).error == (409, "UnknownEventError")
        assert (await place.get("/events/x/status?source=two")).json["offset"] == 3
        assert (await place.get("/events/y/status")).error == (404, "UnknownEventError")
        assert (await place.ask("DELETE", "/events/x?source=two")).status == 204
        assert (await place.get("/events/x/status?source=two")).json["state"] == "cancelled"
        assert (await place.ask("DELETE", "/events/y")).error == (404, "UnknownEventError")


async def test_alerts() -> None:
    async with served() as place:
        await place.bus.subscribe("TRUE", consumer="ops")
        await place.publish(cloud("a", ttl=60, priority=9), cloud("b"))
        [alert] = (await place.get("/alerts")).json
        assert (alert["event"]["id"], alert["event"]["ttl"], alert["acked"], alert["pending"]) == ("a", 60, [], ["ops"])


async def test_the_most_urgent_alerts() -> None:
    clock = testing.ManualClock()
    async with served(clock=clock) as place:
        await place.publish(*(cloud(f"{n}", ttl=10 * n, priority=n % 3 + 1) for n in range(1, 200)), cloud("x"))
        clock.advance(20)  # the first two expire
        everything = await place.get("/alerts")
        assert [each["event"]["id"] for each in everything.json] == [f"{n}" for n in range(3, 200)]
        assert everything.json[0]["expires"] == time_text(START.replace(second=30))
        urgent = await place.get("/alerts?limit=3")
        assert [each["event"]["id"] for each in urgent.json] == ["197", "194", "191"]
        assert urgent.headers["tocsin-total"] == everything.headers["tocsin-total"] == "197"
        assert (await place.ask("DELETE", "/events/197")).status == 204
        assert (await place.get("/alerts?limit=1")).json[0]["event"]["id"] == "194"
        assert (await place.get("/alerts?limit=0")).error == (400, "ProtocolError")


async def test_consumers() -> None:
    async with served() as place:
        await place.bus.subscribe("n > 1", consumer="ops")
        [info] = (await place.get("/consumers")).json
        assert (info["name"], info["open"], info["lag"]) == ("ops", True, 0)
        assert info["subscriptions"][0][1] == "n > 1"
        assert (info["max_in_flight"], info["ack_wait"]) == (256, 30)
        assert (await place.ask("DELETE", "/consumers/ops")).status == 204
        assert (await place.get("/consumers")).json == []
        assert (await place.ask("DELETE", "/consumers/ops")).error == (404, "ConsumerError")


async def test_definitions() -> None:
    async with served() as place:
        said = {"text": "SEQ([type = 'a'], [type = 'b'])", "context": "chronicle"}
        put = await place.ask("PUT", "/definitions/both", said, JSON)
        assert (put.status, put.json["name"], put.json["context"]) == (200, "both", "chronicle")
        await place.publish(cloud("1", type="a"), cloud("2", type="b"))
        await place.server.node.settled()
        [found] = (await place.get("/definitions")).json
        assert (found["name"], found["detected"]) == ("both", 1)
        assert (await place.ask("PUT", "/definitions/both", said, JSON)).status == 200, "the same again"
        other = {"text": "SEQ([type = 'b'], [type = 'a'])"}
        assert (await place.ask("PUT", "/definitions/both", other, JSON)).error == (409, "DefinitionError")
        assert (await place.ask("PUT", "/definitions/both", {**other, "replace": True}, JSON)).status == 200
        for bad in (b"", b"[]", {"text": 7}, {"text": "[type = 'a']", "colour": "red"}):
            assert (await place.ask("PUT", "/definitions/x", bad, JSON)).error == (400, "ProtocolError")
        wrong = await place.ask("PUT", "/definitions/x", {"text": "SEQ([type = 'a'"}, JSON)
        assert wrong.error == (400, "DefinitionError") and wrong.json["position"] is not None
        assert (await place.ask("DELETE", "/definitions/both")).status == 204
        assert (await place.ask("DELETE", "/definitions/both")).error == (404, "DefinitionError")


async def test_requests() -> None:
    async def double(request: Any) -> Any:
        if request.data is None:
            raise ValueError("nothing to double")
        return {"twice": request.data * 2, "by": request.sender}

    morning = asyncio.Event()
    async with served() as place, place.bus.serve("params/m7", double), sleeper(place, morning):
        answer = await place.ask("POST", "/requests/params/m7", 21, {**JSON, "Tocsin-Name": "me"})
        assert (answer.status, answer.json) == (200, {"twice": 42, "by": "me"})
        answer = await place.ask("POST", "/requests/params%2Fm7?policy=all&timeout=5", 1)
        assert answer.json == [{"twice": 2, "by": "http"}]
        assert (await place.ask("POST", "/requests/params/m7")).error == (502, "RequestFailed")
        assert (await place.ask("POST", "/requests/params/m8")).error == (404, "NoServer")
        assert (await place.ask("POST", "/requests/slow?timeout=0.05")).error == (504, "RequestTimeout")
        assert (await place.ask("POST", "/requests/slow?timeout=0")).error == (400, "PeerError")
        assert (await place.ask("POST", "/requests/slow?policy=two")).error == (400, "ProtocolError")
        assert (await place.ask("POST", "/requests/params/m7", b"{")).error == (400, "ProtocolError")
        assert (await place.ask("POST", "/requests/params/m7", b"[" * 50_000)).error == (400, "ProtocolError")
        await leaves(place)
        morning.set()


def sleeper(place: Place, morning: asyncio.Event) -> Any:
    """Somebody who answers late."""

    async def sleep(request: Any) -> Any:
        await soon(morning.wait())

    return place.bus.serve("slow", sleep)


async def leaves(place: Place) -> None:
    """Who asks and leaves is not waited for."""
    wire = await place.open()
    wire.send("POST", "/requests/slow", {"content-length": "0"})
    await until(lambda: place.server.http.requests)
    wire.writer.transport.abort()
    await until(lambda: not place.server.http.requests)
    assert place.server.http.counts["/requests/{resource:path}", "POST", 499] == 1


async def test_request_that_is_under_way_when_the_node_drains_is_told() -> None:
    morning = asyncio.Event()
    async with served() as place, sleeper(place, morning):
        asking = asyncio.create_task(place.ask("POST", "/requests/slow"))
        await until(lambda: place.server.http.requests)
        await soon(place.server.drain())
        assert (await asking).error == (503, "NetworkError")
        morning.set()


async def test_page_health_and_nowhere() -> None:
    async with served() as place:
        await place.bus.publish_many(numbered(3))
        page = await place.get("/")
        assert page.headers["content-type"].startswith("text/html") and b"openapi" in page.body
        assert (await place.get("/health")).json == {"status": "ok", "head": 3, "sessions": 0}
        assert (await place.get("/nowhere")).error == (404, "ProtocolError")
        assert (await place.get("/events/")).error[0] in (404, 405)
        assert (await place.get("/events/x")).json["message"] == "GET is not for /events/{id}"
        answer = await place.ask("PATCH", "/events")
        assert answer.error == (405, "ProtocolError") and answer.headers["allow"] == "GET, HEAD, POST"
        assert (await place.ask("HEAD", "/alerts")).status == 200
        assert (await place.get("/alerts?x=1")).error == (400, "ProtocolError")


async def test_connection_is_kept_for_the_next_request() -> None:
    async with served() as place:
        wire = await place.open()
        for _ in range(3):
            wire.send("GET", "/health", {})
            assert (await soon(wire.answer())).status == 200
        for _ in range(3):
            wire.send("GET", "/health", {})  # one behind the other
        assert [(await soon(wire.answer())).status for _ in range(3)] == [200] * 3


async def test_defect_is_told_as_one_and_nothing_else_is(caplog: Any) -> None:
    async with served() as place:
        await place.bus.publish(event("a"))
        place.server.node.mailboxes["broken"] = None  # type: ignore[assignment]
        answer = await place.get("/consumers")
        assert answer.error == (500, "TocsinError") and "defect" in answer.json["message"]
        assert "AttributeError" in caplog.text, "it is written down"
        del place.server.node.mailboxes["broken"]
        assert (await place.get("/consumers")).status == 200

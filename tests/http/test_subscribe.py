"""`GET /subscribe`: Server-Sent Events. Writing settles, Last-Event-ID resumes, who does not read hurts nobody."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import event, heard, ids, numbered, soon, take
from tests.http.support import Place, listening, served, until
from tests.security.test_doors import certificate, needs_openssl


def consumer(place: Place, name: str) -> Any:
    return place.server.node.mailboxes.get(name)


async def test_events_as_they_come() -> None:
    async with served() as place, listening(place, "filter=n%20%3E%201") as stream:
        await place.bus.publish_many(numbered(3))
        place_of_first, first = await stream.next() or ("", {})
        assert (place_of_first, first["id"], first["offset"], first["data"]) == ("2", "2", 2, {"n": 2})
        assert first["specversion"] == "1.0" and first["arrived"]
        assert await stream.take(1) == ["3"]
        assert stream.comments == ["tocsin"] and stream.retry == "1000"


@needs_openssl
async def test_the_same_through_tls(tmp_path: Path) -> None:
    """Its transport has habits of its own, about when it has room."""
    async with served(tls=certificate(tmp_path)) as place, listening(place, "consumer=ops&order=journal") as stream:
        await place.bus.publish_many(numbered(300, attributes={"text": "x" * 2000}))
        assert await stream.take(300) == [str(n) for n in range(1, 301)]
        await until(lambda: consumer(place, "ops").counters["settled"] == 300)
        assert len((await place.get("/events")).body.splitlines()) == 300


async def test_every_form_of_past() -> None:
    async with served() as place:
        await place.bus.publish_many(numbered(5))
        everything = ["1", "2", "3", "4", "5"]
        for past, found in [
            ("2", ["4", "5"]),
            ("5m", everything),
            ("2,5m", ["4", "5"]),
            ("since:4", ["4", "5"]),
            ("since:2026-01-01T00:00:00%2B01:00", everything),
            ("since:2026-01-01T00:00:00+01:00", everything),
            ("retained", everything),
        ]:
            async with listening(place, f"past={past}") as stream:
                assert await stream.take(len(found)) == found, past


async def test_writing_settles_and_a_durable_consumer_goes_on() -> None:
    async with served() as place:
        async with listening(place, "consumer=ops&order=journal") as stream:
            await place.bus.publish_many(numbered(3))
            assert await stream.take(3) == ["1", "2", "3"]
            await until(lambda: not consumer(place, "ops").flying)
        assert (await place.bus.status("3")).acked == ["ops"]
        await until(lambda: not place.server.http.streams)
        await place.bus.publish_many(numbered(2, first=4))
        async with listening(place, "consumer=ops", last_event_id="1") as stream:  # what is settled counts, not this
            assert await stream.take(2) == ["4", "5"]


async def test_stream_that_ends_while_it_cannot_write_gives_everything_back(file_url: str) -> None:
    """A client takes nothing: what was not written comes again, what was written does not."""
    async with served(file_url, stuck=0.5) as place:
        wire = await place.open()
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        wire.send("GET", "/subscribe?consumer=lazy&order=journal&past=retained", {})
        other = await place.bus.subscribe("TRUE", consumer="quick", auto_ack=True)
        await place.bus.publish_many(numbered(20))
        await until(lambda: consumer(place, "lazy") and consumer(place, "lazy").counters["settled"] == 20)
        for part in range(1, 20):
            await place.bus.publish_many(numbered(20, first=1 + 20 * part, attributes={"text": "x" * 40_000}))
        assert len(await heard(place.bus, other)) == 400, "nobody waits for who does not read"
        await until(lambda: place.server.http.counts["/subscribe", "GET", 200] == 1)
        assert not place.server.http.streams
        mailbox = consumer(place, "lazy")
        assert not mailbox.flying
        settled = mailbox.counters["settled"]
        again = await take(place.bus, await place.bus.subscribe("TRUE", consumer="lazy", order="journal"))
        assert 20 <= settled < 400
        assert [each.offset for each in again][0] == settled + 1


async def test_stream_that_nobody_takes_is_ended_also_where_tcp_would_wait(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)  # not every system has it
    async with served(file_url, stuck=0.5) as place:
        wire = await place.open()
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        wire.send("GET", "/subscribe?consumer=lazy&past=retained", {})
        await until(lambda: place.server.http.streams)
        await place.bus.publish_many([event(str(n), data="x" * 60_000) for n in range(200)])
        await until(lambda: not place.server.http.streams)
        assert consumer(place, "lazy").counters["settled"] < 200


async def test_last_event_id_resumes_behind_it_without_a_consumer() -> None:
    async with served() as place:
        await place.bus.publish_many([*numbered(3), event("urgent", priority=9)])
        async with listening(place, last_event_id="2") as stream:
            assert await stream.take(2) == ["3", "urgent"], "in journal order, so that nothing lies behind"
        async with listening(place, "last_event_id=3&past=10") as stream:
            assert await stream.take(1) == ["urgent"]
        async with listening(place, "past=10&order=priority") as stream:
            assert await stream.take(4) == ["urgent", "1", "2", "3"]


async def test_who_is_cut_off_before_the_first_event_goes_on_from_there() -> None:
    async with served() as place:
        await place.bus.publish_many(numbered(3))
        async with listening(place) as stream:
            await stream.begin()
            assert stream.place == "3", "told before anything has come"
        await place.bus.publish(event("late"))
        async with listening(place, last_event_id=stream.place) as stream:
            assert await stream.take(1) == ["late"]
        async with listening(place, "consumer=ops") as stream:
            await stream.begin()
            assert stream.place == "", "the node knows where a consumer is"


async def test_gap_since_last_event_id_is_told(file_url: str) -> None:
    async with served(file_url) as place:
        for part in range(3):
            await place.bus.publish_many(numbered(10, first=1 + 10 * part))
        kept = await place.bus.trim(larger_than=0, hard=True)
        await place.bus.publish(event("new"))
        async with listening(place, last_event_id="5") as stream:
            offset, notice = await stream.next() or ("", {})
            assert (offset, notice["type"], notice["data"]) == (None, "tocsin.gap", {"first": 6, "last": kept - 1})
            while await stream.take(1) != ["new"]:
                pass


async def test_cancelled_event_is_told_without_an_id() -> None:
    async with served() as place, listening(place, "consumer=ops") as stream:
        await place.bus.publish(event("a"))
        assert await stream.take(1) == ["a"]
        await until(lambda: not consumer(place, "ops").flying)
        await place.bus.cancel("a")
        offset, notice = await stream.next() or ("", {})
        assert (offset, notice["type"], notice["correlationid"]) == (None, "tocsin.cancelled", "a")


async def test_options_are_those_of_a_consumer() -> None:
    async with served() as place:
        query = "consumer=ops&order=journal&max_in_flight=7&ack_wait=2.5&max_deliver=3&fair=0.5&durable=false&system=1"
        async with listening(place, query):
            options = consumer(place, "ops").options
            assert (options.order, options.max_in_flight, options.ack_wait, options.max_deliver) == (
                "journal",
                7,
                2.5,
                3,
            )
            assert (options.fair, options.durable, options.auto_ack) == (0.5, False, False)
        await until(lambda: consumer(place, "ops") is None)


async def test_members_of_a_group_share() -> None:
    group = [f"consumer={name}&group=g" for name in "ab"]
    async with served() as place, listening(place, group[0]) as one, listening(place, group[1]) as two:
        await place.bus.publish_many(numbered(400, attributes={"text": "x" * 2000}))
        got: list[str] = []

        async def hear(stream: Any) -> None:
            while len(got) < 400:
                got.extend(await stream.take(1))

        tasks = [asyncio.create_task(hear(stream)) for stream in (one, two)]
        await soon(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(got, key=int) == [str(n) for n in range(1, 401)]


async def test_replay_comes_again() -> None:
    async with served() as place:
        await place.bus.publish_many(numbered(2))
        async with listening(place, "consumer=ops&past=10") as stream:
            assert await stream.take(2) == ["1", "2"]
            await until(lambda: consumer(place, "ops").counters["settled"] == 2)
        await until(lambda: not place.server.http.streams)
        async with listening(place, "consumer=ops&past=10&replay=true") as stream:
            assert await stream.take(2) == ["1", "2"]


async def test_keep_alives_are_comments() -> None:
    async with served(beat=0.05) as place, listening(place) as stream:
        waiting = asyncio.create_task(stream.next())
        await until(lambda: stream.comments.count("beat") >= 2)
        await place.bus.publish(event("a"))
        assert (await soon(waiting) or ("", {}))[1]["id"] == "a"


async def test_client_that_leaves_is_let_go_at_once() -> None:
    async with served() as place:
        async with listening(place, "consumer=ops"):
            assert [each.open for each in await place.bus.consumers()] == [True]
        await until(lambda: not place.server.http.streams)
        assert [each.open for each in await place.bus.consumers()] == [False]
        assert not place.server.http.requests


async def test_forgotten_consumer_ends_the_stream() -> None:
    async with served() as place, listening(place, "consumer=ops") as stream:
        assert (await place.ask("DELETE", "/consumers/ops")).status == 204
        assert await stream.rest() == [] and stream.comments[-1] == "closed"


async def test_drain_ends_streams_cleanly_and_refuses_others() -> None:
    async with served() as place, listening(place, "consumer=ops") as stream:
        await place.bus.publish(event("a"))
        assert await stream.take(1) == ["a"]
        await soon(place.server.drain())
        assert await stream.rest() == [] and stream.comments[-1] == "draining"
        assert (await place.get("/subscribe")).error == (503, "NetworkError")
        assert (await place.get("/events")).headers["retry-after"] == "1"
        health = await place.get("/health")
        assert (health.status, health.json["status"]) == (503, "draining")


async def test_bad_questions() -> None:
    async with served() as place:
        await place.bus.subscribe("TRUE", consumer="ops", order="journal")
        for query, error, field in [
            ("filter=n+%3E", (400, "FilterError"), None),
            ("past=never", (400, "BoundError"), "past"),
            ("past=0", (400, "BoundError"), "past"),
            ("last_event_id=x", (400, "BoundError"), "last_event_id"),
            ("order=random", (400, "ProtocolError"), "order"),
            ("max_in_flight=0", (400, "ProtocolError"), "max_in_flight"),
            ("auto_ack=true", (400, "ProtocolError"), "auto_ack"),
            ("ack_wait=0", (400, "ConsumerError"), "ack_wait"),
            ("consumer=a/b", (400, "ConsumerError"), "consumer"),
            ("consumer=ops&order=priority", (409, "ConsumerError"), "order"),
            ("consumer=ops&group=g", (409, "ConsumerError"), "group"),
        ]:
            answer = await place.get(f"/subscribe?{query}")
            assert (answer.error, answer.json["field"]) == (error, field), query
        place.server.http.most_streams = 1
        async with listening(place):
            assert (await place.get("/subscribe")).error == (429, "OverloadError")
        assert (await place.ask("HEAD", "/subscribe")).status == 200


@pytest.mark.parametrize("count", [5000])
async def test_many_events_come_in_order_and_once(file_url: str, count: int) -> None:
    async with served(file_url) as place:
        await place.bus.publish_many(numbered(count))
        async with listening(place, "consumer=ops&order=journal&past=retained") as stream:
            assert await stream.take(count) == [str(n) for n in range(1, count + 1)]
            await until(lambda: consumer(place, "ops").counters["settled"] == count)
        assert ids(await take(place.bus, await place.bus.subscribe("TRUE", consumer="ops", order="journal"))) == []

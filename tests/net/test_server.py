"""A server on a real socket: strangers with a raw WebSocket, limits, sessions of one name, lost connections, drain."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
from websockets.asyncio.client import connect as ws_connect
from websockets.exceptions import ConnectionClosed

import tocsin
from tests.helpers import ack_all, event, heard, ids, numbered, soon, take, testing
from tocsin.errors import ConnectionLostError, NetworkError, ReplacedError
from tocsin.net import serve
from tocsin.net.protocol import Limits
from tocsin.net.server import _listening

CLOUD = {"specversion": "1.0", "id": "1", "source": "stranger", "type": "greeting", "data": {"n": 1}}


class Raw:
    """A stranger: JSON by hand over a WebSocket."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    async def say(self, **frame: Any) -> None:
        await self.socket.send(json.dumps(frame))

    async def hear(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await soon(self.socket.recv()))
        return frame

    async def ask(self, **frame: Any) -> dict[str, Any]:
        await self.say(**frame)
        while (answer := await self.hear())["op"] not in ("done", "failed", "welcome", "pong"):
            pass
        return answer

    async def end(self) -> int:
        """The code with which the server ends it."""
        try:
            while True:
                await soon(self.socket.recv())
        except ConnectionClosed:
            return int(self.socket.close_code)


@asynccontextmanager
async def stranger(url: str, name: str | None = "stranger") -> AsyncIterator[Raw]:
    how: Any = {"subprotocols": ["tocsin.1.json"], "compression": None, "max_size": None, "close_timeout": 1}
    async with ws_connect(url + "/bus", **how) as socket:
        raw = Raw(socket)
        if name is not None:
            assert (await raw.ask(op="hello", version=1, name=name))["op"] == "welcome"
        yield raw


@asynccontextmanager
async def served(url: str = "memory:", **limits: Any) -> AsyncIterator[tuple[Any, Any]]:
    """An embedded bus and the server of its node."""
    async with testing.node(url) as bus, serve(bus, limits=Limits(**limits)) as server:
        yield bus, server


async def test_stranger_publishes_subscribes_and_settles() -> None:
    async with served() as (bus, server), stranger(server.url) as raw:
        opened = await raw.ask(op="subscribe", n=1, sub=1, filter="n > 0", consumer="ops", credit=1)
        assert opened["value"]["consumer"] == "ops"
        await raw.say(op="publish", n=2, events=[CLOUD, {**CLOUD, "id": "2"}])
        delivered, done = await raw.hear(), await raw.hear()
        [[number, attempt, flags, offset, _, content]] = delivered["items"]
        assert (delivered["op"], number, attempt, flags, offset, content["id"]) == ("deliver", 1, 1, 0, 1, "1")
        assert done == {"op": "done", "re": 2, "value": [["1", 1], ["2", 2]]}
        assert (await raw.ask(op="settle", n=3, sub=1, ack=[1]))["re"] == 3
        assert (await raw.ask(op="settle", n=4, sub=1, ack=[1]))["op"] == "done", "repeating it changes nothing"
        await raw.say(op="credit", sub=1, n=1)
        assert (await raw.hear())["items"][0][5]["id"] == "2"
        status = (await raw.ask(op="call", n=5, verb="status", args={"id": "1"}))["value"]
        assert (status["state"], status["acked"]) == ("settled", ["ops"])
    assert (await raw.end()) in (1000, 1001, 1005)


async def test_refusal_has_the_error_of_the_bus() -> None:
    async with served() as (_, server), stranger(server.url) as raw:
        refused = await raw.ask(op="subscribe", n=1, sub=1, filter="n >")
        assert (refused["error"]["error"], refused["error"]["position"]) == ("FilterError", 2)
        assert (await raw.ask(op="call", n=2, verb="fly", args={}))["error"]["error"] == "ProtocolError"
        assert (await raw.ask(op="call", n=3, verb="status", args={"wrong": 1}))["error"]["error"] == "ProtocolError"
        assert (await raw.ask(op="call", n=3, verb="trim", args={"older_than": {"seconds": 1e300}}))["op"] == "failed"
        refused = await raw.ask(op="subscribe", n=4, sub=1, filter="TRUE", options={"colour": "red"})
        assert refused["error"]["error"] == "ConsumerError"
        assert (await raw.ask(op="settle", n=5, sub=9, ack=[1]))["error"]["error"] == "DeliveryError"
        assert (await raw.ask(op="publish", n=6, events=[{"id": 7}]))["error"]["error"] == "EventError"
        assert (await raw.ask(op="ping", n=7))["op"] == "pong", "none of this has ended the session"


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (["nonsense"], 4406),
        ([{"op": "publish", "n": 1, "events": []}], 4406),
        ([{"op": "hello", "version": 99}], 4406),
        ([{"op": "hello", "name": ""}], 4406),
        ([{"op": "hello"}, "nonsense"], 4400),
        ([{"op": "hello"}, {"op": "hello"}], 4400),
        ([{"op": "hello"}, {"op": "credit", "sub": 1}], 4400),
        ([{"op": "hello"}, {"op": "fly"}], 4400),
    ],
)
async def test_who_breaks_the_protocol_is_shown_out_and_nobody_else_notices(frames: list[Any], code: int) -> None:
    async with served() as (bus, server), stranger(server.url, "other") as other, stranger(server.url, None) as raw:
        for frame in frames:
            await raw.socket.send(frame if isinstance(frame, str) else json.dumps(frame))
        assert await raw.end() == code
        assert (await other.ask(op="ping", n=1))["op"] == "pong"
        assert (await bus.publish(event("a"))).offset == 1


async def test_limits_are_told_and_kept() -> None:
    limits = {"max_subscriptions": 1, "max_credit": 5, "max_frame": 10_000, "hello": 0.05}
    async with served(**limits) as (_, server):
        async with stranger(server.url, None) as raw:
            assert await raw.end() == 4406, "no hello in time"
        async with stranger(server.url, None) as raw:
            welcome = await raw.ask(op="hello", name="x")
            assert welcome["limits"]["max_credit"] == 5
            assert (await raw.ask(op="subscribe", n=1, sub=1, filter="TRUE", credit=6))["op"] == "failed"
            assert (await raw.ask(op="subscribe", n=1, sub=1, filter="TRUE", credit=5))["op"] == "done"
            assert (await raw.ask(op="subscribe", n=1, sub=2, filter="TRUE"))["error"]["error"] == "OverloadError"
            await raw.say(op="credit", sub=1, n=1)
            assert await raw.end() == 4400
        async with stranger(server.url) as raw:
            await raw.socket.send("x" * 20_000)
            assert await raw.end() in (1009, 4400)


async def test_silent_client_is_gone_and_what_it_had_goes_back() -> None:
    async with served(beat=0.05, silence=0.2) as (bus, server), stranger(server.url) as raw:
        await raw.ask(op="subscribe", n=1, sub=1, filter="TRUE", consumer="ops", credit=9)
        await bus.publish(event("a"))
        assert await raw.end() == 4408
        [again] = await take(bus, await bus.subscribe("TRUE", consumer="ops"))
        assert (again.event.id, again.attempt) == ("a", 2)


async def test_who_does_not_read_holds_up_nobody() -> None:
    async with served(stuck=0.3) as (bus, server), stranger(server.url) as raw:
        raw.socket.transport.pause_reading()
        await raw.say(op="subscribe", n=1, sub=1, filter="TRUE", consumer="lazy", credit=10_000, past="retained")
        other = await bus.subscribe("TRUE", consumer="quick", auto_ack=True)
        for part in range(40):
            await bus.publish_many(numbered(10, first=10 * part, attributes={"text": "x" * 100_000}))
        assert len(await heard(bus, other)) == 400
        [session] = server.sessions
        await soon(session.ended())
        assert [each.open for each in await bus.consumers() if each.name == "lazy"] == [False]


async def test_no_more_is_read_while_too_much_is_open() -> None:
    go, asked = asyncio.Event(), asyncio.Event()

    async def answer(request: Any) -> int:
        asked.set()
        await go.wait()
        return 1

    async with served(max_held=10_000) as (bus, server), stranger(server.url) as raw, bus.serve("slow", answer):
        await raw.say(op="request", n=1, resource="slow", data="x" * 20_000, timeout=30)
        await soon(asked.wait())
        await raw.say(op="ping", n=2)
        async with tocsin.connect(server.url) as other:  # nobody else notices
            await other.publish(event("a"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await raw.socket.recv()
        go.set()
        assert [(await raw.hear())["op"] for _ in range(2)] == ["done", "pong"]


async def test_newer_session_of_a_name_wins_and_the_older_is_told() -> None:
    async with served() as (bus, server), tocsin.connect(server.url, name="line-7") as older:
        sub = await older.subscribe("TRUE", consumer="ops")
        await bus.publish(event("a"))
        [_] = await take_remote(older, sub)
        async with tocsin.connect(server.url, name="line-7") as newer:
            with pytest.raises(ReplacedError):
                await soon(sub.next())
            with pytest.raises(ReplacedError):
                await older.publish(event("b"))
            [again] = await take_remote(newer, await newer.subscribe("TRUE", consumer="ops"))
            assert (again.event.id, again.attempt) == ("a", 2)


async def take_remote(bus: Any, sub: Any) -> list[Any]:
    await bus._ping()
    return list(iter(sub.poll, None))


async def test_lost_connection_comes_back_and_everything_goes_on() -> None:
    async with served() as (bus, server), tocsin.connect(server.url, name="me") as remote:
        sub = await remote.subscribe("TRUE", consumer="ops", max_deliver=2)
        fleeting = await remote.subscribe("TRUE")
        await remote.publish_many(numbered(5))
        await remote._ping()
        one, two = sub.poll(), sub.poll()
        seen = [fleeting.poll(), fleeting.poll()]
        remote._link._wire.abort()
        publishing = asyncio.gather(*(remote.publish(each) for each in numbered(3, first=6)))
        await one.ack()  # of the connection before
        assert [p.offset for p in await soon(publishing)] == [6, 7, 8]
        await two.nak()
        got = await take_remote(remote, sub)
        assert [(d.event.id, d.attempt) for d in got] == [("2", 2), *((str(n), 1) for n in range(3, 9))]
        await asyncio.gather(*(d.ack() for d in got))
        assert (await bus.status("1", "plant")).acked == ["ops"]
        await ack_all([each for each in seen if each is not None])
        assert ids(seen) + ids(await take_remote(remote, fleeting)) == [str(n) for n in range(1, 9)]


async def test_what_was_only_sent_ahead_costs_no_attempt() -> None:
    async with served() as (bus, server):
        async with tocsin.connect(server.url) as remote:
            sub = await remote.subscribe("TRUE", consumer="ops", max_deliver=1, auto_ack=True)
            await bus.publish_many(numbered(3, ttl=1000))
            await remote._ping()
            assert sub.poll().event.id == "1"
            await remote._ping()
            assert (await bus.status("2")).delivered == []
        got = await take(bus, await bus.subscribe("TRUE", consumer="ops"))
        assert [(d.event.id, d.attempt) for d in got] == [("2", 1), ("3", 1)]


async def test_event_that_is_cancelled_in_the_buffer_is_not_handed_out() -> None:
    async with served() as (bus, server), tocsin.connect(server.url) as remote:
        sub = await remote.subscribe("TRUE", consumer="ops")
        await bus.publish_many(numbered(2))
        await remote._ping()
        await bus.cancel("1")
        assert [(d.event.id, d.notice) for d in await take_remote(remote, sub)] == [("2", False)]


async def test_nobody_there_says_so() -> None:
    with pytest.raises(NetworkError, match="is the node up"):
        async with tocsin.connect("ws://127.0.0.1:9"):
            raise AssertionError("connected")


async def test_no_connection_for_too_long_says_so() -> None:
    async with served() as (_, server), tocsin.connect(server.url, patience=0.2) as remote:
        await server.drain()
        with pytest.raises(ConnectionLostError, match="then try again"):
            await remote.publish(event("a"))


async def test_drain_answers_what_was_asked() -> None:
    async with testing.node() as bus:
        async with serve(bus) as server, stranger(server.url) as raw:
            await raw.say(op="publish", n=1, events=[CLOUD])
            await asyncio.wait_for(bus.subscribe("TRUE"), 5)
            await server.drain()
            frames = [await raw.hear() for _ in range(2)]
            assert [each["op"] for each in frames] in (["done", "bye"], ["bye", "done"])
            assert await raw.end() == 1001
        assert (await bus.status("1")).offset == 1, "the node itself goes on"


async def test_it_ends_when_it_is_told_and_not_at_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn looks ten times a second whether it should end, and then whether connections have ended."""
    sleep, waits = asyncio.sleep, []

    async def counted(seconds: float, *result: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"] == "uvicorn.server":
            waits.append(seconds)
        return await sleep(seconds, *result)

    monkeypatch.setattr(asyncio, "sleep", counted)
    async with served() as (_, server):
        left = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
        url = server.url.replace("ws:", "http:") + "/health"
        await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
    with left:
        assert left.recv(1) == b"", "it is closed"
    assert waits == []


async def test_health() -> None:
    async with served() as (bus, server):
        await bus.publish(event("a"))
        url = server.url.replace("ws:", "http:") + "/health"
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
        assert json.loads(answer) == {"status": "ok", "head": 1, "sessions": 0}


async def test_port_that_is_taken_says_so() -> None:
    async with served() as (bus, server):
        with pytest.raises(NetworkError, match="port"):
            async with serve(bus, port=int(server.url.rpartition(":")[2])):
                raise AssertionError("listening")


def test_answers_do_not_wait_for_more_to_send() -> None:
    """asyncio sets TCP_NODELAY on what a socket accepts only if the socket names its protocol."""
    with _listening("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


async def test_a_part_of_ours_that_is_missing_is_no_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tocsin.remote", None)
    with pytest.raises(ImportError, match=r"tocsin\.remote"):
        await tocsin.connect("ws://127.0.0.1:1").__aenter__()
    monkeypatch.setitem(sys.modules, "tocsin.remote", Lacking("tocsin.remote"))
    with pytest.raises(tocsin.TocsinError, match="websockets is not installed") as raised:
        await tocsin.connect("ws://127.0.0.1:1").__aenter__()
    assert raised.value.help == "pip install 'tocsin[server]'"


class Lacking(ModuleType):
    """What `import` meets where an extra is missing."""

    def __getattr__(self, name: str) -> object:
        raise ModuleNotFoundError("No module named 'websockets'", name="websockets")

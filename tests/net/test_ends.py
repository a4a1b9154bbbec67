"""What must not wait for ever: a hello that is none, a session that ends while its client is busy, a hung buffer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.server import serve as ws_serve

import tocsin
from tests.helpers import event, numbered, soon, testing
from tests.net.test_server import CLOUD, served, stranger
from tocsin.errors import NetworkError, ProtocolError
from tocsin.net import serve


async def test_a_server_that_is_no_node_is_told_from_its_first_word() -> None:
    async def garbage(socket: Any) -> None:
        await socket.recv()
        await socket.send(b"\xc1 what is this?")
        await socket.wait_closed()

    async with ws_serve(garbage, "127.0.0.1", 0, subprotocols=["tocsin.1.msgpack"]) as server:  # type: ignore[list-item]
        port = server.sockets[0].getsockname()[1]
        with pytest.raises((ProtocolError, NetworkError)):
            await soon(tocsin.connect(f"ws://127.0.0.1:{port}").__aenter__())


async def test_why_a_server_closes_at_hello_is_told() -> None:
    async def rude(socket: Any) -> None:
        await socket.recv()
        await socket.close(4403, "go away")

    async with ws_serve(rude, "127.0.0.1", 0, subprotocols=["tocsin.1.msgpack"]) as server:  # type: ignore[list-item]
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NetworkError, match="go away"):
            await soon(tocsin.connect(f"ws://127.0.0.1:{port}").__aenter__())


async def test_a_session_that_ends_in_the_middle_of_messages_is_closed_at_once() -> None:
    """The rest of them is read, up to the client's goodbye; else the connection would stay for uvicorn's 10 s."""
    async with served() as (_, server), stranger(server.url) as raw:
        await raw.socket.send("nonsense")
        for number in range(300):
            await raw.say(op="ping", n=number + 1)
        async with asyncio.timeout(5):
            assert await raw.end() == 4400
            await raw.socket.wait_closed()


async def test_a_client_that_is_shown_out_while_busy_is_back_soon() -> None:
    async with testing.node("memory:") as bus, serve(bus) as server:
        async with tocsin.connect(server.url, name="busy") as remote:
            work = [asyncio.ensure_future(remote.publish(each)) for each in numbered(50)]
            await asyncio.sleep(0)
            [session] = server.sessions
            session.leave("shown out")
            async with asyncio.timeout(5):
                await asyncio.gather(*work)
        assert bus._node.head == 50


async def test_a_buffer_that_hangs_is_waited_for_as_long_as_ack_wait(clock: Any) -> None:
    """Another subscription of the consumer wants what lies there; something of it is free at once, and comes first."""
    about: dict[str, Any] = {"consumer": "ops", "options": {"ack_wait": 30}, "ahead": True, "credit": 10}
    async with testing.node("memory:", clock) as bus, serve(bus) as server:
        hanging, eager = stranger(server.url, "hung"), stranger(server.url, "other")
        async with hanging as hung, eager as other:
            await hung.ask(op="subscribe", n=1, sub=1, filter="TRUE", **about)
            await bus.publish_many(numbered(3))
            delivered = await hung.hear()
            assert (await hung.ask(op="settle", n=2, sub=1, ack=[delivered["items"][0][0]]))["op"] == "done"
            await other.say(op="subscribe", n=1, sub=1, filter="n >= 0", past="retained", replay=True, **about)
            got: list[int] = []
            while len(got) < 3:
                frame = await other.hear()
                if frame["op"] == "deliver":
                    got += [each[3] for each in frame["items"]]
                    await other.say(op="settle", sub=1, ack=[each[0] for each in frame["items"]])
                    for _ in range(5):
                        await testing.settled(bus)
                    clock.advance(31)
            assert sorted(got) == [1, 2, 3]


async def test_settling_that_is_refused_leaves_the_time_of_the_others_running(clock: Any) -> None:
    async with testing.node("memory:", clock) as bus, serve(bus) as server, stranger(server.url) as raw:
        options = {"ack_wait": 30}
        await raw.ask(op="subscribe", n=1, sub=1, filter="TRUE", consumer="ops", options=options, ahead=True, credit=2)
        await raw.ask(op="publish", n=2, events=[CLOUD, {**CLOUD, "id": "2"}])
        item = bus._node.mailboxes["ops"].flying[2]
        assert item.lent
        bus._node.mailboxes["ops"].flying[1].attempt += 7  # as if it had gone to others meanwhile
        assert (await raw.ask(op="settle", n=3, sub=1, ack=[1, 2]))["error"]["error"] == "DeliveryError"
        assert not item.lent and item.deadline == bus._node.now() + 30_000_000


async def test_who_reads_no_answers_is_read_no_more() -> None:
    async with served(max_unsent=100_000, stuck=20) as (bus, server), stranger(server.url) as raw:
        [session] = server.sessions
        raw.socket.transport.pause_reading()
        full = 0
        for number in range(20_000):
            await raw.say(op="call", n=number, verb="status", args={"id": "none" * 1000})
            await asyncio.sleep(0.01 if session._outgoing.is_full else 0)  # the kernel may take more, for a while
            full = full + 1 if session._outgoing.is_full else 0
            if full == 20:
                break
        assert full == 20, "this test does not test it"
        waiting = session._outgoing._unsent
        for number in range(1, 51):
            await raw.say(op="ping", n=number)
        await bus.publish(event("others go on"))
        for _ in range(2_000):
            if session._is_paused:
                break
            await asyncio.sleep(0.01)
        assert session._is_paused and session._outgoing._unsent <= waiting, "nothing more is answered"
        raw.socket.transport.resume_reading()
        while (answer := await raw.hear())["op"] != "pong":
            pass
        assert answer["n"] == 1

"""Peers over a connection that is lost, or to one who does not read: nothing twice, nothing missed, all in bounds."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.behaviour.test_full_disk import slow_disk
from tests.helpers import briefly, event, soon, testing
from tests.net.test_server import Raw, served, stranger
from tests.proxy import Proxy, proxy
from tests.security.keys import guarded
from tocsin.errors import ConnectionLostError, ForbiddenError
from tocsin.net import serve
from tocsin.node import discovery
from tocsin.peers.groups import Message


@contextlib.asynccontextmanager
async def far(name: str = "far", **limits: Any) -> AsyncIterator[tuple[Any, Any, Proxy]]:
    """An embedded bus, a remote one of the same node, and the network between."""
    async with (
        served(**limits) as (bus, server),
        proxy(server.url) as network,
        tocsin.connect(network.url, name=name, patience=20) as remote,
    ):
        yield bus, remote, network


async def echo(request: Any) -> Any:
    return {"data": request.data, "sender": request.sender}


async def until(changes: Any, kind: str) -> Any:
    """The next change of a kind; others are passed over."""
    while (change := await soon(changes.next())).kind != kind:
        pass
    return change


def brief(changes: Any) -> list[tuple[str, str, str]]:
    return [(each.kind, each.resource, each.by) for each in iter(changes.poll, None)]


# A connection that is lost


async def test_all_it_had_is_there_again() -> None:
    async with far() as (bus, remote, network):
        mine = bus.resources()
        await remote.advertise("v > 1")
        async with remote.serve("r", echo), remote.join("g") as group, bus.join("g") as other:
            network.snap()
            await until(mine, "depleted")
            await until(mine, "depleted")
            assert (await soon(remote.request("r", 1))) == {"data": 1, "sender": "far"}
            assert [each[1] for each in brief(bus.resources())] == ["v > 1", "r"]
            await group.cast("back")
            seen: list[Any] = []
            while not seen or not isinstance(seen[-1], Message):
                seen.append(await soon(group.next()))
            assert briefly(seen) == ["far", "far+test", "test", "test+far", "back"]
            assert (seen[2].left, seen[3].joined, group.view) == (("far",), ("far",), seen[3])
            assert briefly(await _all(other)) == ["far+test", "test", "test+far", "back"]
        states = await bus.subscribe("type = 'tocsin.session'", past=tocsin.since(1), system=True, auto_ack=True)
        await testing.settled(bus)
        records = [each.event.data for each in iter(states.poll, None)]
        assert [each["state"] for each in records if each["name"] == "far"] == ["began", "crashed", "began"]
        await remote.close()
        assert (await soon(states.next())).event.data["state"] == "ended", "a clean goodbye is no crash"


async def _all(group: Any) -> list[Any]:
    return list(iter(group.poll, None))


async def test_resources_go_on_with_the_difference() -> None:
    async with far() as (bus, remote, network):
        kept, gone, came, again = (bus.as_user(name) for name in ("kept", "gone", "came", "again"))
        await remote.advertise("own = 1")
        await kept.advertise("a = 1")
        await gone.advertise("a = 1")
        await gone.advertise("b = 1")
        await again.advertise("c = 1")
        changes = remote.resources()
        assert (await soon(changes.next())).resource == "own = 1"
        assert [(await soon(changes.next())).by for _ in range(4)] == ["kept", "gone", "gone", "again"]
        network.cut()
        await until(bus.resources(), "found")
        await gone.close()
        await again.unadvertise("c = 1")
        await again.advertise("c = 1")
        await came.advertise("b = 1")
        await came.advertise("d = 1")
        network.mend()
        assert [(each.kind, each.resource, each.by) for each in [await soon(changes.next()) for _ in range(4)]] == [
            ("unadvertised", "a = 1", "gone"),
            ("advertised", "b = 1", "came"),
            ("unadvertised", "b = 1", "gone"),
            ("found", "d = 1", "came"),
        ]
        await came.unadvertise("d = 1")
        assert (await soon(changes.next())).kind == "depleted"
        assert changes.poll() is None


async def test_more_resources_than_wait_here_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from tocsin.remote import watches

    monkeypatch.setattr(watches, "AHEAD", 8)
    async with far() as (bus, remote, network):
        for n in range(30):
            await bus.advertise(f"v > {n}")
        changes = remote.resources()
        assert [(await soon(changes.next())).resource for _ in range(20)] == [f"v > {n}" for n in range(20)]
        network.snap()
        await bus.unadvertise("v > 3")
        assert [(await soon(changes.next())).resource for _ in range(11)] == [f"v > {n}" for n in (*range(20, 30), 3)]


async def test_demand_that_changes_while_the_connection_is_lost() -> None:
    async with far() as (bus, remote, network):
        nobody = await remote.demand("v > 3")
        waiting = asyncio.ensure_future(nobody.changed())
        await heard_of(remote)
        network.cut()
        await bus.subscribe("v > 5", consumer="ops")
        network.mend()
        assert (await soon(waiting)).consumers == ("ops",)
        with pytest.raises(TimeoutError):
            await (await remote.demand("v > 3")).changed(timeout=0.02)


async def heard_of(remote: Any) -> None:
    await remote._ping()


async def test_a_request_that_was_sent_is_not_sent_twice() -> None:
    async with far() as (bus, remote, network):
        begun, go_on, asked = asyncio.Event(), asyncio.Event(), []

        async def handler(request: Any) -> Any:
            asked.append(request.data)
            begun.set()
            if request.data == "slow":
                await go_on.wait()
            return request.data

        async with bus.serve("r", handler):
            asking = asyncio.ensure_future(remote.request("r", "slow"))
            await soon(begun.wait())
            network.cut()
            with pytest.raises(ConnectionLostError, match="'r' was answered"):
                await soon(asking)
            waiting = asyncio.ensure_future(remote.request("r", "quick"))  # there is none: so it waits for one
            with pytest.raises(tocsin.RequestTimeout, match=r"0\.2 s"):
                await remote.request("r", timeout=0.2)
            network.mend()
            assert await soon(waiting) == "quick"
            assert asked == ["slow", "quick"]
            go_on.set()


async def test_a_request_ends_in_its_time_if_the_node_is_silent() -> None:
    async with far() as (bus, remote, network), bus.serve("r", echo):
        network.stall()
        with pytest.raises(tocsin.RequestTimeout, match="did not answer"):
            await soon(remote.request("r", timeout=0.1))
        network.flow()
        assert (await soon(remote.request("r", 2)))["data"] == 2


async def test_a_server_that_is_lost_is_replaced() -> None:
    async with far() as (bus, remote, network):
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def stuck(request: Any) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with remote.serve("r", stuck):
            asking = asyncio.ensure_future(bus.request("r", 1))
            await soon(begun.wait())
            async with bus.serve("r", echo):
                network.cut()
                assert (await soon(asking))["data"] == 1
            await soon(cancelled.wait())
            with pytest.raises(tocsin.NoServer):
                await bus.request("r")
            network.mend()


async def test_leaving_without_a_connection_does_not_wait() -> None:
    async with far() as (bus, remote, network):
        serving = await remote.serve("r", echo).__aenter__()
        group = await remote.join("g").__aenter__()
        gone = bus.resources()
        network.cut()
        await until(gone, "depleted")
        await soon(serving.__aexit__(None, None, None))
        await soon(group.leave())
        network.mend()
        await soon(remote.advertise("back = 1"))
        assert [each[1] for each in brief(bus.resources())] == ["back = 1"]
        with pytest.raises(tocsin.GroupError):
            await group.cast(1)


@pytest.mark.parametrize("what", ["serve", "join"])
async def test_leaving_while_it_is_opened_again_holds_up_nothing(file_url: str, what: str) -> None:
    """A command that was overtaken by its end is answered too, or all that is opened again would wait for it."""
    async with (
        tocsin.connect(file_url) as node,
        serve(node) as server,
        proxy(server.url) as way,
        tocsin.connect(way.url, name="ann") as ann,
    ):
        for _ in range(5):
            opened = ann.serve("params", lambda request: 1) if what == "serve" else ann.join("line-7")
            async with opened:
                before = ann._link.generation
                way.snap()
                while ann._link.generation == before:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
            await soon(ann.publish(event("a")))


async def test_what_a_member_missed_of_its_views_comes_first() -> None:
    async with far(beat=0.1, silence=0.5) as (bus, remote, network), remote.join("g") as group, bus.join("g") as other:
        assert briefly([await soon(group.next()) for _ in range(2)]) == ["far", "far+test"]
        network.stall()  # it is a member until the node has missed it
        await other.cast("missed")
        while other.view.members != ("test",):
            await soon(other.next())
        await other.cast("not for far")
        network.flow()
        seen = [await soon(group.next()) for _ in range(3)]
        assert briefly(seen) == ["missed", "test", "test+far"]
        assert seen[0].view.members == ("far", "test")


async def test_what_a_member_missed_and_is_trimmed_is_said() -> None:
    async with far() as (bus, remote, network), remote.join("g") as group, bus.join("g") as other:
        assert briefly([await soon(group.next()) for _ in range(2)]) == ["far", "far+test"]
        network.cut()
        while other.view.members != ("test",):
            await soon(other.next())
        await other.cast("x")
        assert await bus.trim(older_than=timedelta(seconds=0), hard=True) > 2
        network.mend()
        with pytest.raises(tocsin.GroupError, match="trimmed"):
            await soon(group.next())
        assert (await soon(group.next())).joined == ("far",)


async def test_the_newer_session_has_all_and_the_older_is_told() -> None:
    async with (
        served() as (_, server),
        tocsin.connect(server.url, name="line-7") as older,
        older.serve("r", echo),
        older.join("g") as group,
        tocsin.connect(server.url, name="line-7") as newer,
        newer.join("g") as mine,
    ):
        assert mine.view.members == ("line-7",)
        with pytest.raises(tocsin.NoServer):
            await newer.request("r")
        with pytest.raises(tocsin.ReplacedError):
            while True:
                await soon(group.next())
        with pytest.raises(tocsin.ReplacedError):
            await older.request("r")


async def test_the_replies_of_others_come_with_an_error() -> None:
    async with served() as (bus, server), tocsin.connect(server.url, name="far") as far:

        async def bad(request: Any) -> None:
            raise ValueError("no")

        async with bus.serve("r", echo), bus.as_user("bad").serve("r", bad):
            with pytest.raises(tocsin.RequestFailed) as error:
                await far.request("r", 1, policy="all")
            assert error.value.replies == [{"data": 1, "sender": "far"}]


async def test_requests_do_not_wait_for_the_disk(file_url: str) -> None:
    async with (
        served(file_url) as (bus, server),
        tocsin.connect(server.url, name="far") as far,
        far.serve("r", echo),
    ):
        with slow_disk(bus) as begun:
            publishing = asyncio.ensure_future(far.publish(event("slow")))
            await soon(begun.wait())
            for n in range(5):
                assert (await soon(far.request("r", n)))["data"] == n
            assert not publishing.done()
        await soon(publishing)


async def test_a_node_that_drains_leaves_nobody_waiting() -> None:
    begun = asyncio.Event()

    async def stuck(request: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with (
        served() as (_, server),
        tocsin.connect(server.url, name="a", patience=0.2) as a,
        tocsin.connect(server.url, name="b", patience=0.2) as b,
        a.serve("r", stuck),
    ):
        asking = asyncio.ensure_future(b.request("r"))
        await soon(begun.wait())
        await soon(server.drain())
        with pytest.raises((tocsin.ServerLost, ConnectionLostError)):
            await soon(asking)


# Strangers, and who does not read


async def test_a_stranger_serves_and_asks() -> None:
    async with served() as (bus, server), stranger(server.url, "a") as a, stranger(server.url, "b") as b:
        assert (await a.ask(op="serve", n=1, sub=1, resource="r"))["value"] is None
        asking = asyncio.ensure_future(b.ask(op="request", n=1, resource="r", data={"x": 1}, timeout=5))
        asked = await a.hear()
        [[id, sender, attempt, data]] = asked["items"]
        assert (asked["op"], asked["sub"], sender, attempt, data) == ("asked", 1, "b", 1, {"x": 1})
        await a.say(op="answer", sub=1, id="nobody asked this", data=0)
        await a.say(op="answer", sub=9, id=id, data=0)
        await a.say(op="answer", sub=1, id=id, data=[1, 2])
        assert (await asking) == {"op": "done", "re": 1, "value": [1, 2]}
        asking = asyncio.ensure_future(b.ask(op="request", n=2, resource="r", data=None))
        await a.say(op="fail", sub=1, id=(await a.hear())["items"][0][0], message="cannot")
        assert "cannot" in (await asking)["error"]["message"]
        ending = asyncio.ensure_future(b.ask(op="request", n=3, resource="r", data=None))
        await a.hear()
        assert (await a.ask(op="withdraw", n=2, sub=1, drains=False))["value"] is None
        assert (await ending)["error"]["error"] == "ServerLost"
        assert (await a.ask(op="withdraw", n=3, sub=1))["value"] is None, "may be repeated"
        assert (await b.ask(op="request", n=4, resource="r", data=None))["error"]["error"] == "NoServer"
        assert (await b.ask(op="request", n=5, resource="", data=None))["error"]["error"] == "PeerError"


async def test_a_stranger_is_a_member() -> None:
    async with served() as (bus, server), stranger(server.url, "a") as a, bus.join("g") as group:
        joined = await a.ask(op="join", n=1, sub=1, group="g", credit=2)
        assert joined["value"]["members"] == ["test", "a"]
        first = await a.ask(op="cast", n=2, sub=1, data="hi", id="x")
        assert (await a.ask(op="cast", n=3, sub=1, data="hi", id="x"))["value"] == first["value"], "said once"
        await a.ask(op="cast", n=4, sub=1, data="there")
        assert briefly(await _all(group)) == ["test", "test+a", "hi", "there"]
        await a.say(op="credit", sub=1, n=5)
        heard = await a.hear()
        assert [(each["kind"], each["data"]) for each in heard["items"]] == [("message", "there")]
        assert (await a.ask(op="leave", n=5, sub=1))["op"] == "done"
        assert (await a.ask(op="cast", n=6, sub=1, data=1))["error"]["error"] == "GroupError"
        assert group.view.members == ("test",)


async def test_a_member_that_does_not_read_misses_nothing() -> None:
    async with served(max_unsent=10_000) as (bus, server), stranger(server.url, "a") as a, bus.join("g") as group:
        await a.ask(op="join", n=1, sub=1, group="g", credit=10_000)
        a.socket.transport.pause_reading()
        for n in range(300):
            await group.cast({"n": n, "text": "x" * 40_000})
        [session] = server.sessions
        assert session._outgoing._unsent < 2_000_000, "the rest waits in the journal"
        a.socket.transport.resume_reading()
        got: list[int] = []
        while len(got) < 300:
            got += [each["data"]["n"] for each in (await a.hear()).get("items", ()) if each["kind"] == "message"]
        assert got == list(range(300))


async def test_a_server_that_does_not_read_is_not_asked() -> None:
    async with served(max_unsent=10_000) as (bus, server), stranger(server.url, "lazy") as lazy:
        await lazy.ask(op="serve", n=1, sub=1, resource="r")
        lazy.socket.transport.pause_reading()
        large = "x" * 500_000
        asking = [asyncio.ensure_future(bus.request("r", large, timeout=60)) for _ in range(40)]
        async with bus.as_user("able").serve("r", echo):
            await asyncio.wait(asking, timeout=0.5)
            [session] = server.sessions
            assert session._outgoing._unsent < 2_000_000
            lazy.socket.transport.abort()
            answers = await soon(asyncio.gather(*asking, return_exceptions=True))
        lost = [each for each in answers if isinstance(each, tocsin.ServerLost)]
        assert 0 < len(lost) < 40, "what found nobody while it was clogged is told so"
        assert all(each == {"data": large, "sender": "test"} for each in answers if not isinstance(each, Exception))


async def test_a_watcher_that_gives_no_credit_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MAX_CHANGES", 3)
    async with served() as (bus, server), stranger(server.url, "a") as a:
        opened = await a.ask(op="watch", n=1, sub=1, what="resources", args=None, credit=1)
        assert opened["value"] == {"now": 0}
        for n in range(6):
            await bus.advertise(f"v > {n}")
        assert [each["resource"] for _, each in (await a.hear())["items"]] == ["v > 0"]
        await a.say(op="credit", sub=1, n=10)
        ended = await a.hear()
        assert (ended["op"], ended["error"]["error"]) == ("ended", "OverloadError")
        assert (await a.ask(op="watch", n=2, sub=1, what="resources", args={"filter": "v < 3"}, credit=9))["value"] == {
            "now": 3
        }


async def test_misuse() -> None:
    async with served(max_subscriptions=2) as (bus, server), stranger(server.url, "a") as a:
        assert (await a.ask(op="serve", n=1, sub=1, resource="r"))["op"] == "done"
        for n, (frame, error) in enumerate(
            [
                ({"op": "serve", "sub": 1, "resource": "s"}, "ProtocolError"),
                ({"op": "serve", "sub": 2, "resource": "r"}, "PeerError"),
                ({"op": "serve", "sub": 2, "resource": 7}, "PeerError"),
                ({"op": "join", "sub": 2, "group": "a\nb"}, "PeerError"),
                ({"op": "join", "sub": 2, "group": "g", "credit": 10**9}, "ProtocolError"),
                ({"op": "cast", "sub": 1, "data": 1}, "GroupError"),
                ({"op": "watch", "sub": 2, "what": "resources", "args": {"filter": "v >"}}, "FilterError"),
                ({"op": "watch", "sub": 2, "what": "demand", "args": {"filter": "v >"}}, "FilterError"),
                ({"op": "watch", "sub": 2, "what": "demand", "args": None}, "ProtocolError"),
                ({"op": "watch", "sub": 2, "what": "stars", "args": None}, "ProtocolError"),
                ({"op": "request", "resource": "x", "data": 1, "timeout": "soon"}, "PeerError"),
                ({"op": "request", "resource": "x", "data": 1, "policy": 7}, "PeerError"),
            ],
            2,
        ):
            assert (await a.ask(n=n, **frame))["error"]["error"] == error, frame
        assert (await a.ask(op="join", n=50, sub=2, group="g"))["op"] == "done"
        assert (await a.ask(op="cast", n=51, sub=2, data=1, id=""))["error"]["error"] == "PeerError"
        assert (await a.ask(op="join", n=52, sub=3, group="h"))["error"]["error"] == "OverloadError"
        assert (await a.ask(op="close", n=53, sub=1))["op"] == "done"
        with pytest.raises(tocsin.NoServer):
            await bus.request("r")


async def test_rights_hold_from_afar(tmp_path: Path) -> None:
    """With a real token: what it may do works as for everybody, what it may not is refused, and nothing is left."""
    rights = ("serve:open", "request:open", "join:open", "publish:open.")
    async with guarded(tmp_path) as node, node.connect(node.token("a", *rights), name="a") as a:
        for refused in (
            a.serve("secret", echo).__aenter__(),
            a.request("secret"),
            a.join("secret").__aenter__(),
            a.advertise("type = 'secret.x'"),
            a.demand("type = 'secret.x'"),
        ):
            with pytest.raises(ForbiddenError):
                await refused
        changes = a.resources()
        async with node.bus.serve("secret", echo), a.serve("open/1", echo), a.join("open/1") as group:
            assert (await a.request("open/1", 1)) == {"data": 1, "sender": "a"}
            assert await group.cast("hi") > 0
            assert briefly([await soon(group.next()) for _ in range(2)]) == ["a", "hi"]
            assert (await soon(changes.next())).resource == "open/1", "nothing is told of what may not be asked"
            await a.advertise("type = 'open.x'")
            assert not await a.demand("type = 'open.x'")
        assert [each.name for each in node.bus._node.peers.sessions.values()] == ["node", "a"]


async def test_two_openings_of_one_number() -> None:
    async with served() as (bus, server), stranger(server.url, "a") as a:
        for n in (1, 2):
            await a.say(op="join", n=n, sub=1, group=f"g{n}")
        answers = sorted([(await _answer(a))["op"] for _ in range(2)])
        assert answers == ["done", "failed"]
        await a.ask(op="close", n=3, sub=1)
        async with bus.as_user("b").join("g1") as one, bus.as_user("b").join("g2") as two:
            assert one.view.members == two.view.members == ("b",), "nothing is left that has no number"


async def _answer(raw: Raw) -> dict[str, Any]:
    while (frame := await raw.hear())["op"] not in ("done", "failed"):
        pass
    return frame


async def test_dropping_a_watch_closes_it() -> None:
    async with served() as (bus, server), tocsin.connect(server.url, name="far") as far:
        changes = far.resources()
        await heard_of(far)
        [session] = server.sessions
        assert len(bus._node.peers.listeners) == 1
        del changes
        await bus.advertise("v > 1")
        for _ in range(3):
            await heard_of(far)
        await bus.publish(event("x"))
        assert all(pump.closed for pump in session._streams._pumps.values())


async def test_a_trimmed_group_is_told_to_a_stranger() -> None:
    async with served() as (bus, server), stranger(server.url, "a") as a, bus.join("g") as group:
        await a.ask(op="join", n=1, sub=1, group="g", credit=1)
        for n in range(50):
            await group.cast(n)
        await bus.trim(older_than=timedelta(seconds=0), hard=True)
        await a.say(op="credit", sub=1, n=100)
        while (frame := await a.hear())["op"] != "trouble":
            assert frame["op"] == "grouped"
        assert frame["error"]["error"] == "GroupError"


async def test_coming_back_to_a_place_that_is_no_view() -> None:
    async with served() as (bus, server), stranger(server.url, "a") as a, bus.join("g") as group:
        offset = await group.cast("not for a")
        joined = await a.ask(op="join", n=1, sub=1, group="g", credit=9, view=offset, after=offset)
        assert joined["value"]["members"] == ["test", "a"]
        await a.ask(op="cast", n=2, sub=1, data="hi")
        assert briefly(await _all(group)) == ["test", "not for a", "test+a", "hi"]
        assert (await a.ask(op="ping", n=3))["op"] == "pong"


async def test_withdrawing_what_is_not_served_yet() -> None:
    async with served() as (bus, server), stranger(server.url, "a") as a:
        await a.say(op="serve", n=1, sub=1, resource="r")
        overtaken = await a.ask(op="withdraw", n=2, sub=1)
        assert (overtaken["op"], overtaken["re"]) == ("failed", 1), "every command is answered"
        done = await a.hear()
        assert (done["op"], done["re"]) == ("done", 2)
        with pytest.raises(tocsin.NoServer):
            await bus.request("r", timeout=5)
        assert (await a.ask(op="serve", n=3, sub=1, resource="r"))["op"] == "done", "the number is free again"


# Whatever happens


@pytest.mark.parametrize("seed", range(3))
async def test_what_resources_tell_adds_up_to_what_is_there(seed: int) -> None:
    """Advertisers come and go, the connection breaks: each change follows from those before, and all of them are the
    truth."""
    chance = random.Random(seed)
    async with far() as (bus, remote, network):
        faces = [bus.as_user(f"u{n % 3}") for n in range(5)]  # some of one name
        changes = remote.resources()
        known: dict[str, Counter[str]] = {}

        def take() -> None:
            for change in iter(changes.poll, None):
                names = known.setdefault(change.resource, Counter())
                if change.kind in ("found", "advertised"):
                    assert (change.kind == "found") == (not names.total())
                    names[change.by] += 1
                else:
                    assert names[change.by] > 0
                    names[change.by] -= 1
                    assert (change.kind == "depleted") == (not names.total())

        has: set[tuple[int, str]] = set()
        for _ in range(60):
            place, text = chance.randrange(5), f"v > {chance.randrange(4)}"
            if (place, text) in has:
                await faces[place].unadvertise(text)
                has.discard((place, text))
            else:
                await faces[place].advertise(text)
                has.add((place, text))
            if chance.random() < 0.15:
                network.snap()
            if chance.random() < 0.3:
                await heard_of(remote)
                take()
        await heard_of(remote)
        take()
        truth: dict[str, Counter[str]] = {}
        for place, text in has:
            truth.setdefault(text, Counter())[f"u{place % 3}"] += 1
        assert {text: +names for text, names in known.items() if +names} == truth
        assert network.count > 1


@pytest.mark.parametrize("seed", range(3))
async def test_virtual_synchrony_over_links_that_break(seed: int) -> None:
    """Members' connections break at random while all cast: each hears, in order and once, exactly what was said in the
    views it was in."""
    chance = random.Random(seed)
    async with served() as (bus, server), contextlib.AsyncExitStack() as stack:
        networks = [await stack.enter_async_context(proxy(server.url)) for _ in range(3)]
        buses = [
            await stack.enter_async_context(tocsin.connect(each.url, name=f"m{n}", patience=20))
            for n, each in enumerate(networks)
        ]
        groups = [await stack.enter_async_context(each.join("g")) for each in buses]
        journal = await bus.subscribe(
            "subject = 'g'", past=tocsin.since(1), order="journal", system=True, auto_ack=True
        )

        async def speak(group: Any, name: str) -> None:
            for n in range(25):
                await group.cast(f"{name}.{n}")
                await asyncio.sleep(chance.random() * 0.02)

        async def listen(group: Any) -> list[Any]:
            heard: list[Any] = []
            while not heard or not isinstance(heard[-1], Message) or heard[-1].data != "end":
                heard.append(await group.next())
            return heard

        listening = [asyncio.ensure_future(listen(group)) for group in groups]
        speaking = asyncio.gather(*(speak(group, f"m{n}") for n, group in enumerate(groups)))
        while not speaking.done():
            await asyncio.sleep(0.05)
            chance.choice(networks).snap()
        await speaking
        for each in buses:  # all are back, and nothing breaks any more
            await heard_of(each)
        assert set(groups[0].view.members) == {"m0", "m1", "m2"}
        await groups[0].cast("end")
        seen = await soon(asyncio.gather(*listening))
        await testing.settled(bus)
        records = [each.event for each in iter(journal.poll, None)]
        said = [each.data for each in records if each.type == "tocsin.cast"]
        assert sorted(said) == sorted([f"m{m}.{n}" for m in range(3) for n in range(25)] + ["end"]), "each once"
        for n, heard in enumerate(seen):
            members: Any = ()
            mine = []
            for record in records:
                if record.type == "tocsin.view":
                    members = record.data["members"]
                elif f"m{n}" in members:
                    mine.append(record.offset)
            assert [each.offset for each in heard if isinstance(each, Message)] == mine
            assert all(f"m{n}" in each.view.members for each in heard if isinstance(each, Message))
        assert sum(each.count for each in networks) > 6

"""Sessions with and without a token, over a real WebSocket: who gets in, as whom, for how long, and how much."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import event, heard, soon, take, testing
from tests.security.keys import guarded, stranger
from tocsin.errors import (
    EventError,
    ForbiddenError,
    NetworkError,
    NoServer,
    OverloadError,
    UnauthorizedError,
    UnknownEventError,
)
from tocsin.net import serve
from tocsin.security.limits import Allowance
from tocsin.security.tokens import TokenStore

DAY = 86_400


async def until(condition: Any) -> None:
    """Wait for something that comes by itself."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)


async def test_without_tokens_everybody_is_let_in(tmp_path: Path) -> None:
    async with (
        testing.node() as bus,
        serve(bus, tokens=tmp_path / "tokens.json") as server,
        tocsin.connect(server.url, name="anybody", token="whatever") as remote,
    ):
        assert (await remote.publish(event("1"))).offset


async def test_wrong_missing_expired_and_revoked_tokens(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        now = tocsin.Event("x", "y", time="2026-01-02T00:00:00Z").time
        good, old, gone = (
            node.token("a", "metrics"),
            node.token("b", "metrics", expires=now, now=_start()),
            node.token("c", "metrics"),
        )
        node.store.revoke("c")
        node.clock.advance(DAY)
        cases = {
            None: "needed",
            "": "needed",
            "toc_x": "not known",
            good[:-1]: "not known",
            old: "expired",
            gone: "revoked",
        }
        for token, said in cases.items():
            with pytest.raises(UnauthorizedError, match=said) as raised:
                async with node.connect(token):
                    pass
            assert raised.value.field == "token" and raised.value.help
        async with node.connect(good) as bus:
            assert bus.name.startswith("a/")
        whys = [each["why"] for each in await node.refused()]
        assert whys == ["missing", "missing", "wrong", "wrong", "expired", "revoked"]
        assert node.server.gate.refusals.counts == {"missing": 2, "wrong": 2, "expired": 1, "revoked": 1}


def _start() -> Any:
    return tocsin.Event("x", "y", time="2026-01-01T00:00:00Z").time


async def test_a_raw_hello_is_refused_with_4401(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        for token, name in ((None, "a"), ("x", "a"), (5, "a"), (node.token("b", "metrics"), "a")):
            async with stranger(node.url, None) as raw:
                await raw.say(op="hello", version=1, name=name, token=token)
                answer = await raw.hear()
                assert answer["op"] == "failed"
                assert await raw.end() == (4401 if not isinstance(token, int) else 4406)


async def test_nothing_is_done_before_hello(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        async with stranger(node.url, None) as raw:
            await raw.say(op="publish", n=1, events=[{"specversion": "1.0", "id": "1", "source": "s", "type": "t"}])
            assert (await raw.hear())["op"] == "failed" and await raw.end() == 4406
        assert node.bus._node.head == 0


async def test_a_name_must_be_the_tokens(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("proxy", "publish:*")
        async with node.connect(token, name="proxy/ann") as bus:
            assert bus.name == "proxy/ann"
            with pytest.raises(ForbiddenError, match="ben"):
                await soon(bus.as_user("ben").publish(event("1")))
        with pytest.raises(ForbiddenError, match="ann"):
            async with node.connect(token, name="ann"):
                pass


async def test_who_has_a_token_does_not_end_the_session_of_another(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node, node.connect(node.token("a", "publish:*")) as bus:
        with pytest.raises(ForbiddenError):
            async with node.connect(node.token("b", "publish:*"), name="a"):
                pass
        assert await soon(bus.publish(event("1")))


async def test_rights_over_the_wire(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        await node.bus.publish_many([event("1", type="machine.a"), event("2", type="door.a"), event("3", type="machine.b", classification="secret")])  # fmt: skip  # noqa: E501
        async with node.connect(node.token("a", "subscribe:machine.", "publish:machine.", "request:params/")) as bus:
            sub = await bus.subscribe("TRUE", "mine", past=tocsin.retained(), order="journal")
            await bus.publish(event("4", type="machine.c"))
            for refused in (
                bus.publish(event("x", type="door.b")),
                bus.publish_many([event("y", type="machine.b"), event("x", type="door.b")]),
                bus.subscribe("TRUE", system=True),
                bus.define("plant.x", "[type = 'machine.a']"),
                bus.undefine("plant.x"),
                bus.trim(larger_than=1),
                bus.advertise("type = 'door.a'"),
                bus.request("other/m7", timeout=5),
                bus.join("line").__aenter__(),
                bus.serve("params/m7", print).__aenter__(),
            ):
                with pytest.raises(ForbiddenError):
                    await soon(refused)
            with pytest.raises(UnknownEventError):
                await bus.status("3")
            with pytest.raises(NoServer):
                await bus.request("params/m7", timeout=5)
            got = [(await soon(sub.next())).event.id for _ in range(2)]
            assert got == ["1", "4"] and sub.poll() is None
            assert [each.name for each in await bus.consumers()] == ["mine"]
        assert node.bus._node.head == 4 + len(await node.refused())


async def test_a_durable_consumer_goes_on_over_connections(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "subscribe:machine.")
        async with node.connect(token) as bus:
            sub = await bus.subscribe("value > 1 OR TAG = 'x'", "mine")
            first = sub.id
        await node.bus.publish(event("1", type="machine.a", data={"value": 2}))
        await node.bus.publish(event("2", type="door.a", data={"value": 2}))
        async with node.connect(token) as bus:
            sub = await bus.subscribe("value > 1 OR TAG = 'x'", "mine")
            assert sub.id == first
            delivery = await soon(sub.next())
            assert delivery.event.id == "1"
            await delivery.ack()


@pytest.mark.parametrize("how", ["revoked", "expired", "changed", "removed"])
async def test_a_session_ends_with_its_token(tmp_path: Path, how: str) -> None:
    async with guarded(tmp_path) as node:
        ends = tocsin.Event("x", "y", time="2026-01-02T00:00:00Z").time
        token = node.token("a", "subscribe:*", expires=ends, now=_start())
        other = node.token("b", "subscribe:*")
        async with stranger(node.url, None) as raw, node.connect(other) as stays:
            assert (await raw.ask(op="hello", version=1, token=token))["op"] == "welcome"
            assert (await raw.ask(op="subscribe", n=1, sub=1, filter="TRUE", credit=9))["op"] == "done"
            sub = await stays.subscribe("TRUE")
            begun = asyncio.get_running_loop().time()
            if how == "revoked":
                TokenStore(node.store.path).revoke("a")  # as another process does it
            elif how == "expired":
                node.clock.advance(DAY)
            else:
                text = node.read()
                new = text.replace('"subscribe:*"', '"subscribe:x"', 1) if how == "changed" else _without(text, "a")
                node.write(new)
            told = await raw.hear()
            assert (told["op"], told["error"]["error"]) == ("failed", "UnauthorizedError")
            assert await raw.end() == 4401
            assert asyncio.get_running_loop().time() - begun < 3, "it should take a second; this machine is shared"
            await node.bus.publish(event("1"))
            assert (await soon(sub.next())).event.id == "1"
        ended = [each for each in await node.refused() if each["why"] == "ended"]
        assert [each["name"].split("/")[0] for each in ended] == ["a"]


def _without(text: str, name: str) -> str:
    found = json.loads(text)
    found["tokens"] = [each for each in found["tokens"] if each["name"] != name]
    return json.dumps(found)


async def test_a_client_hears_that_its_token_was_revoked(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        async with node.connect(node.token("a", "subscribe:*", "publish:*")) as bus:
            sub = await bus.subscribe("TRUE")
            node.store.revoke("a")
            with pytest.raises(UnauthorizedError, match="revoked"):
                await soon(sub.next())
            with pytest.raises(UnauthorizedError, match="revoked"):
                await soon(bus.publish(event("1")))
        assert node.bus._node.mailboxes == {}


async def test_who_came_without_is_shown_out_when_there_is_a_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    async with testing.node() as bus, serve(bus, tokens=path) as server, stranger(server.url) as raw:
        TokenStore(path).add("a", ["metrics"])
        told = await raw.hear()
        assert "needed" in told["error"]["message"] and await raw.end() == 4401


async def test_a_damaged_file_stops_newcomers_and_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "publish:*")
        async with node.connect(token) as bus:
            whole = node.read()
            node.write(whole[:50])
            await until(lambda: node.store.problem is not None)
            await until(lambda: "nobody is let in" in caplog.text)
            with pytest.raises(UnauthorizedError, match="nobody is let in"):
                async with node.connect(token):
                    pass
            await bus.publish(event("1"))
            node.write(whole)
            await until(lambda: node.store.problem is None)
            async with node.connect(token):
                pass


async def test_rates_hold_over_all_connections_of_a_token(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "publish:*", limits=Allowance(events=10))
        other = node.token("b", "publish:*")
        async with node.connect(token) as one, node.connect(token, name="a/2") as two, node.connect(other) as free:
            numbers = itertools.count()
            await one.publish_many([event(str(next(numbers))) for _ in range(9)])
            await two.publish(event(str(next(numbers))))
            for bus in (one, two):
                with pytest.raises(OverloadError, match="10 events a second"):
                    await bus.publish(event("late"))
            await free.publish(event("free"))
            node.clock.advance(0.2)
            await one.publish(event(str(next(numbers))))
        assert len(await node.refused()) == 2


async def test_to_join_and_to_serve_are_calls(tmp_path: Path) -> None:
    """Both are written to the journal: without a bound a disk could be filled by them."""
    async with guarded(tmp_path) as node:
        token = node.token("line", "join:*", "serve:*", limits=Allowance(calls=2))
        async with node.connect(token) as bus:
            for _ in range(2):
                async with bus.join("group"):
                    pass
            with pytest.raises(tocsin.OverloadError, match="2 calls a second"):
                await bus.join("group").__aenter__()
            with pytest.raises(tocsin.OverloadError, match="2 calls a second"):
                await bus.serve("params", anything).__aenter__()
            node.clock.advance(1)
            async with bus.serve("params", anything):
                pass


async def anything(request: tocsin.Request) -> None:
    return None


async def test_bytes_and_sizes(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "publish:*", limits=Allowance(bytes=2000, event_size=1000))
        async with node.connect(token) as bus:
            with pytest.raises(EventError):
                await bus.publish(event("1", data={"x": "y" * 1100}))
            await bus.publish(event("2", data={"x": "y" * 900}))
            with pytest.raises(OverloadError, match="bytes"):
                await bus.publish(event("3"))


async def test_too_many_connections(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "publish:*", limits=Allowance(connections=1))
        async with node.connect(token) as bus:
            with pytest.raises((OverloadError, NetworkError), match="1 connections"):
                async with node.connect(token, name="a/2"):
                    pass
            await bus.publish(event("1"))
        async with node.connect(token) as bus:  # who has gone makes room
            await bus.publish(event("2"))


async def test_a_group_of_consumers_with_one_token(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "subscribe:machine.")
        async with node.connect(token) as one, node.connect(token, name="a/2") as two:
            subs = [await bus.subscribe("TRUE", f"c{n}", group="team") for n, bus in enumerate((one, two))]
            await node.bus.publish_many([event(str(n), type="machine.a") for n in range(10)])
            got: list[str] = []
            async with asyncio.timeout(10):
                while len(got) < 10:
                    for sub in subs:
                        if (delivery := sub.poll()) is not None:
                            got.append(delivery.event.id)
                            await delivery.ack()
                    await asyncio.sleep(0.005)
            assert sorted(got) == sorted(map(str, range(10)))


async def test_records_of_secrets_are_as_secret(tmp_path: Path) -> None:
    """An acknowledgement carries attributes of its event: whoever may see the node's records must be cleared for it."""
    async with guarded(tmp_path) as node:
        low = await node.caller("low", "subscribe:tocsin.").bus.subscribe("type <> 'tocsin.refused'", system=True)
        high = node.caller("high", "subscribe:tocsin.", clearance="secret").bus
        high_sub = await high.subscribe("type <> 'tocsin.refused'", system=True)
        sub = await node.bus.subscribe("type = 'machine.a'", "ops")
        hush = {"classification": "secret", "attributes": {"code": "4711"}}
        await node.bus.publish_many([event(id, type="machine.a", ack="client", **hush) for id in ("1", "2", "3")])
        one, two, three = await take(node.bus, sub)
        await one.ack()
        await two.term("hush")
        await node.bus.cancel("3")
        assert [each.event.type for each in await take(node.bus, low)] == []
        kinds = sorted(each.event.type for each in await take(node.bus, high_sub))
        assert kinds == ["tocsin.ack", "tocsin.cancelled", "tocsin.dead"]
        assert three.event.id == "3"
        assert await heard(node.bus, low) == []

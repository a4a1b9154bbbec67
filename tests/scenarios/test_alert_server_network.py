"""Acceptance scenarios H1 to H6 of the Alert Server: clients in other languages, behind its proxy.

Readings. The proxy converts formats and stores and forwards; here the node speaks HTTP itself, and storing and
forwarding is a client's spool. So a proxied client is one that comes by HTTP (as curl does), a direct one comes by
`tocsin.connect`. H2: the limit is 1 MiB of payload, on every way in. H3: a composite name `proxy/client` is
a consumer's destination. H5: a name that is none is refused; of two sessions of a name the newer wins and the older is
told, since a client that lost its connection must be able to come back.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import tocsin
from tests.helpers import ack_all, ids, soon, take, testing
from tests.helpers import event as alert
from tests.http.support import STRUCTURED, listening, served
from tocsin import cloudevents
from tocsin.errors import EventError, ForbiddenError, ProtocolError, ReplacedError, UnauthorizedError
from tocsin.net import serve
from tocsin.security.tokens import TokenStore

LIMIT = 1024 * 1024


def burst() -> list[tocsin.Event]:
    """Alerts of all priorities and kinds; some are for nobody here."""
    return [
        tocsin.Event(
            "alarm",
            "plant",
            str(n),
            subject=f"hall/{n % 3}",
            data={"n": n, "text": "é\n"},
            attributes={"level": n % 4},
            priority=1 + n * 7 % 10,
            ttl=600 + n,
            ack="client" if n % 2 else "none",
            correlation_id=f"c-{n}",
            destination="TAG:fire" if n % 5 else "TAG:water",
        )
        for n in range(40)
    ]


@pytest.mark.parametrize("order", ["priority", "journal"])
async def test_h1_a_proxied_client_and_a_direct_one_get_the_same(order: str) -> None:
    async with served() as place:
        await place.bus.publish_many(burst())
        filter = "tag = 'fire' AND level > 0"
        async with tocsin.connect(place.server.url, name="direct") as bus:
            direct = await bus.subscribe(filter, consumer="direct", past=tocsin.retained(), order=order)
            query = f"filter={quote(filter)}&consumer=proxied&past=retained&order={order}"
            async with listening(place, query) as proxied:
                got = [await soon(direct.next()) for _ in range(24)]
                heard = [await soon(proxied.next()) for _ in range(24)]
                assert len({each.event.id for each in got}) == 24
                assert [each.event for each in got] == [cloudevents.from_json(each[1]) for each in heard if each]
                assert [str(each.offset) for each in got] == [each[0] for each in heard if each]
                await ack_all(got)
                live = alert("later", destination="TAG:fire", attributes={"level": 1})
                await bus.publish(live)
                one, other = await soon(direct.next()), await soon(proxied.next())
                assert other is not None and one.event == cloudevents.from_json(other[1])
                assert one.event.id == "later"


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
async def test_h2_a_body_at_the_limit_is_accepted_and_one_above_it_refused(size: int) -> None:
    body = b"x" * size
    big = tocsin.Event("t", "s", "big", data=body, datacontenttype="application/octet-stream")
    async with served() as place, tocsin.connect(place.server.url) as bus:
        headers = {"ce-id": "h", "ce-source": "s", "ce-type": "t", "ce-specversion": "1.0", "content-type": "image/png"}
        binary = await place.ask("POST", "/events", body, headers)
        structured = await place.ask("POST", "/events", cloudevents.to_json(big.replace(id="j")), STRUCTURED)
        if size == LIMIT:
            assert (binary.status, structured.status) == (202, 202)
            assert (await bus.publish(big)).offset == 3
            sub = await bus.subscribe("TRUE", past=3, order="journal")
            assert [each.event.data for each in await take(place.bus, sub, 3)] == [body] * 3
            return
        assert (binary.status, structured.status) == (413, 413)
        assert (binary.json["error"], structured.json["error"]) == ("ProtocolError", "EventError")
        for face in (bus, place.bus):
            with pytest.raises(EventError):
                await face.publish(big)
        assert (await bus.publish(alert("next"))).offset == 1, "nothing of it was kept"


async def test_h3_alerts_for_proxy_and_client_reach_only_that_client() -> None:
    async with served() as place, AsyncExitStack() as stack:
        names = ("proxy", "client", "proxy/client", "proxy/other", "other/client")
        subs: dict[str, Any] = {}
        for name in names:
            bus = await stack.enter_async_context(tocsin.connect(place.server.url, name=name))
            subs[name] = await bus.subscribe(f"USER:{name}", past=tocsin.retained())
        await place.bus.publish(alert("1", destination="USER:proxy/client"))
        await place.bus.publish(alert("2", destination="USER:proxy"))
        got = {name: ids(await take(place.bus, sub)) for name, sub in subs.items()}
        assert got == {"proxy": ["2"], "client": [], "proxy/client": ["1"], "proxy/other": [], "other/client": []}


async def test_h3_behind_a_proxys_token_are_its_clients_and_no_others(tmp_path: Path) -> None:
    store = TokenStore(tmp_path / "tokens.json")
    text, _ = store.add("proxy", ["publish:*", "subscribe:*"])
    async with served(tokens=store) as place:
        async with tocsin.connect(place.server.url, token=text, name="proxy/client") as bus:
            assert bus.name == "proxy/client"
        for stranger in ("client", "other/client", "proxyclient"):
            with pytest.raises(ForbiddenError):
                await tocsin.connect(place.server.url, token=text, name=stranger).__aenter__()


async def test_h4_slow_and_quick_calls_are_served_concurrently() -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> str:
        begun.set()
        await go.wait()
        return f"slow for {request.sender}"

    async with served() as place, AsyncExitStack() as stack:
        url = place.server.url
        server, one, two = [
            await stack.enter_async_context(tocsin.connect(url, name=name)) for name in ("server", "one", "two")
        ]
        await stack.enter_async_context(server.serve("slow", slow))
        await stack.enter_async_context(server.serve("quick", lambda request: request.data + 1))
        waiting = asyncio.create_task(one.request("slow", timeout=20))
        await soon(begun.wait())
        assert await soon(two.request("quick", 1)) == 2
        assert await soon(one.request("quick", 2)) == 3, "the same client is not held up either"
        answer = await soon(place.ask("POST", "/requests/quick", b"3", {"content-type": "application/json"}))
        assert answer.status == 200 and json.loads(answer.body) == 4
        assert not waiting.done()
        go.set()
        assert await soon(waiting) == "slow for one"


async def test_h5_a_missing_name_is_refused_and_of_two_the_older_is_told(tmp_path: Path) -> None:
    async with served() as place:
        for none in ("", "a\nb", "x" * 300):
            with pytest.raises(ProtocolError):
                await tocsin.connect(place.server.url, name=none).__aenter__()
        async with tocsin.connect(place.server.url, name="proxy") as older:
            sub = await older.subscribe("TRUE", consumer="c")
            async with tocsin.connect(place.server.url, name="proxy") as newer:
                with pytest.raises(ReplacedError):
                    await older.publish(alert("from the older"))
                with pytest.raises(ReplacedError):
                    await soon(sub.next())
                assert (await newer.publish(alert("from the newer"))).offset == 1
    store = TokenStore(tmp_path / "tokens.json")
    store.add("proxy", ["publish:*"])
    async with served(tokens=store) as place:
        with pytest.raises(UnauthorizedError):
            await tocsin.connect(place.server.url, name="proxy").__aenter__()


async def test_h6_while_the_node_is_down_requests_wait_and_are_forwarded_in_order(tmp_path: Path) -> None:
    journal, spool = f"file:{tmp_path / 'plant.db'}", tmp_path / "spool"
    async with testing.node(journal) as node, serve(node) as server:
        port = int(server.url.rpartition(":")[2])
        async with tocsin.connect(server.url, name="proxy", spool=spool) as bus:
            await bus.publish(alert("0"))
    async with tocsin.connect(f"ws://127.0.0.1:{port}", name="proxy", spool=spool) as bus:
        for n in range(1, 10):
            await bus.publish(alert(str(n)))  # nobody is there
        await bus.publish_many([alert("10"), alert("11")])
        async with testing.node(journal) as node, serve(node, port=port):
            sub = await node.subscribe("TRUE", consumer="ops", past=tocsin.retained(), order="journal")
            got = [(await soon(sub.next())).event.id for _ in range(12)]
            assert got == [str(n) for n in range(12)]
            await bus.publish(alert("12"))
            assert (await soon(sub.next())).event.id == "12"

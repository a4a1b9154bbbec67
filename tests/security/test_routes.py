"""Every route of the server, as it is: none may be used without a token, but for those that say so.

The routes are those of `server.app`. A new one is tested as soon as it is there; one that needs no token must be named
here.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from starlette.routing import Route, WebSocketRoute

import tocsin
from tests.helpers import event, soon
from tests.http.support import until
from tests.security.keys import Guarded, guarded, http, stranger
from tocsin.security.limits import Allowance

OPEN = {(method, path) for method in ("GET", "HEAD") for path in ("/health", "/", "/page/index.html")}
"""The page and its files hold nothing of what happens here."""
PAGE = {"index.html": (b"a page", "text/html", '"1"')}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SECRETS = ("machine.hush", "the-secret-id", "hush-source", "4711", "hidden-consumer", "door.defined")
CLOUD = {"specversion": "1.0", "id": "1", "source": "s", "type": "machine.a"}
QUERIES = {
    "/subscribe": "?filter=TRUE&past=retained",
    "/filters/check": "?filter=TRUE",
    "/filters/test": "?filter=TRUE&past=retained",
    "/history": "?filter=TRUE",
    "/alerts": "?limit=9",
}
BODIES = {"POST": CLOUD, "PUT": {"text": "[type = 'machine.a']"}}


def paths(node: Guarded) -> list[str]:
    """Paths of HTTP, with something in the place of what varies."""
    found = []
    for route in node.server.app.routes:
        assert isinstance(route, Route | WebSocketRoute), "a kind of route that this test does not know"
        if isinstance(route, Route):
            path = route.path.replace("{path:path}", "index.html")
            found.append(re.sub(r"\{[^}]*\}", "the-secret-id", path))
    return sorted(set(found))


async def test_no_route_without_a_token(tmp_path: Path) -> None:
    async with guarded(tmp_path, page=PAGE) as node:
        ends = tocsin.Event("x", "y", time="2026-01-02T00:00:00Z").time
        start = tocsin.Event("x", "y", time="2026-01-01T00:00:00Z").time
        old = node.token("old", "admin", expires=ends, now=start)
        gone = node.token("gone", "admin")
        good = node.token("good", "admin")
        node.store.revoke("gone")
        node.clock.advance(86_400)
        used: set[tuple[str, str]] = set()
        assert (await http(node.url + "/health"))[2] == b'{"status":"ok"}', "how much happens here is not for strangers"
        assert "/health" in paths(node) and len(paths(node)) > 5
        for path in paths(node):
            for method in METHODS:
                body = BODIES.get(method)
                statuses = set()
                for token in (None, "", "x", good[:-1], old, gone):
                    status, headers, answer = await http(node.url + path, method, token, body=body)
                    statuses.add(status)
                    if status == 401:
                        assert headers["WWW-Authenticate"].startswith("Bearer"), (method, path)
                        assert method == "HEAD" or json.loads(answer)["error"] == "UnauthorizedError"
                assert len(statuses) == 1, (method, path, statuses)
                [status] = statuses
                if status == 401:
                    used.add((method, path))
                elif (method, path) in OPEN:
                    assert status == 200, (method, path)
                else:
                    assert status in (404, 405), f"{method} {path} answers {status} to strangers"
        # The same with a token is there: else this test would prove nothing.
        for method, path in sorted(used):
            status = (
                (await http(node.url + path, method, good, body=BODIES.get(method)))[0] if path != "/subscribe" else 200
            )
            assert status not in (401, 403, 405), (method, path, status)
        assert {("POST", "/events"), ("GET", "/events"), ("GET", "/subscribe"), ("GET", "/metrics")} <= used


async def test_no_websocket_without_a_token(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        routes = [route for route in node.server.app.routes if isinstance(route, WebSocketRoute)]
        assert [route.path for route in routes] == ["/bus"], "what does a stranger hear on a new one?"
        async with stranger(node.url, None) as raw:
            await raw.say(op="hello", version=1)
            assert (await raw.hear())["error"]["error"] == "UnauthorizedError" and await raw.end() == 4401


async def test_a_weak_token_learns_nothing(tmp_path: Path) -> None:
    """With a token that may do next to nothing, every route: no secret is in any answer, and nothing has changed."""
    async with guarded(tmp_path) as node:
        await node.bus.define("door.defined", "[type = 'machine.hush']")
        hidden = await node.bus.subscribe("type = 'machine.hush'", "hidden-consumer")
        hush = event("the-secret-id", type="machine.hush", source="hush-source", ack="client", data={"code": "4711"})
        await node.bus.publish(hush)
        weak = node.token("weak", "join:nothing")
        for path in paths(node):
            for method in METHODS:
                where = node.url + path
                if method == "GET":
                    where += QUERIES.get(path, "")
                form = "application/cloudevents+json" if path == "/events" else "application/json"
                status, headers, answer = await http(where, method, weak, body=BODIES.get(method), content_type=form)
                said = f"{answer!r} {headers}"
                if path not in ("/openapi.json", "/") and "the-secret-id" in path:
                    said = said.replace("the-secret-id", "", 1)  # what it has asked for itself
                assert not any(secret in said for secret in SECRETS), (method, path, said)
                if method in ("POST", "PUT", "PATCH", "DELETE"):
                    assert status in (403, 404, 405), (method, path, status)
        assert (await http(node.url + "/metrics", token=weak))[0] == 403
        assert (await http(node.url + "/subscribe", token=weak))[0] == 403
        assert (await node.bus.status("the-secret-id")).state == "live"
        assert [each.name for each in await node.bus.consumers()] == ["hidden-consumer"]
        assert [each.name for each in await node.bus.definitions()] == ["door.defined"]
        await hidden.close()


async def test_reading_the_journal_shows_what_may_be_seen(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        for number, (type, secrecy) in enumerate(
            [
                ("machine.a", "unclassified"),
                ("door.a", "unclassified"),
                ("machine.b", "secret"),
                ("machine.c", "confidential"),
            ]
        ):
            await node.bus.publish(event(str(number), type=type, classification=secrecy))
        await node.bus.advertise("TRUE")  # a record of the node's own
        for rights, clearance, seen in (
            (["subscribe:*"], "top-secret", "0123"),
            (["subscribe:*"], "unclassified", "01"),
            (["subscribe:machine."], "confidential", "03"),
        ):
            token = node.token("reader", *rights, clearance=clearance)
            for system in ("false", "true"):
                status, _, answer = await http(f"{node.url}/events?system={system}", token=token)
                got = [json.loads(line) for line in answer.splitlines()]
                assert status == 200 and "".join(each["id"] for each in got) == seen
        assert (await http(f"{node.url}/events", token=node.token("writer", "publish:*")))[0] == 403
        status, _, answer = await http(f"{node.url}/events?system=true", token=node.token("boss", "admin"))
        assert b"tocsin.advertised" in answer and b"machine.b" not in answer


async def test_rights_by_http(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "publish:machine.", limits=Allowance(events=3))
        structured = {"content_type": "application/cloudevents+json"}
        status, _, _ = await http(node.url + "/events", "POST", token, body={**CLOUD, "type": "door.a"}, **structured)
        assert status == 403
        for id in ("1", "2"):
            status, _, _ = await http(node.url + "/events", "POST", token, body={**CLOUD, "id": id}, **structured)
            assert status == 202
        status, headers, _ = await http(node.url + "/events", "POST", token, body={**CLOUD, "id": "3"}, **structured)
        assert status == 429 and headers["Retry-After"]
        other = {"Tocsin_Name": "b"}
        status, _, _ = await http(node.url + "/events", "POST", token, body=CLOUD, **structured, **other)
        assert status == 403
        assert (await node.bus.audit("1", "s"))[0].who == "a"


async def test_a_token_in_the_url_is_for_streams_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "admin")
        for path in paths(node):
            if ("GET", path) not in OPEN and path != "/subscribe":
                status, _, _ = await http(f"{node.url}{path}?token={token}")
                assert status in (401, 404, 405), path


async def test_a_stream_ends_with_its_token(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "subscribe:machine.")
        host, port = node.url.removeprefix("ws://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET /subscribe?filter=TRUE&token={token} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        async with asyncio.timeout(10):
            assert b"200" in await reader.readline()
            await node.bus.publish_many([event("no", type="door.a"), event("yes", type="machine.a")])
            seen = b""
            while b'"yes"' not in seen:
                seen += await reader.readline()
            assert b'"no"' not in seen
            node.store.revoke("a")
            await reader.read()  # to its end
        writer.close()
        assert node.bus._node.mailboxes == {}


async def test_what_a_revoked_token_has_begun_is_not_finished(tmp_path: Path) -> None:
    """A body may drip in for minutes, and an answer may take as long."""
    async with guarded(tmp_path) as node:
        token = node.token("line", "publish:*", "request:*")
        host, _, port = node.url.rpartition("//")[2].partition(":")
        asked, answer = asyncio.Event(), asyncio.Event()

        async def serve(request: tocsin.Request) -> str:
            asked.set()
            await answer.wait()
            return "4711"

        async with node.bus.serve("params", serve):
            waiting = asyncio.create_task(http(node.url + "/requests/params", "POST", token, body=1))
            await soon(asked.wait())
            reader, writer = await asyncio.open_connection(host, int(port))
            body = json.dumps({**CLOUD, "id": "late"}).encode()
            head = f"authorization: Bearer {token}\r\ncontent-type: application/cloudevents+json"
            writer.write(f"POST /events HTTP/1.1\r\nhost: a\r\n{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode())
            writer.write(body[:9])
            await until(lambda: node.server.http.bodies.held > 0)
            node.store.revoke("line")
            node.server.gate.look()
            writer.write(body[9:])
            assert b"401 Unauthorized" in await soon(reader.readuntil(b"\r\n"))
            writer.close()
            answer.set()
            status, _, said = await soon(waiting)
            assert status == 401 and b"4711" not in said
        status, _, _ = await http(node.url + "/events/late/status", token=node.token("admin", "admin"))
        assert status == 404


async def test_callers_of_requests_go_out_again(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("a", "admin", limits=Allowance(connections=2))
        for _ in range(10):
            assert (await http(node.url + "/alerts", token=token))[0] == 200

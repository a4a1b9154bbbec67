"""Who is let in by HTTP: tokens in their places, rights on every route, revocation ends what lasts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.helpers import event
from tests.http.support import ARROW, STRUCTURED, cloud, listening, served, until
from tocsin.errors import ForbiddenError, TocsinError
from tocsin.net.http.answers import status_of
from tocsin.net.http.table import OPERATIONS
from tocsin.security.tokens import TokenStore


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "tokens.json")


OPEN = ("/health", "/", "/page/{path:path}")
"""Routes that show nothing of what happens here."""


async def test_no_route_but_few_is_open(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    tokens.add("ann", ["admin"])
    async with served(tokens=tokens) as place:
        for operation in OPERATIONS:
            path = operation.path.replace(":path", "").format(id="a", name="a", resource="a", path="a")
            for headers in ({}, bearer("wrong"), {"authorization": "Basic YTpi"}):
                answer = await place.ask(operation.method, path, headers={**STRUCTURED, **headers})
                if operation.is_open:
                    assert operation.path in OPEN and answer.status in (200, 404)
                else:
                    assert answer.error == (401, "UnauthorizedError"), operation.path
                    assert answer.headers["www-authenticate"] == "Bearer"


async def test_token_in_the_query_is_for_streams_only(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    secret = tokens.add("ann", ["subscribe:*"])[0]
    async with served(tokens=tokens) as place:
        async with listening(place, f"token={secret}") as stream:
            await place.bus.publish(event("a"))
            assert await stream.take(1) == ["a"]
        assert (await place.get(f"/events?token={secret}")).error == (401, "UnauthorizedError")


async def test_rights_bind_on_every_way(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    secret = tokens.add("ann", ["publish:a.", "subscribe:a."])[0]
    blind = tokens.add("bob", ["publish:*"])[0]
    async with served(tokens=tokens) as place:
        headers = {**STRUCTURED, **bearer(secret)}
        assert (await place.ask("POST", "/events", cloud("1", type="a.x"), headers)).status == 202
        assert (await place.ask("POST", "/events", cloud("2", type="b.x"), headers)).error == (403, "ForbiddenError")
        assert (await place.ask("GET", "/metrics", headers=headers)).error == (403, "ForbiddenError")
        assert (await place.ask("PUT", "/definitions/x", {"text": "[type = 'a.x']"}, headers)).status == 403
        await place.bus.publish_many([event("3", type="b.x"), event("4", type="a.y"), event("5", type="tocsinic")])
        lines = (await place.ask("GET", "/events", headers=headers)).body.splitlines()
        assert [json.loads(line)["id"] for line in lines] == ["1", "4"]
        answer = await place.ask("GET", "/events?system=true", headers={**headers, **ARROW})
        assert pa.ipc.open_stream(answer.body).read_all()["id"].to_pylist() == ["1", "4"]
        assert (await place.ask("GET", "/events/3/status", headers=headers)).error == (404, "UnknownEventError")
        async with listening(place, "past=10", **bearer(secret)) as stream:
            assert await stream.take(2) == ["1", "4"]
        assert (await place.ask("GET", "/events", headers=bearer(blind))).error == (403, "ForbiddenError")
        assert (await place.ask("GET", "/subscribe", headers=bearer(blind))).error == (403, "ForbiddenError")
        other = {**headers, "Tocsin-Name": "bob"}
        assert (await place.ask("GET", "/alerts", headers=other)).error == (403, "ForbiddenError")


async def test_revoked_token_ends_its_streams(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    secret, token = tokens.add("ann", ["subscribe:*"])
    async with served(tokens=tokens) as place, listening(place, "consumer=ops", **bearer(secret)) as stream:
        await place.bus.publish(event("a"))
        assert await stream.take(1) == ["a"]
        tokens.revoke(token.id)
        place.server.gate.look()
        assert await stream.rest() == [] and "revoked" in stream.comments[-1]
        await until(lambda: not place.server.http.streams)
        assert (await place.ask("GET", "/alerts", headers=bearer(secret))).status == 401


async def test_faces_are_closed_after_each_request() -> None:
    async with served() as place:
        sessions: list[Any] = []
        admit = place.server.gate.admit

        def noted(*args: Any) -> Any:
            sessions.append(admit(*args))
            return sessions[-1]

        place.server.gate.admit = noted  # type: ignore[method-assign]
        await place.get("/alerts")
        await place.get("/events?from=x")
        await place.publish(cloud("a"))
        async with listening(place):
            pass
        await until(lambda: len(sessions) == 4 and all(each.is_gone for each in sessions))


def test_every_error_has_a_status() -> None:
    kinds: list[type[TocsinError]] = [TocsinError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    for kind in kinds:
        error = kind.__new__(kind)
        TocsinError.__init__(error, "x")
        assert 400 <= status_of(error) < 600 and status_of(error) != 500, kind
    assert status_of(ForbiddenError("x")) == 403

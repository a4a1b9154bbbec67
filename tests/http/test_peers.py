"""`GET /sessions`, `/resources` and `/figures`: who is there and what happens, for whoever may know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tocsin
from tests.helpers import event, testing
from tests.http.support import Place, listening, served
from tests.http.test_access import bearer, store


async def asked(place: Place, path: str, secret: str = "") -> Any:
    answer = await place.ask("GET", path, headers=bearer(secret) if secret else {})
    assert answer.status == 200, answer.body
    return answer.json


async def test_sessions_with_all_that_belongs_to_them() -> None:
    async with served(clock=testing.ManualClock()) as place, tocsin.connect(place.server.url, name="line-7") as far:
        await far.advertise("type = 'machine.value'")
        sub = await far.subscribe("n > 1")
        await place.bus.advertise("TRUE")
        async with far.serve("params/m7", lambda request: 1), far.join("line"), listening(place, "", tocsin_name="ann"):
            found = {each["name"]: each for each in await asked(place, "/sessions")}
            assert found.keys() == {"line-7", "ann", place.bus.name}
            assert found["line-7"] == {
                "name": "line-7",
                "kind": "ws",
                "since": "2026-01-01T00:00:00Z",
                "address": "127.0.0.1",
                "advertises": ["type = 'machine.value'"],
                "serves": ["params/m7"],
                "groups": ["line"],
                "subscriptions": 1,
            }
            assert (found["ann"]["kind"], found["ann"]["subscriptions"]) == ("http", 1)
            assert (found[place.bus.name]["kind"], found[place.bus.name]["advertises"]) == ("node", ["TRUE"])
            assert await asked(place, "/resources") == [
                {"resource": "type = 'machine.value'", "served": False, "by": ["line-7"]},
                {"resource": "TRUE", "served": False, "by": [place.bus.name]},
                {"resource": "params/m7", "served": True, "by": ["line-7"]},
            ]
        await sub.close()


async def test_a_resource_of_two_is_one_with_two_names() -> None:
    async with served() as place, tocsin.connect(place.server.url, name="a") as a:
        await a.advertise("TRUE")
        await place.bus.advertise("true")
        assert await asked(place, "/resources") == [{"resource": "TRUE", "served": False, "by": ["a", place.bus.name]}]


async def test_a_token_shows_its_own(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    boss = tokens.add("boss", ["admin"])[0]
    ann = tokens.add("ann", ["subscribe:a.", "request:a/", "join:a"])[0]
    bob = tokens.add("bob", ["publish:*", "serve:*", "join:*"])[0]
    hears = tokens.add("guard", ["subscribe:tocsin.session"])[0]
    async with (
        served(tokens=tokens) as place,
        tocsin.connect(place.server.url, token=bob) as far,
        tocsin.connect(place.server.url, token=ann),
    ):
        await far.advertise("type = 'a.x'")
        await far.advertise("type = 'b.x'")
        async with far.serve("a/1", lambda request: 1), far.serve("b/1", lambda request: 1), far.join("a"):
            found = await asked(place, "/sessions", ann)
            assert [each["name"].partition("/")[0] for each in found] == ["ann"]
            assert found[0]["address"] is None
            assert [each["resource"] for each in await asked(place, "/resources", ann)] == ["type = 'a.x'", "a/1"]
            [bobs] = [each for each in await asked(place, "/sessions", hears) if each["name"].startswith("bob")]
            assert (bobs["advertises"], bobs["serves"], bobs["groups"]) == ([], [], [])
            [bobs] = [each for each in await asked(place, "/sessions", boss) if each["name"].startswith("bob")]
            assert bobs["advertises"] == ["type = 'a.x'", "type = 'b.x'"] and bobs["address"] == "127.0.0.1"
            assert (bobs["serves"], bobs["groups"]) == (["a/1", "b/1"], ["a"])


async def test_figures_are_those_of_the_node(tmp_path: Path) -> None:
    clock = testing.ManualClock()
    tokens = store(tmp_path)
    async with served(f"file:{tmp_path}/a.db", clock=clock, tokens=tokens) as place:
        sub = await place.bus.subscribe("TRUE", "ops")
        await place.bus.publish_many([event(str(n)) for n in range(30)])
        await testing.settled(place.bus)
        await (await sub.next()).ack()
        found = await asked(place, "/figures")
        node = found["node"]
        assert {name: node[name] for name in ("head", "oldest_offset", "published", "delivered", "settled")} == {
            "head": 30, "oldest_offset": 1, "published": 30, "delivered": 1, "settled": 1,
        }  # fmt: skip
        assert (node["events_per_second"], node["redelivered"], node["waiting_to_commit"]) == (3.0, 0, 0)
        assert node["bytes_on_disk"] > 0
        assert (found["lanes"], found["mailboxes"], found["matcher"]["filters"]) == (1, 1, 1)
        clock.advance(11)
        assert (await asked(place, "/figures"))["node"]["events_per_second"] == 0
        weak = tokens.add("ann", ["subscribe:*"])[0]
        assert (await place.ask("GET", "/figures", headers=bearer(weak))).error == (403, "ForbiddenError")

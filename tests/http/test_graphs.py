"""Composite events for the eye: graphs with what they hold, what waits, and why something was detected."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from tests.helpers import START, event, testing
from tests.http.support import Place, served
from tests.http.test_access import bearer, store
from tocsin.model import time_text

PAIR = "SEQ([type = 'a.x'] AS a, [type = 'b.x'] AS b) WITHIN 1 MINUTE BY k"


async def asked(place: Place, path: str, secret: str = "") -> Any:
    answer = await place.ask("GET", path, headers=bearer(secret) if secret else {})
    assert answer.status == 200, answer.body
    return answer.json


async def fed(place: Place, *types: str, **more: Any) -> None:
    for number, type in enumerate(types):
        await place.bus.publish(event(f"{type}{number}{more}", type=type, data={"k": number}, **more))
    await testing.settled(place.bus)


async def test_graphs_show_what_is_open() -> None:
    async with served() as place:
        await place.bus.define("pair", PAIR, "chronicle")
        await place.bus.define("late", "SEQ(pair, [type = 'c.x']) BY k")
        await fed(place, "a.x", "a.x")
        answer = await place.get("/definitions/pair/graph")
        assert (answer.status, answer.headers["content-type"]) == (200, "image/svg+xml")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        root = ET.fromstring(answer.body)
        texts = "\n".join(root.itertext())
        assert "2 open\n" in texts and "0 expired, 0 dropped" in texts and "late" not in texts
        assert [each.get("class") for each in root.iter() if "waits" in each.get("class", "")] == [
            "node operation waits"
        ]
        assert b"late BY k" in (await place.get("/definitions/late/graph?format=text")).body
        dot = await place.get("/definitions/late/graph?format=dot")
        assert dot.body.startswith(b"digraph") and dot.headers["content-type"] == "text/vnd.graphviz; charset=utf-8"
        assert (await place.get("/definitions/nobody/graph")).error == (404, "DefinitionError")
        assert (await place.get("/definitions/pair/graph?format=png")).error == (400, "ProtocolError")


async def test_what_waits_says_for_what() -> None:
    clock = testing.ManualClock()
    async with served(clock=clock) as place:
        await place.bus.define("pair", PAIR, "chronicle")
        await fed(place, "a.x", "a.x", "a.x")
        found = await asked(place, "/definitions/pair/waiting?limit=2")
        assert (found["placement"], found["known"], found["total"], len(found["waiting"])) == ("node", True, 3, 2)
        first = found["waiting"][0]
        assert (first["key"], first["offsets"], first["wants"]) == ({"k": 0}, [1], ["[type = 'b.x'] AS b"])
        assert (first["since"], first["expires"]) == (time_text(START), time_text(START.replace(minute=1)))
        await place.bus.define("elsewhere", "SEQ([type = 'a.x'], [type = 'b.x'])", placement="spark")
        found = await asked(place, "/definitions/elsewhere/waiting")
        assert found == {"placement": "spark", "known": False, "waiting": [], "total": 0}
        assert b" expired, " not in (await place.get("/definitions/elsewhere/graph")).body
        assert (await place.get("/definitions/nobody/waiting")).error == (404, "DefinitionError")


async def test_why_an_event_is_there() -> None:
    clock = testing.ManualClock()
    async with served(clock=clock) as place:
        await place.bus.define("pair", PAIR, "chronicle")
        [info] = await asked(place, "/definitions")
        assert info["last"] is None
        await fed(place, "a.x")
        clock.advance(3)
        await fed(place, "b.x")
        [info] = await asked(place, "/definitions")
        assert (info["detected"], info["last"]) == (1, time_text(START.replace(second=3)))
        [made] = (await asked(place, "/filters/test?filter=type%3D'pair'"))["examples"]
        found = await asked(place, f"/events/{made['id']}/explanation?source={made['source']}")
        assert (found["name"], found["definition"], found["context"]) == ("pair", PAIR, "chronicle")
        assert (found["key"], found["span"], found["within"], found["total"]) == ({"k": 0}, 3, 60, 2)
        assert [(part["role"], part["event"]["type"]) for part in found["parts"]] == [
            ("opener", "a.x"),
            ("closer", "b.x"),
        ]
        assert found["where"] is None
        assert found["completed_by"]["offset"] == 2 and found["steps"][0]["rule"] == found["rule"]
        assert found["text"].count("\n") > 3
        assert (await place.get("/events/nothing/explanation")).error == (404, "UnknownEventError")
        assert (await place.get(f"/events/{made['id']}/explanation?source=x")).error == (404, "UnknownEventError")


async def test_the_condition_is_part_of_why() -> None:
    async with served() as place:
        text = "SEQ([type = 'a.x'] AS a, [type = 'b.x'] AS b) WHERE a.k = b.k"
        await place.bus.define("same", text)
        await fed(place, "a.x")
        await fed(place, "b.x")
        [made] = (await asked(place, "/filters/test?filter=type%3D'same'"))["examples"]
        assert (await asked(place, f"/events/{made['id']}/explanation"))["where"] == "a.k = b.k"


async def test_a_token_sees_what_it_may_read(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    both = tokens.add("ann", ["subscribe:*"])[0]
    cleared = tokens.add("eve", ["subscribe:*"], clearance="secret")[0]
    some = tokens.add("bob", ["subscribe:c.", "subscribe:pair", "subscribe:late"])[0]
    blind = tokens.add("cid", ["publish:*"])[0]
    async with served(tokens=tokens) as place:
        await place.bus.define("pair", PAIR, "chronicle")
        await place.bus.define("late", "SEQ(pair, [type = 'c.x'])")
        await fed(place, "a.x", "a.x")
        await fed(place, "b.x", classification="secret")
        await fed(place, "a.x", classification="secret")
        for secret, keys in ((both, [{"k": 1}]), (cleared, [{"k": 1}, {"k": 0}])):
            found = await asked(place, "/definitions/pair/waiting", secret)
            assert [each["key"] for each in found["waiting"]] == keys
        [made] = (await asked(place, "/filters/test?filter=type%3D'pair'", cleared))["examples"]
        paths = ("/definitions/pair/graph", "/definitions/late/graph", "/definitions/late/waiting")
        for path in (*paths, f"/events/{made['id']}/explanation"):
            statuses = [(await place.ask("GET", path, headers=bearer(each))).status for each in (cleared, some, blind)]
            # `some` may read `late`, but not what it is made of; it may hear of `pair`, but not of what is secret.
            assert statuses == [200, 403 if "late" in path else 404, 404], path
        assert (await place.ask("GET", f"/events/{made['id']}/explanation", headers=bearer(both))).status == 404

"""`GET /metrics`: names, what they count, and that neither time nor strangers make them many."""

from __future__ import annotations

import asyncio
import re

from prometheus_client.parser import text_string_to_metric_families

from tests.helpers import event, heard, numbered, testing
from tests.http.node import ROOT
from tests.http.support import Place, cloud, listening, served, until

Figures = dict[tuple[str, ...], float]


async def figures(place: Place) -> Figures:
    """Every figure by its name and labels."""
    answer = await place.get("/metrics")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            found[sample.name, *(sample.labels[name] for name in sorted(sample.labels))] = sample.value
    return found


async def test_figures_follow_what_happens() -> None:
    clock = testing.ManualClock()
    async with served(clock=clock) as place:
        await place.bus.define("pair", "SEQ([type = 'alarm'], [type = 'alarm'])")
        sub = await place.bus.subscribe("type = 'alarm'", consumer="ops")
        await place.bus.publish_many([*numbered(3), event("brief", ttl=1)])
        await testing.settled(place.bus)
        before = await figures(place)
        assert before["tocsin_consumer_lag", "ops"] == 4 and before["tocsin_definitions",] == 1
        clock.advance(5)
        assert len(await heard(place.bus, sub)) == 3
        await place.publish(cloud("last"))
        async with listening(place):
            after = await figures(place)
            assert after["tocsin_streams",] == 1
        head = place.server.node.head
        assert after["tocsin_journal_head",] == head == after["tocsin_events_published_total",]
        assert after["tocsin_events_delivered_total",] == after["tocsin_events_settled_total",] == 3
        assert after["tocsin_events_expired_total",] == 1 and after["tocsin_events_redelivered_total",] == 0
        assert after["tocsin_consumer_lag", "ops"] == after["tocsin_consumer_in_flight", "ops"] == 0
        assert after["tocsin_detected_total",] > 0 and after["tocsin_matcher_filters",] >= 1
        assert after["tocsin_http_requests_total", "POST", "/events", "202"] == 1
        assert after["tocsin_http_requests_total", "GET", "/metrics", "200"] == 1


async def test_totals_do_not_fall_when_a_consumer_goes() -> None:
    async with served() as place:
        sub = await place.bus.subscribe("TRUE", consumer="ops")
        await place.bus.publish_many(numbered(3))
        await heard(place.bus, sub)
        before = await figures(place)
        await place.bus.forget("ops")
        after = await figures(place)
        assert after["tocsin_events_settled_total",] == before["tocsin_events_settled_total",] == 3
        assert ("tocsin_consumer_lag", "ops") not in after
        assert (await figures(place))["tocsin_events_settled_total",] == 3


async def test_who_came_and_went_between_two_looks_is_counted() -> None:
    async with served() as place:
        sub = await place.bus.subscribe("TRUE")
        await place.bus.publish_many(numbered(3))
        await heard(place.bus, sub)
        await sub.close()
        found = await figures(place)
        assert found["tocsin_events_delivered_total",] == found["tocsin_events_settled_total",] == 3
        assert found["tocsin_consumers",] == 0


async def test_strangers_cannot_make_them_many() -> None:
    async with served() as place:
        for number in range(150):
            await place.bus.subscribe("TRUE", consumer=f"c{number}")
        for number in range(20):
            await place.get(f"/nowhere/{number}")
            await place.get(f"/events/{number}/status")
        found = await figures(place)
        assert sum(name[0] == "tocsin_consumer_lag" for name in found) == 100
        assert found["tocsin_consumers",] == 150
        assert sum(name[0] == "tocsin_http_requests_total" for name in found) <= 3


async def test_loop_lag_is_seen() -> None:
    async with served() as place:
        await figures(place)
        lag = place.server.http.lag

        def hold_up() -> None:
            end = asyncio.get_running_loop().time() + 0.2
            while asyncio.get_running_loop().time() < end:
                pass

        asyncio.get_running_loop().call_at(lag._due - 0.05, hold_up)
        await until(lambda: lag._worst > 0.1)
        assert (await figures(place))["tocsin_loop_lag_worst_seconds",] > 0.1


async def test_all_names_are_ours_and_documented() -> None:
    async with served() as place:
        text = (await place.get("/metrics")).body.decode()
        names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        page = (ROOT / "docs" / "HTTP.md").read_text()
        assert names and all(name.startswith("tocsin_") for name in names)
        assert not [name for name in names if f"`{name}`" not in page]

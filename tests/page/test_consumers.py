"""Consumers on the page: how far behind each is, and who needs an eye."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import Node
from tocsin import Event

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def test_a_slow_consumer_stands_out_with_what_it_is_behind(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "consumers")
    row = page.locator('[data-consumer="ops"]')
    with tocsin.sync.connect(node.ws) as bus:
        least, window = next((each.lag, each.max_in_flight) for each in bus.consumers() if each.name == "ops")
        measures = row.locator(".measure strong")
        sync_api.expect(measures).to_have_count(3)
        page.wait_for_function(
            "least => Number(document.querySelector('[data-consumer=ops] strong').innerText) >= least", arg=least
        )
        assert f"/ {window}" in measures.nth(1).inner_text()
        most = next(each.lag for each in bus.consumers() if each.name == "ops")
        assert least <= int(measures.first.inner_text().replace(",", "")) <= most + 1
    assert row.locator("svg.sparkline").get_attribute("aria-label").endswith("now")
    row.get_by_role("button").focus()
    page.keyboard.press("Enter")
    sync_api.expect(row.locator(".facts")).to_contain_text("urgent first")
    row.get_by_role("button", name="Test it").click()
    sync_api.expect(page.locator("h1")).to_have_text("Tester")
    sync_api.expect(page.locator("#filter")).to_have_value("value > 9")


def test_what_comes_again_is_counted_and_marked(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "consumers")
    with tocsin.sync.connect(node.ws, name="mender") as bus:
        flaky = bus.subscribe("type = 'torn'", consumer="flaky", timeout=10)
        row = page.locator('[data-consumer="flaky"]')
        sync_api.expect(row.locator(".measure strong").nth(2)).to_have_text("0")
        bus.publish(Event("torn", "belt/1"))
        flaky.next(10).nak()
        flaky.next(10).nak()
        last = flaky.next(10)
        sync_api.expect(row.locator(".measure strong").nth(2)).to_have_text("2")
        sync_api.expect(row).to_contain_text("redelivering")
        page.get_by_label("Find a consumer").fill("FLA")
        sync_api.expect(page.locator("[data-consumer]")).to_have_count(1)
        last.ack()
        flaky.close()
        sync_api.expect(row).to_contain_text("away")
        bus.forget("flaky")
        sync_api.expect(row).to_have_count(0)


def test_who_waits_for_a_spark_that_is_not_there_is_marked(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "consumers")
    with tocsin.sync.connect(node.ws) as bus:
        bus.subscribe("type = 'torn'", consumer="far", placement="spark")
        sync_api.expect(page.locator('[data-consumer="far"]')).to_contain_text("waits for Spark")
        bus.forget("far")

"""The tester on the page: would this filter have matched?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import Node
from tocsin import Event

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def test_it_says_how_often_when_and_what(node: Node, visit: Callable[..., Any]) -> None:
    with tocsin.sync.connect(node.ws) as bus:
        bus.publish_many([Event("pump.leak", "cellar", data={"litres": litres}) for litres in (3, 5, 8)])
    page = visit(node, "tester")
    sync_api.expect(page.locator(".verdict")).to_contain_text("everything matches")
    page.locator("#filter").fill("type = 'pump.leak' AND litres > 4")
    sync_api.expect(page.locator(".verdict")).to_contain_text("Yes. It matches 2 events of the last hour.")
    rows = page.locator(".event-list [role=row]")
    sync_api.expect(rows).to_have_count(2)
    assert ["litres 8" in rows.first.inner_text(), "litres 5" in rows.last.inner_text()] == [True, True]
    picture = page.locator(".histogram svg").get_attribute("aria-label")
    assert re.search(r"[\d,]+ events, of which 2 match", picture), picture
    rows.first.focus()
    page.keyboard.press("Enter")
    sync_api.expect(page.locator(".drawer")).to_contain_text("pump.leak")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Listen to this").click()
    sync_api.expect(page.locator("h1")).to_have_text("Live")
    sync_api.expect(page.locator("#filter")).to_have_value("type = 'pump.leak' AND litres > 4")


def test_it_says_no_and_where_a_filter_is_wrong(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "tester?filter=value+%3E+1000")
    sync_api.expect(page.locator(".verdict")).to_contain_text("No. No event of the last hour matches")
    page.get_by_role("button", name="Last 100").click()
    sync_api.expect(page.locator(".verdict")).to_contain_text("No. No event")
    page.locator("#filter").fill("value > > 9")
    sync_api.expect(page.locator(".filterbox-error")).to_contain_text("at character 9")
    sync_api.expect(page.locator(".verdict")).to_contain_text("No.")  # the last answer stays
    assert all("400" in each for each in page.complaints)
    page.complaints.clear()

"""The live stream: filters and their errors, holding still, one event in full, and a node that starts again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import ARTEFACTS, Node, node_in
from tocsin import Event, Filter, FilterError

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ROWS = ".events-room .event-row"


def test_a_bad_filter_shows_its_position_and_a_good_one_filters(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node)
    sync_api.expect(page.locator(ROWS).first).to_be_visible()
    bad = "type = 'machine.value' AND value >> 9"
    page.locator("#filter").fill(bad)
    error = page.locator(".filterbox-error")
    sync_api.expect(error).to_contain_text("'>>' is not part of the filter language")
    with pytest.raises(FilterError) as refused:
        Filter(bad)
    assert refused.value.position == bad.index(">>")
    sync_api.expect(error).to_contain_text(f"at character {bad.index('>>') + 1}")
    page.screenshot(path=ARTEFACTS / "filter-error.png")
    mark = page.locator(".filterbox-caret span").bounding_box()
    box = page.locator("#filter").bounding_box()
    letter = page.evaluate(
        """() => { const brush = document.createElement("canvas").getContext("2d");
                   brush.font = getComputedStyle(document.querySelector("#filter")).font;
                   return brush.measureText("0").width; }"""
    )
    middle = box["x"] + (bad.index(">>") + 0.5) * letter
    assert abs(mark["x"] + mark["width"] / 2 - middle) < letter, "the mark is under the letter that is meant"
    assert all("400" in each for each in page.complaints), "the browser itself notes that answer"
    page.complaints.clear()

    page.locator("#filter").fill("value > 9 AND type = 'machine.value'")
    sync_api.expect(error).to_have_count(0)
    sync_api.expect(page.locator(ROWS).first).to_contain_text("value 9")
    assert "filter=value" in page.url, "the address can be kept and sent to others"
    for words in page.locator(ROWS).all_inner_texts():
        assert "machine.value" in words


def test_what_is_held_stands_still_and_what_comes_is_counted(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node)
    sync_api.expect(page.locator(ROWS).first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    held = page.locator(ROWS).all_inner_texts()
    sync_api.expect(page.get_by_test_id("held")).to_contain_text("newer")
    assert page.locator(ROWS).all_inner_texts() == held
    page.get_by_test_id("held").click()
    sync_api.expect(page.get_by_test_id("held")).to_have_count(0)
    sync_api.expect(page.locator(ROWS).first).not_to_have_text(held[0])


def test_a_row_opens_to_all_that_is_known(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "live?filter=type%20%3D%20%27machine.cycle%27")
    page.locator(ROWS).first.click()
    drawer = page.locator(".drawer")
    sync_api.expect(drawer.locator("h2")).to_have_text("machine.cycle")
    sync_api.expect(drawer.locator(".explained")).to_contain_text("machine.start")
    sync_api.expect(drawer.locator(".json").first).to_contain_text('"parts"')
    sync_api.expect(drawer.locator(".trail")).to_contain_text("published")
    page.screenshot(path=ARTEFACTS / "drawer-wide-light.png")
    page.keyboard.press("Escape")
    sync_api.expect(drawer).to_have_count(0)


def test_the_page_goes_on_when_the_node_is_back(browser: Any, tmp_path: Path, visit: Callable[..., Any]) -> None:
    with node_in(tmp_path) as node:
        page = visit(node, "alerts", operator="dora")
        sync_api.expect(page.locator(".empty")).to_contain_text("tocsin pub valve.stuck")
        page.screenshot(path=ARTEFACTS / "alerts-empty.png")
        page.locator(".brand").click()
        sync_api.expect(page.locator(".empty")).to_contain_text("No events yet")
        page.screenshot(path=ARTEFACTS / "live-empty.png")
        with tocsin.sync.connect(node.ws, name="tests") as bus:
            bus.publish(Event("before", "tests", ttl=600, ack="client"))
        sync_api.expect(page.locator(ROWS)).to_have_count(1)
        code, _ = node.end()
        assert code == 0
        sync_api.expect(page.locator(".banner")).to_contain_text("The node does not answer")
        sync_api.expect(page.locator(".connection-state")).to_contain_text("Reconnecting")
        node.start()
        sync_api.expect(page.locator(".connection-state")).to_have_text("Connected", timeout=20_000)
        with tocsin.sync.connect(node.ws, name="tests") as bus:
            bus.publish(Event("after", "tests"))
            sync_api.expect(page.locator(ROWS)).to_have_count(2)  # the one before is there once
            sync_api.expect(page.locator(ROWS).first).to_contain_text("after")
            page.goto(f"{node.http}#alerts")
            page.get_by_role("button", name="Ack", exact=True).click()  # it came again, on the new connection
            sync_api.expect(page.locator(".alert")).to_contain_text("by you")
            [alert] = bus.alerts()
            assert alert.acked == ["dora"]
        page.context.close()
    assert all("ERR_CONNECTION_REFUSED" in each or "WebSocket" in each for each in page.complaints), page.complaints
    page.complaints.clear()

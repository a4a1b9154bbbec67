"""Definitions on the page: drawn, with what waits in them, explained; made and removed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import ARTEFACTS, Node
from tocsin import DefinitionError, Detector, Event

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BREAK_IN = "NOT([type = 'door.open'] AS o, [type = 'badge'] AS b, [type = 'motion'] AS m) WITHIN 2 MINUTES BY door"


def test_a_definition_is_drawn_and_its_detections_say_why(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "definitions?name=machine.cycle", theme="dark")
    graph = page.get_by_label("Event graph of machine.cycle")
    sync_api.expect(graph).to_contain_text("SEQ")
    sync_api.expect(graph).to_contain_text("WITHIN 1 MINUTE")
    leaf = graph.locator(".leaf rect").first
    accent = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--accent')")
    assert leaf.evaluate("e => getComputedStyle(e).stroke") == page.evaluate(
        "colour => { const e = document.createElement('i'); e.style.color = colour; document.body.append(e);"
        " const found = getComputedStyle(e).color; e.remove(); return found; }",
        accent,
    ), "the drawing wears the colours of the page"
    why = page.locator(".detection").first.get_by_role("button", name="Why?")
    why.click()
    explained = page.locator(".explained")
    sync_api.expect(explained.locator(".part")).to_have_count(2)
    sync_api.expect(explained).to_contain_text("Why not earlier?")
    with tocsin.sync.connect(node.ws) as bus:
        found = bus.explain(explained.get_attribute("data-explained"))
    assert found.rule in explained.inner_text() and found.missing in explained.inner_text()
    page.screenshot(path=ARTEFACTS / "definition-explained.png")


def test_one_is_made_after_a_mistake_lives_and_is_removed(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "definitions")
    page.get_by_role("button", name="Define a new one").click()
    wrong = BREAK_IN.replace("WITHIN 2", "WITHIN two")
    page.get_by_label("Name").fill("break_in")
    page.get_by_label("Context").select_option("chronicle")
    page.get_by_label("Placement").select_option("node")
    page.locator(".define-text").fill(wrong)
    page.get_by_role("button", name="Define", exact=True).click()
    with pytest.raises(DefinitionError) as refused:
        Detector().define("break_in", wrong)
    error = page.locator(".define-error")
    sync_api.expect(error).to_contain_text(f"at character {refused.value.position + 1}")
    line, mark = error.locator("pre").inner_text().split("\n")
    assert line == wrong and mark.index("▲") == refused.value.position
    assert all("400" in each for each in page.complaints)
    page.complaints.clear()

    page.locator(".define-text").fill(BREAK_IN)
    sync_api.expect(error).to_have_count(0)
    page.get_by_role("button", name="Define", exact=True).click()
    shown = page.locator('[data-shown="break_in"]')
    sync_api.expect(shown).to_contain_text("chronicle: the oldest opener is used, and used up")
    with tocsin.sync.connect(node.ws) as bus:
        bus.publish(Event("door.open", "hall", data={"door": 7}))
        sync_api.expect(shown.get_by_role("table", name="Half detected")).to_contain_text("door 7")
        sync_api.expect(shown.locator(".tocsin-graph .waits")).to_contain_text("1 open")
        bus.publish(Event("motion", "hall", data={"door": 7}))
    sync_api.expect(shown.locator(".detection")).to_contain_text("door 7")
    sync_api.expect(shown).to_contain_text("Nothing is open")
    sync_api.expect(page.locator('[data-definition="break_in"]')).to_contain_text("1 detected")

    shown.get_by_role("button", name="Undefine").click()
    sync_api.expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    sync_api.expect(page.get_by_role("dialog")).to_have_count(0)
    shown.get_by_role("button", name="Undefine").click()
    page.get_by_role("dialog").get_by_role("button", name="Undefine").click()
    sync_api.expect(page.locator('[data-definition="break_in"]')).to_have_count(0)
    with tocsin.sync.connect(node.ws) as bus:
        assert "break_in" not in {each.name for each in bus.definitions()}


def test_what_only_spark_knows_is_not_shown_as_nothing(node: Node, visit: Callable[..., Any]) -> None:
    with tocsin.sync.connect(node.ws) as bus:
        bus.define("far", "SEQ([type = 'far.a'] AS a, [type = 'far.b'] AS b) WITHIN 1 MINUTE", placement="spark")
        page = visit(node, "definitions?name=far")
        sync_api.expect(page.locator('[data-shown="far"] .stats')).to_contain_text("known to Spark only")
        sync_api.expect(page.locator('[data-definition="far"]')).not_to_contain_text("wait")
        bus.undefine("far")


def test_a_graph_fits_its_frame(node: Node, visit: Callable[..., Any]) -> None:
    step = "[type = 'machine.value'] AS {}"
    text = f"SEQ({step.format('a')}, {step.format('b')}, {step.format('c')}) WITHIN 5 SECONDS BY machine"
    with tocsin.sync.connect(node.ws) as bus:
        bus.define("long_way", f"{text} WHERE b.value > a.value + 100 AND c.value > b.value + 100")
        page = visit(node, "definitions?name=long_way")
        sync_api.expect(page.get_by_label("Event graph of long_way")).to_contain_text("WHERE")
        frame = page.locator(".graph")
        assert frame.evaluate("it => it.scrollWidth <= it.clientWidth"), "what it is for is at the right edge"
        bus.undefine("long_way")


def test_on_a_phone_one_goes_into_a_definition_and_back(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "definitions", width="narrow")
    line = page.locator('[data-definition="machine.cycle"]')
    line.click()
    sync_api.expect(line).to_be_hidden()
    sync_api.expect(page.get_by_label("Event graph of machine.cycle")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.screenshot(path=ARTEFACTS / "definition-narrow.png")
    page.get_by_role("button", name="All definitions").click()
    sync_api.expect(line).to_be_visible()

"""Without a mouse: everything can be reached, seen in focus, and left again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.page.support import Node

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

FOCUSED = """() => {
  const outlined = (each) => {
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(each);
    return (outlineStyle !== "none" && parseFloat(outlineWidth) >= 1) || boxShadow !== "none";
  };
  const it = document.activeElement;
  const name = (it.getAttribute("aria-label") || it.innerText || it.id).trim();
  const boxes = [it, it.parentElement, it.parentElement?.parentElement].filter(Boolean);
  return [it.tagName, name, boxes.some(outlined)];
}"""
"""What has the focus, and whether that is drawn on it or on the box that it stands in."""


def test_tab_goes_through_everything_and_shows_where_it_is(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node)
    sync_api.expect(page.locator(".events-room .event-row").first).to_be_visible()
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        tag, name, is_shown = page.evaluate(FOCUSED)
        if tag == "BODY":
            break
        assert is_shown, f"no visible focus on {tag} {name}"
        seen.append(name)
    text = "\n".join(seen)
    for part in ("To the content", "Live", "Peers", "Your name?", "Keys", "Theme", "Pause", "Filter", "machine."):
        assert part in text, (part, seen)


def test_keys_lead_to_panels_rows_and_back(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node)
    rows = page.locator(".events-room .event-row")
    sync_api.expect(rows.first).to_be_visible()
    page.keyboard.press("/")
    sync_api.expect(page.locator("#filter")).to_be_focused()
    page.keyboard.type("value > 0 AND type = 'machine.value'")
    sync_api.expect(page).to_have_url(re.compile("machine.value"))
    sync_api.expect(rows.first).to_contain_text("machine.value")
    page.keyboard.press("Tab")  # the button that clears it
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.role") == "row":
            break
    sync_api.expect(rows.first).to_be_focused()
    sync_api.expect(page.get_by_test_id("held")).to_be_visible()  # rows do not run away under the finger
    page.keyboard.press("ArrowDown")
    sync_api.expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    sync_api.expect(page.locator(".drawer")).to_be_focused()
    page.keyboard.press("Escape")
    sync_api.expect(page.locator(".drawer")).to_have_count(0)
    sync_api.expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("a")
    sync_api.expect(page.locator("h1")).to_have_text("Alerts")


def test_a_question_mark_shows_the_keys(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "alerts")
    sync_api.expect(page.locator("h1")).to_have_text("Alerts")
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    for words in ("to the filter", "to Pipeline", "closes what is open"):
        sync_api.expect(sheet).to_contain_text(words)
    page.keyboard.press("Escape")
    sync_api.expect(sheet).to_have_count(0)
    page.get_by_role("button", name="Keys").click()
    sync_api.expect(sheet).to_be_visible()


def test_an_alert_is_acknowledged_by_keys(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "alerts", operator="kay")
    card = page.locator('.alert[data-id="valve"]')
    sync_api.expect(card).to_contain_text("you")
    card.get_by_role("button", name="Ack", exact=True).focus()
    page.keyboard.press("Enter")
    sync_api.expect(card).to_contain_text("by you")
    sync_api.expect(page.locator("[role=status].toasts")).to_contain_text("acknowledged")


def test_the_theme_is_chosen_and_kept(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, theme="dark")
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    page.get_by_role("button", name="Theme: as the system").click()
    assert page.evaluate(theme) == "light"
    page.reload()
    assert page.evaluate(theme) == "light"
    page.get_by_role("button", name="Theme: light").click()
    page.get_by_role("button", name="Theme: dark").click()
    page.emulate_media(color_scheme="light")
    sync_api.expect(page.locator("html")).to_have_attribute("data-theme", "light")

"""WCAG 2 AA: every text on every panel, as the browser has computed it, in both themes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.page.support import Node
from tests.page.test_panels import SHOWN

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

MEASURE = re.sub(r"^//.*\n", "", (Path(__file__).parent / "contrast.js").read_text(), flags=re.MULTILINE).rstrip(";\n")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_can_be_read(node: Node, visit: Callable[..., Any], theme: str) -> None:
    page = visit(node, theme=theme, operator="anna")
    page.emulate_media(reduced_motion="reduce", color_scheme=theme)  # nothing is measured half faded in
    for panel, words in SHOWN.items():
        page.locator(f'.nav a[href="#{panel}"]').click()
        sync_api.expect(page.locator("h1")).to_have_text(panel.capitalize())
        for each in words:
            sync_api.expect(page.locator("main")).to_contain_text(each)
        length, faults = page.evaluate(MEASURE)
        assert length > 100
        assert not faults, f"{panel}, {theme}: {faults}"
    page.locator('.nav a[href="#alerts"]').click()
    page.get_by_role("button", name="press.hot").click()
    sync_api.expect(page.locator(".drawer .trail")).to_contain_text("published")
    assert page.evaluate(MEASURE)[1] == []
    page.keyboard.press("Escape")
    for opener in (page.locator(".who"), page.get_by_role("button", name="Keys")):
        opener.click()
        sync_api.expect(page.locator("dialog[open]")).to_be_visible()
        assert page.evaluate(MEASURE)[1] == []
        page.keyboard.press("Escape")
        sync_api.expect(page.locator("dialog")).to_have_count(0)
    page.locator('.nav a[href="#live"]').click()
    page.locator("#filter").fill("value >")
    sync_api.expect(page.locator(".filterbox-error")).to_be_visible()
    assert page.evaluate(MEASURE)[1] == []
    page.complaints.clear()  # that filter was refused, which the browser notes


def test_the_measure_finds_what_cannot_be_read(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "alerts")
    sync_api.expect(page.locator(".alert").first).to_be_visible()
    page.add_style_tag(content=".alert-gist { color: rgb(0 0 0 / 30%); }")
    assert [name for name, _ in page.evaluate(MEASURE)[1]] == ["P.alert-gist"]

"""Every panel shows what is really there, at both widths and in both themes, and nothing complains.

The pictures are kept in `tests/page/artefacts/`: look at them when you change how something looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.page.support import ARTEFACTS, WIDTHS, Node

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

SHOWN = {
    "live": ["machine.value", "line/"],
    "alerts": ["valve.stuck", "press.hot", "shift.note"],
    "consumers": ["ops", "value > 9"],
    "tester": [],
    "definitions": ["machine.cycle"],
    "past": [],
    "pipeline": [],
    "peers": ["plant", "params/m7", "line-7"],
}
"""Panel → words that stand there because the plant did something."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_panels_show_what_is_there(node: Node, visit: Callable[..., Any], width: str, theme: str) -> None:
    page = visit(node, "live", width=width, theme=theme)
    for panel, words in SHOWN.items():
        page.locator(f'.nav a[href="#{panel}"]').click()
        sync_api.expect(page.locator("h1")).to_have_text(panel.capitalize())
        for each in words:
            sync_api.expect(page.locator("main")).to_contain_text(each)
        sync_api.expect(page.locator("main .loading")).to_have_count(0)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= WIDTHS[width][0], f"{panel} does not fit: {wide} px"
        page.screenshot(path=ARTEFACTS / f"{panel}-{width}-{theme}.png")
    assert page.evaluate("document.documentElement.dataset.theme") == theme

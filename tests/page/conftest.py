"""A real Chromium, a real node, a real plant: what the tests of the page share, and why they are skipped if they are.

Screenshots go to `tests/page/artefacts/`, which git ignores.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.page.support import ARTEFACTS, WIDTHS, Node, node_in, plant

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--disable-quic"),
    "--enable-precise-memory-info",  # for tests/page/test_performance.py
]
PATIENCE = 20_000
"""Milliseconds: others may be busy on this machine, too."""


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where it is."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("Chromium is not installed: make strangers")
    return found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """One for each file: as long as it is open, Playwright runs an event loop in this thread, and nobody else can."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)

    ARTEFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield opened
        opened.close()
    print(f"\nscreenshots: {ARTEFACTS}")


@pytest.fixture(scope="session")
def node(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One that all tests look at, with a plant that publishes ten events a second."""
    with node_in(tmp_path_factory.mktemp("node")) as node, plant(node.ws, 10):
        yield node


class Complaints(list[str]):
    """What a page had to complain of: errors of its console and its code, and files that did not come."""

    def of(self, page: Any) -> None:
        page.on("console", lambda said: said.type in ("error", "warning") and self.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self.append(f"thrown: {error}"))


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page of a node: `visit(node, "alerts", width="narrow", theme="dark", operator="anna")`.

    At the end of the test nothing may have complained, unless the test empties `page.complaints`.
    """
    complaints = Complaints()
    contexts = []

    def open_page(
        node: Node, route: str = "live", *, width: str = "wide", theme: str = "light", operator: str = ""
    ) -> Any:
        wide, high = WIDTHS[width]
        context = browser.new_context(
            viewport={"width": wide, "height": high}, color_scheme=theme, reduced_motion="reduce"
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        if operator:
            context.add_init_script(f"localStorage.setItem('tocsin.operator', {json.dumps(operator)})")
        page = context.new_page()
        page.complaints = complaints
        complaints.of(page)
        page.goto(f"{node.http}#{route}")
        return page

    yield open_page
    for context in contexts:  # those that a test has closed, too: that does no harm
        context.close()
    assert not complaints, complaints

"""A node with tokens: the page asks for one, says what is wrong with it, and shows what it allows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import ARTEFACTS, node_in
from tests.processes import ROOT
from tocsin import Event

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def token(data: Path, name: str, *rights: str) -> str:
    words = ["token", "add", name, "--data", str(data), *(word for right in rights for word in ("--right", right))]
    command = [sys.executable, "-m", "tocsin.cli", *words, "--json"]
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return next(word for word in done.stdout.replace('"', " ").split() if word.startswith("toc_"))


def test_a_token_lets_one_in_and_says_whose_it_is(browser: Any, tmp_path: Path, visit: Callable[..., Any]) -> None:
    anna = token(tmp_path, "anna", "admin")
    with node_in(tmp_path) as node, tocsin.sync.connect(node.ws, token=anna) as bus:
        bus.publish(Event("valve.stuck", "line/3", id="valve", priority=9, ttl=600, ack="client"))
        page = visit(node, "alerts")
        field = page.get_by_label("Token", exact=True)
        sync_api.expect(field).to_be_focused()
        page.screenshot(path=ARTEFACTS / "login-wide-light.png")
        page.keyboard.press("Escape")
        sync_api.expect(field).to_be_visible()  # there is nothing to see without one
        assert "valve.stuck" not in page.content()
        field.fill("toc_wrong")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("dialog .problem")).to_be_visible()
        field.fill(anna)
        page.get_by_role("button", name="Log in").click()
        sync_api.expect(page.locator("dialog")).to_have_count(0)
        sync_api.expect(page.locator(".who")).to_have_text("anna")
        card = page.locator(".alert")
        sync_api.expect(card).to_contain_text("valve.stuck")
        card.get_by_role("button", name="Ack", exact=True).click()
        sync_api.expect(card).to_contain_text("by you")
        assert bus.status("valve").acked == ["anna"]
        page.reload()  # the tab keeps it
        sync_api.expect(page.locator(".connection-state")).to_have_text("Connected")
        assert page.evaluate("Object.values(localStorage).join().includes('toc_')") is False
        page.get_by_role("button", name="Log out").click()
        sync_api.expect(page.get_by_label("Token", exact=True)).to_be_visible()
        page.context.close()
    assert all("401" in each for each in page.complaints), page.complaints
    page.complaints.clear()

"""Peers on the page: who is there, what they offer, and how that changes while one looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import Node

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def test_who_comes_and_goes_is_seen_at_once(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "peers")
    sync_api.expect(page.locator('[data-session="m7"]')).to_contain_text("params/m7")
    sync_api.expect(page.locator('[data-session="plant"]')).to_contain_text("in line-7")
    sync_api.expect(page.locator("[data-session]", has_text="this page")).to_have_count(1)
    changes = page.locator(".changes li")
    sync_api.expect(changes).to_have_text(["None yet."])
    with tocsin.sync.connect(node.ws, name="newcomer") as bus:
        bus.advertise("type = 'weather'")
        sync_api.expect(changes.first).to_contain_text("type = 'weather'")
        sync_api.expect(changes.first).to_contain_text("new")
        offered = page.locator("[data-resource=\"type = 'weather'\"]")
        sync_api.expect(offered).to_contain_text("newcomer")
        sync_api.expect(page.locator('[data-session="newcomer"]')).to_contain_text("type = 'weather'")
    sync_api.expect(changes.first).to_contain_text("gone")
    sync_api.expect(offered).to_have_count(0)
    sync_api.expect(page.locator('[data-session="newcomer"]')).to_have_count(0)

"""The alerts board: an operator acknowledges and cancels, others see who did, and who had it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import ARTEFACTS, Node
from tocsin import Event

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


@pytest.fixture
def bus(node: Node) -> Iterator[Any]:
    with tocsin.sync.connect(node.ws, name="desk-tests") as bus:
        yield bus


def raised(bus: Any, name: str, **fields: Any) -> Event:
    given = {"priority": 9, "ttl": 300, "ack": "client", "cancel": "any", **fields}
    event = Event("boiler.pressure", "line/1", id=name, data={"bar": 11.5}, **given)
    bus.publish(event)
    return event


def card(page: Any, event: Event) -> Any:
    return page.locator(f'.alert[data-id="{event.id}"]')


def test_an_operator_acknowledges_and_everybody_sees_who(node: Node, bus: Any, visit: Callable[..., Any]) -> None:
    event = raised(bus, "ack-me")
    page = visit(node, "alerts")
    other = visit(node, "alerts", operator="ben")
    sync_api.expect(card(other, event)).to_contain_text("you")
    card(page, event).get_by_role("button", name="Ack", exact=True).click()
    page.get_by_label("Your name").fill("anna")
    page.get_by_role("button", name="Use this name", exact=True).click()
    sync_api.expect(card(page, event)).to_contain_text("you")
    card(page, event).get_by_role("button", name="Ack", exact=True).click()
    sync_api.expect(card(page, event)).to_contain_text("by you")
    sync_api.expect(card(other, event)).to_contain_text("anna")
    status = bus.status("ack-me")
    assert status.acked == ["anna"] and "ben" in status.pending
    assert [step.who for step in bus.audit("ack-me") if step.step == "acked"] == ["anna"]
    page.reload()  # it was stored, and comes no more
    sync_api.expect(card(page, event)).to_contain_text("by you")
    assert bus.status("ack-me").acked == ["anna"]


def test_a_cancelled_alert_goes_and_who_had_it_is_told(node: Node, bus: Any, visit: Callable[..., Any]) -> None:
    event = raised(bus, "cancel-me")
    page = visit(node, "alerts", operator="anna")
    other = visit(node, "alerts", operator="ben")
    sync_api.expect(card(page, event)).to_contain_text("you")
    sync_api.expect(card(other, event)).to_contain_text("you")
    card(page, event).get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the alert").click()
    sync_api.expect(card(page, event)).to_have_count(0)
    sync_api.expect(card(other, event)).to_have_count(0)
    sync_api.expect(other.locator(".notices")).to_contain_text("was cancelled by anna, ")
    other.screenshot(path=ARTEFACTS / "alerts-notice.png")
    assert bus.status("cancel-me").state == "cancelled"


def test_who_may_not_cancel_is_told_why(node: Node, bus: Any, visit: Callable[..., Any]) -> None:
    event = raised(bus, "not-yours", cancel="originator")
    page = visit(node, "alerts", operator="anna")
    card(page, event).get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the alert").click()
    problem = page.locator("dialog .problem")
    sync_api.expect(problem).to_contain_text("may be cancelled by its publisher only")
    page.keyboard.press("Escape")
    sync_api.expect(page.locator("dialog")).to_have_count(0)
    sync_api.expect(card(page, event)).to_be_visible()
    assert bus.status("not-yours").state == "live"
    assert all("403" in each for each in page.complaints), "the browser itself notes that answer"
    page.complaints.clear()


def test_time_to_live_runs_down_and_then_it_is_gone(node: Node, bus: Any, visit: Callable[..., Any]) -> None:
    page = visit(node, "alerts")
    sync_api.expect(page.locator(".alert").first).to_be_visible()
    event = raised(bus, "short", ttl=3, priority=10)
    sync_api.expect(page.locator(".alert").first).to_have_attribute("data-id", "valve")  # older, as urgent
    bar = card(page, event).get_by_role("progressbar")
    first = int(bar.get_attribute("aria-valuenow"))
    sync_api.expect(bar).not_to_have_attribute("aria-valuenow", str(first))
    sync_api.expect(card(page, event)).to_have_count(0)


def test_two_windows_of_one_operator_are_one_desk(node: Node, bus: Any, visit: Callable[..., Any]) -> None:
    first = visit(node, "alerts", operator="carl")
    sync_api.expect(first.locator(".alert").first).to_be_visible()
    second = first.context.new_page()
    second.goto(f"{node.http}#alerts")
    events = [raised(bus, f"twin-{number}") for number in range(2)]
    for event in events:  # each is in the hands of one window, and can be acknowledged in any
        sync_api.expect(card(second, event)).to_contain_text("you")
        card(second, event).get_by_role("button", name="Ack", exact=True).click()
        sync_api.expect(card(second, event)).to_contain_text("by you")
        assert bus.status(event.id).acked == ["carl"]
    for page in (first, second):
        sync_api.expect(page.locator(".connection-state")).to_have_text("Connected")

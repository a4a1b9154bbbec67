"""The past on the page: a time line that can be scrubbed, over a journal whose past is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import ARTEFACTS, Node, node_in
from tocsin import Event, testing

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PEAK, QUIET = 40, 2
"""Events of the minute half an hour ago, and of every other minute of the last two hours."""


def lived(url: str) -> None:
    clock = testing.ManualClock(datetime.now(UTC) - timedelta(hours=2))
    with tocsin.sync.connect(url, clock=clock) as bus:
        for minute in range(120):
            kind, number = ("peak", PEAK) if minute == 90 else ("quiet", QUIET)
            bus.publish_many([Event(kind, "/line", data={"n": each}) for each in range(number)])
            clock.advance(60 if minute < 119 else 1)


@pytest.fixture(scope="module")
def old(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    data: Path = tmp_path_factory.mktemp("past")
    lived(f"file:{data / 'journal.db'}")
    with node_in(data) as node:
        yield node


def test_the_moment_is_scrubbed_by_slider_keys_and_dragging(old: Node, visit: Callable[..., Any]) -> None:
    page = visit(old, "past")
    slider, head = page.get_by_label("Moment"), page.locator(".stretch h2")
    rows = page.locator(".event-list [role=row]")
    sync_api.expect(head).to_have_text(f"{QUIET} events")  # the newest
    sync_api.expect(rows).to_have_count(QUIET)
    last = int(slider.input_value())
    slider.focus()
    page.keyboard.press("Home")
    assert slider.input_value() == "0"
    words = slider.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "1" and slider.get_attribute("aria-valuetext") != words
    for place in range(last):  # find the peak as a person would: slide until it is there
        slider.fill(str(place))
        if "peak" in page.locator(".stretch").inner_text() or head.inner_text() == f"{PEAK} events":
            break
    sync_api.expect(head).to_have_text(f"{PEAK} events")
    sync_api.expect(rows).to_have_count(PEAK)
    sync_api.expect(rows.first).to_contain_text("peak")

    box = page.locator(".timeline .plot").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 1, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, middle, steps=5)
    page.mouse.up()
    whole = page.locator(".timeline .histogram svg").get_attribute("aria-label")
    sync_api.expect(head).to_have_text(f"{whole.split(': ')[1].split(' ')[0]} events")
    page.screenshot(path=ARTEFACTS / "past-dragged.png")


def test_filter_zoom_and_the_whole_journal(old: Node, visit: Callable[..., Any]) -> None:
    page = visit(old, "past?filter=type+%3D+%27peak%27")
    head, picture = page.locator(".stretch h2"), page.locator(".timeline .histogram svg")
    sync_api.expect(head).to_have_text(f"{PEAK} matches")  # the newest that match are chosen
    narrow = picture.get_attribute("aria-label")
    assert f"of which {PEAK} match" in narrow
    page.get_by_role("button", name="Zoom to the stretch").click()
    sync_api.expect(page.locator(".toolbar")).to_contain_text("stands still")
    sync_api.expect(picture).not_to_have_attribute("aria-label", narrow)
    assert f"{PEAK} events, of which {PEAK} match" in picture.get_attribute("aria-label")
    sync_api.expect(page.locator(".overview .shown-part")).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    page.locator("#filter").fill("")
    total = 119 * QUIET + PEAK
    sync_api.expect(picture).to_have_attribute("aria-label", re.compile(f"{total} events, from"))

    slider = page.get_by_label("Moment")
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => Number(document.querySelector('.scrubber').value) >= 2")  # it runs by itself
    page.get_by_role("button", name="Stop").click()
    sync_api.expect(page.get_by_role("button", name="Play")).to_have_attribute("aria-pressed", "false")


def test_another_filter_chooses_what_it_matches(old: Node, visit: Callable[..., Any]) -> None:
    page = visit(old, "past")
    head = page.locator(".stretch h2")
    sync_api.expect(head).to_have_text(f"{QUIET} events")
    page.locator("#filter").fill("type = 'peak'")
    sync_api.expect(head).to_have_text(f"{PEAK} matches")


def test_a_young_journal_is_shown_whole(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "past")
    sync_api.expect(page.get_by_role("button", name="All", exact=True)).to_have_attribute("aria-pressed", "true")


def test_an_event_leads_to_its_place(old: Node, visit: Callable[..., Any]) -> None:
    page = visit(old, "past?from=181")  # the first of the peak
    sync_api.expect(page.locator(".event-list [role=row]").first).to_contain_text("peak")
    sync_api.expect(page.locator(".timeline .chosen-stretch")).to_be_visible()
    page.locator(".event-list [role=row]").first.click()
    sync_api.expect(page.locator(".drawer")).to_contain_text("peak")

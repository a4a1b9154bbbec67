"""500 events a second: the page stays smooth, shows what comes, and does not grow.

Frames are timed in the page itself, by `requestAnimationFrame`. Machines that test are shared, without a graphics card,
and also run the node and the plant, so bounds are loose; what they find is a page that draws every event, or keeps all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.page.support import node_in, plant

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

RATE = 500
SECONDS = 6
FRAMES = """(seconds) => new Promise((done) => {
  const times = [];
  let last = performance.now();
  const end = last + seconds * 1000;
  const frame = (now) => {
    times.push(now - last);
    last = now;
    if (now < end) requestAnimationFrame(frame);
    else done(times);
  };
  requestAnimationFrame(frame);
})"""
HEAP = "performance.memory.usedJSHeapSize / 2 ** 20"


def shown(page: Any, name: str) -> float:
    return float(page.get_by_test_id(name).inner_text().replace(",", ""))


def test_five_hundred_events_a_second(browser: Any, tmp_path: Path, visit: Callable[..., Any]) -> None:
    with node_in(tmp_path) as node, plant(node.ws, RATE):
        page = visit(node)
        devtools = page.context.new_cdp_session(page)
        sync_api.expect(page.locator(".events-room .event-row").first).to_be_visible()
        page.evaluate(FRAMES, 1)  # everything is loaded and compiled
        devtools.send("HeapProfiler.collectGarbage")
        heap, received = page.evaluate(HEAP), shown(page, "received")
        times = sorted(page.evaluate(FRAMES, SECONDS))
        devtools.send("HeapProfiler.collectGarbage")
        grown, came = page.evaluate(HEAP) - heap, shown(page, "received") - received
        median, late = times[len(times) // 2], times[int(len(times) * 0.99)]
        drawn = page.locator(".events-room .event-row").count()
        page.context.close()
        print(
            f"\n{came / SECONDS:.0f} events/s, {len(times) / SECONDS:.0f} frames/s, median {median:.1f} ms, "
            f"99 % {late:.1f} ms, worst {times[-1]:.0f} ms, heap {heap:.1f} MiB {grown:+.1f}, {drawn} rows"
        )
        assert came > 0.7 * RATE * SECONDS, "the stream kept up"
        assert median < 34 and late < 150
        assert drawn <= 60
        assert heap < 60 and grown < 8

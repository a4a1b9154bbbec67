"""The pipeline on the page: with Spark beside the node, and without; and the matcher's figures."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tocsin.sync
from tests.page.support import ARTEFACTS, Node
from tests.processes import ROOT, running
from tocsin import Event
from tocsin.node.channel import Report, Up
from tocsin.node.divided import Divided, Relaid, ShardStatus

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def figure(page: Any, label: str) -> Any:
    """What a figure says, by its label."""
    return page.locator(".stat", has=page.locator("dt", has_text=label)).locator("dd").first


def test_without_a_pipeline_it_says_how_to_have_one(node: Node, visit: Callable[..., Any]) -> None:
    page = visit(node, "pipeline")
    sync_api.expect(page.locator(".pipeline-state")).to_contain_text("start the node without --no-spark")
    with urllib.request.urlopen(f"{node.http}figures", timeout=10) as answer:
        matcher = json.load(answer)["matcher"]
    assert matcher["filters"] >= 1
    sync_api.expect(figure(page, "Filters")).to_have_text(str(matcher["filters"]))
    sync_api.expect(figure(page, "Engine")).to_have_text(matcher["engine"])
    sync_api.expect(page.locator(".chart canvas")).to_have_count(3)
    least = json.load(urllib.request.urlopen(f"{node.http}health", timeout=10))["head"]
    page.wait_for_function(
        "least => [...document.querySelectorAll('.stat')].some((each) => each.innerText.startsWith('Newest offset')"
        " && Number(each.querySelector('dd').innerText.replace(/,/g, '')) > least)",
        arg=least,
    )


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_shards_are_shown_as_they_were_reported(visit: Callable[..., Any], tmp_path: Path, width: str) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
    from tests.pipeline.inside import beside

    at = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)
    with beside(tmp_path) as plant, plant.served() as http:
        plant.line.ask(Up("4.3.0"))
        plant.do(plant.bus.subscribe("value > 1", consumer="far", placement="spark"))
        page = visit(SimpleNamespace(http=http), "pipeline", width=width)
        sync_api.expect(page.locator(".pipeline-state .badge").first).to_have_text("up")
        assert page.get_by_text("Filters on Spark").count() == 0
        plant.line.ask(Report(matching=Divided(4, (ShardStatus("0 of 1", 1),))))
        sync_api.expect(figure(page, "Subscriptions")).to_have_text("1")
        sync_api.expect(figure(page, "Shards")).to_have_text("1")
        assert page.locator("table[aria-label=Shards]").count() == 0  # it is not divided
        shards = (ShardStatus("0 of 2", 1200, 500, (0.25, 1.5)), ShardStatus("1 of 2"))
        plant.line.ask(Report(matching=Divided(7, shards, at, 1, 0, (Relaid(7, at, "split 0 of 1: 2 shards"),))))
        table = page.locator("table[aria-label=Shards]")
        sync_api.expect(table.locator("tbody tr")).to_have_count(2)
        sync_api.expect(table.locator("tbody tr").first).to_contain_text("1,200")
        sync_api.expect(table.locator("tbody tr").first).to_contain_text("1.5 s")
        sync_api.expect(table.locator("tbody tr").last).to_contain_text("not measured")
        sync_api.expect(page.get_by_text("Last change: split 0 of 1: 2 shards, from version 7 on")).to_be_visible()
        sync_api.expect(figure(page, "Version")).to_have_text("7")
        table.scroll_into_view_if_needed()
        page.screenshot(path=ARTEFACTS / f"pipeline-shards-{width}.png", full_page=True)
        page.context.close()  # else it asks a node that is gone


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_with_spark_batches_lag_and_state_are_shown(browser: Any, visit: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
    node = Node(tmp_path)
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    command = [sys.executable, "-m", "tocsin.cli", "up", "--json", "--port", str(node.port), "--data", str(tmp_path)]
    with running([*command, "--master", "local[1]"], ROOT, {**os.environ, "PYTHONPATH": path}) as up:
        up.until("ws://")
        with tocsin.sync.connect(node.ws) as bus:
            pair = "SEQ([type = 'a'] AS a, [type = 'b'] AS b) BY k"
            bus.define("pair", pair, context="chronicle", placement="spark")
            page = visit(node, "pipeline")
            state = page.locator(".pipeline-state .badge").first
            sync_api.expect(state).to_have_text("up", timeout=120_000)
            bus.publish_many([Event(kind, "/line", data={"k": k}) for k in range(3) for kind in "ab"])
            sync_api.expect(figure(page, "Detected")).to_have_text("3", timeout=120_000)
            sync_api.expect(figure(page, "Definitions")).to_have_text("1")
            sync_api.expect(page.locator(".stat", has_text="Behind")).to_contain_text("all looked at", timeout=30_000)
            sync_api.expect(figure(page, "Last batch")).to_contain_text("s")
            assert page.locator(".chart canvas").count() == 9
            page.screenshot(path=ARTEFACTS / "pipeline-up.png", full_page=True)
            page.goto(f"{node.http}#definitions?name=pair")
            sync_api.expect(page.locator(".detection")).to_have_count(3)
            sync_api.expect(page.locator('[data-shown="pair"]')).to_contain_text("What waits is inside Spark")

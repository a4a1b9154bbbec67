"""`ts.follow`: a filter set that is what a node's consumers ask for."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import event
from tests.spark.places import Served, at_node
from tocsin import spark as ts
from tocsin.errors import NetworkError, UnauthorizedError
from tocsin.security.tokens import TokenStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def subscribe(node: Served, filter: str, consumer: str) -> Any:
    return node.run(node.place.bus.subscribe(filter, consumer=consumer))


def matched(spark: Any, url: str, filters: Any) -> dict[str, set[str]]:
    """Ids of what each key gets, over all that there is."""
    events = spark.read.format("tocsin").option("url", url).option("filters", filters.filters.path).load()
    found: dict[str, set[str]] = {}
    for row in ts.match(events, filters).join(events, "offset").select("key", "id").collect():
        found.setdefault(row["key"], set()).add(row["id"])
    return found


def test_a_set_follows_the_consumers_of_a_node(spark: Any, tmp_path: Path) -> None:
    with at_node(tmp_path / "plant.db") as node:
        node.run(node.place.bus.publish_many([event(str(n), data={"value": n}) for n in range(10)]))
        subscribe(node, "value > 7", "ops")
        with ts.follow(node.url, tmp_path / "wanted", every=3600) as following:
            assert matched(spark, node.url, following) == {"ops": {"8", "9"}}
            first = following.filters.version
            assert following.refresh() == first, "nothing has changed"
            subscribe(node, "value = 0", "ops")
            subscribe(node, "value < 0 OR value = 5", "night")
            assert following.refresh() == first + 1, "one change for all"
            assert matched(spark, node.url, following) == {"ops": {"8", "9", "0"}, "night": {"5"}}
            node.run(node.place.bus.forget("ops"))
            following.refresh()
            assert matched(spark, node.url, following) == {"night": {"5"}}
        assert ts.FilterSet(tmp_path / "wanted").filters() == {"night": "value < 0 OR value = 5"}


def test_it_looks_by_itself_and_stays_while_the_node_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with at_node(tmp_path / "plant.db") as node:
        subscribe(node, "value > 7", "ops")
        following = ts.follow(node.url, tmp_path / "wanted", every=0.01)
        subscribe(node, "value > 8", "night")
        _until(lambda: following.filters.filters() == {"ops": "value > 7", "night": "value > 8"})
    try:
        _until(lambda: "not followed" in caplog.text)
        assert following.filters.filters() == {"ops": "value > 7", "night": "value > 8"}
        with pytest.raises(NetworkError):
            following.refresh()
    finally:
        following.close()
    assert caplog.text.count("not followed") == 1


def test_who_may_not_look_is_told(tmp_path: Path) -> None:
    tokens = TokenStore(tmp_path / "tokens.json")
    good, _ = tokens.add("spark", ["admin"])
    with at_node(tmp_path / "plant.db", tokens=tokens) as node:
        with pytest.raises(UnauthorizedError):
            ts.follow(node.url, tmp_path / "wanted")
        assert not (tmp_path / "wanted").exists()
        with ts.follow(node.url, tmp_path / "wanted", token=good) as following:
            assert following.filters.filters() == {}


def _until(holds: Any) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)

"""The Grafana dashboard: it is one, and it asks for nothing that a node does not have.

What belongs to the Spark pipeline is looked at where there is one: `tests/pipeline/test_observability.py`.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from tests.http.support import served
from tests.observability.dashboard import asked, board, exposed, on_spark, questions


def test_it_is_a_dashboard() -> None:
    found = board()
    assert found["uid"] == "tocsin" and found["title"] == "Tocsin" and found["schemaVersion"] >= 39
    assert "id" not in found, "Grafana gives it a number when it is imported"
    panels = found["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    for panel in panels:
        assert panel["type"] in ("row", "stat", "timeseries") and panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, "whichever Prometheus you have"
        names = [target["refId"] for target in panel["targets"]]
        assert names and len(set(names)) == len(names)
    for one, other in combinations(panels, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert [each["name"] for each in found["templating"]["list"]] == ["datasource", "instance"]


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (apart or above)


def test_its_questions_are_well_formed_and_about_the_chosen_nodes() -> None:
    for question in questions():
        for left, right in ("()", "[]", "{}"):
            assert question.count(left) == question.count(right), question
        if not question.startswith("label_values"):
            assert question.count('instance=~"$instance"') == question.count("tocsin_"), question
        if "_total" in question and "restarts" not in question:
            assert "rate(" in question, f"what only grows is shown as a rate: {question}"


async def test_every_figure_it_names_is_exposed() -> None:
    async with served() as place:
        answer = await place.get("/metrics")
    there = exposed(answer.body.decode())
    assert asked() - on_spark(asked()) <= there
    assert len(asked()) > 30

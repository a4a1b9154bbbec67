"""The dashboard in `deploy/grafana`, and which figures it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

DASHBOARD = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "tocsin.json"


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def questions() -> list[str]:
    """Every expression that it asks Prometheus."""
    panels = [target["expr"] for panel in board()["panels"] for target in panel.get("targets", [])]
    return panels + [
        each["query"]["query"] for each in board()["templating"]["list"] if isinstance(each["query"], dict)
    ]


def asked() -> set[str]:
    """Every figure that it names."""
    return {name for question in questions() for name in re.findall(r"\btocsin_\w+", question)}


def exposed(text: str) -> set[str]:
    """Every figure of an exposition: also those with labels that nothing was counted under yet."""
    return {_in_queries(family.name, family.type) for family in text_string_to_metric_families(text)}


def _in_queries(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def on_spark(names: Iterable[str]) -> set[str]:
    """Those that a node has only if there is a Spark pipeline."""
    return {name for name in names if name.startswith("tocsin_pipeline_")}

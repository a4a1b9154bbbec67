"""The metrics, as a node really shows them: one is opened on an empty file, asked, and closed."""

from __future__ import annotations

import asyncio
import tempfile
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

import tocsin
from tocsin.net import serve
from tocsin.net.supervisor import Status
from tocsin.node.channel import Archived
from tocsin.node.divided import Divided, ShardStatus
from tools.reference.markdown import table

__all__ = ["page"]


class _Pipeline:
    """Stands where a supervisor does, with a status in which nothing is unknown. No Spark is started."""

    def status(self) -> Status:
        return Status(
            state="up",
            master="local[*]",
            pid=None,
            spark=None,
            restarts=0,
            definitions=0,
            subscriptions=0,
            offset=0,
            head=0,
            lag=0,
            lag_seconds=0.0,
            detected=0,
            batches=0,
            batch_seconds=0.0,
            state_rows=0,
            state_bytes=0,
            archived=Archived(0, 0, 0.0),
            matching=Divided(1, (ShardStatus("0 of 1", 0, 0, (0.0,)),)),
            trouble=None,
            next_start=None,
            history=[],
        )


def page() -> str:
    """The page of the metrics."""
    rows = []
    for family in text_string_to_metric_families(asyncio.run(_exposition())):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((f"`{name}`", family.type, _LABELS.get(name, ""), family.documentation))
    return "\n".join(
        [
            "# Metrics\n",
            "What `GET /metrics` shows, in Prometheus' text form. They are gathered when they are asked for. Those of "
            "the pipeline are there only if the node has one. What to watch is in "
            "[Running a node](../OPERATIONS.md#is-it-well).\n",
            table(["name", "kind", "labels", ""], rows),
        ]
    )


_LABELS = {
    "tocsin_consumer_lag": "`consumer`: the 100 furthest behind",
    "tocsin_consumer_in_flight": "`consumer`: the same",
    "tocsin_pipeline_shard_filters": "`shard`: the 100 busiest",
    "tocsin_pipeline_shard_busy_seconds": "`shard`: the same",
    "tocsin_xpath_refused_total": "`reason`",
    "tocsin_refused_total": "`why`",
    "tocsin_http_requests_total": "`route`, `method`, `status`; 499: the client left first",
}
"""Labels, which a figure without a sample does not show."""


async def _exposition() -> str:
    with tempfile.TemporaryDirectory() as folder:
        async with tocsin.connect(f"file:{folder}/journal.db") as bus, serve(bus) as server:
            server.pipeline = _Pipeline()  # type: ignore[assignment]
            url = server.url.replace("ws:", "http:") + "/metrics"
            answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=20)
            with answer:
                return str(answer.read().decode())

"""Figures of a node, for Prometheus. All names begin with `tocsin_`; they are listed in docs/HTTP.md.

They are gathered when they are asked for; counting costs the way of an event nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from tocsin.errors import TocsinError
from tocsin.filters import documents
from tocsin.node import consumers as consumers_module

if TYPE_CHECKING:
    from tocsin.net.http.front import Front
    from tocsin.net.supervisor import Supervisor
    from tocsin.node.divided import Divided
    from tocsin.node.pipeline import Node

__all__ = ["LoopLag", "exposition", "totals"]

NAMED: Final = 100
"""Consumers that have figures of their own: those furthest behind. All others are in the totals. Shards likewise."""
_EVERY: Final = 0.5  # seconds between two looks at the loop
_NAMES: Final = {"delivered": "deliveries", "redelivered": "redeliveries", "settled": "settlings", "dead": "dead"}


class LoopLag:
    """How late the event loop is. It looks only while somebody asks."""

    def __init__(self) -> None:
        """Do nothing yet."""
        self._worst = self._now = self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def take(self) -> tuple[float, float]:
        """Seconds it was late when last looked at, and the most since this was asked last."""
        found, self._worst = (self._now, self._worst), 0.0
        if self._timer is None and not self._ended:
            self._wait()
        return found

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + _EVERY
        self._timer = loop.call_later(_EVERY, self._look)

    def _look(self) -> None:
        self._now = max(0.0, asyncio.get_running_loop().time() - self._due)
        self._worst = max(self._worst, self._now)
        self._wait()

    def stop(self) -> None:
        """Look no more."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Figures(Collector):
    """What was gathered, as Prometheus has it."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


async def exposition(front: Front) -> bytes:
    """All figures as text."""
    journal = front.server.node.journal
    try:
        stored = await asyncio.to_thread(journal.stats)
    except TocsinError:  # it is being closed
        stored = {}
    registry = CollectorRegistry()
    figures = [*_of_journal(stored), *_of_node(front), *_of_pipeline(front.server.pipeline), *_of_network(front)]
    registry.register(_Figures(figures))
    return generate_latest(registry)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tocsin_{name}", about, value=value)


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(f"tocsin_{name}", about, value=value)


def _labelled(kind: Any, name: str, about: str, labels: list[str], rows: Iterable[tuple[list[str], float]]) -> Metric:
    metric: Metric = kind(f"tocsin_{name}", about, labels=labels)
    for values, value in rows:
        metric.add_metric(values, value)  # type: ignore[attr-defined]
    return metric


def _of_journal(stats: dict[str, Any]) -> Iterator[Metric]:
    for name, about in (
        ("head", "Newest offset"),
        ("first", "Oldest offset that is kept"),
        ("bytes", "Size of the file"),
        ("blocks", "Blocks"),
        ("queued", "Requests that wait to be stored"),
    ):
        if name in stats:
            yield _gauge(f"journal_{name}", f"{about}.", stats[name])
    if "commits" in stats:
        yield _counter("journal_commits", "Commits since the node was opened.", stats["commits"])


def _of_node(front: Front) -> Iterator[Metric]:
    node = front.server.node
    counted = totals(node)
    stored = "Events stored since the node was opened, its own records too."
    yield _counter("events_published", stored, counted["published"])
    for name, shown in _NAMES.items():
        yield _counter(f"events_{name}", f"Events: {shown} since the node was opened.", counted[name])
    yield _counter(
        "events_expired", "Events not delivered any more: expired, cancelled, or no longer kept.", counted["withdrawn"]
    )
    known = consumers_module.consumers(node)
    yield _gauge("consumers", "Consumers.", len(known))
    waiting = sum(each.halted is not None for each in known)
    yield _gauge("consumers_unmatched", "Consumers that Spark matches, and no Spark is there.", waiting)
    named = sorted(known, key=lambda each: each.lag, reverse=True)[:NAMED]
    for field, about in (("lag", "Events it has yet to settle"), ("in_flight", "Events in its hands")):
        figures = [([each.name], float(getattr(each, field))) for each in named]
        yield _labelled(GaugeMetricFamily, f"consumer_{field}", f"{about}.", ["consumer"], figures)
    matcher = node.lanes.stats()
    for name in ("filters", "distinct", "in_delta", "bytes"):
        yield _gauge(f"matcher_{name}", f"Index of filters: {name}.", matcher[name])
    for name in ("scanned", "tested", "residue_tests", "rebuilds"):
        if name in matcher:
            yield _counter(f"matcher_{name}", f"Index of filters: {name}.", matcher[name])
    yield from _of_detector(node)
    refused = [([reason], float(count)) for reason, count in documents.refused().items()]
    yield _labelled(CounterMetricFamily, "xpath_refused", "XPaths answered with NULL.", ["reason"], refused)


def totals(node: Node) -> Counter[str]:
    """What was published, and what consumers have counted, also those that are gone, since the node was opened."""
    found = Counter(node.gone)
    for mailbox in node.mailboxes.values():
        found.update(mailbox.counters)
    found["published"] = node.head - node.boot_head
    return found


def _of_detector(node: Node) -> Iterator[Metric]:
    detector = node.watcher.detector
    nothing = {"events": 0, "detected": {}, "definitions": {}}
    stats: dict[str, Any] = detector.stats() if detector is not None else nothing
    figures = stats["definitions"].values()
    yield _gauge("definitions", "Definitions of composite events.", len(node.watcher.placements.records))
    waiting = len(node.watcher.placements.on_spark) if node.beside.halted is not None else 0
    yield _gauge("definitions_unlooked", "Definitions that run on Spark, and no Spark is there.", waiting)
    yield _counter("detector_events", "Events looked at for composite events.", stats["events"])
    yield _counter("detected", "Composite events.", sum(stats["detected"].values()))
    yield _gauge("detector_open", "Openers that wait to be completed.", sum(each["open"] for each in figures))
    yield _counter("detector_expired", "Openers not completed in time.", sum(each["expired"] for each in figures))
    yield _counter("detector_dropped", "Openers given up.", sum(each["dropped"] for each in figures))
    yield _gauge("detector_halted", "Has detection halted?", float(node.watcher.failure is not None))


def _of_pipeline(pipeline: Supervisor | None) -> Iterator[Metric]:
    """Figures of the Spark pipeline, if the node has one; what is not known yet is left out."""
    if pipeline is None:
        return
    status = pipeline.status()
    yield _gauge("pipeline_up", "Does the Spark pipeline run?", float(status.state == "up"))
    yield _counter("pipeline_restarts", "How often it was started again.", status.restarts)
    yield _gauge("pipeline_definitions", "Definitions that run there.", status.definitions)
    yield _counter("pipeline_detected", "Composite events that were found there.", status.detected)
    yield _counter("pipeline_batches", "Batches since it came up.", status.batches)
    yield _gauge("pipeline_subscriptions", "Subscriptions that are matched there.", status.subscriptions)
    if status.matching is not None:
        yield from _of_shards(status.matching)
    archived, late = status.archived, "How long ago the oldest event arrived that it has yet to look at"
    for name, about, value in (
        ("lag_events", "Events it has yet to look at", status.lag),
        ("lag_seconds", late, status.lag_seconds),
        ("batch_seconds", "What its last batch took", status.batch_seconds),
        ("state_rows", "Entries of its state", status.state_rows),
        ("state_bytes", "Memory that its state takes", status.state_bytes),
        ("archived_offset", "Newest offset in the lake", archived.last if archived is not None else None),
    ):
        if value is not None:
            yield _gauge(f"pipeline_{name}", f"{about}.", value)


def _of_shards(found: Divided) -> Iterator[Metric]:
    """Figures of the filters that are matched on Spark; of each shard by itself, those that are busiest."""
    yield _gauge("pipeline_filters_version", "Version of the filters that are matched there.", found.version)
    yield _gauge("pipeline_shards", "Shards that these are divided into.", len(found.shards))
    yield _counter("pipeline_splits", "Shards that were split since the query began.", found.splits)
    yield _counter("pipeline_merges", "Shards that were merged since the query began.", found.merges)
    shards = sorted(found.shards, key=lambda shard: shard.seconds[-1:], reverse=True)[:NAMED]
    sizes = [([shard.name], float(shard.filters)) for shard in shards if shard.filters is not None]
    yield _labelled(GaugeMetricFamily, "pipeline_shard_filters", "Filters of a shard.", ["shard"], sizes)
    busy = [([shard.name], shard.seconds[-1]) for shard in shards if shard.seconds]
    about = "How long a shard was busy in its last batch."
    yield _labelled(GaugeMetricFamily, "pipeline_shard_busy_seconds", about, ["shard"], busy)


def _of_network(front: Front) -> Iterator[Metric]:
    yield _gauge("sessions", "Connections of clients.", len(front.server.sessions))
    yield _gauge("streams", "Server-sent streams.", len(front.streams))
    yield _gauge("draining", "Is it leaving?", float(front.server.draining))
    answers = [
        ([path.replace(":path", "") or "other", method, str(status)], float(count))
        for (path, method, status), count in sorted(front.counts.items())
    ]
    refused = [([why], float(count)) for why, count in sorted(front.server.gate.refusals.counts.items())]
    yield _labelled(CounterMetricFamily, "refused", "Callers who were refused something.", ["why"], refused)
    labels = ["route", "method", "status"]
    yield _labelled(CounterMetricFamily, "http_requests", "Answers.", labels, answers)
    now, worst = front.lag.take()
    yield _gauge("loop_lag_seconds", "How late the event loop was when last looked at.", now)
    yield _gauge("loop_lag_worst_seconds", "The most since it was asked last.", worst)

"""What was measured last: the newest line of each benchmark in `benchmarks/results/`, good day or bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.reference.markdown import table

__all__ = ["page"]

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

_RATE = "{:,.0f} events/s"
_ROWS: list[tuple[str, str, dict[str, Any], str, str]] = [
    # what, file, which lines, where the figure is, how it is shown
    ("match one event against 1,000 filters", "match", {"filters": 1_000}, "single.per_s", _RATE),
    ("… 100,000 filters", "match", {"filters": 100_000}, "single.per_s", _RATE),
    ("… 1,000,000 filters", "match", {"filters": 1_000_000}, "single.per_s", _RATE),
    ("… in batches from Arrow", "match", {"filters": 1_000_000}, "arrow.per_s", _RATE),
    ("index of 1,000,000 filters, each", "match", {"filters": 1_000_000}, "index_bytes_per_filter", "{:.0f} bytes"),
    ("`publish_many` of 1,000, durable", "journal", {"part": "publish"}, "publish_many.per_s", _RATE),
    ("`publish` from 100 tasks, durable", "journal", {"part": "tasks"}, "publish.per_s", _RATE),
    (
        "`last(10)` of 10,000,000, one in 10,000 matches",
        "journal",
        {"part": "past", "length": 10_000_000, "filter": "even"},
        "subscribe_ms.median",
        "{:,.0f} ms",
    ),
    ("open again after a crash: 1,000,000 events", "journal", {"part": "reopen"}, "open_s.median", "{:.1f} s"),
    ("disk, for each byte of payload", "journal", {"part": "disk"}, "disk_per_payload", "{:.2f} bytes"),
    ("publish, deliver, settle in batches of 500", "delivery", {"part": "stream"}, "together.per_s", _RATE),
    ("publish to delivery at 1,000/s, median", "delivery", {"part": "steady"}, "latency_p50_ms.median", "{:.1f} ms"),
    ("publish to delivery at 1,000/s, 99 %", "delivery", {"part": "steady"}, "latency_p99_ms.median", "{:.1f} ms"),
    ("memory: a consumer falls 1,100,000 behind", "delivery", {"part": "memory"}, "growth", "{:+.1%}"),
    ("composite events, one event at a time, 10 definitions", "detect", {"part": "single"}, "per_s", _RATE),
    ("… and 1,000 definitions, of which 10 match", "detect", {"part": "thousand"}, "per_s", _RATE),
    (
        "state of 1,000,000 openers: snapshot and restore",
        "detect",
        {"part": "state", "what": "within"},
        "both_s.median",
        "{:.1f} s",
    ),
    ("durable publish over the network, batched", "wire", {"part": "publish"}, "ours.per_s.median", _RATE),
    ("publish, deliver, settle over the network", "wire", {"part": "stream"}, "ours.per_s.median", _RATE),
    ("request and reply at 200/s, median", "wire", {"part": "request"}, "ours.p50_ms.median", "{:.1f} ms"),
    ("an idle connection", "wire", {"part": "idle"}, "kb_each", "{:.0f} KB"),
    ("Spark: read a journal, all columns", "spark_source", {"part": "source"}, "all_columns.per_s", _RATE),
    ("Spark: archive", "spark_source", {"part": "archive"}, "per_s", _RATE),
    ("Spark: the sink, durable", "spark_source", {"part": "sink"}, "per_s", _RATE),
    ("Spark: `ts.match`, 100,000 rules", "spark_match", {"rules": 100_000}, "tocsin.per_s", _RATE),
    ("Spark: `SEQ` over history by window functions", "spark_batch", {"part": "windows_json"}, "per_s", _RATE),
    ("Spark: other definitions, by engines", "spark_batch", {"part": "engines_where"}, "per_s", _RATE),
    ("pipeline at 1,000/s: published until found, median", "pipeline", {"part": "steady"}, "p50", "{:.2f} s"),
    ("pipeline at 1,000/s: published until found, 99 %", "pipeline", {"part": "steady"}, "p99", "{:.2f} s"),
]


def page() -> str:
    """The page of what was measured."""
    return "\n".join(
        [
            "# Measured\n",
            "The newest line of each benchmark in `benchmarks/results/`, whatever the day was like. The machine has "
            "two cores, is shared, and wanders in speed by a factor of two: *loop* is how long a fixed Python loop "
            "took in the same run, in ns (24 on its best days, above 60 on its worst). README has the best "
            "and the worst hour of the same, beside others. `make bench` measures on yours.\n",
            table(["what", "measured", "loop", "on", "file"], (_row(*row) for row in _ROWS)),
        ]
    )


def _row(what: str, file: str, which: dict[str, Any], where: str, shown: str) -> tuple[str, ...]:
    name = f"{file}.jsonl"
    lines = [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]
    found = [line for line in lines if all(line.get(key) == value for key, value in which.items())]
    if not found:
        raise LookupError(f"{name} has no line with {which}: see {__name__}")
    value: Any = found[-1]
    for key in where.split("."):
        value = value[key]
    return what, shown.format(value), f"{found[-1]['loop_ns']:.0f}", found[-1]["date"][:10], f"`{name}`"

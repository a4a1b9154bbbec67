"""What do traces cost? `python -m benchmarks.bench_tracing [--quick] [--before DIR]`

    off        no provider is set: what everybody pays who does not trace
    unsampled  a provider whose sampler takes nothing: contexts travel, no span is kept
    sampled    every span is made, and dropped: the exporter's own cost is not ours
    before     with --before DIR: another source tree (`git archive` of the commit before traces came), provider unset

For each, in a process of its own, CPU microseconds for an event that is published to a node in memory, delivered and
settled: one by one, and 500 at a time. Processes take turns, so that a machine whose speed wanders treats them alike.
Medians of seven. Results go to `benchmarks/results/tracing.jsonl`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import loop_ns, options_for, record, spread, stopwatch, table
from tocsin import Event, connect

MODES = ("off", "unsampled", "sampled")
BATCH = 500
SOURCE = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run, print a table, keep the results."""
    parser = options_for(__doc__, MODES, child=2)
    parser.add_argument("--before", type=Path, help="a source tree to compare with")
    options = parser.parse_args()
    if options.child:
        mode, count = options.child
        _trace(mode)
        print(json.dumps(asyncio.run(_measure(int(count)))))
        return
    repeat, count = (2, 2_000) if options.quick else (7, 20_000)
    modes = [*(["before"] if options.before else []), *options.only]
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in modes}
    for _ in range(repeat):
        for mode in modes:
            found[mode].append(_child(mode, count, options.before))
    rows = [_row(mode, runs) for mode, runs in found.items()]
    if not options.quick:
        record("tracing", rows)
    shown = [
        (row["mode"], *(f"{row[how]['us']:.2f} µs ({row[how]['spread']})" for how in ("single", "batch")))
        for row in rows
    ]
    print(table(("traces", "one by one", f"{BATCH} at a time"), shown))


def _child(mode: str, count: int, before: Path | None) -> dict[str, float]:
    tree = before if mode == "before" and before is not None else SOURCE
    path = os.pathsep.join((str(tree / "src"), str(SOURCE)))
    command = [sys.executable, "-m", "benchmarks.bench_tracing", "--child", mode, str(count)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, cwd=SOURCE, check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _row(mode: str, runs: list[dict[str, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"mode": mode, "loop_ns": loop_ns()}
    for how in ("single", "batch"):
        timing = spread(run[how] for run in runs)
        row[how] = {"us": round(timing.median, 3), "spread": f"{timing.low:.2f} to {timing.high:.2f}"}
    return row


def _trace(mode: str) -> None:
    """Set a provider, before any node is opened."""
    if mode not in ("unsampled", "sampled"):
        return
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

    trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_ON if mode == "sampled" else ALWAYS_OFF))


async def _measure(count: int) -> dict[str, float]:
    """CPU microseconds for an event, one by one and in batches."""
    async with connect("memory:") as bus:
        sub = await bus.subscribe("value >= 0", consumer="ops", max_in_flight=2 * BATCH)
        await _one_by_one(bus, sub, count // 10)
        with stopwatch() as single:
            await _one_by_one(bus, sub, count)
        await _in_batches(bus, sub, count)
        with stopwatch() as batch:
            await _in_batches(bus, sub, 5 * count)
    return {"single": single.cpu / count * 1e6, "batch": batch.cpu / (5 * count) * 1e6}


async def _one_by_one(bus: Any, sub: Any, count: int) -> None:
    for n in range(count):
        await bus.publish(Event("machine.value", "line/7", data={"value": n}))
        delivery = await sub.next()
        await delivery.ack()


async def _in_batches(bus: Any, sub: Any, count: int) -> None:
    for start in range(0, count, BATCH):
        await bus.publish_many([Event("machine.value", "line/7", data={"value": start + n}) for n in range(BATCH)])
        left = BATCH
        async for batch in sub.batches(BATCH):
            await batch.ack()
            left -= len(batch)
            if not left:
                break


if __name__ == "__main__":
    main()

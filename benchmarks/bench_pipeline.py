"""How late is what Spark detects? `python -m benchmarks.bench_pipeline [--quick]`

    steady    `tocsin up` with its pipeline on local[2], archive and statistics running; 1,000 events a second are
              published one by one, on a schedule; every tenth completes a SEQ BY key. How long from its publication
              until the derived event is delivered, over a WebSocket

Node, pipeline and this process share the machine. The first seconds, in which Spark compiles, are left out. What is
lost or comes twice ends the run, and so does it if nothing was archived. Results go to
`benchmarks/results/pipeline.jsonl`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import tocsin
from benchmarks.common import options_for, run_parts, table
from benchmarks.process_tree import tree_stopwatch
from benchmarks.readings import percentile
from tocsin import Event

RATE, EVERY = 1_000, 10
SECONDS, WARM = 90, 20  # so long that a chunk of the archive is complete on the way, and written
GOALS = {"p50": 1.0, "p99": 2.5}
DEFINITION = "SEQ([type = 'opened'] AS o, [type = 'closed'] AS c) WITHIN 1 MINUTE BY door"
Row = dict[str, Any]


def main() -> None:
    """Run, print a table, keep the results."""
    options = options_for(__doc__, PARTS, child=1).parse_args()
    seconds = 5 if options.quick else SECONDS
    parts = {part: functools.partial(PARTS[part], seconds) for part in options.only}
    rows = run_parts("pipeline", parts, directory=options.dir, keep=not options.quick)
    print()
    print(table(("what", "measured", "goal"), [line for row in rows for line in _lines(row)]))


def _lines(row: Row) -> list[tuple[str, str, str]]:
    return [
        (f"published → detected on Spark → delivered, {name}", f"{row[name]:.2f} s", f"≤ {goal:g} s")
        for name, goal in GOALS.items()
    ]


def steady(seconds: int, folder: Path) -> list[Row]:
    """Latency at a steady rate."""
    data = str(folder / "data")
    command = [sys.executable, "-m", "tocsin.cli", "up", "--port", "0", "--data", data, "--master", "local[2]"]
    environment = {name: value for name, value in os.environ.items() if name != "TOCSIN_NO_SPARK"}
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, env=environment) as node:
        try:
            assert node.stdout is not None
            url = json.loads(node.stdout.readline())["url"]
            with tree_stopwatch() as spent:
                row = asyncio.run(_run(url, seconds))
            row |= {"cpu_per_second": round(spent.cpu / spent.wall, 3), "status": _status(url)}
            if seconds == SECONDS and not row["status"]["archived"]:
                raise SystemExit("the archive did not run")
        finally:
            node.send_signal(signal.SIGTERM)
    return [row]


async def _run(url: str, seconds: int) -> Row:
    sent: dict[str, float] = {}
    late: dict[str, float] = {}
    doubles = 0
    async with tocsin.connect(url, name="bench") as bus:
        assert (await bus.define("pair", DEFINITION, context="chronicle")).placement == "spark"
        sub = await bus.subscribe("type = 'pair'", consumer="bench", auto_ack=True)

        async def hear() -> None:
            nonlocal doubles
            async for delivery in sub:
                closer = delivery.event.data["parts"][-1]["id"]
                doubles += closer in late
                late[closer] = time.perf_counter() - sent[closer]

        hearing = asyncio.ensure_future(hear())
        await _publish(bus, sent, 1, "first")
        await _heard_all(sent, late, 300)
        warm = set(sent)
        await _publish(bus, sent, WARM, "warm")
        await _heard_all(sent, late, 120)
        warm |= set(sent)
        begun = time.perf_counter()
        await _publish(bus, sent, seconds, "timed")
        took = time.perf_counter() - begun
        await _heard_all(sent, late, 120)
        hearing.cancel()
    if doubles:
        raise SystemExit(f"{doubles} came twice")
    timed = sorted(late[id] for id in sent if id not in warm)
    return {
        "part": "steady",
        "rate": round(seconds * RATE / took),
        "detections": len(timed),
        "p50": round(percentile(timed, 50), 3),
        "p90": round(percentile(timed, 90), 3),
        "p99": round(percentile(timed, 99), 3),
        "worst": round(timed[-1], 3),
    }


async def _publish(bus: Any, sent: dict[str, float], seconds: int, name: str) -> None:
    """So many seconds of events, each at its time."""
    begun, waiting = time.perf_counter(), set[asyncio.Task[Any]]()
    for number in range(seconds * RATE):
        if (ahead := begun + number / RATE - time.perf_counter()) > 0.001:
            await asyncio.sleep(ahead)
        place, id = number % EVERY, f"{name}-{number}"
        kind = {0: "opened", EVERY - 1: "closed"}.get(place, "other")
        if kind == "closed":
            sent[id] = time.perf_counter()
        event = Event(kind, "bench", id=id, data={"door": f"{name}-{number // EVERY % 20_000}"})
        task = asyncio.ensure_future(bus.publish(event))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
    if waiting:
        await asyncio.wait(waiting)


async def _heard_all(sent: dict[str, float], late: dict[str, float], patience: float) -> None:
    end = time.perf_counter() + patience
    while len(late) < len(sent):
        if time.perf_counter() > end:
            raise SystemExit(f"{len(sent) - len(late)} of {len(sent)} did not come")
        await asyncio.sleep(0.05)


def _status(url: str) -> Any:
    with urllib.request.urlopen(f"{url.replace('ws', 'http', 1)}/pipeline", timeout=20) as answer:
        return json.loads(answer.read())


PARTS = {"steady": steady}

if __name__ == "__main__":
    main()

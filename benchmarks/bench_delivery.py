"""How good is delivery? `python -m benchmarks.bench_delivery [--quick] [--only stream steady] [--behind 1000000]`

    stream    publish, deliver and settle, 500 at a time, one durable consumer on file; also from a backlog
    steady    one by one, 1,000 a second from a schedule: how long from the call to the delivery
    crowd     1,000 durable consumers with different filters, 1 % of events for each: cost per delivered event
    memory    a stopped consumer falls a million events behind, with one event of low priority waiting in its queue

Events have five fields and 200 bytes of noise (`readings.py`). Medians of five; `cpu` is seconds of this process, all
its threads, `wall` contains the flushes of the disk, whose length is in each line (`flush_ms`). Merging runs beside, as
in any node. Every delivery is counted: what is lost or comes twice ends the run. Results go to
`benchmarks/results/delivery.jsonl`.

A latency has two parts. `commit` is how long the one commit with the event took. `beyond` is all the rest: the way to
the journal and back, matching, and waiting for commits of others (of settlings, too); `beyond_all` leaves those waits
out as well. Latencies run from the call of `publish`; `from_schedule` runs from the moment the call was due.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import Spent, options_for, rates, run_parts, spread, stopwatch, table
from benchmarks.readings import Readings, bus_on, fill, journal_of, percentile, watch_commits, without_flushing
from tocsin import Event, Filter, Matcher, Subscription
from tocsin.filters.index import engine
from tocsin.journal import contract

BATCH = 500
PUBLISHED = 1_000
RATE = 1_000
ANY = "type = 'machine.value'"
IN_FLIGHT = 2 * BATCH
GOALS = {"stream": 30_000, "p50": 2.0, "p99": 10.0, "crowd": 3.0, "memory": 0.10}
Row = dict[str, Any]


class Sizes(NamedTuple):
    """How much of everything."""

    repeat: int = 5
    stream: int = 100_000
    seconds: int = 10
    consumers: int = 1_000
    crowd: int = 20_000
    behind: int = 1_000_000
    before: int = 1_500_000
    """Events stored before memory is looked at: the memory of ids to recognise, which is bounded, is full by then, and
    has been cleared once (a dictionary that loses its oldest entries is built anew, larger, at the first clearing)."""


QUICK = Sizes(2, 5_000, 1, 50, 2_000, 20_000, 10_000)


def main() -> None:
    """Run, print a table, keep the results."""
    parser = options_for(__doc__, PARTS, child=4)
    parser.add_argument("--behind", type=int, help=f"how far a consumer falls behind; {Sizes().behind:,} if left out")
    options = parser.parse_args()
    if not engine.wait():
        raise SystemExit(f"these figures are about the Numba kernels: {engine.failure()}")
    if options.child:
        path, how, before, behind = options.child
        print(json.dumps(asyncio.run(_fall_behind(Path(path), how, int(before), int(behind)))))
        return
    sizes = QUICK if options.quick else Sizes()
    if options.behind:
        sizes = sizes._replace(behind=options.behind)
    parts = {part: functools.partial(PARTS[part], sizes) for part in options.only}
    rows = run_parts("delivery", parts, directory=options.dir, keep=not options.quick)
    print()
    print(summary(rows))


# -- stream


def stream(sizes: Sizes, scratch: Path) -> list[Row]:
    """One consumer gets everything."""
    kinds: dict[str, Callable[[Path, list[list[Event]]], Any]] = {"together": _together, "backlog": _backlog}
    spent: dict[str, list[Spent]] = {name: [] for name in kinds}
    for turn in range(sizes.repeat + 1):
        batches = Readings(turn).batches(sizes.stream, BATCH)
        for name, run in kinds.items():
            found = asyncio.run(run(scratch / f"{turn}-{name}.db", batches))
            if turn:  # the first is for warming up
                spent[name].append(found)
    return [
        {"events": sizes.stream, "batch": BATCH} | {name: rates(found, sizes.stream) for name, found in spent.items()}
    ]


async def _together(path: Path, batches: list[list[Event]]) -> Spent:
    """Publishing and settling at the same time."""
    total = sum(map(len, batches))
    async with bus_on(path) as bus:
        subscription = await bus.subscribe(ANY, consumer="ops", max_in_flight=IN_FLIGHT)
        with stopwatch() as spent:
            consumer = asyncio.create_task(_settle(subscription, total))
            for batch in batches:
                await bus.publish_many(batch)
            await consumer
        _check(subscription, total)
    return spent


async def _backlog(path: Path, batches: list[list[Event]]) -> Spent:
    """Everything is published first, so that most of it must be read from the journal again."""
    total = sum(map(len, batches))
    async with bus_on(path) as bus:
        subscription = await bus.subscribe(ANY, consumer="ops", max_in_flight=IN_FLIGHT)
        for batch in batches:
            await bus.publish_many(batch)
        with stopwatch() as spent:
            await _settle(subscription, total)
        _check(subscription, total)
    return spent


async def _settle(subscription: Subscription, total: int) -> None:
    """Settle batch by batch until all are."""
    settled = 0
    async for batch in subscription.batches(BATCH):
        await batch.ack()
        settled += len(batch)
        if settled >= total:
            return


def _check(subscription: Subscription, total: int) -> None:
    counters = subscription.mailbox.counters
    assert counters["settled"] == counters["delivered"] == total, counters
    assert not counters["redelivered"], counters


# -- steady


def steady(sizes: Sizes, scratch: Path) -> list[Row]:
    """Latency at a steady rate."""
    runs = []
    for turn in range(sizes.repeat + 1):
        events = Readings(turn).events(RATE * sizes.seconds)
        found = asyncio.run(_steadily(scratch / f"{turn}.db", events))
        if turn:
            runs.append(found)
    row: Row = {
        "rate": RATE,
        "events": RATE * sizes.seconds,
        "commits": round(spread(x["commits"] for x in runs).median),
    }
    for name in ("latency", "from_schedule", "commit", "beyond", "beyond_all", "settle"):
        for percent in (50, 99):
            key = f"{name}_p{percent}_ms"
            row[key] = spread(percentile(each[name], percent) * 1e3 for each in runs).row()
    return [row]


async def _steadily(path: Path, events: list[Event]) -> dict[str, Any]:
    loop, number_of = asyncio.get_running_loop(), {event.id: number for number, event in enumerate(events)}
    due, called, delivered, offsets = ([0.0] * len(events) for _ in range(4))
    settling: list[asyncio.Task[float]] = []

    async def publish(number: int) -> None:
        called[number] = time.perf_counter()
        offsets[number] = (await bus.publish(events[number])).offset or 0

    async def consume() -> None:
        async for delivery in subscription:
            delivered[number_of[delivery.event.id]] = time.perf_counter()
            settling.append(loop.create_task(_timed(delivery.ack)))
            if len(settling) == len(events):
                return

    async with bus_on(path) as bus:
        subscription = await bus.subscribe(ANY, consumer="ops", max_in_flight=IN_FLIGHT)
        commits = watch_commits(bus)
        consumer = loop.create_task(consume())
        publishing = []
        start = time.perf_counter() + 0.05
        for number in range(len(events)):
            due[number] = start + number / RATE
            if (wait := due[number] - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            publishing.append(loop.create_task(publish(number)))
        await asyncio.gather(*publishing)
        await consumer
        settle = await asyncio.gather(*settling)
        _check(subscription, len(events))
    heads, ends = [head for _, _, head in commits], [end for _, end, _ in commits]
    starts = [begin for begin, _, _ in commits]
    found: dict[str, Any] = {"commits": len(commits), "settle": settle, "commit": [], "beyond": [], "beyond_all": []}
    found["latency"] = [there - then for there, then in zip(delivered, called, strict=True)]
    found["from_schedule"] = [there - then for there, then in zip(delivered, due, strict=True)]
    for number, latency in enumerate(found["latency"]):
        begin, end, _ = commits[bisect_left(heads, offsets[number])]
        busy = sum(
            min(ends[place], delivered[number]) - max(starts[place], called[number])
            for place in range(bisect_right(ends, called[number]), bisect_left(starts, delivered[number]))
        )
        found["commit"].append(end - begin)
        found["beyond"].append(latency - (end - begin))
        found["beyond_all"].append(latency - busy)
    return found


async def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


# -- crowd


def crowd(sizes: Sizes, scratch: Path) -> list[Row]:
    """Many consumers, each of which wants little, against one that gets everything."""
    many = [_range(number / sizes.consumers) for number in range(sizes.consumers)]
    contenders = {"crowd": many, "one_of_all": [ANY], "one_of_1_percent": many[:1]}
    costs: dict[str, list[Spent]] = {name: [] for name in contenders}
    delivered: dict[str, int] = {}
    for turn in range(sizes.repeat):
        batches = Readings(turn).batches(sizes.crowd, PUBLISHED)
        for name, filters in contenders.items():
            spent, count = asyncio.run(_serve(scratch / f"{turn}-{name}.db", batches, filters))
            costs[name].append(spent)
            delivered[name] = count
    row: Row = {"events": sizes.crowd, "consumers": sizes.consumers}
    for name, each in costs.items():
        row[name] = {"delivered": delivered[name]} | rates(each, delivered[name])
    for name in ("one_of_all", "one_of_1_percent"):
        ratios = [
            (ours.cpu / delivered["crowd"]) / (one.cpu / delivered[name])
            for ours, one in zip(costs["crowd"], costs[name], strict=True)
        ]
        row[f"crowd_vs_{name}"] = round(spread(ratios).median, 2)
    return [row]


def _range(place: float) -> str:
    """A filter that one event in a hundred matches; another place, another filter."""
    low = round(place * 990, 3)
    return f"{ANY} AND value >= {low} AND value < {low + 10}"


async def _serve(path: Path, batches: list[list[Event]], filters: Sequence[str]) -> tuple[Spent, int]:
    matcher = Matcher(enumerate(map(Filter, filters)))
    total = sum(len(keys) for batch in batches for keys in matcher.match_batch(batch))
    settled, over = itertools.count(1), asyncio.Event()

    async def serve(subscription: Subscription) -> None:
        async for batch in subscription.batches(BATCH):
            await batch.ack()
            for _ in batch:
                if next(settled) == total:
                    over.set()

    async with bus_on(path) as bus:
        with without_flushing(journal_of(bus)):
            subscriptions = await asyncio.gather(
                *(
                    bus.subscribe(text, consumer=f"c{number}", max_in_flight=IN_FLIGHT)
                    for number, text in enumerate(filters)
                )
            )
        with stopwatch() as spent:
            serving = [asyncio.create_task(serve(each)) for each in subscriptions]
            for batch in batches:
                await bus.publish_many(batch)
            await over.wait()
        for each in subscriptions:
            await each.close()
        await asyncio.gather(*serving)
        assert sum(each.mailbox.counters["delivered"] for each in subscriptions) == total
    return spent, total


# -- memory


def memory(sizes: Sizes, scratch: Path) -> list[Row]:
    """Memory while a consumer does not take: its handle is open (`stuck`), or it has gone (`away`). New processes."""
    rows = []
    for how in ("stuck", "away"):
        command = [sys.executable, "-m", "benchmarks.bench_delivery", "--child"]
        command += [str(scratch / f"{how}.db"), how, str(sizes.before), str(sizes.behind)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append({"consumer": how, **json.loads(done.stdout)})
    return rows


async def _fall_behind(path: Path, how: str, before: int, behind: int) -> Row:
    """Publish while nobody takes; look at the memory now and then."""
    readings = Readings()
    rss: list[int] = []
    blocks: list[int] = []

    def look() -> None:
        rss.append(_resident())
        blocks.append(sys.getallocatedblocks())

    async with bus_on(path) as bus:
        journal = journal_of(bus)
        await asyncio.to_thread(fill, journal, readings, before, rate=contract.DEDUP_MOST)
        subscription = await bus.subscribe(ANY, consumer="ops")
        starving = (await bus.publish(readings.event(priority=1))).offset or 0
        if how == "away":
            await subscription.close()
        steps = 20
        for step in range(steps + 2):
            for _ in range(max(1, behind // steps // PUBLISHED)):
                await bus.publish_many(readings.events(PUBLISHED))
            if step:  # the first step fills the window of recent events
                look()
        waiting = subscription.mailbox.waiting()
        journal.merge_now()
        if how == "away":
            subscription = await bus.subscribe(ANY, consumer="ops")
        # The starving one is still there, and comes when it is asked for: last, so by its level alone.
        assert any(starving in queue for queue in subscription.lane.queues), "the starving event is lost"
        ids = journal.stats()["ids"]
    return {
        "before": before,
        "behind": journal.head - starving,
        "waiting": waiting,
        "ids": ids,
        "rss_mb": [round(each / 1e6, 1) for each in rss],
        "python_blocks": blocks,
        "growth": round(max(rss) / rss[0] - 1, 3),
        "block_growth": round(max(blocks) / blocks[0] - 1, 3),
    }


def _resident() -> int:
    """Bytes of memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# -- what people read

PARTS: dict[str, Callable[[Sizes, Path], list[Row]]] = {
    "stream": stream,
    "steady": steady,
    "crowd": crowd,
    "memory": memory,
}


def summary(rows: list[Row]) -> str:
    """The table people read; goals in brackets."""
    lines: list[tuple[str, str, str]] = []
    for row in rows:
        lines += SUMMARIES[row["part"]](row)
    return table(("what", "measured (goal)", "more"), lines)


def _stream_lines(row: Row) -> list[tuple[str, str, str]]:
    return [
        (
            f"publish, deliver, settle {row['batch']}, {name}",
            f"{row[name]['per_s']:,} per s" + (f" ({GOALS['stream']:,})" if name == "together" else ""),
            f"{row[name]['per_cpu_s']:,} per CPU-s",
        )
        for name in ("together", "backlog")
    ]


def _steady_lines(row: Row) -> list[tuple[str, str, str]]:
    lines = []
    for name in ("latency", "from_schedule", "commit", "beyond", "beyond_all", "settle"):
        parts = []
        for percent in (50, 99):
            goal = f" ({GOALS[f'p{percent}']:g})" if name == "beyond" else ""
            parts.append(f"p{percent} {row[f'{name}_p{percent}_ms']['median']} ms{goal}")
        lines.append((f"{row['rate']:,} a second, {name}", ", ".join(parts), f"{row['commits']:,} commits"))
    return lines


def _crowd_lines(row: Row) -> list[tuple[str, str, str]]:
    names = {
        "crowd": f"{row['consumers']:,} consumers",
        "one_of_all": "one, everything",
        "one_of_1_percent": "one, 1 %",
    }
    goals = {"one_of_all": f" ({GOALS['crowd']:g}x)", "one_of_1_percent": ""}
    return [
        (
            f"delivered to {words}",
            f"{row[name]['cpu_us']['median']} µs CPU each",
            f"crowd costs {row[f'crowd_vs_{name}']}x{goals[name]}" if name in goals else f"{row[name]['delivered']:,}",
        )
        for name, words in names.items()
    ]


def _memory_lines(row: Row) -> list[tuple[str, str, str]]:
    what = f"memory, {row['behind']:,} behind, {row['consumer']}"
    more = (
        f"{row['rss_mb'][0]} to {max(row['rss_mb'])} MB; {row['block_growth']:+.1%} objects; {row['waiting']:,} queued"
    )
    return [(what, f"{row['growth']:+.1%} ({GOALS['memory']:.0%})", more)]


SUMMARIES: dict[str, Callable[[Row], list[tuple[str, str, str]]]] = {
    "stream": _stream_lines,
    "steady": _steady_lines,
    "crowd": _crowd_lines,
    "memory": _memory_lines,
}


if __name__ == "__main__":
    main()

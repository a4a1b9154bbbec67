"""How good is the journal? `python -m benchmarks.bench_journal [--quick] [--only publish past] [--events 10000000]`

    publish   1,000 events a commit: `bus.publish_many`, `journal.append`, and one row per event in SQLite, in turn
    tasks     single `publish` calls from 100 tasks: how many a second, and how many commits they share
    disk      bytes of the file against bytes of payload, when events came in batches and when each came alone
    merge     what merging costs per event
    past      `last(10)` of a filter that matches 1 in 10,000, at several lengths, against decoding from the front
    reopen    a journal with many subscriptions, opened by a new process

Events have five fields and 200 bytes of noise (`readings.py`). Medians of five, contenders in turn within each
repetition, ratios taken within it. `cpu` is seconds of this process, all its threads; `wall` contains the flushes of
the disk, whose length is in each line (`flush_ms`). In a node merging runs beside publishing: `publish_many_merging`
has it, the others have not, and `merge` times it apart. Results go to `benchmarks/results/journal.jsonl`.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import Spent, Timing, options_for, rates, run_parts, spread, stopwatch, table
from benchmarks.readings import (
    MACHINES,
    Readings,
    bus_on,
    fill,
    journal_of,
    payload_bytes,
    without_flushing,
)
from benchmarks.row_store import RowStore
from tocsin import Event, Filter, connect, last, testing
from tocsin.client import Bus
from tocsin.clock import SystemClock
from tocsin.filters.index import engine
from tocsin.journal import history
from tocsin.journal.sqlite import SqliteJournal
from tocsin.node import Node

PER_COMMIT = 1_000
TASKS = 100
CONSUMERS, FILTERS_EACH = 1_000, 10
GOALS = {
    "ratio": 1.5,
    "one_core": 300_000,
    "tasks": 20_000,
    "disk": 1.5,
    "past": 20,
    "reopen": 3.0,
}
Row = dict[str, Any]


class Sizes(NamedTuple):
    """How much of everything."""

    repeat: int = 5
    publish: int = 100_000
    tasks: int = 20_000
    disk: int = 200_000
    alone: int = 100_000
    merge: int = 200_000
    merge_alone: int = 20_000
    past: int = 10_000_000
    decoded: int = 200_000
    """Events that are decoded from the front, to be scaled to the length of the journal."""
    reopen: int = 1_000_000
    consumers: int = CONSUMERS


QUICK = Sizes(2, 5_000, 2_000, 10_000, 5_000, 10_000, 2_000, 100_000, 10_000, 10_000, 20)


def main() -> None:
    """Run, print a table, keep the results."""
    parser = options_for(__doc__, PARTS, child=2)
    parser.add_argument("--events", type=int, help=f"length of the journal in `past`; {Sizes().past:,} if left out")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(asyncio.run(_reopened(Path(options.child[0]), options.child[1]))))
        return
    sizes = QUICK if options.quick else Sizes()
    if options.events:
        sizes = sizes._replace(past=options.events)
    parts = {part: functools.partial(PARTS[part], sizes) for part in options.only}
    rows = run_parts("journal", parts, directory=options.dir, keep=not options.quick)
    print()
    print(summary(rows))


# -- publish


def publish(sizes: Sizes, scratch: Path) -> list[Row]:
    """Durable publishing, 1,000 events a commit."""
    contenders: dict[str, Callable[[Path, list[list[Event]]], Spent]] = {
        "rows": _rows,
        "append": _append,
        "publish_many": lambda path, batches: asyncio.run(_publish(path, batches, merge=False)),
        "publish_many_merging": lambda path, batches: asyncio.run(_publish(path, batches, merge=True)),
    }
    spent: dict[str, list[Spent]] = {name: [] for name in contenders}
    for turn in range(sizes.repeat + 1):
        batches = Readings(turn).batches(sizes.publish, PER_COMMIT)
        for name, run in contenders.items():
            found = run(scratch / f"{turn}-{name}.db", batches)
            if turn:  # the first is for warming up
                spent[name].append(found)
        for file in scratch.iterdir():
            file.unlink()
    row: Row = {"events": sizes.publish, "per_commit": PER_COMMIT}
    row |= {name: rates(each, sizes.publish) for name, each in spent.items()}
    for name in list(contenders)[1:]:
        for kind in ("wall", "cpu"):
            ratios = [
                getattr(base, kind) / getattr(ours, kind) for base, ours in zip(spent["rows"], spent[name], strict=True)
            ]
            row[f"{name}_vs_rows_{kind}"] = round(spread(ratios).median, 2)
    return [row]


def _rows(path: Path, batches: list[list[Event]]) -> Spent:
    store = RowStore(path)
    with stopwatch() as spent:
        for batch in batches:
            newest = store.append(batch)[-1]
    assert newest == sum(map(len, batches))
    store.close()
    return spent


def _append(path: Path, batches: list[list[Event]]) -> Spent:
    with SqliteJournal(path, merge=False) as journal:
        with stopwatch() as spent:
            for batch in batches:
                newest = journal.append(batch)[-1]
        assert newest == sum(map(len, batches))
    return spent


async def _publish(path: Path, batches: list[list[Event]], *, merge: bool) -> Spent:
    async with bus_on(path, merge=merge) as bus:
        with stopwatch() as spent:
            for batch in batches:
                newest = (await bus.publish_many(batch))[-1]
        assert newest.offset == sum(map(len, batches))
    return spent


# -- tasks


def tasks(sizes: Sizes, scratch: Path) -> list[Row]:
    """Single publishes, many at a time."""
    spent, commits = [], []
    for turn in range(sizes.repeat + 1):
        found, count = asyncio.run(_publish_from_tasks(scratch / f"{turn}.db", Readings(turn).events(sizes.tasks)))
        if turn:
            spent.append(found)
            commits.append(count)
    typical = spread(commits).median
    return [
        {
            "events": sizes.tasks,
            "tasks": TASKS,
            "publish": rates(spent, sizes.tasks),
            "commits": round(typical),
            "events_per_commit": round(sizes.tasks / typical, 1),
        }
    ]


async def _publish_from_tasks(path: Path, events: list[Event]) -> tuple[Spent, int]:
    async def one(mine: Sequence[Event]) -> None:
        for event in mine:
            await bus.publish(event)

    async with bus_on(path) as bus:
        with stopwatch() as spent:
            await asyncio.gather(*(one(events[number::TASKS]) for number in range(TASKS)))
        assert journal_of(bus).head == len(events)
        return spent, journal_of(bus).stats()["commits"]


# -- disk


def disk(sizes: Sizes, scratch: Path) -> list[Row]:
    """Bytes on the disk after merging. Nothing is timed, so nothing is repeated."""
    cells = [("batches", False, sizes.disk, PER_COMMIT), ("alone", False, sizes.alone, 1)]
    cells += [("batches", True, sizes.disk, PER_COMMIT), ("alone", True, sizes.alone, 1)]
    return [_on_disk(scratch / f"{came}-{words}.db", came, words, count, each) for came, words, count, each in cells]


def _on_disk(path: Path, came: str, words: bool, count: int, each: int) -> Row:
    payload = 0
    with SqliteJournal(path) as journal, without_flushing(journal):
        readings = Readings(words=words)
        for _ in range(0, count, each):
            events = readings.events(each)
            payload += payload_bytes(events)
            journal.append(events)
        commits = journal.stats()["commits"]
        journal.merge_now()
        blocks = journal.stats()["blocks"]
    with SqliteJournal(path, merge=False) as journal:
        (free,) = journal._store.db.execute("PRAGMA freelist_count").fetchone()
        (page,) = journal._store.db.execute("PRAGMA page_size").fetchone()
    size = path.stat().st_size
    path.unlink()
    return {
        "came": came,
        "text": "words" if words else "noise",
        "events": count,
        "commits": commits,
        "blocks": blocks,
        "payload_bytes": payload,
        "disk_bytes": size,
        "free_bytes": free * page,
        "disk_per_payload": round(size / payload, 3),
        "in_use_per_payload": round((size - free * page) / payload, 3),
    }


# -- merge


def merge(sizes: Sizes, scratch: Path) -> list[Row]:
    """What merging costs, apart from all else."""
    return [
        _merged(sizes, scratch, "batches", sizes.merge, PER_COMMIT),
        _merged(sizes, scratch, "alone", sizes.merge_alone, 1),
    ]


def _merged(sizes: Sizes, scratch: Path, came: str, count: int, each: int) -> Row:
    spent, blocks = [], 0
    for turn in range(sizes.repeat):
        path = scratch / f"{came}-{turn}.db"
        with SqliteJournal(path, merge=False) as journal:
            readings = Readings(turn)
            with without_flushing(journal):
                for _ in range(0, count, each):
                    journal.append(readings.events(each))
            with stopwatch() as found:
                blocks = journal.merge_now()
            spent.append(found)
        path.unlink()
    return {
        "came": came,
        "events": count,
        "blocks": blocks,
        "cpu_us_per_event": spread(each.cpu for each in spent).per(count).row(),
        "wall_us_per_event": spread(each.wall for each in spent).per(count).row(),
    }


# -- past


def past(sizes: Sizes, scratch: Path) -> list[Row]:
    """The newest ten of a filter that matches 1 in 10,000 of all events.

    `even`: they are spread over the journal, so a hundred thousand events are searched, however many there are. `old`:
    they are all in the oldest hundredth, and their type is nowhere else: statistics skip the rest. Decoding from the
    front is measured on a part of the journal and scaled to its length.
    """
    filters = {"even": Filter("type = 'machine.value' AND machine = 'm4711'"), "old": Filter("type = 'machine.fault'")}
    readings, early = Readings(), max(1, sizes.past // 100)
    numbers = itertools.count()

    def make() -> Event:
        number = next(numbers)
        is_fault = number < early and number % (MACHINES // 100) == 0
        return readings.event("machine.fault" if is_fault else "machine.value")

    rows: list[Row] = []
    decode: Timing | None = None
    with SqliteJournal(scratch / "past.db") as journal:
        lengths = sorted({max(early, sizes.past // part) for part in (100, 10, 1)})
        for before, length in zip([0, *lengths], lengths, strict=False):
            with without_flushing(journal):
                fill(journal, readings, length - before, make=make)
            journal.merge_now()
            if decode is None:
                part = min(sizes.decoded, length)
                runs = [_decoded(journal, filters["even"], part) for _ in range(sizes.repeat)]
                decode = spread(each.cpu for each in runs).per(part)
            rows += [_searched(journal, sizes, name, filter, decode) for name, filter in filters.items()]
        rows.append({"filter": "even", **asyncio.run(_subscribed(journal, sizes, str(filters["even"])))})
    return rows


def _decoded(journal: SqliteJournal, filter: Filter, upto: int) -> Spent:
    """The newest ten of the first so many events, by looking at each."""
    newest: deque[Event] = deque(maxlen=10)
    with stopwatch() as spent:
        for block in journal.blocks(1, upto):
            newest += [event for event in block.events() if (event.offset or 0) <= upto and filter.matches(event)]
    expected = history.search(journal, filter, last(10), now=SystemClock().now(), upto=upto)
    assert [event.offset for event in newest] == expected
    return spent


def _searched(journal: SqliteJournal, sizes: Sizes, name: str, filter: Filter, decode: Timing) -> Row:
    now, length = SystemClock().now(), journal.head
    spent, report, found = [], history.Report(), []
    for _ in range(sizes.repeat + 1):
        report = history.Report()
        with stopwatch() as each:
            found = history.search(journal, filter, last(10), now=now, upto=length, alive=lambda _: True, report=report)
        spent.append(each)
    assert len(found) == min(10, max(1, sizes.past // MACHINES)) or name == "even", found
    cpu = spread(each.cpu for each in spent[1:])
    whole = decode.median / 1e6 * length
    return {
        "filter": name,
        "length": length,
        "search_ms": cpu.per(1, 1e3).row(),
        "search_wall_ms": spread(each.wall for each in spent[1:]).per(1, 1e3).row(),
        "decode_us_per_event": round(decode.median, 2),
        "decode_s_scaled": round(whole, 2),
        "vs_decode": round(whole / cpu.median, 1),
        "blocks_read": report.read,
        "blocks_skipped": report.skipped,
        "rows": report.rows,
        "found": len(found),
    }


async def _subscribed(journal: SqliteJournal, sizes: Sizes, text: str) -> Row:
    """The same as a subscriber sees it: from `subscribe` to the last of its past. Closes the journal."""
    bus = Bus(Node(journal, SystemClock()), "bench")
    spent, count = [], 0
    try:
        for _ in range(sizes.repeat + 1):
            with stopwatch() as each:
                subscription = await bus.subscribe(text, past=last(10))
                count = 0
                while subscription.poll() is not None:
                    count += 1
            spent.append(each)
            await subscription.close()
    finally:
        length = journal.head
        await bus.close()
    return {
        "length": length,
        "subscribe_ms": spread(each.cpu for each in spent[1:]).per(1, 1e3).row(),
        "subscribe_wall_ms": spread(each.wall for each in spent[1:]).per(1, 1e3).row(),
        "found": count,
    }


# -- reopen


def reopen(sizes: Sizes, scratch: Path) -> list[Row]:
    """Open a journal with many events, subscriptions and consumers, each time in a new process."""
    path = scratch / "reopen.db"
    asyncio.run(_prepare(path, sizes))
    rows = []
    for how in ("closed", "crashed"):
        found = []
        for turn in range(sizes.repeat + 1):
            command = [sys.executable, "-m", "benchmarks.bench_journal", "--child", str(path), how]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            child = json.loads(done.stdout)
            # What a child finds is how the one before it ended; the first is for the disk's cache, too.
            if turn:
                assert child["crashed"] == (how == "crashed")
                assert child["subscriptions"] == sizes.consumers * FILTERS_EACH
                found.append(child)
        timings = {
            name: spread(each[name] for each in found).row()
            for name in ("open_s", "open_cpu_s", "journal_s", "back_s", "back_cpu_s")
        }
        rows.append(
            {
                "was": how,
                "events": sizes.reopen,
                "consumers": sizes.consumers,
                "subscriptions": sizes.consumers * FILTERS_EACH,
                **timings,
            }
        )
    return rows


async def _prepare(path: Path, sizes: Sizes) -> None:
    async with bus_on(path) as bus:
        journal = journal_of(bus)
        with without_flushing(journal):
            await asyncio.to_thread(fill, journal, Readings(), sizes.reopen)
            await asyncio.gather(*(_subscribe(bus, number) for number in range(sizes.consumers)))
        journal.merge_now()


async def _subscribe(bus: Bus, number: int) -> None:
    """A consumer opens its subscriptions; each has a filter of its own."""
    for each in range(FILTERS_EACH):
        machine = number * FILTERS_EACH + each
        await bus.subscribe(f"machine = 'm{machine}' AND value > {500 + machine / 100}", consumer=f"c{number}")


async def _reopened(path: Path, how: str) -> Row:
    """In a new process: open, then let all consumers come back."""
    assert engine.wait()  # the kernels are loaded once for a process, whatever it opens
    opening = connect(f"file:{path}")
    with stopwatch() as opened:
        bus = await opening.__aenter__()
    known = await bus.consumers()
    journal = journal_of(bus)
    with stopwatch() as back:
        await asyncio.gather(*(_subscribe(bus, number) for number in range(len(known))))
    row = {
        "crashed": journal.crashed,
        "subscriptions": sum(len(mailbox.lanes) for mailbox in bus._node.mailboxes.values()),
        "open_s": opened.wall,
        "open_cpu_s": opened.cpu,
        "back_s": back.wall,
        "back_cpu_s": back.cpu,
    }
    if how == "crashed":
        await testing.crash(bus)
    else:
        await bus.close()
    with stopwatch() as alone:
        journal = SqliteJournal(path, merge=False)
    journal.abandon() if how == "crashed" else journal.close()
    return row | {"journal_s": alone.wall}


# -- what people read

PARTS: dict[str, Callable[[Sizes, Path], list[Row]]] = {
    "publish": publish,
    "tasks": tasks,
    "disk": disk,
    "merge": merge,
    "past": past,
    "reopen": reopen,
}


def summary(rows: list[Row]) -> str:
    """The table people read; goals in brackets."""
    lines: list[tuple[str, str, str]] = []
    for row in rows:
        lines += SUMMARIES[row["part"]](row)
    return table(("what", "measured (goal)", "more"), lines)


def _publish_lines(row: Row) -> list[tuple[str, str, str]]:
    def both(name: str) -> str:
        return f"{row[name]['per_cpu_s']:,} per CPU-s, {row[name]['per_s']:,} per s"

    return [
        ("one row per event", both("rows"), ""),
        *(
            (
                f"{name} of {row['per_commit']:,}",
                both(name) + (f" ({GOALS['one_core']:,} on one core)" if name == "publish_many" else ""),
                f"{row[f'{name}_vs_rows_wall']}x rows by the wall, {row[f'{name}_vs_rows_cpu']}x by CPU"
                + (f" ({GOALS['ratio']}x)" if name == "publish_many" else ""),
            )
            for name in ("append", "publish_many", "publish_many_merging")
        ),
    ]


def _tasks_lines(row: Row) -> list[tuple[str, str, str]]:
    rate = f"{row['publish']['per_s']:,} per s ({GOALS['tasks']:,})"
    return [(f"publish from {row['tasks']} tasks", rate, f"{row['events_per_commit']} events a commit")]


def _disk_lines(row: Row) -> list[tuple[str, str, str]]:
    goal = f" ({GOALS['disk']})" if row["text"] == "noise" else ""
    what = f"disk per payload, {row['text']}, {row['came']}"
    return [(what, f"{row['disk_per_payload']}{goal}", f"{row['in_use_per_payload']} without free pages")]


def _merge_lines(row: Row) -> list[tuple[str, str, str]]:
    return [
        (f"merging, {row['came']}", f"{row['cpu_us_per_event']['median']} µs CPU an event", f"{row['blocks']} blocks")
    ]


def _past_lines(row: Row) -> list[tuple[str, str, str]]:
    if "subscribe_ms" in row:
        time = f"{row['subscribe_wall_ms']['median']:,} ms"
        return [(f"subscribe(past=last(10)), {row['filter']}, of {row['length']:,}", time, f"{row['found']} found")]
    time = f"{row['search_ms']['median']:,} ms, {row['vs_decode']:,}x decoding ({GOALS['past']}x)"
    more = f"{row['rows']:,} rows in {row['blocks_read']} blocks, {row['blocks_skipped']} skipped"
    return [(f"last(10), {row['filter']}, of {row['length']:,}", time, more)]


def _reopen_lines(row: Row) -> list[tuple[str, str, str]]:
    what = f"reopen, {row['was']}: {row['events']:,} events, {row['subscriptions']:,} subscriptions"
    more = f"{row['journal_s']['median']} s for the journal alone; all back after {row['back_s']['median']} s more"
    return [(what, f"{row['open_s']['median']} s (< {GOALS['reopen']:g})", more)]


SUMMARIES: dict[str, Callable[[Row], list[tuple[str, str, str]]]] = {
    "publish": _publish_lines,
    "tasks": _tasks_lines,
    "disk": _disk_lines,
    "merge": _merge_lines,
    "past": _past_lines,
    "reopen": _reopen_lines,
}


if __name__ == "__main__":
    main()

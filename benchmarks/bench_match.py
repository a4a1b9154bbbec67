"""How fast is the matcher? `python -m benchmarks.bench_match [--quick] [--sizes 1000 10000] [--rates 0.001]`

For each size and match rate of the workload `Content`: text to normal form, add, build, memory, remove, one event at a
time, batches from Arrow and from lists of events, and the flat scan in the same run. Rates are events per CPU-second of
one core; five repetitions, median and spread. Every contender's answers are compared before anything is timed. Results
go to `benchmarks/results/match.jsonl`, with the time of a fixed loop (`loop_ns`): how fast the machine was just then.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import pyarrow as pa

from benchmarks.common import Timing, loop_ns, measure, record, table, undisturbed
from benchmarks.flat_scan import FlatScan, RecordScan
from benchmarks.workloads import ATTRIBUTES, Content
from tocsin import Event, Filter, Matcher
from tocsin.filters.index import engine

EVENTS = 2000
GOALS = {  # events per second at 0.1 %: single, batch from Arrow, and single against the flat scan
    1_000: (150_000, 400_000, 2.5),
    10_000: (100_000, 150_000, 10),
    100_000: (15_000, 30_000, 18),
    1_000_000: (2_500, 5_000, 20),
}


def main() -> None:
    """Run, print a table, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0001, 0.001, 0.01])
    parser.add_argument("--quick", action="store_true", help="up to 10,000 filters at 0.1 %% only; nothing is kept")
    options = parser.parse_args()
    sizes, rates = ([1_000, 10_000], [0.001]) if options.quick else (options.sizes, options.rates)
    if not engine.wait():
        raise SystemExit(f"these figures are about the Numba kernels: {engine.failure()}")
    rows = []
    for size in sizes:
        for rate in rates:
            if size >= 1_000_000 and rate != 0.001 and options.sizes == parser.get_default("sizes"):
                continue  # one cell of a million takes seven minutes to parse; ask for others with --sizes and --rates
            rows.append(run(size, rate))
            print(_line(rows[-1]), flush=True)
            if not options.quick:
                record("match", rows[-1:])  # at once: the last cells take long, and may be stopped
    print()
    print(summary(rows))


def run(size: int, rate: float, repeat: int = 5) -> dict[str, Any]:
    """Measure one cell, everything so many times."""
    content = Content(rate)
    texts = [content.filter() for _ in range(size)]
    started = time.process_time()
    filters = [Filter(text) for text in texts]
    parse = (time.process_time() - started) / size
    again = texts[-1000:]
    cached = measure(lambda: [Filter(text) for text in again], repeat).per(len(again))
    del texts

    matcher = Matcher()
    live = matcher._live  # add without the rebuilds that run beside it: those are timed apart, as `build`
    with undisturbed():
        started = time.thread_time()
        for key, filter in enumerate(filters):
            live.add(key, filter)
        add = (time.thread_time() - started) / size
    matcher.optimize()
    _learn(matcher, [content.event() for _ in range(EVENTS)])
    events = [content.event() for _ in range(EVENTS)]  # others than those it has learnt from
    build = measure(matcher.optimize, repeat, warm=False).per(size)
    flat, records = FlatScan(matcher), RecordScan(matcher)
    columns = pa.table({name: [event.data.get(name) for event in events] for name in ATTRIBUTES}).to_batches()[0]
    matches = _agree(matcher, flat, records, events, columns, [*enumerate(filters[:1000])])
    filters.clear()

    before = matcher.stats()
    few = events if size < 100_000 else events[:500]
    single = measure(lambda: [matcher.match(event) for event in few], repeat).per(len(few))
    after = matcher.stats()
    seen = after["events"] - before["events"]
    scan_events = few[: max(20, min(len(few), 20_000_000 // size))]
    scan = measure(lambda: [flat.match(event) for event in scan_events], repeat).per(len(scan_events))
    verified = measure(lambda: [records.match(event) for event in scan_events], repeat).per(len(scan_events))
    many = columns if size < 1_000_000 else columns.slice(0, 1000)
    arrow = measure(lambda: matcher.match_batch(many), repeat).per(many.num_rows)
    listed = measure(lambda: matcher.match_batch(events[: many.num_rows]), repeat).per(many.num_rows)
    stats = matcher.stats()
    stored = len(matcher.to_bytes())
    gone = min(size // 2, 10_000)
    with undisturbed():
        started = time.thread_time()  # not the process: a rebuild may run beside it
        for key in range(gone):
            matcher.remove(key)
        remove = (time.thread_time() - started) / gone
    return {
        "filters": size,
        "rate": rate,
        "matches_per_event": round(matches, 2),
        "single": _rate(single),
        "arrow": _rate(arrow),
        "list": _rate(listed),
        "flat_scan": _rate(scan),
        "record_scan": _rate(verified),
        "single_vs_flat": round(verified.median / single.median, 1),
        "single_vs_columns": round(scan.median / single.median, 1),
        "scanned_per_event": round((after["scanned"] - before["scanned"]) / seen, 1),
        "tested_per_event": round((after["tested"] - before["tested"]) / seen, 1),
        "unindexed": stats["unindexed"],
        "text_to_normal_form_per_s": round(1 / parse),
        "cached_text_us": round(cached.median, 2),
        "add_us": round(add * 1e6, 2),
        "build_us": round(build.median, 2),
        "remove_us": round(remove * 1e6, 2),
        "index_bytes_per_filter": round(stats["bytes"] / size, 1),
        "key_bytes_per_filter": round(stats["key_bytes"] / size, 1),
        "dictionary_bytes_per_filter": round(stats["dictionary_bytes"] / size, 1),
        "stored_bytes_per_filter": round(stored / size, 1),
        "loop_ns": loop_ns(),
    }


def _learn(matcher: Matcher, events: list[Event]) -> None:
    """Let the matcher see events, as it would in use, before anything is timed."""
    for event in events:
        matcher.match(event)
    matcher._live.settle()
    matcher.optimize()


def _agree(
    matcher: Matcher,
    flat: FlatScan,
    records: RecordScan,
    events: list[Event],
    columns: pa.RecordBatch,
    some: list[tuple[int, Filter]],
) -> float:
    """Check that all contenders answer alike, and some filters like linear evaluation; returns matches per event."""
    sample = events[:40]
    from_arrow, from_list = matcher.match_batch(columns), matcher.match_batch(events)
    for place, event in enumerate(sample):
        answer = sorted(matcher.match(event))
        assert (
            answer
            == sorted(records.match(event))
            == sorted(flat.match(event))
            == sorted(from_arrow[place])
            == sorted(from_list[place])
        )
        assert [key for key, filter in some if filter.matches(event)] == [key for key in answer if int(key) < len(some)]
    assert [sorted(keys) for keys in from_arrow] == [sorted(keys) for keys in from_list]
    total = sum(map(len, from_arrow))
    assert total, "nothing matched: nothing was compared"
    return total / len(events)


def _rate(timing: Timing) -> dict[str, float]:
    return {
        "per_s": round(1e6 / timing.median),
        "us": round(timing.median, 2),
        "low": round(timing.low, 2),
        "high": round(timing.high, 2),
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['filters']:>9,} filters at {row['rate']:.2%}: single {row['single']['per_s']:,}/s, "
        f"Arrow {row['arrow']['per_s']:,}/s, "
        f"list {row['list']['per_s']:,}/s, scan {row['record_scan']['per_s']:,}/s ({row['single_vs_flat']}x), "
        f"by columns {row['flat_scan']['per_s']:,}/s ({row['single_vs_columns']}x)"
    )


def summary(rows: list[dict[str, Any]]) -> str:
    """The table people read; goals in brackets."""
    lines = []
    for row in rows:
        goal = GOALS.get(row["filters"]) if row["rate"] == 0.001 else None
        wanted = [f" ({g:,})" if goal else "" for g in goal or ("", "", "")]
        lines.append(
            [
                f"{row['filters']:,}",
                f"{row['rate']:.2%}",
                f"{row['matches_per_event']:,}",
                f"{row['single']['per_s']:,}{wanted[0]}",
                f"{row['arrow']['per_s']:,}{wanted[1]}",
                f"{row['single_vs_flat']}x{wanted[2]}",
                f"{row['single_vs_columns']}x",
                f"{row['scanned_per_event']:,}",
                f"{row['tested_per_event']:,}",
                " + ".join(str(row[f"{part}_bytes_per_filter"]) for part in ("index", "key", "dictionary")),
                f"{row['build_us']}",
                f"{row['add_us']}",
                f"{row['remove_us']}",
                f"{row['text_to_normal_form_per_s']:,}",
                f"{row['loop_ns']}",
            ]
        )
    heads = (
        "filters", "rate", "matches", "single ev/s (goal)", "Arrow ev/s (goal)", "vs flat scan", "vs columns",
        "scanned", "tested", "bytes + keys + texts", "build µs", "add µs", "remove µs", "texts/s", "loop ns",
    )  # fmt: skip
    return table(heads, lines)


if __name__ == "__main__":
    main()

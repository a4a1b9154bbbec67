"""The thesis's matching experiment, run again (cloud.md section 4): covering forest, BE-Tree, and our matcher.

    python -m benchmarks.bench_thesis_matching [--quick]

Two workloads, both of `benchmarks.opensense`, both with exactly one triplet per subscription:

    triplets   the thesis's: operators `< <= = >= >` at random
    points     the same with `=` alone: nothing covers anything, and hardly anything matches

For 0, 1,000 to 5,000 and 10,000 subscriptions it measures CPU time per publication. Our matcher takes 50k, 100k, 150k
and 200k publications, as the thesis has it. Forest and BE-Tree are references in plain Python and take the first few
of the same stream (`REFERENCE_PUBLICATIONS`): nothing is extrapolated, the unit is µs per publication, and every row
says how many were measured. Structures are checked against each other on the way.

How to read it. In `triplets` about 3 % of the subscriptions match any publication, at every size, so whoever names all
matches is linear in the end: forest, BE-Tree and ours. A forest does well there: `a < 5` hangs under `a < 6`, so it
tests its 80 roots, the matches, and little else. The thesis's picture, a forest that is linear and a BE-Tree that is
almost flat, is therefore not explained by this workload; it is what `points` shows, where a forest is a list and a
BE-Tree a search. Filters tested and matches per publication are recorded beside the times, so that this can be checked.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from benchmarks import opensense
from benchmarks.common import RESULTS, Timing, measure, record, table
from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher
from tocsin.filters.reference import BETree, CoveringForest
from tocsin.model import Event

SUBSCRIPTIONS = (0, 1000, 2000, 3000, 4000, 5000, 10_000)
PUBLICATIONS = (50_000, 100_000, 150_000, 200_000)
OPERATORS = {"triplets": opensense.OPERATORS, "points": ("=",)}
REFERENCE_PUBLICATIONS = {"triplets": 4000, "points": 500}
"""How many the references are measured with: enough for 1 % of repeatability, few enough for ten minutes in all."""
QUICK_SUBSCRIPTIONS = (0, 500, 1000, 2000)
REPEAT = 3
BATCH = 10_000
NAMES = {
    "forest": "covering forest",
    "betree": "BE-Tree",
    "matcher": "Matcher.match",
    "batch": "Matcher.match_batch",
}
COLOURS = {"forest": "#b5483a", "betree": "#c58a1b", "matcher": "#2f6f9f", "batch": "#3d8f5f"}

Row = dict[str, Any]


def main() -> None:
    """Run all, print tables, keep results and draw the plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it runs; results are not kept")
    quick = parser.parse_args().quick
    rows: list[Row] = []
    for workload in OPERATORS:
        rows += run(workload, quick)
        print(report(workload, rows), flush=True)
    if quick:
        print("quick: nothing kept")
        return
    kept = record("thesis_matching", rows)
    draw(rows)
    print(f"kept in {kept} and {kept.with_suffix('.png').name}")


def run(workload: str, quick: bool) -> list[Row]:
    """Measure one workload at every size. Structures grow from size to size: building the forest is quadratic."""
    sizes = QUICK_SUBSCRIPTIONS if quick else SUBSCRIPTIONS
    counts = (5000,) if quick else PUBLICATIONS
    few = min(REFERENCE_PUBLICATIONS[workload], 200) if quick else REFERENCE_PUBLICATIONS[workload]
    events = opensense.publications(max(counts))
    filters = [Filter(text) for text in opensense.subscriptions(max(sizes), operators=OPERATORS[workload])]
    references: dict[str, CoveringForest | BETree] = {
        "forest": CoveringForest(),
        "betree": BETree(opensense.domains()),
    }
    matcher = Matcher()
    rows: list[Row] = []
    have = 0
    for size in sizes:
        new = [(key, filters[key]) for key in range(have, size)]
        have = size
        for name, structure in references.items():
            for key, filter in new:
                structure.add(key, filter)
            rows.append(measure_reference(workload, name, structure, events[:few]))
        matcher.add_many(new)
        matcher.optimize()
        rows += measure_matcher(workload, matcher, events, counts)
        check(references, matcher, events[:: max(1, len(events) // 50)])
        print(f"  {workload}: {size:,} subscriptions done", flush=True)
    return rows


def measure_reference(workload: str, name: str, structure: CoveringForest | BETree, events: list[Event]) -> Row:
    """Time one reference; a first pass counts what it does, and warms it."""
    matches, candidates = [], []
    for event in events:
        matches.append(len(structure.match(event)))
        candidates.append(structure.candidates)

    def work() -> None:
        for event in events:
            structure.match(event)

    return row(workload, name, len(structure), events, measure(work, REPEAT, warm=False)) | {
        "matches": statistics.fmean(matches),
        "candidates": statistics.fmean(candidates),
    }


def measure_matcher(workload: str, matcher: Matcher, events: list[Event], counts: Sequence[int]) -> list[Row]:
    """Time the production index, event by event and in batches."""

    def single(part: list[Event]) -> None:
        match = matcher.match
        for event in part:
            match(event)

    def batches(part: list[Event]) -> None:
        for start in range(0, len(part), BATCH):
            matcher.match_batch(part[start : start + BATCH])

    return [
        row(workload, name, len(matcher), events[:count], timing)
        for name, work in (("matcher", single), ("batch", batches))
        for count, timing in laps(work, events, counts).items()
    ]


def laps(work: Callable[[list[Event]], object], events: list[Event], counts: Sequence[int]) -> dict[int, Timing]:
    """CPU time of the first so many events, for each count: lap times of one pass, added up; several passes."""
    work(events[:1000])
    passes: list[list[float]] = []
    for _ in range(REPEAT):
        starts = (0, *counts)
        parts = [events[start:end] for start, end in zip(starts, counts, strict=False)]
        seconds = [measure(partial(work, part), 1, warm=False).median for part in parts]
        passes.append(list(accumulate(seconds)))
    by_count = dict(zip(counts, zip(*passes, strict=True), strict=True))
    return {count: Timing(statistics.median(times), min(times), max(times)) for count, times in by_count.items()}


def row(workload: str, structure: str, size: int, events: Sequence[Event], timing: Timing) -> Row:
    """One result: CPU microseconds per publication."""
    each = timing.per(len(events))
    return {
        "workload": workload,
        "structure": structure,
        "subscriptions": size,
        "publications": len(events),
        "runs": REPEAT,
        "us_per_publication": round(each.median, 3),
        "us_low": round(each.low, 3),
        "us_high": round(each.high, 3),
        "cpu_seconds": round(timing.median, 4),
        "seed": opensense.SEED,
    }


def check(references: dict[str, CoveringForest | BETree], matcher: Matcher, events: Sequence[Event]) -> None:
    """A benchmark of wrong answers is worth nothing: all three must agree."""
    for event in events:
        expected = sorted(matcher.match(event))
        for name, structure in references.items():
            if sorted(structure.match(event)) != expected:
                raise AssertionError(f"{name} and the matcher differ on {event}")


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Growth as a power: the slope of a line fitted to the logarithms. 1 is linear, 0 is flat."""
    usable = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    return statistics.linear_regression(*zip(*usable, strict=True)).slope if len(usable) > 1 else math.nan


def series(
    rows: Sequence[Row], workload: str, structure: str, field: str = "us_per_publication"
) -> list[tuple[int, Any]]:
    """A field over the number of subscriptions, for the fewest publications measured."""
    chosen = [r for r in rows if r["workload"] == workload and r["structure"] == structure]
    fewest = min(r["publications"] for r in chosen)
    return [(r["subscriptions"], r[field]) for r in chosen if r["publications"] == fewest]


def report(workload: str, rows: Sequence[Row]) -> str:
    """Times in a table, then growth and what was tested."""
    mine = [r for r in rows if r["workload"] == workload]
    sizes = sorted({r["subscriptions"] for r in mine})
    lines = []
    for structure in NAMES:
        for count in sorted({r["publications"] for r in mine if r["structure"] == structure}):
            cells = {r["subscriptions"]: r for r in mine if r["structure"] == structure and r["publications"] == count}
            growth = exponent([(size, cell["us_per_publication"]) for size, cell in cells.items()])
            spread = max((c["us_high"] - c["us_low"]) / c["us_per_publication"] for c in cells.values())
            times = [f"{cells[size]['us_per_publication']:.1f}" for size in sizes]
            lines.append([NAMES[structure], f"{count:,}", *times, f"{growth:.2f}", f"{spread:.0%}"])
    header = ["µs per publication", "measured with", *(f"{size:,}" for size in sizes), "growth", "spread"]
    text = f"\n{workload}\n" + table(header, lines) + "\n"
    counted = []
    for structure in ("forest", "betree"):
        tested = series(rows, workload, structure, "candidates")
        counted.append(
            [f"tested by {NAMES[structure]}", *(f"{n:.0f}" for _, n in tested), f"{exponent(tested):.2f}"],
        )
    found = series(rows, workload, "betree", "matches")
    counted.append(["matches", *(f"{n:.1f}" for _, n in found), f"{exponent(found):.2f}"])
    return text + "\n" + table(["per publication", *(f"{size:,}" for size in sizes), "growth"], counted) + "\n"


def draw(rows: Sequence[Row]) -> None:
    """Plot µs per publication over subscriptions: linear and logarithmic, one line of panels for each workload."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    workloads = list(OPERATORS)
    figure, panels = pyplot.subplots(len(workloads), 2, figsize=(11, 4.2 * len(workloads)), squeeze=False)
    for line, workload in zip(panels, workloads, strict=True):
        for panel, scale in zip(line, ("linear", "log"), strict=True):
            for structure, name in NAMES.items():
                points = series(rows, workload, structure)
                low = [value for _, value in series(rows, workload, structure, "us_low")]
                high = [value for _, value in series(rows, workload, structure, "us_high")]
                if scale == "log":  # 0 has no place there
                    points, low, high = points[1:], low[1:], high[1:]
                sizes, times = zip(*points, strict=True)
                label = f"{name} (growth {exponent(points):.2f})"
                panel.plot(sizes, times, marker="o", markersize=4, color=COLOURS[structure], label=label)
                panel.fill_between(sizes, low, high, color=COLOURS[structure], alpha=0.2, linewidth=0)
            if scale == "log":
                panel.set_xscale("log")
                panel.set_yscale("log")
            panel.set_title(f"{workload}, {scale}", fontsize=10)
            panel.set_xlabel("subscriptions")
            panel.set_ylabel("CPU µs per publication")
            panel.grid(True, alpha=0.25)
        line[0].legend(fontsize=8)
    figure.suptitle("Matching, the thesis's experiment run again: median of three runs, band = fastest to slowest")
    figure.tight_layout()
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / "thesis_matching.png", dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()

"""How fast is detection? `python -m benchmarks.bench_detect [--quick] [--only keyed peers] [--repeat 5]`

    keyed     one SEQ BY k, 20,000 keys, in each context: one event in five is relevant, then all are
    peers     the same in chronicle beside a hand-written loop, a plain event graph and durable_rules
    hundred   100 SEQs over 20 types of events: leaves that ask for more than a type, and leaves that do not
    thousand  10 SEQs, and 1,000 of which the same 10 match
    single    `feed`, one event at a time, at 10 definitions
    define    1,000 definitions, one after the other
    state     snapshot and restore of a million open initiators, until the first event is fed; with WITHIN, too
    node      from the call of `publish` to the delivery of what it completes, on file
    soak      10 million events through `feed_batch`, memory at each million: only when asked for by name

Streams are drawn from fixed seeds. Rates are events per CPU-second of this process, medians of five, each with a fresh
detector; garbage collection waits, except in `state` and `soak`. Every contender must find the same pairs, else nothing
is timed. Results go to `benchmarks/results/detect.jsonl`, with the time of a fixed loop (`loop_ns`) beside them.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import loop_ns, rates, record, spread, stopwatch, table
from benchmarks.detect_node import node
from benchmarks.detect_peers import PEERS, DurablePeer, durable_failure
from tocsin import Detector, Event
from tocsin.clock import as_datetime
from tocsin.composite.expression import CONTEXTS
from tocsin.filters.index import engine

START = 1_800_000_000_000_000
PAIR = "SEQ([type='a'] AS a, [type='b'] AS b) BY k"
RARE = ["a", "b", *(f"x{number}" for number in range(8))]  # one in five is relevant
TYPES = [f"t{number}" for number in range(20)]
GOALS = {
    "keyed rare": 500_000,
    "hundred selective": 150_000,
    "thousand ratio": 3.0,
    "single us": 10.0,
    "define s": 2.0,
    "state s": 3.0,
    "node ms": 3.0,
}
Row = dict[str, Any]


class Sizes(NamedTuple):
    """How much of everything."""

    repeat: int = 5
    events: int = 200_000
    keys: int = 20_000
    durable: int = 20_000
    """durable_rules is slow: it gets fewer events, and we the same few beside it."""
    definitions: int = 1_000
    open: int = 1_000_000
    soak: int = 10_000_000
    pairs: int = 500


QUICK = Sizes(2, 10_000, 1_000, 1_000, 50, 20_000, 200_000, 50)


class Readings:
    """Events with a key `k` and a value `v`, a millisecond apart: endless, and the same for a seed."""

    def __init__(self, types: list[str], keys: int, seed: int = 1) -> None:
        self._types, self._keys = types, keys
        self._draw = random.Random(f"{seed} {len(types)} {keys}")
        self._offset = 0

    def __iter__(self) -> Iterator[Event]:
        draw, types, keys = self._draw.random, self._types, self._keys
        while True:
            self._offset += 1
            yield Event(
                types[int(draw() * len(types))],
                "/bench",
                id=f"e{self._offset}",
                data={"k": int(draw() * keys), "v": int(draw() * 1000)},
                offset=self._offset,
                arrived=as_datetime(START + self._offset * 1000),
            )

    def take(self, count: int) -> list[Event]:
        return list(itertools.islice(self, count))


def main() -> None:
    """Run, print a table, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [part for part in PARTS if part != "soak"]
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=usual, help="these parts")
    parser.add_argument("--quick", action="store_true", help="small sizes, two repetitions; nothing is kept")
    parser.add_argument("--repeat", type=int, help="how often each is timed; 5 if left out")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    if options.repeat:
        sizes = sizes._replace(repeat=options.repeat)
    if not engine.wait():
        raise SystemExit(f"leaves are found with the Numba kernels: {engine.failure()}")
    rows: list[Row] = []
    for part in options.only:
        found = [{"part": part, **row, "loop_ns": loop_ns()} for row in PARTS[part](sizes)]
        for row in found:
            print(json.dumps(row), flush=True)
        if not options.quick:
            record("detect", found)  # at once: later parts may take long, and be stopped
        rows += found
    print()
    print(summary(rows))


# -- parts


def keyed(sizes: Sizes) -> Iterator[Row]:
    """One definition, in each context, and with a span."""
    for name, types in (("rare", RARE), ("all", ["a", "b"])):
        events = Readings(types, sizes.keys).take(sizes.events)
        for context in CONTEXTS:
            yield {"events": name, "context": context, **_fed(lambda: one(PAIR, context), events, sizes.repeat)}  # noqa: B023
        spanned = PAIR.replace(" BY", " WITHIN 5 SECONDS BY")
        yield {"events": f"{name}, within", "context": "chronicle", **_fed(lambda: one(spanned), events, sizes.repeat)}  # noqa: B023


def peers(sizes: Sizes) -> Iterator[Row]:
    """The same question to others. `ours_slower` is what generality costs: our time by theirs."""
    failure = durable_failure()
    for name, types in (("rare", RARE), ("all", ["a", "b"])):
        many = Readings(types, sizes.keys).take(sizes.events)
        few = many[: sizes.durable]
        ours = {len(events): _fed(lambda: one(PAIR), events, sizes.repeat) for events in (many, few)}
        yield {"events": name, "who": "tocsin", **ours[len(many)]}
        for peer, make in PEERS.items():
            if peer == "durable" and failure is not None:
                yield {"events": name, "who": peer, "failure": failure}
                continue
            events = few if peer == "durable" else many
            _agree(peer, make, events)
            theirs = _fed(make, DurablePeer.given(events) if peer == "durable" else events, sizes.repeat)
            slower = ours[len(events)]["cpu_us"]["median"] / theirs["cpu_us"]["median"]
            yield {"events": name, "who": peer, **theirs, "ours_slower": round(slower, 2)}


def hundred(sizes: Sizes) -> Iterator[Row]:
    """Many definitions over few types: ten leaves see each type."""
    events = Readings(TYPES, sizes.keys).take(sizes.events // 4)
    for name in ("selective", "plain"):
        yield {"leaves": name, **_fed(lambda: _hundred(name == "selective"), events, sizes.repeat)}  # noqa: B023


def thousand(sizes: Sizes) -> Iterator[Row]:
    """Definitions that nothing matches should cost nothing."""
    types = [f"{side}{number}" for side in "ab" for number in range(10)]
    events = Readings(types, sizes.keys).take(sizes.events // 4)
    few = _fed(lambda: pairs(10), events, sizes.repeat)
    yield {"definitions": 10, **few}
    many = _fed(lambda: pairs(1_000), events, sizes.repeat)
    assert many["found"] == few["found"]
    slower = many["cpu_us"]["median"] / few["cpu_us"]["median"]
    yield {"definitions": 1_000, **many, "slower": round(slower, 2)}


def single(sizes: Sizes) -> Iterator[Row]:
    """One call for each event; all are relevant."""
    types = [f"{side}{number}" for side in "ab" for number in range(10)]
    events = Readings(types, sizes.keys).take(sizes.events // 4)
    spent = []
    for _ in range(sizes.repeat):
        feed = ready(pairs(10)).feed
        with stopwatch() as each:
            for event in events:
                feed(event)
        spent.append(each)
    yield {"definitions": 10, **rates(spent, len(events))}


def define(sizes: Sizes) -> Iterator[Row]:
    """Definitions one after the other, and the graph of all at the end."""
    spent, first = [], []
    for _ in range(sizes.repeat):
        with stopwatch() as each:
            detector = pairs(sizes.definitions)
        spent.append(each)
        with stopwatch() as each:
            ready(detector)
        first.append(each)
    graph_s = spread(each.cpu for each in first).row()
    yield {"definitions": sizes.definitions, "all_s": spread(each.cpu for each in spent).row(), "graph_s": graph_s}


def state(sizes: Sizes) -> Iterator[Row]:
    """A million openers that wait, each with a key of its own."""
    for name, text in (("plain", PAIR), ("within", PAIR.replace(" BY", " WITHIN 1 DAY BY"))):
        detector = one(text)
        detector.feed_batch(_openers(sizes.open))
        taken, restored = [], []
        for _ in range(sizes.repeat):
            with stopwatch() as each:
                gc.enable()  # as it is in use: to put it off is part of the work
                stored = detector.snapshot()
            taken.append(each)
            with stopwatch() as each:
                gc.enable()
                again = Detector.restore(stored)
                found = again.feed(_event("b", sizes.open + 1, 0))
            assert len(found) == 1
            restored.append(each)
            del again
        both = spread(one.cpu + other.cpu for one, other in zip(taken, restored, strict=True))
        yield {
            "what": name,
            "open": sizes.open,
            "bytes_each": round(len(stored) / sizes.open, 1),
            "snapshot_s": spread(each.cpu for each in taken).row(),
            "restore_s": spread(each.cpu for each in restored).row(),
            "both_s": both.row(),
        }


def soak(sizes: Sizes) -> Iterator[Row]:
    """Does memory stay flat? SEQ WITHIN and NOT, which let go; keys come and go for ever."""
    detector = Detector()
    detector.define("pair", PAIR.replace(" BY", " WITHIN 5 SECONDS BY"), "chronicle")
    missing = "NOT([type='a'], [type='b'], PLUS([type='a'], 2 SECONDS)) WITHIN 3 SECONDS BY k"
    detector.define("missing", missing, "recent")
    stream = iter(Readings(RARE, sizes.soak))  # almost every key is new
    step, resident, found = sizes.soak // 10, [], 0
    started = time.process_time()
    for _ in range(10):
        for _ in range(0, step, 10_000):
            found += len(detector.feed_batch(itertools.islice(stream, 10_000)))
        resident.append(_resident_mb())
    seconds = time.process_time() - started
    growth = resident[-1] / resident[1] - 1  # the first step fills what is kept
    yield {
        "events_fed": detector.stats()["events"],
        "found": found,
        "resident_mb": resident,
        "growth": round(growth, 3),
        "open": {name: each["open"] for name, each in detector.stats()["definitions"].items()},
        "per_cpu_s_with_making": round(sizes.soak / seconds),  # events are made while they are fed
    }


def in_node(sizes: Sizes) -> Iterator[Row]:
    """Latency on a node."""
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as scratch:
        yield node(sizes.repeat, sizes.pairs, Path(scratch))


PARTS: dict[str, Callable[[Sizes], Iterator[Row]]] = {
    "keyed": keyed,
    "peers": peers,
    "hundred": hundred,
    "thousand": thousand,
    "single": single,
    "define": define,
    "state": state,
    "node": in_node,
    "soak": soak,
}


# -- what is measured


def one(text: str, context: str = "chronicle") -> Detector:
    detector = Detector()
    detector.define("pair", text, context)
    return detector


def pairs(count: int) -> Detector:
    """Definitions that have no type in common."""
    detector = Detector()
    for number in range(count):
        detector.define(f"pair{number}", f"SEQ([type='a{number}'] AS a, [type='b{number}'] AS b) BY k")
    return detector


def _hundred(selective: bool) -> Detector:
    draw, detector = random.Random(5), Detector()
    for number in range(100):
        first, second = draw.sample(TYPES, 2)
        low = draw.randrange(950)
        more = f" AND v BETWEEN {low} AND {low + 49}" if selective else ""
        detector.define(f"pair{number}", f"SEQ([type='{first}'{more}] AS a, [type='{second}'{more}] AS b) BY k")
    return detector


def ready(detector: Any) -> Any:
    """With everything compiled that is compiled once."""
    detector.feed_batch(())
    return detector


def _fed(make: Callable[[], Any], events: Iterable[Any], repeat: int) -> Row:
    """Feed a batch to a fresh contender, several times."""
    given, spent, found = list(events), [], 0
    for _ in range(repeat + 1):
        contender = ready(make())
        with stopwatch() as each:
            found = len(contender.feed_batch(given))
        spent.append(each)
    return {"fed": len(given), "found": found, **rates(spent[1:], len(given))}  # the first warms up


def _agree(peer: str, make: Callable[[], Any], events: list[Event]) -> None:
    """Check that a contender finds what we find."""
    told = one(PAIR).feed_batch(events)
    ours = [tuple(part["offset"] for part in event.data["parts"]) for event in told]
    assert ours, "nothing was found: nothing was compared"
    theirs = make().feed_batch(DurablePeer.given(events) if peer == "durable" else events)
    if peer == "durable":  # of several openers it takes whichever it likes
        ours, theirs = [closer for _, closer in ours], [closer for _, closer in theirs]
    assert theirs == ours, f"{peer} finds other pairs"


def _openers(count: int) -> Iterator[Event]:
    for number in range(count):
        yield _event("a", number + 1, number)


def _event(kind: str, offset: int, key: int) -> Event:
    return Event(kind, "/bench", id=f"e{offset}", data={"k": key}, offset=offset, arrived=as_datetime(START + offset))


def _resident_mb() -> float:
    """Memory of this process that is in use."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def summary(rows: list[Row]) -> str:
    """The table people read; goals in brackets."""
    lines = []
    for row in rows:
        what = " ".join(
            str(row[name]) for name in ("events", "who", "context", "leaves", "definitions", "what") if name in row
        )
        lines.append([f"{row['part']} {what}", *_figures(row)])
    return table(("workload", "events/s", "µs", "low", "high", "found", "", "goal"), lines)


def _figures(row: Row) -> list[str]:
    part = row["part"]
    if "failure" in row:
        return ["", "", "", "", "", row["failure"], ""]
    if part == "soak":
        grown = f"{row['resident_mb'][1]} to {row['resident_mb'][-1]} MB"
        return [f"{row['per_cpu_s_with_making']:,}", "", "", "", str(row["found"]), grown, "flat"]
    if part == "node":
        beyond = [f"{row['beyond_p50_ms'][name]} ms" for name in ("median", "low", "high")]
        return ["", *beyond, str(row["pairs"]), "p50 beyond two commits", f"{GOALS['node ms']} ms"]
    if part in ("define", "state"):
        timing = row["all_s"] if part == "define" else row["both_s"]
        seconds = [f"{timing[name]} s" for name in ("median", "low", "high")]
        return ["", *seconds, "", "", f"{GOALS[f'{part} s']} s"]
    us = row["cpu_us"]
    more = goal = ""
    if "ours_slower" in row:
        more = f"we take {row['ours_slower']}x as long"
    if "slower" in row:
        more, goal = f"{row['slower']}x of 10", f"{GOALS['thousand ratio']}x"
    if part == "keyed" and row["events"] == "rare":
        goal = f"{GOALS['keyed rare']:,}"
    if row.get("leaves") == "selective":
        goal = f"{GOALS['hundred selective']:,}"
    if part == "single":
        goal = f"{GOALS['single us']} µs"
    return [
        f"{row['per_cpu_s']:,}",
        str(us["median"]),
        str(us["low"]),
        str(us["high"]),
        str(row.get("found", "")),
        more,
        goal,
    ]


if __name__ == "__main__":
    main()

"""How good is the network? `python -m benchmarks.bench_wire [--quick] [--only publish stream]`

    publish   durable publishing, batched, 1,000 events on their way at a time, one client process
    stream    publish, deliver and settle, batched: a process that publishes, one that consumes
    steady    1,000 a second from a schedule, published, delivered and settled one by one: how long until delivered
    request   a client asks, another answers, 200 a second: how long until the answer is there
    crowd     20 consumers that want 5 % each: CPU per wanted event, of server and consumers together
    idle      1,000 clients that do nothing: memory of the server for each, and how quickly they connect

The peer is Redis Streams with `appendfsync always` through redis-py (`wire_peer.py`), in the same run, turn by turn; if
there is no redis-server, or no redis-py, ours is measured alone. Server and clients are processes of their own; events
have five fields and 200 bytes of noise. Medians of the turns; a ratio is that of two runs of one turn, and above 1 ours
is quicker (of latencies and CPU: below 1 ours is less). `cpu` is microseconds for one event, of each process. Blocks
are merged when commits pause, or too many wait: of so few events as here, mostly after the clock has stopped. What that
takes is measured too (`later_cpu_us`), and the peer has it not. What is lost, comes twice or was not asked for ends the
run. Results go to `benchmarks/results/wire.jsonl`.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import wire_peer
from benchmarks.common import options_for, run_parts, spread, table
from benchmarks.processes import Program, cpu_of, memory_of
from benchmarks.readings import percentile

OURS, PEER = "benchmarks.wire_programs", "benchmarks.wire_peer"
WINDOW, BATCH = 1_000, 500
RATE, ASKED = 1_000, 200
GOALS = {
    "publish": 2.0,
    "stream": 1.2,
    "p50": 1.5,
    "p99": 2.0,
    "request": 1.0,
    "crowd": 0.25,
    "idle": 40.0,
    "rate": 200,
}
Row = dict[str, Any]


class Sizes(NamedTuple):
    """How much of everything."""

    repeat: int = 3
    events: int = 100_000
    seconds: int = 8
    crowd: int = 20_000
    consumers: int = 20
    clients: int = 1_000


QUICK = Sizes(1, 10_000, 2, 2_000, 20, 100)


def main() -> None:
    """Run, print a table, keep the results."""
    options = options_for(__doc__, PARTS, child=1).parse_args()
    sizes = QUICK if options.quick else Sizes()
    parts = {part: functools.partial(PARTS[part], sizes) for part in options.only}
    rows = run_parts("wire", parts, directory=options.dir, keep=not options.quick)
    print()
    print(table(("what", "ours", "peer", "ratio (goal)", "more"), [line for row in rows for line in _lines(row)]))


class Server(NamedTuple):
    """A server, ours or the peer's: who to speak to, and whom to ask for CPU."""

    module: str
    address: str
    pid: int


@contextlib.contextmanager
def ours(scratch: Path, name: str) -> Iterator[Server]:
    """A node on a new file."""
    with Program(OURS, "serve", scratch / f"{name}.db") as program:
        yield Server(OURS, program.said()["url"], program.pid)


@contextlib.contextmanager
def peer(scratch: Path, name: str) -> Iterator[Server]:
    """A Redis on a new file."""
    with wire_peer.running(scratch / f"{name}-redis") as (pid, port):
        yield Server(PEER, str(port), pid)


def contenders() -> Mapping[str, Callable[[Path, str], contextlib.AbstractContextManager[Server]]]:
    """Whom to measure: ours, and the peer if it is there."""
    return {"ours": ours} | ({"peer": peer} if wire_peer.version() is not None else {})


def _turns(
    sizes: Sizes, scratch: Path, run: Callable[[Server, int], Row], *, most: int = 99
) -> tuple[dict[str, list[Row]], Row]:
    """What `run` finds for each, turn by turn, each time on a new file; the first turn is for warming up."""
    found: dict[str, list[Row]] = {name: [] for name in contenders()}
    for turn in range(min(sizes.repeat, most) + (sizes.repeat > 1)):
        for name, start in contenders().items():
            with start(scratch, f"{name}-{turn}") as server:
                row = run(server, turn)
            if turn or sizes.repeat == 1:
                found[name].append(row)
    return found, {"peer_version": wire_peer.version()}


def _medians(rows: list[Row]) -> Row:
    return {key: spread(row[key] for row in rows).row() for key in rows[0]}


def _ratios(found: dict[str, list[Row]], key: str, *, inverse: bool = False) -> Row:
    """Ours by the peer's, of runs of the same turn."""
    if "peer" not in found:
        return {}
    pairs = zip(found["ours"], found["peer"], strict=True)
    return spread(b[key] / a[key] if inverse else a[key] / b[key] for a, b in pairs).row()


def _per_event(count: int, **seconds: float) -> Row:
    return {f"{name}_us": each / count * 1e6 for name, each in seconds.items()}


# -- parts


def publish(sizes: Sizes, scratch: Path) -> list[Row]:
    """One publisher, nobody who listens."""
    count = sizes.events

    def run(server: Server, turn: int) -> Row:
        sizes_of = (BATCH, WINDOW) if server.module == OURS else (WINDOW,)
        with Program(server.module, "publish", server.address, count, *sizes_of, turn) as publisher:
            publisher.said()
            cpu = cpu_of(server.pid)
            publisher.go()
            said = publisher.said()
            cpu = cpu_of(server.pid) - cpu
        if server.module == OURS and turn == 1:
            later.append(_until_quiet(server.pid) / count * 1e6)
        return {"per_s": count / said["wall"], **_per_event(count, server_cpu=cpu, client_cpu=said["cpu"])}

    later: list[float] = []
    found, about = _turns(sizes, scratch, run)
    return [_row(found, {"events": count, "ratio": _ratios(found, "per_s"), "later_cpu_us": later} | about)]


def _until_quiet(pid: int) -> float:
    """Wait until a process does nothing; returns the CPU seconds it took until then."""
    began = cpu_of(pid)
    before, now = -1.0, began
    while now - before > 0.02:
        time.sleep(0.5)
        before, now = now, cpu_of(pid)
    return now - began


def stream(sizes: Sizes, scratch: Path) -> list[Row]:
    """One publisher, one consumer that settles."""
    count = sizes.events

    def run(server: Server, turn: int) -> Row:
        sizes_of = (BATCH, WINDOW) if server.module == OURS else (WINDOW,)
        with (
            Program(server.module, "consume", server.address, count, BATCH) as consumer,
            Program(server.module, "publish", server.address, count, *sizes_of, turn) as publisher,
        ):
            consumer.said()
            publisher.said()
            cpu, began = cpu_of(server.pid), time.perf_counter()
            consumer.go()
            publisher.go()
            published, settled = publisher.said(), consumer.said()
            cpu = cpu_of(server.pid) - cpu
        each = _per_event(count, server_cpu=cpu, publisher_cpu=published["cpu"], consumer_cpu=settled["cpu"])
        return {"per_s": count / (settled["ended"] - began), **each}

    found, about = _turns(sizes, scratch, run)
    return [_row(found, {"events": count, "ratio": _ratios(found, "per_s")} | about)]


def steady(sizes: Sizes, scratch: Path) -> list[Row]:
    """Latency at a steady rate."""
    count = RATE * sizes.seconds

    def run(server: Server, turn: int) -> Row:
        with (
            Program(server.module, "steady_consume", server.address, count) as consumer,
            Program(server.module, "steady_publish", server.address, RATE, sizes.seconds) as publisher,
        ):
            consumer.said()
            publisher.said()
            cpu = cpu_of(server.pid)
            consumer.go()
            publisher.go()
            published, settled = publisher.said(), consumer.said()
            cpu = cpu_of(server.pid) - cpu
        assert len(settled["latencies"]) == count
        return {
            "p50_ms": percentile(settled["latencies"], 50) * 1e3,
            "p99_ms": percentile(settled["latencies"], 99) * 1e3,
            "answer_p50_ms": percentile(published["answered"], 50) * 1e3,
            **_per_event(count, server_cpu=cpu, publisher_cpu=published["cpu"], consumer_cpu=settled["cpu"]),
        }

    found, about = _turns(sizes, scratch, run, most=3)
    ratios = {name: _ratios(found, f"{name}_ms") for name in ("p50", "p99")}
    return [_row(found, {"events": count, "rate": RATE, "ratio": ratios} | about)]


def request(sizes: Sizes, scratch: Path) -> list[Row]:
    """Latency of requests; the peer has none."""
    count = ASKED * sizes.seconds
    rows: list[Row] = []
    for turn in range(min(sizes.repeat, 3)):
        with ours(scratch, f"ask-{turn}") as server, Program(OURS, "answer", server.address) as answerer:
            answerer.said()
            with Program(OURS, "ask", server.address, ASKED, sizes.seconds) as asker:
                asker.said()
                asker.go()
                found = asker.said()["latencies"]
        assert len(found) == count
        rows.append({f"p{percent}_ms": percentile(found, percent) * 1e3 for percent in (50, 99)})
    return [{"events": count, "rate": ASKED, "ours": _medians(rows)}]


def crowd(sizes: Sizes, scratch: Path) -> list[Row]:
    """Many consumers that want little each."""
    count = sizes.crowd

    def run(server: Server, turn: int) -> Row:
        sizes_of = (BATCH, WINDOW) if server.module == OURS else (WINDOW,)
        with (
            Program(server.module, "crowd", server.address, sizes.consumers, count) as consumers,
            Program(server.module, "publish", server.address, count, *sizes_of, turn) as publisher,
        ):
            consumers.said()
            publisher.said()
            cpu = cpu_of(server.pid)
            consumers.go()
            publisher.go()
            publisher.said()
            said = consumers.said()
            cpu = cpu_of(server.pid) - cpu
        assert said["got"] == count, said
        found = _per_event(count, server_cpu=cpu, consumers_cpu=said["cpu"])
        return found | {"cpu_us": found["server_cpu_us"] + found["consumers_cpu_us"]}

    found, about = _turns(sizes, scratch, run, most=2)
    return [_row(found, {"events": count, "consumers": sizes.consumers, "ratio": _ratios(found, "cpu_us")} | about)]


def idle(sizes: Sizes, scratch: Path) -> list[Row]:
    """Many clients that do nothing."""
    with ours(scratch, "idle") as server, Program(OURS, "idle", server.address, 20) as few:
        few.said()
        few.go()  # what the first of them cost is not what each costs
        few.said()
        before = memory_of(server.pid)
        with Program(OURS, "idle", server.address, sizes.clients) as many:
            many.said()
            cpu = cpu_of(server.pid)
            many.go()
            said = many.said()
            cpu = cpu_of(server.pid) - cpu
            each = (memory_of(server.pid) - before) / sizes.clients
    return [
        {
            "clients": sizes.clients,
            "kb_each": round(each / 1024, 1),
            "connects_per_s": round(sizes.clients / said["wall"]),
            "connect_cpu_ms": {
                "server": round(cpu / sizes.clients * 1e3, 2),
                "client": round(said["cpu"] / sizes.clients * 1e3, 2),
            },
        }
    ]


PARTS: dict[str, Callable[[Sizes, Path], list[Row]]] = {
    "publish": publish,
    "stream": stream,
    "steady": steady,
    "request": request,
    "crowd": crowd,
    "idle": idle,
}


def _row(found: dict[str, list[Row]], more: Row) -> Row:
    return {name: _medians(rows) for name, rows in found.items()} | more


# -- what people read


def _lines(row: Row) -> Iterable[tuple[str, ...]]:
    part, mine, other = row["part"], row.get("ours", {}), row.get("peer", {})

    def cell(side: Row, key: str, form: str) -> str:
        return format(side[key]["median"], form) if key in side else "-"

    def cpu(side: Row) -> str:
        return " + ".join(f"{side[key]['median']:.1f}" for key in side if key.endswith("_cpu_us")) or "-"

    if part in ("publish", "stream"):
        ratio = f"{row['ratio']['median']:.2f}" if row["ratio"] else "-"
        more = f"cpu {cpu(mine)} µs, peer {cpu(other)} µs"
        yield part, cell(mine, "per_s", ",.0f"), cell(other, "per_s", ",.0f"), f"{ratio} (≥ {GOALS[part]})", more
    elif part == "steady":
        for name in ("p50", "p99"):
            ratio = f"{row['ratio'][name]['median']:.2f}" if row["ratio"][name] else "-"
            ms = f"{name}_ms"
            yield f"steady {name}, ms", cell(mine, ms, ".2f"), cell(other, ms, ".2f"), f"{ratio} (≤ {GOALS[name]})", ""
    elif part == "request":
        more = f"p99 {mine['p99_ms']['median']:.2f}"
        yield "request p50, ms", cell(mine, "p50_ms", ".2f"), "-", f"(≤ {GOALS['request']})", more
    elif part == "crowd":
        ratio = f"{row['ratio']['median']:.3f}" if row["ratio"] else "-"
        more = f"{cpu(mine)}, peer {cpu(other)}"
        cells = cell(mine, "cpu_us", ".1f"), cell(other, "cpu_us", ".1f")
        yield "crowd, µs per wanted", *cells, f"{ratio} (≤ {GOALS['crowd']})", more
    else:
        yield "idle, KB each", f"{row['kb_each']}", "-", f"(< {GOALS['idle']})", f"{row['clients']:,} clients"
        yield "connects per second", f"{row['connects_per_s']:,}", "-", f"(≥ {GOALS['rate']})", ""


if __name__ == "__main__":
    main()

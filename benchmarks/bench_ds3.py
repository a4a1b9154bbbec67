"""DS3's tests of load, run again: `python -m benchmarks.bench_ds3 [--quick] [--only normal overload]`

    normal     18 instances at 10 events a second each, 30 at 1 (beside it, on a node of their own), then 30 at 10,
               which broke DS3: 100 s each, 1000 bytes. A quotient of 1.00 says that everybody heard everything in time.
    overload   18 instances at 100 a second each, ten times the normal load, for 60 s: what the node takes, how much
               memory it needs meanwhile, and how long it takes until everybody has heard everything; then the normal
               load again. DS3's servers ended with overflowing buffers after a second of that.

Everybody subscribes to everything, durably, and settles what it gets; every event is looked for everywhere. The node is
a process of its own, so are the instances together (`ds3_load.py`). DS3's figures are of three Pentium 4, on which
nothing was stored. Results go to `benchmarks/results/ds3.jsonl`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import ds3_load
from benchmarks.common import options_for, run_parts, table
from benchmarks.ds3_load import Load
from benchmarks.processes import Program, cpu_of, memory_of, say, wait_for_go

SERVER, ME = "benchmarks.wire_programs", "benchmarks.bench_ds3"
DS3 = {(18, 10.0): "1.00", (30, 1.0): "1.00", (30, 10.0): "broke", (18, 100.0): "0.37, then exit"}
"""What DS3 reached: the quotient."""
Row = dict[str, Any]


class Sizes(NamedTuple):
    """How much of everything."""

    seconds: float = 100.0
    overload: float = 60.0


QUICK = Sizes(3.0, 3.0)


def main() -> None:
    """Run, print a table, keep the results."""
    options = options_for(__doc__, PARTS, child=5).parse_args()
    if options.child:
        url, name, *numbers = options.child
        load = Load(int(numbers[0]), float(numbers[1]), float(numbers[2]))
        wait_for_go()
        say(**asyncio.run(ds3_load.run(url, load, name))._asdict())
        return
    sizes = QUICK if options.quick else Sizes()
    parts = {part: functools.partial(PARTS[part], sizes) for part in options.only}
    rows = run_parts("ds3", parts, directory=options.dir, keep=not options.quick)
    print()
    print(table(("load", "published/s", "heard/s by one", "quotient", "DS3", "more"), map(_line, rows)))


class Running(NamedTuple):
    """A load under way, and the process of its node."""

    load: Load
    program: Program
    pid: int


@contextlib.contextmanager
def node(path: Path) -> Iterator[tuple[str, int]]:
    """A node on a new file: its address and its process."""
    with Program(SERVER, "serve", path) as program:
        yield program.said()["url"], program.pid


@contextlib.contextmanager
def loaded(url: str, pid: int, load: Load, name: str) -> Iterator[Running]:
    """Instances at work."""
    numbers = (load.instances, load.rate, load.seconds)
    with Program(ME, "--child", url, name, *numbers) as program:
        program.said()
        program.go()
        yield Running(load, program, pid)


def _found(running: Running) -> Row:
    load, cpu = running.load, cpu_of(running.pid)
    rss = [memory_of(running.pid)]
    while (said := running.program.heard(1.0)) is None:
        rss.append(memory_of(running.pid))
    assert not said["lost"] and not said["twice"], said
    steady = rss[len(rss) // 4 :]
    return {
        "instances": load.instances,
        "rate": load.rate,
        "seconds": load.seconds,
        **{name: round(value, 3) for name, value in said.items()},
        "server_cpu_us_each": round((cpu_of(running.pid) - cpu) / (said["published"] * load.instances) * 1e6, 1),
        "server_rss_mb": {"first": round(rss[0] / 1e6, 1), "quarter": round(steady[0] / 1e6, 1)}
        | {"highest": round(max(rss) / 1e6, 1), "last": round(rss[-1] / 1e6, 1)},
    }


def normal(sizes: Sizes, scratch: Path) -> list[Row]:
    """DS3's normal load, and what was too much for it."""
    rows = []
    with node(scratch / "a.db") as (url, pid), node(scratch / "b.db") as (other_url, other_pid):
        first, beside = Load(18, 10, sizes.seconds), Load(30, 1, sizes.seconds)
        with loaded(url, pid, first, "ds3") as one, loaded(other_url, other_pid, beside, "ds3") as other:
            rows += [_found(one), _found(other)]
    with node(scratch / "c.db") as (url, pid), loaded(url, pid, Load(30, 10, sizes.seconds), "ds3") as running:
        rows.append(_found(running))
    return rows


def overload(sizes: Sizes, scratch: Path) -> list[Row]:
    """Ten times the normal load, and the normal load again."""
    with node(scratch / "a.db") as (url, pid):
        with loaded(url, pid, Load(18, 100, sizes.overload), "flood") as running:
            flood = _found(running)
        with loaded(url, pid, Load(18, 10, min(10.0, sizes.seconds)), "after") as running:
            after = _found(running)
    return [flood, after]


PARTS: dict[str, Callable[[Sizes, Path], list[Row]]] = {"normal": normal, "overload": overload}


def _line(row: Row) -> tuple[str, ...]:
    more = f"recovery {row['recovery']:.1f} s, rss {row['server_rss_mb']['highest']:.0f} MB"
    return (
        f"{row['instances']} × {row['rate']:g}/s, {row['seconds']:g} s",
        f"{row['per_s']:.0f}",
        f"{row['heard_per_s']:.0f}",
        f"{row['quotient']:.2f} (σ {row['deviation']:.2f})",
        DS3[row["instances"], float(row["rate"])],
        more,
    )


if __name__ == "__main__":
    main()

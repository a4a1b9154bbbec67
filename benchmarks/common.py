"""What every benchmark needs: CPU timing with a median and a spread, and a writer of results.

Promises:
    - `measure` counts CPU seconds of this process (all its threads), not wall time: a busy neighbour on the machine
      costs little. It runs the function once before timing unless told otherwise, and garbage collection waits.
    - `stopwatch` takes both, for work that waits for the disk.
    - `record` appends JSON lines to `benchmarks/results/<name>.jsonl`, each with commit, host, versions, date and load.
      It never rewrites a line: a result once kept stays.

Does not promise: that two hosts compare, or two runs on a loaded one. `load` is in every line so that one can tell.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.journal.durably import flush_seconds

__all__ = [
    "RESULTS",
    "Spent",
    "Timing",
    "commit",
    "environment",
    "host",
    "loop_ns",
    "measure",
    "rates",
    "record",
    "options_for",
    "run_parts",
    "spread",
    "stopwatch",
    "table",
    "undisturbed",
    "versions",
]

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("msgspec", "numba", "numpy", "pyarrow", "sqlglot", "google-re2")


class Timing(NamedTuple):
    """Several runs of the same work: CPU seconds, or seconds on the wall, or whatever else was taken of each."""

    median: float
    low: float
    high: float

    def per(self, count: int, scale: float = 1e6) -> Timing:
        """The same per item: microseconds unless `scale` says otherwise."""
        return Timing(*(value / count * scale for value in self))

    @property
    def spread(self) -> float:
        """Slowest minus fastest, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0

    def row(self) -> dict[str, float]:
        """The same for a result line."""
        return {name: round(value, 3) for name, value in self._asdict().items()}


class Spent:
    """What a stretch of work took; filled in at its end."""

    cpu = 0.0
    """CPU seconds of this process, all its threads."""
    wall = 0.0
    """Seconds on the wall: waiting for the disk is in it, and so is a busy neighbour."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Collect garbage now, and not while something is timed."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        (gc.enable if collecting else gc.disable)()


def measure(fn: Callable[[], object], repeat: int = 5, *, warm: bool = True) -> Timing:
    """Run `fn` `repeat` times and return its CPU seconds.

    Args:
        fn: the work; whatever it needs must be prepared before.
        repeat: how many runs are timed.
        warm: one run before them, so that caches are filled and kernels compiled.
    """
    if warm:
        fn()
    seconds = []
    for _ in range(repeat):
        with undisturbed():
            start = time.process_time()
            fn()
            seconds.append(time.process_time() - start)
    return spread(seconds)


def loop_ns() -> float:
    """Nanoseconds a trivial loop takes per turn: always the same work, so it shows how fast the machine is just now."""

    def turns() -> None:
        total = 0
        for number in range(1_000_000):
            total += number

    return round(measure(turns, 3).median / 1_000_000 * 1e9, 1)


@contextmanager
def stopwatch() -> Iterator[Spent]:
    """Take the time of the block, undisturbed by garbage collection."""
    spent = Spent()
    with undisturbed():
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield spent
        finally:
            spent.cpu, spent.wall = time.process_time() - cpu, time.perf_counter() - wall


def spread(values: Iterable[float]) -> Timing:
    """Median, lowest and highest of what several runs gave."""
    found = list(values)
    return Timing(statistics.median(found), min(found), max(found))


def rates(spent: Sequence[Spent], count: int) -> dict[str, Any]:
    """How fast `count` items were done in each of several runs: by CPU seconds, and by the wall."""
    cpu, wall = spread(each.cpu for each in spent), spread(each.wall for each in spent)
    return {
        "per_cpu_s": round(count / cpu.median),
        "per_s": round(count / wall.median),
        "cpu_us": cpu.per(count).row(),
        "wall_us": wall.per(count).row(),
    }


def options_for(doc: str | None, parts: Iterable[str], *, child: int) -> argparse.ArgumentParser:
    """The options of a benchmark that works on files: which parts, where, how large; `child` arguments for a helper."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts), help="these parts")
    parser.add_argument("--dir", help="where files are made; the system's place for temporary files if left out")
    parser.add_argument("--quick", action="store_true", help="small sizes, two repetitions; nothing is kept")
    parser.add_argument("--child", nargs=child, help=argparse.SUPPRESS)
    return parser


def run_parts(
    name: str,
    parts: Mapping[str, Callable[[Path], Iterable[Mapping[str, Any]]]],
    *,
    directory: str | None,
    keep: bool,
) -> list[dict[str, Any]]:
    """Run the parts of a benchmark that works on files, each in a folder of its own; print and return its rows.

    Args:
        name: the benchmark.
        parts: each gives its rows, for a folder that is removed behind it.
        directory: where folders are made; None: the system's place for temporary files.
        keep: whether to `record` the rows, each part's at once: later parts may take long, and be stopped.
    """
    rows: list[dict[str, Any]] = []
    for part, run in parts.items():
        about = {"flush_ms": round(flush_seconds(directory, 50) * 1e3, 2), "loop_ns": loop_ns()}
        with tempfile.TemporaryDirectory(prefix="tocsin-bench-", dir=directory) as scratch:
            found = [{"part": part, **row, **about} for row in run(Path(scratch))]
        for row in found:
            print(json.dumps(row), flush=True)
        if keep:
            record(name, found)
        rows += found
    return rows


def record(name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Append rows to the results of the benchmark `name` and return the file.

    A row's own fields come first; `environment()` is added to each.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.jsonl"
    where = environment()
    with path.open("a", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps({**row, **where}, sort_keys=False, default=_plain) + "\n")
    return path


def environment() -> dict[str, Any]:
    """Everything a reader needs to judge a number: commit, host, versions, date, load average."""
    return {
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": host(),
        "versions": versions(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


@functools.cache
def commit() -> str:
    """The commit measured, with `+` behind it if files differ from it; `none` before the first."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return "none"
    # Results are files of the repository too: a second run is not a change of what is measured.
    changed = _git("status", "--porcelain", "--", ".", ":(exclude)benchmarks/results")
    return head + ("+" if changed else "")


@functools.cache
def host() -> dict[str, Any]:
    """The machine: processor, how many, memory in GB, system."""
    processor = platform.processor() or platform.machine()
    memory = 0.0
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (OSError, ValueError):  # not Linux: what `platform` knows is enough
        pass
    return {
        "name": platform.node(),
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


@functools.cache
def versions() -> dict[str, str]:
    """Python, Tocsin and the libraries that do the work."""
    found = {"python": platform.python_version(), "tocsin": _version("tocsin")}
    return found | {package: _version(package) for package in PACKAGES}


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows as aligned text: the first column to the left, the others to the right."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _git(*args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *args], cwd=RESULTS.parent.parent, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _plain(value: object) -> object:
    """NumPy's numbers as Python's."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"cannot write {type(value).__name__} as JSON")
    return item()

"""CPU seconds of this process and everything below it: the JVM, the Python workers, those that have ended too.

Promised: children that were waited for are in their parent's figure, so workers that come and go are counted.
Not promised: processes whose parent ended before them; Spark's daemon waits for its workers. Linux only (`/proc`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common import Spent, undisturbed

__all__ = ["tree_cpu", "tree_stopwatch"]

_TICK = os.sysconf("SC_CLK_TCK")


def tree_cpu() -> float:
    """CPU seconds so far."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(entry.name)] = int(fields[1])
        spent[int(entry.name)] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while True:
        more = {process for process, parent in parents.items() if parent in mine} - mine
        if not more:
            return sum(spent[process] for process in mine) / _TICK
        mine |= more


@contextmanager
def tree_stopwatch() -> Iterator[Spent]:
    """Like `common.stopwatch`, for the whole tree."""
    spent = Spent()
    with undisturbed():
        wall, cpu = time.perf_counter(), tree_cpu()
        try:
            yield spent
        finally:
            spent.cpu, spent.wall = tree_cpu() - cpu, time.perf_counter() - wall

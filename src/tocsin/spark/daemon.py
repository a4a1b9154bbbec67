"""Spark's daemon for Python processes, which imports before it forks: `python -m tocsin.spark.daemon MODULE`.

Spark has one daemon for the workers of tasks, and one for each kind of question it asks a data source on the driver
(its schema, its plan, its commit). Processes that were idle for a minute are ended. PySpark's daemon imports nothing
before it forks, so each new process spends a second on imports, on an idle stream for every event that comes. Here the
daemon has done so: new processes answer at once, and share the memory.

Forking is safe only where no thread holds a lock. What is imported here leaves none behind: NumPy is told to use one
core (`launchers.py`), Arrow and its allocator take care of forks, Numba's loading is waited for. If the kernels were
never compiled, that takes as long as the compiler does, once per installation.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import sys

from pyspark import daemon

__all__ = ["main", "preload"]

_TASKS = "pyspark.worker"
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_NEEDED = (
    *("pyarrow.compute", "pandas", "pyspark.sql.pandas.serializers", "pyspark.sql.pandas.types"),
    *("pyspark.sql.conversion", "tocsin.spark.source", "tocsin.spark.sink", "tocsin.spark.stateful"),
)


def preload(module: str) -> None:
    """Import what processes of this daemon will need.

    Args:
        module: which one they run.
    """
    for name in (module, *_NEEDED):
        # Whoever needs it will import it again, and there the error reaches the user.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if module == _TASKS:
        _load_kernels()
    gc.collect()
    gc.freeze()  # PySpark collects garbage after every task: not what was imported here, which would unshare it


def _load_kernels() -> None:
    from tocsin.filters.index import engine as matching
    from tocsin.journal import engine as transcoding

    matching.wait()
    transcoding.wait()


def _adopt() -> None:
    """Be the parent of what workers leave behind, the keepers of engines: so they are found and ended with us."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Import, then serve until Spark closes our stdin."""
    _adopt()
    preload(sys.argv[1] if len(sys.argv) > 1 else _TASKS)
    daemon.manager()


if __name__ == "__main__":
    main()

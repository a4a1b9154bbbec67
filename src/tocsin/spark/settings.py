"""The settings of a session of ours: what Tocsin needs, what makes a local Spark quick and quiet, and nothing else.

Not set, on purpose: the session's time zone. The columns are instants, the same everywhere; the zone only says how they
are shown and which day they fall on, and that is the user's to choose.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tocsin.errors import SessionError
from tocsin.spark import machine

__all__ = ["Master", "parse_master", "settings"]

RUNTIME = {
    "spark.sql.python.filterPushdown.enabled": "true",  # else a source never hears of a query's filters
}
"""What a session must have whoever made it; can be set while it runs."""

_ALWAYS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Large enough that the cost of a batch does not count, and as large as a partition of the source.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # The only one that keeps state of transformWithState, and keeps it outside the heap.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes what has changed to a log, and leaves files of the whole state to the background.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's own choice asks the operating system by starting programs (chmod, readlink), several for each file. This
    # one renames as well, and a micro-batch ends a tenth of a second earlier.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""When driver and executors are on this machine."""

_LOGGING = Path(__file__).with_name("log4j2.properties")
_GIB = 1 << 30
_LOCAL = re.compile(r"local(?:\[\s*(?P<threads>\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<executors>\d+)\s*,\s*(?P<cores>\d+)\s*,\s*\d+\s*\]")
_OWN_CLUSTER = re.compile(r"spark://(?:127\.0\.0\.1|localhost|\[::1\]):\d+")
_MEMORY = re.compile(r"[1-9]\d*[kmgt]b?", re.IGNORECASE)


class Master(NamedTuple):
    """Where a session runs."""

    here: bool
    """Everything on this machine."""
    inside: bool
    """Tasks run inside the driver's JVM."""
    cores: int | None
    """How many tasks run at once; None: the cluster knows."""


def parse_master(master: str) -> Master:
    """What a master's url says.

    Raises:
        SessionError: it begins like a local one and is none, or is a server's address.
    """
    if master.startswith("local"):
        if found := _LOCAL.fullmatch(master):
            threads = found["threads"] or "1"
            cores = machine.cores() if threads == "*" else int(threads)
            if cores > 0:
                return Master(here=True, inside=True, cores=cores)
        elif found := _LOCAL_CLUSTER.fullmatch(master):
            return Master(here=True, inside=False, cores=max(1, int(found["executors"]) * int(found["cores"])))
        raise SessionError(
            f"{master!r} is not a master", field="master", help="write local[*], local[4] or local-cluster[2,1,1024]"
        )
    if master.startswith("sc:"):
        raise SessionError(
            f"{master!r} is the address of a Spark Connect server; Tocsin needs a driver of its own",
            field="master",
            help="write local[*], or a cluster's address such as spark://host:7077, yarn or k8s://…",
        )
    return Master(here=_OWN_CLUSTER.fullmatch(master) is not None, inside=False, cores=None)


def settings(master: str, app: str, memory: str | None) -> dict[str, str]:
    """Every setting of a new session.

    Args:
        master: where it runs.
        app: its name.
        memory: heap of each JVM that runs tasks, as Spark writes it: `4g`, `512m`; None: on this machine a quarter of
            its memory, from 1 to 8 GiB, since Python and the page cache want theirs; on a cluster what it gives.

    Raises:
        SessionError: a master or an amount of memory that means nothing.
    """
    where = parse_master(master)
    chosen = {"spark.master": master, "spark.app.name": app, **_ALWAYS, **RUNTIME}
    # Quotes, for a path with spaces. The default options come before a user's extra ones.
    chosen["spark.driver.defaultJavaOptions"] = f'"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"'
    if where.here:
        chosen |= _HERE
    if where.cores is not None:
        chosen["spark.sql.shuffle.partitions"] = str(where.cores)
    if memory is not None and not _MEMORY.fullmatch(memory):
        raise SessionError(f"{memory!r} is not an amount of memory", field="memory", help="write 4g or 512m")
    if memory is None and where.inside:
        memory = f"{min(max(machine.memory() // 4, _GIB), 8 * _GIB) >> 20}m"
    if memory is not None:
        chosen["spark.driver.memory" if where.inside else "spark.executor.memory"] = memory
    return chosen

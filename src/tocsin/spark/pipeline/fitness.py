"""Can the pipeline run here? Looked at before Spark is started, so that the answer is quick and clear."""

from __future__ import annotations

import re
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from tocsin.errors import SessionError
from tocsin.node.channel import Settings
from tocsin.spark import java, requirements
from tocsin.spark.settings import parse_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check", "check_master", "check_shared", "note_jvm", "wait_for_predecessor"]

_PATIENCE = 5.0  # seconds to reach a master
_SUCCESSION = 20.0  # seconds in which the JVM of a killed predecessor ends; its watchdog needs five
_ADDRESS = re.compile(r"(?:spark|k8s)://(?:https?://)?(?P<hosts>[^/]+)")
_JVM = "jvm"


def check(settings: Settings) -> None:
    """Refuse what cannot become better by itself.

    Raises:
        SessionError: packages or a Java are missing, or executors elsewhere would look for the node where they are.
    """
    found = {package.name: package for package in requirements.packages()}
    for name in ("pyspark", "pandas", "pyarrow", "protobuf", "grpcio"):
        package = found.get(name)
        if package is not None and not package.fits:
            there = f"is {package.found}" if package.found else "is not installed"
            message = f"{name} {there}; the pipeline needs {package.needed}"
            raise SessionError(message, help="pip install 'tocsin[spark]'")
    java.find_java()
    host = urlsplit(settings.url).hostname or ""
    if not parse_master(settings.master).here and (host == "localhost" or host.startswith("127.") or host == "::1"):
        raise SessionError(
            f"executors of {settings.master} cannot reach this node at {settings.url}, which is their own machine",
            field="advertise",
            help="listen where they reach it (--host), or say where that is: --advertise https://host:8420",
        )


def check_master(master: str) -> None:
    """Refuse a master that cannot be reached: Spark itself would try for a minute, and say less.

    Raises:
        SessionError: it cannot be reached.
    """
    address = _ADDRESS.match(master)
    if address is None:
        return
    reason = ""
    for each in address["hosts"].split(","):
        host, _, port = each.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
            return
        except ValueError:
            reason = f"{each} names no port"
        except OSError as error:
            reason = error.strerror or str(error)
    raise SessionError(
        f"the Spark master {master} cannot be reached: {reason}",
        field="master",
        help="start it, or give another --master; it is tried again, and what comes meanwhile is looked at then",
    )


def check_shared(spark: SparkSession, directory: Path) -> None:
    """Refuse executors that do not see the pipeline's directory: state would be lost without a word.

    Raises:
        SessionError: one of them does not.
    """
    probe = directory / f"probe-{secrets.token_hex(8)}"
    probe.write_bytes(b"")
    try:
        path, tasks = str(probe), max(2, spark.sparkContext.defaultParallelism)

        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                where = socket.gethostname() if not Path(path).exists() else None
                yield pa.record_batch({"missing": pa.array([where], pa.string())})

        missing = sorted(
            {row[0] for row in spark.range(0, tasks, 1, tasks).mapInArrow(look, "missing STRING").collect()} - {None}
        )
    finally:
        probe.unlink()
    if missing:
        raise SessionError(
            f"executors on {', '.join(missing)} do not see {directory}",
            field="data",
            help="keep --data on a disk that all machines see, at the same path; the pipeline's checkpoint is there",
        )


def note_jvm(directory: Path, pid: int) -> None:
    """Write down which JVM works on the checkpoints of a directory."""
    (directory / _JVM).write_text(f"{pid} {_started(pid)}")


def wait_for_predecessor(directory: Path) -> None:
    """Wait until the JVM of a pipeline that was killed is gone: two must not work on one checkpoint.

    Raises:
        SessionError: it does not go.
    """
    try:
        pid, started = (directory / _JVM).read_text().split(None, 1)
    except (OSError, ValueError):
        return
    until = time.monotonic() + _SUCCESSION
    while started and _started(int(pid)) == started:
        if time.monotonic() > until:
            raise SessionError(
                f"the Spark of an earlier pipeline still runs, as process {pid}", help=f"end it: kill {pid}"
            )
        time.sleep(0.1)


def _started(pid: int) -> str:
    """When a process was started, so that no later one of its number is taken for it; empty: it does not run."""
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # gone; or this system has no /proc, and the JVM's watchdog is trusted
        return ""
    return "" if state in "ZX" else others[18]

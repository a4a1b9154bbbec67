"""A standalone Spark cluster on this machine: a master and some workers, each a process of its own.

    with standalone(workers=2) as cluster:
        spark = ts.session(cluster.master)

For trying what runs on a cluster, and for tests; `make cluster` does. A worker starts executors, an executor starts
Pythons: everything is as on several machines, except that the files are in one place.

Promised: ports that are free, reached from this machine only. When the block ends, or this process in whatever way,
master, workers, executors and their Pythons end too. Not promised: speed. These are JVMs that share your cores.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyspark

from tocsin.errors import SessionError
from tocsin.spark import java, launchers, watchdog

__all__ = ["Cluster", "standalone"]

_PATIENCE = 90.0  # seconds for a JVM to come up; on an idle machine it takes three
_TICK = 0.05
_LOGGING = """rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
_MASTER = re.compile(r"Starting Spark master at (spark://\S+:\d+)")
_REGISTERED = re.compile(r"Successfully registered with master")


class Cluster(NamedTuple):
    """A cluster that runs."""

    master: str
    """Its address, for `ts.session` or `spark-submit --master`."""
    workers: tuple[int, ...]
    """Process ids."""
    directory: Path
    """Logs, and what executors say; gone when the block ends."""


@contextlib.contextmanager
def standalone(workers: int = 2, *, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """Run a cluster as long as the block runs.

    Args:
        workers: how many.
        cores: how many tasks each worker's executors run at once.
        memory: what each worker gives to executors.

    Raises:
        SessionError: there is no Java, or a process did not come up; the message has what it said last.
    """
    with tempfile.TemporaryDirectory(prefix="tocsin-cluster-") as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        conf = directory / "conf"
        conf.mkdir()
        (conf / "log4j2.properties").write_text(_LOGGING)
        environment = _environment(directory)

        def start(kind: str, what: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
            log = directory / f"{kind}.log"
            process = _start(log, environment, what, *arguments)
            stack.callback(_end, process)
            return process, log

        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        process, log = start("master", "master.Master", *here)
        master = _wait_for(_MASTER.search, process, log, "the master")[1]
        started = []
        for number in range(workers):
            size = ("--cores", str(cores), "--memory", memory, "--work-dir", str(directory / f"worker{number}"))
            started.append(start(f"worker{number}", "worker.Worker", *here, *size, master))
        for process, log in started:
            _wait_for(_REGISTERED.search, process, log, "a worker")
        yield Cluster(master, tuple(process.pid for process, _ in started), directory)


def _environment(directory: Path) -> dict[str, str]:
    """Of all processes; what other Sparks of this user are told is left out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {
        "JAVA_HOME": str(launchers.java_home(java.find_java().program)),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(directory / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
    }


def _start(log: Path, environment: Mapping[str, str], what: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One of Spark's daemons, in the foreground; in a session of its own, so that Ctrl-C is ours to handle."""
    program = Path(environment["SPARK_HOME"], "bin", "spark-class")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, f"org.apache.spark.deploy.{what}", *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    watchdog.guard(process.pid)
    return process


def _wait_for(
    find: Callable[[str], re.Match[str] | None], process: subprocess.Popen[bytes], log: Path, who: str
) -> re.Match[str]:
    until = time.monotonic() + _PATIENCE
    while True:
        ended = process.poll()
        said = log.read_text(errors="replace")
        found = find(said)
        if found is not None and ended is None:
            return found
        if ended is not None or time.monotonic() > until:
            why = f"ended with code {ended}" if ended is not None else f"did not come up in {_PATIENCE:.0f} s"
            raise SessionError(
                f"{who} of the cluster {why}: {said[-1000:].strip()}", help="`tocsin doctor` may know more"
            )
        time.sleep(_TICK)


def _end(process: subprocess.Popen[bytes]) -> None:
    watchdog.end(process.pid)
    process.wait()

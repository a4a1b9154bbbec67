"""The application: a Spark session, and in it detection, the archive and statistics, until the node says it is enough.

It keeps nothing that is not in checkpoints, the lake or the node, and may be killed at any moment: the next one goes
on. If its JVM is gone or detection fails it ends, and the node's supervisor starts another.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tocsin.errors import SessionError
from tocsin.node.channel import Definitions, Line, Look, Settings, Up
from tocsin.spark.pipeline import fitness
from tocsin.spark.pipeline.archiving import Archiving
from tocsin.spark.pipeline.detection import Detecting
from tocsin.spark.pipeline.matching import Matching
from tocsin.spark.pipeline.periodic import every
from tocsin.spark.pipeline.statistics import Statistics
from tocsin.spark.session import session
from tocsin.spark.settings import Master, parse_master

__all__ = ["Application"]

_LOOK = 0.1  # seconds between two looks at definitions and at what was done
_TRIES = 4  # of a task, before its query fails: a worker may be killed
_CONF = {
    "spark.scheduler.mode": "FAIR",  # a large piece of the archive must not hold up detection
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


class Application:
    """The pipeline, inside its process."""

    def __init__(self, line: Line, settings: Settings) -> None:
        """Prepare it."""
        self._line, self._settings = line, settings
        self._directory = Path(settings.directory)
        self._ending = threading.Event()
        self._is_up = False
        self._where = parse_master(settings.master)

    def _source(self) -> dict[str, str]:
        """The journal as tasks see it: its file, if they are on this machine; else the node. The lake, once it is."""
        source = {"url": f"file:{self._settings.journal}"}
        if not self._where.here:
            source = {"url": self._settings.url}
            given = {"token": self._settings.token, "ca": self._settings.ca}
            source |= {name: value for name, value in given.items() if value is not None}
        if self._settings.lake is not None and Path(self._settings.lake, "_tocsin").exists():
            source["lake"] = self._settings.lake
        return source

    def run(self) -> None:
        """Work until the end.

        Raises:
            TocsinError: it cannot go on; the message says how to mend it.
            SystemExit: it was told to end before Spark was up.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        fitness.wait_for_predecessor(self._directory)
        fitness.check_master(self._settings.master)
        Detecting.check(self._line.ask(Look(None), Definitions), self._settings)  # before half a minute is spent
        master, conf = _session_settings(self._settings.master, self._where)
        spark = session(master, app="tocsin pipeline", conf=conf)
        self._is_up = True
        try:
            jvm = _jvm(spark.sparkContext)
            if jvm is not None:
                fitness.note_jvm(self._directory, jvm.pid)
            if not self._where.here:
                fitness.check_shared(spark, self._directory)
            if self._where.cores is None:  # Spark's own two hundred would be as many tasks in every batch
                spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
            self._line.ask(Up(spark.version))
            self._work(spark)
        except Exception as error:
            if jvm is None or jvm.poll() is None:
                raise
            help = "it is started again; if that repeats, see pipeline.log"
            raise SessionError("Spark's JVM has ended", help=help) from error
        finally:
            _stop(spark)

    def _end(self, *_: object) -> None:
        self._ending.set()
        if not self._is_up:  # which takes long
            raise SystemExit

    def _work(self, spark: SparkSession) -> None:
        if self._settings.lake is not None and self._where.here:
            archiving = Archiving(spark, self._line, self._settings)
            every(archiving.EVERY, "archive", archiving.run, self._line, self._ending)
        statistics = Statistics(spark, self._line, self._source, self._settings.journal)
        every(statistics.EVERY, "statistics", statistics.run, self._line, self._ending)
        matching = Matching(spark, self._line, self._settings, self._source)
        every(matching.TIDY, "filters", matching.tidy, self._line, self._ending)
        detecting = Detecting(spark, self._line, self._settings, self._source)
        while not self._ending.wait(_LOOK):
            _ = spark.version  # raises if the JVM is gone
            detecting.look()
            matching.look()
        detecting.stop()
        matching.stop()


def _session_settings(master: str, where: Master) -> tuple[str, dict[str, str]]:
    """Where the session runs, and how: a task that was killed is tried again also on this machine."""
    conf = dict(_CONF)
    if not where.inside or where.cores is None:
        return master, conf
    if where.cores <= 2:  # one bucket: what two would share they would pay for twice
        conf["spark.sql.shuffle.partitions"] = "1"
    return (master if "," in master else f"local[{where.cores},{_TRIES}]"), conf


def _jvm(context: SparkContext) -> subprocess.Popen[bytes] | None:
    process: subprocess.Popen[bytes] | None = getattr(context._gateway, "proc", None)
    return process


def _stop(spark: SparkSession) -> None:
    """Stop Spark, and wait until its JVM is gone: the next pipeline must not meet it."""
    process = _jvm(spark.sparkContext)
    if process is None or process.poll() is not None:
        return
    with contextlib.suppress(Exception):  # whatever it says, it ends now
        spark.stop()
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)

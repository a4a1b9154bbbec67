"""The archive of the pipeline: what the journal has that the lake has not is brought there, by Spark, now and then."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tocsin.node.channel import Archived, Line, Report, Settings
from tocsin.spark.archive import archive

__all__ = ["Archiving"]


class Archiving:
    """Brings a journal into a lake, a little at a time."""

    EVERY = 30.0
    """Seconds between two runs. Each writes a chunk that is not complete anew, so that files do not stay small."""

    def __init__(self, spark: SparkSession, line: Line, settings: Settings) -> None:
        """Prepare it."""
        self._spark, self._line, self._settings = spark, line, settings
        self._events = 0

    def run(self) -> None:
        """Bring over what has come since."""
        assert self._settings.lake is not None
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "archive")
        done = archive(f"file:{self._settings.journal}", self._settings.lake, spark=self._spark)
        self._events += done.events
        self._line.ask(Report(archived=Archived(done.last, self._events, round(done.seconds, 3))))

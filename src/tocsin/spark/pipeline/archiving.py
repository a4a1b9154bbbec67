"""The archive of the pipeline: what the journal has that the lake has not is brought there, by Spark, now and then.

A chunk that is complete is written soon, and once. The last one, which is not, must be written anew whenever there is
more of it; so that is done when nothing comes any more, and else seldom.
"""

from __future__ import annotations

import time
from contextlib import closing

from pyspark.sql import SparkSession

from tocsin.journal.archiver import CHUNK
from tocsin.journal.lake import Lake
from tocsin.journal.reader import open_reader
from tocsin.node.channel import Archived, Line, Report, Settings
from tocsin.spark.archive import archive

__all__ = ["Archiving"]

_QUIET, _BUSY = 30.0, 300.0
"""Seconds between two times that an incomplete chunk is written, if nothing comes, and if much does."""


class Archiving:
    """Brings a journal into a lake, a little at a time."""

    EVERY = 5.0
    """Seconds between two looks."""

    def __init__(self, spark: SparkSession, line: Line, settings: Settings) -> None:
        """Prepare it."""
        self._spark, self._line, self._settings = spark, line, settings
        self._events = 0
        self._head = -1
        self._whole = time.monotonic() - _QUIET  # when everything was brought over last, or might have been

    def run(self) -> None:
        """Bring over what is worth it."""
        assert self._settings.lake is not None
        with closing(open_reader(self._settings.journal)) as reader:
            head = reader.head
        is_quiet, self._head = head == self._head, head
        last, now = Lake(self._settings.lake).last, time.monotonic()
        upto = head // CHUNK * CHUNK
        if now >= self._whole + (_QUIET if is_quiet else _BUSY):
            upto = head
        if upto <= last:
            return
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "archive")
        done = archive(f"file:{self._settings.journal}", self._settings.lake, spark=self._spark, upto=upto)
        if upto == head:
            self._whole = time.monotonic()
        self._events += done.events
        self._line.ask(Report(archived=Archived(done.last, self._events, round(done.seconds, 3))))

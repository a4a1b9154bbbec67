"""What a task measures while it matches: how long each shard kept it busy.

CPU time of the thread that matches, so that a busy machine is not taken for a busy matcher; loading an index is not
counted, since it says nothing of the next batch. One report for each task and shard, through an accumulator of
Spark's: it comes to the driver when the task has succeeded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

from pyspark import TaskContext

from tocsin.spark.shards import Shard

__all__ = ["Measured", "Spent", "Tally"]


class Measured(NamedTuple):
    """What one task did for one shard."""

    query: str
    """Which streaming query; empty outside of one."""
    batch: int
    """Which of its batches, or else which of Spark's executions."""
    shard: Shard
    seconds: float
    events: int
    filters: int


class Spent:
    """What a task does for one shard."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.nanoseconds = 0
        self.events = 0
        self.filters = 0

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Count the time of this block."""
        begun = time.thread_time_ns()
        try:
            yield
        finally:
            self.nanoseconds += time.thread_time_ns() - begun


class Tally:
    """What a task does for each of its shards."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._spent: dict[Shard, Spent] = {}

    def of(self, shard: Shard, events: int, filters: int) -> Spent:
        """Where to count what these events take."""
        spent = self._spent.setdefault(shard, Spent())
        spent.events += events
        spent.filters = filters
        return spent

    def told(self) -> list[Measured]:
        """All of it, with the batch this task belongs to."""
        context = TaskContext.get()
        asked = context.getLocalProperty if context is not None else lambda _: None
        query = asked("sql.streaming.queryId") or ""
        batch = asked("streaming.sql.batchId") or asked("spark.sql.execution.id") or "0"
        return [
            Measured(query, int(batch), shard, spent.nanoseconds / 1e9, spent.events, spent.filters)
            for shard, spent in self._spent.items()
        ]

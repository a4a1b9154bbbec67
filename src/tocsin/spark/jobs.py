"""How far Spark's jobs are: tasks done, and tasks known, told to somebody while a block runs.

Spark learns how many tasks a later stage has when it gets there, so the total grows. What is told never goes back.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import SparkContext, StatusTracker
from pyspark.sql import SparkSession

__all__ = ["Progress", "told"]

Progress = Callable[[int, int | None], None]
"""Is told how much is done, of how much; None: not known."""

_OWN = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
"""What a thread says of its jobs."""
_EVERY = 0.1
"""Seconds between two looks."""


@contextmanager
def told(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """Tell how far the jobs are that this thread starts in the block; if it is left in a hurry, they are cancelled."""
    context = spark.sparkContext
    group = f"tocsin-{uuid.uuid4().hex}"
    before = {name: context.getLocalProperty(name) for name in _OWN}
    context.setJobGroup(group, "tocsin", interruptOnCancel=True)
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(context, group, progress, ended), daemon=True) if progress else None
    try:
        if teller is not None:
            teller.start()
        yield
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        ended.set()
        if teller is not None:
            teller.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None takes it away


def _tell(context: SparkContext, group: str, progress: Progress, ended: threading.Event) -> None:
    tracker = context.statusTracker()
    best = (0, 0)
    while not ended.wait(_EVERY):
        done, known = _tasks(tracker, group)
        if known and (done, known) > best:
            best = done, known
            progress(done, known)


def _tasks(tracker: StatusTracker, group: str) -> tuple[int, int]:
    """Tasks that are done, and that are known, of all jobs of a group; stages that were skipped do not count."""
    done = known = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                done, known = done + found.numCompletedTasks, known + found.numTasks
    return done, known

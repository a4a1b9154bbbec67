"""The filters of the subscriptions that Spark matches: a filter set, and what the node calls its versions.

    of the set     7    8    9    10    11
    of the node    3         4          6        8 and 10: shards were split or merged

Nobody but the pipeline changes the set, and a balance changes only how it is divided. So a version that was not made
here has the filters of the last one that was.

Every subscription that comes or goes is a version, and a file. Those that no batch can need any more are pruned: what
Spark may repeat is in the checkpoint, by its version, and later batches have later versions. Where no event comes there
are no batches; then `is_crowded` says that a new checkpoint is due.

Concurrency: `change` and `divided` belong to one thread; `called` and `prune` may be called in others.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tocsin.node.channel import Subscriptions
from tocsin.node.divided import Divided, ShardStatus
from tocsin.spark import elastic
from tocsin.spark.elastic import Elastic
from tocsin.spark.filterset import FilterSet
from tocsin.spark.pipeline.checkpoint import Checkpoint
from tocsin.spark.shards import WHOLE, Layout

__all__ = ["UNKNOWN", "Subscribed"]

UNKNOWN = -1
"""A version of the node's that has no subscription at all."""
SPARE = 100
"""Versions that may be pruned before it is done: each time a base is made, of all filters."""
CROWDED = 1_000
"""Versions that are too many: batches are so rare that those which the checkpoint names have grown old."""


class Subscribed:
    """What is subscribed to on Spark."""

    def __init__(self, directory: Path, checkpoint: Checkpoint, policy: Elastic | None) -> None:
        """Name its directory, the checkpoint of the query that follows it, and how shards come and go; None: never."""
        self.filters = FilterSet(directory)
        """The set."""
        self._checkpoint, self._policy = checkpoint, policy
        self._lock = threading.Lock()
        self._made: list[tuple[int, int]] = []  # versions of the set, in order, and what the node calls them
        self._have: Mapping[Any, str] = {}

    def change(self, wanted: Subscriptions) -> None:
        """Make the set what the node wants."""
        if not self._made:
            self.filters.change()  # there is a set from now on
            self._have = self.filters.filters()
        gone = [key for key in self._have if key not in wanted.filters]
        version = self.filters.change(put=wanted.filters, remove=gone)
        if self._policy is None:  # it was elastic once, on a cluster
            version = self.filters.lay_out(Layout(), instead=self.filters.layout()) or version
        with self._lock:
            self._made = [each for each in self._made if each[0] < version] + [(version, wanted.version)]
        self._have = wanted.filters

    def called(self, version: int) -> int:
        """What the node calls the subscriptions of a version of the set; `UNKNOWN`: it is from another life."""
        with self._lock:
            place = bisect_right(self._made, version, key=lambda each: each[0])
            return self._made[place - 1][1] if place else UNKNOWN

    def prune(self) -> int:
        """Remove versions that no batch can need any more, if there are many; returns how many went."""
        if not self._made:
            return 0
        needed: int | None = self.filters.version  # before the next look: if there is no checkpoint, no query runs
        if self._checkpoint.exists:
            needed = self._checkpoint.least("filters")
        if needed is None or needed - self.filters.oldest < SPARE:
            return 0
        count = self.filters.prune_before(needed)
        self.filters.prune()
        with self._lock:
            place = bisect_right(self._made, needed, key=lambda each: each[0])
            del self._made[: max(0, place - 1)]
        return count

    @property
    def is_crowded(self) -> bool:
        """Are there too many versions that cannot be pruned as long as there is this checkpoint?"""
        return bool(self._made) and self.filters.version - self.filters.oldest > CROWDED

    def divided(self) -> Divided | None:
        """How it is divided, and how busy its shards are; None: nobody has asked for any."""
        if not self._made:
            return None
        if self._policy is not None:
            return elastic.status(self.filters)
        return Divided(self.filters.version, (ShardStatus(str(WHOLE), len(self._have)),))

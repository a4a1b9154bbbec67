"""The driver's side of elastic matchers: gather what tasks measured, and act on it.

Reports come through an accumulator, task by task. When the first one of a batch comes, the batch before is complete: a
thread of ours adds its loads to the windows, asks `elastic.rebalanced`, and writes a new layout, if there is one, as a
version of the filter set. The source puts that version into the next batch it plans. So a batch knows one layout from
its first task to its last, repeated or not, and nothing has to be handed over.

There is one `Balance` for each set of a Spark application, however often `ts.match` is called: in `foreachBatch` it is
called for each batch. A query with another policy takes its place if the queries that had the old one have ended; while
one runs it is refused, since two policies would split and merge the same shards for ever. Windows live in memory only:
a driver that begins anew measures anew.

Promised: whatever fails here is logged and costs balance, never a match or a query.
Not promised: that two applications agree on one set. Only one of them should be elastic.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from tocsin.errors import MatcherError
from tocsin.journal import durably
from tocsin.node.divided import Relaid, ShardStatus
from tocsin.spark.elastic import NOTES, Elastic, Load, Notes, rebalanced
from tocsin.spark.filterset import FilterSet
from tocsin.spark.measuring import Measured
from tocsin.spark.shards import Layout, Shard

__all__ = ["Balance", "meter", "settle"]

_log = logging.getLogger(__name__)

REMEMBERED = 20
"""Changes of the layout that are told by `elastic.status`."""


class Balance:
    """The loads of a set's shards, and what follows from them."""

    def __init__(self, filters: FilterSet, policy: Elastic, most: int) -> None:
        """Nothing is known yet."""
        self._filters = filters
        self._policy = policy
        self._most = most
        self._open: dict[str, tuple[int, dict[Shard, Load]]] = {}
        self._lock = threading.Lock()
        self._windows: dict[Shard, deque[Load]] = {}
        self._before: dict[Shard, Load] = {}
        self._notes = Notes(_now(), policy)
        self._is_over = False
        self.queries: set[str] = set()
        """The streaming queries that were heard of."""
        self._hand = ThreadPoolExecutor(1, "tocsin-balance")

    def take(self, told: Iterable[Measured]) -> None:
        """Hear of tasks that are done. Returns at once: Spark's scheduler waits for it."""
        with self._lock:
            for each in told:
                self.queries.add(each.query)
                batch, loads = self._open.get(each.query, (each.batch, {}))
                if batch != each.batch:
                    self._hand.submit(self._weigh, loads)
                    loads = {}
                known = loads.get(each.shard, Load(0.0, 0, 0))
                loads[each.shard] = Load(known.seconds + each.seconds, known.events + each.events, each.filters)
                self._open[each.query] = each.batch, loads

    def settle(self) -> None:
        """Take the batches that are under way for complete, and return when what follows is done."""
        with self._lock:
            for _, loads in self._open.values():
                self._hand.submit(self._weigh, loads)
            self._open.clear()
        self._hand.submit(int).result()  # it does one thing after the other

    def end(self) -> None:
        """Another policy is in force: what tasks still tell is not acted on."""
        self._is_over = True

    def _weigh(self, loads: dict[Shard, Load]) -> None:
        if self._is_over:
            return
        try:
            layout = self._filters.layout()
            for shard, load in loads.items():
                self._windows.setdefault(shard, deque(maxlen=self._policy.window)).append(load)
            wanted = rebalanced(layout, self._windows, self._policy, self._most, self._before)
            if wanted != layout:
                version = self._filters.lay_out(wanted, instead=layout)
                if version is not None:
                    self._changed(layout, wanted, version)
                    layout = wanted
            self._forget(layout)
            self._note(layout)
        except Exception:  # whatever it is, the query goes on as it is
            _log.exception("the shards of %s stay as they are", self._filters.path)

    def _changed(self, old: Layout, new: Layout, version: int) -> None:
        split = [shard for shard in old.shards if shard.halves and set(shard.halves) <= set(new.shards)]
        merged = [shard for shard in new.shards if shard.halves and set(shard.halves) <= set(old.shards)]
        for shard in split:
            lightest = min(self._windows[shard], key=lambda load: load.each)
            self._before |= dict.fromkeys(shard.halves or (), lightest)
        words = [f"split {shard}" for shard in split] + [f"merged {shard}" for shard in merged]
        what = f"{', '.join(words)}: {len(new)} shards"
        _log.info("%s, from version %d on: %s", self._filters.path, version, what)
        notes = self._notes
        self._notes = msgspec.structs.replace(
            notes,
            splits=notes.splits + len(split),
            merges=notes.merges + len(merged),
            changes=(*notes.changes, Relaid(version, _now(), what))[-REMEMBERED:],
        )

    def _forget(self, layout: Layout) -> None:
        """What is known of shards that are no more; they may come again, and then begin anew."""
        for known in (self._windows, self._before):
            for shard in known.keys() - set(layout.shards):
                del known[shard]

    def _note(self, layout: Layout) -> None:
        """Leave word for `elastic.status`."""
        shards = []
        for shard in layout.shards:
            loads = self._windows.get(shard)
            if loads:
                seconds = tuple(round(load.seconds, 6) for load in loads)
                shards.append(ShardStatus(str(shard), loads[-1].filters, loads[-1].events, seconds))
        self._notes = msgspec.structs.replace(self._notes, time=_now(), shards=tuple(shards))
        durably.replace(os.path.join(self._filters.path, NOTES), msgspec.json.encode(self._notes))


def _now() -> datetime:
    return datetime.now(UTC)


# -- the way from the tasks


class _Adding(AccumulatorParam[list[Measured]]):
    """In a task: reports are collected."""

    def zero(self, value: list[Measured]) -> list[Measured]:
        return []

    def addInPlace(self, value1: list[Measured], value2: list[Measured]) -> list[Measured]:
        return [*value1, *value2]


class _Telling(_Adding):
    """In the driver: they go on to the balance, and nothing is kept."""

    def __init__(self, balance: Balance) -> None:
        self._balance = balance

    def addInPlace(self, value1: list[Measured], value2: list[Measured]) -> list[Measured]:
        self._balance.take(value2)
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        return _Adding, ()


_meters: dict[tuple[str, str], tuple[tuple[Elastic, int], Balance, Accumulator[list[Measured]]]] = {}
_meters_lock = threading.Lock()


def meter(spark: SparkSession, filters: FilterSet, policy: Elastic, most: int) -> Accumulator[list[Measured]]:
    """Where tasks tell what they measured: one for each application and set.

    Raises:
        MatcherError: a query that still runs balances this set by another policy.
    """
    context = spark.sparkContext
    place, limits = (str(context.applicationId), filters.path), (policy, most)
    with _meters_lock:
        if place in _meters and _meters[place][0] != limits:
            known, balance, _ = _meters[place]
            if balance.queries & {str(query.id) for query in spark.streams.active}:
                raise MatcherError(
                    f"a running query balances {filters.path} by {known[0]}",
                    field="shards",
                    help="give both queries the same Elastic, or stop that one first",
                )
            balance.end()
            del _meters[place]
        if place not in _meters:
            balance = Balance(filters, policy, most)
            _meters[place] = limits, balance, context.accumulator([], _Telling(balance))
        return _meters[place][2]


def settle(filters: FilterSet) -> None:
    """Act on all that was measured of a set until now, without waiting for the next batch."""
    with _meters_lock:
        balances = [balance for (_, path), (_, balance, _) in _meters.items() if path == filters.path]
    for balance in balances:
        balance.settle()

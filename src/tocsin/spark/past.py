"""`past`: the events that a subscription with a bound would be given, as a DataFrame over journal and lake.

    bound ─ a moment is an offset, last(n) is searched on executors ─▶ first … head ─▶ source ─▶ only what is alive

What is given is what a node that opens the journal at this moment gives to a new consumer: what matches, up to the head
of this moment, and is neither expired nor cancelled. Events that are not persistent are left out, all of them: such a
node takes them for events of an earlier life, and Spark cannot know whose life is going on.

Promised: the same offsets as a node's, also where the journal was trimmed and the lake has the rest. `last(n)` looks at
the newest events first and at no more than it needs; it is searched when `past` is called, the rest when the DataFrame
is used. Nothing but single numbers comes to the driver, and the offsets that were cancelled.
Not promised: an order; sort by `offset`. What is cancelled or expires after the call is still in the DataFrame.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from contextlib import closing
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from tocsin.clock import SECOND, SystemClock, as_micros
from tocsin.errors import BoundError, JournalError
from tocsin.filters.filter import Filter
from tocsin.journal import bounds
from tocsin.journal.bounds import Bound, Last, Past, Since, Within
from tocsin.journal.contract import CANCELLED
from tocsin.journal.lake import remembered_lake
from tocsin.journal.opening import file_path
from tocsin.model import parse_time
from tocsin.spark.asking import is_address
from tocsin.spark.origin import Origin, open_origin
from tocsin.spark.schema import SCHEMA

__all__ = ["past"]

_FIRST_STRETCH, _GROWTH = 200_000, 4
"""How far back `last` looks at first, and how much farther each time it has not found enough."""
_LISTED = 200
"""Cancelled offsets that are written into the query; more are joined."""
_ASKED = "offset BIGINT, arrived TIMESTAMP, ttl DOUBLE, persistent BOOLEAN"
"""What must be known of an event to tell whether it counts."""
_MICROSECOND = timedelta(microseconds=1)

_log = logging.getLogger(__name__)


def past(
    spark: SparkSession,
    url: str,
    filter: str | Filter,
    bound: Past,
    *,
    lake: str | os.PathLike[str] | None = None,
    system: bool = False,
    now: datetime | str | None = None,
) -> DataFrame:
    """Give the past that a bound selects, with the columns of the source.

    Args:
        spark: the session; one of your own must be registered (`tocsin.spark.register`).
        url: the journal, as in `file:plant.db`.
        filter: what is wanted.
        bound: how much of it, as in `subscribe(past=…)`.
        lake: the journal's archive; None: where it was archived to, if it was.
        system: whether system records count.
        now: the moment from which `within` is measured and at which events must be alive; None: this moment, or that
            of the newest event, if the machine's clock is behind it.

    Raises:
        BoundError: the bound means nothing.
        FilterError: the filter is none.
        JournalError: there is no such journal.
        LakeError: there is no such lake, or it is another journal's.
    """
    if is_address(url):
        raise JournalError(
            f"{url} is the address of a node, which does not show what was cancelled",
            path=url,
            help="name the journal's file, as in file:plant.db; or read the address, with the option filter",
        )
    wanted = bounds.coerce(bound)
    if wanted is None:
        raise BoundError("the past of None is nothing", field="past", help="give tocsin.retained() for all of it")
    filter = filter if isinstance(filter, Filter) else Filter(filter)
    place = _lake(url, lake)
    with closing(open_origin(url, place)) as origin:
        first, head = origin.first, origin.head
        moment = as_micros(parse_time(now, "now")) if now is not None else _now(origin)
        cancelled = {int(name.removeprefix(CANCELLED)) for name in origin.state(CANCELLED)}
        start = max(first, _start(origin, wanted, moment))
    quest = _Quest(spark, url, place, filter, system, moment, cancelled)
    if isinstance(wanted, Last):
        start = quest.start_of_last(wanted.n, start, head)
    return quest.alive(start, head) if start <= head else spark.createDataFrame([], SCHEMA)


def _lake(url: str, lake: str | os.PathLike[str] | None) -> str | None:
    if lake is not None or not url.startswith("file:"):
        return os.fspath(lake) if lake is not None else None
    found = remembered_lake(os.path.abspath(file_path(url)))
    if found is not None and not os.path.isdir(found):
        _log.warning("%s was archived to %s, where nothing is: reading the journal alone", url, found)
        return None
    return found


def _now(origin: Origin) -> int:
    """Journal time as a node has it: never behind the newest event."""
    newest = [block.arrived[1] for block in origin.blocks(origin.head, origin.head)] if origin.head else []
    return max([SystemClock().now(), *newest])


def _start(origin: Origin, bound: Bound, now: int) -> int:
    """The first offset that the bound can select."""
    if isinstance(bound, Since):
        return bound.x if isinstance(bound.x, int) else origin.offset_at(as_micros(bound.x))
    age = bound.within if isinstance(bound, Last) else bound.t if isinstance(bound, Within) else None
    return 1 if age is None else origin.offset_at(now - age // _MICROSECOND)


class _Quest:
    """Where to look, what for, and what counts."""

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        lake: str | None,
        filter: Filter,
        system: bool,
        now: int,
        cancelled: Collection[int],
    ) -> None:
        self._spark, self._now, self._cancelled = spark, now, sorted(cancelled)
        self._options = {"url": url, "filter": str(filter), "system": str(system).lower()}
        if lake is not None:
            self._options["lake"] = lake

    def alive(self, first: int, last: int, schema: str | None = None) -> DataFrame:
        """What matches and counts, between two offsets."""
        reader: DataFrameReader = self._spark.read.format("tocsin").options(
            **self._options, startingOffset=str(first), endingOffset=str(last)
        )
        found = (reader.schema(schema) if schema is not None else reader).load().where(_lives(self._now))
        gone = [offset for offset in self._cancelled if first <= offset <= last]
        if len(gone) <= _LISTED:
            return found.where(~F.col("offset").isin(gone)) if gone else found
        marks = self._spark.createDataFrame([(offset,) for offset in gone], "offset BIGINT")
        return found.join(F.broadcast(marks), "offset", "left_anti")

    def start_of_last(self, n: int, first: int, head: int) -> int:
        """The offset of the n-th newest that counts; `first` if there are fewer."""
        missing, last, stretch = n, head, _FIRST_STRETCH
        while last >= first:
            low = max(first, last - stretch + 1)
            newest = self.alive(low, last, _ASKED).select("offset").orderBy(F.desc("offset")).limit(missing)
            found = newest.agg(F.count("offset"), F.min("offset")).first()
            assert found is not None
            missing -= found[0]
            if not missing:
                return int(found[1])
            last, stretch = low - 1, stretch * _GROWTH
        return first


def _lives(now: int) -> Column:
    """As `rows.expires` has it, and no event of an earlier life. In doubles, which no time to live can overflow."""
    life = F.rint(F.col("ttl") * F.lit(float(SECOND)))
    return F.col("persistent") & (F.col("ttl").isNull() | (life > F.lit(now) - F.unix_micros("arrived")))

"""Composite events of two events as Spark's own window functions, in batches: no engine, no state.

    events ─ by type ─ payload read once ─ roles and key in SQL ─▶ shuffled by definition and key, sorted by offset
           ─ window ─▶ pairs ─▶ derived events; Python is asked for their ids, keys and payloads, if anybody wants these

What is compiled: `SEQ(a, c)` and `NOT(a, b, c)` of filters, with or without BY and WITHIN. A closer must find its
opener by looking at the rows around it, without knowing what became of the others:

    recent      the newest opener before a closer, if no b came since: `last(opener)` over the rows before
    continuous  an opener is used up by the first closer behind it: `last(closer)` over the rows behind, read backwards
    cumulative  the same, and all openers of one closer together
    chronicle   the n-th opener goes with the n-th closer that found something open. Which closers do follows from a
                running sum (+1, -1) and its lowest value. WITHIN would let openers go at moments that depend on what
                was used before, so such patterns are left to the engine

Outside recent, what closed something does not open: with filters that one event may match both, whether it opens
depends on all before it. So there opener and closer must be disjoint, for certain.

Definitions of one context are one plan, up to 32: the source is read once, and a row goes to each that sees it.

Promised: `windowed` gives the rows that an engine gives, ids included. Filters are asked as SQL (`labelling`); those
for which Spark may round or fold otherwise are left to the engine. Repeated offsets count once.
Not promised: a limit of open openers, which saves memory that windows do not take. `arrived` must not go down while the
offset goes up, as it does not in a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from tocsin.composite.leaves import SOURCE
from tocsin.model import CLASSIFICATION
from tocsin.spark.detected import PART
from tocsin.spark.labelling import CLOSER, MIDDLE, OPENER, Pattern, labelled
from tocsin.spark.pairing import MADE, Pairing

__all__ = ["windowed"]

_PART = ("offset", "at", "id", "source", "level")
_ASKED = ("offset", "id", "source")
"""What is told of a part."""
_TOGETHER = 32
"""Definitions of one plan: what Spark generates for it must not grow too large to be compiled."""
_NOTHING = 0
"""In place of an offset: a b has come, with which nothing can be closed."""


def windowed(events: DataFrame, patterns: Sequence[Pattern]) -> DataFrame:
    """What some patterns detect in a batch of events, with the columns `detected.DETECTED`.

    Args:
        events: such that `labelling.can_tell` them all.
        patterns: one or more.
    """
    found = []
    for context, finder in _FINDERS.items():
        alike = [each for each in patterns if each.definition.context == context]
        for begin in range(0, len(alike), _TOGETHER):
            mine = alike[begin : begin + _TOGETHER]
            rows = labelled(events, mine)
            groups = [name for name in rows.columns if name == "definition" or name.startswith("key")]
            found.append(_derived(finder(rows, groups, mine), groups, mine))
    return reduce(DataFrame.unionAll, found)


# -- rows


def _is(role: int) -> Column:
    return F.col("role").bitwiseAND(F.lit(role).cast("tinyint")) != 0


def _before(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def _is_first(window: WindowSpec) -> Column:
    """Is this the first row of its offset?"""
    return ~F.lag("offset").over(window).eqNullSafe(F.col("offset"))


def _part() -> Column:
    return F.struct(*_PART)


def _nothing() -> Column:
    return F.struct(F.lit(_NOTHING).cast("bigint").alias("offset"), *(F.col(name) for name in _PART[1:]))


def _each(patterns: Sequence[Pattern], value: Callable[[Pattern], str | int | None]) -> Column:
    """What a value is for the definition of a row."""
    values = [F.lit(value(each)) for each in patterns]
    if len(set(map(value, patterns))) == 1:
        return values[0]
    return F.get(F.array(*values), F.col("definition").cast("int"))


def _in_time(patterns: Sequence[Pattern], first: Column, last: Column) -> Column:
    if all(each.within is None for each in patterns):
        return F.lit(True)
    within = _each(patterns, lambda each: each.within)
    return within.isNull() | (last - first <= within)


# -- contexts: rows ─▶ `first`, or in cumulative `openers`, and `last`, with the columns of the group


def _looking(rows: DataFrame, groups: list[str], order: Column, marks: int, fires: int) -> DataFrame:
    """The rows of one role, as `own`, with the last row before them that matters to them, as `other`.

    What is looked for and what looks are columns of their own, so that Spark moves what a part tells once.
    """
    mark = F.when(_is(marks), _part()).when(_is(MIDDLE), _nothing()).alias("mark")
    rows = rows.select(*groups, "offset", mark, F.when(_is(fires), _part()).alias("own"))
    window = Window.partitionBy(*groups).orderBy(order)
    # A row that comes twice tells those behind it the same twice, so one window does: it is left out behind it.
    other = F.last("mark", ignorenulls=True).over(_before(window))
    found = rows.select(*groups, "own", other.alias("other"), _is_first(window).alias("is_first"))
    return found.where(F.col("own").isNotNull() & F.col("is_first") & (F.col("other.offset") != _NOTHING))


def _recent(rows: DataFrame, groups: list[str], patterns: Sequence[Pattern]) -> DataFrame:
    found = _looking(rows, groups, F.asc("offset"), OPENER, CLOSER)
    found = found.where(_in_time(patterns, F.col("other.at"), F.col("own.at")))
    return found.select(*groups, F.col("other").alias("first"), F.col("own").alias("last"))


def _with_closers(rows: DataFrame, groups: list[str], patterns: Sequence[Pattern]) -> DataFrame:
    """Openers with the closer that uses them up. Read backwards: Spark looks ahead of every row anew."""
    found = _looking(rows, groups, F.desc("offset"), CLOSER, OPENER)
    found = found.where(_in_time(patterns, F.col("own.at"), F.col("other.at")))
    return found.select(*groups, F.col("own").alias("first"), F.col("other").alias("last"))


def _continuous(rows: DataFrame, groups: list[str], patterns: Sequence[Pattern]) -> DataFrame:
    found = _with_closers(rows, groups, patterns)
    # Openers of one id and source have one derived id, and at one closer that is told once, as the detector does.
    alike = Window.partitionBy(*groups, "last.offset", "first.source", "first.id").orderBy("first.offset")
    return found.withColumn("place", F.row_number().over(alike)).where("place = 1").drop("place")


def _cumulative(rows: DataFrame, groups: list[str], patterns: Sequence[Pattern]) -> DataFrame:
    found = _with_closers(rows, groups, patterns).withColumn("closing", F.col("last.offset"))
    openers = F.sort_array(F.collect_list("first"))
    return found.groupBy(*groups, "closing").agg(openers.alias("openers"), F.first("last").alias("last"))


def _chronicle(rows: DataFrame, groups: list[str], patterns: Sequence[Pattern]) -> DataFrame:
    order = Window.partitionBy(*groups).orderBy("offset")
    rows = rows.withColumn("is_first", _is_first(order)).where("is_first").drop("is_first")
    if any("middle" in each.filters for each in patterns):
        # Each b begins a new stretch; it comes behind a closer and before an opener.
        came = F.sum(_is(MIDDLE).cast("bigint")).over(_before(order))
        own = (_is(OPENER) & _is(MIDDLE)).cast("bigint")
        rows = rows.withColumn("stretch", F.coalesce(came, F.lit(0)) + own).where(_is(OPENER) | _is(CLOSER))
        groups = [*groups, "stretch"]
        order = Window.partitionBy(*groups).orderBy("offset")
    rows = rows.withColumn("step", F.when(_is(OPENER), F.lit(1)).otherwise(F.lit(-1)))
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn("height", F.sum("step").over(so_far))
    lowest = F.least(F.lit(0), F.coalesce(F.min("height").over(_before(order)), F.lit(0)))
    rows = rows.withColumn("open", F.col("height") - F.col("step") - lowest)  # how many wait before this row
    rows = rows.where(_is(OPENER) | (F.col("open") > 0))
    place = F.sum(F.when(_is(OPENER), 1).otherwise(0)).over(so_far)
    served = F.sum(F.when(_is(OPENER), 0).otherwise(1)).over(so_far)
    rows = rows.withColumn("place", F.when(_is(OPENER), place).otherwise(served))
    pairs = rows.groupBy(*groups, "place").agg(F.sort_array(F.collect_list(_part())).alias("parts"))
    pairs = pairs.where(F.size("parts") == 2)
    return pairs.select("*", F.get("parts", F.lit(0)).alias("first"), F.get("parts", F.lit(1)).alias("last"))


_FINDERS: dict[str, Callable[[DataFrame, list[str], Sequence[Pattern]], DataFrame]] = {
    "recent": _recent,
    "continuous": _continuous,
    "cumulative": _cumulative,
    "chronicle": _chronicle,
}


# -- derived events


def _derived(found: DataFrame, groups: list[str], patterns: Sequence[Pattern]) -> DataFrame:
    """Pairs, or openers and their closer, as `ts.detect` tells them."""
    pairing = Pairing(tuple(each.definition for each in patterns), tuple(each.names for each in patterns))
    keys = [name for name in groups if name != "definition"]
    number = F.col("definition") if "definition" in groups else F.lit(0).cast("smallint")
    opener, closer = _each(patterns, lambda each: each.names[0]), _each(patterns, lambda each: each.names[1])
    if "openers" in found.columns:
        make, given = pairing.gathered, [F.transform("openers", lambda each: F.struct(*(each[n] for n in _ASKED)))]
        openers = F.transform("openers", lambda each, place: _told(each, opener, place + 1))
        parts = F.concat(openers, F.array(_told(F.col("last"), closer, F.size("openers") + 1)))
        level = F.greatest(F.array_max("openers.level"), "last.level")
    else:
        make, given = pairing.pairs, [F.col(f"first.{name}") for name in _ASKED]
        parts = F.array(_told(F.col("first"), opener, F.lit(1)), _told(F.col("last"), closer, F.lit(2)))
        level = F.greatest("first.level", "last.level")
    given += [*(F.col(f"last.{name}") for name in _ASKED), number, *map(F.col, keys)]
    made = F.arrow_udf(make, MADE)(*given)  # type: ignore[attr-defined]
    rows = found.select(
        "last", number.alias("definition"), parts.alias("parts"), level.alias("level"), made.alias("made")
    )
    return rows.select(
        "made.id",
        _each(patterns, lambda each: each.definition.name).alias("type"),
        F.lit(SOURCE).alias("source"),
        F.timestamp_micros("last.at").alias("time"),
        "made.key",
        "parts",
        F.get(F.array(*map(F.lit, CLASSIFICATION)), F.col("level").cast("int")).alias("classification"),
        "made.data",
    )


def _told(part: Column, name: Column, place: Column) -> Column:
    """A part as it is shown."""
    shown = F.coalesce(name, F.concat(F.lit("e"), place.cast("string")))
    return F.struct(shown, *(part[name] for name in _ASKED), F.lit(None).cast("timestamp")).cast(PART)

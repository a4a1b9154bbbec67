"""Composite events of two events as Spark's own window functions, in batches: no engine, no state.

    events ─ leaves and key in SQL ─▶ shuffled by key, sorted by offset ─ window ─▶ pairs ─ Python ─▶ derived events

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

Promised: where `windowed` gives a DataFrame it has the rows that an engine has, ids included. Filters are asked as
`Filter.sql()`; those for which Spark may round or fold otherwise are left to the engine. Repeated offsets count once.
Not promised: a limit of open openers, which saves memory that windows do not take. `arrived` must not go down while the
offset goes up, as it does not in a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType
from pyspark.sql.window import WindowSpec

from tocsin.composite.deriving import deriver
from tocsin.composite.expression import Definition, Leaf, Operation
from tocsin.composite.keys import Key, settled
from tocsin.composite.leaves import SOURCE, SYSTEM
from tocsin.composite.occurrence import Occurrence, Part
from tocsin.filters.filter import Filter
from tocsin.filters.normal import calls, fields
from tocsin.filters.sparksql import render_value, render_variant
from tocsin.filters.syntax import XPATH_FUNCTIONS
from tocsin.model import CLASSIFICATION, ENVELOPE
from tocsin.spark import detected
from tocsin.spark.schema import schema_for

__all__ = ["Pattern", "pattern_of", "windowed"]

_ROLES = {"SEQ": ("opener", "closer"), "NOT": ("opener", "middle", "closer")}
_INEXACT = frozenset({"distance_km", "lower", "upper", *XPATH_FUNCTIONS})
"""Functions that Spark may answer otherwise, if only in the last bit or for rare letters; see `filters.sparksql`."""
_ALWAYS = ("offset", "arrived", "id", "source", "type")
_OFTEN = ("time", "classification")
_PART = ("offset", "at", "id", "source", "classification")
_NOTHING = -1
"""In place of an offset: a b has come, with which nothing can be closed."""


class Pattern(msgspec.Struct, frozen=True):
    """A definition that windows can detect."""

    definition: Definition
    filters: dict[str, str]
    """By role: opener, closer, and perhaps middle."""
    names: tuple[str | None, str | None]
    """What opener and closer are called."""
    within: int | None
    """Microseconds."""


def pattern_of(definition: Definition) -> Pattern | None:
    """A definition as windows have it; None: it needs an engine."""
    expression = definition.expression
    if not isinstance(expression, Operation) or expression.operator not in _ROLES:
        return None
    if definition.where is not None or definition.semantics != "detection" or definition.max_open is not None:
        return None
    filters: dict[str, str] = {}
    names: dict[str, str | None] = {}
    for role, part in zip(_ROLES[expression.operator], expression.of, strict=True):
        if not isinstance(part, Leaf) or part.filter is None or not _is_exact(part.filter):
            return None
        filters[role], names[role] = part.filter, part.alias
    if any(render_value(_path(field)) is None for field in definition.by):
        return None
    if definition.context != "recent" and not Filter(filters["opener"]).disjoint(Filter(filters["closer"])):
        return None
    if definition.context == "chronicle" and expression.within is not None:
        return None
    return Pattern(definition, filters, (names["opener"], names["closer"]), expression.within)


def windowed(events: DataFrame, definition: Definition) -> DataFrame | None:
    """What a definition detects in a batch of events, with the columns `detected.RAW`; None: windows cannot tell.

    Args:
        events: with columns of the source, in its types, and no others; those that are missing count as NULL.
        definition: one that names no others.
    """
    pattern = pattern_of(definition)
    if pattern is None or events.isStreaming or not _is_plain(events.schema):
        return None
    keys = [f"key{place}" for place in range(len(definition.by))]
    found = _FINDERS[definition.context](_labelled(events, pattern, keys), keys, pattern)
    key = F.array(*keys) if keys else F.array().cast("array<string>")
    return found.select(key.alias("key"), "parts").mapInArrow(_Deriving(pattern).rows, detected.RAW)


def _is_exact(text: str) -> bool:
    return not any(call.name in _INEXACT for call in calls(Filter(text).condition))


def _path(field: str) -> tuple[str, ...]:
    return tuple(field.split("."))


# -- rows


def _own() -> dict[str, DataType]:
    schema = StructType.fromDDL(schema_for(filters=True))
    assert isinstance(schema, StructType)
    return {field.name: field.dataType for field in schema}


def _is_plain(schema: StructType) -> bool:
    """Are all columns the source's? One beside them counts as an attribute, which SQL would not see."""
    own = _own()
    return set(_ALWAYS) <= set(schema.names) and all(own.get(each.name) == each.dataType for each in schema)


def _labelled(events: DataFrame, pattern: Pattern, keys: list[str]) -> DataFrame:
    """The events that a leaf matches: offset, journal time, what a part tells of them, roles and key."""
    own, given = _own(), set(events.columns)
    columns = [
        F.col(name) if name in given else F.lit(None).cast(own[name]).alias(name) for name in sorted(_needed(pattern))
    ]
    tests = {role: F.coalesce(F.expr(Filter(text).sql()), F.lit(False)) for role, text in pattern.filters.items()}
    is_wanted = tests["opener"] | tests["closer"] | tests.get("middle", F.lit(False))
    is_event = ~F.startswith(F.col("type"), F.lit(SYSTEM)) & (F.col("source") != SOURCE)
    found, texts = [], []
    for name, field in zip(keys, pattern.definition.by, strict=True):
        path, held = _path(field), f"{name}_held"
        variant = render_variant(path)
        if variant is not None:
            # What depends on the partition is made where it stands. Else Spark would move the payload's parsing into
            # every use, and those into the filter below, too.
            found.append(F.expr(f"if(spark_partition_id() >= 0, {variant}, NULL)").alias(held))
        text = render_value(path, None if variant is None else held)
        texts.append(F.expr(str(text)).alias(name))
    roles = [tests.get(role, F.lit(False)).alias(role) for role in _ROLES["NOT"]]
    rows = events.select(*columns).where(is_event & is_wanted).select("*", *roles, *found)
    at = F.unix_micros(F.coalesce("arrived", "time")).alias("at")
    rows = rows.select("offset", at, "id", "source", "classification", *_ROLES["NOT"], *texts)
    return rows.dropna(subset=keys) if keys else rows  # without its key an event takes no part


def _needed(pattern: Pattern) -> set[str]:
    """The columns that are looked at."""
    paths = [_path(field) for field in pattern.definition.by]
    for text in pattern.filters.values():
        paths += [field.path for field in fields(Filter(text).condition)]
    wanted = {*_ALWAYS, *_OFTEN}
    for head, *_ in paths:
        wanted |= {head} if head in ENVELOPE or head in ("attributes", "data") else {"attributes", "data"}
    return wanted


def _before(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def _once(rows: DataFrame, window: WindowSpec) -> DataFrame:
    """Without rows whose offset was there already."""
    last = F.lag("offset").over(window)
    return rows.withColumn("last", last).where(F.col("last").isNull() | (F.col("last") != F.col("offset"))).drop("last")


def _part() -> Column:
    return F.struct(*_PART)


def _nothing() -> Column:
    return F.struct(F.lit(_NOTHING).cast("bigint").alias("offset"), *(F.col(name) for name in _PART[1:]))


def _in_time(pattern: Pattern, first: Column, last: Column) -> Column:
    return F.lit(True) if pattern.within is None else last - first <= F.lit(pattern.within)


# -- contexts: rows ─▶ parts ARRAY<STRUCT<…>>, openers first, with the columns of the key


def _recent(rows: DataFrame, keys: list[str], pattern: Pattern) -> DataFrame:
    order = Window.partitionBy(*keys).orderBy("offset")
    mark = F.when(F.col("opener"), _part()).when(F.col("middle"), _nothing())
    found = _once(rows, order).withColumn("first", F.last(mark, ignorenulls=True).over(_before(order)))
    fires = F.col("closer") & (F.col("first.offset") != _NOTHING)
    found = found.where(fires & _in_time(pattern, F.col("first.at"), F.col("at")))
    return found.select(*keys, F.array("first", _part()).alias("parts"))


def _with_closers(rows: DataFrame, keys: list[str], pattern: Pattern) -> DataFrame:
    """Openers with the closer that uses them up. Read backwards: Spark looks ahead of every row anew."""
    order = Window.partitionBy(*keys).orderBy(F.desc("offset"))
    mark = F.when(F.col("closer"), _part()).when(F.col("middle"), _nothing())
    found = _once(rows, order).withColumn("end", F.last(mark, ignorenulls=True).over(_before(order)))
    fires = F.col("opener") & (F.col("end.offset") != _NOTHING)
    return found.where(fires & _in_time(pattern, F.col("at"), F.col("end.at")))


def _continuous(rows: DataFrame, keys: list[str], pattern: Pattern) -> DataFrame:
    return _with_closers(rows, keys, pattern).select(*keys, F.array(_part(), F.col("end")).alias("parts"))


def _cumulative(rows: DataFrame, keys: list[str], pattern: Pattern) -> DataFrame:
    found = _with_closers(rows, keys, pattern).withColumn("closing", F.col("end.offset"))
    openers = F.sort_array(F.collect_list(_part()))
    together = found.groupBy(*keys, "closing").agg(openers.alias("openers"), F.first("end").alias("end"))
    return together.select(*keys, F.concat("openers", F.array("end")).alias("parts"))


def _chronicle(rows: DataFrame, keys: list[str], pattern: Pattern) -> DataFrame:
    order = Window.partitionBy(*keys).orderBy("offset")
    rows, groups = _once(rows, order), list(keys)
    if "middle" in pattern.filters:  # each b begins a new stretch; it comes behind a closer and before an opener
        came = F.sum(F.col("middle").cast("bigint")).over(_before(order))
        own = (F.col("opener") & F.col("middle")).cast("bigint")
        rows, groups = rows.withColumn("stretch", F.coalesce(came, F.lit(0)) + own), [*keys, "stretch"]
        rows = rows.where(F.col("opener") | F.col("closer"))
        order = Window.partitionBy(*groups).orderBy("offset")
    rows = rows.withColumn("step", F.when(F.col("opener"), F.lit(1)).otherwise(F.lit(-1)))
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn("level", F.sum("step").over(so_far))
    lowest = F.least(F.lit(0), F.coalesce(F.min("level").over(_before(order)), F.lit(0)))
    rows = rows.withColumn("open", F.col("level") - F.col("step") - lowest)  # how many wait before this row
    rows = rows.where(F.col("opener") | (F.col("open") > 0))
    place = F.sum(F.when(F.col("opener"), 1).otherwise(0)).over(so_far)
    served = F.sum(F.when(F.col("opener"), 0).otherwise(1)).over(so_far)
    rows = rows.withColumn("place", F.when(F.col("opener"), place).otherwise(served))
    pairs = rows.groupBy(*groups, "place").agg(F.sort_array(F.collect_list(_part())).alias("parts"))
    return pairs.where(F.size("parts") == 2)


_FINDERS: dict[str, Callable[[DataFrame, list[str], Pattern], DataFrame]] = {
    "recent": _recent,
    "continuous": _continuous,
    "cumulative": _cumulative,
    "chronicle": _chronicle,
}


# -- in tasks


class _Deriving(msgspec.Struct, frozen=True):
    """Makes derived events of parts; made in the driver, pickled to executors."""

    pattern: Pattern

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        derive = deriver(self.pattern.definition)
        opener, closer = self.pattern.names
        for batch in batches:
            lists = batch.column("parts")
            flat = lists.flatten()
            parts = zip(*(flat.field(name).to_pylist() for name in _PART), strict=True)
            found = []
            for key, count in zip(batch.column("key").to_pylist(), lists.value_lengths().to_pylist(), strict=True):
                made = [
                    Part(opener, offset, id, source, at, None, _LEVELS.get(level, 0))
                    for offset, at, id, source, level in islice(parts, count - 1)
                ]
                end, last, id, source, level = next(parts)
                made.append(Part(closer, end, id, source, last, None, _LEVELS.get(level, 0)))
                # Openers come in order, and the closer behind them: what `joined` would look for is at both ends.
                start, first = made[0].offset, made[0].time
                assert start is not None
                found.append(derive(_key(key), Occurrence(first, start, last, end, tuple(made))))
            yield detected.to_arrow(found)


_LEVELS = {name: level for level, name in enumerate(CLASSIFICATION)}


def _key(texts: list[str]) -> Key:
    """What `filters.sparksql.render_value` wrote, as the engine has it."""
    return tuple([_value(text) for text in texts])


def _value(text: str) -> str | int | float:
    kind, rest = text[0], text[1:]
    if kind == "t":
        return rest
    value = settled(int(rest) if kind == "n" else float(rest) if kind == "d" else rest == "true")
    assert value is not None
    return value

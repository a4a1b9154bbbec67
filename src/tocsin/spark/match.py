"""`ts.match`: which events of a DataFrame match which of many filters; batch or streaming.

    filters ─▶ compiled, one index for each shard (`compiling`) ─▶ broadcast
    events  ─▶ the columns the filters need ─▶ (a copy for each shard) ─▶ tasks (`serving`) ─▶ (offset, key)

Every event meets every shard once. With `Elastic` shards, how many there are is said by the version of the filter set
that an event meets; else by the plan. The plan is Spark's own operators and one `mapInArrow`, so it runs, restarts and
scales as any query does; no row comes to the driver.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from tocsin.errors import BadFilter, BadFiltersError, FilterSetError, MatcherError, SchemaError
from tocsin.filters.filter import Filter
from tocsin.spark import balancing
from tocsin.spark.compiling import Compiled, compile_frame, compile_mapping
from tocsin.spark.elastic import Elastic
from tocsin.spark.filterset import FilterSet
from tocsin.spark.following import Following
from tocsin.spark.given import WHOLE, own_columns, refuse_doubles, refuse_variants
from tocsin.spark.serving import SHARD, VERSION, Serving, Shipped, needed
from tocsin.spark.shards import primitive

__all__ = ["MatchReport", "match"]

_log = logging.getLogger(__name__)

_NESTED = (ArrayType, MapType, StructType)
_HELD = (*_NESTED, BooleanType, NumericType, StringType, TimestampType, VariantType)
"""What an event can hold; all else is passed over."""
_FILES = {".parquet": "parquet", ".csv": "csv", **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json")}
Filters = (
    Mapping[str, str | Filter] | Mapping[int, str | Filter] | DataFrame | str | os.PathLike[str] | FilterSet | Following
)


class MatchReport(msgspec.Struct):
    """What became of the filters. Pass one to `match` and read it afterwards."""

    filters: int = 0
    """How many were given; 0 with a live set."""
    skipped: list[BadFilter] = []
    """Those that are bad and were left out (`errors="skip"`)."""
    shards: int = 0
    """How many indexes there are; with `Elastic`, now."""
    index_bytes: int = 0
    """What is shipped to each machine; 0 with a live set, which executors read from its directory."""


def match(
    events: DataFrame,
    filters: Filters,
    *,
    shards: int | Elastic | None = None,
    errors: Literal["refuse", "skip"] = "refuse",
    report: MatchReport | None = None,
) -> DataFrame:
    """Find all pairs of an event and a filter that is true for it, as `Matcher` does.

    Args:
        events: batch or streaming, with a column `offset`. If its columns are those of the Tocsin source (any of them),
            or `attributes` or `data` hold VARIANTs, they mean what they mean there; other columns beside them are
            attributes. A DataFrame of other columns means what `Matcher.match_batch` says of Arrow columns.
        filters: a mapping from keys (all text, or all whole numbers) to filters or their texts; a DataFrame, a table's
            name or a file (`.parquet`, `.csv` with a header, `.json`/`.jsonl` lines) with columns `key` and `filter`;
            or a `FilterSet`, which may change while the query runs, also one that follows a node (`follow`).
        shards: divide the filters among so many indexes, if one is too large for a Python process; by default one for
            each million. Every event is then copied to each of them. `Elastic()` lets the shards of a `FilterSet`
            split and merge by the load that tasks measure; the set remembers how.
        errors: what to do if some filters are bad: `refuse` all, or `skip` those, log them and go on.
        report: filled with what became of the filters.

    Returns:
        A DataFrame (offset BIGINT, key STRING or BIGINT), one row for each pair, in no particular order.

    With a `FilterSet`, events are matched with the version that their column `filters` names. The source makes that
    column, and keeps the version in the checkpoint, with `.option("filters", path)`. A batch DataFrame without it is
    matched with the version that is newest now.

    Raises:
        BadFiltersError: some filters are bad; it names all of them.
        SchemaError: a column is missing, or of a type that cannot serve.
        FilterSetError: there is no such filter set, or a stream lacks the column `filters`.
        MatcherError: keys of two kinds, or arguments that mean nothing.
    """
    _check(events, errors)
    report = report if report is not None else MatchReport()
    if isinstance(filters, Following):
        filters = filters.filters
    source = _is_source(events.schema)
    if isinstance(filters, FilterSet):
        events = _with_version(events, filters)
        held = [field.name for field in events.schema if isinstance(field.dataType, _HELD)]
        kind = filters.key_type or str
        if isinstance(shards, Elastic):
            report.shards = len(filters.layout())
            return _plan_elastic(events, held, Serving(source, kind, live=filters), shards)
        layout = primitive(0, shards)
        report.shards = len(layout)
        return _plan(events, held, Serving(source, kind, layout, live=filters), len(layout))
    if isinstance(shards, Elastic):
        raise MatcherError(
            "elastic shards are those of a FilterSet", field="shards", help="put the filters into one, or give a number"
        )
    if source:
        events = events.drop(VERSION)  # it speaks of a live set
    compiled = _compile(events.sparkSession, filters, shards)
    _settle(compiled, errors, report)
    shipped = tuple(_ship(events.sparkSession, index) for index in compiled.indexes)
    serving = Serving(source, compiled.kind or str, compiled.layout, indexes=shipped)
    nested = [field.name for field in events.schema if isinstance(field.dataType, _NESTED)]
    return _plan(events, needed(events.columns, nested, compiled.fields), serving, len(compiled.layout))


def _plan(events: DataFrame, columns: list[str], serving: Serving, shards: int) -> DataFrame:
    rows = _selected(events, columns)
    return _served(rows if shards == 1 else _copied(rows, F.lit(shards), shards), serving)


def _plan_elastic(events: DataFrame, columns: list[str], serving: Serving, policy: Elastic) -> DataFrame:
    """A task for each shard that load may make; if there are more, since memory wants them, tasks have several."""
    context = events.sparkSession.sparkContext
    tasks = policy.most or max(1, context.defaultParallelism)
    assert serving.live is not None
    meter = balancing.meter(events.sparkSession, serving.live, policy, tasks)
    rows = _selected(events, columns)
    copies = F.arrow_udf(serving.copies, "int")(F.col(VERSION))  # type: ignore[attr-defined]
    return _served(_copied(rows, copies, tasks), msgspec.structs.replace(serving, meter=meter))


def _selected(events: DataFrame, columns: list[str]) -> DataFrame:
    columns = [name for name in columns if name != "offset"]
    refuse_variants(events.schema, columns)
    return events.select(F.col("offset").cast("bigint").alias("offset"), *(_column(name) for name in columns))


def _copied(rows: DataFrame, shards: Column, tasks: int) -> DataFrame:
    """Each row once for each shard, at the task that serves it."""
    return rows.withColumn(SHARD, F.explode(F.sequence(F.lit(0), shards - 1))).repartitionById(tasks, SHARD)


def _served(rows: DataFrame, serving: Serving) -> DataFrame:
    return rows.mapInArrow(serving.pairs, f"offset BIGINT, key {'STRING' if serving.kind is str else 'BIGINT'}")


def _column(name: str) -> Any:
    return F.col(f"`{name.replace('`', '``')}`")


def _ship(spark: SparkSession, index: bytes) -> Shipped:
    name = hashlib.blake2b(index, digest_size=16).hexdigest()
    return Shipped(name, spark.sparkContext.broadcast(index))


# -- filters


def _compile(spark: SparkSession, filters: Any, shards: int | None) -> Compiled:
    if isinstance(filters, Mapping):
        return compile_mapping(spark, filters, shards)
    if isinstance(filters, str | os.PathLike):
        filters = _read(spark, os.fspath(filters))
    if not isinstance(filters, DataFrame):
        raise MatcherError(
            f"filters are {type(filters).__name__}",
            help="give a mapping from keys to filters, a DataFrame, table or file of (key, filter), or a FilterSet",
        )
    kinds = {field.name: field.dataType for field in filters.schema}
    if "key" not in kinds or not isinstance(kinds.get("filter"), StringType):
        raise SchemaError(
            f"filters have the columns {', '.join(filters.columns)}", field="filters", help="key and filter are needed"
        )
    if not isinstance(kinds["key"], (StringType, *WHOLE)):
        raise SchemaError(
            f"the keys of filters are {kinds['key'].simpleString()}", field="key", help="cast them to STRING or BIGINT"
        )
    if filters.isStreaming:
        raise MatcherError("filters are a stream", help="for filters that change there is FilterSet")
    key = F.col("key") if isinstance(kinds["key"], StringType) else F.col("key").cast("bigint")
    return compile_frame(filters.select(key.alias("key"), "filter"), shards)


def _read(spark: SparkSession, name: str) -> DataFrame:
    """A file by its ending, else a table."""
    form = _FILES.get(os.path.splitext(name.rstrip("/"))[1].lower())
    if form == "csv":
        return spark.read.csv(name, header=True, multiLine=True, quote='"', escape='"')
    if form is not None:
        return spark.read.format(form).load(name)
    if not spark.catalog.tableExists(name):
        raise MatcherError(
            f"there is no table {name!r} of filters", help=f"a file's name ends in one of {', '.join(_FILES)}"
        )
    return spark.table(name)


def _settle(compiled: Compiled, errors: str, report: MatchReport) -> None:
    """Refuse or report bad filters."""
    bad = compiled.bad
    if bad and errors == "refuse":
        raise BadFiltersError(bad, of=compiled.filters, help='mend them, or go on without them: errors="skip"')
    for each in bad[: BadFiltersError.SHOWN]:
        _log.warning("a bad filter is left out: %s", each)
    if len(bad) > BadFiltersError.SHOWN:
        _log.warning("and %d more; `report` has them all", len(bad) - BadFiltersError.SHOWN)
    report.filters, report.skipped = compiled.filters, bad
    report.shards, report.index_bytes = len(compiled.layout), sum(map(len, compiled.indexes))


# -- events


def _check(events: Any, errors: str) -> None:
    if not isinstance(events, DataFrame):
        raise MatcherError(f"events are {type(events).__name__}", help="give a DataFrame; for lists there is Matcher")
    if errors not in ("refuse", "skip"):
        raise MatcherError(f"errors is {errors!r}", help="give 'refuse' or 'skip'")
    refuse_doubles(events)
    if "offset" not in events.columns or not isinstance(events.schema["offset"].dataType, WHOLE):
        raise SchemaError(
            "events need a column offset of whole numbers",
            field="offset",
            help="the source has it; elsewhere say which column tells events apart: withColumn('offset', …)",
        )


def _is_source(schema: StructType) -> bool:
    """Do columns mean what they mean in the source?"""
    kinds = {field.name: field.dataType for field in schema}
    attributes = kinds.get("attributes")
    if isinstance(attributes, MapType) and isinstance(attributes.valueType, VariantType):
        return True
    if isinstance(kinds.get("data"), VariantType):
        return True
    own = own_columns()
    return all(own.get(name) == kind for name, kind in kinds.items())


def _with_version(events: DataFrame, filters: FilterSet) -> DataFrame:
    if VERSION in events.columns:
        if not isinstance(events.schema[VERSION].dataType, WHOLE):
            raise SchemaError(
                f"the column {VERSION} is {events.schema[VERSION].dataType.simpleString()}",
                field=VERSION,
                help="it must say, as a whole number, with which version of the set an event is matched",
            )
        return events
    if events.isStreaming:
        raise FilterSetError(
            f"the stream has no column {VERSION}, so a repeated batch could meet other filters",
            path=filters.path,
            help=f'add .option("filters", {filters.path!r}) to the source, and keep that column',
        )
    return events.withColumn(VERSION, F.lit(filters.version).cast("bigint"))

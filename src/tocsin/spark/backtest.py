"""`ts.backtest`: what would a filter or a composite event have fired on? Over any stretch of a journal or a lake.

    place, since, until ─ `stretch` ─▶ offsets
    text ─▶ the events its filters match, as the source reads them ─ `replaying` ─▶ rows ─ counted by time and key
                                                                                        ─▶ `reporting.Backtest`

Promised: the detections that a node would have made which had seen this stretch and nothing before, with journal time.
Timers fire up to `until`, or up to the last event. Whatever fires, few rows come to the driver: one for each bar and
for each key that is shown, and the examples. Nothing is stored.
Not promised: what things half detected before the stretch would have led to. Events that have expired since, or were
cancelled, count: they came.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tocsin.clock import as_datetime
from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition, Leaf, leaves
from tocsin.composite.leaves import SOURCE
from tocsin.errors import FilterLimitError, SessionError
from tocsin.filters.filter import Filter
from tocsin.model import Event, parse_time
from tocsin.spark.detecting import Given, plan
from tocsin.spark.given import ALWAYS
from tocsin.spark.jobs import Progress, told
from tocsin.spark.labelling import can_tell, pattern_of
from tocsin.spark.match import match
from tocsin.spark.packing import pack
from tocsin.spark.questions import Question, asked
from tocsin.spark.replaying import replay
from tocsin.spark.reporting import Backtest, Bar, Constituent, Example, step_for
from tocsin.spark.schema import SCHEMA
from tocsin.spark.serving import needed
from tocsin.spark.stretch import Moment, Stretch
from tocsin.spark.windowed import windowed

__all__ = ["answered", "backtest"]

_COLUMNS: dict[str, str] = dict(re.findall(r"(\w+) (\w+(?:<[^>]*>)?)", SCHEMA))
_LARGEST = 5
"""Keys that are told, of those with the most."""
_FETCHED = 12
"""Constituents of an example that are read; the rest is known by offset, id and source only."""


def backtest(
    spark: SparkSession,
    place: str | os.PathLike[str],
    text: str,
    *,
    since: Moment = None,
    until: Moment = None,
    context: str = "recent",
    semantics: str = "detection",
    name: str = "backtest",
    definitions: Mapping[str, Given] | None = None,
    lake: str | os.PathLike[str] | None = None,
    token: str | None = None,
    ca: str | None = None,
    examples: int = 3,
    progress: Progress | None = None,
) -> Backtest:
    """Find what a filter or a composite event would have fired on.

    Args:
        spark: the session; one of your own must be registered (`tocsin.spark.register`).
        place: a journal (`file:plant.db`), the directory of a lake, or a node (`http://host:8420`).
        text: a filter (`value > 9`), a composite event (`SEQ([…], […]) BY machine`), which may name others, or the
            name of a definition, which is tested as it is defined.
        since: where to begin: a time, a timedelta or text such as `30d` (so long ago), or an offset; None: with the
            oldest that is kept.
        until: where to end, itself included; None: at the head.
        context: of a composite event: recent, chronicle, continuous or cumulative.
        semantics: of a composite event: detection or interval.
        name: of a composite event. Under the name it will have in a node, what is found has the ids it will have there.
        definitions: those that the text may name, as in `ts.detect`; None: those that the node has whose events these
            are.
        lake: the journal's archive; None: where it was archived to, if it was.
        token: for a node.
        ca: for a node: certificates to trust instead of the system's.
        examples: how many to show, spread over the time.
        progress: is told how many tasks are done, of how many.

    Raises:
        FilterError, DefinitionError: the text is neither; `position` says where it goes wrong.
        BoundError: `since` or `until` means nothing, or nothing lies between them.
        JournalError: there is no such journal.
        LakeError: there is no such lake, or it is another journal's.
        NetworkError: there is no node, or it does not let us in.
        SessionError: Spark has failed; the message says why.
    """
    meaning: dict[str, Any] = {"context": context, "semantics": semantics, "name": name, "definitions": definitions}
    question = asked(place, text, since=since, until=until, lake=lake, token=token, ca=ca, **meaning)
    return answered(spark, question, examples, progress)


def answered(spark: SparkSession, question: Question, examples: int = 3, progress: Progress | None = None) -> Backtest:
    """Run a back-test.

    Raises:
        SessionError: Spark has failed; the message says why.
    """
    try:
        return _answered(spark, question, examples, progress)
    except PySparkException as error:
        raise _failed(error) from error


def _answered(spark: SparkSession, question: Question, examples: int, progress: Progress | None) -> Backtest:
    wanted, family, stretch = question
    begun = time.perf_counter()
    with told(spark, progress):
        run = _filtered(spark, wanted, stretch) if isinstance(wanted, Filter) else _detected(spark, family, stretch)
        tally = _tally(run.rows, stretch, examples)
        matched = {} if tally.fired or isinstance(wanted, Filter) else _matched(run.events, family)
    seconds = time.perf_counter() - begun
    chosen = _chosen([each.firsts for each in tally.bins], examples)
    if isinstance(wanted, Filter):
        shown, grouped = _found(chosen, stretch), "types"
    else:
        shown, grouped = _explained(chosen, family, stretch), ", ".join(wanted.by)
    return Backtest(
        text=str(wanted) if isinstance(wanted, Filter) else wanted.text,
        kind="filter" if isinstance(wanted, Filter) else "composite",
        context=None if isinstance(wanted, Filter) else wanted.context,
        place=stretch.url,
        first_offset=stretch.first,
        last_offset=stretch.last,
        begin=as_datetime(stretch.begin),
        end=as_datetime(stretch.end),
        count=tally.fired,
        first=as_datetime(tally.bins[0].firsts[0]["at"]) if tally.bins else None,
        last=as_datetime(tally.bins[-1].last) if tally.bins else None,
        step=timedelta(microseconds=tally.step),
        bars=_bars(tally, stretch),
        grouped=grouped if tally.groups else "",
        groups=tally.groups,
        largest={_shown(key, wanted): count for key, count in tally.largest},
        examples=tuple(shown),
        leaves=matched,
        seconds=seconds,
        way=run.way,
    )


def _failed(error: Exception) -> SessionError:
    """What Spark says, without the way it took: the last line of ours, if there is one."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith("tocsin.errors.")]
    said = ours[-1].partition(": ")[2] if ours else next((line for line in lines if line), type(error).__name__)
    return SessionError(f"Spark has failed: {said}", help="`tocsin doctor` looks for a reason")


# -- what is run


class _Run(NamedTuple):
    """How it is done."""

    rows: DataFrame
    """What fires: at BIGINT (microseconds), key, offset BIGINT, id, data STRING."""
    events: DataFrame
    """Out of these."""
    way: str


def _events(spark: SparkSession, stretch: Stretch, looked: set[tuple[str, ...]], filter: str | None) -> DataFrame:
    """The columns that are looked at, of those events that match."""
    names = {*ALWAYS, "classification", *needed(list(_COLUMNS), ["attributes"], looked)}
    schema = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items() if name in names)
    options = stretch.options | ({} if filter is None else {"filter": filter})
    return spark.read.format("tocsin").options(**options).schema(schema).load()


def _filtered(spark: SparkSession, wanted: Filter, stretch: Stretch) -> _Run:
    events = _events(spark, stretch, set(), str(wanted))
    rows = events.selectExpr(
        "unix_micros(arrived) AS at", "type AS key", "offset", "id", "CAST(NULL AS STRING) AS data"
    )
    return _Run(rows, events, "the filter, where events are read")


def _detected(spark: SparkSession, family: Sequence[Definition], stretch: Stretch) -> _Run:
    *others, wanted = family
    buckets = int(spark.conf.get("spark.sql.shuffle.partitions") or "1")
    made = plan({each.name: each for each in family}, buckets=buckets, silent=[each.name for each in others])
    events = _events(spark, stretch, set(made.fields), _any_leaf(family))
    pattern = pattern_of(wanted)
    if pattern is not None and can_tell(events.schema, pattern):
        found, way = (
            windowed(events, [pattern]),
            "window functions of Spark" if wanted.by else "window functions of Spark, in one task",
        )
    else:
        found = replay(pack(events, made), made, stretch.upto)
        engines = sum(map(made.buckets_of, made.divisions))
        way = f"{engines} engines" if engines > 1 else "one engine"
    return _Run(found.selectExpr("unix_micros(time) AS at", "key", "0L AS offset", "id", "data"), events, way)


def _leaves(family: Iterable[Definition]) -> list[Leaf]:
    return [leaf for each in family for leaf in leaves(each.expression) if leaf.definition is None]


def _any_leaf(family: Sequence[Definition]) -> str | None:
    """A filter for all events that matter; None: all do."""
    found = _leaves(family)
    if any(leaf.filter is None for leaf in found):  # absolute times begin with the first event, whichever that is
        return None
    try:
        return str(Filter(" OR ".join(f"({text})" for text in dict.fromkeys(str(leaf.filter) for leaf in found))))
    except FilterLimitError:
        return None


def _matched(events: DataFrame, family: Sequence[Definition]) -> dict[str, int]:
    """How many events each filter matches: why nothing was found."""
    filters = list(dict.fromkeys(leaf.filter for leaf in _leaves(family) if leaf.filter is not None))
    pairs = match(events.where(F.col("source") != SOURCE), dict(enumerate(filters)))
    counts = {row["key"]: row["count"] for row in pairs.groupBy("key").count().collect()}
    return {text: counts.get(number, 0) for number, text in enumerate(filters)}


# -- counting


class _Bin(NamedTuple):
    number: int
    fired: int
    firsts: list[Row]
    """The first in it, as many as may be shown: at, offset, id, key, data."""
    last: int
    """When the last in it was, in microseconds."""


class _Tally(NamedTuple):
    step: int
    """Microseconds of a bin."""
    bins: list[_Bin]
    """Those in which there is something, in order."""
    groups: int
    largest: list[tuple[str, int]]

    @property
    def fired(self) -> int:
        return sum(each.fired for each in self.bins)


def _tally(rows: DataFrame, stretch: Stretch, examples: int) -> _Tally:
    """Count by time and by key in one go: what is found may be much, and is made once."""
    step = step_for(stretch.begin, stretch.end)
    found = F.struct("at", "offset", "id", "key", "data")
    by_time = F.struct(F.expr(f"(at - pmod(at, {step}L)) div {step}L").alias("bin"), _null("key"), found.alias("found"))
    by_key = F.struct(_null("bin", "bigint"), F.col("key"), F.when(F.lit(False), found).alias("found"))
    grouped = rows.select("at", F.inline(F.array(by_time, by_key))).groupBy("bin", "key")
    counted = grouped.agg(
        F.count("*").alias("count"),
        F.min_by("found", "found", max(1, examples)).alias("firsts"),
        F.max("at").alias("last"),
    ).persist()
    try:
        bins = counted.where("bin IS NOT NULL").orderBy("bin").collect()
        keys = counted.where("key IS NOT NULL")
        groups = keys.count() if bins else 0
        largest = keys.orderBy(F.desc("count"), "key").limit(_LARGEST).collect() if groups else []
    finally:
        counted.unpersist()
    made = [_Bin(row["bin"], row["count"], row["firsts"], row["last"]) for row in bins]
    return _Tally(step, made, groups, [(row["key"], row["count"]) for row in largest])


def _null(name: str, kind: str = "string") -> Column:
    return F.lit(None).cast(kind).alias(name)


def _bars(tally: _Tally, stretch: Stretch) -> tuple[Bar, ...]:
    """Counts over all the time, those of nothing included."""
    counts = {each.number: each.fired for each in tally.bins}
    numbers = range(stretch.begin // tally.step, stretch.end // tally.step + 1)
    return tuple(Bar(as_datetime(number * tally.step), counts.get(number, 0)) for number in numbers)


def _shown(key: str, wanted: Filter | Definition) -> str:
    """A type, or the values of BY as JSON, which tells 1 from the text of it."""
    if isinstance(wanted, Filter):
        return key
    return ", ".join(msgspec.json.encode(value).decode() for value in msgspec.json.decode(key).values())


# -- examples


def _chosen(bins: Sequence[Sequence[Row]], wanted: int) -> list[Row]:
    """So many examples, spread over the time: of many bars the first of some, of few the first ones of each."""
    if len(bins) >= wanted:
        places = [round(each * (len(bins) - 1) / max(1, wanted - 1)) for each in range(wanted)]
        return [bins[place][0] for place in places]
    in_turn = [row for rows in zip_longest(*bins) for row in rows if row is not None]
    return sorted(in_turn[:wanted], key=lambda row: (row["at"], row["offset"], row["id"]))


def _found(chosen: Sequence[Row], stretch: Stretch) -> list[Example]:
    """Events that a filter matches."""
    events = stretch.events([row["offset"] for row in chosen])
    found = []
    for row in chosen:
        part = {"name": "event", "offset": row["offset"], "id": row["id"]}
        found.append(Example(as_datetime(row["at"]), row["id"], {}, (_constituent(part, events),), ""))
    return found


def _explained(chosen: Sequence[Row], family: Sequence[Definition], stretch: Stretch) -> list[Example]:
    """What was detected, with its constituents, and why."""
    detector = Detector.of(family)
    found = []
    for row in chosen:
        data = msgspec.json.decode(row["data"])
        parts = data["parts"]
        near = parts if len(parts) <= _FETCHED else [*parts[: _FETCHED - 1], parts[-1]]
        events = stretch.events({part["offset"] for part in near if "offset" in part})
        event = Event(family[-1].name, SOURCE, row["id"], time=as_datetime(row["at"]), data=data)
        why = detector.explain(event, events)
        constituents = tuple(_constituent(part, events) for part in parts)
        found.append(Example(as_datetime(row["at"]), row["id"], data["key"], constituents, f"{why.rule} {why.missing}"))
    return found


def _constituent(part: dict[str, Any], events: Mapping[int, Event]) -> Constituent:
    if "offset" not in part:
        return Constituent(part["name"], parse_time(part["time"], "time"))
    event = events.get(part["offset"])
    if event is None:
        return Constituent(part["name"], None, part["offset"], None, part.get("source"), part["id"])
    return Constituent(part["name"], event.arrived, event.offset, event.type, event.source, event.id, event.data)

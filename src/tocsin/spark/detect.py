"""`ts.detect`: composite events in a DataFrame of events; batch or streaming.

    definitions ─▶ plan (`detecting`) ─▶ every task
    events ─ `packing` ─▶ packed rows ─ by division and bucket ─▶ engines ─▶ derived events (`detected`)
                                         streaming: `stateful`       batch: `replaying`

The engine is that of a node's detector, fed in the order of offsets, with journal time: the same events give the same
derived events with the same ids, however Spark cuts them into batches and partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import reduce

from pyspark.sql import DataFrame

from tocsin.clock import as_micros
from tocsin.composite.expression import Definition, leaves
from tocsin.errors import DefinitionError, EventError
from tocsin.model import parse_time
from tocsin.spark import stateful
from tocsin.spark.detecting import Given, checked, plan
from tocsin.spark.labelling import can_tell, pattern_of
from tocsin.spark.packing import pack
from tocsin.spark.replaying import replay
from tocsin.spark.windowed import windowed

__all__ = ["detect"]

BUCKETS = 8
"""Of a stream. Not as many as there are cores: its state must be of use on a machine with more or fewer, too."""

_log = logging.getLogger(__name__)


def detect(
    events: DataFrame,
    definitions: Mapping[str, Given],
    context: str = "recent",
    until: datetime | str | None = None,
    *,
    buckets: int | None = None,
    silent: Collection[str] = (),
) -> DataFrame:
    """Find composite events, as `Detector` does.

    Args:
        events: batch or streaming, with the columns of the Tocsin source: at least `offset`, `arrived` (journal time),
            `type`, `source` and `id`, and what the definitions look at. Other columns are attributes. A stream must
            have all events in the order of offsets from batch to batch; inside a batch any order will do. Timers fire
            when a later event comes; the source's option `system` shows clock records, which let time pass in silence.
        definitions: by name: a text, a pattern, a `Definition`, or a tuple (text, context[, semantics]). They may name
            each other. Those with the same BY are looked for together; those without BY by one task.
        context: of those that do not say it: recent, chronicle, continuous or cumulative.
        until: in a batch, let time pass up to this instant; if left out, up to the last event.
        buckets: into so many the keys are divided, and so many tasks can work at once; by default 8 in a stream, and as
            many as Spark has shuffle partitions in a batch. A stream that goes on from a checkpoint must have as many
            as it began with.
        silent: names of definitions that tell nothing themselves, since others are made of them.

    Returns:
        A DataFrame (id, type, source, time, key, parts, classification, data), one row for each derived event, in no
        particular order; see `tocsin.spark.detected`.

    A stream's state is in its checkpoint. A query that goes on from one may have other definitions: those that have
    stayed go on, and those that are new see what comes from then on.

    Raises:
        DefinitionError: a definition cannot be read, or does not fit the others; `until` in a stream.
        SchemaError: a column is missing, or of a type that cannot serve.
    """
    if not isinstance(events, DataFrame):
        raise DefinitionError(
            f"events are {type(events).__name__}", field="events", help="give a DataFrame; for lists there is Detector"
        )
    if buckets is None and events.isStreaming:
        buckets = BUCKETS
    elif buckets is None:
        buckets = int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or "1")
    wanted = {each.name: each for each in checked(definitions, context)}
    if alone := sorted(name for name, each in wanted.items() if not each.by and name not in silent):
        _log.warning("without BY, one task looks for %s", ", ".join(alone))
    if not events.isStreaming:
        return _batch(events, wanted, None if until is None else _instant(until), buckets, silent)
    if until is not None:
        raise DefinitionError("a stream has no end, so there is no until", field="until", help="leave it out")
    made = plan(wanted, buckets=buckets, silent=silent)
    return stateful.stream(pack(events, made), made)


def _batch(
    events: DataFrame, wanted: dict[str, Definition], until: int | None, buckets: int, silent: Collection[str]
) -> DataFrame:
    """By window functions what they can tell, the rest by engines."""
    named = {leaf.definition for each in wanted.values() for leaf in leaves(each.expression)}
    alone = [each for name, each in wanted.items() if name not in named and name not in silent]
    patterns = [each for each in map(pattern_of, alone) if each is not None and can_tell(events.schema, each)]
    found = [windowed(events, patterns)] if patterns else []
    rest = {name: each for name, each in wanted.items() if name not in {each.definition.name for each in patterns}}
    if rest:
        made = plan(rest, buckets=buckets, silent=silent)
        found.append(replay(pack(events, made), made, until))
    return reduce(DataFrame.unionAll, found)


def _instant(until: datetime | str) -> int:
    try:
        return as_micros(parse_time(until, "until"))
    except EventError as error:
        raise DefinitionError(error.message, field="until", help=error.help) from None

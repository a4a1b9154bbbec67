"""Which rows of a batch a division looks at, and all that its engines need to know of them: found by columns.

    rows of the types that count ─▶ filters (types alone, or the matcher) ─▶ keys ─▶ buckets
                                                                         └▶ values for WHERE

Python sees single events only where a column holds values of several kinds (`records`).

Promised: what is found is what `Detector.feed` would find out by itself: the same filters, keys and values.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.composite.keys import Key, key_reader, settled
from tocsin.composite.where import Needs, reader, stored
from tocsin.errors import EventError
from tocsin.filters.index import Matcher
from tocsin.model import CLASSIFICATION, Event
from tocsin.spark.chunks import Columns
from tocsin.spark.detecting import Division
from tocsin.spark.records import SourceRecords

__all__ = ["Picked", "Picker", "bucket_of", "picker_of"]

Array = np.ndarray[Any, Any]

_encode = msgspec.msgpack.Encoder().encode


class Picked(NamedTuple):
    """What a division gets of a batch."""

    columns: Columns
    buckets: Array
    """Of each event."""
    keyless: int
    """Matches of events without a key; those are left out."""


class Picker:
    """Picks for one division."""

    def __init__(self, division: Division, buckets: int) -> None:
        """Prepare what is the same for all batches."""
        self.division, self.buckets = division, buckets
        self._types = None if division.types is None else pa.array(sorted(division.types), pa.string())
        self._matcher = None if division.sure is not None else Matcher(enumerate(division.filters))

    def pick(self, batch: pa.RecordBatch, times: Array, is_event: Array) -> Picked:
        """The events that count, in their order.

        Args:
            batch: in the order of offsets.
            times: journal time of each row, microseconds.
            is_event: rows that are events, and not derived ones.
        """
        division = self.division
        if self._types is not None:
            is_event = is_event & _true(pc.is_in(batch.column("type"), value_set=self._types))
        rows = np.flatnonzero(is_event)
        mine = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
        records = SourceRecords(mine, division.fields)
        seen, matches = self._seen(mine, records)
        keys = {by: _key_column(records, by) for by in division.keys}
        buckets = np.zeros(len(rows), np.int64)
        if division.by:  # without its key an event takes no part, and goes to nobody
            found = keys.get(division.by)
            buckets = _buckets(_key_column(records, division.by) if found is None else found, self.buckets)
        sizes = np.array([len(match) for match in matches] or [0])
        keyless = int(sizes[seen[(seen >= 0) & (buckets < 0)]].sum())
        kept = np.flatnonzero((seen >= 0) & (buckets >= 0))
        values = {needs: _value_column(records, needs) for needs in division.needs}
        columns = Columns(
            mine.column("offset"),
            pa.array(times[rows]),
            pa.array(seen.astype(np.int32)),
            matches,
            mine.column("id").fill_null("-"),
            mine.column("source").fill_null("-"),
            _levels(mine),
            keys,
            values,
        )
        if len(kept) < len(rows):
            columns, buckets = _taken(columns, pa.array(kept)), buckets[kept]
        return Picked(columns, buckets, keyless)

    def _seen(self, batch: pa.RecordBatch, records: SourceRecords) -> tuple[Array, list[tuple[int, ...]]]:
        """Which filters are true of each row, as a place in a list; -1: none."""
        if self.division.sure is not None:
            coded = batch.column("type").dictionary_encode()
            kinds = coded.dictionary.to_pylist()
            return coded.indices.to_numpy(), [self.division.sure[kind] for kind in kinds]
        assert self._matcher is not None
        rows, names = self._matcher.match_pairs(records)
        numbers = names.to_numpy()
        order = np.lexsort((numbers, rows))
        rows, numbers = rows[order], numbers[order]
        seen = np.full(len(records), -1, np.int64)
        counts = np.bincount(rows, minlength=len(records))
        single = counts[rows] == 1
        alone, places = np.unique(numbers[single], return_inverse=True)
        seen[rows[single]] = places
        matches: dict[tuple[int, ...], int] = {(number,): place for place, number in enumerate(alone.tolist())}
        several = np.flatnonzero(counts > 1)
        if len(several):
            ends = np.cumsum(counts[several]).tolist()
            flat, start = numbers[~single].tolist(), 0
            found = []
            for end in ends:
                found.append(matches.setdefault(tuple(flat[start:end]), len(matches)))
                start = end
            seen[several] = found
        return seen, list(matches)


@lru_cache(maxsize=64)
def _cached(told: bytes, buckets: int) -> Picker:
    return Picker(msgspec.msgpack.decode(told, type=Division), buckets)


def picker_of(division: Division, buckets: int) -> Picker:
    """The picker of this process for a division: making one reads all filters, and batches follow each other."""
    return _cached(msgspec.msgpack.encode(division, order="deterministic"), buckets)


def _true(column: pa.Array) -> Array:
    found: Array = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found


def _taken(columns: Columns, places: pa.Array) -> Columns:
    offsets, times, seen, matches, ids, sources, levels, keys, values = columns
    return Columns(
        offsets.take(places),
        times.take(places),
        seen.take(places),
        matches,
        ids.take(places),
        sources.take(places),
        None if levels is None else levels.take(places),
        {by: column.take(places) for by, column in keys.items()},
        {needs: column.take(places) for needs, column in values.items()},
    )


def _levels(batch: pa.RecordBatch) -> pa.Array | None:
    if "classification" not in batch.schema.names:
        return None
    coded = batch.column("classification").dictionary_encode()
    kinds = coded.dictionary.to_pylist()
    if not set(kinds) - {CLASSIFICATION[0]}:
        return None
    if strange := sorted(set(kinds) - set(CLASSIFICATION)):
        raise EventError(
            f"an event's classification is {strange[0]!r}",
            field="classification",
            help=f"it must be one of {', '.join(CLASSIFICATION)}",
        )
    return pa.array([CLASSIFICATION.index(kind) for kind in kinds], pa.int8()).take(coded.indices).fill_null(0)


# -- keys and values


def _plain(records: SourceRecords, path: tuple[str, ...]) -> list[Any] | None:
    """The values of a name, if they are single ones of one kind; None: events must be asked."""
    column = records.column(path)
    if column is None:
        return [None] * len(records)
    if column is False or not any(
        test(column.type)
        for test in (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_float64, pa.types.is_boolean)
    ):
        return None
    return list(column.to_pylist())


def _events(records: SourceRecords) -> list[Event]:
    return records.take(range(len(records)))


def _key_column(records: SourceRecords, by: tuple[str, ...]) -> pa.Array:
    """The key of each row: texts or whole numbers as they are, others in MessagePack; NULL: it has none."""
    paths = [tuple(field.split(".")) for field in by]
    if len(by) == 1:
        column = records.column(paths[0])
        if column is None:
            return pa.nulls(len(records), pa.string())
        if column is not False and (pa.types.is_string(column.type) or pa.types.is_signed_integer(column.type)):
            return column if pa.types.is_string(column.type) else column.cast(pa.int64())
    columns = [_plain(records, path) for path in paths]
    if any(column is None for column in columns):
        keys = list(map(key_reader(by), _events(records)))
    else:
        rows = zip(*[[settled(each) for each in column or ()] for column in columns], strict=True)
        keys = [None if None in row else row for row in rows]
    return _packed(keys)


def _packed(keys: Sequence[Key | None]) -> pa.Array:
    known: dict[Key | None, bytes | None] = {None: None}
    for key in keys:
        if key not in known:
            known[key] = _encode(key)
    return pa.array([known[key] for key in keys], pa.binary())


def _value_column(records: SourceRecords, needs: Needs) -> pa.Array:
    """What WHERE asks for, nested as it is named, in MessagePack."""
    columns = [_plain(records, path) for path in needs]
    if any(len(path) > 1 for path in needs) or any(column is None for column in columns):
        read = reader(needs)
        return pa.array([_encode(read(event)) for event in _events(records)], pa.binary())
    names = [path[0] for path in needs]
    rows = zip(*[[stored(each) for each in column or ()] for column in columns], strict=True)
    return pa.array(
        [_encode({name: each for name, each in zip(names, row, strict=True) if each is not None}) for row in rows],
        pa.binary(),
    )


# -- buckets


def bucket_of(key: Key, buckets: int) -> int:
    """The bucket of a key: the same on every machine, for ever."""
    found = 0
    for value in key:
        found = zlib.crc32(value.encode() if isinstance(value, str) else repr(value).encode(), found)
    return found % buckets


def _buckets(column: pa.Array, buckets: int) -> Array:
    """The bucket of each key; -1: there is none."""
    coded = column.dictionary_encode()
    distinct = coded.dictionary
    if pa.types.is_string(column.type):
        found = [zlib.crc32(each) % buckets for each in distinct.cast(pa.binary()).to_pylist()]
    elif pa.types.is_integer(column.type):
        found = [bucket_of((each,), buckets) for each in distinct.to_pylist()]
    else:
        found = [bucket_of(_read(each), buckets) for each in distinct.to_pylist()]
    places: Array = coded.indices.fill_null(len(found)).to_numpy()
    result: Array = np.array([*found, -1], np.int64)[places]
    return result


_read = msgspec.msgpack.Decoder(Key).decode

"""Matching inside Spark's tasks: the index of a process, and batches of events in, pairs (offset, key) out.

A compiled index is shipped to each machine once (a broadcast) and loaded once in each Python process, where it stays
from task to task and batch to batch, known by a hash of its bytes. Loading a million filters takes seconds; a process
that serves several shards keeps as many indexes as `KEPT` allows, the last used ones.

Concurrency: a process of Spark's runs one task at a time. Loading holds a lock all the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.errors import FilterSetError
from tocsin.filters.index import Matcher
from tocsin.filters.index.arrow import Events
from tocsin.model import ENVELOPE
from tocsin.spark.filterset import FilterSet
from tocsin.spark.measuring import Spent, Tally
from tocsin.spark.records import SourceRecords
from tocsin.spark.shards import Layout, Shard

__all__ = ["SHARD", "VERSION", "Serving", "Shipped", "loaded", "needed"]

SHARD = "tocsin_shard"
"""The column that says which shard a copy of an event is for."""
VERSION = "filters"
"""The column that says which version of a filter set an event is matched with."""
KEPT = 1 << 30
"""Bytes of stored indexes whose matchers a process keeps; the one in use always."""
PAIRS = 1 << 20
"""Pairs to a batch handed to Spark, about: what many filters match may be a million times as large as what comes in."""

_matchers: OrderedDict[str, tuple[int, Matcher]] = OrderedDict()
_fields: WeakKeyDictionary[Matcher, tuple[int | None, set[tuple[str, ...]]]] = WeakKeyDictionary()
"""What a matcher looked at when it was last asked, and which version it then had."""
_lock = threading.Lock()


def loaded(name: str, fetch: Callable[[], bytes]) -> Matcher:
    """The matcher of this process for the index of this name, loaded if it is not there."""
    with _lock:
        if name not in _matchers:
            stored = fetch()
            _matchers[name] = len(stored), Matcher.from_bytes(stored)
            while len(_matchers) > 1 and sum(size for size, _ in _matchers.values()) > KEPT:
                _matchers.popitem(last=False)
        _matchers.move_to_end(name)
        return _matchers[name][1]


class Shipped(msgspec.Struct, frozen=True):
    """The index of one shard on its way."""

    name: str
    """A hash of its bytes."""
    broadcast: Any

    def matcher(self) -> Matcher:
        """The matcher in this process."""
        return loaded(self.name, lambda: bytes(self.broadcast.value))


class Serving(msgspec.Struct, frozen=True):
    """What a task does; made in the driver, pickled to executors."""

    source: bool
    """Whether the columns are the source's; else they mean what `Matcher.match_batch` says."""
    kind: type[str] | type[int]
    """Of which kind the keys are."""
    layout: Layout | None = None
    """Which shards there are; None: those that the version of the live set says."""
    indexes: tuple[Shipped, ...] = ()
    """One for each shard; none with a live set."""
    live: FilterSet | None = None
    meter: Any = None
    """An accumulator that is told what shards had to do (`balancing`); None: nobody asks."""

    def pairs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: (offset, key) for every match."""
        tally = Tally()
        try:
            for batch in batches:
                for number, part in _split(batch, SHARD):
                    for version, rows in _split(part, VERSION if self.live is not None else None):
                        shard, matcher = self._matcher(number or 0, version)
                        yield from self._match(matcher, version, rows, tally.of(shard, len(rows), len(matcher)))
        finally:
            if self.meter is not None:
                self.meter.add(tally.told())

    def copies(self, versions: pa.Array) -> pa.Array:
        """How many shards each event meets, by the versions of the live set; where none is named one task complains."""
        assert self.live is not None
        coded = versions.dictionary_encode()
        sizes = [len(self.live.layout(version)) for version in coded.dictionary.to_pylist()]
        return pa.array(sizes, pa.int32()).take(coded.indices).fill_null(1)

    def _matcher(self, number: int, version: int | None) -> tuple[Shard, Matcher]:
        if self.live is None:
            assert self.layout is not None
            return self.layout.shards[number], self.indexes[number].matcher()
        if version is None:
            raise FilterSetError(
                f"an event's column {VERSION} is NULL", path=self.live.path, help="it must name a version of the set"
            )
        shard = (self.layout or self.live.layout(version)).shards[number]
        return shard, self.live.matcher(version, shard=shard)

    def _match(
        self, matcher: Matcher, version: int | None, batch: pa.RecordBatch, spent: Spent
    ) -> Iterator[pa.RecordBatch]:
        fields = _fields_of(matcher, version)
        offsets = batch.column("offset")
        nested = [field.name for field in batch.schema if pa.types.is_nested(field.type)]
        batch = batch.select(needed(batch.schema.names, nested, fields))
        if not batch.num_columns:  # filters that look at nothing: the rows count all the same
            batch = pa.record_batch([pa.nulls(len(offsets))], names=["nothing"])
        with spent.busy():
            rows = SourceRecords(batch, fields) if self.source else Events(batch)
        first, size = 0, min(1024, len(offsets))
        while first < len(offsets):
            with spent.busy():
                numbers, keys = matcher.match_pairs(rows[first : first + size])
            if len(numbers):
                yield self._batch(offsets.take(pa.array(numbers + first)), keys)
            first += size
            size = max(64, min(len(offsets), PAIRS * size // (len(numbers) + 1)))

    def _batch(self, offsets: pa.Array, keys: pa.Array) -> pa.RecordBatch:
        kind = pa.string() if self.kind is str else pa.int64()
        if keys.type != kind:
            assert self.live is not None
            raise FilterSetError(
                f"the query was planned for keys of another kind than {keys.type}",
                path=self.live.path,
                help="start it again: the set was empty then",
            )
        return pa.record_batch([offsets, keys], names=["offset", "key"])


def _fields_of(matcher: Matcher, version: int | None) -> set[tuple[str, ...]]:
    """`Matcher.fields`, which walks over all residues: asked once for each version."""
    known = _fields.get(matcher)
    if known is None or known[0] != version:
        known = _fields[matcher] = version, matcher.fields()
    return known[1]


def _split(batch: pa.RecordBatch, name: str | None) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """The rows of each value of a column, which is then dropped; as they are if there is no such column."""
    place = -1 if name is None else batch.schema.get_field_index(name)
    if place < 0 or not batch.num_rows:
        yield None, batch
        return
    column, rest = batch.column(place), batch.remove_column(place)
    values = pc.unique(column).to_pylist()
    for value in values:
        yield value, rest if len(values) == 1 else rest.filter(_equal(column, value))


def _equal(column: pa.Array, value: Any) -> pa.Array:
    return column.is_null() if value is None else pc.fill_null(pc.equal(column, value), False)


def needed(names: list[str], nested: Collection[str], fields: set[tuple[str, ...]]) -> list[str]:
    """The columns that can matter to filters that look at these fields.

    A bare name may be an envelope field, a column, an attribute or a member of the payload; `attributes` and `data` by
    themselves are everything that counts as one.

    Args:
        names: the columns there are.
        nested: those of them that hold lists or structs, and so are members of the payload.
        fields: as in `Matcher.fields`.
    """
    wanted: set[str] = set()
    for head, *rest in fields:
        if head in ENVELOPE:
            wanted.add(head)
        elif head == "attributes":
            wanted |= {head, *(rest or set(names) - set(nested))}
        elif head == "data":
            wanted |= {head, "datacontenttype", *(rest[:1] or nested)}
        else:
            wanted |= {head, "attributes", "data", "datacontenttype"}
    return [name for name in names if name in wanted]

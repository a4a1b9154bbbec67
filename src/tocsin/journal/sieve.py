"""Which rows of a block does a filter match? Found without making an event of each.

    statistics ─▶ skip the block, or: columns ─▶ rows that cannot match, rows that do ─▶ the rest: decode and ask

Making an event costs 10 µs. Tests of the envelope (type, source, priority, times …) are asked of whole Arrow columns,
which costs nearly nothing per row; if a filter has no others, no row is decoded. Otherwise a remaining row is decoded
only as far as the filter looks: its payload, its attributes, a few columns (about 2 µs with the test).

Promised: the rows are exactly those whose events the filter matches. System records and other priorities are left out
as asked. Not promised: any knowledge of expiry or cancellation; that is the caller's.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.clock import as_datetime
from tocsin.filters import intervals, normal, values
from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NULLNESS, REVERSED, Conjunction
from tocsin.filters.syntax import Field, Value
from tocsin.journal.facts import Keys, number_keys
from tocsin.journal.rows import SCHEMA, from_arrow
from tocsin.journal.statistics import SYSTEM, Statistics, may_match
from tocsin.model import ENVELOPE, Event
from tocsin.payload import content_kind

__all__ = ["Flags", "Report", "Sieve", "Sieves"]

Flags = np.ndarray[Any, np.dtype[np.bool_]]

_FIRST_PIECE, _LARGEST_PIECE = 64, 1024
_MANY = 8  # alternatives of a filter: from here on an index over them is quicker, though it needs whole events
_TIMES = ("arrived", "time")
_NO_ATTRIBUTES: dict[str, Any] = {}
_unpack = msgspec.msgpack.Decoder(dict).decode
_read_json = msgspec.json.Decoder().decode


class Report(msgspec.Struct):
    """What a search cost. Pass one in to see that nothing was scanned that need not be."""

    skipped: int = 0
    """Blocks that were not read, by their statistics."""
    read: int = 0
    """Blocks that were read."""
    rows: int = 0
    """Events in the blocks that were read, within the range asked for."""
    decoded: int = 0
    """Events whose payload or attributes were decoded to ask the filter."""
    made: int = 0
    """Events that were made in full."""
    found: int = 0
    """Events that are in the answer."""


class _Columns(NamedTuple):
    """The part of an alternative that columns can answer."""

    tests: tuple[tuple[str, str, Cuts], ...]
    whole: bool
    """There is no other part: where the tests are true, the filter is."""


class Sieve:
    """A filter, prepared to be asked of blocks.

    Args:
        filter: the filter; None lets everything pass.
        system: whether system records count.
        priorities: the levels that count; None: all.
    """

    def __init__(self, filter: Filter | None, *, system: bool = False, priorities: Collection[int] | None = None):
        """Prepare the filter; nothing is read yet."""
        self.filter = filter
        self._system = system
        self._priorities = frozenset(priorities) if priorities is not None else None
        self._alternatives: list[_Columns] = []
        self._names: tuple[str, ...] = ()
        if filter is not None:
            self._alternatives = [_columns(each, filter.form.terms) for each in filter.form.alternatives]
            self._names = _names(filter)
        self._matcher = Matcher([(0, filter)]) if filter is not None and len(self._alternatives) > _MANY else None
        self._row = namedtuple("Row", self._names)  # type: ignore[misc]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of a batch that `rows` looks at."""
        if self._matcher is not None:
            return frozenset(SCHEMA.names)
        tested = {test[0] for each in self._alternatives for test in each.tests}
        asked = set() if all(each.whole for each in self._alternatives) else set(self._names)
        decoding = {"datacontenttype"} if "data" in asked else set()
        kind = set() if self._system else {"type"}
        level = set() if self._priorities is None else {"priority"}
        return frozenset(tested | asked | decoding | kind | level)

    def may_match(self, statistics: Statistics | None) -> bool:
        """Could the block hold a row? False is certain."""
        if statistics is None:
            return True
        if not self._system and statistics.system == statistics.rows:
            return False
        if self._priorities is not None and not self._priorities & statistics.priorities:
            return False
        return self.filter is None or may_match(self.filter, statistics)

    def matches(self, event: Event) -> bool:
        """Does one event pass?"""
        if not self._system and event.type.startswith(SYSTEM):
            return False
        if self._priorities is not None and event.priority not in self._priorities:
            return False
        return self.filter is None or self.filter.matches(event)

    def rows(
        self, batch: pa.RecordBatch, report: Report, *, only: Flags | None = None, backwards: bool = False
    ) -> Iterator[Keys]:
        """The numbers of the rows that pass, in pieces, each ascending or, backwards, descending.

        Pieces begin small: who stops after the first did not pay for the block.

        Args:
            batch: with those of the columns of `rows.SCHEMA` that `columns` names, or all.
            report: what is decoded is counted there.
            only: rows that are asked about; None: all.
            backwards: the last rows first.
        """
        possible, certain = self._by_columns(batch)
        if only is not None:
            possible &= only
        places = np.flatnonzero(possible)
        if backwards:
            places = places[::-1]
        if certain is None:  # the columns have said it all
            if len(places):
                yield places
            return
        start, size = 0, _FIRST_PIECE
        while start < len(places):
            piece = places[start : start + size]
            start, size = start + size, min(2 * size, _LARGEST_PIECE)
            passed = certain[piece]
            open_places = np.flatnonzero(~passed)
            if len(open_places):
                report.decoded += len(open_places)
                passed[open_places] = self._ask(batch, piece[open_places])
            piece = piece[passed]
            if len(piece):
                yield piece

    def _by_columns(self, batch: pa.RecordBatch) -> tuple[Flags, Flags | None]:
        """Which rows are possible, and which of them certain; None: all of them."""
        count = batch.num_rows
        possible = np.ones(count, np.bool_) if self.filter is None else np.zeros(count, np.bool_)
        certain: Flags | None = None
        answers: dict[tuple[str, str, Cuts], Flags] = {}  # alternatives often share a test
        for tests, whole in self._alternatives:
            flags = np.ones(count, np.bool_)
            for test in tests:
                if test not in answers:
                    answers[test] = _inside(batch.column(test[0]), *test[1:])
                flags &= answers[test]
            possible |= flags
            if whole:
                certain = flags if certain is None else certain | flags
        if all(each.whole for each in self._alternatives):
            certain = None
        elif certain is None:
            certain = np.zeros(count, np.bool_)
        if not self._system:
            possible &= ~_flags(pc.starts_with(batch.column("type"), SYSTEM))
        if self._priorities is not None:
            possible &= np.isin(batch.column("priority").to_numpy(), list(self._priorities))
        return possible, certain

    def _ask(self, batch: pa.RecordBatch, places: Keys) -> list[bool]:
        """Decode rows as far as the filter looks, and ask it."""
        assert self.filter is not None
        chosen = pa.array(places)
        if self._matcher is not None:
            return [bool(keys) for keys in self._matcher.match_batch(from_arrow(batch.take(chosen)))]
        columns = [_decoded(batch, name, chosen) for name in self._names]
        # The evaluator reads envelope fields, `attributes` and `data` as plain attributes, and only those it names.
        evaluate = self.filter.evaluate
        return [evaluate(cast(Event, row)) is True for row in map(self._row, *columns)]


class Sieves:
    """Several sieves, all of which an event must pass. The first ones spare the others their rows."""

    def __init__(self, *sieves: Sieve | None) -> None:
        """Ask these, in this order; None lets everything pass."""
        self._all = [sieve for sieve in sieves if sieve is not None]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of a batch that `passed` looks at."""
        return frozenset().union(*(sieve.columns for sieve in self._all))

    def may_match(self, statistics: Statistics | None) -> bool:
        """Could a block hold a row? False is certain."""
        return all(sieve.may_match(statistics) for sieve in self._all)

    def passed(self, batch: pa.RecordBatch, report: Report) -> pa.RecordBatch:
        """The rows of a batch that pass."""
        only = None
        for sieve in self._all:
            pieces = list(sieve.rows(batch, report, only=only))
            only = np.zeros(batch.num_rows, np.bool_)
            for piece in pieces:
                only[piece] = True
        return batch if only is None or only.all() else batch.filter(pa.array(only))


def _columns(conjunction: Conjunction, terms: dict[str, Value]) -> _Columns:
    tests = []
    for (term, kind), cuts in conjunction.sets.items():
        value = terms[term]
        if isinstance(value, Field) and len(value.path) == 1 and value.path[0] in ENVELOPE:
            tests.append((value.path[0], kind, cuts))
    return _Columns(tuple(tests), len(tests) == len(conjunction.sets) and not conjunction.residues)


def _names(filter: Filter) -> tuple[str, ...]:
    """What of an event the filter looks at; all columns are needed if it looks at none, so one is taken."""
    names: dict[str, None] = {}
    for field in normal.fields(filter.condition):
        head = field.path[0]
        if head in ENVELOPE or head in ("attributes", "data"):
            names[head] = None
        else:
            names |= dict.fromkeys(("attributes", "data"))
    return tuple(names) or ("type",)


def _inside(column: pa.Array, kind: str, cuts: Cuts) -> Flags:
    """Which values of an envelope column are in the set? NULL is in none."""
    if kind == NULLNESS:
        null, not_null = intervals.contains(cuts, 0), intervals.contains(cuts, 1)
        valid = _flags(column.is_valid())
        return (valid & not_null) | (~valid & null)
    if kind in (values.TEXT, REVERSED):
        found = column.dictionary_encode()
        step = 1 if kind == values.TEXT else -1
        texts = found.dictionary.to_pylist()
        allowed = [intervals.contains(cuts, intervals.text_key(text[::step])) for text in texts]
        allowed.append(False)  # for NULL
        flags: Flags = np.array(allowed, np.bool_).take(found.indices.fill_null(len(texts)).to_numpy())
        return flags
    if kind == values.TIME:
        keys = column.cast(pa.int64()).fill_null(0).to_numpy()
    elif kind == values.BOOLEAN:
        keys = _flags(column).astype(np.int64)
    else:
        keys = number_keys(column.fill_null(0).to_numpy())
    flags = np.searchsorted(np.array(cuts, np.int64), keys, "right") % 2 == 1
    return flags & _flags(column.is_valid()) if column.null_count else flags


def _flags(column: pa.BooleanArray) -> Flags:
    found: Flags = column.to_numpy(zero_copy_only=False).astype(np.bool_)
    return found.copy()


def _decoded(batch: pa.RecordBatch, name: str, places: pa.Array) -> list[Any]:
    """One column of some rows, as an event would hold it."""
    column = batch.column(name).take(places)
    if name in _TIMES:
        return [None if each is None else as_datetime(each) for each in column.cast(pa.int64()).to_pylist()]
    if name == "attributes":
        return [_NO_ATTRIBUTES if each is None else _unpack(each) for each in column.to_pylist()]
    if name != "data":
        return cast(list[Any], column.to_pylist())
    media_type = batch.column("datacontenttype").take(places)
    if media_type.null_count == len(media_type):
        return [None if each is None else _read_json(each) for each in column.to_pylist()]
    return [_payload(*each) for each in zip(column.to_pylist(), media_type.to_pylist(), strict=True)]


def _payload(raw: bytes | None, media_type: str | None) -> Any:
    kind = "json" if media_type is None else content_kind(media_type)
    if raw is None or kind == "binary":
        return raw
    return _read_json(raw) if kind == "json" else raw.decode()

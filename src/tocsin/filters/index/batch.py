"""Many events at once: encode them into dense rows, match the rows, hand out keys per event.

A list of events goes through the same encoder as a single one. Arrow data with plain columns is encoded column by
column (`arrow`), without making Python objects for the values; anything less plain is turned into events first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from tocsin.errors import MatcherError
from tocsin.filters.index import arrow, engine, vectors
from tocsin.filters.index.labels import ABSENT, NO_KEY
from tocsin.filters.index.layout import Array
from tocsin.filters.index.live import LiveIndex
from tocsin.filters.index.naming import names_of_events
from tocsin.filters.index.registry import Key, Registry, flat, not_an_event
from tocsin.filters.index.view import Scratch, View
from tocsin.model import Event

__all__ = ["Entries", "Rows", "encode", "in_chunks", "match_batch", "plain_pairs"]

CHUNK = 4096
"""Events matched at a time: enough to reach a bucket often, few enough for their columns to stay in the cache."""
_MAX_CELLS = 4_000_000  # dense rows never take more than this many codes or keys
BUCKET_MAJOR = 500
"""Postings from which visiting each bucket once for all events pays."""
_BUCKETS_EACH = 100  # buckets that may be visited for each event: most are passed by, in a nanosecond

ResidueCheck = Callable[[View, list[int], list[int], Event], list[int]]
Answer = TypeVar("Answer")


class Entries(NamedTuple):
    """What a chunk of events matches, before it has names."""

    events: Array
    """The event (its number in the chunk) of each entry, in order."""
    entries: Array
    starts: Array
    """Event n has the entries from `starts[n]` to `starts[n + 1]`."""
    more: dict[int, list[int]]
    """Event → its entries that Python had to ask; none of them is among `entries`."""
    changes: int
    """`Registry.changes` before they were found."""


Namer = Callable[[Registry, Entries], Answer]
"""Makes of entries what the caller wants."""


class Rows(msgspec.Struct):
    """Events as dense rows: a code (or -1) per coded dimension, a key (or ABSENT) per ordered one, members apart.

    Rows have room for dimensions that are added while they are matched; nothing is there, so such tests are not true.
    """

    codes: Array
    keys: Array
    member_starts: Array
    members: Array

    @classmethod
    def blank(cls, events: int, view: View) -> Rows:
        """Rows of events that have nothing."""
        return cls(
            np.full((events, view.coded_capacity), -1, np.int32),
            np.full((events, view.ordered_capacity), ABSENT, np.int64),
            np.zeros(events + 1, np.int32),
            np.zeros(1, np.int32),
        )


def match_batch(live: LiveIndex, events: Any, residue_check: ResidueCheck) -> list[list[Key]]:
    """See `Matcher.match_batch`."""
    results: list[list[Key]] = []
    for found in in_chunks(live, events, _lists, residue_check):
        results.extend(found)
    return results


def in_chunks(live: LiveIndex, events: Any, name: Namer[Answer], residue_check: ResidueCheck) -> Iterator[Answer]:
    """Match events some at a time, and give out what `name` makes of each chunk's entries.

    A chunk is matched again if the index was rebuilt before its entries were named.

    Raises:
        MatcherError: neither events nor Arrow, or a row that no event can be made of.
    """
    if isinstance(events, pa.Table | pa.RecordBatch):
        for piece in arrow.pieces(events, _chunk_size(live)):
            yield _match_records(live, arrow.Events(piece), name, residue_check)
        return
    if isinstance(events, Event | str | bytes) or not isinstance(events, Sequence):
        raise MatcherError(
            f"a list of events or Arrow data is expected, not {type(events).__name__}",
            help="for one event there is match()",
        )
    size = _chunk_size(live)
    for start in range(0, len(events), size):
        chunk = events[start : start + size]
        if isinstance(chunk, arrow.Records):
            yield _match_records(live, chunk, name, residue_check)
        else:
            yield _match_events(live, chunk, name, residue_check)


def _chunk_size(live: LiveIndex) -> int:
    """Events at a time: fewer where filters have very many dimensions, so that dense rows stay small."""
    width = max(1, live.view.coded_capacity + live.view.ordered_capacity)
    return max(16, min(CHUNK, _MAX_CELLS // width))


def _match_events(live: LiveIndex, events: Sequence[Event], name: Namer[Answer], residue_check: ResidueCheck) -> Answer:
    while True:
        view = live.view
        scratch = Scratch(view, live.registry, len(events))
        rows = encode(view, scratch, events)
        if (
            scratch.generation == view.generation
            and (found := _match(live, view, scratch, rows, events, name, residue_check)) is not None
        ):
            return found


def _match_records(live: LiveIndex, records: arrow.Records, name: Namer[Answer], residue_check: ResidueCheck) -> Answer:
    while True:
        view = live.view
        scratch = Scratch(view, live.registry)
        rows = Rows.blank(len(records), view)
        if not arrow.encode(view, records, rows.codes, rows.keys):
            return _match_events(live, records, name, residue_check)
        if scratch.generation == view.generation:
            found = _match(live, view, scratch, rows, records, name, residue_check)
            if found is not None:
                return found


def encode(view: View, scratch: Scratch, events: Sequence[Event]) -> Rows:
    """Write events into a scratch space made for so many, and spread them out in rows."""
    encode_event, width = scratch.encode, scratch.width
    codes = row = 0
    ends = []
    for event in events:
        if not isinstance(event, Event):
            raise not_an_event(event)
        codes = encode_event(event, codes, row)
        row += width
        ends.append(codes)
    found = scratch.codes[:codes]
    owner = np.repeat(np.arange(len(events)), np.diff(ends, prepend=0))
    place = view.observed.code_dimension.data[found]
    single = place >= 0
    rows = Rows.blank(len(events), view)
    rows.keys[:, :width] = _keys(view, scratch.keys[:row].reshape(len(events), width))
    if not single.all():
        rows.members = found[~single]
        rows.member_starts[1:] = np.cumsum(np.bincount(owner[~single], minlength=len(events)))
    rows.codes[owner[single], place[single]] = found[single]
    scratch.keys[:row] = NO_KEY
    return rows


def _keys(view: View, written: Array) -> Array:
    """What an encoder wrote as keys: doubles become ordered, empty places ABSENT."""
    doubles = view.observed.is_double.data[: written.shape[1]] != 0
    keys = written.copy()
    if doubles.any():
        keys[:, doubles] = vectors.number_keys(written[:, doubles].view(np.float64))
    keys[written == NO_KEY] = ABSENT
    return keys


def _match(
    live: LiveIndex,
    view: View,
    scratch: Scratch,
    rows: Rows,
    events: Sequence[Event],
    name: Namer[Answer],
    residue_check: ResidueCheck,
) -> Answer | None:
    """Match rows and name the keys; None if the index was rebuilt meanwhile."""
    kernels = engine.batch_kernels()
    changes = live.registry.changes
    if kernels is None:
        pairs, residues = plain_pairs(view, scratch, rows)
    else:
        pairs, residues = _kernel_pairs(kernels, view, scratch, rows)
    view.collect(scratch)
    live.watch(view)
    starts = np.concatenate([[0], np.cumsum(np.bincount(pairs[0], minlength=len(rows.codes)))])
    asked = events.take(list(residues)) if isinstance(events, arrow.Records) else map(events.__getitem__, residues)
    more = {
        row: residue_check(view, owed, pairs[1][starts[row] : starts[row + 1]].tolist(), event)
        for (row, owed), event in zip(residues.items(), asked, strict=True)
    }
    found = name(live.registry, Entries(pairs[0], pairs[1], starts, more, changes))
    # Rebuilt meanwhile: an entry's number may have got another owner before it was named.
    return found if view is live.view else None


def _lists(registry: Registry, found: Entries) -> list[list[Key]]:
    """One list of keys for each event."""
    results: list[list[Any]] = names_of_events(registry, found.entries, found.starts)
    keys = registry.keys
    for event, entries in found.more.items():
        results[event].extend([keys[entry] for entry in entries])
        results[event] = flat(results[event])
    if registry.changes != found.changes:
        return [flat(result) for result in results]
    for event in np.unique(found.events[registry.are_shared(found.entries)]).tolist():
        results[event] = flat(results[event])
    return results


def _kernel_pairs(
    kernels: Any, view: View, scratch: Scratch, rows: Rows
) -> tuple[tuple[Array, Array], dict[int, list[int]]]:
    """(events, entries) pairs in order of events, and the conjunctions Python must look at."""
    count = len(rows.codes)
    segment = view.segment
    bucket_major = (
        segment is not None
        and len(segment.arrays["entry_low"]) >= BUCKET_MAJOR
        and count >= max(32, len(segment.arrays["buckets"]) // _BUCKETS_EACH)
    )
    capacity = int(max(1024, 16 * count, 1.5 * view.pairs_per_event * count))
    residue_capacity = max(64, count) * min(16, view.residue_capacity) if view.residue_rows else 1
    while True:
        out_events, out_entries = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
        residue_events, residues = np.empty(residue_capacity, np.int32), np.empty(residue_capacity, np.int32)
        run = kernels.match_buckets if bucket_major else kernels.match_rows
        written, owed = run(
            scratch.header.numbers,
            rows.codes,
            rows.keys,
            rows.member_starts,
            rows.members,
            out_events,
            out_entries,
            residue_events,
            residues,
        )
        if written <= capacity and owed <= residue_capacity:
            break
        # Too small: the kernel has counted what it needs.
        capacity, residue_capacity = max(capacity, written), max(residue_capacity, owed)
    view.pairs_per_event = written / count
    events, entries = out_events[:written], out_entries[:written]
    if bucket_major and (marked := entries < 0).any():
        events, entries = _without_repeats(events, entries, marked)
    waiting: dict[int, list[int]] = {}
    for event, row in zip(residue_events[:owed].tolist(), residues[:owed].tolist(), strict=True):
        waiting.setdefault(event, []).append(row)
    return (events, entries), waiting


def _without_repeats(events: Array, entries: Array, marked: Array) -> tuple[Array, Array]:
    """Keep one of each marked pair, and the order of events."""
    pairs = np.unique(events[marked].astype(np.int64) << 32 | (-1 - entries[marked]))
    events = np.concatenate([events[~marked], pairs >> 32])
    entries = np.concatenate([entries[~marked], pairs & 0xFFFF_FFFF])
    order = np.argsort(events, kind="stable")
    return events[order], entries[order]


def plain_pairs(view: View, scratch: Scratch, rows: Rows) -> tuple[tuple[Array, Array], dict[int, list[int]]]:
    """As the kernels do, with NumPy."""
    counters = {name: scratch.header[name] for name in ("events", "scanned", "tested", "matched")}
    found: list[list[int]] = []
    waiting: dict[int, list[int]] = {}
    for event in range(len(rows.codes)):
        row_codes, row_keys = rows.codes[event], rows.keys[event]
        members = rows.members[rows.member_starts[event] : rows.member_starts[event + 1]]
        codes = np.concatenate([row_codes[row_codes >= 0], members])
        entries, owed = vectors.match_row(
            view, codes, np.flatnonzero(row_keys != ABSENT), row_codes, row_keys, counters
        )
        found.append(entries)
        if owed:
            waiting[event] = owed
    for name, number in counters.items():
        scratch.header[name] = number
    owner = np.repeat(np.arange(len(found)), [len(entries) for entries in found])
    return (owner, np.array([entry for entries in found for entry in entries], np.int64)), waiting

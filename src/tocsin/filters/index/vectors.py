"""The plain-NumPy twin of `kernels`: same arrays, same answers, no compiler.

Used where Numba is missing or still compiling.

Candidates of one event are gathered from their buckets as index arrays and tested all at once. Slower than the kernels
by a factor of ten or more per event, but it still reads only the buckets an event reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tocsin.filters.index.header import GRID_CELLS, NO_SECOND, SAMPLES
from tocsin.filters.index.labels import ABSENT
from tocsin.filters.index.layout import FLAG_SHIFT, MULTIPLE, RESIDUE, Array, code_bits, order_bits
from tocsin.filters.index.space import IN, WITHIN_CUTS
from tocsin.filters.index.tables import Parts, take_apart
from tocsin.filters.intervals import NAN_KEY

if TYPE_CHECKING:
    from tocsin.filters.index.build import Segment
    from tocsin.filters.index.view import View

__all__ = ["match_row", "number_keys"]

_ALL_BITS = np.uint64(2**64 - 1)


def number_keys(doubles: Array) -> Array:
    """Ordered keys of doubles, all at once."""
    bits = doubles.view(np.int64)
    magnitude = bits & np.int64(0x7FFF_FFFF_FFFF_FFFF)
    keys = np.where(bits >= 0, magnitude, -magnitude)
    return np.where(magnitude >= NAN_KEY, NAN_KEY, keys)


def match_row(
    view: View, codes: Array, orders: Array, row_codes: Array, row_keys: Array, counters: dict[str, int]
) -> tuple[list[int], list[int]]:
    """Match the event with these codes and ordered dimensions, spread out in the rows.

    Returns:
        Entries that are true, and conjunctions Python must look at (n for the segment, -1 - n for the delta).
    """
    entries: list[int] = []
    residues: list[int] = []
    multiple: set[int] = set()
    event = _Event(codes, orders, row_codes, row_keys)
    if view.segment is not None:
        places = _segment_candidates(view.segment, event, counters)
        _report(view.segment.tables.stream, places, event, False, entries, residues, multiple, counters)
    if len(view.delta):
        places = _delta_candidates(view, event, counters)
        _report(view.delta.stream.data, places, event, True, entries, residues, multiple, counters)
    counters["events"] += 1
    counters["matched"] += len(entries)
    if (counters["events"] * 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF_FFFF) >> 60 == 0:  # as the kernels do
        observed = view.observed
        observed.sampled[0] += 1
        observed.code_counts.data[codes] += 1
        for order in orders.tolist():
            place = order * SAMPLES + int(observed.key_counts.data[order]) % SAMPLES
            observed.key_samples.data[place] = row_keys[order]
            observed.key_counts.data[order] += 1
    return entries, residues


class _Event:
    def __init__(self, codes: Array, orders: Array, row_codes: Array, row_keys: Array) -> None:
        self.codes, self.orders, self.row_codes, self.row_keys = codes, orders, row_codes, row_keys
        bits = np.concatenate([code_bits(codes), order_bits(orders)])
        self.signature = np.bitwise_or.reduce(bits) if len(bits) else np.uint64(0)


def _segment_candidates(segment: Segment, event: _Event, counters: dict[str, int]) -> Array:
    arrays = segment.arrays
    known = event.codes[event.codes < segment.codes_known]
    buckets = arrays["code_bucket"][known].tolist()
    for order in event.orders[event.orders < segment.orders_known].tolist():
        grid = int(arrays["grid"][order])
        if grid < 0:
            buckets.append(int(arrays["order_bucket"][order]))
            continue
        bounds = arrays["grid_bounds"][grid * (GRID_CELLS - 1) : (grid + 1) * (GRID_CELLS - 1)]
        node = GRID_CELLS + int(np.searchsorted(bounds, event.row_keys[order], "right"))
        while node:
            buckets.append(int(arrays["grid_bucket"][grid * 2 * GRID_CELLS + node]))
            node >>= 1
    buckets.append(segment.always_bucket)
    stretches = [stretch for bucket in buckets if bucket >= 0 for stretch in _stretches(arrays, bucket, event)]
    if not stretches:
        return np.zeros(0, np.int64)
    found = np.concatenate([np.arange(first, last) for first, last in stretches])
    counters["scanned"] += len(found)
    entries = arrays["entries"][found]
    fits = (entries[:, :2].copy().view(np.uint64)[:, 0] & (event.signature ^ _ALL_BITS)) == 0
    return np.asarray(entries[fits, 2])


def _stretches(arrays: dict[str, Array], bucket: int, event: _Event) -> list[tuple[int, int]]:
    """The parts of a bucket whose second test can be true (high ends are left to the whole test)."""
    bucket_first, bucket_last, groups, group_count = arrays["buckets"][bucket].tolist()
    if groups < 0:
        return [(bucket_first, bucket_last)]
    found = []
    for group in range(groups, groups + group_count):
        first, last = int(arrays["group_first"][group]), int(arrays["group_last"][group])
        dimension = int(arrays["group_dimension"][group])
        lows = arrays["entry_low"][first:last]
        if dimension == NO_SECOND:
            found.append((first, last))
        elif dimension >= 0:
            code = event.row_codes[dimension]
            if code >= 0:
                found.append(
                    (first + int(np.searchsorted(lows, code)), first + int(np.searchsorted(lows, code, "right")))
                )
        elif event.row_keys[-1 - dimension] != ABSENT:
            found.append((first, first + int(np.searchsorted(lows, event.row_keys[-1 - dimension] >> 32, "right"))))
    return found


def _delta_candidates(view: View, event: _Event, counters: dict[str, int]) -> Array:
    delta, segment = view.delta, view.segment
    heads = [delta.code_head.data[code] for code in event.codes]
    for order in event.orders.tolist():
        grid = int(segment.arrays["grid"][order]) if segment is not None and order < segment.orders_known else -1
        if grid < 0 or segment is None:
            heads.append(delta.order_head.data[order])
            continue
        bounds = segment.arrays["grid_bounds"][grid * (GRID_CELLS - 1) : (grid + 1) * (GRID_CELLS - 1)]
        node = GRID_CELLS + int(np.searchsorted(bounds, event.row_keys[order], "right"))
        while node:
            heads.append(delta.grid_head.data[grid * 2 * GRID_CELLS + node])
            node >>= 1
    heads.append(delta.always_head.data[0])
    found = []
    for head in heads:
        while head >= 0:
            found.append(int(delta.link_record.data[head]))
            head = delta.link_next.data[head]
    counters["scanned"] += len(found)
    return np.array(found, np.int64)


def _report(
    stream: Array,
    places: Array,
    event: _Event,
    in_delta: bool,
    entries: list[int],
    residues: list[int],
    multiple: set[int],
    counters: dict[str, int],
) -> None:
    places = places[stream[places + 2] >> FLAG_SHIFT != 0]
    counters["tested"] += len(places)
    for place in places[_hold(stream, places, event)].tolist():
        flags, entry = int(stream[place + 2]) >> FLAG_SHIFT, int(stream[place])
        if flags & RESIDUE:
            residues.append(-1 - place if in_delta else place)
        elif not flags & MULTIPLE:
            entries.append(entry)
        elif entry not in multiple:
            multiple.add(entry)
            entries.append(entry)


def _hold(stream: Array, places: Array, event: _Event) -> Array:
    """Which records are true: count, for each, the tests that fail."""
    parts = take_apart(stream, places)
    found = _at(event.row_codes, parts.code_dimension, -1)
    fails = np.where(parts.code_dimension >= 0, found != parts.codes, ~np.isin(parts.codes, event.codes))
    failed = np.bincount(parts.code_row[fails], minlength=len(places))
    keys = _at(event.row_keys, parts.range_dimension, ABSENT)
    failed += np.bincount(parts.range_row[(keys < parts.lows) | (keys > parts.highs)], minlength=len(places))
    for test, row in enumerate(parts.set_row.tolist()):
        if not failed[row] and not _set_holds(stream, parts, test, event):
            failed[row] += 1
    holds: Array = failed == 0
    return holds


def _at(row: Array, dimensions: Array, absent: int) -> Array:
    """What a row has in these dimensions; nothing in those made since the row was."""
    return np.where(dimensions < len(row), row[np.minimum(dimensions, len(row) - 1)], absent)


def _set_holds(stream: Array, parts: Parts, test: int, event: _Event) -> bool:
    dimension, operation = int(parts.set_dimension[test]), int(parts.set_operation[test])
    at, size = int(parts.set_at[test]), int(parts.set_size[test])
    if dimension >= len(event.row_keys if operation == WITHIN_CUTS else event.row_codes):
        return False
    if operation == WITHIN_CUTS:
        key = int(event.row_keys[dimension])
        upper, lower = stream[at : at + 2 * size : 2].astype(np.int64), stream[at + 1 : at + 2 * size : 2]
        cuts = upper << 32 | lower.astype(np.uint32).astype(np.int64)
        return key != ABSENT and int(np.searchsorted(cuts, key, "right")) & 1 == 1
    code = int(event.row_codes[dimension])
    if code < 0:
        return False
    place = int(np.searchsorted(stream[at : at + size], code))
    return (place < size and int(stream[at + place]) == code) is (operation == IN)

"""Numba kernels for many events at once: row by row for small indexes, bucket by bucket for large ones.

*Bucket-major*: each bucket is visited once for all events that reach it, while it is in the processor's cache. If many
do, its conjunctions are swept over all those events (`sweeps`). Groups that are sorted by code are walked event by
event all the same: a binary search finds the few that can be true.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit, types

from tocsin.filters.index import kernels, sweeps
from tocsin.filters.index.header import NO_SECOND
from tocsin.filters.index.kernels import (
    BUCKET_COUNT,
    BUCKETS,
    CODED,
    CODES_IN,
    HEADS,
    MATCHED,
    ORDERS_IN,
    OUT_ENTRIES,
    OUT_RESIDUES,
    RESIDUE_COUNT,
    S_BUCKETS,
    S_GROUP_DIMENSION,
    S_GROUP_FIRST,
    S_GROUP_LAST,
    STAMP,
    WIDTH,
    match_event,
    observe,
    places,
    signature_of,
    stretch,
    walk_bucket,
    walk_chain,
    walk_entries,
)
from tocsin.filters.index.labels import ABSENT
from tocsin.filters.index.pointers import i32, source_of
from tocsin.filters.index.sweeps import sweep_entries

__all__ = ["match_buckets", "match_rows"]

SWEPT = 12
"""Events that must reach a bucket for a sweep to pay."""
SEARCHED = 24
"""Conjunctions from which a group that is sorted by code is searched, not swept."""

_BATCH = (
    "UniTuple(int64, 2)(int64[::1], int32[:, ::1], int64[:, ::1], int32[::1], int32[::1], "
    "int32[::1], int32[::1], int32[::1], int32[::1])"
)


@njit
def _list_row(h, row_codes, members, member_first, member_last, row_keys):
    """List the codes and ordered dimensions a dense row has in `codes_in`, `orders_in`; returns how many of each.

    Rows are longer than there were dimensions when they were made: a filter added meanwhile finds nothing behind.
    """
    codes, orders = i32(h[CODES_IN]), i32(h[ORDERS_IN])
    code_count = 0
    for d in range(h[CODED]):
        if row_codes[d] >= 0:
            codes[code_count] = row_codes[d]
            code_count += 1
    for m in range(member_first, member_last):
        codes[code_count] = members[m]
        code_count += 1
    order_count = 0
    for d in range(h[WIDTH]):
        if row_keys[d] != ABSENT:
            orders[order_count] = d
            order_count += 1
    return code_count, order_count


@njit
def _hand_over(h, event, count, written, out_events, out_entries, owed, residue_events, out_residues):
    """Copy what one event (or one bucket for it) gave to the batch's output, as far as it has room; count it anyway."""
    one, residues = i32(h[OUT_ENTRIES]), i32(h[OUT_RESIDUES])
    if written + count <= out_entries.shape[0]:
        for i in range(count):
            out_events[written + i] = event
            out_entries[written + i] = one[i]
    found = h[RESIDUE_COUNT]
    if owed + found <= out_residues.shape[0]:
        for i in range(found):
            residue_events[owed + i] = event
            out_residues[owed + i] = residues[i]
    h[RESIDUE_COUNT] = 0
    h[MATCHED] += count
    return written + count, owed + found


@njit
def _match_rows(h, row_codes, row_keys, member_starts, members, out_events, out_entries, residue_events, out_residues):
    codes, orders = i32(h[CODES_IN]), i32(h[ORDERS_IN])
    codes_at, keys_at, members_at = row_codes.ctypes.data, row_keys.ctypes.data, members.ctypes.data
    written = 0
    owed = 0
    h[RESIDUE_COUNT] = 0
    for e in range(row_codes.shape[0]):
        first, last = types.int64(member_starts[e]), types.int64(member_starts[e + 1])
        code_count, order_count = _list_row(h, row_codes[e], members, first, last, row_keys[e])
        h[STAMP] += 1
        count = match_event(
            h, code_count, order_count, codes_at + 4 * e * row_codes.shape[1], keys_at + 8 * e * row_keys.shape[1],
            members_at + 4 * first, last - first, h[STAMP],
        )  # fmt: skip
        written, owed = _hand_over(h, e, count, written, out_events, out_entries, owed, residue_events, out_residues)
        observe(h, codes, code_count, orders, order_count, row_keys[e])
    return written, owed


@njit
def _columns(rows, turned):
    """Turn rows into columns."""
    for e in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            turned[d, e] = rows[e, d]


@njit
def _sort_by_event(events, written, out_events, out_entries):
    """A counting sort: the pairs come bucket by bucket, the caller wants them event by event."""
    starts = np.zeros(events + 1, np.int64)
    for i in range(written):
        starts[out_events[i] + 1] += 1
    for e in range(events):
        starts[e + 1] += starts[e]
    sorted_entries = np.empty(written, np.int32)
    for i in range(written):
        e = out_events[i]
        sorted_entries[starts[e]] = out_entries[i]
        starts[e] += 1
    place = 0
    for e in range(events):
        while place < starts[e]:
            out_events[place] = e
            out_entries[place] = sorted_entries[place]
            place += 1


@njit
def _reach(
    h, row_codes, row_keys, member_starts, members, signatures, ends,
    out_events, out_entries, residue_events, out_residues,
):  # fmt: skip
    """Which events reach which bucket: list, then sort by bucket. The delta is walked on the way.

    Fills `signatures`, and `ends` with where the events of each bucket end in the array it returns.
    """
    codes, orders, buckets, heads = i32(h[CODES_IN]), i32(h[ORDERS_IN]), i32(h[BUCKETS]), i32(h[HEADS])
    codes_at, keys_at, members_at = row_codes.ctypes.data, row_keys.ctypes.data, members.ctypes.data
    code_step, key_step = 4 * row_codes.shape[1], 8 * row_keys.shape[1]
    events = row_codes.shape[0]
    written = 0
    owed = 0
    listed = np.empty(64 * events, np.int32)
    listed_ends = np.empty(events, np.int64)
    size = 0
    for e in range(events):
        first, last = types.int64(member_starts[e]), types.int64(member_starts[e + 1])
        code_count, order_count = _list_row(h, row_codes[e], members, first, last, row_keys[e])
        bucket_count, head_count = places(h, codes, code_count, orders, order_count, row_keys[e], buckets, heads)
        if size + bucket_count > listed.shape[0]:
            larger = np.empty(2 * (size + bucket_count), np.int32)
            larger[:size] = listed[:size]
            listed = larger
        for i in range(bucket_count):
            listed[size + i] = buckets[i]
            ends[buckets[i] + 1] += 1
        size += bucket_count
        listed_ends[e] = size
        signatures[e] = signature_of(codes, code_count, orders, order_count)
        observe(h, codes, code_count, orders, order_count, row_keys[e])
        count = 0
        h[STAMP] += 1
        for i in range(head_count):
            count = walk_chain(
                h, heads[i], codes_at + e * code_step, keys_at + e * key_step, members_at + 4 * first,
                last - first, count, -h[STAMP])  # fmt: skip
        if head_count:
            written, owed = _hand_over(
                h, e, count, written, out_events, out_entries, owed, residue_events, out_residues
            )
    for b in range(ends.shape[0] - 1):
        ends[b + 1] += ends[b]
    reached = np.empty(size, np.uint32)
    first = 0
    for e in range(events):
        for i in range(first, listed_ends[e]):
            reached[ends[listed[i]]] = e
            ends[listed[i]] += 1
        first = listed_ends[e]
    return reached, written, owed


@njit
def _match_buckets(
    h, row_codes, row_keys, member_starts, members, out_events, out_entries, residue_events, out_residues
):
    codes_at, keys_at, members_at = row_codes.ctypes.data, row_keys.ctypes.data, members.ctypes.data
    code_step, key_step = 4 * row_codes.shape[1], 8 * row_keys.shape[1]
    events, bucket_end = row_codes.shape[0], h[BUCKET_COUNT]
    signatures = np.zeros(events, np.uint64)
    ends = np.zeros(bucket_end + 1, np.int64)
    h[RESIDUE_COUNT] = 0
    reached, written, owed = _reach(
        h, row_codes, row_keys, member_starts, members, signatures, ends, out_events, out_entries, residue_events,
        out_residues,
    )  # fmt: skip
    code_columns = np.empty((row_codes.shape[1], events), np.int32)
    key_columns = np.empty((row_keys.shape[1], events), np.int64)
    _columns(row_codes, code_columns)
    _columns(row_keys, key_columns)
    left = np.empty(events, np.uint32)
    start = 0
    for b in range(bucket_end):
        count = ends[b] - start
        about = i32(h[S_BUCKETS] + 16 * types.int64(b))
        group = types.int64(about[2])
        end = group + about[3] if group >= 0 else 0
        if 0 < count < SWEPT:
            end = group
            for place in range(start, ends[b]):
                e = types.int64(reached[place])
                first, last = types.int64(member_starts[e]), types.int64(member_starts[e + 1])
                h[STAMP] += 1
                found = walk_bucket(
                    h, b, signatures[e], codes_at + e * code_step, keys_at + e * key_step, members_at + 4 * first,
                    last - first, 0, -h[STAMP])  # fmt: skip
                if found or h[RESIDUE_COUNT]:
                    written, owed = _hand_over(
                        h, e, found, written, out_events, out_entries, owed, residue_events, out_residues
                    )
        while group < end and count > 0:
            if group < 0:
                first, last, searched = types.int64(about[0]), types.int64(about[1]), False
            else:
                first, last = types.int64(i32(h[S_GROUP_FIRST])[group]), types.int64(i32(h[S_GROUP_LAST])[group])
                dimension = i32(h[S_GROUP_DIMENSION])[group]
                searched = dimension >= 0 and dimension != NO_SECOND and last - first >= SEARCHED
            if not searched:
                written, owed = sweep_entries(
                    h, first, last, reached.ctypes.data + 4 * start, count, left.ctypes.data,
                    code_columns.ctypes.data, key_columns.ctypes.data, events, members, member_starts,
                    written, owed, out_events, out_entries, residue_events, out_residues,
                )  # fmt: skip
                group += 1
                continue
            for place in range(start, ends[b]):
                e = types.int64(reached[place])
                row_codes_at, row_keys_at = codes_at + e * code_step, keys_at + e * key_step
                first, last, lowest_high = stretch(h, group, row_codes_at, row_keys_at)
                if first < last:
                    member_first, member_last = types.int64(member_starts[e]), types.int64(member_starts[e + 1])
                    h[STAMP] += 1
                    found = walk_entries(
                        h, first, last, lowest_high, signatures[e], row_codes_at, row_keys_at,
                        members_at + 4 * member_first, member_last - member_first, 0, -h[STAMP],
                    )  # fmt: skip
                    if found or h[RESIDUE_COUNT]:
                        written, owed = _hand_over(
                            h, e, found, written, out_events, out_entries, owed, residue_events, out_residues
                        )
            group += 1
        start = ends[b]
    if written <= out_entries.shape[0]:
        _sort_by_event(events, written, out_events, out_entries)
    return written, owed


def _compiled(made_of):
    """Compile the kernels, or find them in Numba's cache; there they are known by `made_of`, too. See `pointers`."""

    @njit([_BATCH], cache=True, nogil=True)
    def match_rows(
        h, row_codes, row_keys, member_starts, members, out_events, out_entries, residue_events, out_residues
    ):
        """Match dense rows one after the other.

        Returns how many pairs (event, entry) and residues there are; if that is more than there was room for, call
        again.
        """
        assert made_of >= 0
        return _match_rows(
            h, row_codes, row_keys, member_starts, members, out_events, out_entries, residue_events, out_residues
        )

    @njit([_BATCH], cache=True, nogil=True)
    def match_buckets(
        h, row_codes, row_keys, member_starts, members, out_events, out_entries, residue_events, out_residues
    ):
        """Match dense rows bucket by bucket.

        As `match_rows`, but entries of filters with several alternatives are marked -1 - entry and may be repeated.
        """
        assert made_of >= 0
        return _match_buckets(
            h, row_codes, row_keys, member_starts, members, out_events, out_entries, residue_events, out_residues
        )

    return match_rows, match_buckets


match_rows, match_buckets = _compiled(source_of(kernels, sweeps))

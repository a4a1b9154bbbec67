"""Numba kernels: match one event, match many. Importing this module compiles them, or loads them from Numba's cache.

A kernel gets one array, the header: addresses of flat arrays and counters, laid out by `header.SLOT`. The plain-NumPy
twin of this module is `vectors`; both are tested against each other and against linear evaluation.

For one event: scatter its codes and keys into dense rows; for each code, and for each grid cell a key lies in, walk the
bucket of conjunctions filed there, testing signature, second-level order, then the whole conjunction; clean the rows.
For a batch of a large index the loops are turned round (*bucket-major*): each bucket is walked once for all events that
reach it, while it is in the processor's cache. That doubles the speed at a million filters.

Functions here pass addresses, not arrays: an array is seven machine words, and handing fifteen of them down to the
innermost test cost more than the test. Out-of-range reads are not checked; `Header.pin` and `view.Scratch` guarantee
the sizes.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from tocsin.filters.index.header import GRID_CELLS, NO_SECOND, SAMPLES, SLOT, WATCH
from tocsin.filters.index.labels import ABSENT, NO_KEY
from tocsin.filters.index.layout import (
    CODE_BITS,
    CODE_WORDS,
    FLAG_SHIFT,
    HEAD_WORDS,
    MULTIPLE,
    ORDER_BITS,
    RANGE_WORDS,
    RESIDUE,
    SET_HEAD_WORDS,
    SHARED,
)
from tocsin.filters.index.space import IN, WITHIN_CUTS

__all__ = ["match_buckets", "match_one", "match_rows"]

_ENDLESS = 1 << 40  # the kernels know their bounds; arrays made of addresses do not


def _pointer_to(item):
    @intrinsic
    def convert(typing_context, address):
        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(item)(types.int64), generate

    return convert


_p32, _p64, _pu64, _pu8, _pf64 = map(_pointer_to, (types.int32, types.int64, types.uint64, types.uint8, types.float64))


@njit(inline="always")
def _i32(address):
    return carray(_p32(address), _ENDLESS)


@njit(inline="always")
def _i64(address):
    return carray(_p64(address), _ENDLESS)


@njit(inline="always")
def _u64(address):
    return carray(_pu64(address), _ENDLESS)


@njit(inline="always")
def _u8(address):
    return carray(_pu8(address), _ENDLESS)


_S_STREAM, _D_STREAM = SLOT["segment_stream"], SLOT["delta_stream"]
_S_CODE_BUCKET, _S_GRID, _S_GRID_BOUNDS = SLOT["segment_code_bucket"], SLOT["segment_grid"], SLOT["segment_grid_bounds"]
_S_GRID_BUCKET, _S_ORDER_BUCKET = SLOT["segment_grid_bucket"], SLOT["segment_order_bucket"]
_S_BUCKETS, _S_ENTRIES, _S_LOW = SLOT["segment_buckets"], SLOT["segment_entries"], SLOT["segment_entry_low"]
_S_GROUP_DIMENSION, _S_GROUP_FIRST, _S_GROUP_LAST = (
    SLOT["segment_group_dimension"], SLOT["segment_group_first"], SLOT["segment_group_last"],
)  # fmt: skip
_D_CODE_HEAD, _D_ORDER_HEAD, _D_GRID_HEAD = SLOT["delta_code_head"], SLOT["delta_order_head"], SLOT["delta_grid_head"]
_D_NEXT, _D_RECORD, _D_LINKS = SLOT["delta_link_next"], SLOT["delta_link_record"], SLOT["delta_links"]
_CODES_IN, _ORDERS_IN, _KEYS_IN, _IS_DOUBLE = SLOT["codes_in"], SLOT["orders_in"], SLOT["keys_in"], SLOT["is_double"]
_CODE_DIMENSION, _ROW_CODES, _ROW_KEYS = SLOT["code_dimension"], SLOT["row_codes"], SLOT["row_keys"]
_OUT_ENTRIES, _OUT_RESIDUES, _ENTRY_SEEN = SLOT["out_entries"], SLOT["out_residues"], SLOT["entry_seen"]
_CODE_COUNTS, _KEY_SAMPLES, _KEY_COUNTS = SLOT["code_counts"], SLOT["key_samples"], SLOT["key_counts"]
_CODED, _WIDTH, _SHARED_SEEN = SLOT["coded"], SLOT["width"], SLOT["shared_seen"]
_SAMPLED, _BUCKETS, _HEADS, _BUCKET_COUNT = SLOT["sampled"], SLOT["buckets"], SLOT["heads"], SLOT["bucket_count"]
_CODES_KNOWN, _ORDERS_KNOWN = SLOT["codes_known"], SLOT["orders_known"]
_ALWAYS_BUCKET, _D_ALWAYS_HEAD = SLOT["always_bucket"], SLOT["delta_always_head"]
_STAMP, _RESIDUE_COUNT, _EVENTS = SLOT["stamp"], SLOT["residue_count"], SLOT["events"]
_SCANNED, _TESTED, _MATCHED = SLOT["scanned"], SLOT["tested"], SLOT["matched"]
_whole = types.ExternalFunction("PyLong_AsLongLong", types.int64(types.intp))
_from_whole = types.ExternalFunction("PyLong_FromLongLong", types.intp(types.int64))
_INFINITY_KEY, _SIGN, _LOWER = 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF


@njit(inline="always")
def _code_bit(code):
    return types.uint64(1) << (
        (types.uint64(code) * types.uint64(2654435761) >> types.uint64(8)) % types.uint64(CODE_BITS)
    )


@njit(inline="always")
def _order_bit(dimension):
    return types.uint64(1) << (types.uint64(CODE_BITS) + types.uint64(dimension) % types.uint64(ORDER_BITS))


@njit(inline="always")
def _double_key(bits):
    """Turn the bits of a double into its ordered key: `intervals.number_key` for a whole machine word."""
    magnitude = bits & _SIGN
    if magnitude > _INFINITY_KEY:
        return _INFINITY_KEY + 1
    return magnitude if bits >= 0 else -magnitude


@njit
def _holds(record, row_codes_at, row_keys_at, members_at, member_count):
    """Is every test of the record at this address true for the event in the rows? See `layout` for the words."""
    words, row_codes, row_keys = _i32(record), _i32(row_codes_at), _i64(row_keys_at)
    counts = words[1]
    at = HEAD_WORDS
    for _ in range(counts & 0xFFFF):
        if words[at] >= 0:
            if row_codes[words[at]] != words[at + 1]:
                return False
        elif not _is_member(words[at + 1], members_at, member_count):
            return False
        at += CODE_WORDS
    for _ in range(counts >> 16):
        key = row_keys[words[at]]
        half = key >> 32
        if half < words[at + 1] or half > words[at + 2]:
            return False
        if half == words[at + 1] and key & _LOWER < types.int64(words[at + 3]) & _LOWER:
            return False
        if half == words[at + 2] and key & _LOWER > types.int64(words[at + 4]) & _LOWER:
            return False
        at += RANGE_WORDS
    for _ in range(words[2] & 0xFF_FFFF):
        size = words[at + 2]
        if words[at + 1] == WITHIN_CUTS:
            if not _within_cuts(words, at + SET_HEAD_WORDS, size, row_keys[words[at]]):
                return False
            at += SET_HEAD_WORDS + 2 * size
        else:
            code = row_codes[words[at]]
            first = at + SET_HEAD_WORDS
            place = _first_not_below(words, first, first + size, code)
            listed = place < first + size and words[place] == code
            if code < 0 or listed != (words[at + 1] == IN):
                return False
            at += SET_HEAD_WORDS + size
    return True


@njit
def _is_member(code, members_at, member_count):
    members = _i32(members_at)
    for m in range(member_count):  # noqa: SIM110
        if members[m] == code:
            return True
    return False


@njit
def _within_cuts(words, first, size, key):
    """Does an odd number of cuts lie at or below the key?"""
    if key == ABSENT:
        return False
    low, high = types.int64(0), types.int64(size)
    while low < high:
        middle = (low + high) >> 1
        at = first + 2 * middle
        if types.int64(words[at]) << 32 | types.int64(words[at + 1]) & _LOWER <= key:
            low = middle + 1
        else:
            high = middle
    return low & 1 == 1


@njit(inline="always")
def _first_not_below(sorted_items, low, high, item):
    while low < high:
        middle = (low + high) >> 1
        if sorted_items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def _emit(h, record, number, count, stamp):
    """Report a true conjunction: its entry, or its place where Python must look further.

    A filter with several alternatives is reported once per `stamp`. A negative stamp counts as its opposite, and such
    entries are then marked as -1 - entry: the caller must drop repetitions between stamps.
    """
    entry, flags = _i32(record)[0], _i32(record)[2] >> FLAG_SHIFT
    if flags & RESIDUE:
        _i32(h[_OUT_RESIDUES])[h[_RESIDUE_COUNT]] = number
        h[_RESIDUE_COUNT] += 1
        return count
    if flags & SHARED:
        h[_SHARED_SEEN] = 1
    if flags & MULTIPLE:
        seen = _i64(h[_ENTRY_SEEN])
        if seen[entry] == abs(stamp):
            return count
        seen[entry] = abs(stamp)
        if stamp < 0:
            entry = -1 - entry
    _i32(h[_OUT_ENTRIES])[count] = entry
    return count + 1


@njit
def _walk_entries(
    h, first, last, lowest_high, signature, row_codes_at, row_keys_at, members_at, member_count, count, stamp
):
    """Test the entries of a stretch: signature, upper end of the second test, then the whole record."""
    entry, stream = h[_S_ENTRIES] + 16 * first, h[_S_STREAM]
    lacking = ~signature
    tested = 0
    for _ in range(first, last):
        words = _i32(entry)
        if _u64(entry)[0] & lacking == 0 and words[3] >= lowest_high:
            record = stream + 4 * types.int64(words[2])
            if _i32(record)[2] >> FLAG_SHIFT != 0:
                tested += 1
                if _holds(record, row_codes_at, row_keys_at, members_at, member_count):
                    count = _emit(h, record, words[2], count, stamp)
        entry += 16
    h[_SCANNED] += last - first
    h[_TESTED] += tested
    return count


@njit
def _walk_bucket(h, bucket, signature, row_codes_at, row_keys_at, members_at, member_count, count, stamp):
    """Test a bucket; where it has groups, only the stretch of each whose second test can be true."""
    lows, about = _i32(h[_S_LOW]), _i32(h[_S_BUCKETS] + 16 * types.int64(bucket))
    group = types.int64(about[2])
    end = group + about[3] if group >= 0 else 0
    while group < end:
        lowest_high = types.int64(-(2**31))
        if group < 0:  # a small bucket: all of it
            first, last = types.int64(about[0]), types.int64(about[1])
        else:
            first = types.int64(_i32(h[_S_GROUP_FIRST])[group])
            last = types.int64(_i32(h[_S_GROUP_LAST])[group])
            dimension = _i32(h[_S_GROUP_DIMENSION])[group]
            if dimension < 0:  # sorted by low end: those that begin at or below the key
                key = _i64(row_keys_at)[-1 - dimension]
                lowest_high = key >> 32
                last = _first_not_below(lows, first, last, lowest_high + 1) if key != ABSENT else first
            elif dimension != NO_SECOND:  # sorted by code: the equal ones
                code = _i32(row_codes_at)[dimension]
                first = _first_not_below(lows, first, last, code)
                last = _first_not_below(lows, first, last, code + 1) if code >= 0 else first
        if first < last:
            count = _walk_entries(
                h, first, last, lowest_high, signature, row_codes_at, row_keys_at, members_at, member_count, count,
                stamp,
            )  # fmt: skip
        group += 1
    return count


@njit(inline="always")
def _cell(bounds, base, key):
    """The grid cell a key lies in: how many of the grid's bounds are at or below it."""
    low, high = 0, GRID_CELLS - 1
    while low < high:
        middle = (low + high) >> 1
        if bounds[base + middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def _walk_chain(h, head, row_codes_at, row_keys_at, members_at, member_count, count, stamp):
    """Test the recently added conjunctions filed under one head."""
    following, records, stream = _i32(h[_D_NEXT]), _i32(h[_D_RECORD]), h[_D_STREAM]
    while head >= 0:
        record = stream + 4 * types.int64(records[head])
        h[_SCANNED] += 1
        if _i32(record)[2] >> FLAG_SHIFT != 0:
            h[_TESTED] += 1
            if _holds(record, row_codes_at, row_keys_at, members_at, member_count):
                count = _emit(h, record, -1 - records[head], count, stamp)
        head = following[head]
    return count


@njit
def _places(h, codes, code_count, orders, order_count, row_keys, buckets, heads):
    """List where to look for an event: buckets of the segment and heads of the delta; returns how many of each.

    The codes first, then for each key its grid cells from fine to coarse, then what every event must look at.
    """
    code_bucket, order_bucket, grid_bucket = _i32(h[_S_CODE_BUCKET]), _i32(h[_S_ORDER_BUCKET]), _i32(h[_S_GRID_BUCKET])
    code_head, order_head, grid_head = _i32(h[_D_CODE_HEAD]), _i32(h[_D_ORDER_HEAD]), _i32(h[_D_GRID_HEAD])
    grids, bounds = _i32(h[_S_GRID]), _i64(h[_S_GRID_BOUNDS])
    codes_known, orders_known = h[_CODES_KNOWN], h[_ORDERS_KNOWN]
    with_delta = _i32(h[_D_LINKS])[0] > 0
    bucket_count = 0
    head_count = 0
    for i in range(code_count):
        code = codes[i]
        if code < codes_known and code_bucket[code] >= 0:
            buckets[bucket_count] = code_bucket[code]
            bucket_count += 1
        if with_delta and code_head[code] >= 0:
            heads[head_count] = code_head[code]
            head_count += 1
    for i in range(order_count):
        order = orders[i]
        if order < orders_known and grids[order] >= 0:
            base = grids[order] * 2 * GRID_CELLS
            node = GRID_CELLS + _cell(bounds, grids[order] * (GRID_CELLS - 1), row_keys[order])
            while node > 0:
                if grid_bucket[base + node] >= 0:
                    buckets[bucket_count] = grid_bucket[base + node]
                    bucket_count += 1
                if with_delta and grid_head[base + node] >= 0:
                    heads[head_count] = grid_head[base + node]
                    head_count += 1
                node >>= 1
            continue
        if order < orders_known and order_bucket[order] >= 0:
            buckets[bucket_count] = order_bucket[order]
            bucket_count += 1
        if with_delta and order_head[order] >= 0:
            heads[head_count] = order_head[order]
            head_count += 1
    if h[_ALWAYS_BUCKET] >= 0:
        buckets[bucket_count] = h[_ALWAYS_BUCKET]
        bucket_count += 1
    if with_delta and _i32(h[_D_ALWAYS_HEAD])[0] >= 0:
        heads[head_count] = _i32(h[_D_ALWAYS_HEAD])[0]
        head_count += 1
    return bucket_count, head_count


@njit
def _signature(codes, code_count, orders, order_count):
    signature = types.uint64(0)
    for i in range(code_count):
        signature |= _code_bit(codes[i])
    for i in range(order_count):
        signature |= _order_bit(orders[i])
    return signature


@njit
def _match_event(h, code_count, order_count, row_codes_at, row_keys_at, members_at, member_count, stamp):
    """Match the event that is in the rows and listed in `codes_in`, `orders_in`; returns how many entries it gave."""
    codes, orders, buckets, heads = _i32(h[_CODES_IN]), _i32(h[_ORDERS_IN]), _i32(h[_BUCKETS]), _i32(h[_HEADS])
    bucket_count, head_count = _places(h, codes, code_count, orders, order_count, _i64(row_keys_at), buckets, heads)
    count = 0
    if bucket_count:
        signature = _signature(codes, code_count, orders, order_count)
        for i in range(bucket_count):
            count = _walk_bucket(
                h, buckets[i], signature, row_codes_at, row_keys_at, members_at, member_count, count, stamp
            )
    for i in range(head_count):
        count = _walk_chain(h, heads[i], row_codes_at, row_keys_at, members_at, member_count, count, stamp)
    return count


@njit
def _observe(h, codes, code_count, orders, order_count, row_keys):
    """Remember what one event in sixteen looks like: the next build files filters by what is rare."""
    h[_EVENTS] += 1
    # Hashed, not counted: a stream in which sixteen machines take turns must not show one of them only.
    if (types.uint64(h[_EVENTS]) * types.uint64(0x9E3779B97F4A7C15) >> types.uint64(60)) == 0:
        _i64(h[_SAMPLED])[0] += 1
        code_counts, samples, counts = _i32(h[_CODE_COUNTS]), _i64(h[_KEY_SAMPLES]), _i32(h[_KEY_COUNTS])
        for i in range(code_count):
            code_counts[codes[i]] += 1
        for i in range(order_count):
            dimension = orders[i]
            samples[dimension * SAMPLES + counts[dimension] % SAMPLES] = row_keys[dimension]
            counts[dimension] += 1


@njit
def _match_one(h, code_count):
    codes, orders, keys = _i32(h[_CODES_IN]), _i32(h[_ORDERS_IN]), _i64(h[_KEYS_IN])
    row_codes, row_keys = _i32(h[_ROW_CODES]), _i64(h[_ROW_KEYS])
    code_dimension, is_double = _i32(h[_CODE_DIMENSION]), _u8(h[_IS_DOUBLE])
    for i in range(code_count):
        dimension = code_dimension[codes[i]]
        if dimension >= 0:
            row_codes[dimension] = codes[i]
    order_count = 0
    for dimension in range(h[_WIDTH]):
        if keys[dimension] != NO_KEY:
            row_keys[dimension] = _double_key(keys[dimension]) if is_double[dimension] else keys[dimension]
            keys[dimension] = NO_KEY
            orders[order_count] = dimension
            order_count += 1
    h[_RESIDUE_COUNT] = 0
    h[_STAMP] += 1
    count = _match_event(h, code_count, order_count, h[_ROW_CODES], h[_ROW_KEYS], h[_CODES_IN], code_count, h[_STAMP])
    _observe(h, codes, code_count, orders, order_count, row_keys)
    for i in range(code_count):
        dimension = code_dimension[codes[i]]
        if dimension >= 0:
            row_codes[dimension] = -1
    for i in range(order_count):
        row_keys[orders[i]] = ABSENT
    h[_MATCHED] += count
    if h[_RESIDUE_COUNT] == 0 and h[_SHARED_SEEN] == 0 and h[_EVENTS] & (WATCH - 1) != 0:
        return count
    h[_SHARED_SEEN] = 0
    return -1 - count


@cfunc(types.intp(types.intp, types.intp, types.intp), cache=True)
def match_one(header, arguments, count):
    """Match the event in `codes_in` and `keys_in` of the header; clears the latter. Argument: the number of codes.

    Returns how many entries are in `out_entries`; or -1 minus that, where there are residues, an entry has several
    keys, or it is time to look at the index. To be called as a `builtin`.
    """
    return _from_whole(_match_one(_i64(_whole(header)), _whole(_i64(arguments)[0])))


@njit
def _list_row(h, row_codes, members, member_first, member_last, row_keys):
    """List the codes and ordered dimensions a dense row has in `codes_in`, `orders_in`; returns how many of each.

    Rows are longer than there were dimensions when they were made: a filter added meanwhile finds nothing behind.
    """
    codes, orders = _i32(h[_CODES_IN]), _i32(h[_ORDERS_IN])
    code_count = 0
    for d in range(h[_CODED]):
        if row_codes[d] >= 0:
            codes[code_count] = row_codes[d]
            code_count += 1
    for m in range(member_first, member_last):
        codes[code_count] = members[m]
        code_count += 1
    order_count = 0
    for d in range(h[_WIDTH]):
        if row_keys[d] != ABSENT:
            orders[order_count] = d
            order_count += 1
    return code_count, order_count


_BATCH = (
    "UniTuple(int64, 2)(int64[::1], int32[:, ::1], int64[:, ::1], int32[::1], int32[::1], "
    "int32[::1], int32[::1], int32[::1], int32[::1])"
)


@njit
def _hand_over(h, event, count, written, out_events, out_entries, owed, residue_events, out_residues):
    """Copy what one event (or one bucket for it) gave to the batch's output, as far as it has room; count it anyway."""
    one, residues = _i32(h[_OUT_ENTRIES]), _i32(h[_OUT_RESIDUES])
    if written + count <= out_entries.shape[0]:
        for i in range(count):
            out_events[written + i] = event
            out_entries[written + i] = one[i]
    found = h[_RESIDUE_COUNT]
    if owed + found <= out_residues.shape[0]:
        for i in range(found):
            residue_events[owed + i] = event
            out_residues[owed + i] = residues[i]
    h[_RESIDUE_COUNT] = 0
    h[_MATCHED] += count
    return written + count, owed + found


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


@njit([_BATCH], cache=True, nogil=True)
def match_rows(h, row_codes, row_keys, member_starts, members, out_events, out_entries, residue_events, out_residues):
    """Match dense rows one after the other.

    Returns how many pairs (event, entry) and residues there are; if that is more than there was room for, call again.
    """
    codes, orders = _i32(h[_CODES_IN]), _i32(h[_ORDERS_IN])
    codes_at, keys_at, members_at = row_codes.ctypes.data, row_keys.ctypes.data, members.ctypes.data
    written = 0
    owed = 0
    h[_RESIDUE_COUNT] = 0
    for e in range(row_codes.shape[0]):
        first, last = types.int64(member_starts[e]), types.int64(member_starts[e + 1])
        code_count, order_count = _list_row(h, row_codes[e], members, first, last, row_keys[e])
        h[_STAMP] += 1
        count = _match_event(
            h, code_count, order_count, codes_at + 4 * e * row_codes.shape[1], keys_at + 8 * e * row_keys.shape[1],
            members_at + 4 * first, last - first, h[_STAMP],
        )  # fmt: skip
        written, owed = _hand_over(h, e, count, written, out_events, out_entries, owed, residue_events, out_residues)
        _observe(h, codes, code_count, orders, order_count, row_keys[e])
    return written, owed


@njit([_BATCH], cache=True, nogil=True)
def match_buckets(
    h, row_codes, row_keys, member_starts, members, out_events, out_entries, residue_events, out_residues
):
    """Match dense rows bucket by bucket.

    As `match_rows`, but entries of filters with several alternatives are marked -1 - entry and may be repeated.
    """
    codes, orders, buckets, heads = _i32(h[_CODES_IN]), _i32(h[_ORDERS_IN]), _i32(h[_BUCKETS]), _i32(h[_HEADS])
    codes_at, keys_at, members_at = row_codes.ctypes.data, row_keys.ctypes.data, members.ctypes.data
    code_step, key_step = 4 * row_codes.shape[1], 8 * row_keys.shape[1]
    events, bucket_end = row_codes.shape[0], h[_BUCKET_COUNT]
    written = 0
    owed = 0
    h[_RESIDUE_COUNT] = 0
    # Which events reach which bucket: count, then place. The delta is walked on the way.
    signatures = np.zeros(events, np.uint64)
    ends = np.zeros(bucket_end + 1, np.int64)
    reached = np.zeros(1, np.int32)
    for counting in (True, False):
        if not counting:
            for b in range(bucket_end):
                ends[b + 1] += ends[b]
            reached = np.zeros(ends[bucket_end], np.int32)
        for e in range(events):
            first, last = types.int64(member_starts[e]), types.int64(member_starts[e + 1])
            code_count, order_count = _list_row(h, row_codes[e], members, first, last, row_keys[e])
            bucket_count, head_count = _places(h, codes, code_count, orders, order_count, row_keys[e], buckets, heads)
            if counting:
                for i in range(bucket_count):
                    ends[buckets[i] + 1] += 1
                continue
            for i in range(bucket_count):
                reached[ends[buckets[i]]] = e
                ends[buckets[i]] += 1
            signatures[e] = _signature(codes, code_count, orders, order_count)
            _observe(h, codes, code_count, orders, order_count, row_keys[e])
            count = 0
            h[_STAMP] += 1
            for i in range(head_count):
                count = _walk_chain(
                    h, heads[i], codes_at + e * code_step, keys_at + e * key_step, members_at + 4 * first,
                    last - first, count, -h[_STAMP])  # fmt: skip
            if head_count:
                written, owed = _hand_over(
                    h, e, count, written, out_events, out_entries, owed, residue_events, out_residues
                )
    start = 0
    for b in range(bucket_end):
        for place in range(start, ends[b]):
            e = reached[place]
            first, last = types.int64(member_starts[e]), types.int64(member_starts[e + 1])
            h[_STAMP] += 1
            count = _walk_bucket(
                h, b, signatures[e], codes_at + e * code_step, keys_at + e * key_step, members_at + 4 * first,
                last - first, 0, -h[_STAMP])  # fmt: skip
            if count or h[_RESIDUE_COUNT]:
                written, owed = _hand_over(
                    h, e, count, written, out_events, out_entries, owed, residue_events, out_residues
                )
        start = ends[b]
    if written <= out_entries.shape[0]:
        _sort_by_event(events, written, out_events, out_entries)
    return written, owed

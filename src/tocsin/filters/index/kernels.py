"""Numba kernels: match one event. Importing this module compiles them, or loads them from Numba's cache.

A kernel gets one array, the header: addresses of flat arrays and counters, laid out by `header.SLOT`. The plain-NumPy
twin of this module is `vectors`; both are tested against each other and against linear evaluation.

For one event: scatter its codes and keys into dense rows; for each code, and for each grid cell a key lies in, walk the
bucket of conjunctions filed there, testing signature, second-level order, then the whole conjunction; clean the rows.
Batches are `batch_kernels`'.

Functions here pass addresses, not arrays: an array is seven machine words, and handing fifteen of them down to the
innermost test cost more than the test. Out-of-range reads are not checked; `Header.pin` and `view.Scratch` guarantee
the sizes.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from numba import cfunc, njit, types

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
from tocsin.filters.index.pointers import i32, i64, u8, u64
from tocsin.filters.index.space import IN, WITHIN_CUTS

__all__ = ["match_one"]

S_STREAM, _D_STREAM = SLOT["segment_stream"], SLOT["delta_stream"]
_S_CODE_BUCKET, _S_GRID, _S_GRID_BOUNDS = SLOT["segment_code_bucket"], SLOT["segment_grid"], SLOT["segment_grid_bounds"]
_S_GRID_BUCKET, _S_ORDER_BUCKET = SLOT["segment_grid_bucket"], SLOT["segment_order_bucket"]
S_BUCKETS, S_ENTRIES, S_LOW = SLOT["segment_buckets"], SLOT["segment_entries"], SLOT["segment_entry_low"]
S_GROUP_DIMENSION, S_GROUP_FIRST, S_GROUP_LAST = (
    SLOT["segment_group_dimension"], SLOT["segment_group_first"], SLOT["segment_group_last"],
)  # fmt: skip
_D_CODE_HEAD, _D_ORDER_HEAD, _D_GRID_HEAD = SLOT["delta_code_head"], SLOT["delta_order_head"], SLOT["delta_grid_head"]
_D_NEXT, _D_RECORD, _D_LINKS = SLOT["delta_link_next"], SLOT["delta_link_record"], SLOT["delta_links"]
CODES_IN, ORDERS_IN, _KEYS_IN, _IS_DOUBLE = SLOT["codes_in"], SLOT["orders_in"], SLOT["keys_in"], SLOT["is_double"]
_CODE_DIMENSION, _ROW_CODES, _ROW_KEYS = SLOT["code_dimension"], SLOT["row_codes"], SLOT["row_keys"]
OUT_ENTRIES, OUT_RESIDUES, _ENTRY_SEEN = SLOT["out_entries"], SLOT["out_residues"], SLOT["entry_seen"]
_CODE_COUNTS, _KEY_SAMPLES, _KEY_COUNTS = SLOT["code_counts"], SLOT["key_samples"], SLOT["key_counts"]
CODED, WIDTH, _SHARED_SEEN = SLOT["coded"], SLOT["width"], SLOT["shared_seen"]
_SAMPLED, BUCKETS, HEADS, BUCKET_COUNT = SLOT["sampled"], SLOT["buckets"], SLOT["heads"], SLOT["bucket_count"]
_CODES_KNOWN, _ORDERS_KNOWN = SLOT["codes_known"], SLOT["orders_known"]
_ALWAYS_BUCKET, _D_ALWAYS_HEAD = SLOT["always_bucket"], SLOT["delta_always_head"]
STAMP, RESIDUE_COUNT, _EVENTS = SLOT["stamp"], SLOT["residue_count"], SLOT["events"]
SCANNED, TESTED, MATCHED = SLOT["scanned"], SLOT["tested"], SLOT["matched"]
_whole = types.ExternalFunction("PyLong_AsLongLong", types.int64(types.intp))
_from_whole = types.ExternalFunction("PyLong_FromLongLong", types.intp(types.int64))
_INFINITY_KEY, _SIGN, LOWER = 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF
ANY_HIGH = -(2**31)


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
    words, row_codes, row_keys = i32(record), i32(row_codes_at), i64(row_keys_at)
    counts = words[1]
    at = HEAD_WORDS
    for _ in range(counts & 0xFFFF):
        if words[at] >= 0:
            if row_codes[words[at]] != words[at + 1]:
                return False
        elif not is_member(words[at + 1], members_at, member_count):
            return False
        at += CODE_WORDS
    for _ in range(counts >> 16):
        key = row_keys[words[at]]
        half = key >> 32
        if half < words[at + 1] or half > words[at + 2]:
            return False
        if half == words[at + 1] and key & LOWER < types.int64(words[at + 3]) & LOWER:
            return False
        if half == words[at + 2] and key & LOWER > types.int64(words[at + 4]) & LOWER:
            return False
        at += RANGE_WORDS
    for _ in range(words[2] & 0xFF_FFFF):
        code = row_codes[words[at]] if words[at + 1] != WITHIN_CUTS else types.int32(0)
        key = row_keys[words[at]] if words[at + 1] == WITHIN_CUTS else types.int64(0)
        if not set_holds(words, at, code, key):
            return False
        at += set_words(words, at)
    return True


@njit(inline="always")
def set_words(words, at):
    """How long the set test at this place is."""
    return SET_HEAD_WORDS + (2 if words[at + 1] == WITHIN_CUTS else 1) * words[at + 2]


@njit
def set_holds(words, at, code, key):
    """Is a set test true for what an event has in its dimension: a code if it is coded, a key if it is ordered?"""
    first, size = at + SET_HEAD_WORDS, words[at + 2]
    if words[at + 1] == WITHIN_CUTS:
        return _within_cuts(words, first, size, key)
    place = first_not_below(words, first, first + size, code)
    listed = place < first + size and words[place] == code
    return code >= 0 and listed == (words[at + 1] == IN)


@njit
def is_member(code, members_at, member_count):
    members = i32(members_at)
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
        if types.int64(words[at]) << 32 | types.int64(words[at + 1]) & LOWER <= key:
            low = middle + 1
        else:
            high = middle
    return low & 1 == 1


@njit(inline="always")
def first_not_below(sorted_items, low, high, item):
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
    entry, flags = i32(record)[0], i32(record)[2] >> FLAG_SHIFT
    if flags & RESIDUE:
        i32(h[OUT_RESIDUES])[h[RESIDUE_COUNT]] = number
        h[RESIDUE_COUNT] += 1
        return count
    if flags & SHARED:
        h[_SHARED_SEEN] = 1
    if flags & MULTIPLE:
        seen = i64(h[_ENTRY_SEEN])
        if seen[entry] == abs(stamp):
            return count
        seen[entry] = abs(stamp)
        if stamp < 0:
            entry = -1 - entry
    i32(h[OUT_ENTRIES])[count] = entry
    return count + 1


@njit
def walk_entries(
    h, first, last, lowest_high, signature, row_codes_at, row_keys_at, members_at, member_count, count, stamp
):
    """Test the entries of a stretch: signature, upper end of the second test, then the whole record."""
    entry, stream = h[S_ENTRIES] + 16 * first, h[S_STREAM]
    lacking = ~signature
    tested = 0
    for _ in range(first, last):
        words = i32(entry)
        if u64(entry)[0] & lacking == 0 and words[3] >= lowest_high:
            record = stream + 4 * types.int64(words[2])
            if i32(record)[2] >> FLAG_SHIFT != 0:
                tested += 1
                if _holds(record, row_codes_at, row_keys_at, members_at, member_count):
                    count = _emit(h, record, words[2], count, stamp)
        entry += 16
    h[SCANNED] += last - first
    h[TESTED] += tested
    return count


@njit(inline="always")
def stretch(h, group, row_codes_at, row_keys_at):
    """The part of a group whose second test can be true: first, last, and what its upper end must reach."""
    lows = i32(h[S_LOW])
    first, last = types.int64(i32(h[S_GROUP_FIRST])[group]), types.int64(i32(h[S_GROUP_LAST])[group])
    lowest_high = types.int64(ANY_HIGH)
    dimension = i32(h[S_GROUP_DIMENSION])[group]
    if dimension < 0:  # sorted by low end: those that begin at or below the key
        key = i64(row_keys_at)[-1 - dimension]
        lowest_high = key >> 32
        last = first_not_below(lows, first, last, lowest_high + 1) if key != ABSENT else first
    elif dimension != NO_SECOND:  # sorted by code: the equal ones
        code = i32(row_codes_at)[dimension]
        first = first_not_below(lows, first, last, code)
        last = first_not_below(lows, first, last, code + 1) if code >= 0 else first
    return first, last, lowest_high


@njit
def walk_bucket(h, bucket, signature, row_codes_at, row_keys_at, members_at, member_count, count, stamp):
    """Test a bucket; where it has groups, only the stretch of each whose second test can be true."""
    about = i32(h[S_BUCKETS] + 16 * types.int64(bucket))
    group = types.int64(about[2])
    end = group + about[3] if group >= 0 else 0
    while group < end:
        if group < 0:  # a small bucket: all of it
            first, last, lowest_high = types.int64(about[0]), types.int64(about[1]), types.int64(ANY_HIGH)
        else:
            first, last, lowest_high = stretch(h, group, row_codes_at, row_keys_at)
        if first < last:
            count = walk_entries(
                h, first, last, lowest_high, signature, row_codes_at, row_keys_at, members_at, member_count, count,
                stamp,
            )  # fmt: skip
        group += 1
    return count


@njit(inline="always")
def _cell(bounds, base, key):
    """The grid cell a key lies in: how many of the grid's bounds are at or below it. A search without branches."""
    low, step = types.int64(base), types.int64(GRID_CELLS >> 1)
    while step > 0:
        low += step * types.int64(bounds[low + step - 1] <= key)
        step >>= 1
    return low - base


@njit
def walk_chain(h, head, row_codes_at, row_keys_at, members_at, member_count, count, stamp):
    """Test the recently added conjunctions filed under one head."""
    following, records, stream = i32(h[_D_NEXT]), i32(h[_D_RECORD]), h[_D_STREAM]
    while head >= 0:
        record = stream + 4 * types.int64(records[head])
        h[SCANNED] += 1
        if i32(record)[2] >> FLAG_SHIFT != 0:
            h[TESTED] += 1
            if _holds(record, row_codes_at, row_keys_at, members_at, member_count):
                count = _emit(h, record, -1 - records[head], count, stamp)
        head = following[head]
    return count


@njit
def places(h, codes, code_count, orders, order_count, row_keys, buckets, heads):
    """List where to look for an event: buckets of the segment and heads of the delta; returns how many of each.

    The codes first, then for each key its grid cells from fine to coarse, then what every event must look at.
    """
    code_bucket, order_bucket, grid_bucket = i32(h[_S_CODE_BUCKET]), i32(h[_S_ORDER_BUCKET]), i32(h[_S_GRID_BUCKET])
    code_head, order_head, grid_head = i32(h[_D_CODE_HEAD]), i32(h[_D_ORDER_HEAD]), i32(h[_D_GRID_HEAD])
    grids, bounds = i32(h[_S_GRID]), i64(h[_S_GRID_BOUNDS])
    codes_known, orders_known = h[_CODES_KNOWN], h[_ORDERS_KNOWN]
    with_delta = i32(h[_D_LINKS])[0] > 0
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
    if with_delta and i32(h[_D_ALWAYS_HEAD])[0] >= 0:
        heads[head_count] = i32(h[_D_ALWAYS_HEAD])[0]
        head_count += 1
    return bucket_count, head_count


@njit
def signature_of(codes, code_count, orders, order_count):
    signature = types.uint64(0)
    for i in range(code_count):
        signature |= _code_bit(codes[i])
    for i in range(order_count):
        signature |= _order_bit(orders[i])
    return signature


@njit
def match_event(h, code_count, order_count, row_codes_at, row_keys_at, members_at, member_count, stamp):
    """Match the event that is in the rows and listed in `codes_in`, `orders_in`; returns how many entries it gave."""
    codes, orders, buckets, heads = i32(h[CODES_IN]), i32(h[ORDERS_IN]), i32(h[BUCKETS]), i32(h[HEADS])
    bucket_count, head_count = places(h, codes, code_count, orders, order_count, i64(row_keys_at), buckets, heads)
    count = 0
    if bucket_count:
        signature = signature_of(codes, code_count, orders, order_count)
        for i in range(bucket_count):
            count = walk_bucket(
                h, buckets[i], signature, row_codes_at, row_keys_at, members_at, member_count, count, stamp
            )
    for i in range(head_count):
        count = walk_chain(h, heads[i], row_codes_at, row_keys_at, members_at, member_count, count, stamp)
    return count


@njit
def observe(h, codes, code_count, orders, order_count, row_keys):
    """Remember what one event in sixteen looks like: the next build files filters by what is rare."""
    h[_EVENTS] += 1
    # Hashed, not counted: a stream in which sixteen machines take turns must not show one of them only.
    if (types.uint64(h[_EVENTS]) * types.uint64(0x9E3779B97F4A7C15) >> types.uint64(60)) == 0:
        i64(h[_SAMPLED])[0] += 1
        code_counts, samples, counts = i32(h[_CODE_COUNTS]), i64(h[_KEY_SAMPLES]), i32(h[_KEY_COUNTS])
        for i in range(code_count):
            code_counts[codes[i]] += 1
        for i in range(order_count):
            dimension = orders[i]
            samples[dimension * SAMPLES + counts[dimension] % SAMPLES] = row_keys[dimension]
            counts[dimension] += 1


@njit
def _match_one(h, code_count):
    codes, orders, keys = i32(h[CODES_IN]), i32(h[ORDERS_IN]), i64(h[_KEYS_IN])
    row_codes, row_keys = i32(h[_ROW_CODES]), i64(h[_ROW_KEYS])
    code_dimension, is_double = i32(h[_CODE_DIMENSION]), u8(h[_IS_DOUBLE])
    for i in range(code_count):
        dimension = code_dimension[codes[i]]
        if dimension >= 0:
            row_codes[dimension] = codes[i]
    order_count = 0
    for dimension in range(h[WIDTH]):
        if keys[dimension] != NO_KEY:
            row_keys[dimension] = _double_key(keys[dimension]) if is_double[dimension] else keys[dimension]
            keys[dimension] = NO_KEY
            orders[order_count] = dimension
            order_count += 1
    h[RESIDUE_COUNT] = 0
    h[STAMP] += 1
    count = match_event(h, code_count, order_count, h[_ROW_CODES], h[_ROW_KEYS], h[CODES_IN], code_count, h[STAMP])
    observe(h, codes, code_count, orders, order_count, row_keys)
    for i in range(code_count):
        dimension = code_dimension[codes[i]]
        if dimension >= 0:
            row_codes[dimension] = -1
    for i in range(order_count):
        row_keys[orders[i]] = ABSENT
    h[MATCHED] += count
    if h[RESIDUE_COUNT] == 0 and h[_SHARED_SEEN] == 0 and h[_EVENTS] & (WATCH - 1) != 0:
        return count
    h[_SHARED_SEEN] = 0
    return -1 - count


@cfunc(types.intp(types.intp, types.intp, types.intp), cache=True)
def match_one(header, arguments, count):
    """Match the event in `codes_in` and `keys_in` of the header; clears the latter. Argument: the number of codes.

    Returns how many entries are in `out_entries`; or -1 minus that, where there are residues, an entry has several
    keys, or it is time to look at the index. To be called as a `builtin`.
    """
    return _from_whole(_match_one(i64(_whole(header)), _whole(i64(arguments)[0])))

"""One test of one conjunction over many events, then the next test over those that are left. For `batch_kernels`.

The loops have no branch that depends on data, so the processor never guesses wrong: a nanosecond for each event and
test, where testing a conjunction as a whole takes twenty.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from numba import njit, types

from tocsin.filters.index.kernels import (
    LOWER,
    MATCHED,
    S_ENTRIES,
    S_STREAM,
    SCANNED,
    TESTED,
    is_member,
    set_holds,
    set_words,
)
from tocsin.filters.index.layout import CODE_WORDS, FLAG_SHIFT, HEAD_WORDS, MULTIPLE, RANGE_WORDS, RESIDUE
from tocsin.filters.index.pointers import i32, i64, u32
from tocsin.filters.index.space import WITHIN_CUTS

__all__ = ["sweep_entries"]


@njit
def _keep_equal(events, count, left, column, code):
    """Copy to `left` the events that have this code; returns how many. Source and target may be the same."""
    kept = types.uint64(0)
    for i in range(count):
        event = events[i]
        left[kept] = event
        kept += types.uint64(column[event] == code)
    return kept


@njit
def _keep_between(events, count, left, column, low, high):
    """Copy to `left` the events whose key lies in a range. One comparison: below `low`, the difference wraps round.

    ABSENT is below every low end and is never between.
    """
    kept = types.uint64(0)
    span = types.uint64(high - low)
    for i in range(count):
        event = events[i]
        left[kept] = event
        kept += types.uint64(types.uint64(column[event] - low) <= span)
    return kept


@njit
def _sweep(words, events_at, count, left_at, codes_at, keys_at, stride, members, member_starts):
    """Which of these events satisfy a record? They are put at `left_at`; returns how many.

    `codes_at`, `keys_at`: the rows turned into columns, `stride` events each.
    """
    events, left = u32(events_at), u32(left_at)
    at = HEAD_WORDS
    for _ in range(words[1] & 0xFFFF):
        if words[at] >= 0:
            column = i32(codes_at + 4 * stride * words[at])
            count = _keep_equal(events, count, left, column, words[at + 1])
        else:
            kept = types.uint64(0)
            for i in range(count):
                event = types.int64(events[i])
                left[kept] = types.uint32(event)
                first, last = types.int64(member_starts[event]), types.int64(member_starts[event + 1])
                kept += types.uint64(is_member(words[at + 1], members.ctypes.data + 4 * first, last - first))
            count = kept
        events = left
        at += CODE_WORDS
    for _ in range(words[1] >> 16):
        column = i64(keys_at + 8 * stride * words[at])
        low = types.int64(words[at + 1]) << 32 | types.int64(words[at + 3]) & LOWER
        high = types.int64(words[at + 2]) << 32 | types.int64(words[at + 4]) & LOWER
        count = _keep_between(events, count, left, column, low, high)
        events = left
        at += RANGE_WORDS
    for _ in range(words[2] & 0xFF_FFFF):
        by_key = words[at + 1] == WITHIN_CUTS
        codes, keys = i32(codes_at + 4 * stride * words[at]), i64(keys_at + 8 * stride * words[at])
        kept = types.uint64(0)
        for i in range(count):
            event = events[i]
            left[kept] = event
            code = types.int32(0) if by_key else codes[event]
            key = keys[event] if by_key else types.int64(0)
            kept += types.uint64(set_holds(words, at, code, key))
        count = kept
        events = left
        at += set_words(words, at)
    if at == HEAD_WORDS:  # no test at all: what is always true, or what Python must decide
        for i in range(count):
            left[i] = events[i]
    return types.int64(count)


@njit
def sweep_entries(
    h, first, last, reached_at, count, left_at, codes_at, keys_at, stride, members, member_starts,
    written, owed, out_events, out_entries, residue_events, out_residues,
):  # fmt: skip
    """Sweep a stretch of entries over the events that reached them, and hand over what is true."""
    left = u32(left_at)
    for place in range(first, last):
        number = i32(h[S_ENTRIES] + 16 * place)[2]
        words = i32(h[S_STREAM] + 4 * types.int64(number))
        flags = words[2] >> FLAG_SHIFT
        if flags == 0:
            continue
        found = _sweep(
            words, reached_at, types.uint64(count), left_at, codes_at, keys_at, stride, members, member_starts
        )
        h[TESTED] += count
        if flags & RESIDUE:
            if owed + found <= out_residues.shape[0]:
                for i in range(found):
                    residue_events[owed + i] = left[i]
                    out_residues[owed + i] = number
            owed += found
            continue
        if written + found <= out_entries.shape[0]:
            entry = -1 - words[0] if flags & MULTIPLE else words[0]
            for i in range(found):
                out_events[written + i] = left[i]
                out_entries[written + i] = entry
        written += found
        h[MATCHED] += found
    h[SCANNED] += count * (last - first)
    return written, owed

"""Kernels over Arrow columns: texts to codes, texts to labels, doubles to ordered keys.

Texts are looked up as Arrow stores them, as UTF-8 bytes, in a hash table of the texts that filters name; no Python
object is made for a row. The order of UTF-8 bytes is the order of code points, so labels are found by comparing bytes.
`arrow` uses these where Numba runs, and Arrow's own functions elsewhere.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from numba import njit, types

from tocsin.filters.index.labels import ABSENT, LOWEST

__all__ = ["fill_table", "read_codes", "read_doubles", "read_labels"]

_INFINITY_KEY, _SIGN = 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF
_BYTES, _BITS = (types.Array(kind, 1, "C", readonly=True) for kind in (types.uint8, types.int64))  # Arrow's
_WHOLES, _NUMBERS, _CODES, _KEYS = types.int64[::1], types.int32[::1], types.int32[:, ::1], types.int64[:, ::1]


@njit(inline="always")
def _is_null(validity, row):
    """Is the bit of a row 0? No bits at all: nothing is NULL."""
    return validity.shape[0] != 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0


@njit(inline="always")
def _hash(data, first, last):
    """FNV-1a, with its upper bits stirred in: tables take the lower ones."""
    found = types.uint64(0xCBF29CE484222325)
    for i in range(first, last):
        found = (found ^ types.uint64(data[i])) * types.uint64(0x100000001B3)
    return found ^ (found >> types.uint64(29))


@njit(inline="always")
def _same(data, first, last, others, other_first, other_last):
    if last - first != other_last - other_first:
        return False
    for i in range(last - first):  # noqa: SIM110
        if data[first + i] != others[other_first + i]:
            return False
    return True


@njit([types.void(_BYTES, _WHOLES, types.int64, _NUMBERS)], cache=True)
def fill_table(texts, starts, done, table):
    """Enter the texts from number `done` on: `table` holds numbers of texts or -1, its size is a power of two."""
    mask = types.uint64(table.shape[0] - 1)
    for number in range(done, starts.shape[0] - 1):
        place = _hash(texts, starts[number], starts[number + 1]) & mask
        while table[place] >= 0:
            place = (place + types.uint64(1)) & mask
        table[place] = number


_TEXTS = (_BYTES, _WHOLES, _BYTES, types.int64)  # a column: bytes, offsets, validity, first row


@njit(
    [types.void(*_TEXTS, _BYTES, _WHOLES, _NUMBERS, _NUMBERS, types.int32, _CODES, types.int64)],
    cache=True,
    nogil=True,
)
def read_codes(data, offsets, validity, first_row, texts, starts, codes, table, other, out, dimension):
    """Write the code of each row's text; `other` for one that is not in the table."""
    mask = types.uint64(table.shape[0] - 1)
    for row in range(offsets.shape[0] - 1):
        if _is_null(validity, first_row + row):
            continue
        first, last = offsets[row], offsets[row + 1]
        place = _hash(data, first, last) & mask
        code = other
        while table[place] >= 0:
            number = table[place]
            if _same(data, first, last, texts, starts[number], starts[number + 1]):
                code = codes[number]
                break
            place = (place + types.uint64(1)) & mask
        out[row, dimension] = code


@njit(inline="always")
def _order(data, first, last, others, other_first, other_last):
    for i in range(min(last - first, other_last - other_first)):
        mine, its = types.int64(data[first + i]), types.int64(others[other_first + i])
        if mine != its:
            return mine - its
    return (last - first) - (other_last - other_first)


@njit([types.void(*_TEXTS, _BYTES, _WHOLES, _WHOLES, _KEYS, types.int64)], cache=True, nogil=True)
def read_labels(data, offsets, validity, first_row, bounds, starts, labels, out, dimension):
    """Write the key of each row's text among sorted bounds, as `Labels.key` finds it."""
    for row in range(offsets.shape[0] - 1):
        if _is_null(validity, first_row + row):
            continue
        first, last = offsets[row], offsets[row + 1]
        low, high = types.int64(0), types.int64(labels.shape[0])
        at_bound = False
        while low < high:
            middle = (low + high) >> 1
            order = _order(data, first, last, bounds, starts[middle], starts[middle + 1])
            if order < 0:
                high = middle
            else:
                at_bound = order == 0
                low = middle + 1
                if at_bound:
                    break
        out[row, dimension] = labels[low - 1] + (1 if at_bound else 2) if low > 0 else LOWEST + 1


@njit([types.void(_BITS, _BYTES, types.int64, _KEYS, types.int64)], cache=True, nogil=True)
def read_doubles(bits, validity, first_row, out, dimension):
    """Write the ordered key of each row's double, given as its bits: `intervals.number_key` for a machine word."""
    for row in range(bits.shape[0]):
        if _is_null(validity, first_row + row):
            out[row, dimension] = ABSENT
            continue
        magnitude = bits[row] & _SIGN
        if magnitude > _INFINITY_KEY:
            out[row, dimension] = _INFINITY_KEY + 1
        else:
            out[row, dimension] = magnitude if bits[row] >= 0 else -magnitude

"""Kernels between the two forms of attributes: the journal's MessagePack and Spark's map of VARIANTs.

Both forms are a few bytes of head and the value itself, so Arrow's buffers are read and written as they lie; no Python
object is made. Each direction goes over the rows twice: once to check every byte and to learn how much room is needed,
once to write. What the first pass does not know (anything but the boolean, 64-bit whole number, double and text that
an event's attributes are) it leaves alone: it answers the number of that row, and `attributes` does the batch in
Python, which has the last word on what is wrong. NOTHING if all is well.

Whole numbers get the smallest width that holds them, in both forms, as msgspec and Spark's own parser do.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from numba import njit, types

__all__ = ["NOTHING", "measure_maps", "measure_variants", "write_maps", "write_variants"]

NOTHING = -1
_MOST = 2**31 - 1  # bytes that Arrow's 32-bit offsets reach

_NULL, _TRUE, _FALSE, _INT1, _INT8, _DOUBLE, _LONG_TEXT = 0, 1, 2, 3, 6, 7, 16  # kinds of a VARIANT's primitives
_PRIMITIVE, _SHORT_TEXT = 0, 1  # the lowest two bits of its first byte
_SHORT = 64  # bytes from which on a text is long

_BYTES, _STARTS = (types.Array(kind, 1, "C", readonly=True) for kind in (types.uint8, types.int32))  # Arrow's
_ROOM, _PLACES, _TOTALS = types.uint8[::1], types.int32[::1], types.int64[::1]


@njit(inline="always")
def _is_null(validity, row):
    """Is the bit of a row 0? No bits at all: nothing is NULL."""
    return validity.shape[0] != 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0


@njit(inline="always")
def _big(data, at, width):
    """An unsigned number, highest byte first."""
    number = types.uint64(0)
    for i in range(width):
        number = (number << types.uint64(8)) | types.uint64(data[at + i])
    return types.int64(number)


@njit(inline="always")
def _put_big(number, width, room, at):
    for i in range(width):
        room[at + i] = (number >> (8 * (width - 1 - i))) & 0xFF
    return at + width


@njit(inline="always")
def _put_little(number, width, room, at):
    for i in range(width):
        room[at + i] = (number >> (8 * i)) & 0xFF
    return at + width


@njit(inline="always")
def _signed(number, width):
    """Read the lowest `width` bytes as two's complement."""
    empty = 64 - 8 * width
    return (number << empty) >> empty


@njit(inline="always")
def _copy(data, first, last, room, at):
    for i in range(last - first):
        room[at + i] = data[first + i]
    return at + last - first


# -- MessagePack → VARIANT


@njit(inline="always")
def _text(data, at, last):
    """Where the text at `at` begins and ends; beyond `last` if there is none or it is cut off."""
    head = data[at]
    if head >> 5 == 0b101:
        return at + 1, at + 1 + (head & 31)
    if 0xD9 <= head <= 0xDB:
        begin = at + 1 + (1 << (head - 0xD9))
        if begin <= last:
            return begin, begin + _big(data, at + 1, begin - at - 1)
    return at, last + 1


@njit(inline="always")
def _whole(data, at, last):
    """The whole number at `at`, and where it ends: beyond `last` if there is none, or it has more than 64 bits."""
    head = types.int64(data[at])
    if head < 0x80:
        return head, at + 1
    if head >= 0xE0:
        return head - 256, at + 1
    if 0xCC <= head <= 0xD3:
        width = 1 << (head & 3)
        if at + 1 + width <= last:
            number = _big(data, at + 1, width)
            if head >= 0xD0:
                return _signed(number, width), at + 1 + width
            if number >= 0:
                return number, at + 1 + width
    return types.int64(0), last + 1


@njit(inline="always")
def _width(number):
    """Logarithm of the bytes that hold a whole number."""
    if -(1 << 7) <= number < 1 << 7:
        return 0
    if -(1 << 15) <= number < 1 << 15:
        return 1
    if -(1 << 31) <= number < 1 << 31:
        return 2
    return 3


@njit(inline="always")
def _count(data, at, last):
    """How many entries the map at `at` has, and where the first begins; beyond `last` if there is no map."""
    head = data[at]
    if head >> 4 == 0b1000:
        return types.int64(head & 15), at + 1
    if (head == 0xDE or head == 0xDF) and at + 1 + (2 << (head - 0xDE)) <= last:
        width = 2 << (head - 0xDE)
        return _big(data, at + 1, width), at + 1 + width
    return types.int64(0), last + 1


@njit(inline="always")
def _measure_value(data, at, last):
    """Where the value at `at` ends, and its bytes as a VARIANT; beyond `last` if a kernel does not know it."""
    head = data[at]
    if head == 0xC2 or head == 0xC3:
        return at + 1, 1
    if head == 0xCB:
        return at + 9, 9
    begin, end = _text(data, at, last)
    if end <= last:
        size = end - begin
        return end, size + (1 if size < _SHORT else 5)
    number, end = _whole(data, at, last)
    return end, 1 + (1 << _width(number))


@njit([types.int64(_BYTES, _STARTS, _BYTES, types.int64, _PLACES, _TOTALS)], cache=True, nogil=True)
def measure_variants(data, offsets, validity, first_row, starts, totals):
    """Write where each row's entries begin, and the bytes of all names and of all values."""
    entries = names = values = types.int64(0)
    for row in range(offsets.shape[0] - 1):
        at, last = types.int64(offsets[row]), types.int64(offsets[row + 1])
        if not _is_null(validity, first_row + row):
            if at >= last:
                return row
            count, at = _count(data, at, last)
            for _ in range(count):
                if at >= last:
                    return row
                begin, at = _text(data, at, last)
                if at >= last:
                    return row
                names += at - begin
                at, size = _measure_value(data, at, last)
                values += size
            if at != last or max(names, values) > _MOST:
                return row
            entries += count
        starts[row + 1] = entries
    totals[0], totals[1] = names, values
    return NOTHING


@njit(
    [types.void(_BYTES, _STARTS, _BYTES, types.int64, _PLACES, _ROOM, _PLACES, _ROOM)],
    cache=True,
    nogil=True,
)
def write_variants(data, offsets, validity, first_row, name_starts, names, value_starts, values):
    """Write names and values of all entries, and where each begins."""
    entry = name_at = value_at = types.int64(0)
    for row in range(offsets.shape[0] - 1):
        if _is_null(validity, first_row + row):
            continue
        at, last = types.int64(offsets[row]), types.int64(offsets[row + 1])
        count, at = _count(data, at, last)
        for _ in range(count):
            begin, at = _text(data, at, last)
            name_at = _copy(data, begin, at, names, name_at)
            head = data[at]
            if head == 0xC2 or head == 0xC3:
                values[value_at] = (_FALSE if head == 0xC2 else _TRUE) << 2
                value_at += 1
                at += 1
            elif head == 0xCB:
                values[value_at] = _DOUBLE << 2
                value_at = _put_little(_big(data, at + 1, 8), 8, values, value_at + 1)
                at += 9
            else:
                begin, end = _text(data, at, last)
                if end <= last:
                    if end - begin < _SHORT:
                        values[value_at] = (end - begin) << 2 | _SHORT_TEXT
                        value_at += 1
                    else:
                        values[value_at] = _LONG_TEXT << 2
                        value_at = _put_little(end - begin, 4, values, value_at + 1)
                    value_at = _copy(data, begin, end, values, value_at)
                else:
                    number, end = _whole(data, at, last)
                    width = _width(number)
                    values[value_at] = (_INT1 + width) << 2
                    value_at = _put_little(number, 1 << width, values, value_at + 1)
                at = end
            entry += 1
            name_starts[entry] = name_at
            value_starts[entry] = value_at


# -- VARIANT → MessagePack


@njit(inline="always")
def _text_head(size):
    """Bytes before a text in MessagePack."""
    return 1 if size < 32 else 2 if size < 1 << 8 else 3 if size < 1 << 16 else 5


@njit(inline="always")
def _map_head(count):
    return 1 if count < 16 else 3 if count < 1 << 16 else 5


@njit(inline="always")
def _packed_width(number):
    """Bytes behind the first of a whole number in MessagePack."""
    if -32 <= number < 1 << 7:
        return 0
    if -(1 << 7) <= number < 1 << 8:
        return 1
    if -(1 << 15) <= number < 1 << 16:
        return 2
    return 4 if -(1 << 31) <= number < 1 << 32 else 8


@njit(inline="always")
def _little(data, at, width):
    number = types.uint64(0)
    for i in range(width):
        number |= types.uint64(data[at + i]) << types.uint64(8 * i)
    return types.int64(number)


@njit(inline="always")
def _variant_text(data, first, last):
    """Where the text of a VARIANT begins; beyond `last` if it is none."""
    head = data[first]
    if head & 3 == _SHORT_TEXT and first + 1 + (head >> 2) == last:
        return first + 1
    if head == _LONG_TEXT << 2 and first + 5 <= last and first + 5 + _little(data, first + 1, 4) == last:
        return first + 5
    return last + 1


@njit(inline="always")
def _packed_size(data, first, last):
    """Bytes of a VARIANT as MessagePack; 0 for one that a kernel does not know."""
    if first >= last:
        return 0
    begin = _variant_text(data, first, last)
    if begin <= last:
        return _text_head(last - begin) + last - begin
    head, size = types.int64(data[first]), last - first
    kind = head >> 2 if head & 3 == _PRIMITIVE else _NULL
    if kind in (_TRUE, _FALSE) and size == 1:
        return 1
    if _INT1 <= kind <= _INT8 and size == 1 + (1 << (kind - _INT1)):
        return 1 + _packed_width(_signed(_little(data, first + 1, size - 1), size - 1))
    return 9 if kind == _DOUBLE and size == 9 else 0


_MAPS = (_STARTS, _BYTES, types.int64, _STARTS, _STARTS, _BYTES)  # of rows; of names; of values, and these


@njit([types.int64(*_MAPS, _PLACES)], cache=True, nogil=True)
def measure_maps(starts, validity, first_row, name_starts, value_starts, values, places):
    """Write where each row's map will begin; a row without entries gets none."""
    total = types.int64(0)
    for row in range(starts.shape[0] - 1):
        first, last = types.int64(starts[row]), types.int64(starts[row + 1])
        if first < last and not _is_null(validity, first_row + row):
            total += _map_head(last - first)
            for entry in range(first, last):
                size = types.int64(name_starts[entry + 1]) - name_starts[entry]
                total += _text_head(size) + size
                size = _packed_size(values, types.int64(value_starts[entry]), types.int64(value_starts[entry + 1]))
                if size == 0 or total + size > _MOST:
                    return row
                total += size
        places[row + 1] = total
    return NOTHING


@njit(inline="always")
def _put_text(data, first, last, room, at):
    size = last - first
    head = _text_head(size)
    if head == 1:
        room[at] = 0xA0 | size
    else:
        room[at] = 0xD9 + ((head - 1) >> 1)
        _put_big(size, head - 1, room, at + 1)
    return _copy(data, first, last, room, at + head)


@njit(inline="always")
def _put_whole(number, room, at):
    width = _packed_width(number)
    if width == 0:
        room[at] = number & 0xFF
        return at + 1
    order = 0 if width == 1 else 1 if width == 2 else 2 if width == 4 else 3
    room[at] = (0xCC if number >= 0 else 0xD0) + order
    return _put_big(number, width, room, at + 1)


@njit([types.void(*_MAPS, _BYTES, _PLACES, _ROOM)], cache=True, nogil=True)
def write_maps(starts, validity, first_row, name_starts, value_starts, values, names, places, room):
    """Write the map of each row at its place."""
    for row in range(starts.shape[0] - 1):
        at = types.int64(places[row])
        if places[row + 1] == at:
            continue
        first, last = types.int64(starts[row]), types.int64(starts[row + 1])
        count = last - first
        head = _map_head(count)
        if head == 1:
            room[at] = 0x80 | count
        else:
            room[at] = 0xDE + (head >> 2)
            _put_big(count, head - 1, room, at + 1)
        at += head
        for entry in range(first, last):
            at = _put_text(names, types.int64(name_starts[entry]), types.int64(name_starts[entry + 1]), room, at)
            value, end = types.int64(value_starts[entry]), types.int64(value_starts[entry + 1])
            begin = _variant_text(values, value, end)
            if begin <= end:
                at = _put_text(values, begin, end, room, at)
                continue
            kind = values[value] >> 2
            if kind == _DOUBLE:
                room[at] = 0xCB
                at = _put_big(_little(values, value + 1, 8), 8, room, at + 1)
            elif kind >= _INT1:
                at = _put_whole(_signed(_little(values, value + 1, end - value - 1), end - value - 1), room, at)
            else:
                room[at] = 0xC3 if kind == _TRUE else 0xC2
                at += 1

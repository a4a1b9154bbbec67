"""One value ↔ Spark's VARIANT: the bytes of the value, and a dictionary of the names inside it.

The form is Spark's own (`org.apache.spark.types.variant.VariantUtil`; Parquet's specification says the same):

    first byte   its lowest two bits: 0 primitive (kind above them), 1 text under 64 bytes (length above them),
                 2 object, 3 array (widths of the numbers that follow above them)
    object       count, ids of the names in order of the names, where each value begins, values
    array        count, where each member begins, members
    dictionary   1, count, where each name begins, names

Promises:
    - `decode(*encode(value))` is the value, for whatever JSON can hold, NaN and infinities too. A whole number is a
      BIGINT, beyond 64 bits a DECIMAL of up to 38 digits, beyond that a double. Any other number is a DOUBLE.
    - `decode` reads what Spark itself makes: decimals become numbers, dates and timestamps ISO text, a UUID its text.
"""

from __future__ import annotations

import struct
import uuid
from datetime import date, timedelta
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from tocsin.clock import as_datetime
from tocsin.errors import EventError
from tocsin.model import time_text

__all__ = ["NO_NAMES", "VARIANT", "decode", "encode", "encode_scalar", "is_variant"]

_MARK: Final = {b"variant": b"true"}
VARIANT: Final = pa.struct(
    [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False, metadata=_MARK)]
)
"""A VARIANT in Arrow."""
NO_NAMES: Final = b"\x01\x00\x00"
"""The dictionary of a value without names: every scalar's."""

_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_NULL, _TRUE, _FALSE = (bytes([kind << 2]) for kind in range(3))
_INTEGERS: Final = tuple(
    (1 << 8 * size - 1, bytes([kind << 2]), size) for kind, size in ((3, 1), (4, 2), (5, 4), (6, 8))
)
_DECIMAL, _BINARY, _LONG_TEXT = (bytes([kind << 2]) for kind in (10, 15, 16))
_DOUBLE: Final = bytes([7 << 2])
_SHORT: Final = 64  # bytes from which on a text is long
_DIGITS: Final = 10**38  # one more than a decimal's
_FEW: Final = 256  # from here on a count takes four bytes
_USUAL: Final = 4096  # characters of names that are worth keeping
_EPOCH_DAY: Final = date(1970, 1, 1)
_pack_double = struct.Struct("<d").pack
_number_of = itemgetter(0)


def is_variant(kind: pa.DataType) -> bool:
    """Is this Arrow type a VARIANT? Spark marks them, as any struct could have fields of these names."""
    place = kind.get_field_index("metadata") if pa.types.is_struct(kind) else -1
    return place >= 0 and kind.field(place).metadata == _MARK


# -- writing


def encode(value: Any) -> tuple[bytes, bytes]:
    """A JSON value, or bytes, as the two parts of a VARIANT."""
    if value.__class__ is not dict and value.__class__ is not list:
        return encode_scalar(value), NO_NAMES
    names: dict[str, None] = {}
    _collect(value, names)
    short = sum(map(len, names)) <= _USUAL
    metadata, numbers = (_known_dictionary if short else _dictionary)(tuple(names))
    return _nested(value, numbers), metadata


def encode_scalar(value: Any) -> bytes:
    """A value that holds no others."""
    kind = value.__class__
    if kind is str:
        return _text(value.encode())
    if kind is float:
        return _DOUBLE + _pack_double(value)
    if kind is bool:
        return _TRUE if value else _FALSE
    if value is None:
        return _NULL
    if kind is bytes:
        return b"".join((_BINARY, len(value).to_bytes(4, "little"), value))
    for bound, head, size in _INTEGERS:
        if -bound <= value < bound:
            return head + int(value).to_bytes(size, "little", signed=True)
    if -_DIGITS < value < _DIGITS:
        return _DECIMAL + b"\0" + int(value).to_bytes(16, "little", signed=True)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf") if value > 0 else float("-inf")
    return _DOUBLE + _pack_double(number)


def _collect(value: Any, names: dict[str, None]) -> None:
    if value.__class__ is dict:
        names |= dict.fromkeys(value)
        value = value.values()
    for member in value:
        if member.__class__ is dict or member.__class__ is list:
            _collect(member, names)


def _dictionary(names: tuple[str, ...]) -> tuple[bytes, dict[str, int]]:
    """The dictionary as bytes, and each name's number in it: in Java's order, by which Spark searches large objects."""
    # Python's order differs from Java's only beyond ASCII.
    ordered = sorted(names) if all(map(str.isascii, names)) else sorted(names, key=_utf16)
    texts = [name.encode() for name in ordered]
    ends = [0, *accumulate(map(len, texts))]
    width = _width(max(ends[-1], len(texts)))
    head = bytes([width - 1 << 6 | 1]) + len(texts).to_bytes(width, "little")
    return b"".join((head, _numbers(ends, width), *texts)), {name: number for number, name in enumerate(ordered)}


_known_dictionary = lru_cache(maxsize=256)(_dictionary)  # payloads of one type have the same names


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be")


def _text(text: bytes) -> bytes:
    if len(text) < _SHORT:
        return bytes([len(text) << 2 | _SHORT_TEXT]) + text
    return b"".join((_LONG_TEXT, len(text).to_bytes(4, "little"), text))


def _nested(value: Any, numbers: dict[str, int]) -> bytes:
    kind = value.__class__
    if kind is dict:
        pairs = sorted(((numbers[name], member) for name, member in value.items()), key=_number_of)
        return _container([_nested(member, numbers) for _, member in pairs], [number for number, _ in pairs])
    return _container([_nested(member, numbers) for member in value], None) if kind is list else encode_scalar(value)


def _container(bodies: list[bytes], ids: list[int] | None) -> bytes:
    """An array, or with ids an object."""
    count = len(bodies)
    ends = [0, *accumulate(map(len, bodies))]
    width, large = _width(ends[-1]), count >= _FEW
    size = count.to_bytes(4 if large else 1, "little")
    if ids is None:
        head = bytes([large << 4 | width - 1 << 2 | _ARRAY])
        return b"".join((head, size, _numbers(ends, width), *bodies))
    id_width = _width(ids[-1] if ids else 0)
    head = bytes([large << 6 | id_width - 1 << 4 | width - 1 << 2 | _OBJECT])
    return b"".join((head, size, _numbers(ids, id_width), _numbers(ends, width), *bodies))


def _width(largest: int) -> int:
    """Bytes that hold a number."""
    return max(1, (largest.bit_length() + 7) // 8)


def _numbers(numbers: list[int], width: int) -> bytes:
    return bytes(numbers) if width == 1 else b"".join([number.to_bytes(width, "little") for number in numbers])


# -- reading


def decode(value: bytes, metadata: bytes) -> Any:
    """The value of a VARIANT, as JSON has it; bytes if it is binary.

    Raises:
        EventError: these are not the bytes of a VARIANT, or of one that no event can hold.
    """
    try:
        holds_others = value[0] & 3 >= _OBJECT  # a scalar that Spark took out of an object brings all its names along
        return _read(value, 0, _names(metadata) if holds_others else [])
    except (IndexError, ValueError, OverflowError, RecursionError, struct.error) as error:
        raise EventError(f"a VARIANT cannot be read: {error}", help="make it with parse_json") from None


def _read(data: bytes, at: int, names: list[str]) -> Any:
    head = data[at]
    basic, rest = head & 3, head >> 2
    at += 1
    if basic == _SHORT_TEXT:
        return _piece(data, at, rest).decode()
    if basic == _PRIMITIVE:
        return _read_primitive(data, at, rest)
    size = 4 if rest >> (4 if basic == _OBJECT else 2) & 1 else 1
    (count,) = _read_numbers(data, at, 1, size)
    at += size
    ids: list[int] = []
    if basic == _OBJECT:
        size = (rest >> 2 & 3) + 1
        ids = _read_numbers(data, at, count, size)
        at += count * size
    size = (rest & 3) + 1
    starts = _read_numbers(data, at, count + 1, size)
    at += (count + 1) * size
    members = [_read(data, at + start, names) for start in starts[:-1]]
    return members if basic == _ARRAY else {names[i]: member for i, member in zip(ids, members, strict=True)}


def _read_primitive(data: bytes, at: int, kind: int) -> Any:
    if kind <= 2:
        return (None, True, False)[kind]
    if kind <= 6:
        return _signed(data, at, 1 << kind - 3)
    if kind == 7:
        return struct.unpack("<d", _piece(data, at, 8))[0]
    if kind <= 10:
        scale, unscaled = data[at], _signed(data, at + 1, 4 << kind - 8)
        return unscaled if scale == 0 else unscaled / 10**scale
    if kind == 11:
        return (_EPOCH_DAY + timedelta(days=_signed(data, at, 4))).isoformat()
    if kind <= 13:
        text = time_text(as_datetime(_signed(data, at, 8)))
        return text if kind == 12 else text.removesuffix("Z")
    if kind == 14:
        return struct.unpack("<f", _piece(data, at, 4))[0]
    if kind <= 16:
        raw = _piece(data, at + 4, _read_numbers(data, at, 1, 4)[0])
        return raw if kind == 15 else raw.decode()
    if kind == 20:
        return str(uuid.UUID(bytes=_piece(data, at, 16)))
    raise ValueError(f"its kind {kind} is not known")


def _names(metadata: bytes) -> list[str]:
    width = (metadata[0] >> 6) + 1
    (count,) = _read_numbers(metadata, 1, 1, width)
    ends = _read_numbers(metadata, 1 + width, count + 1, width)
    at = 1 + (count + 2) * width
    return [_piece(metadata, at + first, last - first).decode() for first, last in pairwise(ends)]


def _piece(data: bytes, at: int, size: int) -> bytes:
    found = data[at : at + size]
    if len(found) != size:
        raise IndexError("it is cut off")
    return found


def _read_numbers(data: bytes, at: int, count: int, width: int) -> list[int]:
    raw = _piece(data, at, count * width)
    if width == 1:
        return list(raw)
    return [int.from_bytes(raw[place : place + width], "little") for place in range(0, len(raw), width)]


def _signed(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(_piece(data, at, width), "little", signed=True)

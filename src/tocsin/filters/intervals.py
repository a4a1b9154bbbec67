"""Sets of values of one ordered domain, kept as *cuts*.

A set is a strictly increasing tuple of cuts, read in pairs: it holds what lies between the first and second, the third
and fourth, and so on. A cut lies *between* values, so open and closed ends need no flags and one algorithm serves every
type:

- numbers, timestamps, booleans are mapped to whole numbers that keep their order; cut `c` lies just before `c`.
- texts: cut `(0, s, 0)` lies just before `s`, `(0, s, 1)` just after it.

Doubles become whole numbers by their bit pattern, with Spark's order: -0.0 equals 0.0, NaN equals NaN and is greatest.

Every operation is pure, exact and closed: complement of IN is a set, a prefix is a set, their intersection is a set.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "BOTTOM_NUMBER",
    "BOTTOM_TEXT",
    "EMPTY",
    "NAN_KEY",
    "TOP_NUMBER",
    "TOP_TEXT",
    "Cuts",
    "after",
    "complement",
    "contains",
    "intersect",
    "is_subset",
    "number_from_key",
    "number_key",
    "points",
    "prefix",
    "text_key",
    "union",
]

Cuts = tuple[Any, ...]

EMPTY: Cuts = ()
_DOUBLE, _WHOLE = struct.Struct("<d"), struct.Struct("<q")


def number_key(value: float) -> int:
    """Map a double to a whole number with the same order; NaN is one above infinity."""
    if value != value:
        return NAN_KEY
    bits: int = _WHOLE.unpack(_DOUBLE.pack(value + 0.0))[0]  # + 0.0 turns -0.0 into 0.0
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def number_from_key(key: int) -> float:
    """Undo `number_key`."""
    if key >= NAN_KEY:
        return float("nan")
    value: float = _DOUBLE.unpack(_WHOLE.pack(abs(key)))[0]
    return value if key >= 0 else -value


NAN_KEY = 0x7FF0_0000_0000_0001
BOTTOM_NUMBER, TOP_NUMBER = number_key(float("-inf")), NAN_KEY + 1
BOTTOM_TEXT: tuple[Any, ...] = (0, "", 0)
TOP_TEXT: tuple[Any, ...] = (1,)


def text_key(value: str) -> tuple[int, str, int]:
    """The place of a text among cuts."""
    return (0, value, 0)


def after(key: Any) -> Any:
    """The cut just after a value's key; the cut just before it is the key itself."""
    return key + 1 if isinstance(key, int) else (0, key[1], 1)


def points(keys: Iterable[Any]) -> Cuts:
    """The set of exactly these values."""
    return union(*((key, after(key)) for key in keys))


def prefix(text: str) -> Cuts:
    """All texts that begin with `text`: from it up to the next text that does not."""
    if not text:
        return (BOTTOM_TEXT, TOP_TEXT)
    for index in range(len(text) - 1, -1, -1):
        code = ord(text[index])
        if code < 0x10FFFF:
            return ((0, text, 0), (0, text[:index] + chr(code + 1), 0))
    return ((0, text, 0), TOP_TEXT)


def contains(cuts: Cuts, key: Any) -> bool:
    """Is the value with this key in the set?"""
    return bisect_right(cuts, key) % 2 == 1


def union(*sets: Cuts) -> Cuts:
    """What is in any."""
    return _sweep(sets, 1)


def intersect(*sets: Cuts) -> Cuts:
    """What is in all."""
    if len(sets) == 2:
        first, second = sets
        if len(first) == 2 and len(second) == 2:  # by far the commonest: two intervals
            low, high = max(first[0], second[0]), min(first[1], second[1])
            return (low, high) if low < high else EMPTY
    return _sweep(sets, len(sets))


def complement(cuts: Cuts, bottom: Any, top: Any) -> Cuts:
    """What is in the domain but not in the set."""
    marks = [bottom, *cuts, top]
    if len(cuts) and cuts[0] == bottom:
        del marks[:2]
    if len(cuts) and cuts[-1] == top:
        del marks[-2:]
    return tuple(marks)


def is_subset(inner: Cuts, outer: Cuts) -> bool:
    """Is every value of `inner` in `outer`?"""
    for index in range(0, len(inner), 2):
        place = bisect_right(outer, inner[index])
        if place % 2 == 0 or outer[place] < inner[index + 1]:
            return False
    return True


def _sweep(sets: Sequence[Cuts], need: int) -> Cuts:
    """Walk all cuts in order, counting how many sets we are inside; keep where that reaches `need`."""
    marks = sorted((cut, 1 - 2 * (index % 2)) for cuts in sets for index, cut in enumerate(cuts))
    result: list[Any] = []
    depth = index = 0
    while index < len(marks):
        cut, was = marks[index][0], depth
        while index < len(marks) and marks[index][0] == cut:
            depth += marks[index][1]
            index += 1
        if (was >= need) != (depth >= need):
            result.append(cut)
    return tuple(result)

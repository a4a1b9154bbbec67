"""What one column of a block holds: kind by kind its values, if few, else the lowest and the highest.

Values have the places that filters use (`tocsin.filters.intervals`), so doubles, NaN and whole numbers beyond 2^53
compare here as they do there. `may_hold` is the question asked of them.

Promised: everything said is true of every event. Not promised: to say everything; of many names only the most frequent
are listed, of long texts only the beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.filters import intervals, values
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NULLNESS, REVERSED

__all__ = [
    "MAX_NAMES",
    "MAX_VALUES",
    "Facts",
    "Keys",
    "Values",
    "may_hold",
    "number_keys",
    "of_members",
    "of_numbers",
    "of_texts",
    "of_times",
]

MAX_NAMES = 32
"""Names listed of attributes, and of payloads."""
MAX_VALUES = 32
"""Values listed of a payload's field or an attribute; of texts in the envelope twice as many."""

_MAX_TEXT = 64  # texts are cut to so many characters; one of that length stands for all that begin with it
_MAX_LISTED = 1024  # characters in one list of texts
_SAMPLE = 1024  # rows that often tell already that there are too many values to be listed
_MAX_TRIED = 256  # names watched while collecting: payloads come from strangers
_NUMBERS = frozenset({int, float})
_SCALARS = frozenset({int, float, str, bool})

Keys = np.ndarray[Any, np.dtype[np.int64]]


class Values(msgspec.Struct, frozen=True, array_like=True):
    """The values of one kind: all of them, ascending, or just the lowest and the highest."""

    keys: tuple[Any, ...]
    """Texts, or places on the number line of `intervals`, or microseconds."""
    ranged: bool = False


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """What one column holds."""

    always: bool
    """No event lacks it; NULL counts as lacking."""
    numbers: Values | None = None
    texts: Values | None = None
    booleans: tuple[int, ...] = ()
    times: Values | None = None
    other: bool = False
    """Some are arrays, objects or bytes."""

    @property
    def anything(self) -> bool:
        """Does any event have it?"""
        return bool(self.numbers or self.texts or self.booleans or self.times or self.other)


# -- asking


def may_hold(facts: Facts, kind: str, cuts: Cuts) -> bool:
    """Can a value of the column, read as this kind, be in the set? False is certain."""
    match kind:
        case values.NUMBER:
            return facts.numbers is not None and _meets(facts.numbers, cuts, intervals.after)
        case values.TEXT:
            if facts.texts is None:
                return False
            if facts.texts.ranged:
                low, high = facts.texts.keys
                return _overlap(cuts, intervals.text_key(low), _beyond(high))
            return any(intervals.contains(cuts, intervals.text_key(text)) for text in facts.texts.keys)
        case values.TIME:
            if facts.times is not None:
                return _meets(facts.times, cuts, intervals.after)
            moments = (values.text_as_time(text) for text in _few_texts(facts))
            if facts.texts is not None and facts.texts.ranged:
                return True
            return any(intervals.contains(cuts, values.micros(moment)) for moment in moments if moment is not None)
        case values.BOOLEAN:
            return any(intervals.contains(cuts, key) for key in facts.booleans)
        case _ if kind == REVERSED:
            if facts.texts is not None and facts.texts.ranged:
                return True
            return any(intervals.contains(cuts, intervals.text_key(text[::-1])) for text in _few_texts(facts))
        case _ if kind == NULLNESS:
            null, not_null = intervals.contains(cuts, 0), intervals.contains(cuts, 1)
            return (null and not facts.always) or (not_null and facts.anything)
    return True


def _few_texts(facts: Facts) -> tuple[str, ...]:
    return () if facts.texts is None or facts.texts.ranged else facts.texts.keys


def _meets(found: Values, cuts: Cuts, after: Any) -> bool:
    if found.ranged:
        return _overlap(cuts, found.keys[0], after(found.keys[1]))
    return any(intervals.contains(cuts, key) for key in found.keys)


def _overlap(cuts: Cuts, low: Any, beyond: Any) -> bool:
    """Is anything from `low` to just before `beyond` in the set?"""
    place = bisect_right(cuts, low)
    return place % 2 == 1 or (place < len(cuts) and bool(cuts[place] < beyond))


def _beyond(highest: str) -> Any:
    """The cut after the highest text, which may have been cut short."""
    return intervals.prefix(highest)[1] if len(highest) == _MAX_TEXT else intervals.after(intervals.text_key(highest))


# -- collecting


def of_texts(column: pa.StringArray) -> Facts:
    """Facts of an Arrow column of texts."""
    distinct = column.drop_null().unique()
    if len(distinct) > 2 * MAX_VALUES:  # compared as UTF-8, which is the order of code points too
        ends = pc.min_max(distinct)
        found = Values((ends["min"].as_py()[:_MAX_TEXT], ends["max"].as_py()[:_MAX_TEXT]), True)
        return Facts(always=not column.null_count, texts=found)
    return Facts(always=not column.null_count, texts=_texts(set(distinct.to_pylist()), 2 * MAX_VALUES))


def of_numbers(column: pa.Array, limit: int = 0) -> Facts:
    """Facts of an Arrow column of numbers, with up to `limit` values."""
    found = number_keys(column.drop_null().to_numpy(zero_copy_only=False))
    return Facts(always=not column.null_count, numbers=_values(found, limit))


def of_times(column: pa.Int64Array) -> Facts:
    """Facts of an Arrow column of microseconds."""
    return Facts(always=not column.null_count, times=_values(column.drop_null().to_numpy(), 0))


def of_members(objects: Iterable[Any], rows: int) -> tuple[dict[str, Facts], bool]:
    """Facts of the members of objects by name, and whether all names are listed. What is no object has no members.

    Args:
        objects: decoded JSON, or attributes.
        rows: of how many events; those that have no object are not among `objects`, or are there as something else.
    """
    found: dict[str, list[Any]] = {}
    complete = True
    for each in objects:
        if type(each) is dict:
            for name, value in each.items():
                have = found.get(name)
                if have is not None:
                    have.append(value)
                elif len(found) < _MAX_TRIED and len(name) <= _MAX_TEXT:
                    found[name] = [value]
                else:
                    complete = False
    if len(found) > MAX_NAMES:
        kept = sorted(found, key=lambda name: (-len(found[name]), name))[:MAX_NAMES]
        found, complete = {name: found[name] for name in kept}, False
    return {name: _of_list(column, rows) for name, column in found.items()}, complete


def _of_list(column: list[Any], rows: int) -> Facts:
    """Facts of one member. Kinds are told apart first; then each is handled by whole lists, which is quick."""
    kinds = set(map(type, column))
    nulls = column.count(None) if type(None) in kinds else 0
    kinds.discard(type(None))
    numbers = _only(column, _NUMBERS, kinds, nulls)
    texts = _only(column, frozenset({str}), kinds, nulls)
    booleans = {each for each in column if each is True or each is False} if bool in kinds else ()
    return Facts(
        always=len(column) - nulls == rows,
        numbers=_values(number_keys(numbers), MAX_VALUES),
        texts=_texts(texts if len(set(texts[:_SAMPLE])) > MAX_VALUES else set(texts), MAX_VALUES),
        booleans=tuple(sorted(map(int, booleans))),
        other=not kinds <= _SCALARS,
    )


def _only(column: list[Any], wanted: frozenset[type], kinds: set[type], nulls: int) -> list[Any]:
    if not kinds & wanted:
        return []
    return column if kinds <= wanted and not nulls else [each for each in column if type(each) in wanted]


def number_keys(numbers: Sequence[Any]) -> Keys:
    """`intervals.number_key` of many."""
    try:
        doubles = np.array(numbers, np.float64)
    except OverflowError:  # a whole number beyond every double
        doubles = np.array([float(values.number(each)) for each in numbers], np.float64)
    bits = (doubles + 0.0).view(np.int64)
    keys = np.where(bits >= 0, bits, -(bits & np.int64(2**63 - 1)))
    return np.where(np.isnan(doubles), np.int64(intervals.NAN_KEY), keys)


def _values(keys: Keys, limit: int) -> Values | None:
    if not len(keys):
        return None
    if limit and len(np.unique(keys[:_SAMPLE])) <= limit:
        distinct = np.unique(keys)
        if len(distinct) <= limit:
            return Values(tuple(distinct.tolist()))
    return Values((int(keys.min()), int(keys.max())), True)


def _texts(distinct: Collection[str], limit: int) -> Values | None:
    """Values of texts; if there are more than `limit`, some may be there twice."""
    if not distinct:
        return None
    if len(distinct) <= limit and sum(map(len, distinct)) <= _MAX_LISTED and max(map(len, distinct)) < _MAX_TEXT:
        return Values(tuple(sorted(distinct)))
    return Values((min(distinct)[:_MAX_TEXT], max(distinct)[:_MAX_TEXT]), True)

"""Keys of `BY`: the values an event has in some fields, in a form that can be compared, stored and given back.

Kinds never compare, as in filters: `true` is not 1, while 1 is 1.0. Python's dictionaries see that differently, so
booleans, times and NaN are written as marked texts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tocsin.filters.evaluate import getter
from tocsin.model import Event, time_text

__all__ = ["Key", "key_reader", "settled", "shown", "storable"]

Key = tuple[str | int | float, ...]

_MARK = "\x00"
_WHOLE = 1 << 63
# A derived event tells its key as JSON, which has no such numbers: they are told as texts.
_SHOWN: dict[str | float, Any] = {
    f"{_MARK}true": True,
    f"{_MARK}false": False,
    f"{_MARK}nan": "NaN",
    float("inf"): "Infinity",
    float("-inf"): "-Infinity",
}


def key_reader(by: tuple[str, ...]) -> Callable[[Event], Key | None]:
    """A function that takes the key out of an event; None if a field is missing or holds no single value."""
    getters = [getter(tuple(field.split("."))) for field in by]
    if not getters:
        return lambda event: ()
    if len(getters) == 1:
        only = getters[0]

        def read_one(event: Event) -> Key | None:
            value = only(event)
            if value.__class__ is str or (value.__class__ is int and -_WHOLE <= value < _WHOLE):
                return (value,)
            found = settled(value)
            return None if found is None else (found,)

        return read_one

    def read(event: Event) -> Key | None:
        values = [settled(get(event)) for get in getters]
        return None if None in values else tuple(values)  # type: ignore[arg-type]

    return read


def settled(value: Any) -> str | int | float | None:
    """One element of a key; None: this is no single value."""
    if isinstance(value, bool):
        return f"{_MARK}true" if value else f"{_MARK}false"
    if isinstance(value, float):
        if value != value:
            return f"{_MARK}nan"
        return int(value) if value.is_integer() and -_WHOLE <= value < _WHOLE else value  # one key has one form
    if isinstance(value, datetime):
        return _MARK + time_text(value)
    if isinstance(value, int):
        return storable(value)
    return value if isinstance(value, str) else None


def storable(value: int) -> int | float | None:
    """A whole number as it can be stored: beyond 64 bits as the nearest double, None if there is none."""
    if -_WHOLE <= value < _WHOLE:
        return value
    try:
        return float(value)
    except OverflowError:
        return None


def shown(by: tuple[str, ...], key: Key) -> dict[str, Any]:
    """A key as people see it: field → value."""
    if len(by) == 1:
        return {by[0]: _shown(key[0])}
    return {field: _shown(value) for field, value in zip(by, key, strict=True)}


def _shown(value: str | float) -> Any:
    if isinstance(value, str):
        return _SHOWN.get(value, value[1:]) if value[:1] == _MARK else value
    return _SHOWN.get(value, value) if value.__class__ is float else value

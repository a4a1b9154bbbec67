"""What a value is: types, comparison, arithmetic. The one place that says what `=` and `<` mean.

Spark SQL's meaning with ANSI off, except that nothing is coerced: values of different kinds do not compare (NULL), but
for texts, which are read as timestamps when the other side is one. Whole numbers of 64 bits compare exactly with each
other; whatever meets a double is a double. Arithmetic is in doubles. NaN equals NaN and is greater than every number.

Functions take Python values as an event holds them and return a Python value, or None for NULL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

__all__ = [
    "BOOLEAN",
    "EARTH_RADIUS_KM",
    "EXACT",
    "NUMBER",
    "OTHER",
    "TEXT",
    "TIME",
    "TIMESTAMP_TEXT",
    "array_contains",
    "compare",
    "distance_km",
    "kind_of",
    "micros",
    "number",
    "text_as_time",
    "truth",
]

NUMBER, TEXT, BOOLEAN, TIME, OTHER = "number", "text", "boolean", "time", "other"

EXACT = 2**53
"""Whole numbers below this are the same as doubles."""

EARTH_RADIUS_KM = 6371.0088
"""Mean radius of the Earth (IUGG)."""

TIMESTAMP_TEXT = (
    r"[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(?:\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
)
"""Texts read as timestamps in a comparison: a full date and time with a zone. Spark reads these the same way."""

_TIMESTAMP = re.compile(TIMESTAMP_TEXT + r"\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: dict[type, str | None] = {
    float: NUMBER,
    int: NUMBER,
    str: TEXT,
    bool: BOOLEAN,
    datetime: TIME,
    type(None): None,
    list: OTHER,
    dict: OTHER,
    bytes: OTHER,
}
_WHOLE_LIMIT = 2**63


def kind_of(value: object) -> str | None:
    """Name the kind of a value; None for NULL."""
    try:
        return _KINDS[type(value)]
    except KeyError:
        for base in (bool, int, float, str, datetime):  # a subclass (NumPy's double, an enumeration) is its base
            if isinstance(value, base):
                return _KINDS[base]
        return OTHER


def number(value: int | float) -> int | float:
    """A whole number outside 64 bits is a double, as any JSON reader but Python's has it."""
    if isinstance(value, int) and not -_WHOLE_LIMIT <= value < _WHOLE_LIMIT:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return value


def micros(moment: datetime) -> int:
    """Whole microseconds since 1970, exact."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def text_as_time(text: str) -> datetime | None:
    """Read a text as a timestamp as a comparison does; None if it is none."""
    if not _TIMESTAMP.match(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # 31 February
        return None


def compare(left: Any, right: Any) -> int | None:
    """Return -1, 0 or 1, or None where the two do not compare."""
    left_kind, right_kind = kind_of(left), kind_of(right)
    if left_kind != right_kind:
        if left_kind == TEXT and right_kind == TIME:
            left = text_as_time(left)
        elif left_kind == TIME and right_kind == TEXT:
            right = text_as_time(right)
        else:
            return None
        if left is None or right is None:
            return None
    elif left_kind is None or left_kind == OTHER:
        return None
    elif left_kind == NUMBER:
        left, right = number(left), number(right)
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
            if left != left or right != right:
                return (left != left) - (right != right)  # type: ignore[no-any-return]
    return (left > right) - (left < right)  # type: ignore[no-any-return]


def truth(value: Any) -> bool | None:
    """A value as a condition: only a boolean has one."""
    return value if isinstance(value, bool) else None


def _doubles(operation: Callable[[float, float], float | None]) -> Callable[[Any, Any], float | None]:
    def apply(left: Any, right: Any) -> float | None:
        if kind_of(left) != NUMBER or kind_of(right) != NUMBER:
            return None
        return operation(float(number(left)), float(number(right)))

    return apply


def _remainder(left: float, right: float) -> float | None:
    if right == 0:
        return None
    if math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def _divide(left: float, right: float) -> float | None:
    return left / right if right else None


ARITHMETIC: dict[str, Callable[[Any, Any], float | None]] = {
    "+": _doubles(lambda left, right: left + right),
    "-": _doubles(lambda left, right: left - right),
    "*": _doubles(lambda left, right: left * right),
    "/": _doubles(_divide),
    "%": _doubles(_remainder),
}


def _of_number(operation: Callable[[float], float]) -> Callable[[Any], float | None]:
    return lambda value: operation(float(number(value))) if kind_of(value) == NUMBER else None


def _of_text(operation: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: operation(value) if isinstance(value, str) else None


UNARY: dict[str, Callable[[Any], Any]] = {
    "negate": _of_number(lambda value: -value),
    "abs": _of_number(abs),
    "lower": _of_text(str.lower),
    "upper": _of_text(str.upper),
    "length": _of_text(len),
}

TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": str.__contains__,
}


def distance_km(latitude: Any, longitude: Any, to_latitude: Any, to_longitude: Any) -> float | None:
    """Great-circle distance between two places in degrees; NULL unless both are places on Earth."""
    degrees = (latitude, longitude, to_latitude, to_longitude)
    if any(kind_of(value) != NUMBER for value in degrees):
        return None
    lat1, lon1, lat2, lon2 = (float(number(value)) for value in degrees)
    if not (abs(lat1) <= 90 and abs(lat2) <= 90 and abs(lon1) <= 180 and abs(lon2) <= 180):
        return None
    lat1, lon1, lat2, lon2 = map(math.radians, (lat1, lon1, lat2, lon2))
    half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(half)))


def array_contains(array: Any, value: Any) -> bool | None:
    """Is some element equal to `value`?

    NULL if it is not an array, the value is NULL, or only a NULL element is left to doubt.
    """
    if not isinstance(array, list) or kind_of(value) in (None, OTHER):
        return None
    if any(compare(element, value) == 0 for element in array):
        return True
    return None if any(element is None for element in array) else False

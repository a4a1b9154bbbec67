"""How much of the past a subscriber asks for: a bound.

    last(10)                        the newest ten events that match the filter            10
    within(timedelta(minutes=5))    those that arrived in the last five minutes            5m
    last(10, within=…)              at most ten, all of the last five minutes              10,5m
    since(4711), since("2026-…Z")   from this offset or moment on, itself included         since:4711, since:2026-…Z
    retained()                      all that is neither expired nor cancelled              retained

On the right: the text of HTTP and the command line; `parse` reads it, `str(bound)` writes it.

Promised: a bound that exists means something; everything else raises `BoundError`, which says what to give instead.
Bounds are frozen, can be compared, and `parse(str(bound)) == bound`. Time is journal time (`arrived`), not the
producer's.
Not promised: that so much past exists.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from tocsin.errors import BoundError, EventError
from tocsin.model import MAX_INT, parse_time, time_text
from tocsin.payload import show

__all__ = [
    "Bound",
    "Last",
    "Past",
    "Retained",
    "Since",
    "Within",
    "coerce",
    "last",
    "parse",
    "parse_duration",
    "print_duration",
    "retained",
    "since",
    "within",
]

_UNITS: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000}
_DURATION: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ms|s|m|h|d)")
_WHOLE: Final = re.compile(r"[0-9]{1,30}")
_PLUS_LOST: Final = re.compile(r"(T.*) ([0-9]{2}:?[0-9]{2})")  # a + in a URL arrives as a blank
_MICROSECOND: Final = timedelta(microseconds=1)
_GIVE: Final = "give 10, 5m, 10,5m, since:123, since:2026-01-31T12:00:00Z or retained"


class Last(msgspec.Struct, frozen=True, tag="last", tag_field="past"):
    """The newest `n` events that match this filter, all of the last `within`, if given."""

    n: int
    within: timedelta | None = None

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        _whole(self.n, "n", 1, "give a whole number from 1, such as last(10); leave past out for none")
        if self.within is not None:
            _positive(self.within)

    def __str__(self) -> str:
        """Return `10` or `10,5m`."""
        return str(self.n) if self.within is None else f"{self.n},{print_duration(self.within)}"


class Within(msgspec.Struct, frozen=True, tag="within", tag_field="past"):
    """Events that arrived at most so long ago."""

    t: timedelta

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        _positive(self.t)

    def __str__(self) -> str:
        """Return `5m`."""
        return print_duration(self.t)


class Since(msgspec.Struct, frozen=True, tag="since", tag_field="past"):
    """Events from this offset, or from this moment of journal time, itself included."""

    x: int | datetime

    def __post_init__(self) -> None:
        """Refuse what means nothing; bring times to UTC."""
        x: object = self.x
        if isinstance(x, int):
            mend = "give an offset from 0 (0 and 1: from the beginning), an aware datetime or ISO text"
            _whole(x, "the offset", 0, mend)
        elif isinstance(x, str | datetime):
            try:
                force_setattr(self, "x", parse_time(x, "since"))
            except EventError as error:
                raise BoundError(error.message, field="past", help=error.help) from None
        else:
            raise _bad(f"since is {show(x)}", "give an offset from 0, an aware datetime or ISO text")

    def __str__(self) -> str:
        """Return `since:123` or `since:2026-01-31T12:00:00Z`."""
        return f"since:{self.x if isinstance(self.x, int) else time_text(self.x)}"


class Retained(msgspec.Struct, frozen=True, tag="retained", tag_field="past"):
    """Everything that is neither expired nor cancelled."""

    def __str__(self) -> str:
        """Return `retained`."""
        return "retained"


Bound = Last | Within | Since | Retained
Past = Bound | int | timedelta | None
"""What `subscribe(past=…)` takes."""


def last(n: int, within: timedelta | None = None) -> Last:
    """Ask for the newest `n` events that match, of the last `within` if given.

    Raises:
        BoundError: `n` is no whole number from 1, or `within` no timedelta above 0.
    """
    return Last(n, within)


def within(t: timedelta) -> Within:
    """Ask for what arrived in the last `t`.

    Raises:
        BoundError: `t` is no timedelta above 0.
    """
    return Within(t)


def since(x: int | datetime | str) -> Since:
    """Ask for everything from an offset or a moment on, itself included; ISO text is a moment.

    Raises:
        BoundError: `x` is negative, has no timezone, or is something else.
    """
    return Since(x)  # type: ignore[arg-type]


def retained() -> Retained:
    """Ask for everything that is neither expired nor cancelled."""
    return Retained()


def coerce(past: object) -> Bound | None:
    """Return the bound that is meant: itself, None, a whole number (last n) or a timedelta (within).

    Raises:
        BoundError: it is none of these, or its value means nothing.
    """
    if past is None or isinstance(past, Last | Within | Since | Retained):
        return past
    if isinstance(past, bool):
        raise _bad(f"past is {past}", "give a number of events, such as 10, or tocsin.retained()")
    if isinstance(past, int):
        return Last(past)
    if isinstance(past, timedelta):
        return Within(past)
    mend = "give a number of events, a timedelta, or tocsin.last(…), within(…), since(…), retained()"
    raise _bad(f"past is {show(past)}", mend)


def parse(text: str) -> Bound:
    """Read the text of a bound, as HTTP and the command line have it.

    Raises:
        BoundError: it is none.
    """
    if not isinstance(text, str):
        raise _bad(f"past is {show(text)}, not text", _GIVE)
    plain = text.strip()
    if plain == "retained":
        return Retained()
    if plain.startswith("since:"):
        x = plain.removeprefix("since:").strip()
        return Since(int(x) if _WHOLE.fullmatch(x) else _PLUS_LOST.sub(r"\1+\2", x))  # type: ignore[arg-type]
    number, comma, duration = plain.partition(",")
    if _WHOLE.fullmatch(number.strip()):
        return Last(int(number), parse_duration(duration) if comma else None)
    if not comma:
        return Within(parse_duration(plain))
    raise _bad(f"past is {show(text)}", _GIVE)


def parse_duration(text: str) -> timedelta:
    """Read a duration: `250ms`, `90s`, `5m`, `2h`, `1.5d`. Finer than a microsecond is cut off.

    Raises:
        BoundError: it is none, or longer than a timedelta can be.
    """
    mend = "give a number and a unit: 90s, 5m, 2h or 1d"
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise _bad(f"{show(text)} is no duration", f"{mend}; in full {_GIVE}")
    try:
        return timedelta(microseconds=int(Decimal(found[1]) * _UNITS[found[2]]))
    except OverflowError:
        raise _bad(f"{show(text)} is too long a time", mend) from None


def print_duration(duration: timedelta) -> str:
    """Write a duration in the largest unit that gives a whole number, else in seconds with a fraction."""
    micros = duration // _MICROSECOND
    for unit, size in _UNITS.items():
        if micros % size == 0:
            return f"{micros // size}{unit}"
    whole, rest = divmod(micros, _UNITS["s"])
    return f"{whole}.{rest:06}".rstrip("0") + "s"


def _whole(value: object, name: str, low: int, mend: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_INT:
        raise _bad(f"{name} is {show(value)}", mend)


def _positive(value: object) -> None:
    if not isinstance(value, timedelta) or value <= timedelta(0):
        shown = value if isinstance(value, timedelta) else show(value)
        raise _bad(f"the time is {shown}", "give a timedelta above 0, such as timedelta(minutes=5)")


def _bad(message: str, mend: str) -> BoundError:
    return BoundError(message, field="past", help=mend)

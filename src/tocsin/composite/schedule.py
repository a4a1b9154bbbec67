"""Absolute times: `AT '08:00'`, `AT '2026-12-24T18:00:00Z'`, `AT '*/15 8-18 * * MON-FRI'`.

    hh:mm[:ss]                        every day
    an ISO time with its timezone     once
    minute hour day month weekday     as cron has it: * , - / and names; either day will do, unless one begins with *

All times are UTC, since a definition must mean the same on every machine. A time of day may carry an offset
(`'08:00+01:00'`); it does not follow daylight saving.

Pure: what comes next follows from the text and an instant, in microseconds since 1970.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from tocsin.clock import as_datetime, as_micros
from tocsin.errors import DefinitionError, EventError
from tocsin.model import parse_time, time_text

__all__ = ["Schedule", "parse_schedule"]

_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(Z|[+-]\d{2}:\d{2})?")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _DAYS),
)
_HELP = "write '08:00', '2026-12-24T18:00:00Z', or five fields as in cron: '*/15 8-18 * * MON-FRI'"
_LONGEST = 8 * 366 + 1  # days until the rarest date comes again: 29 February, over a century that has none


class Schedule(NamedTuple):
    """When something is due."""

    text: str
    """Canonical."""
    after: Callable[[int], int | None]
    """The first instant later than one; None: there is none."""


def parse_schedule(text: str) -> Schedule:
    """Read an absolute time.

    Raises:
        DefinitionError: it is none; `position` is the offset in the text.
    """
    plain = " ".join(text.split())
    if (found := _TIME.fullmatch(plain)) is not None:
        return _daily(found)
    if len(parts := plain.split(" ")) == len(_FIELDS):
        return _cron(parts)
    try:
        moment = as_micros(parse_time(plain, "AT"))
    except EventError:
        raise _bad(f"{text!r} is no absolute time") from None
    return Schedule(time_text(as_datetime(moment)), lambda instant: moment if moment > instant else None)


def _bad(message: str, help: str = _HELP) -> DefinitionError:
    return DefinitionError(message, position=0, help=help)


def _daily(found: re.Match[str]) -> Schedule:
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    zone = found[4] or ""
    if hour > 23 or minute > 59 or second > 59:
        raise _bad(f"{found[0]} is no time of day")
    offset = timedelta(0)
    if zone not in ("", "Z"):
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:])) * (1 if zone[0] == "+" else -1)
        if int(zone[4:]) > 59 or abs(offset) >= timedelta(days=1):
            raise _bad(f"{zone} is no offset from UTC")
    here = timezone(offset)
    wanted = timedelta(hours=hour, minutes=minute, seconds=second)

    def after(instant: int) -> int:
        now = as_datetime(instant).astimezone(here)
        due = now.replace(hour=0, minute=0, second=0, microsecond=0) + wanted
        return as_micros(due if due > now else due + timedelta(days=1))

    shown = f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")
    return Schedule(shown + (zone if offset else ""), after)


def _cron(parts: Sequence[str]) -> Schedule:
    minutes, hours, days, months, weekdays = (_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True))
    weekdays = sorted({day % 7 for day in weekdays})  # 7 is Sunday, too
    either = not parts[2].startswith("*") and not parts[4].startswith("*")

    def is_day(day: datetime) -> bool:
        of_month, of_week = day.day in days, day.isoweekday() % 7 in weekdays
        return day.month in months and (of_month or of_week if either else of_month and of_week)

    def after(instant: int) -> int | None:
        now = as_datetime(instant).astimezone(UTC)
        begin = now.replace(second=0, microsecond=0) + timedelta(minutes=1)  # whole minutes later than now
        day = begin.replace(hour=0, minute=0)
        for _ in range(_LONGEST):
            if is_day(day):
                first = begin if begin.date() == day.date() else day
                for hour in hours[bisect_left(hours, first.hour) :]:
                    least = first.minute if hour == first.hour else 0
                    if (place := bisect_left(minutes, least)) < len(minutes):
                        return as_micros(day.replace(hour=hour, minute=minutes[place]))
            day += timedelta(days=1)
        return None

    if after(0) is None:
        raise _bad(f"{' '.join(parts)!r} never comes", help="no month has such a day")
    return Schedule(" ".join(parts).upper(), after)


def _field(text: str, name: str, low: int, high: int, names: Sequence[str]) -> list[int]:
    """The numbers that one field allows."""
    found: set[int] = set()
    for item in text.split(","):
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        if slash and (not step.isdecimal() or int(step) < 1):
            raise _bad(f"{item!r} is no {name} of a cron line: {step!r} is no step")
        if span == "*":
            begin, end = low, high
        else:
            begin = _number(first, name, low, high, names)
            end = _number(last, name, low, high, names) if dash else (high if slash else begin)
        if begin > end:
            raise _bad(f"{item!r} goes backward", help=f"write {first}-{high},{low}-{last}")
        found |= set(range(begin, end + 1, int(step) if slash else 1))
    return sorted(found)


def _number(text: str, name: str, low: int, high: int, names: Sequence[str]) -> int:
    if text.upper() in names:
        return names.index(text.upper()) + low
    if not text.isdecimal() or not low <= int(text) <= high:
        raise _bad(f"{text!r} is no {name} of a cron line, which is from {low} to {high}")
    return int(text)
